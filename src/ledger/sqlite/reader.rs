//! Reads of the embedded ledger's file beside the thread that owns it: a long report holds up no commit and no command.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::{statements, usage};
use crate::ledger::StoreError;
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::pure::time::Day;

/// The file, open for reading. What it reads was committed.
#[derive(Debug)]
pub(in crate::ledger) struct Reader {
    pub(super) connection: Connection,
}

impl Reader {
    /// Opens the file, which is there.
    pub(in crate::ledger) fn open(path: &Path) -> Result<Reader, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        statements::keep(&connection)?;
        Ok(Reader { connection })
    }

    /// The usage that is asked for, seen from `today`.
    pub(in crate::ledger) fn usage(&self, query: &UsageQuery, today: Day) -> Result<Vec<KeyedRow>, StoreError> {
        usage::rows(&self.connection, query, today)
    }
}
