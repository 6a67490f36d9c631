//! The load generator's HTTP client: one keep-alive connection, requests rendered beforehand, every answer checked.

use std::{io, net::SocketAddr, ops::ControlFlow};

use bytes::Bytes;
use memchr::memmem;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    events::Events,
    process,
    tag::Tag,
    wire::{self, Chunked, Framing, Head, Malformed},
};

/// A request, ready to be sent, and what a right answer to it is.
#[derive(Debug, Clone)]
pub(crate) struct Shot {
    pub(crate) bytes: Bytes,
    pub(crate) expect: Expect,
    /// What the answer must carry, where the simulated upstream gives it and it is no error.
    pub(crate) tag: Option<Tag>,
}

/// What a right answer is.
#[derive(Debug, Clone)]
pub(crate) enum Expect {
    /// 200 with a JSON object that holds usage.
    Json,
    /// 200 with a stream that ends with `[DONE]`, of so many events if that is known.
    Stream { events: Option<u64> },
    /// 200 with a stream that tells of an error at its end; or one of these statuses with an error object.
    Broken(&'static [u16]),
    /// A status that says it is done, with a JSON object.
    Done,
    /// One of these statuses with an error object.
    Denied(&'static [u16]),
}

/// A right answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
}

/// Why an answer is not right, or there is none.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("closed before the answer was complete")]
    Closed,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("status {0}: {1}")]
    Status(u16, String),
    #[error("{0}")]
    Body(&'static str),
    #[error("{0} events in place of {1}")]
    Events(u64, u64),
    #[error("an answer to another request")]
    Foreign,
    /// Not a failure of the answer: the listener wanted no more of it.
    #[error("stopped")]
    Stopped,
}

impl Failure {
    /// Whether a process that was killed may be why: its connections are refused, or end where an answer was to come. All else was said by
    /// one that lived.
    pub(crate) fn is_of_a_kill(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Connect(error) | Self::Broken(error) => OF_A_KILL.contains(&error.kind()),
            Self::Malformed(_)
            | Self::Status(..)
            | Self::Body(_)
            | Self::Events(..)
            | Self::Foreign
            | Self::Stopped => false,
        }
    }
}

/// Who hears of the events of a stream as they arrive.
pub(crate) trait Listener {
    /// What one read brought. `Break` ends the exchange with [`Failure::Stopped`].
    fn events(&mut self, arrived: &Arrived<'_>) -> ControlFlow<()>;
}

/// Events that one read brought.
pub(crate) struct Arrived<'a> {
    /// When the read returned.
    pub(crate) at_ns: u64,
    pub(crate) events: u64,
    /// Of each of them that the upstream wrote a time into, in their order, how long ago that was: content has one, the end has not.
    pub(crate) delays_ns: &'a [u64],
}

/// A connection, used for one exchange after the other. After a failure it must be dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    body: Vec<u8>,
    delays_ns: Vec<u64>,
    is_open: bool,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(Failure::Connect)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            body: Vec::new(),
            delays_ns: Vec::new(),
            is_open: true,
        })
    }

    /// Whether another exchange may follow.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sends a request and reads the answer to its end.
    pub(crate) async fn exchange(&mut self, shot: &Shot, listener: &mut impl Listener) -> Result<Reply, Failure> {
        let head = self.send(&shot.bytes).await?;
        match (&shot.expect, head.status) {
            (Expect::Stream { events }, 200) => {
                let counted = self.read_stream(&head, shot.tag, listener).await?;
                if !counted.done || counted.failed {
                    return Err(Failure::Body("a stream with an error, or without [DONE]"));
                }
                if let Some(expected) = events.filter(|expected| *expected != counted.count) {
                    return Err(Failure::Events(counted.count, expected));
                }
            }
            (Expect::Broken(_), 200) => {
                let counted = self.read_stream(&head, shot.tag, listener).await?;
                if !counted.failed {
                    return Err(Failure::Body("a stream that broke, and does not say so"));
                }
            }
            (Expect::Json, 200) => {
                self.read_whole(&head).await?;
                check_json(&self.body, b"\"usage\"")?;
                if shot
                    .tag
                    .is_some_and(|tag| memmem::find(&self.body, tag.bytes()).is_none())
                {
                    return Err(Failure::Foreign);
                }
            }
            (Expect::Done, 200..300) => {
                self.read_whole(&head).await?;
                check_json(&self.body, b"{")?;
            }
            (Expect::Denied(statuses) | Expect::Broken(statuses), status) if statuses.contains(&status) => {
                self.read_whole(&head).await?;
                // A limit lets the first calls pass.
                check_json(&self.body, if status == 200 { b"{" } else { b"\"error\"" })?;
            }
            (_, status) => {
                self.read_whole(&head).await?;
                let text = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN_MAX)]).into_owned();
                return Err(Failure::Status(status, text));
            }
        }
        Ok(Reply { status: head.status })
    }

    /// Sends a request that is not measured. Returns the status and the body of its answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<(u16, &[u8]), Failure> {
        let head = self.send(request).await?;
        self.read_whole(&head).await?;
        Ok((head.status, &self.body))
    }

    /// Sends a request and reads the head of its answer.
    async fn send(&mut self, request: &[u8]) -> Result<Head, Failure> {
        self.stream.write_all(request).await?;
        let head = loop {
            if let Some(head) = wire::response_head(&self.buffer)? {
                break head;
            }
            self.more().await?;
        };
        self.is_open = head.keep_alive && head.framing != Framing::UntilClose;
        self.body.clear();
        Ok(head)
    }

    /// Reads the body into `self.body`, and takes the message off the buffer.
    async fn read_whole(&mut self, head: &Head) -> Result<(), Failure> {
        let end = match head.framing {
            Framing::Length(length) => {
                let end = head.bytes + length;
                self.buffer.reserve(end.saturating_sub(self.buffer.len()));
                while self.buffer.len() < end {
                    self.more().await?;
                }
                self.body.extend_from_slice(&self.buffer[head.bytes..end]);
                end
            }
            Framing::Chunked => {
                let (mut coding, mut at) = (Chunked::default(), head.bytes);
                loop {
                    at += coding.feed(&self.buffer[at..], |piece| self.body.extend_from_slice(piece))?;
                    if coding.is_done() {
                        break at;
                    }
                    self.more().await?;
                }
            }
            Framing::UntilClose => {
                while self.more_or_end().await? {}
                self.body.extend_from_slice(&self.buffer[head.bytes..]);
                self.buffer.len()
            }
        };
        self.finish(end)
    }

    /// Reads a stream and tells the listener of its events. Returns what they were.
    async fn read_stream(
        &mut self,
        head: &Head,
        tag: Option<Tag>,
        listener: &mut impl Listener,
    ) -> Result<Events, Failure> {
        let (mut coding, mut events) = (Chunked::default(), Events::tagged(tag));
        let mut at = head.bytes;
        loop {
            let (at_ns, before) = (process::monotonic_ns(), events.count);
            let delays_ns = &mut self.delays_ns;
            delays_ns.clear();
            let mut take = |piece: &[u8]| {
                events.feed(piece, |stamp| delays_ns.push(at_ns.saturating_sub(stamp)));
            };
            let left = match head.framing {
                Framing::Chunked => {
                    let used = coding.feed(&self.buffer[at..], take)?;
                    if coding.is_done() { Some(at + used) } else { None }
                }
                Framing::Length(_) | Framing::UntilClose => {
                    take(&self.buffer[at..]);
                    None
                }
            };
            if events.foreign {
                return Err(Failure::Foreign);
            }
            let arrived = Arrived {
                at_ns,
                events: events.count - before,
                delays_ns: &self.delays_ns,
            };
            if arrived.events > 0 && listener.events(&arrived).is_break() {
                return Err(Failure::Stopped);
            }
            if let Some(end) = left {
                self.finish(end)?;
                return Ok(events);
            }
            self.buffer.clear();
            at = 0;
            if !self.more_or_end().await? {
                return if head.framing == Framing::UntilClose {
                    Ok(events)
                } else {
                    Err(Failure::Closed)
                };
            }
        }
    }

    /// The message ended at `end` of the buffer: nothing may follow it, since nothing was asked.
    fn finish(&mut self, end: usize) -> Result<(), Failure> {
        if end != self.buffer.len() {
            return Err(Failure::Body("bytes after the end of the answer"));
        }
        self.buffer.clear();
        Ok(())
    }

    async fn more(&mut self) -> Result<(), Failure> {
        if self.more_or_end().await? {
            Ok(())
        } else {
            Err(Failure::Closed)
        }
    }

    async fn more_or_end(&mut self) -> Result<bool, Failure> {
        if self.buffer.capacity() - self.buffer.len() < READ_MIN {
            self.buffer.reserve(READ_SIZE);
        }
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

fn check_json(body: &[u8], holds: &[u8]) -> Result<(), Failure> {
    let is_object = body.first() == Some(&b'{') && body.trim_ascii_end().last() == Some(&b'}');
    if is_object && memmem::find(body, holds).is_some() {
        return Ok(());
    }
    Err(Failure::Body("an answer that is not the JSON object expected"))
}

/// What connections to a process that was killed end with.
const OF_A_KILL: [io::ErrorKind; 5] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::NotConnected,
];
const READ_MIN: usize = 2048;
const READ_SIZE: usize = 8192;
/// Bytes of an unexpected answer that are shown.
const SHOWN_MAX: usize = 160;
