//! By which row of receipts an answer's own id is found: hashes of the ids, by day, some 20 bytes each.
//!
//! A hash only says where to look: the row's lines decide. Within a day the ids stand in no order of time, so an insert touches a page of
//! that day; the days that are too old go as one range. Rows that earlier versions wrote have no names.

use rusqlite::{CachedStatement, Connection, Transaction, params};
use sha2::{Digest, Sha256};

use crate::ledger::StoreError;
use crate::pure::ids::AccountId;
use crate::pure::time::Day;

/// Adds what files of earlier versions do not have.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS receipt_names (
            day INTEGER NOT NULL, name INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (day, name, seq)
        ) STRICT, WITHOUT ROWID",
    )?;
    Ok(())
}

/// The hash of an answer's own id, for one account.
pub(super) fn hash(account: &AccountId, name: &str) -> i64 {
    let digest = Sha256::new()
        .chain_update(account.as_str())
        .chain_update([0])
        .chain_update(name)
        .finalize();
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | i64::from(*byte))
}

/// The statement by which a name is noted.
pub(super) fn prepare<'t>(t: &'t Transaction<'_>) -> Result<CachedStatement<'t>, StoreError> {
    Ok(t.prepare_cached("INSERT INTO receipt_names (day, name, seq) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?)
}

/// Notes that the row `seq` of a day has receipts of these names.
pub(super) fn write(insert: &mut CachedStatement<'_>, day: Day, names: &[i64], seq: i64) -> Result<(), StoreError> {
    for name in names {
        insert.execute(params![day.0, name, seq])?;
    }
    Ok(())
}

/// The rows that may have a receipt of this name, the newest first.
pub(super) fn rows(connection: &Connection, account: &AccountId, name: &str) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT n.seq FROM receipt_list_days d CROSS JOIN receipt_names n ON n.day = d.day AND n.name = ?1
         ORDER BY n.seq DESC LIMIT {ROWS_MAX}"
    ))?;
    let rows = statement.query_map([hash(account, name)], |row| row.get(0))?;
    Ok(rows.collect::<Result<Vec<i64>, rusqlite::Error>>()?)
}

/// Deletes names of days that are too old, or of which no receipts are left: at most some more than a group writes.
pub(super) fn delete_old(t: &Transaction<'_>, too_old: i64, rows_max: i64) -> Result<(), StoreError> {
    // A day of which the oldest row is left is kept whole.
    t.prepare_cached(
        "DELETE FROM receipt_names WHERE (day, name, seq) IN (
             SELECT day, name, seq FROM receipt_names
             WHERE day < max(?1, coalesce((SELECT day FROM receipt_lists ORDER BY seq LIMIT 1), ?1)) ORDER BY day LIMIT ?2)",
    )?
    .execute([too_old, rows_max.saturating_mul(NAMES_OF_A_ROW)])?;
    Ok(())
}

/// The most rows that are looked through for one name.
const ROWS_MAX: u32 = 64;
/// How many names are deleted for each row: a row has 256 receipts at most, and most have one.
const NAMES_OF_A_ROW: i64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Files have these hashes: another one would find no receipt by the name that was noted before.
    #[test]
    fn a_name_has_the_hash_that_files_have() {
        let [acme, other] = ["acme", "other"].map(|account| account.parse::<AccountId>().unwrap());
        assert_eq!(hash(&acme, "chatcmpl-1"), 5_505_283_491_843_170_844);
        assert_ne!(hash(&other, "chatcmpl-1"), hash(&acme, "chatcmpl-1"));
    }
}
