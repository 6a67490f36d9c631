//! How the ledger's thread brings what it has committed to the disk, for the case that the machine dies.
//!
//! Until that is done the journal keeps the entries. Where the disk refuses it, calls go on: what was committed outlives the process all the
//! same. It is told, and counts as not settled.

use std::io::ErrorKind;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::place::OpenFile;
use super::writer::Committer;
use crate::ledger::journal::Entry;
use crate::ledger::receipt_files::ReceiptFiles;
use crate::ledger::{StoreError, folder};

/// Entries of which the ledger has committed what they owe, and which stay in the journal until that is on the disk.
#[derive(Default)]
pub(super) struct Unsynced {
    pub(super) entries: Vec<Entry>,
    /// So many of the first of them wait for their receipts alone, which are in the files once so many are.
    awaited: Option<(usize, u64)>,
}

impl Unsynced {
    fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All are in the ledger's file, on the disk: closes those whose receipts are too, and has the files hurry for the others. When too many
    /// wait they are closed all the same.
    fn close_written(&mut self, files: &ReceiptFiles) {
        if let Some((count, taken)) = self.awaited
            && files.has_written(taken)
        {
            self.close(count);
        }
        if self.awaited.is_none() {
            let taken = files.hurry();
            self.awaited = Some((self.len(), taken));
            if files.has_written(taken) {
                self.close(self.len());
            }
        }
        if self.len() >= UNSYNCED_MAX {
            self.close(self.len());
        }
    }

    /// Closes the first of them.
    fn close(&mut self, count: usize) {
        self.awaited = None;
        self.entries
            .drain(..count.min(self.entries.len()))
            .for_each(|mut entry| entry.close());
    }
}

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

    /// Whether the file that is open stands in its place still: what is written to one that was deleted or replaced is lost. It is told
    /// once when it does not, and once when it does again.
    ///
    /// # Errors
    /// When it does not, or that cannot be known: nothing may be taken for written then.
    pub(super) fn in_place(&mut self) -> Result<(), StoreError> {
        let path = self.path.display();
        let (why, remedy) = match OpenFile::at(&self.path) {
            Ok(there) if there == self.file => (None, ""),
            Ok(_) => (Some(format!("{path} was replaced by another file")), PUT_BACK),
            Err(error) => {
                let is_denied = error.kind() == ErrorKind::PermissionDenied;
                let remedy = if is_denied { LET_IN } else { PUT_BACK };
                (Some(folder::why_not_found(&self.path, &error)), remedy)
            }
        };
        let was_moved = std::mem::replace(&mut self.is_moved, why.is_some());
        let Some(why) = why else {
            if was_moved {
                log::warn!("{path} is the ledger's file again");
            }
            return Ok(());
        };
        if !was_moved {
            log::error!("MONEY: {why}; nothing more is written to the ledger: {remedy}");
        }
        Err(StoreError::Unavailable(why))
    }

    /// Looks for the file also while nothing is written: calls are refused from when it is not in its place until it is again.
    pub(super) fn look_for_file(&mut self) {
        self.file_at = crate::clock::monotonic().checked_add(LOOK_EVERY);
        if self.in_place().is_err() && !self.shared.unwritable.load(Ordering::Relaxed) {
            self.commit_or_retry();
        }
    }

    /// Brings what was committed to the disk, and frees its places in the journal. `waits`, for a second at most, for the files of receipts, which
    /// may be on a slow disk; else their entries are looked at again at the next time.
    ///
    /// # Errors
    /// When the disk does not take it: to be tried again.
    pub(super) fn sync(&mut self, waits: bool) -> Result<(), StoreError> {
        let synced = self.in_place().and_then(|()| self.database.sync());
        self.tell_unsynced(synced.is_ok());
        synced?;
        if let Some(files) = self.shared.receipt_files.get() {
            // Until the files have their receipts the journal keeps them: whoever starts next writes them.
            if waits {
                files.flush();
            }
            self.unsynced.close_written(files);
        } else {
            self.unsynced.close(self.unsynced.len());
        }
        if self.unsynced.len() > 0 {
            self.sync_at = crate::clock::monotonic().checked_add(SYNC_EVERY);
        }
        Ok(())
    }

    /// The same, again and again until the disk takes it. Told once when it does not, and once when it does again.
    pub(super) fn sync_or_retry(&mut self) {
        let before = self.disk_refuses();
        match (before, self.sync(false)) {
            // That the file is not in its place is told already.
            (false, Err(_)) if self.is_moved => {}
            (false, Err(error)) => log::error!("MONEY: the ledger's file cannot be brought to the disk: {error}"),
            (true, Ok(())) => log::warn!("the ledger's file can be brought to the disk again"),
            (true, Err(_)) | (false, Ok(())) => {}
        }
        if self.disk_refuses() {
            self.sync_soon();
        }
    }

    /// At the end everything is written back to the file, and SQLite's log is left empty: a copy that is put in the file's place later is
    /// not mixed with it. Where another process reads or writes, the log stays, and is read at the next start.
    pub(super) fn empty_log(&mut self) {
        if self.in_place().is_err() {
            return;
        }
        self.database.wait_for_others(EMPTIED_WITHIN);
        match self.database.empty_log() {
            Ok(true) => {}
            Ok(false) => log::debug!("the log of {} is in use, and stays", self.path.display()),
            Err(error) => log::debug!("the log of {} stays: {error}", self.path.display()),
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

/// What is to be done about a file that is gone or replaced, and about one in a folder that is closed to this process.
const PUT_BACK: &str = "put its file back, or stop the gateway and restore a copy";
const LET_IN: &str =
    "let the user of this process into its folder and those above it again, which owner or mode of one of them forbids";
/// What a machine that dies may lose.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often the ledger's thread looks for its file while it writes nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a ledger that closes waits for others that keep SQLite's log from being emptied.
const EMPTIED_WITHIN: Duration = Duration::from_millis(200);
/// The most places in the journal that wait for files that cannot be written: about a seventh of those that there are.
pub(super) const UNSYNCED_MAX: usize = 40_000;
