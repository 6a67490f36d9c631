//! Journals of other processes: that of one that has died is taken over, that of one that lives is looked into.
//!
//! The slots of a dead process are read through before they are mapped: what the disk cannot read is an error then, and ends the process
//! (SIGBUS) when it is met in a mapping. Its prompts are read from their file ([`JournalFile::prompt`]).

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::prompts::BLOCK_BYTES;
use super::{HEADER_BYTES, JournalFile, MAGIC, Origin, PROMPTS_EXTENSION, open};
use crate::ledger::folder::is_out_of_files;
use crate::ledger::journal::slot::SLOT_BYTES;

impl JournalFile {
    /// Takes over the journal of a process that has died. None when its owner lives, or another process was faster. Without prompts where
    /// these are not there.
    ///
    /// # Errors
    /// When it cannot be read, which may pass. What cannot be a journal is an error of the kind `InvalidData`.
    pub(in crate::ledger::journal) fn adopt(path: &Path) -> io::Result<Option<JournalFile>> {
        let slots_file = match open(path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut locked = slots_file.try_lock();
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            // It may be one who only looks, for a moment.
            std::thread::sleep(LOOKED_AT);
            locked = slots_file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !path.exists() {
            return Ok(None); // Resolved and deleted by another process between the opening and the lock.
        }
        let mut found = [0u8; HEADER_BYTES];
        slots_file
            .read_exact_at(&mut found, 0)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => invalid("it is shorter than a journal's header"),
                // The disk may read it the next time.
                _ => error,
            })?;
        if found.get(..MAGIC.len()) != Some(MAGIC.as_slice()) {
            return Err(invalid("it does not begin as a journal of this version"));
        }
        let prompts_file = match open(&path.with_extension(PROMPTS_EXTENSION), false) {
            // They are there, and will be had.
            Err(error) if is_out_of_files(&error) => return Err(error),
            opened => opened.ok(),
        };
        let file = JournalFile::over(path.to_owned(), slots_file, prompts_file, Origin::Adopted);
        file.slots.read_through()?;
        file.map_what_is_there()?;
        Ok(Some(file))
    }

    /// Looks into the journal of a process that lives.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(in crate::ledger::journal) fn peek(path: &Path) -> io::Result<JournalFile> {
        let file = JournalFile::over(path.to_owned(), open(path, false)?, None, Origin::Own);
        // What a process that lives has written is in memory mostly: its journal, which is read often, is not read twice.
        if file.slots.file().try_lock_shared().is_ok() {
            file.slots.file().unlock()?;
            file.slots.read_through()?;
        }
        file.map_what_is_there()?;
        Ok(file)
    }

    fn map_what_is_there(&self) -> io::Result<()> {
        self.slots.map_what_is_there(SLOT_BYTES)?;
        self.prompts
            .as_ref()
            .map_or(Ok(()), |prompts| prompts.map_what_is_there(BLOCK_BYTES))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// For longer than this nobody has a journal locked who only looks whether somebody has it.
const LOOKED_AT: Duration = Duration::from_millis(5);
