//! How long an event is somebody's, once it was claimed.

use crate::pure::time::Timestamp;

/// Until when an event is claimed, in milliseconds that have passed in this process: a clock that is set ahead or back ends no lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) until: i64,
    /// The most that it lasts, from its claim or from a settlement on.
    lasts_ms: i64,
    /// What the clock said at the claim, from which whoever has the event counts, and what had passed by then.
    claimed: (Timestamp, i64),
}

impl Lease {
    pub(super) fn new(claimed: (Timestamp, i64), lasts_ms: i64) -> Lease {
        let (_, passed) = claimed;
        Lease {
            until: passed.saturating_add(lasts_ms),
            lasts_ms,
            claimed,
        }
    }

    /// It ends when the event is due, which is said by the time that was told at the claim, and not later than one that begins now.
    pub(super) fn renew(&mut self, due: Timestamp, passed: i64) {
        let (said, heard) = self.claimed;
        let most = passed.saturating_add(self.lasts_ms);
        self.until = heard.saturating_add(due.since(said)).min(most);
    }
}
