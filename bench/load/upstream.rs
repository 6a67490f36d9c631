//! The simulated upstream: a provider that answers at once and costs a few microseconds a request, so that what is measured is the proxy
//! before it. What it shall answer stands in the request (see [`Script`]).

use std::{io, net::SocketAddr, sync::Arc, thread, time::Duration};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    answers::Answers,
    common::Result,
    pacer::Pacer,
    process::monotonic_ns,
    script::{Ending, Script, Writes},
    tag::Tag,
    waiting::Waiting,
    wire::{self, Chunked, Framing, Malformed},
};

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
                pacer: None,
            }
            .serve()
            .await
            .ok();
        });
    }
}

/// One keep-alive connection.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    out: Vec<u8>,
    answers: Arc<Answers>,
    /// Made by its first stream that has a pace.
    pacer: Option<Pacer>,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Whole(Script),
    Embeddings(Script),
    Stream { script: Script, usage: bool },
    Error,
    Nothing,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        let answers = Arc::clone(&self.answers);
        while let Some((asked, keep_alive)) = self.request().await? {
            self.out.clear();
            match asked {
                Asked::Whole(script) => answers.whole.push(&mut self.out, script),
                Asked::Embeddings(script) => answers.embeddings.push(&mut self.out, script),
                Asked::Error => self.out.extend_from_slice(&answers.refused),
                Asked::Nothing => self.out.extend_from_slice(&answers.not_found),
                Asked::Stream { script, usage } => self.stream(&answers, script, usage).await?,
            }
            self.flush().await?;
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

    /// Writes a stream, but for its last bytes, which are left in `out`.
    async fn stream(&mut self, answers: &Answers, script: Script, usage: bool) -> io::Result<()> {
        let Some(parts) = answers.stream(script.form) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.out.extend_from_slice(&answers.stream_head);
        let (begun, tag) = (monotonic_ns(), Tag::of(script.tag));
        for event in 0..script.events {
            if script.pace_ms > 0 && event > 0 {
                let after = Duration::from_millis(script.pace_ms.into()).saturating_mul(event);
                self.until(begun, after).await?;
            }
            parts.push(&mut self.out, event, tag);
            if script.pace_ms > 0 || script.writes == Writes::Each {
                self.flush().await?;
            }
        }
        match script.ending {
            Ending::Done | Ending::Error => {
                parts.finish.push(&mut self.out, script);
                if usage {
                    answers.usage.push(&mut self.out, script);
                }
                self.out.extend_from_slice(&answers.done);
                Ok(())
            }
            Ending::Cut => {
                self.flush().await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Ending::Stall => {
                self.flush().await?;
                // The other side says nothing more until it closes.
                self.more().await
            }
        }
    }

    /// Waits until `after` has passed since `begun`: a provider's next token does not wait for the way of the last one. What comes as often
    /// as a reader reads comes at its own microsecond: on Tokio's grid of milliseconds the streams would fall into step.
    async fn until(&mut self, begun: u64, after: Duration) -> io::Result<()> {
        let at = begun.saturating_add(u64::try_from(after.as_nanos()).map_err(io::Error::other)?);
        let left = Duration::from_nanos(at.saturating_sub(monotonic_ns()));
        if left > PRECISE_BELOW {
            tokio::time::sleep(left).await;
            return Ok(());
        }
        let pacer = match self.pacer.take() {
            Some(pacer) => pacer,
            None => Pacer::new()?,
        };
        self.pacer.insert(pacer).until(at).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}

/// What the request with this target and body asks for.
pub(crate) fn asked(target: &[u8], body: &[u8]) -> Asked {
    let Some(script) = Script::find(body) else {
        return Asked::Nothing;
    };
    if script.ending == Ending::Error {
        Asked::Error
    } else if target.ends_with(b"/embeddings") {
        Asked::Embeddings(script)
    } else if !target.ends_with(b"/chat/completions") {
        Asked::Nothing
    } else if says_true(body, b"\"stream\"") {
        let usage = says_true(body, b"\"include_usage\"");
        Asked::Stream { script, usage }
    } else {
        Asked::Whole(script)
    }
}

/// Whether a field of this name, quotes and all, is true.
fn says_true(body: &[u8], name: &[u8]) -> bool {
    memmem::find(body, name).is_some_and(|at| {
        let value = body[at + name.len()..]
            .trim_ascii_start()
            .strip_prefix(b":")
            .unwrap_or_default();
        value.trim_ascii_start().starts_with(b"true")
    })
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

/// Below it the pace is a reader's, and its times are kept to microseconds; idle streams, of which there are thousands, have a longer one.
const PRECISE_BELOW: Duration = Duration::from_secs(1);
