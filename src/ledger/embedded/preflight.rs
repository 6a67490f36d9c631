//! Whether the embedded ledger could be opened, tried without opening it.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::Embedded;
use super::load::owned_by_another;
use crate::clock::monotonic;
use crate::ledger::{StoreError, folder, sqlite};

impl Embedded {
    /// Tries what opening the ledger at `path` needs. Makes, changes and keeps nothing; a lock that is found free is free again when this
    /// returns. Blocks while another process owns the ledger, which a command does for a moment, for [`OWNED_MAX`] at most.
    ///
    /// # Errors
    /// As [`Embedded::open`] would, as far as the head of the file tells.
    pub(in crate::ledger) fn preflight(path: &Path) -> Result<(), StoreError> {
        let above = path.parent().unwrap_or(Path::new(""));
        folder::can_be_made(above).map_err(|error| {
            let folder = above.display();
            StoreError::Unavailable(format!("cannot make the folder {folder}: {error}"))
        })?;
        sqlite::check_header(path)?;
        let started = monotonic();
        while is_owned(&path.with_extension("lock"))? {
            if started.elapsed() >= OWNED_MAX {
                return Err(owned_by_another(path));
            }
            std::thread::sleep(OWNED_PAUSE);
        }
        Ok(())
    }
}

fn is_owned(lock: &Path) -> Result<bool, StoreError> {
    match OpenOptions::new().write(true).open(lock) {
        Ok(file) => Ok(file.try_lock().is_err()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::Unavailable(format!(
            "cannot open {}: {error}",
            lock.display()
        ))),
    }
}

/// How long a command may own the ledger: a start that fails says so within a second.
const OWNED_MAX: Duration = Duration::from_millis(600);
const OWNED_PAUSE: Duration = Duration::from_millis(10);
