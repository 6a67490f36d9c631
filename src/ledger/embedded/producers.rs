//! When producers are forgotten that have been silent for long: once the journals beside the ledger were recovered, and no other process of
//! before lives. A debit of one that is forgotten is refused for good, and may stand in such a journal: after a clock that was set back for a
//! moment, a producer may look silent whose calls have run until now. Whoever opens the ledger for a command forgets nobody.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Embedded;
use super::command::Command;
use super::writer::Committer;
use crate::ledger::StoreError;
use crate::ledger::admin::RecoverReport;
use crate::pure::time::Day;

/// What of that has come.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// The journals were recovered, and nobody was forgotten since.
    is_due: AtomicBool,
    /// All processes before this one have ended.
    is_alone: AtomicBool,
}

impl Embedded {
    /// Keeps what this process has recovered from journals when it began, to be shown. Where nothing of them was refused, producers that have been
    /// silent for long are forgotten, at once or when the processes before this one have ended.
    pub(in crate::ledger) fn recovered(&self, report: RecoverReport) {
        let is_whole = report.refused.is_empty();
        *self.shared.recovered.lock().unwrap_or_else(PoisonError::into_inner) = report;
        self.forgetting.is_due.store(is_whole, Ordering::Relaxed);
        self.forget_when_due();
    }

    /// All processes before this one have ended, as far as journals tell.
    pub(super) fn stands_alone(&self) {
        self.forgetting.is_alone.store(true, Ordering::Relaxed);
        self.forget_when_due();
    }

    fn forget_when_due(&self) {
        let Forgetting { is_due, is_alone } = &self.forgetting;
        if is_alone.load(Ordering::Relaxed) && is_due.swap(false, Ordering::Relaxed) {
            // Where its thread has ended, the next start does it.
            drop(self.tell(Command::ForgetProducers(self.opened)));
        }
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
