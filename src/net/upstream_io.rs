//! What a call and its HTTP/1 connection to an upstream tell each other beside Pingora's session: the rest of a request that the upstream
//! does not take yet is sent while its answer is read, so that one that answers early is heard.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::chunk_check::{ChunkCheck, Misframed, split_head};

/// One connection's, over all requests that it serves.
#[derive(Debug, Default)]
pub(crate) struct UpstreamIo(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The body that is about to be written, to be kept without a copy where it has to wait.
    body: Bytes,
    sending: Sending,
    /// Bytes that have left, modulo 2^64: to see whether more did since.
    sent: u64,
    answer: Answer,
}

/// How far the request has left.
#[derive(Debug, Default)]
enum Sending {
    /// All that was written.
    #[default]
    Done,
    /// A part of it waits.
    Waits,
    /// The upstream takes no more.
    Failed,
}

/// What of the answer has come.
#[derive(Debug, Default)]
enum Answer {
    /// None is waited for, or it is not in chunks.
    #[default]
    Unchecked,
    /// Its head is waited for: what has come.
    Head(Vec<u8>),
    Chunked(ChunkCheck),
}

impl UpstreamIo {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request with this body is about to be written.
    pub(crate) fn begin(&self, body: &Bytes) {
        *self.lock() = State {
            body: body.clone(),
            answer: Answer::Head(Vec::new()),
            ..State::default()
        };
    }

    /// The answer's head is there; `is_chunked`: its body comes in chunks.
    ///
    /// # Errors
    /// [`Misframed`] when what has come of that body already is not framed as HTTP wants it.
    pub(crate) fn head_came(&self, is_chunked: bool) -> Result<(), Misframed> {
        let mut state = self.lock();
        state.body = Bytes::new();
        let Answer::Head(raw) = std::mem::take(&mut state.answer) else {
            return Ok(());
        };
        if !is_chunked {
            return Ok(());
        }
        // Before it there may have been informational ones.
        let mut rest = raw.as_slice();
        let body = loop {
            let (head, body) = split_head(rest).ok_or(Misframed)?;
            if !is_informational(head) {
                break body;
            }
            rest = body;
        };
        let mut check = ChunkCheck::of_answer();
        check.read(body)?;
        state.answer = Answer::Chunked(check);
        Ok(())
    }

    /// What a read that brought nothing comes to. TLS that ends without its close may have lost something, but not before anything of an
    /// answer came: then the connection ended, as one that had waited for too long does.
    pub(crate) fn ended(&self, end: io::Result<()>) -> io::Result<()> {
        match end {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !self.has_heard() => Ok(()),
            end => end,
        }
    }

    /// Looks at what was read.
    ///
    /// # Errors
    /// [`Misframed`]: the answer is not framed as HTTP wants it.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(), Misframed> {
        match &mut self.lock().answer {
            Answer::Unchecked => Ok(()),
            Answer::Head(raw) => {
                // Pingora limits a head; what is beyond is not looked at.
                if raw.len() < RAW_BYTES_MAX {
                    raw.extend_from_slice(bytes);
                }
                Ok(())
            }
            Answer::Chunked(check) => check.read(bytes),
        }
    }

    /// These bytes, which are to be written, to be kept: a part of the body without a copy.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Bytes {
        let body = &self.lock().body;
        let from = bytes.as_ptr().addr().checked_sub(body.as_ptr().addr());
        let to = from.and_then(|from| from.checked_add(bytes.len()));
        match (from, to) {
            (Some(from), Some(to)) if to <= body.len() => body.slice(from..to),
            _ => Bytes::copy_from_slice(bytes),
        }
    }

    /// So many bytes have left; `waits`: others wait.
    pub(crate) fn sent(&self, bytes: usize, waits: bool) {
        let mut state = self.lock();
        state.sent = state.sent.wrapping_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        state.sending = if waits { Sending::Waits } else { Sending::Done };
    }

    /// The upstream takes no more.
    pub(crate) fn failed(&self, error: &io::Error) {
        log::debug!("an upstream did not take all of a request: {error}");
        self.lock().sending = Sending::Failed;
    }

    /// While a part of the request waits: how much has left, to be compared.
    pub(crate) fn waits(&self) -> Option<u64> {
        let state = self.lock();
        matches!(state.sending, Sending::Waits).then_some(state.sent)
    }

    /// Whether anything of an answer has come.
    pub(crate) fn has_heard(&self) -> bool {
        match &self.lock().answer {
            Answer::Head(raw) => !raw.is_empty(),
            Answer::Unchecked | Answer::Chunked(_) => true,
        }
    }

    /// Whether all of the request has left.
    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.lock().sending, Sending::Done)
    }
}

fn is_informational(head: &[u8]) -> bool {
    // As in `HTTP/1.1 103 Early Hints`.
    head.get(8..10) == Some(b" 1")
}

/// Most bytes of a head, and of what came with it, that are kept to be looked at.
const RAW_BYTES_MAX: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_body_is_kept_without_a_copy() {
        let io = UpstreamIo::default();
        let body = Bytes::from(vec![7; 1000]);
        io.begin(&body);
        let kept = io.keep(&body[300..]);
        assert_eq!((kept.as_ptr(), kept.len()), (body[300..].as_ptr(), 700));
        let other = [1, 2, 3];
        assert_eq!(io.keep(&other), other.as_slice());
    }

    /// Heads that Pingora takes, one after the other: also with lines that end in LF, and behind empty lines.
    const HEADS: [&str; 5] = [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n",
        "\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "\nHTTP/1.1 103 Early Hints\n\n\r\nHTTP/1.1 200 OK\ntransfer-encoding: chunked\n\r\n",
    ];

    #[test]
    fn chunks_are_looked_at_however_the_heads_before_them_end() {
        for heads in HEADS {
            let begun = |chunk: &[u8]| {
                let io = UpstreamIo::default();
                io.begin(&Bytes::new());
                io.read(heads.as_bytes()).unwrap();
                io.read(chunk).unwrap();
                io
            };
            let io = begun(b"5\r\nhello\r\n");
            assert_eq!(io.head_came(true), Ok(()), "{heads:?}");
            assert_eq!(io.read(b"0;a\n\r\n"), Err(Misframed), "{heads:?}");
            let io = begun(b"5;a\nhello\r\n0\r\n\r\n");
            assert_eq!(io.head_came(true), Err(Misframed), "{heads:?}");
            let io = begun(b"5;a\r\nhello\r\n0\r\n\r\n");
            assert_eq!(io.head_came(true), Ok(()), "{heads:?}");
        }
    }
}
