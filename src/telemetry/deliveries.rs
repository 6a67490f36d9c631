//! What became of events for webhooks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Counts of a process, and what the ledger had at the last look.
#[derive(Debug, Default)]
pub struct Deliveries {
    results: [AtomicU64; 3],
    open: AtomicU64,
    dropped: AtomicU64,
    /// How many had been dropped at the first look.
    dropped_before: OnceLock<u64>,
    /// How many were dropped after it, while a webhook was configured.
    dropped_since: AtomicU64,
    /// Since the last look at all of the ledger no webhook was configured for a time.
    was_idle: AtomicBool,
    /// When the oldest open event happened, in milliseconds since 1970; 0 when there is none.
    oldest: AtomicI64,
}

/// What became of one attempt, or of an event for one webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver has it.
    Delivered,
    /// The receiver did not take it; it is sent again.
    Failed,
    /// It is not sent any more: too old, or the receiver wants no more of it.
    GivenUp,
}

impl Deliveries {
    /// One has come to its end.
    pub fn count(&self, delivery: DeliveryOutcome) {
        let [delivered, failed, given_up] = &self.results;
        let count = match delivery {
            DeliveryOutcome::Delivered => delivered,
            DeliveryOutcome::Failed => failed,
            DeliveryOutcome::GivenUp => given_up,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// What the ledger has: open events, when the oldest of them happened (milliseconds since 1970), and how many were dropped. Says how many
    /// more were dropped than at the look before; none at the first, and at the first after [`Deliveries::nobody_is_told`], for no webhook
    /// waited for those.
    pub fn looked(&self, open: u64, oldest: Option<i64>, dropped: u64) -> u64 {
        let known = *self.dropped_before.get_or_init(|| dropped);
        self.waits(open, oldest);
        let before = self.dropped.fetch_max(dropped, Ordering::Relaxed);
        if self.was_idle.swap(false, Ordering::Relaxed) {
            return 0;
        }
        let new = dropped.saturating_sub(before.max(known));
        self.dropped_since.fetch_add(new, Ordering::Relaxed);
        new
    }

    /// The same where not all of the ledger could be asked. What was dropped counts once all of it was: else what was dropped before would count as
    /// new then.
    pub fn looked_in_part(&self, open: u64, oldest: Option<i64>, dropped: u64) -> u64 {
        if self.dropped_before.get().is_some() && !self.was_idle.load(Ordering::Relaxed) {
            return self.looked(open, oldest, dropped);
        }
        self.waits(open, oldest);
        0
    }

    fn waits(&self, open: u64, oldest: Option<i64>) {
        self.open.store(open, Ordering::Relaxed);
        self.oldest.store(oldest.unwrap_or(0), Ordering::Relaxed);
    }

    /// No webhook is configured: what is open is not told to anybody, and its age is no delay. What was dropped stays counted, and what is
    /// dropped until the next look is new to nobody.
    pub fn nobody_is_told(&self) {
        self.was_idle.store(true, Ordering::Relaxed);
        self.waits(0, None);
    }

    /// All of it, at `now` (milliseconds since 1970).
    pub fn figures(&self, now: i64) -> DeliveryFigures {
        let oldest = self.oldest.load(Ordering::Relaxed);
        DeliveryFigures {
            results: self.results.each_ref().map(|count| count.load(Ordering::Relaxed)),
            open: self.open.load(Ordering::Relaxed),
            dropped: self.dropped_before.get().map(|before| {
                let all = self.dropped.load(Ordering::Relaxed).max(*before);
                (all, self.dropped_since.load(Ordering::Relaxed))
            }),
            oldest_age_secs: match oldest {
                0 => 0,
                oldest => now.saturating_sub(oldest).max(0) / 1000,
            },
        }
    }
}

/// What is told of webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFigures {
    /// Delivered, failed, given up.
    pub results: [u64; 3],
    /// Events that are still to be told to somebody.
    pub open: u64,
    /// Events that were dropped in the ledger since there is one, and how many of them since the first look, while a
    /// webhook was configured. None before that.
    pub dropped: Option<(u64, u64)>,
    /// The age of the oldest open event in seconds; 0 when there is none.
    pub oldest_age_secs: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_before_is_not_new_once_all_of_the_ledger_answers() {
        let deliveries = Deliveries::default();
        assert_eq!(deliveries.looked_in_part(2, Some(1_000), 3), 0);
        let in_part = deliveries.figures(9_000);
        assert_eq!((in_part.open, in_part.oldest_age_secs, in_part.dropped), (2, 8, None));
        assert_eq!(deliveries.looked(4, Some(1_000), 10), 0);
        let whole = deliveries.figures(9_000);
        assert_eq!((whole.open, whole.dropped), (4, Some((10, 0))));
        assert_eq!(deliveries.looked_in_part(3, Some(1_000), 11), 1, "one more than before");
        assert_eq!(deliveries.figures(9_000).dropped, Some((11, 1)));
    }

    #[test]
    fn what_is_told_to_nobody_has_no_age_and_what_was_dropped_stays_counted() {
        let deliveries = Deliveries::default();
        deliveries.count(DeliveryOutcome::Failed);
        assert_eq!(deliveries.looked(2, Some(1_000), 3), 0);
        let waiting = DeliveryFigures {
            results: [0, 1, 0],
            open: 2,
            dropped: Some((3, 0)),
            oldest_age_secs: 8,
        };
        assert_eq!(deliveries.figures(9_000), waiting);
        deliveries.nobody_is_told();
        let not_told = DeliveryFigures {
            open: 0,
            oldest_age_secs: 0,
            ..waiting
        };
        assert_eq!(deliveries.figures(7_200_000), not_told);
    }

    /// A reload takes the webhooks out, events grow too old, and another one puts a webhook in.
    #[test]
    fn what_was_dropped_while_no_webhook_waited_for_it_is_not_new() {
        let deliveries = Deliveries::default();
        assert_eq!(deliveries.looked(0, None, 3), 0);
        assert_eq!(deliveries.looked(0, None, 4), 1);
        deliveries.nobody_is_told();
        assert_eq!(deliveries.looked_in_part(2, None, 5), 0, "not all of it yet");
        assert_eq!(deliveries.looked(2, None, 9), 0);
        assert_eq!(deliveries.figures(9_000).dropped, Some((9, 1)));
        assert_eq!(deliveries.looked(2, None, 11), 2, "while one waits");
        assert_eq!(deliveries.figures(9_000).dropped, Some((11, 3)));
    }
}
