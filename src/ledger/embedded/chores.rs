//! What the ledger's thread does when it is due. Beside the debits it writes and forgets idempotency keys, and forgets what was spent long ago.

use std::time::Duration;

use super::commands::failed;
use super::keys;
use super::writer::{Committer, RETRY_EVERY};
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminReply};
use crate::ledger::idempotency::call::{FreedKey, KeyWrite};
use crate::ledger::sqlite::SpentRow;

impl Committer {
    /// Does what is due by now, the debits first.
    pub(super) fn do_what_is_due(&mut self) {
        let now = monotonic();
        // Whether an outage is over is looked at even when there is nothing to commit.
        if [self.commit_at, self.outage.over_at()]
            .into_iter()
            .flatten()
            .any(|at| at <= now)
        {
            self.commit_at = None;
            self.commit_or_retry();
        }
        if self.keys_at.is_some_and(|at| at <= now) {
            self.keys_at = None;
            if self.write_keys() {
                self.delete_expired_keys();
            }
        }
        if self.spent_at.is_some_and(|at| at <= now) {
            self.forget_spending();
        }
        if self.sync_at.is_some_and(|at| at <= now) {
            self.sync_at = None;
            self.sync_or_retry();
        }
        if self.file_at.is_some_and(|at| at <= now) {
            self.look_for_file();
        }
        self.resolve_doubts_that_are_due();
    }

    /// Writes what waits of idempotency keys. False when that cannot be written: it is tried again.
    pub(super) fn write_keys(&mut self) -> bool {
        let now = monotonic();
        let times = self.known_time.of_keys();
        match keys::write(&self.shared.idempotency, &mut self.database, times) {
            Ok(()) => {
                self.keys_at = self.keys_at.or(now.checked_add(KEYS_EVERY));
                self.keys_wait = false;
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.keys_wait, true) {
                    log::warn!("idempotency keys cannot be written: {error}");
                }
                // The try itself may have taken longer than that.
                self.keys_at = monotonic().checked_add(RETRY_EVERY);
                false
            }
        }
    }

    /// Deletes some of what has expired, and keeps what time it is: now and then for as long as there are keys or events, and else each day. Goes
    /// on in a moment where more has expired.
    pub(super) fn delete_expired_keys(&mut self) {
        let began = monotonic();
        let pause = match self.delete_expired_and_keep_time() {
            Ok(true) => keys_pause(monotonic().saturating_duration_since(began)),
            Ok(false) => KEYS_EVERY,
            Err(error) => {
                log::warn!("idempotency keys that have expired cannot be deleted: {error}");
                KEYS_EVERY
            }
        };
        self.keys_at = monotonic().checked_add(pause);
    }

    /// Whether more has expired.
    fn delete_expired_and_keep_time(&mut self) -> Result<bool, StoreError> {
        let by = self.known_time.of_keys().known;
        let are_keys_left = self.database.delete_expired_keys(by)?;
        let known = self.known_time.to_keep();
        if are_keys_left || self.database.has_events()? || self.known_day != Some(known.day()) {
            self.database.keep_known_time(known)?;
            self.known_day = Some(known.day());
        }
        let has_more = are_keys_left && self.database.has_expired_keys(by)?;
        if has_more {
            self.sync_soon(); // So that the log does not grow with all that is deleted.
        }
        Ok(has_more)
    }

    /// Keys of the process before are free.
    pub(super) fn free_keys(&mut self, calls: &[FreedKey]) -> Result<AdminReply, AdminError> {
        let writes: Vec<KeyWrite<'_>> = calls.iter().map(KeyWrite::Freed).collect();
        let times = self.known_time.of_keys();
        self.database.write_keys(&writes, times).map_err(failed)?;
        Ok(AdminReply::Done)
    }

    /// Forgets some of what was spent in periods that were over long ago. Goes on in a moment, and when all was looked through tomorrow.
    pub(super) fn forget_spending(&mut self) {
        let pause = match self.forget_some_spending() {
            Ok(()) if self.spent_seen.is_some() => SPENT_PAUSE,
            Ok(()) => SPENT_EVERY,
            Err(error) => {
                log::warn!("what was spent long ago cannot be forgotten: {error}");
                SPENT_RETRY
            }
        };
        self.spent_at = monotonic().checked_add(pause);
    }

    fn forget_some_spending(&mut self) -> Result<(), StoreError> {
        let (from, day) = match self.spent_seen.take() {
            Some(seen) => seen,
            None => {
                // Not by the clock alone: one that is far ahead would have what still counts of keys' limits forgotten.
                let today = self.known_time.to_keep().day();
                (SpentRow::default(), self.database.known_day(today)?)
            }
        };
        let last = self.database.forget_spending(&from, day)?;
        self.spent_seen = last.map(|last| (last, day));
        if self.spent_seen.is_some() {
            self.sync_soon(); // So that the log does not grow with all that is deleted.
        }
        Ok(())
    }
}

/// How long the thread is there for others behind a step of deletions that `took` so long, where more has expired.
fn keys_pause(took: Duration) -> Duration {
    KEYS_PAUSE.max(took.saturating_mul(KEYS_PAUSE_STEPS))
}

/// How often idempotency keys are looked through for those that have expired.
const KEYS_EVERY: Duration = Duration::from_secs(60);
/// How long the thread is there for others at least while more of them have.
const KEYS_PAUSE: Duration = Duration::from_millis(100);
/// The same by how long the step before took: a slow disk or long answers leave the thread to the debits for four fifths of the time.
const KEYS_PAUSE_STEPS: u32 = 4;
/// How often what was spent is looked through for periods that were over long ago.
const SPENT_EVERY: Duration = Duration::from_secs(86_400);
/// How long the thread is there for others while it does: a few times as long as it takes for some rows.
const SPENT_PAUSE: Duration = Duration::from_millis(20);
const SPENT_RETRY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_of_deletions_has_a_longer_pause_behind_it() {
        for (took_ms, pause_ms) in [(0, 100), (25, 100), (26, 104), (2_000, 8_000)] {
            let pause = keys_pause(Duration::from_millis(took_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms), "{took_ms}");
        }
    }
}
