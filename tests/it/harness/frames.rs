//! HTTP/2 frame by frame: how a frame and its fields are written, and an upstream that answers by frames, for what no library sends.
//!
//! Longer than 400 lines: the frames of HTTP/2, one after another.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::reply::Cue;
use super::tls::Identity;
use super::upstream::Wire;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// A string of HPACK, without Huffman's code.
pub fn string(text: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    if text.len() < 127 {
        coded.push(u8::try_from(text.len()).unwrap());
    } else {
        coded.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            coded.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        coded.push(u8::try_from(rest).unwrap());
    }
    coded.extend_from_slice(text);
    coded
}

/// A field that is not put into the table.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name.as_bytes()), string(value.as_bytes())].concat()
}

/// Fields, one after the other.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// The answer to one request, once that has come whole, unless it is early.
#[derive(Clone, Debug, Default)]
pub struct FrameReply {
    steps: Vec<Step>,
    is_early: bool,
    is_narrow: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of the request's stream.
    Frame { kind: u8, flags: u8, payload: Vec<u8> },
    /// So many frames of DATA with this payload each, in one piece.
    DataFrames { count: usize, payload: Vec<u8> },
    /// GOAWAY, whose last stream is the request's, or the one before it.
    GoAway { includes: bool, code: u32 },
    /// Nothing more for so long: the upstream thinks.
    Pause(Duration),
    /// Nothing more until the test gives the cue.
    Wait(Cue),
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

impl FrameReply {
    /// An answer that is a head alone.
    pub fn only_head(status: u16, headers: &[(&str, &str)]) -> FrameReply {
        FrameReply::default().headers(status, headers, END_STREAM)
    }

    /// Another head, after an interim one.
    pub fn and_head(self, status: u16, headers: &[(&str, &str)]) -> FrameReply {
        self.headers(status, headers, 0)
    }

    /// The answer does not wait for the request's end.
    pub fn early(self) -> FrameReply {
        FrameReply { is_early: true, ..self }
    }

    /// The upstream gives room for one byte of a request's body at a time.
    pub fn narrow(self) -> FrameReply {
        FrameReply {
            is_narrow: true,
            ..self
        }
    }

    /// DATA.
    pub fn data(self, bytes: impl AsRef<[u8]>) -> FrameReply {
        self.frame(DATA, 0, bytes)
    }

    /// So many frames of DATA with these bytes each, in one piece.
    pub fn data_frames(self, count: usize, bytes: impl AsRef<[u8]>) -> FrameReply {
        let payload = bytes.as_ref().to_vec();
        self.step(Step::DataFrames { count, payload })
    }

    /// Trailers, which end the stream.
    pub fn trailers(self, trailers: &[(&str, &str)]) -> FrameReply {
        self.frame(HEADERS, END_STREAM | END_HEADERS, fields(trailers))
    }

    /// Waits for the test here.
    pub fn wait(self, cue: &Cue) -> FrameReply {
        self.step(Step::Wait(cue.clone()))
    }

    /// Whether it ends the connection.
    pub fn ends(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Close | Step::Reset))
    }

    /// The head of an answer.
    pub fn head(status: u16, headers: &[(&str, &str)]) -> FrameReply {
        FrameReply::default().headers(status, headers, 0)
    }

    /// DATA that ends the stream.
    pub fn last(self, bytes: impl AsRef<[u8]>) -> FrameReply {
        self.frame(DATA, END_STREAM, bytes)
    }

    /// A frame of the stream.
    pub fn frame(self, kind: u8, flags: u8, payload: impl AsRef<[u8]>) -> FrameReply {
        let payload = payload.as_ref().to_vec();
        self.step(Step::Frame { kind, flags, payload })
    }

    /// Thinks for so long.
    pub fn pause(self, pause: Duration) -> FrameReply {
        self.step(Step::Pause(pause))
    }

    /// RST_STREAM.
    pub fn reset_stream(self, reason: h2::Reason) -> FrameReply {
        self.frame(RST_STREAM, 0, u32::from(reason).to_be_bytes())
    }

    /// GOAWAY that says the request was not worked on.
    pub fn go_away_below(self, reason: h2::Reason) -> FrameReply {
        let code = reason.into();
        self.step(Step::GoAway { includes: false, code })
    }

    /// GOAWAY that lets the request be finished.
    pub fn go_away_after(self, reason: h2::Reason) -> FrameReply {
        let code = reason.into();
        self.step(Step::GoAway { includes: true, code })
    }

    /// Closes the connection here.
    pub fn close(self) -> FrameReply {
        self.step(Step::Close)
    }

    /// Resets the connection here.
    pub fn reset(self) -> FrameReply {
        self.step(Step::Reset)
    }

    fn headers(self, status: u16, headers: &[(&str, &str)], flags: u8) -> FrameReply {
        let payload = [field(":status", &status.to_string()), fields(headers)].concat();
        self.frame(HEADERS, flags | END_HEADERS, payload)
    }

    fn step(mut self, step: Step) -> FrameReply {
        self.steps.push(step);
        self
    }
}

/// A running upstream.
pub struct FrameUpstream {
    /// Where it listens.
    pub address: SocketAddr,
    scheme: &'static str,
    log: Arc<Mutex<Log>>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct FramesSeen {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its stream.
    pub stream: u32,
    /// Bytes of its body.
    pub body_length: usize,
    /// Whether its end has come.
    pub is_whole: bool,
    /// The reason for which it was reset.
    pub reset: Option<u32>,
}

#[derive(Default)]
struct Log {
    seen: Vec<FramesSeen>,
    connections: usize,
    ended: usize,
}

impl FrameUpstream {
    /// An upstream behind TLS that gives these answers in order, and then the last one again and again.
    pub async fn tls(identity: &Identity, replies: Vec<FrameReply>) -> FrameUpstream {
        FrameUpstream::start(Some(identity.acceptor_of_h2()), replies).await
    }

    async fn start(tls: Option<tokio_rustls::TlsAcceptor>, replies: Vec<FrameReply>) -> FrameUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = FrameUpstream {
            address: listener.local_addr().unwrap(),
            scheme: if tls.is_some() { "https" } else { "http" },
            log: Arc::default(),
        };
        let (log, replies) = (Arc::clone(&upstream.log), Arc::new(replies));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                let (log, tls, replies) = (Arc::clone(&log), tls.clone(), Arc::clone(&replies));
                tokio::spawn(async move {
                    let number = {
                        let mut log = log.lock().unwrap();
                        log.connections += 1;
                        log.connections - 1
                    };
                    let kept = Arc::clone(&log);
                    match tls {
                        None => converse(socket, number, log, replies).await,
                        Some(tls) => converse(tls.accept(socket).await.unwrap(), number, log, replies).await,
                    }
                    kept.lock().unwrap().ended += 1;
                });
            }
        });
        upstream
    }

    /// The same in clear text.
    pub async fn clear(replies: Vec<FrameReply>) -> FrameUpstream {
        FrameUpstream::start(None, replies).await
    }

    /// How many of them have ended.
    pub fn ended(&self) -> usize {
        self.log.lock().unwrap().ended
    }

    /// What a provider's `base_url` says.
    pub fn base_url(&self) -> String {
        format!("{}://localhost:{}/v1", self.scheme, self.address.port())
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<FramesSeen> {
        self.log.lock().unwrap().seen.clone()
    }
}

/// What an answer's task has the connection do.
enum Act {
    Send(Vec<u8>),
    Close,
    Reset,
}

async fn converse(mut socket: impl Wire, number: usize, log: Arc<Mutex<Log>>, replies: Arc<Vec<FrameReply>>) {
    let (acts, mut todo) = mpsc::unbounded_channel();
    let whole = watch::Sender::new(Vec::new());
    let mut unread = Vec::new();
    let is_narrow = replies.iter().any(|reply| reply.is_narrow);
    let window: u32 = if is_narrow { 1 } else { WINDOW };
    let mut greeting = frame(SETTINGS, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat());
    greeting.extend(frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes()));
    if socket.write_all(&greeting).await.is_err() {
        return;
    }
    let mut is_greeted = false;
    loop {
        tokio::select! {
            read = socket.read_buf(&mut unread) => {
                if read.is_ok_and(|read| read > 0) {
                    if !is_greeted && unread.len() >= PREFACE.len() {
                        assert_eq!(unread.drain(..PREFACE.len()).as_slice(), PREFACE);
                        is_greeted = true;
                    }
                } else {
                    return;
                }
            }
            act = todo.recv() => {
                let sent = match act {
                    Some(Act::Send(bytes)) => async {
                        socket.write_all(&bytes).await?;
                        socket.flush().await
                    }
                    .await,
                    Some(Act::Close) | None => {
                        let _gone = socket.shutdown().await;
                        // What is unread would make it a reset.
                        let rest = async { while socket.read_buf(&mut unread).await.is_ok_and(|read| read > 0) {} };
                        let _kept_open = tokio::time::timeout(CLOSED_MAX, rest).await;
                        return;
                    }
                    Some(Act::Reset) => return socket.reset(),
                };
                if sent.is_err() {
                    return;
                }
            }
        }
        while let Some((kind, flags, stream, payload)) = is_greeted.then(|| next_frame(&mut unread)).flatten() {
            let is_new = note(&mut log.lock().unwrap(), number, kind, flags, stream, &payload);
            if [DATA, HEADERS].contains(&kind) && flags & END_STREAM != 0 {
                whole.send_modify(|streams| streams.push(stream));
            }
            if [SETTINGS, PING].contains(&kind) && flags & ACK == 0 {
                let payload = if kind == PING { payload.as_slice() } else { &[] };
                let _closed = acts.send(Act::Send(frame(kind, ACK, 0, payload)));
            }
            if kind == DATA && is_narrow && !payload.is_empty() && flags & END_STREAM == 0 {
                let room = u32::try_from(payload.len()).unwrap().to_be_bytes();
                let _closed = acts.send(Act::Send(frame(WINDOW_UPDATE, 0, stream, &room)));
            }
            if let Some(request) = is_new {
                let reply = replies[request.min(replies.len() - 1)].clone();
                tokio::spawn(answer(reply, stream, acts.clone(), whole.subscribe()));
            }
        }
    }
}

/// Keeps what a frame says of a request; the request's number, from 0, when it begins.
fn note(log: &mut Log, connection: usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<usize> {
    let number = log.seen.len();
    let is_this = |seen: &&mut FramesSeen| seen.connection == connection && seen.stream == stream;
    let mut known = log.seen.iter_mut().find(is_this);
    let is_new = kind == HEADERS && known.is_none();
    if is_new {
        log.seen.push(FramesSeen {
            connection,
            stream,
            body_length: 0,
            is_whole: false,
            reset: None,
        });
        known = log.seen.last_mut();
    }
    let seen = known?;
    match kind {
        DATA => seen.body_length += payload.len(),
        RST_STREAM => seen.reset = Some(u32::from_be_bytes(payload.try_into().unwrap())),
        _ => {}
    }
    seen.is_whole |= [DATA, HEADERS].contains(&kind) && flags & END_STREAM != 0;
    is_new.then_some(number)
}

/// Takes the next frame: its kind, flags, stream and payload.
fn next_frame(unread: &mut Vec<u8>) -> Option<(u8, u8, u32, Vec<u8>)> {
    let [a, b, c, kind, flags, stream @ ..] = *unread.first_chunk::<9>()?;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
    if unread.len() < 9 + length {
        return None;
    }
    let payload = unread.drain(..9 + length).skip(9).collect();
    Some((kind, flags, u32::from_be_bytes(stream), payload))
}

#[expect(clippy::disallowed_types, reason = "an upstream's acts are those of its script")]
async fn answer(
    reply: FrameReply,
    stream: u32,
    acts: mpsc::UnboundedSender<Act>,
    mut whole: watch::Receiver<Vec<u32>>,
) {
    if !reply.is_early && whole.wait_for(|streams| streams.contains(&stream)).await.is_err() {
        return;
    }
    for step in reply.steps {
        let act = match step {
            Step::Frame { kind, flags, payload } => Act::Send(frame(kind, flags, stream, &payload)),
            Step::DataFrames { count, payload } => Act::Send(frame(DATA, 0, stream, &payload).repeat(count)),
            Step::GoAway { includes, code } => {
                let last = if includes { stream } else { stream.saturating_sub(2) };
                Act::Send(frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()))
            }
            Step::Wait(cue) => {
                cue.given().await;
                continue;
            }
            Step::Pause(pause) => {
                // Sleeps: a test asks for it whose matter is time, such as a head that comes late.
                tokio::time::sleep(pause).await;
                continue;
            }
            Step::Close => Act::Close,
            Step::Reset => Act::Reset,
        };
        if acts.send(act).is_err() {
            return;
        }
    }
}

/// How long the other side of a connection that was closed is waited for.
const CLOSED_MAX: Duration = Duration::from_millis(200);
/// The window that the upstream gives each stream and the connection, in bytes.
const WINDOW: u32 = 1 << 30;
