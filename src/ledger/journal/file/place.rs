//! Where a journal's file is: in its place, put aside, or waiting there for another ledger.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::{ASIDE_EXTENSION, JournalFile};
use crate::ledger::folder;

impl JournalFile {
    /// Something in the journal is not believed.
    pub(in crate::ledger::journal) fn keep_aside(&self) {
        self.keep_aside.store(true, Ordering::Release);
    }

    /// The ledger does not have the account or the key of a call in this journal of a process that has died, or the store did not say whether
    /// it has: whatever becomes of the others, it stays where it is, with its prompts.
    pub(in crate::ledger::journal) fn keep_waiting(&self) {
        self.waits.store(true, Ordering::Release);
    }

    /// Puts the files aside under a name that is no journal's, for somebody to look at.
    pub(in crate::ledger::journal) fn put_aside(path: &Path) -> io::Result<PathBuf> {
        let aside = path.with_extension(ASIDE_EXTENSION);
        std::fs::rename(path, &aside)?;
        Ok(aside)
    }

    /// Looks whether the file of slots stands in its place still: what is written to one that was deleted or replaced is lost with this
    /// process.
    ///
    /// # Errors
    /// When it does not, or that cannot be known: what has become of it.
    pub(in crate::ledger::journal) fn look_for_file(&self) -> Result<(), String> {
        let path = self.path();
        let numbers = |about: &Metadata| (about.dev(), about.ino());
        let own = self.slots.file().metadata();
        let own = own.map_err(|error| format!("{} cannot be looked at: {error}", path.display()))?;
        match std::fs::metadata(path) {
            Ok(there) if numbers(&there) == numbers(&own) => Ok(()),
            Ok(_) => Err(format!("{} was replaced by another file", path.display())),
            Err(error) => Err(folder::why_not_found(path, &error)),
        }
    }
}
