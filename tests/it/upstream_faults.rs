//! Every fault of an upstream before its answer begins, as one table: what the client gets, pays and waits, whole and streamed, with one
//! target and with two.

use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{request, streaming};
use crate::harness::broken::{BlackHole, resetting};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::UPSTREAM_SECRET;
use crate::harness::{Answer, Reply, Setup, Upstream};

/// What an upstream does in place of answering.
enum Fault {
    /// Nobody listens.
    Refused,
    /// Connections are never made.
    BlackHole,
    /// Connections are reset at once.
    ResetBefore,
    /// It speaks no TLS where that is wanted.
    Tls,
    /// It says this.
    Says(Reply),
}

/// What the client gets when there is no other target.
struct Expected {
    status: u16,
    kind: &'static str,
    retry_after: &'static str,
    /// Whether the request is at fault, so that no other target is tried and no retry helps.
    is_final: bool,
    /// Whether the operator has to act, so that no retry helps.
    is_operators: bool,
    /// It takes at least this long, because something is waited for.
    takes_ms: u64,
}

fn expect(status: u16, kind: &'static str) -> Expected {
    Expected {
        status,
        kind,
        retry_after: "",
        is_final: false,
        is_operators: false,
        takes_ms: 0,
    }
}

fn table() -> Vec<(String, Fault, Expected)> {
    let says = |status: u16, headers: &[(&str, &str)]| {
        let headers = [headers, &[("x-internal", UPSTREAM_SECRET), ("set-cookie", "a=b")]].concat();
        Fault::Says(Reply::refusal(
            status,
            &headers,
            &format!("{status} for {UPSTREAM_SECRET}"),
        ))
    };
    let unreachable = || expect(502, "upstream_error");
    let waiting = |takes_ms| Expected {
        takes_ms,
        ..expect(502, "upstream_error")
    };
    let refusal = |status: u16, kind| Expected {
        is_final: true,
        ..expect(status, kind)
    };
    let busy = |retry_after| Expected {
        retry_after,
        ..expect(429, "rate_limit_error")
    };
    // The words of a refusal are the client's, so these have no secret in them.
    let refuses = |status| Fault::Says(Reply::refusal(status, &[("x-internal", "1")], "not like this"));
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "x-filler: ".to_owned() + &"a".repeat(2 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "x-filler: a\r\n".repeat(2_000));
    let mut table = vec![
        ("refused".to_owned(), Fault::Refused, unreachable()),
        ("black hole".to_owned(), Fault::BlackHole, waiting(SILENCE_MS)),
        ("reset before the request".to_owned(), Fault::ResetBefore, unreachable()),
        (
            "reset after the request".to_owned(),
            Fault::Says(Reply::default().reset()),
            unreachable(),
        ),
        (
            "closed after the request".to_owned(),
            Fault::Says(Reply::default().close()),
            unreachable(),
        ),
        (
            "reset within the head".to_owned(),
            Fault::Says(Reply::default().bytes("HTTP/1.1 200 OK\r\ncontent-").reset()),
            unreachable(),
        ),
        // It waits for more of a request that is none.
        ("TLS failure".to_owned(), Fault::Tls, waiting(SILENCE_MS)),
        ("404".to_owned(), refuses(404), refusal(404, "not_found_error")),
        ("413".to_owned(), refuses(413), refusal(413, "invalid_request_error")),
        ("422".to_owned(), refuses(422), refusal(422, "invalid_request_error")),
        ("408".to_owned(), says(408, &[]), unreachable()),
        ("429 without Retry-After".to_owned(), says(429, &[]), busy("5")),
        (
            "429 with Retry-After".to_owned(),
            says(429, &[("retry-after", "7")]),
            busy("7"),
        ),
        (
            "429 with a Retry-After of a day".to_owned(),
            says(429, &[("retry-after", "86400")]),
            busy("120"),
        ),
        (
            "redirect".to_owned(),
            says(302, &[("location", "/elsewhere")]),
            expect(500, "upstream_error"),
        ),
        (
            "permanent redirect".to_owned(),
            says(308, &[("location", "/elsewhere")]),
            expect(500, "upstream_error"),
        ),
        (
            "endless header".to_owned(),
            Fault::Says(Reply::default().bytes(endless).silence()),
            unreachable(),
        ),
        (
            "endless headers".to_owned(),
            Fault::Says(Reply::default().bytes(many).silence()),
            unreachable(),
        ),
        (
            "no HTTP".to_owned(),
            Fault::Says(Reply::default().bytes("220 mail.example ESMTP\r\n").close()),
            unreachable(),
        ),
        (
            "no answer".to_owned(),
            Fault::Says(Reply::default().silence()),
            waiting(SILENCE_MS),
        ),
        (
            "no end of the head".to_owned(),
            Fault::Says(Reply::default().bytes("HTTP/1.1 200 OK\r\ncontent-type: a").silence()),
            waiting(SILENCE_MS),
        ),
    ];
    for status in [401, 402, 403, 500, 501, 502, 503, 529] {
        let expected = Expected {
            is_operators: (401..=403).contains(&status),
            ..expect(500, "upstream_error")
        };
        table.push((status.to_string(), says(status, &[]), expected));
    }
    table
}

/// What the upstream said stays inside, and the answer says that a retry may help or cannot.
fn check_refusal(answer: &Answer, expected: &Expected) {
    let error = answer.error(expected.status, expected.kind);
    assert_eq!(answer.header("retry-after"), expected.retry_after);
    assert_eq!(
        answer.header("x-should-retry"),
        if expected.is_final || expected.is_operators {
            "false"
        } else {
            ""
        }
    );
    for header in ["x-internal", "set-cookie", "location", "x-filler"] {
        assert_eq!(answer.header(header), "", "{header}");
    }
    for (name, value) in &answer.headers {
        assert!(!value.to_str().unwrap().contains(UPSTREAM_SECRET), "{name}");
    }
    let words = error["message"].as_str().unwrap();
    assert_eq!(words == "not like this", expected.is_final, "{words}");
    assert_ne!(answer.header("x-ratelimit-remaining-requests"), "");
}

#[tokio::test]
async fn every_fault_of_an_upstream() {
    for (name, fault, expected) in table() {
        println!("{name}");
        let said = if let Fault::Says(reply) = &fault {
            reply.clone()
        } else {
            Reply::status(500)
        };
        let main = Upstream::always(said).await;
        let spare = Upstream::by(|_, seen| match seen.json()["stream"].as_bool() {
            Some(true) => Reply::stream_of(&["Hi"], 9, 1),
            _ => Reply::chat("Hi", 9, 1),
        })
        .await;
        let hole = match fault {
            Fault::BlackHole => Some(BlackHole::new().await),
            _ => None,
        };
        let base_url = match &fault {
            Fault::Refused => "http://127.0.0.1:1/v1".to_owned(),
            Fault::BlackHole => hole.as_ref().unwrap().base_url(),
            Fault::ResetBefore => resetting().await,
            Fault::Tls => main.base_url_at("localhost").replace("http:", "https:"),
            Fault::Says(_) => main.base_url(),
        };
        let provider = json!({ "base_url": base_url, "api_key_env": "SET_MAIN" });
        // A fault that is seen at once ends no call by a time-out, however busy the machine is.
        let ms = if expected.takes_ms > 0 { SILENCE_MS } else { PATIENCE_MS };
        let timeouts = json!({ "connect_ms": ms, "first_byte_ms": ms, "idle_ms": ms });
        let setup = Setup::over(&main).spare(&spare).provider("main", provider);
        let gateway = setup.conf(|conf| conf["timeouts"] = timeouts).start().await;

        let mut from_spare = 0;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request, streaming] {
                let started = Instant::now();
                check_refusal(&client.post("/llm/chat", body(SMALL)).await, &expected);
                let took = started.elapsed();
                assert!(took >= Duration::from_millis(expected.takes_ms), "{took:?}");
                assert!(took < TAKES_MAX, "{took:?}");

                let started = Instant::now();
                let answer = client.post("/llm/chat", body(TWIN)).await;
                if expected.is_final {
                    check_refusal(&answer, &expected);
                } else {
                    let answer = answer.ok();
                    let ending = if body(TWIN) == streaming(TWIN) {
                        "data: [DONE]\n\n"
                    } else {
                        "}"
                    };
                    assert!(answer.text().ends_with(ending), "{}", answer.text());
                    assert!(!answer.text().contains(UPSTREAM_SECRET));
                    from_spare += 1;
                }
                assert!(started.elapsed() < TAKES_MAX);
            }
        }
        assert_eq!(spare.seen().len(), from_spare);
        let calls = u64::try_from(from_spare).unwrap();
        let bill = if calls == 0 {
            Decimal::ZERO
        } else {
            cost(TWIN, 9 * calls, calls)
        };
        assert_eq!(gateway.spent().await, bill, "a call pays what it was answered");
        gateway.check_books().await;
    }
}

/// How long an upstream is waited for that says nothing, where that is the fault.
const SILENCE_MS: u64 = 300;
const PATIENCE_MS: u64 = 10_000;
/// Far more than any of it takes, less than the patience with a fault that is to be seen at once, and far less than any default time-out.
const TAKES_MAX: Duration = Duration::from_secs(8);

#[tokio::test]
async fn what_a_provider_names_in_its_refusal_is_the_clients_to_read() {
    let words = json!({ "error": {
        "message": "This model's maximum context length is 128000 tokens.", "type": "invalid_request_error",
        "param": "messages", "code": "context_length_exceeded",
    }});
    for status in [400, 413, 422] {
        let kind = ("content-type", "application/json");
        let upstream = Upstream::always(Reply::new(status, &[kind], words.to_string())).await;
        let gateway = Setup::over(&upstream).start().await;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request(SMALL), streaming(SMALL)] {
                let answer = client.post("/llm/chat", body).await;
                let error = answer.error(status, "invalid_request_error");
                assert_eq!(error["message"], words["error"]["message"]);
                assert_eq!(error["param"], "messages");
                assert_eq!(error["metadata"], json!({ "provider_code": "context_length_exceeded" }));
            }
        }
    }
}
