//! The scripted upstream over HTTP/1: exact bytes, and what happens between them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What it does with one request, once that has come whole, unless it is early.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub steps: Vec<Step>,
    pub is_early: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// These bytes, in one write.
    Send(Vec<u8>),
    /// The same byte by byte.
    SendBytewise(Vec<u8>),
    /// Waits until the client has so many bytes of the body, or has the whole answer.
    UntilClientHas(usize),
    /// Closes the connection.
    Close,
    /// Resets it.
    Reset,
}

impl Script {
    pub fn sends(bytes: impl AsRef<[u8]>) -> Script {
        Script::default().send(bytes)
    }

    pub fn send(self, bytes: impl AsRef<[u8]>) -> Script {
        self.step(Step::Send(bytes.as_ref().to_vec()))
    }

    pub fn bytewise(bytes: impl AsRef<[u8]>) -> Script {
        Script::default().step(Step::SendBytewise(bytes.as_ref().to_vec()))
    }

    pub fn until_client_has(self, body_bytes: usize) -> Script {
        self.step(Step::UntilClientHas(body_bytes))
    }

    pub fn close(self) -> Script {
        self.step(Step::Close)
    }

    pub fn reset(self) -> Script {
        self.step(Step::Reset)
    }

    pub fn early(self) -> Script {
        Script { is_early: true, ..self }
    }

    fn step(mut self, step: Step) -> Script {
        self.steps.push(step);
        self
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub connection: usize,
    pub head: String,
    pub body: Vec<u8>,
}

/// A running upstream.
pub struct Scripted {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Asked>>>,
    /// Scripts that are over.
    done: watch::Receiver<usize>,
}

impl Scripted {
    /// One that does these with its requests, in their order, and the last again and again. `client_has` says how many bytes of the body
    /// the client has.
    pub async fn start(scripts: Vec<Script>, client_has: watch::Receiver<usize>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ends, done) = watch::channel(0);
        let log = Arc::default();
        let upstream = Scripted {
            address,
            log: Arc::clone(&log),
            done,
        };
        let shared = Arc::new(Shared {
            scripts,
            log,
            ends,
            client_has,
        });
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                tokio::spawn(converse(socket, connection, Arc::clone(&shared)));
                connection += 1;
            }
        });
        upstream
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }

    /// Waits until so many scripts are over.
    pub async fn done(&mut self, scripts: usize) {
        let done = self.done.wait_for(|done| *done >= scripts);
        drop(crate::harness::within("the script's end", done).await.unwrap());
    }
}

struct Shared {
    scripts: Vec<Script>,
    log: Arc<Mutex<Vec<Asked>>>,
    ends: watch::Sender<usize>,
    client_has: watch::Receiver<usize>,
}

async fn converse(mut socket: TcpStream, connection: usize, shared: Arc<Shared>) {
    let mut unread = Vec::new();
    while let Some(head) = read_head(&mut socket, &mut unread).await {
        let number = {
            let mut log = shared.log.lock().unwrap();
            let body = Vec::new();
            log.push(Asked {
                connection,
                head: head.clone(),
                body,
            });
            log.len() - 1
        };
        let script = shared.scripts[number.min(shared.scripts.len() - 1)].clone();
        if !script.is_early && !read_body(&mut socket, &mut unread, &head, &shared.log, number).await {
            return;
        }
        let goes_on = act(&mut socket, script.steps, &shared).await;
        shared.ends.send_modify(|done| *done += 1);
        if !goes_on || script.is_early && !read_body(&mut socket, &mut unread, &head, &shared.log, number).await {
            return;
        }
    }
}

/// Does the steps; whether the connection is open after them.
async fn act(socket: &mut TcpStream, steps: Vec<Step>, shared: &Shared) -> bool {
    for step in steps {
        let sent = match step {
            Step::Send(bytes) => socket.write_all(&bytes).await,
            Step::SendBytewise(bytes) => {
                for byte in bytes {
                    let _refused = socket.write_all(&[byte]).await;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
            Step::UntilClientHas(bytes) => {
                let has = |has: &usize| *has >= bytes;
                let mut client = shared.client_has.clone();
                let _given_up = tokio::time::timeout(CLIENT_MAX, client.wait_for(has)).await.map(drop);
                Ok(())
            }
            Step::Close => {
                let _gone = socket.shutdown().await;
                // What is unread would make it a reset. Not every pool closes its end before it wants the connection again.
                let mut rest = Vec::new();
                let _kept_open = tokio::time::timeout(CLOSED_MAX, socket.read_to_end(&mut rest)).await;
                return false;
            }
            Step::Reset => {
                socket.set_zero_linger().unwrap();
                return false;
            }
        };
        if sent.is_err() {
            return false;
        }
    }
    true
}

async fn read_head(socket: &mut TcpStream, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            return String::from_utf8(unread.drain(..at + 4).collect()).ok();
        }
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
}

/// Reads a body by its length or its chunks; whether it came whole.
async fn read_body(
    socket: &mut TcpStream,
    unread: &mut Vec<u8>,
    head: &str,
    log: &Mutex<Vec<Asked>>,
    number: usize,
) -> bool {
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
    let is_chunked = head.contains("transfer-encoding: chunked");
    loop {
        let whole = if is_chunked {
            unread
                .windows(5)
                .position(|window| window == b"0\r\n\r\n")
                .map(|at| at + 5)
        } else {
            (unread.len() >= length).then_some(length)
        };
        if let Some(whole) = whole {
            log.lock().unwrap()[number].body = unread.drain(..whole).collect();
            return true;
        }
        if !socket.read_buf(unread).await.is_ok_and(|read| read > 0) {
            return false;
        }
    }
}

/// How long the other side of a connection that was closed is waited for.
const CLOSED_MAX: Duration = Duration::from_millis(200);
/// How long a client may take to get what it was sent. A side that holds it back shows another answer then.
pub const CLIENT_MAX: Duration = Duration::from_secs(2);
