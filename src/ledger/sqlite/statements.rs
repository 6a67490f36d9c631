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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::sqlite::Database;

    #[test]
    fn the_ledgers_file_keeps_its_statements_as_they_are_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("ledger.db")).unwrap();
        let kept = database.connection.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG);
        assert!(kept.unwrap());
    }
}
