//! What is to be written next of an answer: its head, as long as that waits, and what came since the last write.

use bytes::{Bytes, BytesMut};
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;

use super::upstream_session::Piece;

/// The part of an answer that is to be written next.
pub(super) struct WriteBatch {
    head: Option<Box<ResponseHeader>>,
    /// Whether the head waits for the first bytes that follow it. Until then it may turn out that there is no answer, and another target
    /// is asked, or the client gets another status.
    head_waits: bool,
    /// All, or the first.
    piece: Bytes,
    /// It and those after it, when there are some.
    pieces: BytesMut,
    ends: bool,
}

/// What is written at once.
pub(super) enum Part {
    /// The answer begins; its second task, if any, is a body.
    Begin(Vec<HttpTask>),
    /// Bytes of its body, and whether they are the last.
    Body(Bytes, bool),
}

impl WriteBatch {
    pub(super) fn new(head: ResponseHeader, head_waits: bool) -> WriteBatch {
        WriteBatch {
            head: Some(Box::new(head)),
            head_waits,
            piece: Bytes::new(),
            pieces: BytesMut::new(),
            ends: false,
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        let has_head = self.head.is_some() && !self.head_waits;
        !has_head && !self.ends && self.piece.is_empty()
    }

    /// Whether it is to be written before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.ends || self.piece.len().max(self.pieces.len()) >= BYTES_MAX
    }

    /// Whether the answer's last piece was taken in.
    pub(super) fn has_ended(&self) -> bool {
        self.ends
    }

    /// Takes the next piece in.
    pub(super) fn push(&mut self, piece: Piece) {
        self.ends = piece.ends;
        let bytes = piece.bytes.unwrap_or_default();
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

    /// What is to be written.
    pub(super) fn take(&mut self) -> Option<Part> {
        if self.is_empty() {
            return None;
        }
        let first = std::mem::take(&mut self.piece);
        let bytes = if self.pieces.is_empty() {
            first
        } else {
            self.pieces.split().freeze()
        };
        let Some(head) = self.head.take() else {
            return Some(Part::Body(bytes, self.ends));
        };
        let mut tasks = vec![HttpTask::Header(head, false)];
        if self.ends || !bytes.is_empty() {
            tasks.push(HttpTask::Body(Some(bytes), self.ends));
        }
        Some(Part::Begin(tasks))
    }
}

/// Bytes that are written at once. More would save little, and the other streams of the thread wait meanwhile.
const BYTES_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(head_waits: bool) -> WriteBatch {
        WriteBatch::new(ResponseHeader::build(200, None).unwrap(), head_waits)
    }

    fn piece(text: &'static str, ends: bool) -> Piece {
        Piece {
            bytes: Some(Bytes::from_static(text.as_bytes())),
            ends,
        }
    }

    fn body(part: Option<Part>) -> (String, bool) {
        match part {
            Some(Part::Body(bytes, ends)) => (String::from_utf8(bytes.to_vec()).unwrap(), ends),
            Some(Part::Begin(_)) => panic!("the head again"),
            None => panic!("nothing"),
        }
    }

    #[test]
    fn a_streams_head_leaves_at_once_and_by_itself_when_nothing_has_come() {
        let mut burst = burst(false);
        assert!(!burst.is_empty());
        let Some(Part::Begin(tasks)) = burst.take() else {
            panic!("no head")
        };
        assert!(matches!(tasks[..], [HttpTask::Header(_, false)]));
        assert!(burst.is_empty() && burst.take().is_none());
    }

    #[test]
    fn a_whole_answers_head_waits_for_bytes_or_the_end() {
        let mut waits = burst(true);
        waits.push(piece("", false));
        assert!(waits.is_empty() && waits.take().is_none());
        waits.push(piece("a", false));
        let Some(Part::Begin(tasks)) = waits.take() else {
            panic!("no head")
        };
        assert!(matches!(&tasks[..], [HttpTask::Header(_, false), HttpTask::Body(Some(a), false)] if a == "a"));
        let mut ends = burst(true);
        ends.push(piece("", true));
        let Some(Part::Begin(tasks)) = ends.take() else {
            panic!("no head")
        };
        assert!(matches!(
            &tasks[..],
            [HttpTask::Header(_, false), HttpTask::Body(_, true)]
        ));
    }

    #[test]
    fn pieces_leave_together_in_their_order_and_the_end_with_them() {
        let mut burst = burst(false);
        burst.take();
        burst.push(piece("a", false));
        assert_eq!(body(burst.take()), ("a".to_owned(), false));
        for text in ["b", "", "c"] {
            burst.push(piece(text, false));
        }
        burst.push(piece("d", true));
        assert!(burst.is_full() && burst.has_ended());
        assert_eq!(body(burst.take()), ("bcd".to_owned(), true));
    }

    #[test]
    fn a_full_one_takes_no_more() {
        let mut burst = burst(false);
        burst.take();
        let text = "0123456789abcdef";
        for _ in 0..BYTES_MAX / text.len() {
            assert!(!burst.is_full());
            burst.push(piece(text, false));
        }
        assert!(burst.is_full());
        assert_eq!(body(burst.take()).0.len(), BYTES_MAX);
        assert!(!burst.is_full());
    }
}
