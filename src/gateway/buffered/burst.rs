//! A stream that comes faster than it is handed on: its pieces leave together.
//!
//! Pingora hands an answer on in batches of a few pieces, and each batch would be sent by itself. A full one tells that more may stand in
//! line, so it is kept for the next. Nobody waits for that: the connection's task polls the call again at once, as long as its budget
//! lasts, and what was kept leaves when nothing more has come. `buffered` writes what leaves here.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::HttpTask;

use crate::gateway::bounded::Room;

/// The pieces that are kept.
pub(super) struct Burst {
    /// Asked for another poll of the call. None where nobody could be asked: then nothing is kept.
    room: Option<Arc<Room>>,
    kept: BytesMut,
    /// How often the loop came by since the last piece.
    asked: u8,
}

impl Burst {
    pub(super) fn new(room: Option<Arc<Room>>) -> Burst {
        Burst {
            room,
            kept: BytesMut::new(),
            asked: 0,
        }
    }

    /// Keeps a full batch, or gives all that is to be written now: what was kept, and `tasks`.
    pub(super) fn keep(&mut self, tasks: Vec<HttpTask>) -> Option<Vec<HttpTask>> {
        let Some(room) = &self.room else {
            return Some(tasks);
        };
        let bytes = length(&tasks).filter(|bytes| tasks.len() >= FULL_BATCH && *bytes > 0);
        if bytes.is_some_and(|bytes| self.kept.len().saturating_add(bytes) <= KEPT_MAX) {
            self.append(&tasks);
            self.asked = 0;
            return None;
        }
        if !self.kept.is_empty() {
            // It had its turn: the next is for the other connections of the thread.
            room.take_again();
        }
        Some(self.join(tasks))
    }

    /// What was kept, and `tasks`.
    pub(super) fn join(&mut self, mut tasks: Vec<HttpTask>) -> Vec<HttpTask> {
        if self.kept.is_empty() {
            return tasks;
        }
        if length(&tasks).is_some() {
            self.append(&tasks);
            tasks.clear();
        }
        let kept = HttpTask::Body(self.take(), false);
        tasks.insert(0, kept);
        tasks
    }

    /// The same of pieces that are nothing else: the bytes that are to be written now.
    pub(super) fn take_in(&mut self, mut pieces: Vec<HttpTask>) -> Option<Bytes> {
        if pieces.len() > 1 || !self.kept.is_empty() {
            pieces = self.keep(pieces)?;
        }
        if pieces.len() > 1 {
            self.append(&pieces);
            return self.take();
        }
        match pieces.pop() {
            Some(HttpTask::Body(bytes, _)) => bytes,
            _ => None,
        }
    }

    /// Asked each time that the loop has nothing else to do: whether what is kept is to be written now, for nothing follows it.
    pub(super) fn is_due(&mut self) -> bool {
        let (false, Some(room)) = (self.kept.is_empty(), &self.room) else {
            return false;
        };
        self.asked = self.asked.saturating_add(1);
        let due = self.asked > ASKED_MAX;
        if !due {
            room.ask_again();
        }
        due
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// What is kept; nothing is after it, and no room is.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        (!self.kept.is_empty()).then(|| std::mem::take(&mut self.kept).freeze())
    }

    fn append(&mut self, tasks: &[HttpTask]) {
        if self.kept.capacity() == 0 {
            self.kept.reserve(KEPT_MAX);
        }
        for task in tasks {
            if let HttpTask::Body(Some(bytes), _) = task {
                self.kept.extend_from_slice(bytes);
            }
        }
    }
}

/// The bytes of a batch that is nothing but pieces of a body that goes on.
fn length(tasks: &[HttpTask]) -> Option<usize> {
    tasks.iter().try_fold(0_usize, |sum, task| match task {
        HttpTask::Body(Some(bytes), false) => Some(sum.saturating_add(bytes.len())),
        _ => None,
    })
}

/// Pieces of a full batch: what Pingora's channel holds between the two halves of its proxy loop (its `TASK_BUFFER_SIZE`).
const FULL_BATCH: usize = 4;
/// The loop comes by once when the batch is kept. The proxy's two halves are polled in turns, so the next batch may be there only at the
/// poll after the next; and there its branches are polled in any order. When it comes by for the fourth time, there is none.
const ASKED_MAX: u8 = 3;
/// Most bytes that are kept. More would save little, and the other streams of the thread wait for as long as one has its turn.
const KEPT_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(count: usize, text: &'static str) -> Vec<HttpTask> {
        let piece = || HttpTask::Body(Some(Bytes::from_static(text.as_bytes())), false);
        std::iter::repeat_with(piece).take(count).collect()
    }

    fn text(tasks: Vec<HttpTask>) -> String {
        let piece = |task| match task {
            HttpTask::Body(bytes, _) => String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap(),
            other => format!("{other:?}"),
        };
        tasks.into_iter().map(piece).collect()
    }

    #[test]
    fn full_batches_are_kept_and_leave_before_what_follows() {
        let mut burst = Burst::new(Some(Room::unlimited()));
        assert!(burst.keep(pieces(4, "a")).is_none());
        assert!(burst.keep(pieces(5, "b")).is_none());
        assert_eq!(text(burst.keep(pieces(3, "c")).unwrap()), "aaaabbbbbccc");
        assert_eq!(text(burst.keep(pieces(1, "d")).unwrap()), "d");
        assert!(burst.take().is_none());
    }

    #[test]
    fn what_was_kept_leaves_before_an_end() {
        let mut burst = Burst::new(Some(Room::unlimited()));
        assert!(burst.keep(pieces(4, "a")).is_none());
        let all = burst
            .keep(vec![HttpTask::Body(Some(Bytes::from_static(b"b")), true)])
            .unwrap();
        assert_eq!(all.len(), 2);
        assert!(all[1].is_end() && !all[0].is_end());
        assert_eq!(text(all), "aaaab");
    }

    #[test]
    fn what_nothing_follows_is_due_when_the_loop_has_come_by_and_asks_for_that() {
        let room = Room::unlimited();
        let mut burst = Burst::new(Some(Arc::clone(&room)));
        assert!(!burst.is_due() && !room.take_again());
        assert!(burst.keep(pieces(4, "a")).is_none());
        assert!(!burst.is_due() && room.take_again() && !room.take_again());
        assert!(burst.keep(pieces(4, "b")).is_none());
        for _ in 0..ASKED_MAX {
            assert!(!burst.is_due() && room.take_again());
        }
        assert!(burst.is_due() && !room.take_again());
        assert_eq!(burst.take().unwrap(), "aaaabbbb");
        assert!(!burst.is_due() && !room.take_again());
    }

    #[test]
    fn nothing_is_kept_of_an_end_a_failure_or_where_nobody_could_be_asked() {
        let mut burst = Burst::new(Some(Room::unlimited()));
        for last in [
            HttpTask::Body(None, false),
            HttpTask::Body(Some(Bytes::new()), true),
            HttpTask::Done,
            HttpTask::Failed(pingora::Error::new(pingora::ErrorType::ReadError)),
        ] {
            let mut tasks = pieces(4, "a");
            tasks.push(last);
            assert_eq!(burst.keep(tasks).unwrap().len(), 5);
        }
        assert_eq!(
            burst.keep(pieces(4, "")).unwrap().len(),
            4,
            "pieces that the tap has emptied"
        );
        assert_eq!(Burst::new(None).keep(pieces(4, "a")).unwrap().len(), 4);
    }

    #[test]
    fn pieces_are_kept_or_leave_as_one() {
        let mut burst = Burst::new(Some(Room::unlimited()));
        assert_eq!(burst.take_in(pieces(1, "a")).unwrap(), "a");
        assert_eq!(burst.take_in(pieces(3, "b")).unwrap(), "bbb");
        assert!(burst.take_in(pieces(4, "c")).is_none());
        assert_eq!(burst.take_in(pieces(1, "d")).unwrap(), "ccccd");
        assert!(burst.take_in(pieces(4, "e")).is_none());
        assert_eq!(burst.take_in(pieces(2, "f")).unwrap(), "eeeeff");
        assert!(burst.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_is_sent_at_once() {
        let mut burst = Burst::new(Some(Room::unlimited()));
        let text = "0123456789abcdef";
        for kept in (4 * text.len()..=KEPT_MAX).step_by(4 * text.len()) {
            assert!(burst.keep(pieces(4, text)).is_none(), "{kept}");
        }
        let all = burst.keep(pieces(4, text)).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(super::tests::text(all).len(), KEPT_MAX + 4 * text.len());
        assert!(burst.take().is_none());
    }
}
