//! An upstream that speaks HTTP/2 over TLS, frame by frame as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use super::reply::{Cue, whole_chat};
use super::tls::Identity;
use super::{eventually, within};

/// One step of an answer, after its head.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A DATA frame.
    Data(&'static str),
    /// A DATA frame with a whole answer in which the call's own first message stands.
    Own,
    /// Nothing more until the test gives the cue.
    Wait(Cue),
    /// The stream's clean end.
    End,
    /// RST_STREAM.
    Reset(Reason),
}

/// A running upstream.
pub struct H2Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    seen: Vec<(http::request::Parts, Bytes)>,
    connections: usize,
    cancelled: Vec<Reason>,
}

/// An answer: its content type, and what follows its head. Without a content type the frames take the head's place.
pub type Answer = (&'static str, Vec<Frame>);

impl H2Upstream {
    /// An upstream that gives these answers in order, and then the last one again and again.
    pub async fn of(identity: &Identity, answers: Vec<Answer>) -> H2Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = H2Upstream {
            address: listener.local_addr().unwrap(),
            log: Arc::default(),
        };
        let (log, tls, answers) = (Arc::clone(&upstream.log), identity.acceptor_of_h2(), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (log, tls, answers) = (Arc::clone(&log), tls.clone(), Arc::clone(&answers));
                tokio::spawn(async move {
                    log.lock().unwrap().connections += 1;
                    // Whoever offers something else alone gets no session.
                    let Ok(session) = tls.accept(socket).await else { return };
                    assert_eq!(session.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                    converse(session, log, answers).await;
                });
            }
        });
        upstream
    }

    /// What a provider's `base_url` says.
    pub fn base_url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<(http::request::Parts, Bytes)> {
        self.log.lock().unwrap().seen.clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }

    /// Waits until the gateway has reset a stream, and says why it did.
    pub async fn cancelled(&self) -> Reason {
        eventually("the gateway resets a stream", async || {
            self.log.lock().unwrap().cancelled.first().copied()
        })
        .await
    }
}

async fn converse(
    session: tokio_rustls::server::TlsStream<TcpStream>,
    log: Arc<Mutex<Log>>,
    answers: Arc<Vec<Answer>>,
) {
    let mut connection = h2::server::handshake(session).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
        tokio::spawn(async move {
            let (parts, body) = request.into_parts();
            let body = read(body).await;
            let number = {
                let mut log = log.lock().unwrap();
                log.seen.push((parts, body.clone()));
                log.seen.len() - 1
            };
            let (content_type, frames) = answers[number.min(answers.len() - 1)].clone();
            if let Some(reason) = answer(respond, content_type, frames, &body).await {
                log.lock().unwrap().cancelled.push(reason);
            }
        });
    }
}

async fn read(mut body: RecvStream) -> Bytes {
    let mut whole = BytesMut::new();
    while let Some(piece) = within("a request's body", body.data()).await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}

/// Answers; the reason when the gateway resets the stream meanwhile.
async fn answer(
    mut respond: SendResponse<Bytes>,
    content_type: &str,
    frames: Vec<Frame>,
    asked: &Bytes,
) -> Option<Reason> {
    if content_type.is_empty() {
        if let Some(Frame::Reset(reason)) = frames.first() {
            respond.send_reset(*reason);
        }
        return None;
    }
    let head = http::Response::builder()
        .header("content-type", content_type)
        .body(())
        .unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    for frame in frames {
        match frame {
            Frame::Data(text) => stream.send_data(Bytes::from_static(text.as_bytes()), false).unwrap(),
            Frame::Own => {
                let asked: Value = serde_json::from_slice(asked).unwrap();
                let said = asked["messages"][0]["content"].as_str().unwrap();
                let body = whole_chat(said, Some((9, 1))).to_string();
                stream.send_data(body.into(), false).unwrap();
            }
            Frame::End => stream.send_data(Bytes::new(), true).unwrap(),
            Frame::Reset(reason) => stream.send_reset(reason),
            Frame::Wait(cue) => {
                tokio::select! {
                    biased;
                    reason = was_reset(&mut stream) => return reason,
                    () = cue.given() => {}
                }
            }
        }
    }
    None
}

async fn was_reset(stream: &mut SendStream<Bytes>) -> Option<Reason> {
    std::future::poll_fn(|context| stream.poll_reset(context)).await.ok()
}
