//! A target's passive breaker: it opens after failures in a row, for as long as the upstream asks, or when it reports usage that cannot be
//! to several accounts. When its pause is over, one call at a time finds out whether the target is back, while the others go on passing
//! it over.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

/// The breaker of one target.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    /// Until when the target is passed over, in milliseconds since 1970. 0 while it is closed.
    open_until: AtomicI64,
    /// Until when the outcome of the call that finds out is waited for.
    probed_until: AtomicI64,
    /// The accounts that got completions which cannot be, and when they did last: fewer than [`ACCOUNTS_DECEIVED`].
    deceived: Mutex<Vec<(AccountId, Timestamp)>>,
}

impl Breaker {
    /// Whether a call may go there now. After a pause the first one that asks may, and its outcome decides for the others.
    pub(crate) fn admits(&self, now: impl FnOnce() -> Timestamp) -> bool {
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until == 0 {
            return true;
        }
        let now = now();
        let probed_until = self.probed_until.load(Ordering::Relaxed);
        if now.0 < open_until || now.0 < probed_until {
            return false;
        }
        let until = now.plus_millis(COOL_DOWN_MS).0;
        self.probed_until
            .compare_exchange(probed_until, until, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// When its pause ends; in the past when it is closed.
    pub(crate) fn open_until(&self) -> i64 {
        self.open_until.load(Ordering::Relaxed)
    }

    /// The target answered. That ends no pause, for the answer may be to a call from before it.
    pub(crate) fn succeeded(&self, now: impl FnOnce() -> Timestamp) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until != 0 && now().0 >= open_until {
            self.open_until.store(0, Ordering::Relaxed);
            self.probed_until.store(0, Ordering::Relaxed);
        }
    }

    /// The target reported a completion to this account that cannot be. Whether that opens the breaker: it does when so many accounts have
    /// seen it within a few minutes, for one account could craft a prompt that provokes it.
    pub(crate) fn implausible(&self, account: &AccountId, now: Timestamp) -> bool {
        let mut deceived = self.deceived.lock().unwrap_or_else(PoisonError::into_inner);
        deceived.retain(|(other, at)| other != account && at.plus_millis(DECEIVED_WITHIN_MS) > now);
        deceived.push((account.clone(), now));
        let opens = deceived.len() >= ACCOUNTS_DECEIVED;
        if opens {
            deceived.clear();
            self.open_until
                .fetch_max(now.plus_millis(DECEIVED_PAUSE_MS).0, Ordering::Relaxed);
            self.probed_until.store(0, Ordering::Relaxed);
        }
        opens
    }

    /// The target failed; it may have said for how long.
    pub(crate) fn failed(&self, now: Timestamp, retry_after_secs: Option<u64>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let asked = retry_after_secs.map(|secs| secs.min(RETRY_AFTER_SECS_MAX).saturating_mul(1000));
        let open = self.open_until.load(Ordering::Relaxed) != 0;
        let pause = match asked {
            Some(millis) => i64::try_from(millis).unwrap_or(0),
            None if open || failures >= FAILURES_IN_A_ROW => COOL_DOWN_MS,
            None => return,
        };
        self.open_until.fetch_max(now.plus_millis(pause).0, Ordering::Relaxed);
        self.probed_until.store(0, Ordering::Relaxed);
    }
}

/// Why a breaker opens whose target reports completions that cannot be.
pub(crate) const IMPLAUSIBLE_USAGE: &str = "implausible_usage";
/// Accounts that have to see it.
const ACCOUNTS_DECEIVED: usize = 3;
/// Within how long.
const DECEIVED_WITHIN_MS: i64 = 300_000;
/// For how long the target is passed over then.
const DECEIVED_PAUSE_MS: i64 = 60_000;
const FAILURES_IN_A_ROW: u32 = 5;
const COOL_DOWN_MS: i64 = 10_000;
const RETRY_AFTER_SECS_MAX: u64 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_pause_one_call_at_a_time_finds_out() {
        let breaker = Breaker::default();
        let mut now = Timestamp(1_000_000);
        for _ in 0..FAILURES_IN_A_ROW {
            assert!(breaker.admits(|| now));
            breaker.failed(now, None);
        }
        assert!(!breaker.admits(|| now));
        now = now.plus_millis(COOL_DOWN_MS);
        assert!(breaker.admits(|| now), "the first finds out");
        assert!(!breaker.admits(|| now), "the others wait for it");
        breaker.failed(now, None);
        assert!(!breaker.admits(|| now), "one failure is enough to open it again");
        now = now.plus_millis(COOL_DOWN_MS);
        assert!(breaker.admits(|| now));
        now = now.plus_millis(COOL_DOWN_MS);
        assert!(breaker.admits(|| now), "a call that never ends does not keep it open");
        breaker.succeeded(|| now);
        assert!(breaker.admits(|| now) && breaker.admits(|| now), "closed");
        breaker.failed(now, None);
        assert!(breaker.admits(|| now), "and the count begins anew");
    }

    #[test]
    fn usage_that_cannot_be_opens_it_when_three_accounts_have_seen_it() {
        let account = |name: &str| name.parse::<AccountId>().unwrap();
        let breaker = Breaker::default();
        let now = Timestamp(1_000_000);
        for _ in 0..10 {
            assert!(
                !breaker.implausible(&account("a"), now),
                "one account is no witness, however often"
            );
        }
        assert!(!breaker.implausible(&account("b"), now));
        let later = now.plus_millis(DECEIVED_WITHIN_MS);
        assert!(!breaker.implausible(&account("c"), later), "the others were long ago");
        assert!(!breaker.implausible(&account("a"), later) && breaker.admits(|| later));
        assert!(breaker.implausible(&account("b"), later));
        assert!(!breaker.admits(|| later));
        breaker.succeeded(|| later);
        assert!(!breaker.admits(|| later.plus_millis(DECEIVED_PAUSE_MS - 1)));
        assert!(breaker.admits(|| later.plus_millis(DECEIVED_PAUSE_MS)));
    }

    #[test]
    fn an_answer_to_an_earlier_call_ends_no_pause() {
        let breaker = Breaker::default();
        let now = Timestamp(1_000_000);
        breaker.failed(now, Some(30));
        breaker.succeeded(|| now.plus_millis(5));
        assert!(!breaker.admits(|| now.plus_millis(29_999)));
        assert!(breaker.admits(|| now.plus_millis(30_000)));
    }
}
