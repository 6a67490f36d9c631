//! A provider that writes one token an event and remembers, of each call, how many it has sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tollgate::pure::prompt_count::counted_prompt;
use tollgate::pure::request_body::{Endpoint, PromptLimits, RequestBody};

/// The model's id.
pub const MODEL: &str = "acme/small";

/// What it has sent of each call, by the call's number.
type Sent = Arc<Mutex<HashMap<u64, u64>>>;

/// A running provider.
pub struct Provider {
    address: SocketAddr,
    sent: Sent,
    opens: watch::Sender<bool>,
}

/// Where answers wait for the test: streams after so many tokens, whole ones before their first byte.
#[derive(Clone)]
struct Gate {
    after: u64,
    is_open: watch::Receiver<bool>,
}

impl Gate {
    /// One that was never closed is not looked at.
    async fn pass(&mut self, sent: u64) {
        if sent == self.after {
            // It fails where the provider is gone: then nothing is waited for.
            drop(self.is_open.wait_for(|is_open| *is_open).await);
        }
    }
}

/// How a provider behaves.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Tokens of a stream.
    pub tokens: u64,
    /// Between two events, and before a whole answer.
    pub pause: Duration,
}

impl Pace {
    /// Lets the pause pass. Without one whoever else is ready has a turn: the shortest sleep takes a millisecond or two, and longer on a busy
    /// machine.
    async fn pass(self) {
        if self.pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            // Sleeps: the provider's pace, so that calls are under way when something happens to them.
            tokio::time::sleep(self.pause).await;
        }
    }
}

impl Provider {
    /// One that answers at once.
    pub async fn quick() -> Provider {
        Provider::start(Pace {
            tokens: 1,
            pause: Duration::ZERO,
        })
        .await
    }

    pub async fn start(pace: Pace) -> Provider {
        Provider::waiting(pace, u64::MAX).await
    }

    /// One whose answers wait until they may [`go on`](Provider::go_on): streams after so many tokens, whole ones at their beginning.
    pub async fn waiting(pace: Pace, after: u64) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Sent::default();
        let (opens, is_open) = watch::channel(after == u64::MAX);
        let gate = Gate { after, is_open };
        let provider = Provider {
            address,
            sent: Arc::clone(&sent),
            opens,
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                // An end of the connection in the middle is what the rig is about.
                tokio::spawn(converse(socket, pace, Arc::clone(&sent), gate.clone()));
            }
        });
        provider
    }

    /// What waits goes on.
    pub fn go_on(&self) {
        self.opens.send_replace(true);
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many calls it has seen.
    pub fn seen(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// Tokens that were sent of a call, or nothing when it never came here.
    pub fn sent(&self, call: u64) -> Option<u64> {
        self.sent.lock().unwrap().get(&call).copied()
    }
}

/// The tokens of a call's prompt, as this provider counts them.
pub fn prompt_tokens(body: &[u8]) -> u64 {
    let body = RequestBody::parse(Bytes::copy_from_slice(body), Endpoint::Chat).unwrap();
    let limits = PromptLimits {
        image_tokens_each: 0,
        context_length: 100_000,
    };
    counted_prompt(&body, MODEL, &limits).0
}

/// The message of a call of this number.
pub fn message(call: u64) -> String {
    format!("call {call} please")
}

/// What the answer to a call is known by: no two calls have the same.
pub fn answer_id(call: u64) -> String {
    format!("answer-{call}")
}

async fn converse(mut socket: TcpStream, pace: Pace, sent: Sent, mut gate: Gate) -> std::io::Result<()> {
    let mut unread = Vec::new();
    loop {
        let Some(body) = read_request(&mut socket, &mut unread).await? else {
            return Ok(());
        };
        let asked: Value = serde_json::from_slice(&body)?;
        let content = asked["messages"][0]["content"].as_str().unwrap_or_default();
        let call: u64 = content
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .unwrap_or_default();
        let before = sent.lock().unwrap().insert(call, 0);
        assert!(before.is_none(), "call {call} came twice");
        let usage = json!({ "prompt_tokens": prompt_tokens(&body), "completion_tokens": pace.tokens });
        if asked["stream"] == true {
            // Every other provider reports no usage: the gateway has to count.
            let reports = call.is_multiple_of(4);
            stream(&mut socket, pace, reports.then_some(usage), (&sent, &mut gate), call).await?;
        } else {
            let all = gate.after;
            gate.pass(all).await;
            pace.pass().await;
            let text = "apple".to_owned() + &" apple".repeat(usize::try_from(pace.tokens).unwrap() - 1);
            let answer = json!({
                "id": answer_id(call), "object": "chat.completion", "created": 1, "model": "up-small", "usage": usage,
                "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }],
            });
            let body = answer.to_string();
            sent.lock().unwrap().insert(call, pace.tokens);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all((head + &body).as_bytes()).await?;
        }
    }
}

async fn stream(
    socket: &mut TcpStream,
    pace: Pace,
    usage: Option<Value>,
    (sent, gate): (&Sent, &mut Gate),
    call: u64,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    for number in 0..pace.tokens {
        gate.pass(number).await;
        *sent.lock().unwrap().entry(call).or_default() += 1;
        write_event(
            socket,
            &event(
                call,
                json!([{ "index": 0, "delta": { "content": " apple" }, "finish_reason": null }]),
                None,
            ),
        )
        .await?;
        pace.pass().await;
    }
    write_event(
        socket,
        &event(
            call,
            json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]),
            None,
        ),
    )
    .await?;
    if let Some(usage) = usage {
        write_event(socket, &event(call, json!([]), Some(usage))).await?;
    }
    write_event(socket, "data: [DONE]\n\n").await?;
    socket.write_all(b"0\r\n\r\n").await
}

fn event(call: u64, choices: Value, usage: Option<Value>) -> String {
    let event = json!({
        "id": answer_id(call), "object": "chat.completion.chunk", "created": 1, "model": "up-small", "choices": choices, "usage": usage,
    });
    format!("data: {event}\n\n")
}

async fn write_event(socket: &mut TcpStream, event: &str) -> std::io::Result<()> {
    socket
        .write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
        .await
}

/// One request's body; None at the connection's end.
async fn read_request(socket: &mut TcpStream, unread: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    let mut piece = [0u8; 4096];
    loop {
        if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&unread[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.expect("a length").trim().parse().expect("a number");
            if unread.len() >= end + 4 + length {
                let body = unread[end + 4..end + 4 + length].to_vec();
                unread.drain(..end + 4 + length);
                return Ok(Some(body));
            }
        }
        let read = socket.read(&mut piece).await?;
        if read == 0 {
            return Ok(None);
        }
        unread.extend_from_slice(&piece[..read]);
    }
}
