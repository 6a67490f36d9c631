//! A target's passive breaker: it opens after failures in a row, for as long as the upstream asks, or when it reports usage that cannot be
//! to several accounts. When its pause is over, one call at a time finds out whether the target is back, while the others go on passing
//! it over. It counts by the time that passes: a clock that is set back lengthens no pause.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::clock::Clock;
use crate::pure::ids::AccountId;

/// The breaker of one target.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    /// When the latest row of failures began, in milliseconds of [`Clock::passed_ms`].
    failing_since: AtomicI64,
    /// When it failed last, in the same.
    failed_at: AtomicI64,
    /// When the target answered last, in the same. 0 while it has not.
    answered_at: AtomicI64,
    /// Until when the target is passed over, in milliseconds of [`Clock::passed_ms`]. 0 while it is closed.
    open_until: AtomicI64,
    /// Half-open: until when the outcome of the call that probes is waited for.
    probed_until: AtomicI64,
    /// The accounts that got completions which cannot be, and when they did last: fewer than [`ACCOUNTS_DECEIVED`].
    deceived: Mutex<Vec<(AccountId, i64)>>,
    /// Which of the gateway's credentials the target refused last; 0 while it takes them.
    refused_credential: AtomicU64,
}

impl Breaker {
    /// Whether a call may go there now. After a pause the first one that asks may, and its outcome decides for the others.
    pub(crate) fn admits(&self, clock: &Clock) -> bool {
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until == 0 {
            return true;
        }
        let now_ms = clock.passed_ms();
        let probed_until = self.probed_until.load(Ordering::Relaxed);
        if now_ms < open_until || now_ms < probed_until {
            return false;
        }
        let until = now_ms.saturating_add(COOL_DOWN_MS);
        self.probed_until
            .compare_exchange(probed_until, until, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// When its pause ends, in milliseconds of [`Clock::passed_ms`]; 0 when it is closed.
    pub(crate) fn open_until(&self) -> i64 {
        self.open_until.load(Ordering::Relaxed)
    }

    /// Whether the target has answered since this time, in milliseconds of [`Clock::passed_ms`], and is not passed over, nor waited for.
    pub(crate) fn has_answered_since(&self, since_ms: i64) -> bool {
        let answered_at = self.answered_at.load(Ordering::Relaxed);
        self.open_until() == 0 && answered_at != 0 && answered_at >= since_ms
    }

    /// The target answered. That ends no pause, for the answer may be to a call from before it.
    pub(crate) fn succeeded(&self, clock: &Clock) {
        let now_ms = clock.passed_ms().max(1);
        // A store for each answer would make all threads share a line of the cache.
        if self.answered_at.load(Ordering::Relaxed) < now_ms {
            self.answered_at.store(now_ms, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until != 0 && now_ms >= open_until {
            self.open_until.store(0, Ordering::Relaxed);
            self.probed_until.store(0, Ordering::Relaxed);
        }
    }

    /// The target reported a completion to this account that cannot be. Whether that opens the breaker: it does when so many accounts have
    /// seen it within a few minutes, for one account could craft a prompt that provokes it.
    pub(crate) fn implausible(&self, account: &AccountId, clock: &Clock) -> bool {
        let now_ms = clock.passed_ms();
        let mut deceived = self.deceived.lock().unwrap_or_else(PoisonError::into_inner);
        deceived.retain(|(other, at)| other != account && at.saturating_add(DECEIVED_WITHIN_MS) > now_ms);
        deceived.push((account.clone(), now_ms));
        let opens = deceived.len() >= ACCOUNTS_DECEIVED;
        if opens {
            deceived.clear();
            self.open_for(DECEIVED_PAUSE_MS, now_ms);
        }
        opens
    }

    /// Whether the target's last answer refused this credential, which is named by a number other than 0.
    pub(crate) fn refuses_credential(&self, credential: u64) -> bool {
        self.refused_credential.load(Ordering::Relaxed) == credential
    }

    /// Notes what an answer says of a credential; whether that is new. An answer to a call from before a reload that changed it says nothing of
    /// the new one.
    pub(crate) fn note_credential_refused(&self, credential: u64, refused: bool) -> bool {
        // A store for each answer would make all threads share a line of the cache.
        match (self.refuses_credential(credential), refused) {
            (false, true) => self.refused_credential.swap(credential, Ordering::Relaxed) != credential,
            (true, false) => self
                .refused_credential
                .compare_exchange(credential, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok(),
            (true, true) | (false, false) => false,
        }
    }

    /// The target failed; it may have said for how long.
    pub(crate) fn failed(&self, clock: &Clock, retry_after_secs: Option<u64>) {
        let now_ms = clock.passed_ms();
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let last = self.failed_at.swap(now_ms, Ordering::Relaxed);
        if failures == 1 || now_ms.saturating_sub(last) > HEARD_WITHIN_MS {
            self.failing_since.store(now_ms, Ordering::Relaxed);
        }
        // One that asks for no pause has failed as any other.
        let asked = retry_after_secs.filter(|secs| *secs > 0);
        let asked = asked.map(|secs| secs.min(RETRY_AFTER_SECS_MAX).saturating_mul(1000));
        let open = self.open_until.load(Ordering::Relaxed) != 0;
        let pause = match asked {
            Some(millis) => i64::try_from(millis).unwrap_or(0),
            None if open || failures >= FAILURES_IN_A_ROW => COOL_DOWN_MS,
            None => return,
        };
        self.open_for(pause, now_ms);
    }

    /// Opens for so long, or leaves it open for longer.
    fn open_for(&self, pause_ms: i64, now_ms: i64) {
        // Never 0, which is closed.
        let until = now_ms.saturating_add(pause_ms).max(1);
        self.open_until.fetch_max(until, Ordering::Relaxed);
        self.probed_until.store(0, Ordering::Relaxed);
    }
}

/// Whether a provider with these targets is down, as far as its calls tell: it has targets that are passed over, and none of its others has
/// answered since the last of those began to fail, nor within [`HEARD_WITHIN_MS`], for one that has may only have had no call since. Of a
/// target without calls nothing is known: it has no say.
pub(crate) fn is_provider_down<'b>(targets: impl Iterator<Item = &'b Breaker> + Clone, clock: &Clock) -> bool {
    let now_ms = clock.passed_ms();
    // One that asks to be left alone for a moment is busy, and one whose reports are not believed answers.
    let is_failing = |target: &&Breaker| target.failures.load(Ordering::Relaxed) >= FAILURES_IN_A_ROW;
    let failing = targets.clone().filter(is_failing);
    let is_one_open = failing.clone().any(|target| target.open_until() > now_ms);
    let open = failing.filter(|target| target.open_until() != 0);
    let failing_since = open.map(|target| target.failing_since.load(Ordering::Relaxed)).max();
    let heard_ms = now_ms.saturating_sub(HEARD_WITHIN_MS);
    // What came in the same millisecond came before.
    let since_ms = failing_since
        .map_or(heard_ms, |since| since.min(heard_ms))
        .saturating_add(1);
    is_one_open && !targets.clone().any(|target| target.has_answered_since(since_ms))
}

/// Accounts that have to see it.
const ACCOUNTS_DECEIVED: usize = 3;
/// Within how long.
const DECEIVED_WITHIN_MS: i64 = 300_000;
/// For how long the target is passed over then.
const DECEIVED_PAUSE_MS: i64 = 60_000;
/// For how long an answer says that a target works which had no call since.
const HEARD_WITHIN_MS: i64 = 60_000;
const FAILURES_IN_A_ROW: u32 = 5;
const COOL_DOWN_MS: i64 = 10_000;
/// The longest wait that an upstream can ask for: a target is passed over no longer, and no client is told to wait longer.
pub(super) const RETRY_AFTER_SECS_MAX: u64 = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::Timestamp;

    fn clock() -> Clock {
        Clock::manual(Timestamp(1_000_000))
    }

    #[test]
    fn after_a_pause_one_call_at_a_time_finds_out() {
        let (breaker, clock) = (Breaker::default(), clock());
        for _ in 0..FAILURES_IN_A_ROW {
            assert!(breaker.admits(&clock));
            breaker.failed(&clock, None);
        }
        assert!(!breaker.admits(&clock));
        clock.advance(COOL_DOWN_MS);
        assert!(breaker.admits(&clock), "the first finds out");
        assert!(!breaker.admits(&clock), "the others wait for it");
        breaker.failed(&clock, None);
        assert!(!breaker.admits(&clock), "one failure is enough to open it again");
        clock.advance(COOL_DOWN_MS);
        assert!(breaker.admits(&clock));
        clock.advance(COOL_DOWN_MS);
        assert!(breaker.admits(&clock), "a call that never ends does not keep it open");
        breaker.succeeded(&clock);
        assert!(breaker.admits(&clock) && breaker.admits(&clock), "closed");
        breaker.failed(&clock, None);
        assert!(breaker.admits(&clock), "and the count begins anew");
    }

    #[test]
    fn usage_that_cannot_be_opens_it_when_three_accounts_have_seen_it() {
        let account = |name: &str| name.parse::<AccountId>().unwrap();
        let (breaker, clock) = (Breaker::default(), clock());
        for _ in 0..10 {
            assert!(
                !breaker.implausible(&account("a"), &clock),
                "one account is no witness, however often"
            );
        }
        assert!(!breaker.implausible(&account("b"), &clock));
        clock.advance(DECEIVED_WITHIN_MS);
        assert!(!breaker.implausible(&account("c"), &clock), "the others were long ago");
        assert!(!breaker.implausible(&account("a"), &clock) && breaker.admits(&clock));
        assert!(breaker.implausible(&account("b"), &clock));
        assert!(!breaker.admits(&clock));
        breaker.succeeded(&clock);
        clock.advance(DECEIVED_PAUSE_MS - 1);
        assert!(!breaker.admits(&clock));
        clock.advance(1);
        assert!(breaker.admits(&clock));
    }

    /// It was so only once all targets of the catalogue were passed over, those that nobody asked for among them.
    #[test]
    fn a_provider_is_down_when_none_of_its_targets_that_are_asked_answers() {
        let clock = clock();
        let [used, other, unused] = [(); 3].map(|()| Breaker::default());
        let is_down = || is_provider_down([&used, &other, &unused].into_iter(), &clock);
        let fails = |target: &Breaker| (0..FAILURES_IN_A_ROW).for_each(|_| target.failed(&clock, None));
        assert!(!is_down());
        other.succeeded(&clock);
        clock.advance(1_000);
        fails(&used);
        assert!(!is_down(), "the other one has answered a moment ago");
        clock.advance(HEARD_WITHIN_MS);
        assert!(!is_down(), "the pause is over");
        used.failed(&clock, None);
        assert!(is_down(), "the other one was not heard of since");
        other.succeeded(&clock);
        assert!(!is_down());
        for _ in 0..60 {
            clock.advance(COOL_DOWN_MS);
            used.failed(&clock, None);
        }
        assert!(!is_down(), "one model that fails for long is not all of its provider");
        fails(&other);
        assert!(is_down());
        clock.advance(COOL_DOWN_MS);
        other.succeeded(&clock);
        used.failed(&clock, None);
        assert!(!is_down());
    }

    /// It answers, or has said when it will.
    #[test]
    fn a_target_that_is_busy_makes_no_provider_down() {
        let clock = clock();
        let [asked, unused] = [(); 2].map(|()| Breaker::default());
        let is_down = || is_provider_down([&asked, &unused].into_iter(), &clock);
        for _ in 0..FAILURES_IN_A_ROW - 1 {
            asked.failed(&clock, Some(1));
            assert!(!asked.admits(&clock) && !is_down());
            clock.advance(1_000);
        }
        asked.failed(&clock, Some(1));
        assert!(is_down(), "so many in a row are a failure");
        asked.succeeded(&clock);
        for name in ["a", "b", "c"] {
            asked.implausible(&name.parse().unwrap(), &clock);
        }
        assert!(!asked.admits(&clock) && !is_down());
    }

    /// A failure of long ago says nothing of whether the others have answered since.
    #[test]
    fn a_failure_of_long_ago_is_none_of_the_row_that_makes_a_provider_down() {
        let clock = clock();
        let [one, other] = [(); 2].map(|()| Breaker::default());
        one.failed(&clock, None);
        clock.advance(HEARD_WITHIN_MS);
        other.succeeded(&clock);
        clock.advance(2 * HEARD_WITHIN_MS);
        for _ in 1..FAILURES_IN_A_ROW {
            one.failed(&clock, None);
        }
        assert!(!one.admits(&clock));
        assert!(is_provider_down([&one, &other].into_iter(), &clock));
    }

    #[test]
    fn an_answer_to_an_earlier_call_ends_no_pause() {
        let (breaker, clock) = (Breaker::default(), clock());
        breaker.failed(&clock, Some(30));
        clock.advance(5);
        breaker.succeeded(&clock);
        clock.advance(29_994);
        assert!(!breaker.admits(&clock));
        clock.advance(1);
        assert!(breaker.admits(&clock));
    }

    /// Both waits went by the wall clock, which may be set back by hours.
    #[test]
    fn a_clock_that_is_set_back_lengthens_no_pause() {
        let (breaker, clock) = (Breaker::default(), clock());
        breaker.failed(&clock, Some(10));
        clock.set_by(-3_600_000);
        assert!(!breaker.admits(&clock));
        clock.advance(10_000);
        assert!(breaker.admits(&clock), "its pause is over");
        clock.set_by(-3_600_000);
        clock.advance(COOL_DOWN_MS);
        assert!(
            breaker.admits(&clock),
            "nobody waits for the call that found nothing out"
        );
    }
}
