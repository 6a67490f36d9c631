//! Hard limits of keys and end users: what is set, what was spent, and how much of that stays in memory.

use std::sync::{Arc, PoisonError};

use super::Embedded;
use super::commands::failed;
use super::shared::{EmbeddedAccount, KeyEntry, QueuedDebit};
use super::writer::Committer;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::journal::LiveHold;
use crate::ledger::key_settings::KeyChange;
use crate::ledger::sqlite::AccountDebit;
use crate::ledger::{Debit, KeyRecord, StoreError};
use crate::pure::account::{AccountState, Spent};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::money::Credits;
use crate::pure::spend::{Reset, SpendLimit, SpendLimits, SpendPeriod};
use crate::pure::time::Day;

impl Embedded {
    /// What a key has spent, and holds, in the period that is now.
    ///
    /// # Errors
    /// When another process owns the ledger, and does not answer.
    pub(in crate::ledger) async fn key_spent(
        &self,
        cell: &EmbeddedAccount,
        key: &KeyId,
        reset: Reset,
    ) -> Result<Spent, StoreError> {
        if !self.is_ours() {
            let (account, key) = (cell.record.load().id.clone(), key.clone());
            match self.ask_successor(AdminOp::KeySpent { account, key, reset }).await {
                Ok(AdminReply::KeySpent { spent, held }) => return Ok(Spent { spent, held }),
                Ok(_) => return Err(StoreError::Corrupt("an answer of another kind".to_owned())),
                Err(_) if self.is_ours() => {}
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            }
        }
        let now = self.shared.clock.now();
        let mut state = cell.state();
        state.expire(now);
        Ok(state.spent(key, reset.period(now.day())))
    }
}

impl Committer {
    pub(super) fn key_spent(&self, account: &AccountId, key: &KeyId, reset: Reset) -> Result<AdminReply, AdminError> {
        let cell = self.cell(account)?;
        let now = self.shared.clock.now();
        let mut state = cell.state();
        state.expire(now);
        Ok(state.spent(key, reset.period(now.day())).into())
    }

    pub(super) fn set_key(&mut self, key: &KeyRef, change: &KeyChange) -> Result<AdminReply, AdminError> {
        let found = {
            let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
            let mut named = keys.iter().filter(|(digest, _)| key.names(digest));
            named.next().map(|(digest, entry)| (*digest, entry.clone()))
        };
        let (digest, KeyEntry { record, cell }) = found.ok_or(AdminError::NoKey)?;
        let mut record = KeyRecord::clone(&record);
        record.settings = change.applied(&record.settings).map_err(AdminError::Invalid)?;
        // What the key has spent is read from the file, which gets the debits that are queued first; the account stays locked until
        // memory counts as well, so that no debit comes in between.
        for _ in 0..SET_TRIES_MAX {
            self.commit().map_err(failed)?;
            let mut state = cell.state();
            let counts = record.settings.has_limits() && !state.tracks(&record.id);
            let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if counts && queue.iter().any(|queued| Arc::ptr_eq(&queued.cell, &cell)) {
                continue;
            }
            drop(queue);
            let names = (&record.account, &record.id);
            let written = self.database.set_key(&digest, names, &record.settings, counts);
            let before = written.map_err(failed)?;
            if counts {
                state.track(&record.id, &before);
            }
            return Ok(self.keep_key(digest, record, &cell));
        }
        let busy = "the account has debits without a pause; nothing was changed";
        Err(AdminError::Store(busy.to_owned()))
    }

    fn keep_key(&self, digest: KeyDigest, record: KeyRecord, cell: &Arc<EmbeddedAccount>) -> AdminReply {
        let entry = KeyEntry {
            record: Arc::new(record.clone()),
            cell: Arc::clone(cell),
        };
        let mut keys = self.shared.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert(digest, entry);
        AdminReply::Key(record)
    }
}

/// Adds a debit to what its group says that keys and end users have spent.
pub(super) fn add(sum: &mut AccountDebit, queued: &QueuedDebit, debit: &Debit) {
    let mut add = |end_user, period| {
        let spent = sum.spent.entry((debit.key.clone(), end_user, period)).or_default();
        *spent = spent.saturating_add(debit.cost);
    };
    if queued.is_tracked {
        for period in SpendPeriod::all_of(queued.id.time().day()) {
            add(None, period);
        }
    }
    if let Some(end_user) = debit.end_user {
        add(Some(end_user.id), end_user.period(queued.id));
    }
}

/// Lets go of periods that are over where an account has many end users in memory: the file has what was spent.
pub(super) fn bound(written: &[QueuedDebit], today: Day) {
    let with_end_user = |queued: &&QueuedDebit| queued.debit.as_ref().is_some_and(|debit| debit.end_user.is_some());
    if let Some(queued) = written.iter().find(with_end_user) {
        let mut state = queued.cell.state();
        if state.end_users_known() > END_USERS_IN_MEMORY {
            state.forget_spending(Day(today.0.saturating_sub(1)));
        }
    }
}

/// The limits that a call of the process before counts under: it was admitted, and only has to be counted.
pub(super) fn of_predecessor(state: &AccountState, hold: &LiveHold) -> Option<Arc<SpendLimits>> {
    let limit = |reset| SpendLimit {
        amount: Credits::MAX,
        reset,
    };
    let limits = SpendLimits {
        key: hold.key.clone(),
        own: None,
        end_user: hold.end_user.map(|end_user| (end_user.id, limit(end_user.reset))),
    };
    (state.tracks(&hold.key) || hold.end_user.is_some()).then(|| Arc::new(limits))
}

/// How often a change of a key waits for a moment in which no debit of its account is queued.
const SET_TRIES_MAX: u32 = 1_000;
/// From how many end users of an account on periods that are over are not kept in memory: about 20 MB.
const END_USERS_IN_MEMORY: usize = 200_000;
