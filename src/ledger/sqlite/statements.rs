//! Prepared statements that are used again.

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::ledger::StoreError;

/// Statements stay as they are prepared. A group of debits uses more than the 16 that are kept without a word; and SQLite, which would
/// look at what is bound for a better plan and has no statistics to do so, would prepare some anew each time.
pub(super) fn keep(connection: &Connection) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(KEPT);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// More statements than the program has that are used again.
const KEPT: usize = 64;
