//! What time it is by the ledger, whose clock says when a message is due: what it said with an event that it gave, and what has passed since.

use crate::clock::Clock;
use crate::pure::time::Timestamp;

/// The ledger's time, as far as it is known here.
#[derive(Clone, Debug)]
pub(super) struct LedgerTime {
    clock: Clock,
    said: Timestamp,
    /// When it was said, in milliseconds of [`Clock::passed_ms`].
    heard_ms: i64,
}

impl LedgerTime {
    /// The ledger has just said that it is `said`.
    pub(super) fn new(clock: &Clock, said: Timestamp) -> LedgerTime {
        LedgerTime {
            clock: clock.clone(),
            said,
            heard_ms: clock.passed_ms(),
        }
    }

    /// The ledger's time now.
    pub(super) fn now(&self) -> Timestamp {
        self.said.plus_millis(self.passed_ms().saturating_sub(self.heard_ms))
    }

    /// See [`Clock::passed_ms`].
    pub(super) fn passed_ms(&self) -> i64 {
        self.clock.passed_ms()
    }
}
