//! Whether all choices of a stream have finished, and since when.

use std::time::Instant;

use super::{Meter, Tap};

impl Meter {
    /// Whether a stream has come to the end of its answer, so that only its report and its last event may follow.
    pub(in crate::gateway) fn is_at_finish(&self) -> bool {
        matches!(&self.tap, Tap::Stream(tap) if tap.is_at_finish())
    }

    /// Notes that it is `now` where all choices of a stream have finished: what keeps its connection open behind that is no work. Text that
    /// follows was work, so the time is that of the finish behind it, or none where it has none: some providers say a finish reason with
    /// their first event or with each. To be asked with each piece of an answer whose time may be billed.
    pub(in crate::gateway) fn note_finish(&mut self, now: impl FnOnce() -> Instant) {
        let complete_at = match &self.tap {
            Tap::Stream(tap) => tap.complete_at(),
            Tap::Whole(_) => None,
        };
        if complete_at != self.finished_at.map(|(tokens, _)| tokens) {
            self.finished_at = complete_at.map(|tokens| (tokens, now()));
        }
    }

    /// When it was. None of an answer that goes on, of a whole one, and of one whose time is never billed.
    pub(in crate::gateway) fn finished_at(&self) -> Option<Instant> {
        self.finished_at.map(|(_, at)| at)
    }
}
