//! A key in place of another one, in the embedded ledger: both in one transaction.

use std::sync::{Arc, PoisonError};

use super::shared::KeyEntry;
use super::spending;
use super::writer::Committer;
use crate::ledger::admin::{AdminError, AdminReply, KeyRef};
use crate::ledger::rotation::{Rotation, taken};
use crate::ledger::sqlite::Database;

impl Committer {
    pub(super) fn rotate_key(&mut self, key: &KeyRef, rotation: Rotation) -> Result<AdminReply, AdminError> {
        let (old_digest, KeyEntry { record: old, cell }) = {
            let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
            if keys.contains_key(&rotation.digest) {
                return Err(taken());
            }
            let found = keys.iter().find(|(digest, _)| key.names(digest));
            let (digest, entry) = found.ok_or(AdminError::NoKey)?;
            (*digest, entry.clone())
        };
        cell.record.load().terms.allows_key().map_err(AdminError::Conflict)?;
        let counts_as = {
            let state = cell.state();
            state.tracks(&old.id).then(|| state.counted_as(&old.id).clone())
        };
        let now = self.shared.clock.now();
        let new = rotation.new_key(&old, counts_as, now)?;
        let old = rotation.old_key(&old, now);
        let pair = ((&rotation.digest, &new), (&old_digest, &old));
        let written = self.database.rotate_key(pair.0, pair.1);
        let is_there = |database: &Database| database.has_key(&rotation.digest);
        self.made(written, is_there, ("new key", new.id.as_str()))?;
        spending::track(&cell, &new);
        let entry = |record| KeyEntry {
            record: Arc::new(record),
            cell: Arc::clone(&cell),
        };
        self.shared.keep_key(rotation.digest, entry(new.clone()));
        self.shared.keep_key(old_digest, entry(old));
        Ok(AdminReply::Key(new))
    }
}
