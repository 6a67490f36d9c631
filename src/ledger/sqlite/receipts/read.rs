//! Reading the receipts of a file: pages of them, that of one request, and what the audit makes of them.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::super::{PART, Reader, corrupt};
use super::place::{Place, Seal};
use super::{COMPLETE_FROM, names};
use crate::ledger::admin::{AuditFinding, LOOKED_THROUGH_MAX, ReceiptPage, ReceiptQuery};
use crate::ledger::query::{CallName, EndUserQuery, EndUserSums, EndUserUsage, Unsummed};
use crate::ledger::{StoreError, clamped};
use crate::pure::ids::AccountId;
use crate::pure::receipt::{Billed, Receipt, UsageOfReceipt};
use crate::pure::time::{Day, Timestamp};

impl Reader {
    /// The receipts that are asked for.
    pub(in crate::ledger) fn page(&self, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        page(&self.connection, query)
    }

    /// Usage by end user, seen from `today`.
    pub(in crate::ledger) fn end_users(&self, query: &EndUserQuery, today: Day) -> Result<EndUserUsage, StoreError> {
        end_users(&self.connection, query, today)
    }

    /// Holds the receipts of the last days, up to those of a clock that was ahead, against the usage rows.
    pub(in crate::ledger) fn witness(&self, today: Day, findings: &mut Vec<AuditFinding>) -> Result<(), StoreError> {
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
        let expected = sums_of_usage(&moment, from)?;
        let found = sums_of_receipts(&moment, from)?;
        compare(&expected, &found, findings)
    }
}

/// Usage by end user. The lines of a row are of one day.
pub(super) fn end_users(connection: &Connection, query: &EndUserQuery, today: Day) -> Result<EndUserUsage, StoreError> {
    let mut sums = EndUserSums::new(query, today);
    let ended = add_end_users(connection, &query.account, &mut sums);
    sums.ended(ended)
}

fn add_end_users(connection: &Connection, account: &AccountId, sums: &mut EndUserSums<'_>) -> Result<(), Unsummed> {
    let (from, to) = sums.days();
    let mut statement =
        connection.prepare_cached("SELECT list FROM receipt_lists WHERE account = ?1 AND at >= ?2 AND at < ?3")?;
    let mut rows = statement.query(params![account.as_str(), from.start().0, to.next().start().0])?;
    while let Some(row) = rows.next()? {
        for line in lines(row, 0)? {
            sums.add(receipt(account, line))?;
        }
    }
    Ok(())
}

/// The receipts that are asked for.
pub(super) fn page(connection: &Connection, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
    match query.call() {
        Some(call) => find(connection, &query.account, &call),
        None => newest(connection, query),
    }
}

fn newest(connection: &Connection, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
    let (account, limit) = (&query.account, usize::try_from(query.limit()).unwrap_or(usize::MAX));
    let mut page = ReceiptPage::default();
    let (seal, newest) = (Seal::of(connection)?, Some(NEWEST));
    let Some(before) = query.before.as_deref().map_or(newest, |text| seal.open(account, text)) else {
        return Ok(page);
    };
    // In the order of the index, so that no more rows are read than the page needs.
    let mut statement = connection.prepare_cached(
        "SELECT at, oldest, seq, list FROM receipt_lists WHERE account = ?1 AND (at, oldest, seq) <= (?2, ?3, ?4)
         ORDER BY at DESC, oldest DESC, seq DESC",
    )?;
    let [at, oldest, seq] = before.row;
    let mut rows = statement.query(params![account.as_str(), at, oldest, seq])?;
    let (mut count, mut looked_through) = (0usize, 0u32);
    while let Some(row) = rows.next()? {
        let row_place: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
        let lines: Vec<&[u8]> = lines(row, 3)?.collect();
        // Of the row where the page before ended, those before its last.
        let lines = match row_place == before.row {
            true => lines.get(..before.lines).unwrap_or(&lines),
            false => &lines,
        };
        for (index, line) in lines.iter().enumerate().rev() {
            looked_through = looked_through.saturating_add(1);
            let is_one = match receipt(account, line) {
                Ok(receipt) if query.is_met_by(&receipt) => {
                    page.receipts.push(receipt);
                    true
                }
                Ok(_) => false,
                Err(error) => {
                    // A row has the receipts of one day.
                    let [at, ..] = row_place;
                    page.tell_unreadable(account, Some(Timestamp(at).day()), &error);
                    true
                }
            };
            count = count.saturating_add(usize::from(is_one));
            if count == limit || looked_through == LOOKED_THROUGH_MAX {
                let ended = Place {
                    row: row_place,
                    lines: index,
                };
                page.next = Some(seal.seal(account, ended)?);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// Before it all receipts are.
const NEWEST: Place = Place {
    row: [i64::MAX; 3],
    lines: 0,
};

/// The receipt of a call: of a request there is one; of an answer's own id, which providers may give twice, the newest.
fn find(connection: &Connection, account: &AccountId, call: &CallName) -> Result<ReceiptPage, StoreError> {
    let (mut page, marks) = (ReceiptPage::default(), call.marks());
    // A row is read only when it may have a call that began then. A clock that was set back bills a call before its own beginning. Whoever
    // makes up an id has no more looked at than that.
    let after = format!(
        "SELECT l.list FROM (SELECT seq, oldest FROM receipt_lists WHERE account = ?1 AND at >= ?2 ORDER BY at LIMIT {LOOKED_THROUGH_MAX}) f
         CROSS JOIN receipt_lists l ON l.seq = f.seq WHERE f.oldest <= ?2"
    );
    let before =
        format!("SELECT list FROM receipt_lists WHERE account = ?1 AND at < ?2 ORDER BY at DESC LIMIT {BEFORE_MAX}");
    if let Some(began) = call.id.map(|id| id.time().0) {
        for (sql, mut bytes) in [(after, usize::MAX), (before, BEFORE_BYTES_MAX)] {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params![account.as_str(), began])?;
            while let Some(row) = rows.next()?
                && bytes > 0
            {
                let list = row.get_ref(0)?.as_bytes().map_err(corrupt)?;
                if find_in(lines(row, 0)?, account, (call, &marks), &mut page) {
                    return Ok(page);
                }
                bytes = bytes.saturating_sub(list.len());
            }
        }
    }
    for seq in names::rows(connection, account, &call.text)? {
        let sql = "SELECT list FROM receipt_lists WHERE seq = ?1 AND account = ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![seq, account.as_str()])?;
        while let Some(row) = rows.next()? {
            if find_in(lines(row, 0)?, account, (call, &marks), &mut page) {
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// Looks for a call in the lines of a row. Whether it is there.
fn find_in<'l>(
    lines: impl DoubleEndedIterator<Item = &'l [u8]>,
    account: &AccountId,
    (call, marks): (&CallName, &[String]),
    page: &mut ReceiptPage,
) -> bool {
    let is_marked = |line: &&[u8]| {
        let line = String::from_utf8_lossy(line);
        marks.iter().any(|mark| line.contains(mark))
    };
    for receipt in lines.rev().filter(is_marked).map(|line| receipt(account, line)) {
        match receipt {
            Ok(receipt) if call.is_of(&receipt) => {
                page.receipts.push(receipt);
                return true;
            }
            Ok(_) => {}
            Err(error) => page.tell_unreadable(account, None, &error),
        }
    }
    false
}

/// The lines of a list, each as it stands there: a byte that is no text spoils its own line alone.
fn lines<'row>(
    row: &'row rusqlite::Row<'_>,
    at: usize,
) -> Result<impl DoubleEndedIterator<Item = &'row [u8]> + use<'row>, StoreError> {
    let list = row.get_ref(at)?.as_bytes().map_err(corrupt)?;
    Ok(list.strip_suffix(b"\n").unwrap_or(list).split(|byte| *byte == b'\n'))
}

fn receipt(account: &AccountId, line: &[u8]) -> Result<Receipt, StoreError> {
    let (resolved, billed) = parts(line)?;
    Ok(Receipt {
        resolved,
        billed: Billed::of_compact(account, billed).map_err(corrupt)?,
    })
}

fn parts(line: &[u8]) -> Result<(Timestamp, &str), StoreError> {
    let (resolved, billed) = std::str::from_utf8(line)
        .map_err(corrupt)?
        .split_once(' ')
        .ok_or_else(|| corrupt("a receipt without its time"))?;
    Ok((Timestamp(resolved.parse().map_err(corrupt)?), billed))
}

/// Calls, prompt, completion and cost of each account, day and model.
type Sums = BTreeMap<(String, i64, String), [i128; 4]>;

fn sums_of_usage(t: &Connection, from: i64) -> Result<Sums, StoreError> {
    let mut statement =
        t.prepare("SELECT account, day, model, requests, prompt, completion, cost FROM usage WHERE day >= ?1")?;
    let mut rows = statement.query([from])?;
    let mut all = Sums::new();
    while let Some(row) = rows.next()? {
        let figure = |at: usize| row.get::<_, i64>(at).map(i128::from);
        let figures = [figure(3)?, figure(4)?, figure(5)?, figure(6)?];
        all.insert((row.get(0)?, row.get(1)?, row.get(2)?), figures);
    }
    Ok(all)
}

/// What cannot be read is not in the sums, and so it is found.
fn sums_of_receipts(t: &Connection, from: i64) -> Result<Sums, StoreError> {
    // Of earlier days only what a clock that was ahead left among them is read.
    let mut statement = t.prepare(
        "SELECT account, day, list FROM receipt_lists WHERE day >= ?1
         AND seq >= (SELECT coalesce(min(first), 9223372036854775807) FROM receipt_list_days WHERE day >= ?1)",
    )?;
    let mut rows = statement.query([from])?;
    let mut all = Sums::new();
    while let Some(row) = rows.next()? {
        let (account, day): (String, i64) = (row.get(0)?, row.get(1)?);
        for line in lines(row, 2)? {
            let Ok((_, billed)) = parts(line) else { continue };
            let Ok(usage) = UsageOfReceipt::of_compact(billed) else {
                continue;
            };
            let figures = all.entry((account.clone(), day, usage.model)).or_default();
            // As the usage rows count: a number that SQLite cannot have is its largest.
            let counted = |tokens: u64| i128::from(i64::try_from(tokens).unwrap_or(i64::MAX));
            let of_one = [
                1,
                counted(usage.prompt_tokens),
                counted(usage.completion_tokens),
                i128::from(usage.cost.pico()),
            ];
            for (sum, one) in figures.iter_mut().zip(of_one) {
                *sum = sum.saturating_add(one);
            }
        }
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

/// Of those that were billed before their calls began, how many rows are looked through for one request.
const BEFORE_MAX: u32 = 1_000;
/// And how much text of theirs: rows of busy seconds are long.
const BEFORE_BYTES_MAX: usize = 8 << 20;
/// The audit looks at the receipts of today and of so many days before: it runs every hour.
const WITNESS_DAYS: i64 = 1;
