//! A client that writes bytes to a socket and reads answers off it, for what no well-behaved client sends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::answer::Answer;
use super::{Gateway, within};

/// The client.
pub struct Raw {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Raw {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Raw {
            socket,
            unread: Vec::new(),
        }
    }

    /// Connects from this address of loopback.
    pub async fn connect_from(local: [u8; 4], address: SocketAddr) -> Raw {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((local, 0).into()).unwrap();
        let socket = socket.connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Raw {
            socket,
            unread: Vec::new(),
        }
    }

    /// Connects with the smallest buffer that there is for what comes and is not read.
    pub async fn connect_narrow(address: SocketAddr) -> Raw {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1).unwrap();
        let socket = socket.connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Raw {
            socket,
            unread: Vec::new(),
        }
    }

    /// Connects to a gateway and posts this to it with its key.
    pub async fn posted(gateway: &Gateway, path: &str, body: &str) -> Raw {
        Raw::posted_as(gateway, path, "HTTP/1.1\r\nhost: x", body.len(), body).await
    }

    /// The same with this version and these fields, of a body of so many bytes as much as is there.
    pub async fn posted_as(gateway: &Gateway, path: &str, fields: &str, length: usize, body: &str) -> Raw {
        let mut raw = Raw::connect(gateway.address).await;
        raw.post_as(gateway, path, fields, length, body).await;
        raw
    }

    /// Posts this with a gateway's key.
    pub async fn post(&mut self, gateway: &Gateway, path: &str, body: &str) {
        self.post_as(gateway, path, "HTTP/1.1\r\nhost: x", body.len(), body)
            .await;
    }

    async fn post_as(&mut self, gateway: &Gateway, path: &str, fields: &str, length: usize, body: &str) {
        let key = &gateway.key;
        self.send(format!(
            "POST /api/v1{path} {fields}\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends bytes as they are, as far as the gateway takes them: it may have answered and closed before the last.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.socket.write_all(bytes.as_ref()).await
    }

    /// How many segments with bytes of an answer have come: over loopback each is what one write sent.
    pub fn segments(&self) -> u32 {
        // `tcpi_data_segs_in` of linux/tcp.h, where the kernel ends what it tells of a connection later than libc's struct does.
        const DATA_SEGMENTS_IN: usize = 152;
        let mut info = [0_u8; DATA_SEGMENTS_IN + size_of::<u32>()];
        let mut length = libc::socklen_t::try_from(info.len()).unwrap();
        // SAFETY: the kernel writes at most `length` bytes, all of which are in `info`.
        let told = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        assert_eq!((told, usize::try_from(length).unwrap()), (0, info.len()));
        u32::from_ne_bytes(info[DATA_SEGMENTS_IN..].try_into().unwrap())
    }

    /// Whether the gateway has said something or closed the connection.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.socket.try_read_buf(&mut self.unread), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// How much has come and was not taken, by now.
    pub fn came(&mut self) -> usize {
        while self
            .socket
            .try_read_buf(&mut self.unread)
            .is_ok_and(|length| length > 0)
        {}
        self.unread.len()
    }

    /// So many bytes of what comes next; none when the connection ends before.
    pub async fn try_take(&mut self, length: usize) -> Option<Bytes> {
        while self.unread.len() < length {
            let read = within("more of an answer", self.socket.read_buf(&mut self.unread)).await;
            if read.ok()? == 0 {
                return None;
            }
        }
        Some(self.unread.drain(..length).collect())
    }

    /// The next answer; none when the connection ends before its first byte.
    pub async fn try_answer(&mut self) -> Option<Answer> {
        let first = self.try_take(1).await?;
        self.unread.splice(0..0, first);
        Some(self.answer().await)
    }

    /// Ends this side of the connection.
    pub async fn end(&mut self) {
        let _gone = self.socket.shutdown().await;
    }

    /// The next answer: to its end by its length or its chunks.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        answer.body = if answer.header("transfer-encoding") == "chunked" {
            self.chunks().await
        } else {
            let length = answer.header("content-length").parse().unwrap_or(0);
            self.take(length).await
        };
        answer
    }

    /// The head of the next answer, without a body: what HEAD gets, and an interim answer.
    pub async fn head(&mut self) -> Answer {
        let head = self.until(b"\r\n\r\n").await;
        let text = String::from_utf8(head).unwrap();
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Answer {
            status,
            headers,
            body: Bytes::new(),
        }
    }

    /// The next answer, whose body ends with the connection.
    pub async fn until_closed(&mut self) -> Answer {
        let mut answer = self.head().await;
        let mut body = std::mem::take(&mut self.unread);
        within("the connection's end", self.socket.read_to_end(&mut body))
            .await
            .unwrap();
        answer.body = body.into();
        answer
    }

    /// All that still comes until the connection's end, which may be a reset.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.unread);
        let _ended = within("the connection's end", self.socket.read_to_end(&mut rest)).await;
        rest
    }

    /// Checks that the gateway closes the connection and sends nothing more.
    pub async fn closed(&mut self) {
        let rest = self.rest().await;
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    /// Closes the connection, with what is unread.
    pub fn close(self) {
        drop(self);
    }

    async fn chunks(&mut self) -> Bytes {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                return body.into();
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// The next chunk of a body; the last one is empty.
    pub async fn chunk(&mut self) -> Bytes {
        let line = String::from_utf8(self.until(b"\r\n").await).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let chunk = self.take(length).await;
        self.take(2).await;
        chunk
    }

    async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            let found = self.unread.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return self.unread.drain(..at + end.len()).collect();
            }
            self.read_more().await;
        }
    }

    /// So many bytes of what comes next.
    pub async fn take(&mut self, length: usize) -> Bytes {
        while self.unread.len() < length {
            self.read_more().await;
        }
        self.unread.drain(..length).collect()
    }

    async fn read_more(&mut self) {
        let read = within("more of an answer", self.socket.read_buf(&mut self.unread))
            .await
            .unwrap();
        let unread = String::from_utf8_lossy(&self.unread);
        assert!(read > 0, "the connection was closed within an answer: {unread:?}");
    }
}
