//! Hard limits of keys: how they are set, and what is asked of them.

use std::sync::{Arc, PoisonError};

use super::Embedded;
use super::commands::failed;
use super::shared::{EmbeddedAccount, KeyEntry};
use super::writer::Committer;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::KeyChange;
use crate::ledger::{KeyRecord, StoreError};
use crate::pure::account::Spent;
use crate::pure::ids::{KeyDigest, KeyId};
use crate::pure::spend::Reset;

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
        self.shared.keep_key(digest, entry);
        AdminReply::Key(record)
    }
}

/// How often a change of a key waits for a moment in which no debit of its account is queued.
const SET_TRIES_MAX: u32 = 1_000;
