//! What a scripted upstream answers: bytes in pieces, and what happens between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// One answer of a scripted upstream.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(super) steps: Vec<Step>,
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// These bytes are sent, in one piece.
    Send(Bytes),
    /// Nothing is sent until the test gives the cue.
    Wait(Cue),
    /// Nothing is sent for so long: the upstream thinks.
    Pause(Duration),
    /// The connection is closed.
    Close,
    /// The same, without the end of a TLS session.
    Drop,
    /// The connection is reset.
    Reset,
    /// Nothing more is ever sent; the connection stays open.
    Silence,
}

/// Lets a test say when an upstream goes on.
#[derive(Clone, Debug)]
pub struct Cue(Arc<Semaphore>);

impl Cue {
    /// A cue that was not given yet.
    pub fn new() -> Cue {
        Cue(Arc::new(Semaphore::new(0)))
    }

    /// Lets one wait pass.
    pub fn give(&self) {
        self.0.add_permits(1);
    }

    /// Lets every wait pass, from now on.
    pub fn give_all(&self) {
        self.0.add_permits(1_000_000);
    }

    pub(super) async fn given(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

/// Stands in every message of an upstream's that must not reach a client.
pub const UPSTREAM_SECRET: &str = "sk-upstream-secret";

impl Reply {
    /// An answer with a length.
    pub fn new(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {status} Said\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        Reply::default().bytes([head.as_bytes(), body].concat())
    }

    /// JSON with status 200.
    pub fn json(body: &Value) -> Reply {
        Reply::new(200, &[JSON], body.to_string())
    }

    /// An error in OpenAI's shape, with words that no client may see.
    pub fn status(status: u16) -> Reply {
        Reply::refusal(status, &[], &format!("upstream says {status} for {UPSTREAM_SECRET}"))
    }

    /// An error in OpenAI's shape with these words.
    pub fn refusal(status: u16, headers: &[(&str, &str)], message: &str) -> Reply {
        let body =
            json!({ "error": { "message": message, "type": "their_type", "param": null, "code": "their_code" } });
        Reply::new(status, &[headers, &[JSON]].concat(), body.to_string())
    }

    /// The head of a whole answer of so many bytes, which follow.
    pub fn json_head(length: usize) -> Reply {
        Reply::default().bytes(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        ))
    }

    /// A whole chat completion that reports its usage.
    pub fn chat(text: &str, prompt: u64, completion: u64) -> Reply {
        Reply::json(&whole_chat(text, Some((prompt, completion))))
    }

    /// A whole chat completion without a usage.
    pub fn chat_without_usage(text: &str) -> Reply {
        Reply::json(&whole_chat(text, None))
    }

    /// Vectors for so many inputs.
    pub fn embeddings(inputs: usize, prompt: u64) -> Reply {
        let vector = |index| json!({ "object": "embedding", "index": index, "embedding": [0.25, -0.5] });
        let data: Vec<Value> = (0..inputs).map(vector).collect();
        let usage = json!({ "prompt_tokens": prompt, "total_tokens": prompt });
        Reply::json(&json!({ "object": "list", "data": data, "model": "up-embed", "usage": usage }))
    }

    /// The usual stream: a role, texts, a finish reason, a usage chunk, `[DONE]`.
    pub fn stream_of(texts: &[&str], prompt: u64, completion: u64) -> Reply {
        let begun = texts
            .iter()
            .fold(Reply::stream().role(), |reply, text| reply.text(text));
        begun.finish().usage(prompt, completion).done()
    }

    /// The head of a stream, in chunks.
    pub fn stream() -> Reply {
        Reply::default().bytes(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\
             x-upstream: internal\r\nset-cookie: session=internal\r\n\r\n",
        )
    }

    /// The first event.
    pub fn role(self) -> Reply {
        self.choice(json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// An event with a piece of text.
    pub fn text(self, text: &str) -> Reply {
        self.choice(json!({ "content": text }), Value::Null)
    }

    /// The event with the finish reason.
    pub fn finish(self) -> Reply {
        self.choice(json!({}), json!("stop"))
    }

    /// The usage chunk.
    pub fn usage(self, prompt: u64, completion: u64) -> Reply {
        let usage =
            json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion });
        self.event(&chunk(json!([]), Some(usage)).to_string())
    }

    /// `[DONE]` and the clean end.
    pub fn done(self) -> Reply {
        self.event("[DONE]").end()
    }

    /// The clean end of the chunks.
    pub fn end(self) -> Reply {
        self.bytes("0\r\n\r\n")
    }

    /// An event of this data, as one chunk.
    pub fn event(self, data: &str) -> Reply {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// These bytes as one chunk.
    pub fn chunk(self, bytes: impl AsRef<[u8]>) -> Reply {
        let bytes = bytes.as_ref();
        let head = format!("{:x}\r\n", bytes.len());
        self.bytes([head.as_bytes(), bytes, b"\r\n"].concat())
    }

    /// These bytes as they are.
    pub fn bytes(self, bytes: impl AsRef<[u8]>) -> Reply {
        self.step(Step::Send(Bytes::copy_from_slice(bytes.as_ref())))
    }

    /// What was said so far, up to each wait, goes out in one piece.
    pub fn at_once(mut self) -> Reply {
        let mut steps: Vec<Step> = Vec::new();
        for step in self.steps {
            match (steps.last_mut(), step) {
                (Some(Step::Send(before)), Step::Send(bytes)) => *before = [before.as_ref(), &bytes].concat().into(),
                (_, step) => steps.push(step),
            }
        }
        self.steps = steps;
        self
    }

    /// Then this.
    pub fn and(mut self, rest: Reply) -> Reply {
        self.steps.extend(rest.steps);
        self
    }

    /// Waits for the test here.
    pub fn wait(self, cue: &Cue) -> Reply {
        self.step(Step::Wait(cue.clone()))
    }

    /// Then the first bytes of this, so many at most.
    pub fn cut(mut self, rest: Reply, bytes: usize) -> Reply {
        let mut left = bytes;
        for step in rest.steps {
            let Step::Send(piece) = step else { continue };
            let sent = piece.len().min(left);
            left -= sent;
            self = self.bytes(&piece[..sent]);
        }
        self
    }

    /// Thinks for so long before anything of the answer goes out.
    pub fn after(mut self, pause: Duration) -> Reply {
        self.steps.insert(0, Step::Pause(pause));
        self
    }

    /// Waits for a cue before anything of the answer goes out.
    pub fn once(mut self, cue: &Cue) -> Reply {
        self.steps.insert(0, Step::Wait(cue.clone()));
        self
    }

    /// Thinks for so long here.
    pub fn pause(self, pause: Duration) -> Reply {
        self.step(Step::Pause(pause))
    }

    /// Closes the connection here.
    pub fn close(self) -> Reply {
        self.step(Step::Close)
    }

    /// Closes the connection here, without an end of its TLS session.
    pub fn dropped(self) -> Reply {
        self.step(Step::Drop)
    }

    /// Resets the connection here.
    pub fn reset(self) -> Reply {
        self.step(Step::Reset)
    }

    /// Says nothing more, with the connection open.
    pub fn silence(self) -> Reply {
        self.step(Step::Silence)
    }

    fn choice(self, delta: Value, finish_reason: Value) -> Reply {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason });
        self.event(&chunk(json!([choice]), None).to_string())
    }

    fn step(mut self, step: Step) -> Reply {
        self.steps.push(step);
        self
    }
}

/// A whole chat completion.
pub fn whole_chat(text: &str, usage: Option<(u64, u64)>) -> Value {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    let mut body =
        json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up", "choices": [choice] });
    if let Some((prompt, completion)) = usage {
        body["usage"] =
            json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion });
    }
    body
}

fn chunk(choices: Value, usage: Option<Value>) -> Value {
    let mut chunk = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": choices });
    if let Some(usage) = usage {
        chunk["usage"] = usage;
    }
    chunk
}

const JSON: (&str, &str) = ("content-type", "application/json");
