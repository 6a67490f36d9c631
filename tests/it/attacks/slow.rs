//! Clients that take their time: each connection ends when its time is up.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::process::open_connections;
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream, eventually, within};

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
        // Sleeps: the pace is what is tried, bytes that come, and never fast.
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

/// It pays for what it took or could still have taken: what lies in the buffers between the two, and no more.
#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_left_and_billed_for_what_was_sent_to_it() {
    let upstream = Upstream::always(endless()).await;
    let setup = Setup::over(&upstream).send_buffer_bytes(SEND_BUFFER);
    let gateway: Gateway = setup
        .conf(|conf| conf["timeouts"]["write_ms"] = 200.into())
        .start()
        .await;
    let mut raw = Raw::connect_narrow(gateway.address).await;
    raw.post(&gateway, "/llm/chat/stream", &request(SMALL)).await;
    assert_eq!(raw.head().await.status, 200);
    upstream.hung_up().await;
    let took = raw.rest().await;
    let words = took.windows(5).filter(|word| word == b"word ").count() as u64;
    let buffered = u64::from(SEND_BUFFER) * 2 + GATEWAY_BUFFERS;
    let spent = gateway.spent().await;
    println!("{} bytes and {words} words taken, {spent} spent", took.len());
    assert!(words > 0 && took.len() < 1 << 20, "{} bytes", took.len());
    let (least, most) = (cost(SMALL, PROMPT, words), cost(SMALL, PROMPT, words + buffered / 5));
    assert!(
        least <= spent && spent <= most,
        "{spent} for {words} words, not {least} to {most}"
    );
    gateway.check_books().await;
}

/// What the gateway tells the kernel to keep of an answer; it keeps twice as much.
const SEND_BUFFER: u32 = 16 << 10;
/// The most that the gateway itself has of a stream that it has begun to write.
const GATEWAY_BUFFERS: u64 = 32 << 10;

#[tokio::test]
async fn an_idle_connection_is_kept_for_its_time_and_then_closed() {
    let upstream = Upstream::unused().await;
    // It is kept for far longer than the client pauses, however busy the machine is.
    let times = json!({ "head_ms": 500, "keepalive_ms": 5_000 });
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"] = times)
        .start()
        .await;
    let mut raw = Raw::connect(gateway.address).await;
    for _ in 0..3 {
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        raw.answer().await.ok();
        // Sleeps: the time is what is tried, longer than a head may take. The time of a head begins with its first byte.
        tokio::time::sleep(Duration::from_millis(700)).await;
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
    let mut fourth = Raw::connect(gateway.address).await;
    // It asks, so that it is not closed for its silence. The gateway may have closed it before.
    let _gone = fourth.try_send(health).await;
    fourth.closed().await;
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

/// A connection from this address of loopback that is served and idle, as soon as there is room for it.
async fn served_from(local: u8, gateway: &Gateway) -> Raw {
    eventually("there is room for a connection", async || {
        let mut raw = Raw::connect_from([127, 0, 0, local], gateway.address).await;
        raw.try_send(HEALTH).await.ok()?;
        raw.try_answer().await.map(|answer| {
            answer.ok();
            raw
        })
    })
    .await
}

/// A connection from there is closed, whatever it asks.
async fn check_refused(local: u8, gateway: &Gateway) {
    let mut raw = Raw::connect_from([127, 0, 0, local], gateway.address).await;
    let _gone = raw.try_send(HEALTH).await;
    raw.closed().await;
}

/// At the most in all, whoever they come from: an address of its own does not help against running calls, and neither does a trusted proxy.
#[tokio::test]
async fn idle_connections_make_room_and_running_calls_do_not() {
    for proxies in [json!([]), json!(["127.0.0.0/8"])] {
        let cue = Cue::new();
        let upstream = Upstream::always(Reply::chat("Hi", 9, 1).once(&cue)).await;
        let setup = Setup::over(&upstream).conf(|conf| {
            conf["connections_max"] = 3.into();
            conf["connections_per_address_max"] = 2.into();
            conf["trusted_proxies"] = proxies;
        });
        let gateway = setup.start().await;
        let mut running = Vec::new();
        for local in 1..=2 {
            let mut raw = Raw::connect_from([127, 0, 0, local], gateway.address).await;
            raw.post(&gateway, "/llm/chat", &request(SMALL)).await;
            running.push(raw);
        }
        upstream.asked(2).await;
        let mut idle = served_from(3, &gateway).await;
        let mut fourth = served_from(4, &gateway).await;
        idle.closed().await;
        fourth.post(&gateway, "/llm/chat", &request(SMALL)).await;
        running.push(fourth);
        upstream.asked(3).await;
        for local in 4..=6 {
            check_refused(local, &gateway).await;
        }
        cue.give_all();
        for raw in &mut running {
            raw.answer().await.ok();
        }
        served_from(7, &gateway).await;
        gateway.check_books().await;
    }
}

/// Whoever holds the most makes room, also with connections on which nothing was ever sent.
#[tokio::test]
async fn the_address_with_the_most_idle_connections_makes_room() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["connections_max"] = 3.into());
    let gateway = setup.start().await;
    let mut alone = Raw::connect_from([127, 0, 0, 1], gateway.address).await;
    let mut first = Raw::connect_from([127, 0, 0, 2], gateway.address).await;
    let mut second = Raw::connect_from([127, 0, 0, 2], gateway.address).await;
    let mut newcomer = served_from(3, &gateway).await;
    first.closed().await;
    for raw in [&mut alone, &mut second, &mut newcomer] {
        raw.send(HEALTH).await;
        raw.answer().await.ok();
    }
}

#[tokio::test]
async fn idle_connections_of_http2_make_room_and_those_with_running_calls_do_not() {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1).once(&cue)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["connections_max"] = 1.into());
    let gateway = setup.start().await;
    let h2c = gateway.h2c.clone();
    let call = tokio::spawn(async move { h2c.post("/llm/chat", request(SMALL)).await });
    upstream.asked(1).await;
    for local in 1..=3 {
        check_refused(local, &gateway).await;
    }
    cue.give_all();
    call.await.unwrap().ok();
    served_from(4, &gateway).await;
    gateway.check_books().await;
}

const HEALTH: &str = "GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n";
