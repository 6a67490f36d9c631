//! Which numbers each producer has resolved: one row an account and producer.
//!
//! `sequence` is the highest number that was met, `open` those up to it that are not resolved. `born` is null for producers of versions
//! that closed numbers in order, and did not say.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, Transaction, params};

use super::{Database, corrupt};
use crate::ledger::StoreError;
use crate::pure::ids::AccountId;
use crate::pure::numbers::{Birth, Numbers, ProducerId, RULES};
use crate::pure::time::Day;

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    for (table, column, kind) in [
        ("producers", "open", "TEXT NOT NULL DEFAULT ''"),
        ("producers", "born", "INTEGER"),
        ("accounts", "forgotten", "INTEGER"),
    ] {
        let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
        let known: i64 = connection.query_row(sql, [table, column], |row| row.get(0))?;
        if known == 0 {
            connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
        }
    }
    Ok(())
}

/// What each account knows of its producers.
pub(super) fn producers(connection: &Connection) -> Result<HashMap<String, HashMap<ProducerId, Numbers>>, StoreError> {
    let mut statement = connection.prepare("SELECT account, producer, sequence, open FROM producers")?;
    let mut rows = statement.query([])?;
    let mut all: HashMap<String, HashMap<ProducerId, Numbers>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let (producer, high): (i64, i64) = (row.get(1)?, row.get(2)?);
        let open: String = row.get(3)?;
        let high = u64::try_from(high).map_err(corrupt)?;
        let numbers =
            Numbers::read(high, &open).ok_or_else(|| corrupt("a producer's open numbers are not in order"))?;
        all.entry(row.get(0)?)
            .or_default()
            .insert(ProducerId(producer.cast_unsigned()), numbers);
    }
    Ok(all)
}

/// The statement that keeps a producer's numbers.
pub(super) fn prepare<'t>(t: &'t Transaction<'_>) -> Result<CachedStatement<'t>, StoreError> {
    Ok(t.prepare_cached(
        "INSERT INTO producers (account, producer, sequence, day, open, born) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (account, producer) DO UPDATE SET sequence = ?3, day = ?4, open = ?5",
    )?)
}

/// Keeps a producer's numbers.
pub(super) fn write(
    statement: &mut CachedStatement<'_>,
    account: &AccountId,
    producer: ProducerId,
    (born, numbers): &(Birth, Numbers),
    today: Day,
) -> Result<(), StoreError> {
    statement.execute(params![
        account.as_str(),
        producer.0.cast_signed(),
        i64::try_from(numbers.high()).map_err(corrupt)?,
        today.0,
        numbers.open_text(),
        (*born != Birth::default()).then_some(born.0),
    ])?;
    Ok(())
}

impl Database {
    /// The earliest of today, the day of the last debit in the file, and the day on which the file's owner last knew what time it is: what is
    /// forgotten for its age is as old by each. A clock that is ahead at a start would else have what still counts forgotten for good, and
    /// so would a debit of that time.
    pub(in crate::ledger) fn known_day(&self, today: Day) -> Result<Day, StoreError> {
        let last: Option<i64> = self
            .connection
            .query_row("SELECT max(day) FROM producers", [], |row| row.get(0))?;
        let known = self.known_time()?.map_or(today, |known| known.day());
        Ok(last.map_or(today, Day).min(today).min(known))
    }

    /// Forgets the producers that have been silent for long, and says who they were. Nothing that one of them owes may stand in a journal
    /// still: it would be refused for good.
    pub(in crate::ledger) fn forget_producers(
        &mut self,
        today: Day,
    ) -> Result<Vec<(AccountId, ProducerId, Birth)>, StoreError> {
        let mut silent: Vec<(AccountId, ProducerId, Birth)> = Vec::new();
        let mut forgotten: HashMap<String, Option<Birth>> = HashMap::new();
        {
            let mut statement = self.connection.prepare(
                "SELECT account, producer, p.day, born, forgotten FROM producers p JOIN accounts ON id = account",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let day: i64 = row.get(2)?;
                if !(RULES.may_forget)(today.0.saturating_sub(day)) {
                    continue;
                }
                let (account, producer): (String, i64) = (row.get(0)?, row.get(1)?);
                let id: AccountId = account.parse().map_err(corrupt)?;
                let born = Birth(row.get::<_, Option<u32>>(3)?.unwrap_or_default());
                let before = row.get::<_, Option<u32>>(4)?.map(Birth);
                let latest = forgotten.entry(account).or_insert(before);
                *latest = (RULES.forget)(*latest, born);
                silent.push((id, ProducerId(producer.cast_unsigned()), born));
            }
        }
        if silent.is_empty() {
            return Ok(silent);
        }
        self.durably(|t| {
            for (account, latest) in &forgotten {
                t.execute(
                    "UPDATE accounts SET forgotten = ?2 WHERE id = ?1",
                    params![account, latest.map(|birth| birth.0)],
                )?;
            }
            for (account, producer, _) in &silent {
                t.execute(
                    "DELETE FROM producers WHERE account = ?1 AND producer = ?2",
                    params![account.as_str(), producer.0.cast_signed()],
                )?;
            }
            Ok(())
        })?;
        Ok(silent)
    }
}
