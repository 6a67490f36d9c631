//! A client that never reads is given up once a write has waited for `write_ms`, whatever was being written.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::process::established_connections;
use crate::harness::reply::whole_chat;
use crate::harness::{Gateway, Raw, Reply, Setup, Upstream, eventually};

const WRITE_MS: u64 = 300;
/// Far more than that, and far less than anything else that would end the connection.
const GIVEN_UP_MAX: Duration = Duration::from_secs(10);
/// What the gateway's kernel keeps of answers that are not read, about half of it, in bytes.
const SEND_BUFFER: u32 = 4 << 10;

/// A gateway over an upstream that always says this. It waits for a client for `WRITE_MS`, and so little is kept for one that a few
/// dozen short answers fill it.
async fn over(reply: Reply) -> (Upstream, Gateway) {
    let upstream = Upstream::always(reply).await;
    let setup = Setup::over(&upstream).send_buffer_bytes(SEND_BUFFER).conf(|conf| {
        conf["timeouts"] = json!({ "write_ms": WRITE_MS });
        conf["tiers"]["pro"] = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000 });
    });
    let long = "A word of its own. ".repeat(100_000);
    let setup = setup.model(SMALL, |model| model["description"] = long.into());
    (upstream, setup.start().await)
}

fn post(gateway: &Gateway, path: &str) -> String {
    let body = request(SMALL);
    let length = body.len();
    ask(gateway, "POST", path, &format!("content-length: {length}\r\n")) + &body
}

fn ask(gateway: &Gateway, method: &str, path: &str, headers: &str) -> String {
    let key = &gateway.key;
    format!("{method} /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}\r\n")
}

/// A short answer of the gateway's own, longer than the head of a stream: what has no room for one has none for the other.
fn short_answer(gateway: &Gateway) -> String {
    ask(gateway, "GET", "/llm/nothing", "")
}

/// A client that asks on one connection, each time when the answer before was written, and reads none.
struct NeverReads<'gateway> {
    gateway: &'gateway Gateway,
    raw: Raw,
    /// Requests of the gateway so far.
    asked: u64,
}

impl NeverReads<'_> {
    async fn connect<'gateway>(gateway: &'gateway Gateway) -> NeverReads<'gateway> {
        let done = gateway.metrics().sum("tollgate_requests_total", &[]);
        NeverReads {
            gateway,
            raw: Raw::connect_narrow(gateway.address).await,
            asked: done.try_into().unwrap(),
        }
    }

    /// Asks, and waits for so long until the answer is written; whether it was.
    async fn asks(&mut self, request: &str, at_most: Duration) -> bool {
        if self.raw.try_send(request).await.is_err() {
            return false;
        }
        self.asked += 1;
        let asked_at = Instant::now();
        let ended = async || {
            let metrics = self.gateway.metrics();
            let is_answered = metrics.sum("tollgate_requests_total", &[]) >= self.asked.into()
                && metrics.sum("tollgate_requests_in_flight", &[]) == 0.into();
            let is_over = asked_at.elapsed() > at_most || established_connections(self.gateway.address) == 0;
            (is_answered || is_over).then_some(is_answered)
        };
        eventually("an answer is written, or not", ended).await
    }

    /// Goes until nothing more is taken off its hands; how many answers are written to it.
    async fn fills(&mut self) -> u64 {
        let request = short_answer(self.gateway);
        let mut answers = 0;
        // A slow answer is not one that has no room: the connection's end tells.
        while self.asks(&request, GIVEN_UP_MAX).await {
            answers += 1;
        }
        answers
    }
}

/// The answer to this, of which nothing or only a part can be written, is given up in time.
async fn check_given_up(gateway: &Gateway, request: &str) {
    let answers = {
        let mut other = NeverReads::connect(gateway).await;
        let answers = other.fills().await;
        other.raw.close();
        answers
    };
    assert!(answers > 4, "{answers}");
    nothing_runs(gateway).await;
    let mut client = NeverReads::connect(gateway).await;
    let filling = short_answer(gateway);
    // Almost: the next answer, or one of the next, has no room. How much the kernel takes differs a little between connections.
    for _ in 1..answers {
        if !client.asks(&filling, GIVEN_UP_MAX).await {
            break;
        }
    }
    let mut asked_at = Instant::now();
    while client.asks(request, GIVEN_UP_MAX).await {
        asked_at = Instant::now();
    }
    let took = asked_at.elapsed();
    assert!(took < GIVEN_UP_MAX, "not given up in {took:?}");
    nothing_runs(gateway).await;
    gateway.check_books().await;
}

async fn nothing_runs(gateway: &Gateway) {
    eventually("nothing is in flight and no client is there", async || {
        let in_flight = gateway.metrics().sum("tollgate_requests_in_flight", &[]);
        (in_flight == 0.into() && established_connections(gateway.address) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_never_reads_a_whole_answer_is_given_up() {
    for length in [100, 10_000, 1_000_000] {
        let (_upstream, gateway) = over(Reply::chat(&"word ".repeat(length / 5), 9, 1)).await;
        check_given_up(&gateway, &post(&gateway, "/llm/chat")).await;
    }
}

#[tokio::test]
async fn who_never_reads_an_answer_in_chunks_is_given_up() {
    let body = whole_chat("Hi", Some((9, 1))).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let (_upstream, gateway) = over(Reply::default().bytes(head).chunk(body).end()).await;
    check_given_up(&gateway, &post(&gateway, "/llm/chat")).await;
}

#[tokio::test]
async fn who_never_reads_a_stream_is_given_up() {
    for length in [5, 100_000] {
        let (_upstream, gateway) = over(Reply::stream_of(&[&"word ".repeat(length / 5)], 9, 1)).await;
        check_given_up(&gateway, &post(&gateway, "/llm/chat/stream")).await;
    }
}

/// The stream's head is all that there is to write for now.
#[tokio::test]
async fn who_never_reads_the_head_of_a_stream_is_given_up() {
    let (upstream, gateway) = over(Reply::stream().silence()).await;
    check_given_up(&gateway, &post(&gateway, "/llm/chat/stream")).await;
    upstream.hung_up().await;
}

#[tokio::test]
async fn who_never_reads_the_gateways_own_answers_is_given_up() {
    let (_upstream, gateway) = over(Reply::status(500)).await;
    for (method, path) in [
        ("GET", "/llm/models"),
        ("GET", "/llm/models?search=small"),
        ("GET", "/llm/models/purposes"),
        ("GET", "/llm/nothing"),
    ] {
        println!("{method} {path}");
        check_given_up(&gateway, &ask(&gateway, method, path, "")).await;
    }
    check_given_up(&gateway, &post(&gateway, "/llm/chat")).await;
}

#[tokio::test]
async fn who_never_reads_heads_without_a_body_is_given_up() {
    let (_upstream, gateway) = over(Reply::status(500)).await;
    for (method, path, headers) in [
        ("GET", "/llm/models", "if-none-match: *\r\n"),
        ("HEAD", "/llm/models", ""),
        (
            "OPTIONS",
            "/llm/chat",
            "origin: https://a.example\r\naccess-control-request-method: POST\r\n",
        ),
    ] {
        println!("{method} {path}");
        check_given_up(&gateway, &ask(&gateway, method, path, headers)).await;
    }
}
