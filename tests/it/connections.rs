//! The connection as HTTP clients expect it: `Expect: 100-continue`, HEAD, keep-alive after every kind of answer, missing lengths.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{HUGE, LARGE, SMALL, cost};
use crate::harness::frames::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, fields, frame};
use crate::harness::{Gateway, Raw, Reply, Setup, Upstream};

/// A request over HTTP/1.1 as text; `headers` end in line ends.
fn http(gateway: &Gateway, method: &str, path: &str, headers: &str, body: &str) -> String {
    let key = &gateway.key;
    format!("{method} /api/v1{path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n{headers}\r\n{body}")
}

/// A POST with a length.
fn post(gateway: &Gateway, path: &str, body: &str) -> String {
    let length = body.len();
    http(
        gateway,
        "POST",
        path,
        &format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
        body,
    )
}

/// The connection serves another request.
async fn check_reusable(raw: &mut Raw, gateway: &Gateway) {
    raw.send(http(gateway, "GET", "/llm/health", "", "")).await;
    assert_eq!(raw.answer().await.ok().json(), json!({ "status": "ok" }));
}

#[tokio::test]
async fn a_client_that_expects_100_gets_it_then_its_answer_and_keeps_its_connection() {
    let upstream = Upstream::by(|_, seen| match seen.json()["stream"] {
        serde_json::Value::Bool(true) => Reply::stream_of(&["Hi"], 9, 1),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    for (body, last) in [(request(SMALL), "}"), (streaming(SMALL), "data: [DONE]\n\n")] {
        for chunked in [false, true] {
            let (framing, framed) = if chunked {
                (
                    "transfer-encoding: chunked\r\n".to_owned(),
                    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
                )
            } else {
                (format!("content-length: {}\r\n", body.len()), body.clone())
            };
            raw.send(http(
                &gateway,
                "POST",
                "/llm/chat",
                &format!("{framing}expect: 100-continue\r\n"),
                "",
            ))
            .await;
            assert_eq!(raw.head().await.status, 100);
            assert!(upstream.seen().iter().all(|seen| seen.header("expect").is_none()));
            raw.send(framed).await;
            let answer = raw.answer().await.ok();
            assert!(answer.text().ends_with(last), "{}", answer.text());
            assert_ne!(answer.header("connection"), "close");
            if last == "}" && chunked {
                check_reusable(&mut raw, &gateway).await;
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_expects_100_is_refused_without_being_asked_for_its_body() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let long = format!("content-length: {}\r\nexpect: 100-continue\r\n", 64 << 20);
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(http(&gateway, "POST", "/llm/chat", &long, "")).await;
    raw.answer().await.error(413, "invalid_request_error");
    raw.closed().await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send("POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n")
        .await;
    raw.answer().await.error(401, "authentication_error");
    raw.closed().await;
    gateway.check_untouched(&upstream).await;
}

/// One of HTTP/1.0 would take the interim answer for its answer.
#[tokio::test]
async fn who_waits_for_no_100_gets_none() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let expecting = |what: &str| {
        let expects = format!("expect: {what}\r\ncontent-length: ");
        post(&gateway, "/llm/chat", &request(SMALL)).replacen("content-length: ", &expects, 1)
    };
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(expecting("100-continue").replacen("HTTP/1.1", "HTTP/1.0", 1))
        .await;
    assert_eq!(raw.until_closed().await.status, 200);
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(expecting("200-foo")).await;
    assert_eq!(raw.answer().await.status, 200);
    // Its body is on its way, so what it is refused does not cost the connection.
    raw.send(expecting("200-foo").replacen("Bearer tg_", "Bearer tg_0", 1))
        .await;
    raw.answer().await.error(401, "authentication_error");
    check_reusable(&mut raw, &gateway).await;
    gateway.check_books().await;
}

#[tokio::test]
async fn head_is_answered_like_get_without_the_body() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    for path in [
        "/llm/balance",
        "/llm/usage",
        "/key",
        "/llm/generation",
        "/llm/generation?id=x",
        "/llm/generations",
        "/generation?id=x",
        "/llm/models",
        "/llm/models?search=small",
        "/llm/models/purposes",
        "/llm/public/models",
        "/llm/health",
        "/models",
        "/models/acme/small",
        "/models/none/such",
        "/wallet",
        "/wallet/page.css",
        "/wallet/none",
        "/prices",
        "/llm/nothing",
    ] {
        raw.send(http(&gateway, "HEAD", path, "", "")).await;
        let head = raw.head().await;
        raw.send(http(&gateway, "GET", path, "", "")).await;
        let get = raw.answer().await;
        assert_eq!(head.status, get.status, "{path}");
        for name in ["content-type", "content-length", "cache-control", "etag"] {
            assert_eq!(head.header(name), get.header(name), "{path}");
        }
        assert_eq!(get.header("content-length"), get.body.len().to_string());
        let over_h2 = crate::harness::client::ask(gateway.h2c.request(reqwest::Method::HEAD, path)).await;
        assert_eq!((over_h2.status, over_h2.body.len()), (get.status, 0), "{path}");
    }
}

#[tokio::test]
async fn the_connection_is_kept_after_a_refusal() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream).credit("0").start().await;
    let mut raw = Raw::connect(gateway.address).await;
    for (status, request) in [
        (404, post(&gateway, "/llm/nothing", &request(SMALL))),
        (405, post(&gateway, "/llm/balance", &request(SMALL))),
        (405, http(&gateway, "GET", "/llm/chat", "", "")),
        (
            401,
            post(&gateway, "/llm/chat", &request(SMALL)).replace("Bearer tg_", "Bearer tg_0"),
        ),
        (400, post(&gateway, "/llm/chat", "not json")),
        (400, post(&gateway, "/llm/chat", "")),
        (400, http(&gateway, "GET", "/llm/usage?period=x", "", "")),
        (403, post(&gateway, "/llm/chat", &request(HUGE))),
        (404, post(&gateway, "/llm/chat", &request("no/such"))),
        (402, post(&gateway, "/llm/chat", &request(LARGE))),
        (402, post(&gateway, "/llm/chat", &streaming(LARGE))),
        (404, post(&gateway, "/llm/nothing", &"x".repeat(60_000))),
        (
            204,
            http(&gateway, "OPTIONS", "/llm/chat", "origin: https://a.example\r\n", ""),
        ),
    ] {
        raw.send(&request).await;
        let answer = raw.answer().await;
        assert_eq!(answer.status, status, "{} to {request}", answer.text());
        assert_ne!(answer.header("connection"), "close", "{request}");
        check_reusable(&mut raw, &gateway).await;
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn the_connection_is_kept_after_what_the_upstream_answered() {
    let replies = [
        Reply::chat("Hi", 9, 1),
        Reply::stream_of(&["Hi"], 9, 1),
        Reply::refusal(400, &[], "bad parameter"),
        Reply::refusal(422, &[], "bad parameter"),
        Reply::stream().role().text("Hi").finish().usage(9, 1).end(),
        Reply::chat("Hi", 9, 1),
    ];
    let upstream = Upstream::of(replies).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    for (status, body) in [
        (200, request(SMALL)),
        (200, streaming(SMALL)),
        (400, request(SMALL)),
        (422, streaming(SMALL)),
        (200, streaming(SMALL)),
        (200, request(SMALL)),
    ] {
        raw.send(post(&gateway, "/llm/chat", &body)).await;
        let answer = raw.answer().await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_ne!(answer.header("connection"), "close", "{status}");
        check_reusable(&mut raw, &gateway).await;
    }
    assert_eq!(upstream.connections(), 1, "the upstream's connection is kept too");
    gateway.check_books().await;
}

#[tokio::test]
async fn the_connection_is_kept_behind_a_stream_that_broke_off() {
    let begun = || Reply::stream().role().text("Hi");
    let upstream = Upstream::of([begun().close(), begun().bytes("9\r\ndata").close(), begun().close()]).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    for _ in 0..2 {
        raw.send(post(&gateway, "/llm/chat", &streaming(SMALL))).await;
        let answer = raw.answer().await.ok();
        assert!(answer.text().contains("upstream_error"), "{}", answer.text());
        assert_ne!(answer.header("connection"), "close");
        check_reusable(&mut raw, &gateway).await;
    }
    // One that asked for the end gets it.
    let last = post(&gateway, "/llm/chat", &streaming(SMALL)).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    raw.send(last).await;
    assert_eq!(raw.answer().await.ok().header("connection"), "close");
    raw.closed().await;
    gateway.check_books().await;
}

#[tokio::test]
async fn a_connection_that_is_not_kept_says_so() {
    let upstream = Upstream::always(Reply::status(500)).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(&gateway, "/llm/chat", &request(SMALL))).await;
    let answer = raw.answer().await;
    answer.error(500, "upstream_error");
    assert_eq!(answer.header("connection"), "close");
    raw.closed().await;
}

#[tokio::test]
async fn an_upstreams_answer_without_a_length_reaches_the_client_whole() {
    let whole = crate::harness::reply::whole_chat("Hi there", Some((9, 3))).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
                  data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let stream_head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let replies = [
        Reply::default().bytes(head).bytes(&whole).close(),
        Reply::default().bytes(head).bytes(&whole).close(),
        Reply::default().bytes(stream_head).bytes(events).close(),
        Reply::default().bytes(stream_head).bytes(events).close(),
    ];
    let upstream = Upstream::of(replies).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let answer = client.post("/llm/chat", request(SMALL)).await.ok();
        assert_eq!(crate::harness::told::without_cost(answer.text()), whole);
    }
    for client in [&gateway.http1, &gateway.h2c] {
        let events = client.stream("/llm/chat", streaming(SMALL)).await.ok().rest().await;
        assert_eq!(events.len(), 2, "{events:?}");
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 36, 12));
}

#[tokio::test]
async fn a_post_without_any_length_has_no_body() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(http(&gateway, "POST", "/llm/chat", "", "")).await;
    raw.answer().await.error(400, "invalid_request_error");
    check_reusable(&mut raw, &gateway).await;
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_its_answer() {
    let upstream = Upstream::of([Reply::chat("Hi", 9, 1), Reply::stream_of(&["Hi"], 9, 1)]).await;
    let gateway = Gateway::over(&upstream).await;
    for (body, last) in [(request(SMALL), "}"), (streaming(SMALL), "data: [DONE]\n\n")] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(post(&gateway, "/llm/chat", &body).replace("HTTP/1.1", "HTTP/1.0"))
            .await;
        let answer = raw.until_closed().await.ok();
        assert!(answer.text().ends_with(last), "{}", answer.text());
        assert_eq!(answer.header("transfer-encoding"), "", "HTTP/1.0 knows no chunks");
    }
}

/// What a client over HTTP/2 may send before it hears that more is read: of one body, and of all bodies of its connection.
#[tokio::test]
async fn a_client_over_http2_may_send_256_kib_of_a_body_and_512_kib_of_all_ahead() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    let health = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "gateway"),
        (":path", "/api/v1/llm/health"),
    ]);
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &health);
    raw.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &request].concat())
        .await;
    // What both are until something else is said (RFC 9113 section 6.9.2).
    let (mut of_a_body, mut of_all) = (65_535, 65_535);
    loop {
        let head = raw.take(9).await;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = raw.take(length).await;
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match (head[3], head[8]) {
            // The answer: what is said of windows goes before it.
            (HEADERS, 1) => break,
            (WINDOW_UPDATE, 0) => of_all += number(0),
            (SETTINGS, 0) => {
                // Of six bytes each; the initial window has the number 4.
                for at in (0..length).step_by(6).filter(|at| payload[*at..*at + 2] == [0, 4]) {
                    of_a_body = number(at + 2);
                }
            }
            _ => {}
        }
    }
    assert_eq!((of_a_body, of_all), (256 << 10, 512 << 10));
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_408() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"]["body_ms"] = 50.into())
        .start()
        .await;
    for framing in ["content-length: 1000", "transfer-encoding: chunked"] {
        let began = Instant::now();
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(http(
            &gateway,
            "POST",
            "/llm/chat",
            &format!("{framing}\r\n"),
            "5\r\n{\"mod\r\n",
        ))
        .await;
        let answer = raw.answer().await;
        answer.error(408, "invalid_request_error");
        assert_eq!(answer.header("connection"), "close");
        // The time of a short body is not followed by the five seconds in which one of a refused request is taken.
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "{framing}: {:?}",
            began.elapsed()
        );
        raw.closed().await;
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_client_that_leaves_within_its_body_leaves_nothing_behind() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(http(
        &gateway,
        "POST",
        "/llm/chat",
        "content-length: 1000\r\n",
        "{\"model\"",
    ))
    .await;
    raw.close();
    gateway.http1.get("/llm/health").await.ok();
    gateway.check_untouched(&upstream).await;
}
