//! An upstream that does as it is told: it records what it is asked, and answers what the test says, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::eventually;
use super::reply::{Reply, Step};
use super::tls::Identity;

/// A running upstream.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and headers.
    pub head: String,
    /// The body without its framing.
    pub body: Bytes,
}

struct Shared {
    answer: Box<Answerer>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    connections: usize,
    hung_up: usize,
    server_names: Vec<Option<String>>,
}

/// Gives the reply to the request of this number, from 0.
type Answerer = dyn Fn(usize, &Seen) -> Reply + Send + Sync;

impl Upstream {
    /// An upstream that gives these answers in order, and then the last one again and again.
    pub async fn of(replies: impl IntoIterator<Item = Reply>) -> Upstream {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Upstream::by(move |number, _| replies[number.min(replies.len() - 1)].clone()).await
    }

    /// An upstream that always gives this answer.
    pub async fn always(reply: Reply) -> Upstream {
        Upstream::of([reply]).await
    }

    /// An upstream that must not be asked.
    pub async fn unused() -> Upstream {
        Upstream::always(Reply::status(500)).await
    }

    /// An upstream whose answers depend on the requests.
    pub async fn by(answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Upstream {
        Upstream::start(answer, None).await
    }

    /// An upstream behind TLS with this certificate, which always gives this answer.
    pub async fn tls(identity: &Identity, reply: Reply) -> Upstream {
        Upstream::tls_of(identity, [reply]).await
    }

    /// The same, which gives these answers in order, and then the last one again and again.
    pub async fn tls_of(identity: &Identity, replies: impl IntoIterator<Item = Reply>) -> Upstream {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let answer = move |number: usize, _: &Seen| replies[number.min(replies.len() - 1)].clone();
        Upstream::start(answer, Some(identity.acceptor())).await
    }

    async fn start(
        answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Upstream {
        Upstream::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer, tls)
    }

    /// An upstream at a place that is bound already.
    pub fn on(
        listener: TcpListener,
        answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Upstream {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            log: Mutex::default(),
        });
        let upstream = Upstream {
            address,
            scheme: if tls.is_some() { "https" } else { "http" },
            shared: Arc::clone(&shared),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                shared.log.lock().unwrap().connections += 1;
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => converse(socket, &shared).await,
                        Some(tls) => {
                            // A handshake that the gateway breaks off leaves nothing to talk to.
                            let Ok(session) = tls.accept(socket).await else { return };
                            let name = session.get_ref().1.server_name().map(str::to_owned);
                            shared.log.lock().unwrap().server_names.push(name);
                            converse(session, &shared).await;
                        }
                    }
                });
            }
        });
        upstream
    }

    /// What a provider's `base_url` says.
    pub fn base_url(&self) -> String {
        self.base_url_at("127.0.0.1")
    }

    /// The same with another name for the host.
    pub fn base_url_at(&self, host: &str) -> String {
        format!("{}://{host}:{}/v1", self.scheme, self.address.port())
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.log.lock().unwrap().seen.clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.log.lock().unwrap().connections
    }

    /// The server names that TLS handshakes asked for.
    pub fn server_names(&self) -> Vec<Option<String>> {
        self.shared.log.lock().unwrap().server_names.clone()
    }

    /// Waits until so many requests have come, and gives the last of them.
    pub async fn asked(&self, times: usize) -> Seen {
        eventually("the upstream is asked", async || self.seen().get(times - 1).cloned()).await
    }

    /// The only request that has come.
    #[track_caller]
    pub fn only(&self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "the upstream was asked {} times", seen.len());
        seen.remove(0)
    }

    /// Waits until the gateway has closed a connection in the middle of an answer.
    pub async fn hung_up(&self) {
        eventually("the gateway hangs up", async || {
            (self.shared.log.lock().unwrap().hung_up > 0).then_some(())
        })
        .await;
    }
}

impl Seen {
    /// The value of a header, if it came.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").skip(1);
        lines
            .filter_map(|line| line.split_once(": "))
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Serves one connection, request after request.
async fn converse(mut socket: impl Wire, shared: &Shared) {
    let mut unread = Vec::new();
    while let Some(seen) = read_request(&mut socket, &mut unread).await {
        let number = {
            let mut log = shared.log.lock().unwrap();
            log.seen.push(seen.clone());
            log.seen.len() - 1
        };
        let reply = (shared.answer)(number, &seen);
        match act(&mut socket, reply).await {
            Outcome::Said => {}
            Outcome::Close => return,
            Outcome::Reset => return socket.reset(),
            Outcome::HungUp => {
                shared.log.lock().unwrap().hung_up += 1;
                return;
            }
        }
    }
}

enum Outcome {
    Said,
    Close,
    Reset,
    HungUp,
}

async fn act(socket: &mut impl Wire, reply: Reply) -> Outcome {
    for step in reply.steps {
        match step {
            Step::Send(bytes) => {
                let sent = async {
                    socket.write_all(&bytes).await?;
                    socket.flush().await
                };
                if sent.await.is_err() {
                    return Outcome::HungUp;
                }
            }
            Step::Wait(cue) => {
                tokio::select! {
                    biased;
                    () = ended(socket) => return Outcome::HungUp,
                    () = cue.given() => {}
                }
            }
            // Sleeps: a test asks for it whose matter is time, such as a head that comes late.
            Step::Pause(pause) => tokio::time::sleep(pause).await,
            Step::Close => {
                // The end of a TLS session, or of the connection, is said properly.
                let _gone = socket.shutdown().await;
                return Outcome::Close;
            }
            Step::Drop => return Outcome::Close,
            Step::Reset => return Outcome::Reset,
            Step::Silence => {
                ended(socket).await;
                return Outcome::HungUp;
            }
        }
    }
    Outcome::Said
}

/// Returns when the other side has closed the connection.
async fn ended(socket: &mut impl Wire) {
    let mut byte = [0];
    match socket.read(&mut byte).await {
        Ok(0) | Err(_) => {}
        Ok(_) => panic!("the gateway sent more than its request"),
    }
}

async fn read_request(socket: &mut impl Wire, unread: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(unread.drain(..end).collect()).unwrap();
    let seen = Seen {
        head,
        body: Bytes::new(),
    };
    let length = match seen.header("content-length") {
        Some(length) => length.parse().unwrap(),
        None if seen.head.starts_with("GET ") => 0,
        None => panic!("the gateway always sends a length"),
    };
    while unread.len() < length {
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
    Some(Seen {
        body: unread.drain(..length).collect(),
        ..seen
    })
}

/// A connection of either kind.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// Ends the connection with a reset.
    fn reset(self);
}

impl Wire for TcpStream {
    fn reset(self) {
        self.set_zero_linger().unwrap();
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }
}
