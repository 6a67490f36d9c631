//! What keeps a slow server from piling up calls: a bound on those that wait, and a breaker.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ledger::StoreError;

/// Bounds the calls that wait for Redis. After [`FAILURES_MAX`] failures in a row calls fail at once, but for one every
/// [`PROBE_EVERY`] that tries whether Redis is back.
#[derive(Debug)]
pub(super) struct AdmissionBreaker {
    started: Instant,
    waiting_max: usize,
    waiting: AtomicUsize,
    failures: AtomicU32,
    /// Milliseconds after `started` at which the next call may try.
    probe_at: AtomicU64,
    /// It answers, and took no writes when that was last tried: an answer to a read is no sign that it serves.
    refuses_writes: AtomicBool,
}

/// The right to ask Redis once.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a AdmissionBreaker);

impl AdmissionBreaker {
    /// `started`: when the ledger was opened.
    pub(super) fn new(waiting_max: usize, started: Instant) -> AdmissionBreaker {
        AdmissionBreaker {
            started,
            waiting_max,
            waiting: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            probe_at: AtomicU64::new(0),
            refuses_writes: AtomicBool::new(false),
        }
    }

    fn now_ms(&self) -> u64 {
        millis_since(self.started)
    }

    /// # Errors
    /// When too many calls wait, or Redis has failed and it is not yet time to try again.
    pub(super) fn enter(&self) -> Result<Pass<'_>, StoreError> {
        if self.is_open() && !self.may_probe() {
            let why = match self.is_refusing_writes() {
                true => "Redis takes no writes",
                false => "Redis does not answer",
            };
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(StoreError::Unavailable(format!(
                "{} calls wait for Redis already",
                self.waiting_max
            )));
        }
        Ok(Pass(self))
    }

    /// Whether calls fail at once.
    pub(super) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    /// Whether the last call had no answer, or one that says that Redis cannot serve.
    pub(super) fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    /// Whether no answer closes it: as long as that is so, failures count that are not in a row. So it is to be tried soon whether writes are
    /// taken again.
    pub(super) fn is_refusing_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Relaxed)
    }

    /// An answer came, on whatever connection.
    pub(super) fn answered(&self) {
        if !self.is_refusing_writes() && self.forget_failures() {
            log::warn!("Redis answers again");
        }
    }

    /// A write was tried, and is refused as any other would be: no answer closes the breaker until [`AdmissionBreaker::takes_writes`].
    pub(super) fn refuses_writes(&self) {
        self.refuses_writes.store(true, Ordering::Relaxed);
    }

    /// A write was tried, and nothing speaks against others.
    pub(super) fn takes_writes(&self) {
        let refused = self.refuses_writes.swap(false, Ordering::Relaxed);
        if self.forget_failures() {
            match refused {
                true => log::warn!("Redis takes writes again"),
                false => log::warn!("Redis answers again"),
            }
        }
    }

    /// Whether there were so many that calls failed at once.
    fn forget_failures(&self) -> bool {
        self.failures.load(Ordering::Relaxed) != 0 && self.failures.swap(0, Ordering::Relaxed) >= FAILURES_MAX
    }

    /// No answer came, or one that says that Redis cannot serve.
    pub(super) fn failed(&self, why: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1) == FAILURES_MAX {
            self.probe_at
                .store(self.now_ms().saturating_add(millis(PROBE_EVERY)), Ordering::Relaxed);
            log::error!("Redis fails, new paid calls are refused: {why}");
        }
    }

    fn may_probe(&self) -> bool {
        let (now, at) = (self.now_ms(), self.probe_at.load(Ordering::Relaxed));
        let next = now.saturating_add(millis(PROBE_EVERY));
        now >= at
            && self
                .probe_at
                .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl Pass<'_> {
    /// Redis answered.
    pub(super) fn answered(&self) {
        self.0.answered();
    }

    /// Redis did not answer, or said that it cannot serve.
    pub(super) fn failed(&self, why: &str) {
        self.0.failed(why);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Milliseconds since then, by the monotonic clock.
pub(super) fn millis_since(started: Instant) -> u64 {
    millis(crate::clock::monotonic().saturating_duration_since(started))
}

/// A duration in whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Failures in a row after which calls fail at once.
pub(super) const FAILURES_MAX: u32 = 5;
/// How often one call tries whether Redis is back.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::logged::logged;

    #[test]
    fn an_answer_is_told_when_calls_failed_at_once_before_it() {
        let guard = AdmissionBreaker::new(10, crate::clock::monotonic());
        for (failures, told) in [(0, 0), (1, 0), (FAILURES_MAX - 1, 0), (FAILURES_MAX, 1)] {
            (0..failures).for_each(|_| guard.failed("test"));
            let expected = vec!["WARN Redis answers again"; told];
            assert_eq!(logged(|| guard.answered()), expected, "{failures}");
        }
    }

    #[test]
    fn five_failures_open_the_breaker_and_one_answer_closes_it() {
        let guard = AdmissionBreaker::new(10, crate::clock::monotonic());
        for _ in 0..FAILURES_MAX {
            guard.enter().unwrap().failed("test");
        }
        assert!(guard.enter().is_err());
        guard.answered();
        assert!(guard.enter().is_ok());
    }

    /// It answered each second that it answers again, and calls were sent on to it.
    #[test]
    fn a_server_that_takes_no_writes_is_not_back_because_it_answers() {
        let guard = AdmissionBreaker::new(10, crate::clock::monotonic());
        guard.refuses_writes();
        guard.enter().unwrap().answered();
        (0..FAILURES_MAX).for_each(|_| guard.failed("test"));
        assert_eq!(logged(|| guard.answered()), [""; 0]);
        let refused = guard.enter().unwrap_err().to_string();
        assert!(refused.contains("takes no writes"), "{refused}");
        for told in [vec!["WARN Redis takes writes again"], Vec::new()] {
            assert_eq!(logged(|| guard.takes_writes()), told);
            assert!(guard.enter().is_ok());
        }
        (0..FAILURES_MAX).for_each(|_| guard.failed("test"));
        assert_eq!(logged(|| guard.takes_writes()), ["WARN Redis answers again"]);
    }

    #[test]
    fn no_more_calls_wait_than_are_allowed() {
        let guard = AdmissionBreaker::new(2, crate::clock::monotonic());
        let (first, _second) = (guard.enter().unwrap(), guard.enter().unwrap());
        assert!(guard.enter().is_err());
        drop(first);
        assert!(guard.enter().is_ok());
    }

    /// Opened ten seconds ago.
    fn opened_a_while_ago() -> AdmissionBreaker {
        let now = crate::clock::monotonic();
        AdmissionBreaker::new(10, now.checked_sub(Duration::from_secs(10)).unwrap_or(now))
    }

    #[test]
    fn time_is_counted_from_the_opening_on() {
        let guard = opened_a_while_ago();
        assert!(guard.now_ms() >= 10_000);
        assert!(millis_since(guard.started) >= 10_000);
    }

    #[test]
    fn an_open_breaker_lets_one_call_try_when_it_is_time() {
        let guard = opened_a_while_ago();
        guard.failed("test");
        assert_eq!(guard.probe_at.load(Ordering::Relaxed), 0, "one failure opens nothing");
        for _ in 1..FAILURES_MAX {
            guard.failed("test");
        }
        assert!(guard.probe_at.load(Ordering::Relaxed) > 10_000);
        guard.probe_at.store(10_000, Ordering::Relaxed);
        let pass = guard.enter().unwrap();
        assert!(guard.probe_at.load(Ordering::Relaxed) > 10_000, "the next one waits");
        assert!(guard.is_open());
        pass.answered();
        assert!(!guard.is_open());
    }
}
