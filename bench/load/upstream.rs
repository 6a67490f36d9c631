//! The simulated upstream: a provider that answers at once and costs a few microseconds a request, so that what is
//! measured is the proxy before it. What it shall answer stands in the request's first message (see [`Script`]), since a
//! gateway passes that on unchanged while it rewrites the model and drops unknown headers.

use std::{io, net::SocketAddr, sync::Arc, thread, time::Duration};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    Result, process,
    waiting::Waiting,
    wire::{self, Chunked, Framing, Malformed},
};

/// What a request asks the simulated upstream to do, as text in the body: `sim events=100 pace_ms=20;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    /// Content events of the stream.
    pub(crate) events: u32,
    /// Pause before each event but the first; 0 writes the whole stream at once.
    pub(crate) pace_ms: u32,
}

impl Script {
    /// The text that stands for it.
    pub(crate) fn text(self) -> String {
        format!("sim events={} pace_ms={};", self.events, self.pace_ms)
    }

    /// The script in the beginning of a body. None for a whole answer.
    fn find(body: &[u8]) -> Option<Self> {
        let beginning = &body[..body.len().min(SCRIPT_WITHIN)];
        let number = |name: &[u8]| {
            let start = memmem::find(beginning, name)? + name.len();
            let digits = beginning[start..].iter().take_while(|byte| byte.is_ascii_digit());
            Some(digits.fold(0, |number: u32, digit| {
                number.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
            }))
        };
        Some(Self {
            events: number(b"sim events=")?,
            pace_ms: number(b" pace_ms=")?,
        })
    }

    /// Events that a client sees when it asked for usage: content, the finish, usage, `[DONE]`.
    pub(crate) fn events_seen(self) -> u64 {
        u64::from(self.events) + 3
    }
}

/// Serves until the process is killed.
pub(crate) fn serve(listen: SocketAddr, threads: usize, waiting: Waiting) -> Result<()> {
    let listener = std::net::TcpListener::bind(listen).map_err(|e| format!("cannot listen on {listen}: {e}"))?;
    listener.set_nonblocking(true)?;
    let answers = Arc::new(Answers::new());
    let workers = (0..threads)
        .map(|_| {
            let (listener, answers) = (listener.try_clone()?, Arc::clone(&answers));
            let runtime = waiting.runtime()?;
            Ok(thread::spawn(move || {
                runtime.block_on(accept(listener, answers, waiting))
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    for worker in workers {
        worker
            .join()
            .map_err(|_| "a thread of the simulated upstream panicked")??;
    }
    Ok(())
}

async fn accept(listener: std::net::TcpListener, answers: Arc<Answers>, waiting: Waiting) -> io::Result<()> {
    waiting.begin();
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            // A connection that breaks is the proxy's business: its client sees it and counts it.
            Connection {
                stream,
                buffer: Vec::new(),
                out: Vec::new(),
                answers,
            }
            .serve()
            .await
            .ok();
        });
    }
}

/// What is answered, rendered once.
struct Answers {
    whole: Vec<u8>,
    embeddings: Vec<u8>,
    not_found: Vec<u8>,
    stream_head: Vec<u8>,
    event: Vec<u8>,
    finish: Vec<u8>,
    usage: Vec<u8>,
    done: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let text = "All of this was said by the simulated upstream, which says the same to everyone. ".repeat(14);
        let whole = format!(
            r#"{{"id":"chatcmpl-sim-0","object":"chat.completion","created":1760000000,"model":"sim","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":220,"completion_tokens":238,"total_tokens":458}}}}"#
        );
        let numbers = (0..1536)
            .map(|i| format!("{:.8}", f64::from(i * 7919 % 2000 - 1000) / 10_007.0))
            .collect::<Vec<_>>()
            .join(",");
        let embeddings = format!(
            r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":[{numbers}]}}],"model":"sim","usage":{{"prompt_tokens":210,"total_tokens":210}}}}"#
        );
        let content = "one delta of a burst that is long enough to count as a sentence of its own now ";
        Self {
            whole: json("200 OK", &whole),
            embeddings: json("200 OK", &embeddings),
            not_found: json("404 Not Found", r#"{"error":{"code":404,"message":"the simulated upstream has no such path","type":"not_found_error"}}"#),
            stream_head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
            event: chunk(&format!(r#"{{"index":0,"delta":{{"content":"{content}"}},"logprobs":null,"finish_reason":null}}"#), ""),
            finish: chunk(r#"{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}"#, ""),
            usage: chunk("", r#","usage":{"prompt_tokens":220,"completion_tokens":1700,"total_tokens":1920}"#),
            done: { let mut out = Vec::new(); wire::push_chunk(&mut out, b"data: [DONE]\n\n"); out.extend_from_slice(b"0\r\n\r\n"); out },
        }
    }
}

fn json(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// An event of a stream as one chunk, with room for a time in its id.
fn chunk(choice: &str, usage: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let stamp = "0".repeat(wire::STAMP_DIGITS);
    let event = format!(
        "data: {{\"id\":\"chatcmpl-sim-{stamp}\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"sim\",\"choices\":[{choice}]{usage}}}\n\n"
    );
    wire::push_chunk(&mut out, event.as_bytes());
    out
}

/// One keep-alive connection.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    out: Vec<u8>,
    answers: Arc<Answers>,
}

/// What a request asks for.
enum Asked {
    Whole,
    Embeddings,
    Stream { script: Script, usage: bool },
    Nothing,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        while let Some((asked, keep_alive)) = self.request().await? {
            match asked {
                Asked::Whole => self.stream.write_all(&self.answers.whole).await?,
                Asked::Embeddings => self.stream.write_all(&self.answers.embeddings).await?,
                Asked::Nothing => self.stream.write_all(&self.answers.not_found).await?,
                Asked::Stream { script, usage } => self.answer_stream(script, usage).await?,
            }
            if !keep_alive {
                break;
            }
        }
        Ok(())
    }

    /// Reads one request. None when the other side closed between two.
    async fn request(&mut self) -> io::Result<Option<(Asked, bool)>> {
        let head = loop {
            if let Some(head) = wire::request_head(&self.buffer).map_err(invalid)? {
                break head;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        };
        let target = self.buffer.get(head.target.clone()).unwrap_or_default().to_vec();
        let mut decoded = Vec::new();
        let end = match head.framing {
            Framing::Chunked => self.chunked(head.bytes, &mut decoded).await?,
            Framing::Length(length) => {
                let end = head.bytes + length;
                self.buffer.reserve(end.saturating_sub(self.buffer.len()));
                while self.buffer.len() < end {
                    self.more().await?;
                }
                end
            }
            Framing::UntilClose => return Err(io::ErrorKind::InvalidData.into()),
        };
        let body = if head.framing == Framing::Chunked {
            &decoded[..]
        } else {
            &self.buffer[head.bytes..end]
        };
        let asked = asked(&target, body);
        self.buffer.drain(..end);
        Ok(Some((asked, head.keep_alive)))
    }

    /// Reads a chunked body that starts at `start`. Returns where it ends.
    async fn chunked(&mut self, start: usize, decoded: &mut Vec<u8>) -> io::Result<usize> {
        let (mut coding, mut at) = (Chunked::default(), start);
        loop {
            at += coding
                .feed(&self.buffer[at..], |piece| decoded.extend_from_slice(piece))
                .map_err(invalid)?;
            if coding.is_done() {
                return Ok(at);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn answer_stream(&mut self, script: Script, usage: bool) -> io::Result<()> {
        let answers = Arc::clone(&self.answers);
        self.out.clear();
        self.out.extend_from_slice(&answers.stream_head);
        for event in 0..script.events {
            if script.pace_ms > 0 && event > 0 {
                tokio::time::sleep(Duration::from_millis(script.pace_ms.into())).await;
            }
            let start = self.out.len();
            self.out.extend_from_slice(&answers.event);
            if script.pace_ms > 0 {
                stamp(&mut self.out[start..]);
                self.flush().await?;
            }
        }
        self.out.extend_from_slice(&answers.finish);
        if usage {
            self.out.extend_from_slice(&answers.usage);
        }
        self.out.extend_from_slice(&answers.done);
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}

fn asked(target: &[u8], body: &[u8]) -> Asked {
    if target.ends_with(b"/embeddings") {
        return Asked::Embeddings;
    }
    if !target.ends_with(b"/chat/completions") {
        return Asked::Nothing;
    }
    match Script::find(body) {
        None => Asked::Whole,
        Some(script) => Asked::Stream {
            script,
            usage: wants_usage(body),
        },
    }
}

fn wants_usage(body: &[u8]) -> bool {
    let name = b"\"include_usage\"";
    memmem::find(body, name).is_some_and(|at| {
        let value = body[at + name.len()..]
            .trim_ascii_start()
            .strip_prefix(b":")
            .unwrap_or_default();
        value.trim_ascii_start().starts_with(b"true")
    })
}

/// Writes the time into the id of an event.
fn stamp(event: &mut [u8]) {
    let Some(place) = wire::stamp_place(event) else { return };
    let mut now = process::monotonic_ns();
    for digit in event[place].iter_mut().rev() {
        *digit = b'0' + (now % 10) as u8;
        now /= 10;
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

/// The script stands in the first message.
const SCRIPT_WITHIN: usize = 1024;
