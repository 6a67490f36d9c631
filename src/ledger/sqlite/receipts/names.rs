//! By which row of receipts an answer's own id is found: hashes of the ids, some 20 bytes each.
//!
//! A hash only says where to look: the row's lines decide. Answers' ids come in no order. So the hashes stand in blocks of some
//! [`BLOCK_MAX`], and in order within each: an insert touches a page of the last block, which has few, and not one of all that there are. A
//! search looks into each block. Blocks of days that are too old go. `receipt_names` is what earlier versions wrote, by day: it is read, and
//! deleted with its days. Rows of versions before those have no names.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use sha2::{Digest, Sha256};

use crate::ledger::StoreError;
use crate::pure::ids::AccountId;
use crate::pure::time::Day;

/// Adds what files of earlier versions do not have.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS receipt_names (
            day INTEGER NOT NULL, name INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (day, name, seq)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS receipt_name_blocks (
            block INTEGER PRIMARY KEY, day INTEGER NOT NULL, names INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE IF NOT EXISTS receipt_names_of_blocks (
            block INTEGER NOT NULL, name INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (block, name, seq)
        ) STRICT, WITHOUT ROWID;",
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

/// Notes of a group's rows which names their receipts have: the hash and the row of each, in any order. `day` is the last of their days.
pub(super) fn write(t: &Transaction<'_>, day: Day, names: &mut [(i64, i64)]) -> Result<(), StoreError> {
    if names.is_empty() {
        return Ok(());
    }
    let block = block_for(t, day)?;
    names.sort_unstable();
    let sql = "INSERT INTO receipt_names_of_blocks (block, name, seq) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let mut insert = t.prepare_cached(sql)?;
    for (name, seq) in &*names {
        insert.execute([block, *name, *seq])?;
    }
    let count = i64::try_from(names.len()).unwrap_or(i64::MAX);
    t.prepare_cached("UPDATE receipt_name_blocks SET names = names + ?2 WHERE block = ?1")?
        .execute([block, count])?;
    Ok(())
}

/// The block that a group of this day writes to: the last one, or a new one where that is full or another day's.
fn block_for(t: &Transaction<'_>, day: Day) -> Result<i64, StoreError> {
    let sql = "SELECT block, day, names FROM receipt_name_blocks ORDER BY block DESC LIMIT 1";
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let last: Option<(i64, i64, i64)> = t.prepare_cached(sql)?.query_row([], row).optional()?;
    match last {
        Some((block, of_day, names)) if of_day == day.0 && names < BLOCK_MAX => Ok(block),
        last => {
            let next = last.map_or(1, |(block, _, _)| block.saturating_add(1));
            t.prepare_cached("INSERT INTO receipt_name_blocks (block, day, names) VALUES (?1, ?2, 0)")?
                .execute([next, day.0])?;
            Ok(next)
        }
    }
}

/// The rows that may have a receipt of this name, the newest first.
pub(super) fn rows(connection: &Connection, account: &AccountId, name: &str) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT n.seq AS seq FROM receipt_name_blocks b CROSS JOIN receipt_names_of_blocks n ON n.block = b.block AND n.name = ?1
         UNION ALL
         SELECT n.seq FROM receipt_list_days d CROSS JOIN receipt_names n ON n.day = d.day AND n.name = ?1
         ORDER BY seq DESC LIMIT {ROWS_MAX}"
    ))?;
    let rows = statement.query_map([hash(account, name)], |row| row.get(0))?;
    Ok(rows.collect::<Result<Vec<i64>, rusqlite::Error>>()?)
}

/// Deletes names of days that are too old, or of which no receipts are left: so many at most of each kind.
pub(super) fn delete_old(t: &Transaction<'_>, too_old: i64, most: i64) -> Result<(), StoreError> {
    t.prepare_cached(
        "DELETE FROM receipt_names WHERE (day, name, seq) IN (
             SELECT day, name, seq FROM receipt_names WHERE day < ?1 ORDER BY day LIMIT ?2)",
    )?
    .execute([too_old, most])?;
    // A block of a clock that was ahead stays, and those behind it too, until the clock has come so far.
    let first = t
        .prepare_cached("SELECT block, day FROM receipt_name_blocks ORDER BY block LIMIT 1")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    let Some((block, day)) = first else { return Ok(()) };
    if day >= too_old && !has_no_rows(t, block)? {
        return Ok(());
    }
    let deleted = t
        .prepare_cached(
            "DELETE FROM receipt_names_of_blocks WHERE (block, name, seq) IN (
                 SELECT block, name, seq FROM receipt_names_of_blocks WHERE block = ?1 LIMIT ?2)",
        )?
        .execute([block, most])?;
    if i64::try_from(deleted).unwrap_or(i64::MAX) < most {
        t.prepare_cached("DELETE FROM receipt_name_blocks WHERE block = ?1")?
            .execute([block])?;
    }
    Ok(())
}

/// Whether surely none of a block's rows is left: rows go in order, and one that the block behind it names is gone. Days do not tell it, for
/// a clock that was ahead leaves rows of a late day among those of earlier ones.
fn has_no_rows(t: &Transaction<'_>, block: i64) -> Result<bool, StoreError> {
    let sql = "SELECT n.seq < coalesce((SELECT min(seq) FROM receipt_lists), 9223372036854775807)
         FROM receipt_name_blocks b CROSS JOIN receipt_names_of_blocks n ON n.block = b.block
         WHERE b.block > ?1 ORDER BY b.block LIMIT 1";
    Ok(t.prepare_cached(sql)?
        .query_row([block], |row| row.get(0))
        .optional()?
        .unwrap_or(false))
}

/// How many names a block has, but for those of its last group. With 64 Ki a block has some 400 pages; ten million calls a day are 150
/// blocks.
const BLOCK_MAX: i64 = 65_536;
/// The most rows that are looked through for one name.
const ROWS_MAX: u32 = 64;

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
