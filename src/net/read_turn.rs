//! How much of what a client sends is read before others on the same thread have their turn. One that sends as fast as it is read would
//! keep the thread for megabytes, until tokio takes it away: a tenth of a second where they come in chunks of one byte.

use std::pin::pin;
use std::task::{Context, Poll};

/// What was read of one connection since it last had nothing to read, or others had their turn.
#[derive(Debug, Default)]
pub(super) struct ReadTurn {
    /// In bytes, a chunk's line being as much as [`LINE_WORK`] of them.
    work: usize,
}

impl ReadTurn {
    /// Before a read: pending when others come first. Then the task is woken once they have had their turn, and nothing was read.
    pub(super) fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.work < WORK_MAX {
            return Poll::Ready(());
        }
        self.work = 0;
        // Its first poll hands the waker to tokio, which looks at the sockets before it wakes: a task that wakes itself would have dozens of
        // turns before a stream's event is seen.
        let others = pin!(tokio::task::yield_now());
        others.poll(context)
    }

    /// So many bytes were read, with the lines of so many chunks.
    pub(super) fn read(&mut self, bytes: usize, lines: usize) {
        let lines = lines.saturating_mul(LINE_WORK);
        self.work = self.work.saturating_add(bytes).saturating_add(lines);
    }

    /// There was nothing to read: others have their turn.
    pub(super) fn ends(&mut self) {
        self.work = 0;
    }
}

/// Bytes that are read in one turn, or a read more.
const WORK_MAX: usize = 256 << 10;
/// Pingora hands on a chunk in about the time in which it reads so many bytes of a larger one: a turn has 1,024 chunks, or a read more.
const LINE_WORK: usize = 256;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_turn_begins_anew_when_there_was_nothing_to_read_and_when_others_had_theirs() {
        let mut turn = ReadTurn::default();
        let context = &mut Context::from_waker(Waker::noop());
        turn.read(WORK_MAX - 1, 0);
        assert!(turn.poll_begin(context).is_ready());
        turn.ends();
        turn.read(WORK_MAX - LINE_WORK - 1, 1);
        assert!(turn.poll_begin(context).is_ready());
        turn.read(1, 0);
        assert!(turn.poll_begin(context).is_pending());
        assert!(turn.poll_begin(context).is_ready());
    }
}
