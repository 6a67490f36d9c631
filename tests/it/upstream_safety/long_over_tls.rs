//! A long request over TLS and HTTP/1.1 leaves to its end while its answer is waited for.

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::over_tls;
use crate::harness::catalogue::SMALL;
use crate::harness::tls::Authority;
use crate::harness::{Reply, Setup, Upstream};

/// Fixed, so that the kernel does not take a whole request at once for the upstream.
const RECEIVE_BUFFER: u32 = 128 << 10;
const SENTENCE: &str = "All work and no play makes Jack a dull boy, and so on, and so on.\n";
/// About 60 KB: what TLS keeps at most of what its connection does not take.
const STEP: usize = 900;

/// How much waits in TLS when all of a request was taken differs with its length, and with how fast the other end reads.
#[tokio::test]
async fn requests_of_many_lengths_arrive_whole() {
    let authority = Authority::new();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let reply = Reply::chat("Hi", 9, 1).close();
    let tls = authority.identity("localhost").acceptor();
    let upstream = Upstream::on(listener, move |_, _| reply.clone(), Some(tls));
    let setup = Setup::over(&upstream)
        .credit("100000")
        .conf(|conf| {
            conf["timeouts"] = json!({ "write_ms": 20_000, "first_byte_ms": 20_000 });
            conf["tiers"]["pro"] = json!({ "tpm": 1_000_000_000_000u64, "monthly_quota": "100000" });
        })
        .model(SMALL, |model: &mut Value| model["context_length"] = 100_000_000.into());
    let gateway = over_tls(&upstream.base_url_at("localhost"), &authority, setup).await;
    for step in 0..24 {
        let text = SENTENCE.repeat(40_000 + step * STEP);
        let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": text }], "max_tokens": 10 });
        gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        let seen = upstream.seen();
        assert_eq!(seen.len(), step + 1);
        let came = seen[step].json();
        assert!(came["messages"][0]["content"] == text.as_str(), "step {step}");
    }
    gateway.check_books().await;
}
