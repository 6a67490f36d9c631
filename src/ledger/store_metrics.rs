//! What the ledger says of itself, for metrics: its open holds, what it has not written yet, how long it takes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::pure::histogram::{Bounds, Histogram};
use crate::pure::money::Credits;

/// The ledger's state at a moment.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    /// `embedded` or `redis`.
    pub kind: &'static str,
    /// Holds that are open: all of the embedded ledger, or those of this node in Redis.
    pub holds_open: u64,
    /// What they hold.
    pub held: Credits,
    /// Settlements that the store has not acknowledged, or that its disk refuses.
    pub unsettled: u64,
    /// Since when the oldest of them waits.
    pub unsettled_age: Duration,
    /// Accounts with a balance below zero; not known of Redis without asking it.
    pub below_zero: Option<u64>,
    /// How long the store took: a reserve in Redis, a commit of the embedded ledger.
    pub latency: Histogram,
}

/// How long a store takes, counted by whoever asks it.
#[derive(Debug)]
pub(super) struct Times(Mutex<Histogram>);

impl Default for Times {
    fn default() -> Times {
        Times(Mutex::new(Histogram::new(&LATENCY)))
    }
}

impl Times {
    /// The store took so long.
    pub(super) fn observe(&self, took: Duration) {
        self.lock().observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn histogram(&self) -> Histogram {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Histogram> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const US: u64 = 1_000;

/// From a script on loopback to a disk that fails.
const LATENCY: Bounds = [
    50 * US,
    100 * US,
    200 * US,
    400 * US,
    800 * US,
    1_600 * US,
    3_200 * US,
    6_400 * US,
    12_800 * US,
    25_600 * US,
    51_200 * US,
    102_400 * US,
    204_800 * US,
    409_600 * US,
    819_200 * US,
    5_000_000 * US,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_double_from_50_microseconds_and_end_with_5_seconds() {
        let (last, doubled) = LATENCY.split_last().unwrap();
        assert_eq!(*last, 5_000_000_000);
        for (n, bound) in doubled.iter().enumerate() {
            assert_eq!(*bound, 50_000 << n);
        }
    }

    #[test]
    fn each_time_is_counted() {
        let times = Times::default();
        for micros in [10, 100, 5_000] {
            times.observe(Duration::from_micros(micros));
        }
        let histogram = times.histogram();
        assert_eq!((histogram.count(), histogram.sum_nanos()), (3, 5_110_000));
    }
}
