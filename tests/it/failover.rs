//! When upstreams fail: the next target, the interface's statuses, and no word of theirs.

mod broken_refusals;
mod operator_refusals;
mod stream_starts;
mod stream_usage;
mod waiting_heads;

use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream};

/// The ways of an upstream to fail before the first byte of an answer that could be passed on.
fn failures() -> Vec<(&'static str, Reply)> {
    let mut failures: Vec<(&str, Reply)> = [500, 502, 503, 504, 529, 429, 401, 402, 403, 408, 301, 204, 201]
        .into_iter()
        .map(|status| ("a status", Reply::status(status)))
        .collect();
    failures.extend([
        ("closed without an answer", Reply::default().close()),
        ("reset without an answer", Reply::default().reset()),
        (
            "closed within the head",
            Reply::default().bytes("HTTP/1.1 200 OK\r\ncontent-ty").close(),
        ),
        ("no HTTP", Reply::default().bytes("SSH-2.0-OpenSSH_9.9\r\n").close()),
        ("no answer in time", Reply::default().silence()),
        (
            "an empty answer",
            Reply::default().bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ),
        (
            "HTML for JSON",
            Reply::new(200, &[("content-type", "text/html")], "<h1>Welcome</h1>"),
        ),
        (
            "compressed",
            Reply::new(
                200,
                &[("content-type", "application/json"), ("content-encoding", "gzip")],
                "x",
            ),
        ),
    ]);
    failures
}

#[tokio::test]
async fn the_second_target_answers_when_the_first_fails_in_any_way() {
    for (name, failure) in failures() {
        println!("{name} {failure:?}");
        let main = Upstream::always(failure).await;
        let spare = Upstream::by(|_, seen| match seen.json()["stream"] {
            Value::Bool(true) => Reply::stream_of(&["Hi"], 9, 1),
            _ => Reply::chat("Hi", 9, 1),
        })
        .await;
        let setup = Setup::over(&main).spare(&spare);
        let gateway = setup
            .conf(|conf| conf["timeouts"] = json!({ "first_byte_ms": 300, "idle_ms": 300 }))
            .start()
            .await;
        for client in [&gateway.http1, &gateway.h2c] {
            assert_eq!(
                client.post("/llm/chat", request(TWIN)).await.ok().json()["object"],
                "chat.completion"
            );
            let events = client.stream("/llm/chat", streaming(TWIN)).await.ok().rest().await;
            assert_eq!(events.last().unwrap(), "[DONE]");
        }
        for seen in spare.seen() {
            assert_eq!(seen.json()["model"], "up-twin-2");
            assert_eq!(seen.header("authorization"), Some("Bearer credential-SET_SPARE"));
            assert_eq!(seen.header("host").unwrap(), spare.address.to_string());
        }
        assert_eq!(spare.seen().len(), 4);
        assert_eq!(gateway.spent().await, cost(TWIN, 36, 4));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn the_second_target_answers_when_the_first_cannot_be_reached() {
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for base_url in ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"] {
        let setup = Setup::over(&spare)
            .spare(&spare)
            .provider("main", json!({ "base_url": base_url }));
        let gateway = setup.start().await;
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        gateway
            .http1
            .post("/llm/chat", request(SMALL))
            .await
            .error(502, "upstream_error");
        assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
    }
}

#[tokio::test]
async fn when_all_targets_fail_their_statuses_are_mapped_and_their_words_stay_inside() {
    for (status, mapped, kind) in [
        (500, 500, "upstream_error"),
        (501, 500, "upstream_error"),
        (502, 500, "upstream_error"),
        (503, 500, "upstream_error"),
        (529, 500, "upstream_error"),
        (504, 502, "upstream_error"),
        (408, 502, "upstream_error"),
        (429, 429, "rate_limit_error"),
        (401, 500, "upstream_error"),
        (402, 500, "upstream_error"),
        (403, 500, "upstream_error"),
        (302, 500, "upstream_error"),
    ] {
        let main = Upstream::always(Reply::status(status)).await;
        let gateway = Setup::over(&main).spare(&main).start().await;
        for client in [&gateway.http1, &gateway.h2c] {
            for model in [SMALL, TWIN] {
                for body in [request(model), streaming(model)] {
                    let answer = client.post("/llm/chat", body).await;
                    answer.error(mapped, kind);
                    assert_eq!(answer.header("retry-after").is_empty(), mapped != 429, "{status}");
                    let is_operators = (401..=403).contains(&status);
                    assert_eq!(answer.header("x-should-retry") == "false", is_operators, "{status}");
                }
            }
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        assert_eq!(gateway.usage().await, []);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_502() {
    for (name, failure) in failures()
        .into_iter()
        .filter(|(name, _)| *name != "a status" && *name != "compressed")
    {
        println!("{name}");
        let upstream = Upstream::always(failure).await;
        let setup =
            Setup::over(&upstream).conf(|conf| conf["timeouts"] = json!({ "first_byte_ms": 300, "idle_ms": 300 }));
        let gateway = setup.start().await;
        let status = if name == "HTML for JSON" { 500 } else { 502 };
        gateway
            .http1
            .post("/llm/chat", request(SMALL))
            .await
            .error(status, "upstream_error");
        gateway
            .h2c
            .post("/llm/chat/stream", request(SMALL))
            .await
            .error(status, "upstream_error");
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_busy_upstreams_retry_after_is_passed_on() {
    for (said, passed) in [
        (vec![("retry-after", "17")], "17"),
        (vec![], "5"),
        (vec![("retry-after", "Fri, 20 Nov 2026 10:00:17 GMT")], "17"),
        (vec![("retry-after", "Fri, 20 Nov 2026 09:00:00 GMT")], "5"),
        (vec![("retry-after", "1.5")], "2"),
        (vec![("retry-after-ms", "2500"), ("retry-after", "17")], "3"),
        (vec![("retry-after-ms", "soon"), ("retry-after", "17")], "17"),
    ] {
        let upstream = Upstream::always(Reply::refusal(429, &said, "slow down")).await;
        let gateway = Setup::over(&upstream).start().await;
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(429, "rate_limit_error");
        assert_eq!(answer.header("retry-after"), passed);
        assert!(!answer.text().contains("slow down"));
    }
}

#[tokio::test]
async fn what_the_upstream_refuses_is_the_clients_with_status_and_message() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (413, "invalid_request_error"),
        (415, "invalid_request_error"),
        (422, "invalid_request_error"),
    ] {
        let main = Upstream::always(Reply::refusal(
            status,
            &[("x-internal", "1")],
            "temperature must be below 2",
        ))
        .await;
        let spare = Upstream::unused().await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request(TWIN), streaming(TWIN)] {
                let answer = client.post("/llm/chat", body).await;
                assert_eq!(answer.error(status, kind)["message"], "temperature must be below 2");
                assert_eq!(answer.header("x-should-retry"), "false");
                assert_eq!(answer.header("x-internal"), "");
            }
        }
        assert!(spare.seen().is_empty(), "a refusal is not tried elsewhere");
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_refusal_in_any_other_shape_is_put_in_ours() {
    let json = ("content-type", "application/json");
    let long = "x".repeat(5_000);
    let says = |body: Value| Reply::new(400, &[json], body.to_string());
    let fault = json!([{ "loc": ["body", "top_k"], "msg": "must be 1 or more" }]);
    let inner = json!({ "error": { "message": "no such role" } });
    let through = json!({ "message": "Provider returned error", "metadata": { "raw": inner.to_string() } });
    for (reply, message) in [
        (Reply::new(400, &[json], r#"{"message":"at the top"}"#), "at the top"),
        (Reply::new(400, &[json], r#"{"error":"just a text"}"#), "just a text"),
        (says(json!([inner])), "no such role"),
        (says(json!({ "detail": "a detail" })), "a detail"),
        (says(json!({ "detail": fault })), "body.top_k: must be 1 or more"),
        (
            says(json!({ "message": { "detail": fault } })),
            "body.top_k: must be 1 or more",
        ),
        (says(json!({ "error": through })), "no such role"),
        (Reply::new(400, &[("content-type", "text/plain")], "no JSON"), ""),
        (Reply::new(400, &[], ""), ""),
        (Reply::new(400, &[json], r#"{"error":{"message":1}}"#), ""),
        (Reply::new(400, &[json], r#"{"error":{"message":"cut"#), ""),
        (
            Reply::new(400, &[json], json!({ "error": { "message": long } }).to_string()),
            &long[..2_000],
        ),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = Setup::over(&upstream).start().await;
        for path in ["/llm/chat", "/llm/chat/stream"] {
            let error = gateway
                .http1
                .post(path, request(SMALL))
                .await
                .error(400, "invalid_request_error");
            assert!(message.is_empty() || error["message"] == message, "{error}");
        }
    }
}

#[tokio::test]
async fn weighted_targets_share_the_calls_and_the_others_follow() {
    let main = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let last = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let targets = json!([
        { "provider": "last", "model": "up-last" },
        { "provider": "main", "model": "up-twin", "weight": 3 },
        { "provider": "spare", "model": "up-twin-2", "weight": 1 },
    ]);
    let setup = Setup::over(&main)
        .spare(&spare)
        .provider("last", json!({ "base_url": last.base_url() }));
    let setup = setup.tier(tollgate::pure::ids::Tier::Enterprise);
    let gateway = setup.model(TWIN, |model| model["targets"] = targets).start().await;
    for n in 0..400 {
        let call = json!({ "model": TWIN, "messages": [{ "role": "user", "content": format!("Hello {n}") }] });
        gateway.http1.post("/llm/chat", call.to_string()).await.ok();
    }
    let (from_main, from_spare) = (main.seen().len(), spare.seen().len());
    assert!((270..=330).contains(&from_main), "{from_main} of 400");
    assert_eq!((from_main + from_spare, last.seen().len()), (400, 0));

    let failing = Upstream::always(Reply::status(500)).await;
    let both = json!([
        { "provider": "main", "model": "up-last" },
        { "provider": "spare", "model": "a", "weight": 1 },
        { "provider": "spare", "model": "b", "weight": 1 },
    ]);
    let setup = Setup::over(&main)
        .spare(&failing)
        .model(TWIN, |model| model["targets"] = both);
    let gateway = setup.start().await;
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    assert_eq!(failing.seen().len(), 2, "each of the two, and then the other");
}

#[tokio::test]
async fn a_pooled_connection_that_was_closed_meanwhile_is_no_failure() {
    let cue = Cue::new();
    let upstream = Upstream::by({
        let cue = cue.clone();
        move |_, _| Reply::chat("Hi", 9, 1).wait(&cue).close()
    })
    .await;
    let gateway = Setup::over(&upstream).start().await;
    for calls in 1..=4 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        assert_eq!(upstream.seen().len(), calls);
        // The upstream closes the connection that now waits in the pool.
        cue.give();
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 36, 4));
}

#[tokio::test]
async fn an_interim_answer_of_the_upstream_is_no_answer() {
    let early =
        || Reply::default().bytes("HTTP/1.1 103 Early Hints\r\nlink: </internal>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    let main = Upstream::of([
        early().and(Reply::status(500)),
        early().close(),
        early().and(Reply::chat("Hi", 9, 1)),
    ])
    .await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for from_spare in [1, 2, 2] {
        let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(answer.header("link"), "");
        assert_eq!(spare.seen().len(), from_spare);
    }
    assert_eq!(gateway.spent().await, cost(TWIN, 27, 3));
}

#[tokio::test]
async fn a_connection_that_gave_a_head_was_not_stale() {
    // From the pool, and broken before anything of the answer could be passed on: the other target, with the whole request.
    let broken = || Reply::json_head(100).bytes("{").close();
    let main = Upstream::of([Reply::chat("Hi", 9, 1), broken()]).await;
    let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for text in ["Hi", "Ho"] {
        let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (2, 1));
    assert_eq!(main.connections(), 1);
    assert_eq!(gateway.spent().await, cost(TWIN, 18, 2));
}

#[tokio::test]
async fn a_connection_that_gave_a_part_of_a_head_was_not_stale() {
    let part = || Reply::default().bytes("HTTP/1.1 200 O");
    for broken in [part().close(), part().reset()] {
        let main = Upstream::of([Reply::chat("Hi", 9, 1), broken]).await;
        let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for text in ["Hi", "Ho"] {
            let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
            assert!(answer.text().contains(text), "{}", answer.text());
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (2, 1));
    }
}

#[tokio::test]
async fn a_head_that_took_long_leaves_its_body_the_time_of_a_silence() {
    let body = crate::harness::reply::whole_chat("Hi", Some((9, 1))).to_string();
    let rest = Reply::default().bytes(&body).after(Duration::from_millis(100));
    let slow = Reply::json_head(body.len()).after(Duration::from_secs(4)).and(rest);
    let upstream = Upstream::always(slow).await;
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"]["idle_ms"] = 3_000.into())
        .start()
        .await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_client_that_was_told_to_go_on_is_told_of_a_failure() {
    let upstream = Upstream::always(Reply::status(500)).await;
    let gateway = Gateway::over(&upstream).await;
    let body = request(SMALL);
    let fields = "HTTP/1.1\r\nhost: x\r\nexpect: 100-continue";
    let mut raw = Raw::posted_as(&gateway, "/llm/chat", fields, body.len(), "").await;
    assert_eq!(raw.head().await.status, 100);
    raw.send(body).await;
    raw.answer().await.error(500, "upstream_error");
}
