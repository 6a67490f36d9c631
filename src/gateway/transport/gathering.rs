//! How much of the answers that wait before they leave may do so: of one, and of all together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How an answer is gathered. Beyond any of the limits it leaves as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherLimits {
    /// What its first bytes wait for.
    pub until: Until,
    /// How long they may do so, from its head.
    pub within: Duration,
    /// The most bytes of it that wait.
    pub bytes_max: usize,
    /// The most bytes that wait of all the transport's answers together.
    pub total_bytes_max: usize,
}

/// What an answer that is gathered waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its last bytes: it leaves whole, with its length. One that has passed a limit leaves with its next bytes.
    End,
    /// That the plugin says so ([`Carried::may_leave`](super::Carried::may_leave)), piece by piece. One that has passed a limit leaves at
    /// once, if only its head has come.
    Event,
}

/// One answer's part of all that is gathered. What it has is given back when it is dropped.
pub(super) struct GatheredShare<'t> {
    all: &'t AtomicUsize,
    bytes: usize,
}

impl<'t> GatheredShare<'t> {
    /// Nothing, of all that `all` counts.
    pub(super) fn of(all: &'t AtomicUsize) -> GatheredShare<'t> {
        GatheredShare { all, bytes: 0 }
    }

    /// Takes so many bytes more; false when that is beyond the limits, and then none.
    pub(super) fn take(&mut self, bytes: usize, limits: &GatherLimits) -> bool {
        let own = self.bytes.saturating_add(bytes);
        if own > limits.bytes_max {
            return false;
        }
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > limits.total_bytes_max {
            self.all.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes = own;
        true
    }

    /// Gives bytes back that wait no longer, as far as they were taken.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.bytes = self.bytes.saturating_sub(bytes);
            self.all.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for GatheredShare<'_> {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GatherLimits = GatherLimits {
        until: Until::End,
        within: Duration::ZERO,
        bytes_max: 10,
        total_bytes_max: 15,
    };

    #[test]
    fn one_answer_has_its_bound_and_all_together_have_theirs() {
        let all = AtomicUsize::new(0);
        let mut first = GatheredShare::of(&all);
        assert!(first.take(4, &LIMITS) && first.take(6, &LIMITS));
        assert!(!first.take(1, &LIMITS));
        let mut second = GatheredShare::of(&all);
        assert!(second.take(5, &LIMITS) && !second.take(1, &LIMITS));
        first.give_back(3);
        assert!(second.take(3, &LIMITS));
        drop(first);
        assert_eq!(all.load(Ordering::Relaxed), 8);
        second.give_back(100);
        assert_eq!(all.load(Ordering::Relaxed), 0, "no more is given back than was taken");
    }
}
