//! What is to be written next of an answer: its head, as long as that waits, and what came since the last write.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{self, HeaderValue};
use http::response::Parts as RespParts;
use pingora::Result;
use pingora::http::ResponseHeader;

use super::gathering::{GatherLimits, GatheredShare, Until};
use super::upstream_session::Piece;

/// The part of an answer that is to be written next.
pub(super) struct WriteBatch<'t> {
    head: Option<Box<ResponseHeader>>,
    /// The client's protocol, by which the answer's length is told.
    client: Version,
    leaves: Leaves,
    /// Buffers of a gathered answer that are full, in order.
    gathered: VecDeque<Bytes>,
    /// What the gathered answer takes of what all may take.
    share: GatheredShare<'t>,
    /// What follows them: all, or the first. Empty when there is nothing.
    piece: Bytes,
    /// It and those after it, when there are some.
    pieces: BytesMut,
    /// Bytes of it have left.
    has_begun: bool,
    /// It has passed the limits within which it waited for an event.
    is_late: bool,
    ends: bool,
}

/// When an answer leaves. Until its head has, it may turn out that there is no answer, and another target is asked, or the client gets
/// another status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// As it comes, and its head before.
    AtOnce,
    /// As it comes, and its head with its first bytes.
    WithBytes,
    /// Not before what these limits name, within them.
    Gathered(GatherLimits),
}

/// What is written at once.
pub(super) struct Part {
    /// The answer's head, which goes before.
    pub(super) head: Option<Box<ResponseHeader>>,
    /// Bytes of its body. None when only the head leaves.
    pub(super) bytes: Bytes,
    /// Whether nothing follows.
    pub(super) ends: bool,
}

impl<'t> WriteBatch<'t> {
    /// Nothing yet but a head. With `limits` the answer is gathered, and `all` counts what is gathered of all answers.
    pub(super) fn new(
        head: Box<ResponseHeader>,
        client: Version,
        limits: Option<GatherLimits>,
        all: &'t AtomicUsize,
    ) -> WriteBatch<'t> {
        WriteBatch {
            head: Some(head),
            client,
            leaves: limits.map_or(Leaves::AtOnce, Leaves::Gathered),
            gathered: VecDeque::new(),
            share: GatheredShare::of(all),
            piece: Bytes::new(),
            pieces: BytesMut::new(),
            has_begun: false,
            is_late: false,
            ends: false,
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        let leaves = match self.leaves {
            Leaves::AtOnce => self.head.is_some() || !self.piece.is_empty(),
            Leaves::WithBytes => !self.is_drained(),
            Leaves::Gathered(_) => false,
        };
        !leaves && !self.ends
    }

    /// Whether it is to be written before more is read.
    pub(super) fn is_full(&self) -> bool {
        let is_long = || match self.leaves {
            Leaves::AtOnce | Leaves::WithBytes => self.joined() >= BYTES_MAX || !self.gathered.is_empty(),
            Leaves::Gathered(_) => false,
        };
        self.ends || is_long()
    }

    /// Whether the next piece is to be written as it comes, whatever is there behind it: the first bytes of what leaves as it comes. A
    /// provider that sends fast would else have more of it ready each time, until the batch is full.
    pub(super) fn is_urgent(&self) -> bool {
        !self.has_begun && !self.is_whole()
    }

    /// Whether the answer's last piece was taken in.
    pub(super) fn has_ended(&self) -> bool {
        self.ends
    }

    /// Whether the head of an answer that was gathered is about to leave, or leaves with its first bytes, though what it waited for has not
    /// come.
    pub(super) fn begins_unfinished(&self) -> bool {
        let is_late = self.is_late || self.leaves == Leaves::WithBytes;
        self.head.is_some() && !self.ends && is_late
    }

    /// What the answer waits for has not come within its limits: what came of it leaves, and the rest as it comes.
    pub(super) fn stop_gathering(&mut self) {
        let Leaves::Gathered(limits) = self.leaves else { return };
        (self.leaves, self.is_late) = match limits.until {
            Until::End => (Leaves::WithBytes, false),
            Until::Event => (Leaves::AtOnce, true),
        };
    }

    /// Whether the answer waits for an event.
    pub(super) fn waits_for_event(&self) -> bool {
        matches!(self.leaves, Leaves::Gathered(limits) if limits.until == Until::Event)
    }

    /// That has come: what there is of the answer leaves, and the rest as it comes.
    pub(super) fn has_event(&mut self) {
        self.leaves = Leaves::AtOnce;
    }

    /// Whether the answer leaves whole.
    fn is_whole(&self) -> bool {
        matches!(self.leaves, Leaves::Gathered(limits) if limits.until == Until::End)
    }

    /// Takes the next piece in.
    pub(super) fn push(&mut self, piece: Piece) {
        self.ends = piece.ends;
        let Some(bytes) = piece.bytes.filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        if let Leaves::Gathered(limits) = self.leaves {
            // Only what has to wait counts.
            if !self.ends && !self.share.take(bytes.len(), &limits) {
                self.stop_gathering();
            }
            // What is large is not copied.
            if bytes.len().max(self.joined()) >= BYTES_MAX && !self.piece.is_empty() {
                let full = self.take_joined();
                self.gathered.push_back(full);
            }
        }
        if self.piece.is_empty() {
            self.piece = bytes;
            return;
        }
        if self.pieces.is_empty() {
            self.pieces.reserve(BYTES_MAX);
            self.pieces.extend_from_slice(&self.piece);
        }
        self.pieces.extend_from_slice(&bytes);
    }

    /// What is to be written, with the head when that has not left; [`WriteBatch::rest`] gives what is left then.
    ///
    /// # Errors
    /// When the answer's length cannot be told.
    pub(super) fn take(&mut self) -> Result<Option<Part>> {
        if self.is_empty() {
            return Ok(None);
        }
        let Some(head) = self.head.take() else {
            return Ok(Some(self.take_next()));
        };
        let is_whole = self.ends && self.is_whole();
        let head = frame(head, self.client, is_whole.then(|| self.length()))?;
        let mut part = self.take_next();
        if !self.is_drained() {
            self.join(&mut part);
        }
        part.head = Some(head);
        Ok(Some(part))
    }

    /// What is left of a batch of which a part was taken.
    pub(super) fn rest(&mut self) -> Option<Part> {
        (!self.is_drained()).then(|| self.take_next())
    }

    /// The next bytes.
    fn take_next(&mut self) -> Part {
        let bytes = match self.gathered.pop_front() {
            Some(full) => full,
            None => self.take_joined(),
        };
        self.share.give_back(bytes.len());
        self.has_begun |= !bytes.is_empty();
        Part {
            head: None,
            bytes,
            ends: self.ends && self.is_drained(),
        }
    }

    /// Adds to the part that leaves with the head what follows it, as far as it is short.
    fn join(&mut self, part: &mut Part) {
        let mut bytes = BytesMut::new();
        loop {
            let next = self.gathered.front().map_or(self.joined(), Bytes::len);
            let length = part.bytes.len().max(bytes.len()).saturating_add(next);
            if self.is_drained() || length > BEGIN_BYTES_MAX {
                break;
            }
            if bytes.is_empty() {
                bytes.reserve(BEGIN_BYTES_MAX);
                bytes.extend_from_slice(&part.bytes);
            }
            let next = self.take_next();
            bytes.extend_from_slice(&next.bytes);
            part.ends = next.ends;
        }
        if !bytes.is_empty() {
            part.bytes = bytes.freeze();
        }
    }

    /// What follows the full buffers.
    fn take_joined(&mut self) -> Bytes {
        let first = std::mem::take(&mut self.piece);
        if self.pieces.is_empty() {
            first
        } else {
            self.pieces.split().freeze()
        }
    }

    /// How long that is.
    fn joined(&self) -> usize {
        self.piece.len().max(self.pieces.len())
    }

    fn is_drained(&self) -> bool {
        self.piece.is_empty() && self.gathered.is_empty()
    }

    /// How long all of it is.
    fn length(&self) -> usize {
        self.gathered
            .iter()
            .fold(self.joined(), |sum, full| sum.saturating_add(full.len()))
    }
}

/// How the answer's length is told to this client: as the plugin says, by its length when all of it is there, else in chunks where its
/// protocol has them.
fn frame(mut head: Box<ResponseHeader>, client: Version, length: Option<usize>) -> Result<Box<ResponseHeader>> {
    if client != Version::HTTP_2 && head.version == Version::HTTP_2 {
        // The upstream's version is no matter of the client's.
        head.set_version(Version::HTTP_11);
    }
    let has_no_body = matches!(head.status.as_u16(), 204 | 304);
    let (mut has_length, mut has_chunks) = (false, false);
    for name in head.headers.keys() {
        has_length |= *name == header::CONTENT_LENGTH;
        has_chunks |= *name == header::TRANSFER_ENCODING;
    }
    if let Some(length) = length.filter(|_| !has_no_body && !has_length) {
        // Not by Pingora's own way, which takes the name apart: this head is ours, and keeps no names as they were written.
        let mut parts = RespParts::from(*head);
        if has_chunks {
            parts.headers.remove(header::TRANSFER_ENCODING);
        }
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        return Ok(Box::new(ResponseHeader::from(parts)));
    }
    if client != Version::HTTP_11 {
        // HTTP/1.0 knows no chunks: there the connection's end is the body's. HTTP/2 has frames.
        if has_chunks {
            head.remove_header(&header::TRANSFER_ENCODING);
        }
        return Ok(head);
    }
    if !has_length && !has_no_body && !has_chunks {
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(head)
}

/// Bytes that are read and written at once. More would save little, and the other streams of the thread wait meanwhile.
pub(super) const BYTES_MAX: usize = 4 << 10;
/// Bytes of a gathered answer that are joined to leave with its head, in one write: a usual one is no longer. The rest follows without being
/// copied, each buffer in the time that a client may take for a write.
const BEGIN_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
