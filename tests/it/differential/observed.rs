//! What a client sees of one exchange, and its words for a table.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What was seen of one behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// By the client: statuses, what frames the body, the body, how it ended.
    pub client: String,
    /// By the upstream: its requests, what framed them, their bodies.
    pub upstream: String,
    /// Whether the upstream's connection served the next request.
    pub next: String,
}

/// The client: one connection at a time, one request after the other.
pub struct Client {
    address: SocketAddr,
    socket: Option<TcpStream>,
    has: watch::Sender<usize>,
}

/// An answer as far as it came.
#[derive(Debug, Default)]
struct Answer {
    interim: Vec<u16>,
    status: u16,
    framing: Vec<String>,
    body: Vec<u8>,
    trailers: String,
    is_whole: bool,
    ends_with_connection: bool,
    closes: bool,
    /// Neither more of it nor the connection's end comes.
    hangs: bool,
}

impl Client {
    pub fn new(address: SocketAddr, has: watch::Sender<usize>) -> Client {
        Client {
            address,
            socket: None,
            has,
        }
    }

    /// Posts a body of so many bytes; what came of it, in words.
    pub async fn post(&mut self, length: usize) -> String {
        self.has.send_replace(0);
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => TcpStream::connect(self.address).await.unwrap(),
        };
        let request = format!("POST /v1 HTTP/1.1\r\nhost: upstream\r\ncontent-length: {length}\r\n\r\n");
        let request = [request.into_bytes(), body(length)].concat();
        let (mut reader, mut writer) = socket.split();
        let mut unread = Vec::new();
        let mut is_over = false;
        // It may be answered before it has sent all.
        let write = async {
            let _gone = writer.write_all(&request).await;
            std::future::pending::<()>().await;
        };
        let read = async {
            loop {
                let answer = parse(&unread, is_over);
                self.has
                    .send_replace(if answer.is_whole { usize::MAX } else { answer.body.len() });
                let closes = answer.closes && !is_over;
                if is_over || answer.is_whole && !closes {
                    return answer;
                }
                match tokio::time::timeout(SILENCE_MAX, reader.read_buf(&mut unread)).await {
                    Ok(Ok(1..)) => {}
                    Ok(_) => is_over = true,
                    Err(_) => {
                        is_over = true;
                        return Answer { hangs: true, ..answer };
                    }
                }
            }
        };
        let answer = tokio::select! {
            () = write => unreachable!(),
            answer = read => answer,
        };
        // Nothing more is waited for on its behalf.
        self.has.send_replace(usize::MAX);
        if !is_over {
            self.socket = Some(socket);
        }
        answer.words()
    }
}

impl Answer {
    fn words(&self) -> String {
        let interim: String = self.interim.iter().map(|status| format!("{status}, ")).collect();
        let end = match (self.status, self.is_whole, self.ends_with_connection) {
            (0, ..) if self.hangs => return format!("{interim}nothing for ever"),
            (0, ..) => return format!("{interim}nothing"),
            _ if self.hangs => "and no end",
            (_, true, false) => "whole",
            (_, true, true) => "until the end",
            (_, false, _) => "cut",
        };
        let framing = self.framing.join(", ");
        let trailers = if self.trailers.is_empty() {
            String::new()
        } else {
            format!(" and {}", self.trailers)
        };
        format!(
            "{interim}{} [{framing}] {}{trailers}, {end}",
            self.status,
            short(&self.body)
        )
    }
}

/// Bytes in few words.
pub fn short(bytes: &[u8]) -> String {
    if bytes.len() <= 24 {
        return format!("{:?}", String::from_utf8_lossy(bytes));
    }
    let sum = bytes
        .iter()
        .fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
    format!("{} bytes #{sum:08x}", bytes.len())
}

/// The body of a request.
pub fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + u8::try_from(at % 26).unwrap()).collect()
}

/// The lines of a head that say how a body is framed and a connection used.
pub fn framing(head: &str) -> Vec<String> {
    const NAMES: [&str; 6] = [
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "trailer",
        "upgrade",
    ];
    let lines = head.split("\r\n").skip(1).map(str::to_ascii_lowercase);
    let is_one = |line: &String| line.split_once(':').is_some_and(|(name, _)| NAMES.contains(&name));
    lines.filter(is_one).collect()
}

/// Reads what has come; `is_over`: nothing more comes.
fn parse(bytes: &[u8], is_over: bool) -> Answer {
    let mut answer = Answer::default();
    let mut rest = bytes;
    let head = loop {
        let Some(at) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
            return answer;
        };
        let head = String::from_utf8_lossy(&rest[..at + 2]).into_owned();
        rest = &rest[at + 4..];
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            answer.interim.push(status);
            continue;
        }
        answer.status = status;
        break head;
    };
    answer.framing = framing(&head);
    answer.closes = answer.framing.iter().any(|line| line == "connection: close");
    let value = |name: &str| {
        let line = answer.framing.iter().find(|line| line.starts_with(name))?;
        line.split_once(": ").map(|(_, value)| value.to_owned())
    };
    if [204, 304].contains(&answer.status) {
        answer.is_whole = true;
    } else if value("transfer-encoding").as_deref() == Some("chunked") {
        (answer.body, answer.trailers, answer.is_whole) = chunks(rest);
    } else if let Some(length) = value("content-length").and_then(|length| length.parse::<usize>().ok()) {
        answer.body = rest[..length.min(rest.len())].to_vec();
        answer.is_whole = rest.len() >= length;
    } else {
        answer.body = rest.to_vec();
        answer.ends_with_connection = true;
        answer.is_whole = is_over;
    }
    answer
}

/// The data of chunks, their trailers, and whether the last one is there.
fn chunks(mut rest: &[u8]) -> (Vec<u8>, String, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, String::new(), false);
        };
        let line = String::from_utf8_lossy(&rest[..at]).into_owned();
        let Ok(size) = usize::from_str_radix(&line, 16) else {
            return (body, format!("{line:?} in place of a size"), false);
        };
        rest = &rest[at + 2..];
        if size == 0 {
            let end = rest.windows(2).position(|window| window == b"\r\n");
            return match end {
                Some(0) => (body, String::new(), true),
                Some(_) => (
                    body,
                    String::from_utf8_lossy(rest).trim_end().to_owned(),
                    rest.ends_with(b"\r\n\r\n"),
                ),
                None => (body, String::new(), false),
            };
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        if rest.len() < size + 2 {
            return (body, String::new(), false);
        }
        rest = &rest[size + 2..];
    }
}

/// After so long without a byte nothing more is expected. Longer than the upstream waits for a client.
const SILENCE_MAX: Duration = Duration::from_secs(3);
