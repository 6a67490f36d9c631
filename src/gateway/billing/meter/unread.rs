//! What the meter of an answer is told once its client has left, and the upstream is read on for what was used.

use super::{Meter, Tap};

impl Meter {
    /// The client has left, and the answer's use is waited for. What a whole one that is gathered used is owed then, once it is known: all of
    /// it has come, or its report behind all of its text.
    pub(in crate::gateway) fn read_on(&mut self) {
        if let Tap::Whole(whole) = &mut self.tap {
            whole.read_on();
        }
    }

    /// As [`Meter::stop_gathering`] where the client has left: nothing is passed on, but a whole answer that has come is owed as if it were.
    pub(in crate::gateway) fn stop_gathering_unread(&mut self) {
        if let Tap::Whole(whole) = &mut self.tap {
            whole.stop_gathering_unread();
        }
    }
}
