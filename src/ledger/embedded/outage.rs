//! A ledger's file that cannot be written, as the log tells it. A disk at its end takes one commit and refuses the next, many times a
//! minute: that is one outage, which has a line when it begins, one when it is over, and an ERROR in between when it goes on for so long
//! that someone must make room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::shared::Shared;

/// For how long nothing may fail before an outage is over.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// From when on an outage is not expected to end by itself, as one does when a log is rotated or a backup is deleted.
const LASTING_AFTER: Duration = Duration::from_secs(60);

/// What has changed, and belongs in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// What could be written before cannot be.
    Begins,
    /// It has been so for a minute, with or without commits in between that succeeded.
    Lasts,
    /// Everything has been written for [`STABLE_AFTER`].
    Over,
}

/// The outage that is under way, if one is.
#[derive(Debug, Default)]
pub(super) struct Outage {
    began: Option<Instant>,
    /// The first success behind the last failure.
    stable_since: Option<Instant>,
    lasts: bool,
}

impl Outage {
    /// A commit has failed.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Change> {
        self.stable_since = None;
        let Some(began) = self.began else {
            self.began = Some(now);
            return Some(Change::Begins);
        };
        if self.lasts || now.saturating_duration_since(began) < LASTING_AFTER {
            return None;
        }
        self.lasts = true;
        Some(Change::Lasts)
    }

    /// A commit has succeeded, or there was nothing to commit.
    pub(super) fn succeeded(&mut self, now: Instant) -> Option<Change> {
        self.began?;
        let since = *self.stable_since.get_or_insert(now);
        if now.saturating_duration_since(since) < STABLE_AFTER {
            return None;
        }
        *self = Outage::default();
        Some(Change::Over)
    }

    /// When it is over if nothing fails until then.
    pub(super) fn over_at(&self) -> Option<Instant> {
        self.stable_since?.checked_add(STABLE_AFTER)
    }
}

/// Without its thread the ledger can write nothing: however the thread ends, new reserves are refused from then on.
pub(super) struct Unwritable(pub(super) Arc<Shared>);

impl Drop for Unwritable {
    fn drop(&mut self) {
        self.0.unwritable.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_takes_one_commit_and_refuses_the_next_is_one_outage() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(began), None);
        assert_eq!(outage.failed(began), Some(Change::Begins));
        for second in (1..60).step_by(2) {
            assert_eq!(outage.succeeded(at(second)), None);
            assert_eq!(outage.failed(at(second)), None);
        }
        assert_eq!(outage.failed(at(60)), Some(Change::Lasts));
        assert_eq!(outage.failed(at(600)), None, "an operator is told once");
        assert_eq!(outage.succeeded(at(601)), None);
        assert_eq!(outage.over_at(), Some(at(611)));
        assert_eq!(outage.succeeded(at(611)), Some(Change::Over));
        assert_eq!(outage.over_at(), None);
        assert_eq!(outage.succeeded(at(612)), None);
    }

    #[test]
    fn the_next_outage_has_lines_of_its_own() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        outage.failed(began);
        outage.succeeded(at(1));
        assert_eq!(outage.succeeded(at(11)), Some(Change::Over));
        assert_eq!(outage.failed(at(12)), Some(Change::Begins));
        assert_eq!(outage.failed(at(71)), None);
        assert_eq!(outage.failed(at(72)), Some(Change::Lasts));
    }
}
