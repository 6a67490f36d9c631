//! As much of HTTP/1.1 as the load generator and the simulated upstream need: heads and
//! chunked bodies. Not a general implementation: both ends are the bench's own or a gateway's.

use std::ops::Range;

use thiserror::Error;

/// Bytes that cannot be read as HTTP/1.1.
#[derive(Debug, Error)]
pub(crate) enum Malformed {
    #[error("unreadable head: {0}")]
    Head(#[from] httparse::Error),
    #[error("unreadable Content-Length")]
    Length,
    #[error("unreadable chunk")]
    Chunk,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// What follows from the head of a message.
#[derive(Debug)]
pub(crate) struct Head {
    /// Status of a response; 0 for a request.
    pub(crate) status: u16,
    /// Where the target of a request stands in the bytes; empty for a response.
    pub(crate) target: Range<usize>,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    /// Bytes of the head, the empty line included.
    pub(crate) bytes: usize,
}

/// Reads the head of a request. None when more bytes are needed.
pub(crate) fn request_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes)? else {
        return Ok(None);
    };
    let target = request.path.map_or(0..0, |path| {
        let start = path.as_ptr().addr() - bytes.as_ptr().addr();
        start..start + path.len()
    });
    let (framing, keep_alive) = framing(request.headers, Framing::Length(0))?;
    Ok(Some(Head {
        status: 0,
        target,
        framing,
        keep_alive,
        bytes: length,
    }))
}

/// Reads the head of a response. None when more bytes are needed.
pub(crate) fn response_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    let without = if status == 204 || status == 304 {
        Framing::Length(0)
    } else {
        Framing::UntilClose
    };
    let (framing, keep_alive) = framing(response.headers, without)?;
    Ok(Some(Head {
        status,
        target: 0..0,
        framing,
        keep_alive,
        bytes: length,
    }))
}

fn framing(headers: &[httparse::Header<'_>], without: Framing) -> Result<(Framing, bool), Malformed> {
    let (mut framing, mut keep_alive) = (without, true);
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") && framing != Framing::Chunked {
            let length = std::str::from_utf8(header.value)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            framing = Framing::Length(length.ok_or(Malformed::Length)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            keep_alive = !header.value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok((framing, keep_alive))
}

/// Takes the chunked coding off a body, whatever the pieces it arrives in.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: Chunk,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the line of the size; what has been read of it.
    #[default]
    Start,
    Size(usize),
    /// After the size, up to the end of its line.
    Extension(usize),
    Bytes(usize),
    /// Between a chunk's bytes and the next size.
    End,
    /// In the trailer; whether its line is empty so far.
    Trailer(bool),
    Done,
}

impl Chunked {
    /// Gives the body's bytes in `input` to `sink`. Returns how many bytes of `input` belong to the body: all of them
    /// unless it ends there.
    pub(crate) fn feed(&mut self, input: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < input.len() && self.state != Chunk::Done {
            if let Chunk::Bytes(left) = self.state {
                let piece = &input[at..input.len().min(at + left)];
                sink(piece);
                at += piece.len();
                self.state = if piece.len() == left {
                    Chunk::End
                } else {
                    Chunk::Bytes(left - piece.len())
                };
                continue;
            }
            self.state = self.state.after(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == Chunk::Done
    }
}

impl Chunk {
    /// The state after one byte of framing.
    fn after(self, byte: u8) -> Result<Self, Malformed> {
        let digit = char::from(byte).to_digit(16).map(|digit| digit as usize);
        Ok(match (self, byte, digit) {
            (Self::Start, _, Some(digit)) => Self::Size(digit),
            (Self::Size(size), _, Some(digit)) if size <= usize::MAX >> 8 => Self::Size(size * 16 + digit),
            (Self::Size(0) | Self::Extension(0), b'\n', _) => Self::Trailer(true),
            (Self::Size(size) | Self::Extension(size), b'\n', _) => Self::Bytes(size),
            (Self::Size(size), b'\r' | b';' | b' ', _) | (Self::Extension(size), _, _) => Self::Extension(size),
            (Self::End, b'\r', _) => Self::End,
            (Self::End, b'\n', _) => Self::Start,
            (Self::Trailer(true), b'\n', _) => Self::Done,
            (Self::Trailer(_), b'\n', _) => Self::Trailer(true),
            (Self::Trailer(empty), b'\r', _) => Self::Trailer(empty),
            (Self::Trailer(_), _, _) => Self::Trailer(false),
            _ => return Err(Malformed::Chunk),
        })
    }
}

/// Writes `bytes` as one chunk to the end of `out`.
pub(crate) fn push_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

const HEADERS_MAX: usize = 64;
