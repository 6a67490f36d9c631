//! How the ledger's thread brings what it has committed to the disk, for the case that the machine dies.
//!
//! Until that is done the journal keeps the entries. Where the disk refuses it, calls go on: what was committed outlives the process all the
//! same. It is told, and counts as not settled.

use std::sync::PoisonError;
use std::time::Duration;

use super::writer::Committer;
use crate::ledger::StoreError;
use crate::ledger::journal::Entry;

impl Committer {
    /// What an entry stands for is in the file: it is closed once that is on the disk.
    pub(super) fn is_committed(&mut self, mut entry: Entry) {
        entry.acknowledged();
        self.unsynced.push(entry);
        if self.unsynced_since.is_none() {
            self.unsynced_since = Some(self.shared.clock.now());
        }
        self.sync_soon();
    }

    /// Brings the file to the disk within [`SYNC_EVERY`].
    pub(super) fn sync_soon(&mut self) {
        if self.sync_at.is_none() {
            self.sync_at = crate::clock::monotonic().checked_add(SYNC_EVERY);
        }
    }

    /// Brings what was committed to the disk, and frees its places in the journal.
    ///
    /// # Errors
    /// When the disk does not take it: to be tried again.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.database.sync();
        self.tell_unsynced(synced.is_ok());
        synced?;
        if let Some(files) = self.shared.receipt_files.get()
            && !files.flush()
            && self.unsynced.len() < UNSYNCED_MAX
        {
            // Until the files have their receipts the journal keeps them: whoever starts next writes them.
            self.sync_at = crate::clock::monotonic().checked_add(SYNC_EVERY);
            return Ok(());
        }
        self.unsynced.drain(..).for_each(|mut entry| entry.close());
        Ok(())
    }

    /// The same, again and again until the disk takes it. Told once when it does not, and once when it does again.
    pub(super) fn sync_or_retry(&mut self) {
        let before = self.disk_refuses();
        match (before, self.sync()) {
            (false, Err(error)) => log::error!("MONEY: the ledger's file cannot be brought to the disk: {error}"),
            (true, Ok(())) => log::warn!("the ledger's file can be brought to the disk again"),
            (true, Err(_)) | (false, Ok(())) => {}
        }
        if self.disk_refuses() {
            self.sync_soon();
        }
    }

    /// Whether the disk refused the file when it was last to be brought there.
    fn disk_refuses(&self) -> bool {
        let told = self.shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        told.1.is_some()
    }

    /// For metrics: what the disk refuses.
    fn tell_unsynced(&mut self, is_synced: bool) {
        if is_synced {
            self.unsynced_since = None;
        } else if self.unsynced_since.is_none() {
            self.unsynced_since = Some(self.shared.clock.now());
        }
        let count = if is_synced { 0 } else { self.unsynced.len() };
        let mut told = self.shared.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        *told = (count, self.unsynced_since);
    }
}

/// What a machine that dies may lose.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// The most places in the journal that wait for files that cannot be written: a third of those that there are.
pub(super) const UNSYNCED_MAX: usize = 40_000;
