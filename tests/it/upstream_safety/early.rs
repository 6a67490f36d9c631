//! An upstream that answers before it has read the request is heard at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// Far less than `write_ms`.
const HEARD_MAX: Duration = Duration::from_secs(10);
const WRITE_MS: u64 = 25_000;

/// Where an upstream listens that reads of each request the first bytes alone, answers this, and keeps the connection open.
async fn answers_early(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut first = vec![0; 4_096];
            socket.read_exact(&mut first).await.unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
            open.push(socket);
        }
    });
    address
}

fn answer(status: &str, body: &Value, more: &str) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {length}\r\n\r\n{body}")
}

/// More than the buffers on the way hold.
fn long_request(model: &str) -> String {
    let text = "All work and no play. ".repeat(1_000_000);
    json!({ "model": model, "messages": [{ "role": "user", "content": text }], "max_tokens": 10 }).to_string()
}

/// A gateway over an upstream that answers so, with another at `spare`; its model takes a prompt of 20 MiB.
async fn over(early: String, spare: &Upstream) -> Gateway {
    let address = answers_early(early).await;
    let setup = Setup::over(spare)
        .spare(spare)
        .provider(
            "main",
            json!({ "base_url": format!("http://{address}/v1"), "api_key_env": "SET_MAIN" }),
        )
        .credit("100000")
        .conf(|conf| {
            conf["timeouts"] = json!({ "write_ms": WRITE_MS });
            conf["tiers"]["pro"] = json!({ "tpm": 1_000_000_000_000u64, "monthly_quota": "100000" });
        });
    let wide = |model: &mut Value| model["context_length"] = 100_000_000.into();
    setup.model(SMALL, wide).model(TWIN, wide).start().await
}

#[tokio::test]
async fn a_refusal_before_the_body_was_read_is_heard_at_once() {
    let words = json!({ "error": { "message": "too long for me" } });
    for more in ["connection: close\r\n", ""] {
        let spare = Upstream::unused().await;
        let gateway = over(answer("413 Too Large", &words, more), &spare).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let body = long_request(SMALL);
            let started = Instant::now();
            let refused = client.post("/llm/chat", body).await;
            let took = started.elapsed();
            let error = refused.error(413, "invalid_request_error");
            assert_eq!(error["message"], "too long for me");
            assert!(took < HEARD_MAX, "{took:?}");
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_answer_before_the_body_was_read_is_heard_at_once() {
    let spare = Upstream::unused().await;
    let body = whole_chat("Hi", Some((9, 1)));
    let gateway = over(answer("200 OK", &body, "connection: close\r\n"), &spare).await;
    let asked = long_request(SMALL);
    let started = Instant::now();
    let answer = gateway.http1.post("/llm/chat", asked).await.ok();
    let took = started.elapsed();
    assert_eq!(crate::harness::told::without_cost(answer.text()), body.to_string());
    assert!(took < HEARD_MAX, "{took:?}");
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    gateway.check_books().await;
}

#[tokio::test]
async fn the_next_target_is_asked_at_once_when_one_fails_before_it_has_read_the_body() {
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let words = json!({ "error": { "message": "overloaded" } });
    let gateway = over(answer("503 Busy", &words, "connection: close\r\n"), &spare).await;
    let asked = long_request(TWIN);
    let started = Instant::now();
    gateway.http1.post("/llm/chat", asked).await.ok();
    let took = started.elapsed();
    assert!(took < HEARD_MAX, "{took:?}");
    assert_eq!(spare.seen().len(), 1);
    assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
    gateway.check_books().await;
}
