//! Receipts in the ledger's file: one row a debit, written in the debit's transaction.
//!
//! Versions that write none may open the file in between, so the file says from which day on receipts are complete: with each group the
//! number of all calls in the usage rows is noted; where that is another at the next start, somebody wrote without receipts, and days
//! up to then are not held against them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{Database, PART, Reader, corrupt};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::ProducerId;
use crate::pure::receipt::{Billed, CallFacts, Receipt};
use crate::pure::time::{Day, Timestamp};
use crate::store::admin::{AuditFinding, ReceiptPage, ReceiptQuery};
use crate::store::{StoreError, clamped};

/// Adds what files of earlier versions do not have. Those versions do not look at it.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(SCHEMA)?;
    Ok(())
}

impl Database {
    /// Begins to keep receipts for so many days: looks whether the file was written without, and deletes some that are too old.
    pub(in crate::store) fn keep_receipts(&mut self, days: u32, today: Day) -> Result<(), StoreError> {
        self.receipt_days = days;
        if self.receipt_days_before()? != Some(days) {
            self.set_setting(KEPT_DAYS, &days.to_string())?;
        }
        if days == 0 {
            // From now on the days are not complete, until the first one after it is switched on again.
            let forget = "DELETE FROM settings WHERE name IN (?1, ?2)";
            self.connection.execute(forget, [COMPLETE_FROM, NOTED])?;
            return Ok(());
        }
        let sql = "SELECT coalesce(sum(requests), 0), max(day) FROM usage";
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?));
        let (requests, last) = self.connection.query_row(sql, [], row)?;
        let noted = self.setting(NOTED)?;
        let transaction = self.connection.transaction()?;
        if noted.as_deref() != Some(requests.to_string().as_str()) {
            // Of a new file every day is complete.
            let from = last.map_or(i64::MIN, |last| last.max(today.0).saturating_add(1));
            put(&transaction, COMPLETE_FROM, from)?;
            put(&transaction, NOTED, requests)?;
        }
        delete_old(&transaction, days, today, AT_START)?;
        transaction.commit()?;
        Ok(())
    }

    /// For how many days the file's last gateway kept receipts. None before the first.
    pub(in crate::store) fn receipt_days_before(&self) -> Result<Option<u32>, StoreError> {
        let days = self.setting(KEPT_DAYS)?;
        days.map(|days| days.parse().map_err(corrupt)).transpose()
    }

    /// The receipts that are asked for.
    pub(in crate::store) fn receipts(&self, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        page(&self.connection, query)
    }

    /// Days for which receipts are kept; 0 when none are written.
    pub(in crate::store) fn receipt_days(&self) -> u32 {
        self.receipt_days
    }
}

/// Writes the receipts of a group, and deletes more than that of those that are too old.
pub(super) fn write(t: &Transaction<'_>, receipts: &[Receipt], days: u32, today: Day) -> Result<(), StoreError> {
    if days == 0 || receipts.is_empty() {
        return Ok(());
    }
    let mut insert = t.prepare_cached(
        "INSERT INTO receipts (account, id, day, at, model, key, producer, number, prompt, completion, cost, held, facts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    let mut day = None;
    for Receipt { resolved, billed } in receipts {
        let facts = billed.call.to_compact(billed.id).map_err(corrupt)?;
        insert.execute(params![
            billed.account.as_str(),
            billed.id.as_bytes(),
            resolved.day().0,
            resolved.0,
            billed.model.as_ref(),
            billed.key.as_str(),
            billed.producer.0.cast_signed(),
            billed.number.cast_signed(),
            counted(billed.prompt_tokens),
            counted(billed.completion_tokens),
            billed.cost.pico(),
            billed.held.map(Credits::pico),
            facts,
        ])?;
        if day.replace(resolved.day()) != Some(resolved.day()) {
            t.prepare_cached("INSERT INTO receipt_days (day, first) VALUES (?1, ?2) ON CONFLICT (day) DO NOTHING")?
                .execute([resolved.day().0, t.last_insert_rowid()])?;
        }
    }
    let count = i64::try_from(receipts.len()).unwrap_or(i64::MAX);
    t.prepare_cached("UPDATE settings SET value = CAST(value AS INTEGER) + ?2 WHERE name = ?1")?
        .execute(params![NOTED, count])?;
    delete_old(t, days, today, count.saturating_mul(2))
}

/// As the usage rows count: a number that SQLite cannot have is its largest.
fn counted(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn delete_old(t: &Transaction<'_>, days: u32, today: Day, most: i64) -> Result<(), StoreError> {
    let mut delete = t.prepare_cached(
        // Those before the first of the days that are kept. Where a clock was ahead, what came then stays, and what follows too, until it
        // has come so far.
        "DELETE FROM receipts WHERE seq IN (SELECT seq FROM receipts WHERE seq <
             (SELECT coalesce(min(first), 9223372036854775807) FROM receipt_days WHERE day >= ?1) ORDER BY seq LIMIT ?2)
         RETURNING day",
    )?;
    let too_old = today.0.saturating_sub(i64::from(days));
    let mut rows = delete.query([too_old, most])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        last = last.max(Some(row.get::<_, i64>(0)?));
    }
    if let Some(last) = last {
        // A clock that was ahead has days deleted that are looked at when it is right again.
        t.prepare_cached("UPDATE settings SET value = max(CAST(value AS INTEGER), ?2) WHERE name = ?1")?
            .execute(params![COMPLETE_FROM, last.saturating_add(1)])?;
    }
    Ok(())
}

fn put(t: &Transaction<'_>, name: &str, value: i64) -> Result<(), StoreError> {
    t.prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")?
        .execute(params![name, value.to_string()])?;
    Ok(())
}

impl Reader {
    /// The receipts that are asked for.
    pub(in crate::store) fn page(&self, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        page(&self.connection, query)
    }

    /// Holds the receipts of the last days, up to those of a clock that was ahead, against the usage rows.
    pub(in crate::store) fn witness(&self, today: Day, findings: &mut Vec<AuditFinding>) -> Result<(), StoreError> {
        // One transaction: both tables as one moment has them.
        let moment = self.connection.unchecked_transaction()?;
        let complete_from: Option<String> = moment
            .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
            .query_row([COMPLETE_FROM], |row| row.get(0))
            .optional()?;
        let Some(complete_from) = complete_from else {
            return Ok(());
        };
        let complete_from: i64 = complete_from.parse().map_err(corrupt)?;
        let from = complete_from.max(today.0.saturating_sub(WITNESS_DAYS));
        let expected = sums(&moment, "requests", "usage", "", from)?;
        let found = sums(&moment, "count(*)", RECENT, "GROUP BY account, day, model", from)?;
        compare(&expected, &found, findings)
    }
}

fn page(connection: &Connection, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
    let account = &query.account;
    let mut page = ReceiptPage::default();
    if let Some(id) = query.id {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM receipts WHERE id = ?1 AND account = ?2 ORDER BY seq DESC LIMIT 1"
        ))?;
        let mut rows = statement.query(params![id.as_bytes(), account.as_str()])?;
        page.receipts
            .extend(rows.next()?.map(|row| receipt(account, row)).transpose()?);
        return Ok(page);
    }
    let Some((id, seq)) = query.before.as_deref().map_or(Some((PAST_ALL_IDS.to_vec(), 0)), place) else {
        return Ok(page);
    };
    let (limit, model) = (query.limit(), query.model.as_deref());
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM receipts WHERE account = ?1 AND (id, seq) < (?2, ?3) AND (?4 IS NULL OR model = ?4)
         ORDER BY id DESC, seq DESC LIMIT ?5"
    ))?;
    let mut rows = statement.query(params![account.as_str(), id, seq, model, limit])?;
    let (mut count, mut last) = (0u32, None);
    while let Some(row) = rows.next()? {
        count = count.saturating_add(1);
        last = Some((RequestId::from_bytes(row.get(1)?), row.get::<_, i64>(0)?));
        match receipt(account, row) {
            Ok(receipt) => page.receipts.push(receipt),
            Err(error) => page.tell_unreadable(account, &error),
        }
    }
    page.next = last.filter(|_| count == limit).map(|(id, seq)| format!("{id}.{seq}"));
    Ok(page)
}

/// Reads where a page ended.
fn place(text: &str) -> Option<(Vec<u8>, i64)> {
    let (id, seq) = text.split_once('.')?;
    let id: RequestId = id.parse().ok()?;
    Some((id.as_bytes().to_vec(), seq.parse().ok()?))
}

type Sums = BTreeMap<(String, i64, String), [i128; 4]>;

/// Calls, prompt, completion and cost of each account, day and model.
fn sums(t: &Connection, calls: &str, table: &str, group: &str, from: i64) -> Result<Sums, StoreError> {
    // The sums of a long life leave the range of an int64, so they are taken in two parts.
    let sum = |column: &str| match group {
        "" => format!("{column} / {PART}, {column} % {PART}"),
        _ => format!("sum({column} / {PART}), sum({column} % {PART})"),
    };
    let (prompt, completion, cost) = (sum("prompt"), sum("completion"), sum("cost"));
    let mut statement = t.prepare(&format!(
        "SELECT account, day, model, {calls}, {prompt}, {completion}, {cost} FROM {table} WHERE day >= ?1 {group}"
    ))?;
    let mut rows = statement.query([from])?;
    let mut all = Sums::new();
    while let Some(row) = rows.next()? {
        let sum = |at: usize| -> Result<i128, rusqlite::Error> {
            let (whole, rest): (i64, i64) = (row.get(at)?, row.get(at.saturating_add(1))?);
            Ok(i128::from(whole) * i128::from(PART) + i128::from(rest))
        };
        let figures = [i128::from(row.get::<_, i64>(3)?), sum(4)?, sum(6)?, sum(8)?];
        all.insert((row.get(0)?, row.get(1)?, row.get(2)?), figures);
    }
    Ok(all)
}

fn compare(expected: &Sums, found: &Sums, findings: &mut Vec<AuditFinding>) -> Result<(), StoreError> {
    let mut places: Vec<_> = expected.keys().chain(found.keys()).collect();
    places.sort();
    places.dedup();
    for place in places {
        let of = |sums: &Sums| sums.get(place).copied().unwrap_or_default();
        let (expected, found) = (of(expected), of(found));
        let (account, day, model) = place;
        for (what, (expected, found)) in ["calls", "prompt tokens", "completion tokens", "cost"]
            .iter()
            .zip(expected.into_iter().zip(found))
        {
            if expected != found {
                // A finding's figures are credits: a count is shown as so many.
                let unit = if *what == "cost" { 1 } else { i128::from(PART) };
                findings.push(AuditFinding {
                    account: account.parse().map_err(corrupt)?,
                    rule: format!("receipts = usage: {what} of {model} on {}", Day(*day)),
                    expected: clamped(expected.saturating_mul(unit)),
                    found: clamped(found.saturating_mul(unit)),
                });
            }
        }
    }
    Ok(())
}

fn receipt(account: &AccountId, row: &Row<'_>) -> Result<Receipt, StoreError> {
    let count = |value: i64| u64::try_from(value).map_err(corrupt);
    let id = RequestId::from_bytes(row.get(1)?);
    let facts = CallFacts::of_compact(row.get_ref(11)?.as_str().map_err(corrupt)?, id).map_err(corrupt)?;
    Ok(Receipt {
        resolved: Timestamp(row.get(2)?),
        billed: Billed {
            id,
            producer: ProducerId(row.get::<_, i64>(5)?.cast_unsigned()),
            number: row.get::<_, i64>(6)?.cast_unsigned(),
            account: account.clone(),
            key: row.get::<_, String>(4)?.into(),
            model: Arc::from(row.get::<_, String>(3)?),
            prompt_tokens: count(row.get(7)?)?,
            completion_tokens: count(row.get(8)?)?,
            cost: Credits::from_pico(row.get(9)?),
            held: row.get::<_, Option<i64>>(10)?.map(Credits::from_pico),
            call: facts,
        },
    })
}

/// Receipts of the days that are asked for, and perhaps more: what lies before the first of these days is not read.
const RECENT: &str = "(SELECT * FROM receipts WHERE seq >=
    (SELECT coalesce(min(first), 9223372036854775807) FROM receipt_days WHERE day >= ?1))";

/// Behind each id of 16 bytes.
const PAST_ALL_IDS: [u8; 17] = [0xff; 17];

const COLUMNS: &str = "seq, id, at, model, key, producer, number, prompt, completion, cost, held, facts";

/// The setting that says from which day on each debit has its receipt.
const COMPLETE_FROM: &str = "receipts from";
/// The setting that says for how many days receipts are kept.
const KEPT_DAYS: &str = "receipts kept";
/// The setting with the number of calls in the usage rows after the last group with receipts.
const NOTED: &str = "receipts noted";
/// How many receipts of too long ago a start deletes.
const AT_START: i64 = 1_000;
/// The audit looks at the receipts of today and of so many days before: it runs every hour.
const WITNESS_DAYS: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS receipts (
    seq INTEGER PRIMARY KEY, account TEXT NOT NULL, id BLOB NOT NULL, day INTEGER NOT NULL, at INTEGER NOT NULL, model TEXT NOT NULL,
    key TEXT NOT NULL, producer INTEGER NOT NULL, number INTEGER NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL,
    cost INTEGER NOT NULL, held INTEGER, facts TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS receipt_days (day INTEGER PRIMARY KEY, first INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS receipts_of_account ON receipts (account, id);
";
