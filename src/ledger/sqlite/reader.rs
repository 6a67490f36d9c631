//! Reads of the embedded ledger's file beside the thread that owns it: a long report holds up no commit and no command.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

use super::corrupt;
use crate::ledger::{StoreError, UsageRow};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
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
        Ok(Reader { connection })
    }

    /// An account's usage rows from a day on, oldest first.
    pub(in crate::ledger) fn usage(&self, account: &AccountId, from: Day) -> Result<Vec<UsageRow>, StoreError> {
        usage(&self.connection, account, from)
    }
}

pub(super) fn usage(connection: &Connection, account: &AccountId, from: Day) -> Result<Vec<UsageRow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT day, model, requests, prompt, completion, cost FROM usage
         WHERE account = ?1 AND day >= ?2 ORDER BY day, model",
    )?;
    let mut rows = statement.query(params![account.as_str(), from.0])?;
    let mut usage = Vec::new();
    while let Some(row) = rows.next()? {
        let count = |value: i64| u64::try_from(value).map_err(corrupt);
        usage.push(UsageRow {
            day: Day(row.get(0)?),
            model: row.get(1)?,
            requests: count(row.get(2)?)?,
            prompt_tokens: count(row.get(3)?)?,
            completion_tokens: count(row.get(4)?)?,
            cost: Credits::from_pico(row.get(5)?),
        });
    }
    Ok(usage)
}
