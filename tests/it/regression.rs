//! One test for each fault that was found and mended; the comment says its cause.

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::client::ask;
use crate::harness::{Gateway, Raw, Reply, Setup, Upstream};

/// Pingora leaves the body of an answer to HEAD out over HTTP/1.1 alone; over HTTP/2 it was sent, and clients reset the stream.
#[tokio::test]
async fn head_over_http2_has_no_body() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for path in ["/llm/health", "/llm/models", "/llm/nothing"] {
        let answer = ask(gateway.h2c.request(reqwest::Method::HEAD, path)).await;
        assert_ne!(answer.header("content-length"), "0");
        assert!(answer.body.is_empty());
    }
}

/// Pingora marks every error of the client's session as the client's own, so a silent upstream was taken for a client that had left: the
/// client got no error event and no clean end.
#[tokio::test]
async fn an_upstreams_silence_is_not_the_clients_fault() {
    let upstream = Upstream::always(Reply::stream().role().silence()).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["idle_ms"] = 50.into());
    let gateway = setup.start().await;
    let events = gateway
        .http1
        .stream("/llm/chat/stream", request(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(
        gateway.spent().await,
        rust_decimal::Decimal::ZERO,
        "nothing was delivered"
    );
}

/// Pingora adds chunks to every answer without a length, also for clients of HTTP/1.0, which do not know them.
#[tokio::test]
async fn a_client_of_http_1_0_gets_no_chunks() {
    let upstream = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    let (key, body) = (&gateway.key, request(SMALL));
    let length = body.len();
    let headers = format!("authorization: Bearer {key}\r\nconnection: keep-alive\r\ncontent-length: {length}\r\n");
    raw.send(format!("POST /api/v1/llm/chat/stream HTTP/1.0\r\n{headers}\r\n{body}"))
        .await;
    let answer = raw.until_closed().await.ok();
    assert_eq!(answer.header("connection"), "close");
    assert!(answer.text().starts_with("data: {"), "{}", answer.text());
}

/// The star of `If-None-Match`, which stands for whatever there is, was compared with the entity tag as text.
#[tokio::test]
async fn a_star_matches_every_entity_tag() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let request = gateway
        .http1
        .request(reqwest::Method::GET, "/models")
        .header("if-none-match", "*");
    assert_eq!(ask(request).await.status, 304);
}

/// Once the client of a drained call had gone, nothing watched the upstream's silence: the call went on for the first byte's time, two
/// minutes by default, and not for the idle time.
#[tokio::test]
async fn a_drained_upstreams_silence_is_noticed() {
    let upstream = Upstream::always(Reply::stream().role().silence()).await;
    let setup = Setup::over(&upstream).conf(|conf| {
        conf["timeouts"]["idle_ms"] = 50.into();
        conf["providers"]["main"]["on_disconnect"] = "drain".into();
    });
    let gateway = setup.start().await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();
    drop(events);
    upstream.hung_up().await;
    gateway.check_books().await;
}
