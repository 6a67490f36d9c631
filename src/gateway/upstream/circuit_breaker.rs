//! A target's passive breaker: it opens after failures in a row, for as long as the upstream asks, or when it reports usage that cannot be
//! to several accounts. When its pause is over, one call at a time finds out whether the target is back, while the others go on passing
//! it over. It counts by the time that passes: a clock that is set back lengthens no pause.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
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
    /// While it is open: when the latest call began that was answered, of those that began since, in milliseconds of [`Clock::passed_ms`].
    answered_began: AtomicI64,
    /// How often it has opened or closed, modulo 2^32.
    changes: AtomicU32,
    /// While it is open: what the calls that began before came to, one of [`NOT_HEARD`], [`ANSWERED`] and [`OUTDATED`].
    earlier_calls: AtomicU8,
    /// The accounts that got completions which cannot be, and when they did last: fewer than [`ACCOUNTS_DECEIVED`].
    deceived: Mutex<Vec<(AccountId, i64)>>,
    /// The credential that it is asked with now; 0 before it is known.
    credential: AtomicU64,
    /// Which of the gateway's credentials the target refused last; 0 while it takes them.
    refused_credential: AtomicU64,
}

/// What a call knows of the breaker that let it pass: its outcome is held against that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    /// How often the breaker had opened or closed.
    changes: u32,
    /// Whether the others wait for what this call finds out, for [`COOL_DOWN_MS`] from its begin.
    is_probe: bool,
    /// When it began, in milliseconds of [`Clock::passed_ms`]. 0 where the breaker was closed.
    began_ms: i64,
}

impl Admitted {
    /// Until when the others wait for it, where it probes.
    fn probes_until(self) -> i64 {
        self.began_ms.saturating_add(COOL_DOWN_MS)
    }
}

impl Breaker {
    /// What a call has that may go there now, none when it may not. After a pause the first one that asks may, and its outcome decides for
    /// the others.
    pub(crate) fn admit(&self, clock: &Clock) -> Option<Admitted> {
        // Before the state is looked at: what opens meanwhile has opened after the call's begin.
        let changes = self.changes.load(Ordering::Relaxed);
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until == 0 {
            return Some(Admitted {
                changes,
                is_probe: false,
                began_ms: 0,
            });
        }
        let now_ms = clock.passed_ms();
        let probed_until = self.probed_until.load(Ordering::Relaxed);
        if now_ms < open_until || now_ms < probed_until {
            return None;
        }
        let probe = Admitted {
            changes,
            is_probe: true,
            began_ms: now_ms,
        };
        self.probed_until
            .compare_exchange(probed_until, probe.probes_until(), Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        Some(probe)
    }

    /// What a call has that goes there whether it may or not, for no other target is left.
    pub(crate) fn admit_anyway(&self, clock: &Clock) -> Admitted {
        Admitted {
            changes: self.changes.load(Ordering::Relaxed),
            is_probe: false,
            began_ms: clock.passed_ms(),
        }
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

    /// The target answered this call. That ends no pause; and where the call began before the breaker opened, it does not close it: how the
    /// target fares with calls that begin now it does not say.
    pub(crate) fn succeeded(&self, admitted: Admitted, clock: &Clock) {
        let open_until = self.open_until.load(Ordering::Relaxed);
        if open_until != 0 && self.is_earlier(admitted) {
            let _known = self
                .earlier_calls
                .compare_exchange(NOT_HEARD, ANSWERED, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        if open_until != 0 {
            self.earlier_calls.store(OUTDATED, Ordering::Relaxed);
            self.answered_began.fetch_max(admitted.began_ms, Ordering::Relaxed);
            // Where a pause has begun meanwhile, the next one finds out behind that.
            self.inconclusive(admitted);
        }
        let now_ms = clock.passed_ms().max(1);
        // A store for each answer would make all threads share a line of the cache.
        if self.answered_at.load(Ordering::Relaxed) < now_ms {
            self.answered_at.store(now_ms, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        // Unless a pause has begun just now.
        let closes = open_until != 0
            && now_ms >= open_until
            && self
                .open_until
                .compare_exchange(open_until, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if closes {
            self.changes.fetch_add(1, Ordering::Relaxed);
            self.probed_until.store(0, Ordering::Relaxed);
        }
    }

    /// What this call came to says nothing of whether the target works: the request was to blame, or the target did not begin to work on it.
    /// If the others wait for it, the next one finds out in its place.
    pub(crate) fn inconclusive(&self, admitted: Admitted) {
        if admitted.is_probe {
            // Unless another call has the place by now.
            let _another =
                self.probed_until
                    .compare_exchange(admitted.probes_until(), 0, Ordering::Relaxed, Ordering::Relaxed);
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

    /// From now on the target is asked with this credential, which is named by a number other than 0.
    pub(crate) fn asks_with(&self, credential: u64) {
        self.credential.store(credential, Ordering::Relaxed);
    }

    /// Notes what an answer says of a credential; whether that is new. An answer to a call from before a reload that changed it says nothing of
    /// the new one.
    pub(crate) fn note_credential_refused(&self, credential: u64, refused: bool) -> bool {
        if credential != self.credential.load(Ordering::Relaxed) {
            return false;
        }
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

    /// The target failed this call; it may have said for how long, in seconds. Where the call began before the breaker last opened, or
    /// before one that was answered since it opened, only a pause that the target asks for counts, and a call that probes keeps its place. As long as the breaker is open by the first opening since, and nothing is known of later calls, it is one more failure of the row, which
    /// lengthens no pause.
    pub(crate) fn failed(&self, admitted: Admitted, clock: &Clock, retry_after_secs: Option<u64>) {
        let now_ms = clock.passed_ms();
        // One that asks for no pause has failed as any other.
        let asked = retry_after_secs.filter(|secs| *secs > 0);
        let asked = asked.map(|secs| secs.min(RETRY_AFTER_SECS_MAX).saturating_mul(1000));
        let asked_ms = asked.map(|millis| i64::try_from(millis).unwrap_or(0));
        let is_open = self.open_until() != 0;
        if self.is_outdated(admitted, is_open) {
            self.inconclusive(admitted);
            match asked_ms {
                Some(pause_ms) => self.pause_for(pause_ms, now_ms),
                None if is_open && self.belongs_to_row(admitted) => {
                    self.count_failure(now_ms);
                }
                None => {}
            }
            return;
        }
        if is_open {
            self.earlier_calls.store(OUTDATED, Ordering::Relaxed);
        }
        let failures = self.count_failure(now_ms);
        let pause_ms = match asked_ms {
            Some(asked_ms) => asked_ms,
            None if is_open || failures >= FAILURES_IN_A_ROW => COOL_DOWN_MS,
            None => return,
        };
        self.open_for(pause_ms, now_ms);
    }

    /// Counts one more failure in a row; how many that makes.
    fn count_failure(&self, now_ms: i64) -> u32 {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        let last = self.failed_at.swap(now_ms, Ordering::Relaxed);
        if before == 0 || now_ms.saturating_sub(last) > HEARD_WITHIN_MS {
            self.failing_since.store(now_ms, Ordering::Relaxed);
        }
        before.saturating_add(1)
    }

    /// Opens for so long, or leaves it open for longer. What is being found out decides nothing any more.
    fn open_for(&self, pause_ms: i64, now_ms: i64) {
        self.pause_for(pause_ms, now_ms);
        self.probed_until.store(0, Ordering::Relaxed);
    }

    /// Opens for so long, or leaves it open for longer.
    fn pause_for(&self, pause_ms: i64, now_ms: i64) {
        // Never 0, which is closed.
        let until = now_ms.saturating_add(pause_ms).max(1);
        if self.open_until.fetch_max(until, Ordering::Relaxed) == 0 {
            self.changes.fetch_add(1, Ordering::Relaxed);
            self.earlier_calls.store(NOT_HEARD, Ordering::Relaxed);
        }
    }

    /// Whether a call began before the breaker last opened or closed.
    fn is_earlier(&self, admitted: Admitted) -> bool {
        admitted.changes != self.changes.load(Ordering::Relaxed)
    }

    /// Whether a call began before the breaker last opened; or while it was open, as it is or was until a moment ago, and before one that was
    /// answered since.
    fn is_outdated(&self, admitted: Admitted, is_open: bool) -> bool {
        let since = self.changes.load(Ordering::Relaxed).wrapping_sub(admitted.changes);
        match (since, is_open) {
            (0, false) => false,
            (0, true) | (1, false) => admitted.began_ms < self.answered_began.load(Ordering::Relaxed),
            _ => true,
        }
    }

    /// Whether a call began before the breaker last opened and after it closed before that, and no call that began since has ended.
    fn belongs_to_row(&self, admitted: Admitted) -> bool {
        self.earlier_calls.load(Ordering::Relaxed) != OUTDATED
            && admitted.changes.wrapping_add(1) == self.changes.load(Ordering::Relaxed)
    }

    /// Whether so many calls in a row have failed that the target does not work, rather than being busy, and none that began before them was
    /// answered since.
    fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_IN_A_ROW
            && self.earlier_calls.load(Ordering::Relaxed) != ANSWERED
    }
}

/// Whether a provider with these targets is down, as far as its calls tell: it has targets that are passed over, and none of its others has
/// answered since the last of those began to fail, nor within [`HEARD_WITHIN_MS`], for one that has may only have had no call since. Of a
/// target without calls nothing is known: it has no say.
pub(crate) fn is_provider_down<'b>(targets: impl Iterator<Item = &'b Breaker> + Clone, clock: &Clock) -> bool {
    let now_ms = clock.passed_ms();
    // One that asks to be left alone for a moment is busy, and one whose reports are not believed answers.
    let failing = targets.clone().filter(|target| target.is_failing());
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

/// Of the calls from before an opening none was answered since.
const NOT_HEARD: u8 = 0;
/// One was: the failures that opened it were not all that the target did.
const ANSWERED: u8 = 1;
/// One that began since the opening was answered or has failed: what earlier ones come to is no news.
const OUTDATED: u8 = 2;
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
mod tests;
