//! The provider over sockets, in-process on port 0.

mod answers;
mod connections;
mod faults;

use std::net::SocketAddr;
use std::time::Instant;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

/// A provider without pauses, and what it has seen.
struct Server {
    address: SocketAddr,
    observations: mpsc::UnboundedReceiver<Observation>,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Server::start_with(Options::default()).await
    }

    async fn start_with(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, observations) = mpsc::unbounded_channel();
        let observer: Observer = Arc::new(move |seen| drop(sender.send(seen)));
        let (event_pause, first_byte_pause) = (Duration::ZERO, Duration::ZERO);
        let options = Options {
            event_pause,
            first_byte_pause,
            observer: Some(observer),
            ..options
        };
        let (shutdown, watch) = watch::channel(false);
        let task = tokio::spawn(serve(listener, options, watch));
        Server {
            address,
            observations,
            shutdown,
            task,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        Client::new()
            .post(format!("http://{}{path}", self.address))
            .json(body)
            .send()
            .await
            .unwrap()
    }

    async fn chat(&self, body: Value) -> Value {
        let response = self.post("/v1/chat/completions", &body).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.json().await.unwrap()
    }

    /// The events of a stream, the last of them `[DONE]` as a string if it came.
    async fn stream(&self, body: Value) -> Vec<Value> {
        let response = self.post("/v1/chat/completions", &body).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        events(&response.text().await.unwrap())
    }

    async fn embeddings(&self, body: Value) -> Value {
        self.post("/v1/embeddings", &body).await.json().await.unwrap()
    }

    /// A raw request for a chat; the connection is returned.
    async fn raw(&self, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&request(body)).await.unwrap();
        stream
    }

    /// How the next exchange ends.
    async fn ending(&mut self) -> (usize, Ending) {
        loop {
            match self.observations.recv().await.unwrap() {
                Observation::Ended { events, ending } => return (events, ending),
                Observation::Received { .. } => {}
            }
        }
    }
}

fn request(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST /chat/completions HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn says(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn streamed(text: &str) -> Value {
    with(
        says(text),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    )
}

fn events(text: &str) -> Vec<Value> {
    let payloads = text
        .split_terminator("\n\n")
        .map(|event| event.strip_prefix("data: ").unwrap());
    payloads
        .map(|payload| serde_json::from_str(payload).unwrap_or_else(|_| json!(payload)))
        .collect()
}

fn content(events: &[Value]) -> String {
    events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect()
}

async fn error(response: Response, status: u16) -> Value {
    assert_eq!(response.status().as_u16(), status);
    let body: Value = response.json().await.unwrap();
    assert!(
        body["error"]["message"].is_string() && body["error"]["type"].is_string(),
        "{body}"
    );
    body["error"].clone()
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        assert_ne!(
            stream.read_buf(&mut bytes).await.unwrap(),
            0,
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
    String::from_utf8(bytes).unwrap()
}
