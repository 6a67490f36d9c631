//! The terms of accounts in the embedded ledger's file.

use rusqlite::{Connection, params};

use super::{Database, corrupt, events};
use crate::ledger::StoreError;
use crate::ledger::terms::AccountTerms;
use crate::pure::ids::AccountId;

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same, and know no terms.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_table_info('accounts') WHERE name = 'terms'";
    let known: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if known == 0 {
        connection.execute_batch("ALTER TABLE accounts ADD COLUMN terms TEXT NOT NULL DEFAULT '{}'")?;
    }
    Ok(())
}

/// Reads what is in the column.
pub(super) fn read(text: &str) -> Result<AccountTerms, StoreError> {
    serde_json::from_str(text).map_err(corrupt)
}

impl Database {
    /// Changes an account's terms.
    pub(in crate::ledger) fn set_terms(&mut self, account: &AccountId, terms: &AccountTerms) -> Result<(), StoreError> {
        let text = serde_json::to_string(terms).map_err(corrupt)?;
        self.durably(|t| {
            t.execute(
                "UPDATE accounts SET terms = ?2 WHERE id = ?1",
                params![account.as_str(), text],
            )?;
            events::forget_another_low(t, account, terms.low_balance)
        })
    }
}
