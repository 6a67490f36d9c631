//! Receipts in the ledger's file: one row for those of an account and a day in a group, written in the transaction of their debits.
//!
//! A row's `list` has a line for each receipt: when its debit was taken, a space, and [`Billed::to_compact`]. A row costs as much as the
//! lines of several receipts, and an index over their ids as much again, so a receipt is found by its account and the time in its id:
//! `at` is when the last of a row was taken, `oldest` when the oldest of its calls began. An answer's own id says no time: `names` finds it.
//!
//! Versions that write none may open the file in between, so the file says from which day on receipts are complete: with each group its name
//! and the number of all calls in the usage rows are noted. Where the last group has another name at the next start, somebody else wrote it;
//! and where the number is another too, without receipts, and days up to then are not held against them. Only then are the rows added up.

mod bytes;
mod names;
mod place;
mod read;

use std::collections::BTreeMap;
use std::fmt::Write;

use rusqlite::{CachedStatement, Connection, Row, Transaction, params};

use super::receipt_bounds::ReceiptBounds;
use super::{Database, GROUP, corrupt};
use crate::ledger::StoreError;
use crate::pure::ids::AccountId;
use crate::pure::receipt::{Billed, Receipt};
use crate::pure::time::{Day, Timestamp};

/// Adds what files of earlier versions do not have. Those versions do not look at it.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(SCHEMA)?;
    place::complete_schema(connection)?;
    names::complete_schema(connection)
}

impl Database {
    /// Begins to keep receipts within these bounds: looks whether the file was written without, and deletes some that are too old. What is too
    /// old was so when the file's owner last knew what time it is: the last debit may be of a clock that was ahead.
    pub(in crate::ledger) fn keep_receipts(&mut self, bounds: ReceiptBounds, today: Day) -> Result<(), StoreError> {
        self.receipt_bounds = bounds;
        let days = bounds.days;
        if self.receipt_bounds_before()? != Some(bounds) {
            self.set_setting(KEPT_DAYS, &days.to_string())?;
            self.set_setting(KEPT_BYTES, &bounds.bytes_max.to_string())?;
        }
        if days == 0 {
            // From now on the days are not complete, until the first one after it is switched on again.
            let forget = "DELETE FROM settings WHERE name IN (?1, ?2, ?3)";
            self.connection.execute(forget, [COMPLETE_FROM, NOTED, NOTED_GROUP])?;
            return Ok(());
        }
        let known_today = self.known_time()?.map_or(today, |known| known.day().min(today));
        let (noted, noted_group, group) = (self.setting(NOTED)?, self.setting(NOTED_GROUP)?, self.setting(GROUP)?);
        let transaction = self.connection.transaction()?;
        if noted.is_none() || noted_group.is_none() || noted_group != group {
            let sql = "SELECT coalesce(sum(requests), 0), max(day) FROM usage";
            let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?));
            let (requests, last) = transaction.query_row(sql, [], row)?;
            if noted.as_deref() != Some(requests.to_string().as_str()) {
                // Of a new file every day is complete.
                let from = last.map_or(i64::MIN, |last| last.max(today.0).saturating_add(1));
                put(&transaction, COMPLETE_FROM, from)?;
                put(&transaction, NOTED, requests)?;
            }
            if let Some(group) = group {
                put(&transaction, NOTED_GROUP, group)?;
            }
        }
        bytes::count_anew(&transaction)?;
        let most = [AT_START, AT_START.saturating_mul(NAMES_OF_A_ROW)];
        delete_old(&transaction, bounds, known_today, most)?;
        transaction.commit()?;
        Ok(())
    }

    /// Within which bounds the file's last gateway kept receipts. None before the first.
    pub(in crate::ledger) fn receipt_bounds_before(&self) -> Result<Option<ReceiptBounds>, StoreError> {
        let Some(days) = self.setting(KEPT_DAYS)? else {
            return Ok(None);
        };
        let mut bounds = ReceiptBounds::days(days.parse().map_err(corrupt)?);
        if let Some(bytes) = self.setting(KEPT_BYTES)? {
            bounds.bytes_max = bytes.parse().map_err(corrupt)?;
        }
        Ok(Some(bounds))
    }

    /// Days for which receipts are kept; 0 when none are written.
    pub(in crate::ledger) fn receipt_days(&self) -> u32 {
        self.receipt_bounds.days
    }
}

/// Writes the receipts of a group, and deletes more rows than that of those that are too old on the day that is known to be, or too much.
pub(super) fn write(
    t: &Transaction<'_>,
    receipts: &[Receipt],
    bounds: ReceiptBounds,
    known_today: Day,
) -> Result<(), StoreError> {
    if bounds.days == 0 || receipts.is_empty() {
        return Ok(());
    }
    let mut lists: BTreeMap<(&AccountId, Day), List> = BTreeMap::new();
    let mut rows = Rows::prepare(t)?;
    for Receipt { resolved, billed } in receipts {
        let list = lists.entry((&billed.account, resolved.day())).or_default();
        list.add(*resolved, billed)?;
        if list.count == LINES_MAX {
            rows.insert(&billed.account, resolved.day(), std::mem::take(list))?;
        }
    }
    for ((account, day), list) in lists {
        if list.count > 0 {
            rows.insert(account, day, list)?;
        }
    }
    let names = i64::try_from(rows.names.len()).unwrap_or(i64::MAX);
    let rows = rows.note()?;
    let count = i64::try_from(receipts.len()).unwrap_or(i64::MAX);
    t.prepare_cached("UPDATE settings SET value = CAST(value AS INTEGER) + ?2 WHERE name = ?1")?
        .execute(params![NOTED, count])?;
    let most = [rows, rows.saturating_mul(NAMES_OF_A_ROW).max(names)].map(|count| count.saturating_mul(2));
    delete_old(t, bounds, known_today, most)
}

/// Notes the name of a group that was written, and where receipts are kept that it was with its receipts: in one statement, for each group
/// has it.
pub(super) fn note_group(
    t: &Transaction<'_>,
    (setting, name): (&str, &str),
    bounds: ReceiptBounds,
) -> Result<(), StoreError> {
    let insert = match bounds.days {
        0 => {
            "INSERT INTO settings (name, value) VALUES (?1, ?3) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        }
        _ => {
            "INSERT INTO settings (name, value) VALUES (?1, ?3), (?2, ?3)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        }
    };
    t.prepare_cached(insert)?.execute([setting, NOTED_GROUP, name])?;
    Ok(())
}

/// A row in the making.
#[derive(Default)]
struct List {
    text: String,
    count: u32,
    at: i64,
    oldest: i64,
    /// Hashes of the answers' own ids.
    names: Vec<i64>,
}

impl List {
    fn add(&mut self, resolved: Timestamp, billed: &Billed) -> Result<(), StoreError> {
        let began = billed.id.time().0;
        (self.at, self.oldest) = match self.count {
            0 => (resolved.0, began),
            _ => (self.at.max(resolved.0), self.oldest.min(began)),
        };
        self.count = self.count.saturating_add(1);
        let name = billed.call.upstream_id.as_deref();
        self.names.extend(name.map(|name| names::hash(&billed.account, name)));
        let compact = billed.to_compact().map_err(corrupt)?;
        write!(self.text, "{} ", resolved.0).map_err(corrupt)?;
        self.text.push_str(&compact);
        self.text.push('\n');
        Ok(())
    }
}

/// The rows of a group: what goes with each, and what is noted once of all.
struct Rows<'t> {
    t: &'t Transaction<'t>,
    list: CachedStatement<'t>,
    /// What finds each by its answer's own id: the id's hash and the row.
    names: Vec<(i64, i64)>,
    /// The first row of each day.
    days: BTreeMap<Day, i64>,
    /// The first and the last row.
    ends: Option<(i64, i64)>,
    count: i64,
    bytes: usize,
}

impl<'t> Rows<'t> {
    fn prepare(t: &'t Transaction<'t>) -> Result<Rows<'t>, StoreError> {
        let sql = "INSERT INTO receipt_lists (account, day, at, oldest, list) VALUES (?1, ?2, ?3, ?4, ?5)";
        Ok(Rows {
            t,
            list: t.prepare_cached(sql)?,
            names: Vec::new(),
            days: BTreeMap::new(),
            ends: None,
            count: 0,
            bytes: 0,
        })
    }

    fn insert(&mut self, account: &AccountId, day: Day, list: List) -> Result<(), StoreError> {
        self.list
            .execute(params![account.as_str(), day.0, list.at, list.oldest, list.text])?;
        let seq = self.t.last_insert_rowid();
        self.days.entry(day).or_insert(seq);
        let first = self.ends.map_or(seq, |(first, _)| first);
        self.ends = Some((first, seq));
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(list.text.len());
        self.names.extend(list.names.iter().map(|name| (*name, seq)));
        Ok(())
    }

    /// Notes by which names receipts are found, where days begin and how many bytes there are. How many rows were written.
    fn note(mut self) -> Result<i64, StoreError> {
        if let Some((day, _)) = self.days.last_key_value() {
            names::write(self.t, *day, &mut self.names)?;
        }
        let sql = "INSERT INTO receipt_list_days (day, first) VALUES (?1, ?2) ON CONFLICT (day) DO NOTHING";
        for (day, first) in self.days {
            self.t.prepare_cached(sql)?.execute([day.0, first])?;
        }
        if let Some(ends) = self.ends {
            bytes::added(self.t, ends, self.bytes)?;
        }
        Ok(self.count)
    }
}

/// At most so many rows, and names of rows.
fn delete_old(
    t: &Transaction<'_>,
    bounds: ReceiptBounds,
    known_today: Day,
    [rows_max, names_max]: [i64; 2],
) -> Result<(), StoreError> {
    let mut delete = t.prepare_cached(
        // Those before the first of the days that are kept. Where a clock was ahead, what came then stays, and what follows too, until it
        // has come so far.
        "DELETE FROM receipt_lists WHERE seq IN (SELECT seq FROM receipt_lists WHERE seq <
             (SELECT coalesce(min(first), 9223372036854775807) FROM receipt_list_days WHERE day >= ?1) ORDER BY seq LIMIT ?2)
         RETURNING day, octet_length(list)",
    )?;
    let too_old = known_today.0.saturating_sub(i64::from(bounds.days));
    let mut rows = delete.query([too_old, rows_max])?;
    let (mut last, mut dropped) = (None, 0_i64);
    while let Some(row) = rows.next()? {
        last = last.max(Some(row.get::<_, i64>(0)?));
        dropped = dropped.saturating_add(row.get::<_, i64>(1)?);
    }
    bytes::dropped(t, dropped)?;
    last = last.max(bytes::keep_within(t, bounds.bytes_max)?);
    names::delete_old(t, too_old, names_max)?;
    if let Some(last) = last {
        // A clock that was ahead has days deleted that are looked at when it is right again.
        t.prepare_cached("UPDATE settings SET value = max(CAST(value AS INTEGER), ?2) WHERE name = ?1")?
            .execute(params![COMPLETE_FROM, last.saturating_add(1)])?;
    }
    Ok(())
}

fn put(t: &Transaction<'_>, name: &str, value: impl ToString) -> Result<(), StoreError> {
    t.prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")?
        .execute(params![name, value.to_string()])?;
    Ok(())
}

/// The setting that says from which day on each debit has its receipt.
const COMPLETE_FROM: &str = "receipt lists from";
/// The setting that says for how many days receipts are kept.
const KEPT_DAYS: &str = "receipts kept";
/// The setting that says how many bytes of them are kept.
const KEPT_BYTES: &str = "receipts kept bytes";
/// The setting with the number of calls in the usage rows after the last group with receipts.
const NOTED: &str = "receipt lists noted";
/// The setting with the name of the last group that was written with receipts.
const NOTED_GROUP: &str = "receipt lists group";
/// How many rows of too long ago a start deletes.
const AT_START: i64 = 1_000;
/// How many names a start deletes for each row, and a group at least: most rows have one.
const NAMES_OF_A_ROW: i64 = 64;
/// How many receipts a row has at most: some 100 KB, so that one is read without the others of a busy second.
const LINES_MAX: u32 = 256;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS receipt_lists (
    seq INTEGER PRIMARY KEY, account TEXT NOT NULL, day INTEGER NOT NULL, at INTEGER NOT NULL, oldest INTEGER NOT NULL, list TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS receipt_list_days (day INTEGER PRIMARY KEY, first INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS receipt_lists_of_account ON receipt_lists (account, at, oldest);
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::rig::request_at;
    use crate::pure::ids::KeyId;
    use crate::pure::money::Credits;
    use crate::pure::numbers::{CallNumber, ProducerId};
    use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

    /// By these two the one receipt is found that a request's id names.
    #[test]
    fn a_row_says_when_its_last_call_was_billed_and_its_first_began() {
        let (account, key) = ("acme".parse().unwrap(), KeyId::from("key_x".to_owned()));
        let usage = Usage {
            prompt: PromptTokens(1),
            completion: CompletionTokens(1),
        };
        let mut list = List::default();
        for (n, began, resolved) in [(1, 500, 900), (2, 400, 950), (3, 450, 920)] {
            let billed = Billed::new(
                request_at(n, Timestamp(began)),
                CallNumber::new(ProducerId(1), n),
                (&account, &key),
                &"a/m".into(),
                (usage, Credits::ZERO, None),
                None,
            );
            list.add(Timestamp(resolved), &billed).unwrap();
            if n == 1 {
                assert_eq!((list.at, list.oldest), (900, 500));
            }
        }
        assert_eq!((list.count, list.at, list.oldest), (3, 950, 400));
        assert_eq!(list.text.lines().count(), 3);
    }
}
