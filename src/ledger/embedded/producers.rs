//! When producers are forgotten that have been silent for long: once the journals beside the ledger were recovered, and no other process of
//! before lives. A debit of one that is forgotten is refused for good, and may stand in such a journal: after a clock that was set back for a
//! moment, a producer may look silent whose calls have run until now. Whoever opens the ledger for a command forgets nobody.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use super::writer::Committer;
use crate::ledger::StoreError;
use crate::pure::time::Day;

/// What of that has come.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// The journals were recovered, and nobody was forgotten since.
    is_due: AtomicBool,
    /// All processes before this one have ended.
    is_alone: AtomicBool,
}

impl Forgetting {
    /// The journals were recovered, wholly or not. Whether producers are to be forgotten now.
    pub(super) fn recovered(&self, is_whole: bool) -> bool {
        self.is_due.store(is_whole, Ordering::Relaxed);
        self.is_now()
    }

    /// All processes before this one have ended, as far as journals tell. Whether producers are to be forgotten now.
    pub(super) fn others_ended(&self) -> bool {
        self.is_alone.store(true, Ordering::Relaxed);
        self.is_now()
    }

    fn is_now(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed)
    }
}

impl Committer {
    /// Forgets the producers that have been silent for long on this day, in the file and in memory.
    pub(super) fn forget_producers(&mut self, today: Day) {
        if let Err(error) = self.forget_silent(today) {
            log::warn!("who has been silent for long is not forgotten before the next start: {error}");
        }
    }

    fn forget_silent(&mut self, today: Day) -> Result<(), StoreError> {
        self.commit()?; // Those of whom a debit was recovered are not silent.
        for (account, producer, born) in self.database.forget_producers(today)? {
            let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(cell) = accounts.get(&account) {
                cell.state().forget(producer, born);
            }
        }
        Ok(())
    }
}
