//! Clients that take their time: each connection ends when its time is up.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::process::open_connections;
use crate::harness::{Gateway, Raw, Reply, Setup, Upstream, eventually, within};

/// Sends these bytes and nothing more; the connection must be closed without an answer.
async fn check_closed(address: SocketAddr, name: &str, bytes: &[u8]) {
    println!("{name}");
    let mut raw = Raw::connect(address).await;
    raw.send(bytes).await;
    raw.closed().await;
}

/// Sends a byte each millisecond for as long as the gateway takes them.
async fn drip(raw: &mut Raw, bytes: impl Iterator<Item = u8>) {
    for byte in bytes {
        if raw.try_send([byte]).await.is_err() || raw.is_closed() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Every kind, on a gateway whose times are fractions of a second.
pub(super) async fn run_all(address: SocketAddr, key: &str) {
    let started = Instant::now();
    check_closed(address, "says nothing", b"").await;
    check_closed(address, "half a request line", b"GET /api").await;
    check_closed(
        address,
        "half a head",
        b"GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\nx-a",
    )
    .await;
    check_closed(
        address,
        "a head without its end",
        b"GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n",
    )
    .await;
    check_closed(address, "half a preface", b"PRI * HTTP/2.0\r\n\r\n").await;

    println!("a head that comes drop by drop");
    let mut raw = Raw::connect(address).await;
    drip(
        &mut raw,
        b"GET /".iter().copied().chain(std::iter::repeat_n(b'a', 20_000)),
    )
    .await;
    raw.closed().await;

    println!("half a head after an answer");
    let mut raw = Raw::connect(address).await;
    raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    raw.answer().await.ok();
    raw.send("GET /api/v1/ll").await;
    raw.closed().await;

    let head = format!(
        "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 20000\r\n\r\n"
    );
    println!("half a body");
    let mut raw = Raw::connect(address).await;
    raw.send(format!("{head}{{\"model\"")).await;
    raw.answer().await.error(408, "invalid_request_error");
    raw.closed().await;

    println!("a body that comes drop by drop");
    let mut raw = Raw::connect(address).await;
    raw.send(&head).await;
    drip(&mut raw, std::iter::repeat_n(b' ', 20_000)).await;
    raw.answer().await.error(408, "invalid_request_error");
    raw.closed().await;

    println!("asks and never reads");
    let mut raw = Raw::connect(address).await;
    let many = "GET /api/v1/llm/public/models HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000);
    within("the connection is closed", async {
        while raw.try_send(&many).await.is_ok() {}
    })
    .await;
    drop(raw);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test]
async fn who_is_slow_is_not_waited_for() {
    let upstream = Upstream::unused().await;
    let times = json!({ "head_ms": 200, "body_ms": 200, "write_ms": 200, "keepalive_ms": 1_000 });
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"] = times)
        .start()
        .await;
    run_all(gateway.address, &gateway.key).await;
    eventually("every connection is closed", async || {
        (open_connections(gateway.address) == 0).then_some(())
    })
    .await;
    gateway.check_untouched(&upstream).await;
}

/// A stream of 64 MB, which no buffer on the way holds.
fn endless() -> Reply {
    let text = "word ".repeat(2_000);
    let event = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    (0..6_400).fold(Reply::stream(), |reply, _| reply.chunk(&event))
}

#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_left_and_billed() {
    let upstream = Upstream::always(endless()).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["write_ms"] = 200.into());
    let gateway: Gateway = setup.start().await;
    let mut raw = Raw::posted(&gateway, "/llm/chat/stream", &request(SMALL)).await;
    assert_eq!(raw.head().await.status, 200);
    upstream.hung_up().await;
    let spent = gateway.spent().await;
    assert!(spent > rust_decimal::Decimal::ZERO, "what was delivered is paid");
    gateway.check_books().await;
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_its_time_and_then_closed() {
    let upstream = Upstream::unused().await;
    let times = json!({ "head_ms": 100, "keepalive_ms": 1_000 });
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"] = times)
        .start()
        .await;
    let mut raw = Raw::connect(gateway.address).await;
    for _ in 0..3 {
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        raw.answer().await.ok();
        // Longer than a head may take: the time of a head begins with its first byte.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    raw.closed().await;
}

#[tokio::test]
async fn connections_are_counted_in_all_and_by_address() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["connections_per_address_max"] = 3.into());
    let gateway = setup.start().await;
    let health = "GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(health).await;
        raw.answer().await.ok();
        open.push(raw);
    }
    Raw::connect(gateway.address).await.closed().await;
    open.pop().unwrap().close();
    eventually("a place is free again", async || {
        let mut raw = Raw::connect(gateway.address).await;
        raw.try_send(health).await.ok()?;
        raw.try_answer().await.map(drop)
    })
    .await;

    let setup = Setup::over(&upstream).conf(|conf| {
        conf["connections_per_address_max"] = 3.into();
        conf["trusted_proxies"] = json!(["127.0.0.0/8"]);
    });
    let gateway = setup.start().await;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(health).await;
        raw.answer().await.ok();
        open.push(raw);
    }
}
