//! What a connection carries that is not one whole request after another: broken heads, bodies that are framed twice, and how long it lasts.

use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::pure::operator::Role;
use tollgate::server::operator::Times;

use super::{Desk, Ground, of};
use crate::harness::operator::{Process, free_address};
use crate::harness::{Raw, Upstream, eventually};

/// A request with a token that lists accounts, as often as it is wanted.
fn listing(token: &str, more: &str) -> String {
    format!("GET /v1/accounts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n")
}

#[tokio::test]
async fn a_broken_head_is_answered_and_leaves_no_token_in_the_log() {
    let (upstream, address) = (Upstream::unused().await, free_address());
    let mut admin = address;
    let process = Process::start(&upstream, |conf| {
        conf["operator_listen"] = address.to_string().into();
        admin = serde_json::from_value(conf["admin_listen"].clone()).unwrap();
    })
    .await;
    eventually("operators are listened to", async || {
        tokio::net::TcpStream::connect(address).await.ok()
    })
    .await;
    let token = of(Role::Admin);
    for listener in [address, admin] {
        let mut raw = Raw::connect(listener).await;
        raw.send(listing(&token, "a header without a colon\r\n")).await;
        if listener == address {
            let answer = raw.answer().await;
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status, &body["error"]["code"]), (400, &Value::from(400)));
            assert_eq!(body["error"]["type"], "invalid_request_error");
        }
        raw.closed().await;
    }
    let log = std::fs::read_to_string(process.path("log")).unwrap();
    assert!(!log.contains("tgop_") && !log.contains("Bearer"), "{log}");
}

#[tokio::test]
async fn a_body_that_is_framed_twice_smuggles_no_request() {
    let desk = Desk::over(Ground::Embedded).await;
    let smuggled = listing(&of(Role::Admin), "");
    let post = format!(
        "POST /v1/session HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        of(Role::Admin)
    );
    for (case, request) in [
        (
            "both",
            format!("{post}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        (
            "chunked",
            format!("{post}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        (
            "bare line ends",
            format!("{post}transfer-encoding: chunked\r\n\r\n0\n\r\n{smuggled}"),
        ),
        (
            "another coding",
            format!("{post}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        (
            "of a GET",
            format!(
                "{}0\r\n\r\n{smuggled}",
                listing(&of(Role::Admin), "transfer-encoding: chunked\r\n")
            ),
        ),
        (
            "old",
            format!(
                "{}{smuggled}",
                listing(&of(Role::Admin), "connection: keep-alive\r\n").replace("HTTP/1.1", "HTTP/1.0")
            ),
        ),
    ] {
        let mut raw = Raw::connect(desk.address).await;
        raw.send(request).await;
        let first = raw.answer().await;
        assert!([200, 400].contains(&first.status), "{case}: {first:?}");
        raw.closed().await;
    }
    let mut raw = Raw::connect(desk.address).await;
    raw.send("GET /v1/openapi.json HTTP/1.1\r\n\r\n").await;
    assert_eq!(raw.answer().await.status, 400, "it names no host");
    raw.closed().await;
}

#[tokio::test]
async fn a_connection_in_use_lasts_longer_than_a_head_may_take() {
    let desk = Desk::over(Ground::Embedded).await;
    // Longer than a busy machine keeps a client from its next request.
    let times = Times {
        head: Duration::from_secs(5),
        ..Times::default()
    };
    let address = desk.gateway.operators_within(times).await;
    let (mut raw, started) = (Raw::connect(address).await, Instant::now());
    while started.elapsed() < times.head + Duration::from_secs(1) {
        raw.send(listing(&of(Role::Read), "")).await;
        assert_eq!(raw.answer().await.status, 200);
    }
    raw.closed().await;
}

#[tokio::test]
async fn a_request_that_runs_makes_room_for_nobody() {
    let desk = Desk::over(Ground::Embedded).await;
    let body = r#"{"name":"kept","tier":"free"}"#;
    let mut running = Raw::connect(desk.address).await;
    let (token, length) = (of(Role::Admin), body.len());
    running
        .send(format!(
            "POST /v1/accounts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        ))
        .await;
    // It is known who asks once the body is asked for.
    assert_eq!(running.head().await.status, 100);
    let mut strangers = Vec::new();
    for _ in 0..200 {
        strangers.push(Raw::connect(desk.address).await);
    }
    desk.get("/v1/accounts").await;
    running.send(body).await;
    assert_eq!(running.answer().await.status, 201);
}

#[tokio::test]
async fn who_waits_for_no_100_gets_none() {
    let desk = Desk::over(Ground::Embedded).await;
    for (name, version, expects) in [("old", "HTTP/1.0", "100-continue"), ("other", "HTTP/1.1", "200-foo")] {
        let body = format!(r#"{{"name":"{name}","tier":"free"}}"#);
        let (token, length) = (of(Role::Admin), body.len());
        let mut raw = Raw::connect(desk.address).await;
        raw.send(format!(
            "POST /v1/accounts {version}\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\nexpect: {expects}\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await;
        assert_eq!(raw.head().await.status, 201, "{version} {expects}");
    }
}
