//! The end of a journal, when its process ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Journal;
use super::file::JournalFile;

impl Journal {
    /// Deletes the journal when nothing stands in it, once no more calls come. What does stand in it is resolved at the next start: that is
    /// told, but for debits that the store has acknowledged and may still lose.
    pub fn close(&self) {
        if let Some((left, file)) = self.end() {
            log::warn!("{left} calls stand in {} for the next start", file.path().display());
        }
    }

    /// The same where the process that has the ledger now serves, and follows what stands in this journal: that calls which are over stand
    /// there is the end of an upgrade.
    pub fn close_followed(&self) {
        let Some((left, file)) = self.end() else { return };
        let path = file.path().display();
        match file.has_running() {
            true => {
                log::warn!("{left} calls stand in {path} for the process that has the ledger, and not all are over")
            }
            false => log::info!("{left} calls stand in {path} for the process that has the ledger"),
        }
    }

    /// The calls that are left in its file, when some are.
    fn end(&self) -> Option<(usize, Arc<JournalFile>)> {
        self.closed.store(true, Ordering::Relaxed);
        let file = self.file.load_full()?;
        let left = file.end();
        (left > 0).then_some((left, file))
    }
}
