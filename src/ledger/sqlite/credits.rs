//! Credit entries in the embedded ledger's file: top-ups, bonuses, corrections and refunds, once a reference, and what is read of them.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{Database, PART, Reader, corrupt};
use crate::ledger::StoreError;
use crate::ledger::admin::credits::{
    CREDITS_MAX, CreditEntry, CreditKind, CreditPage, CreditPost, STATEMENT_ROWS_MAX, Statement,
};
use crate::ledger::events::EventTimes;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Timestamp};

/// How a post ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Written {
    Added(CreditEntry),
    /// The same was posted before.
    Already(CreditEntry),
    /// Something else was posted under the reference.
    Conflict,
    OutOfRange,
}

/// Why something is not told.
#[derive(Debug)]
pub(in crate::ledger) enum Untold {
    /// What was asked for is not there, or too much.
    Invalid(String),
    Failed(StoreError),
}

impl<E: Into<StoreError>> From<E> for Untold {
    fn from(error: E) -> Untold {
        Untold::Failed(error.into())
    }
}

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same: their entries have no kind,
/// for they are top-ups.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_table_info('topups') WHERE name = 'kind'";
    let known: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if known == 0 {
        connection.execute_batch(
            "BEGIN;
             ALTER TABLE topups ADD COLUMN note TEXT;
             ALTER TABLE topups ADD COLUMN balance INTEGER;
             ALTER TABLE topups ADD COLUMN kind TEXT;
             COMMIT;",
        )?;
    }
    connection.execute_batch(
        "CREATE INDEX IF NOT EXISTS topups_by_time ON topups (account, at, reference);
         CREATE INDEX IF NOT EXISTS topups_by_reference ON topups (reference);
         CREATE TABLE IF NOT EXISTS payments (
            reference TEXT NOT NULL PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts
         ) STRICT, WITHOUT ROWID;",
    )?;
    Ok(())
}

impl Database {
    /// Posts an entry, once a reference. What is available is not looked at: memory knows the holds.
    pub(in crate::ledger) fn post(&mut self, post: &CreditPost, at: Timestamp) -> Result<Written, StoreError> {
        let at = self.event_times(at);
        self.durably(|t| write(t, post, at))
    }

    /// The entry of a reference.
    pub(in crate::ledger) fn credit_entry(
        &self,
        account: &AccountId,
        reference: &str,
    ) -> Result<Option<CreditEntry>, StoreError> {
        entry_of(&self.connection, account, reference)
    }
}

impl Reader {
    /// A page of entries.
    pub(in crate::ledger) fn credits(
        &self,
        account: &AccountId,
        limit: u32,
        before: Option<&str>,
    ) -> Result<CreditPage, Untold> {
        page(&self.connection, account, limit, before)
    }

    /// An entry, and whose it is; without an account, that of the one top-up that has the reference.
    pub(in crate::ledger) fn credit_entry(
        &self,
        account: Option<&AccountId>,
        reference: &str,
    ) -> Result<(Option<AccountId>, Option<CreditEntry>), Untold> {
        let account = match account {
            Some(account) => Some(account.clone()),
            None => payer(&self.connection, reference)?,
        };
        let entry = match &account {
            Some(account) => entry_of(&self.connection, account, reference)?,
            None => None,
        };
        Ok((account, entry))
    }

    /// A statement of what was committed.
    pub(in crate::ledger) fn statement(&self, account: &AccountId, days: (Day, Day)) -> Result<Statement, Untold> {
        // All of it is read as one moment has it.
        let transaction = self.connection.unchecked_transaction()?;
        statement(&transaction, account, days)
    }
}

fn write(t: &Transaction<'_>, post: &CreditPost, at: EventTimes) -> Result<Written, StoreError> {
    let account = post.account.as_str();
    let before = entry_of(t, &post.account, &post.reference)?;
    if post.is_payment {
        let is_anothers = match payment(t, &post.reference)? {
            Some(payer) => payer != account,
            // Top-ups by hand are not noted: the first of them is the payment.
            None => another_had_top_up(t, post, before.as_ref())?,
        };
        if is_anothers {
            return Ok(Written::Conflict);
        }
    }
    if let Some(before) = before {
        if !post.is_same_as(&before) {
            return Ok(Written::Conflict);
        }
        note_payment(t, post)?;
        return Ok(Written::Already(before));
    }
    let sql = "SELECT balance FROM accounts WHERE id = ?1";
    let balance = Credits::from_pico(t.query_row(sql, [account], |row| row.get(0))?);
    let Some(balance) = balance.checked_add(post.amount) else {
        return Ok(Written::OutOfRange);
    };
    note_payment(t, post)?;
    t.execute(
        "INSERT INTO topups (account, reference, amount, at, kind, note, balance) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            account,
            post.reference,
            post.amount.pico(),
            at.clock.0,
            post.kind.name(),
            post.note,
            balance.pico()
        ],
    )?;
    t.execute(
        "UPDATE accounts SET balance = ?2 WHERE id = ?1",
        params![account, balance.pico()],
    )?;
    super::events::credited(t, post, (balance, at))?;
    Ok(Written::Added(post.entry(at.clock, Some(balance))))
}

/// Notes whose a payment is: only with its entry, or nobody else could be credited it.
fn note_payment(t: &Transaction<'_>, post: &CreditPost) -> Result<(), StoreError> {
    if post.is_payment {
        let sql = "INSERT OR IGNORE INTO payments (reference, account) VALUES (?1, ?2)";
        t.execute(sql, params![post.reference, post.account.as_str()])?;
    }
    Ok(())
}

fn entry_of(connection: &Connection, account: &AccountId, reference: &str) -> Result<Option<CreditEntry>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM topups WHERE account = ?1 AND reference = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![account.as_str(), reference])?;
    rows.next()?.map(entry).transpose()
}

/// The account that a payment was credited to.
fn payment(connection: &Connection, reference: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT account FROM payments WHERE reference = ?1")?;
    Ok(statement.query_row([reference], |row| row.get(0)).optional()?)
}

/// Whether another account had a top-up of the same reference before this one's entry, or has one where this one has none.
fn another_had_top_up(
    connection: &Connection,
    post: &CreditPost,
    own: Option<&CreditEntry>,
) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM topups
         WHERE reference = ?1 AND account <> ?2 AND coalesce(kind, 'top_up') = 'top_up' AND at < ?3)",
    )?;
    let until = own.map_or(i64::MAX, |own| own.at.0);
    Ok(statement.query_row(params![post.reference, post.account.as_str(), until], |row| row.get(0))?)
}

/// Whose payment has a reference, or else whose top-up, which was given by hand. Nobody's where there is none.
///
/// # Errors
/// When several accounts were given it by hand: whose it is, nobody here can say.
fn payer(connection: &Connection, reference: &str) -> Result<Option<AccountId>, Untold> {
    if let Some(account) = payment(connection, reference)? {
        return Ok(Some(account.parse().map_err(corrupt)?));
    }
    let mut statement = connection.prepare_cached(
        "SELECT account FROM topups WHERE reference = ?1 AND coalesce(kind, 'top_up') = 'top_up' LIMIT 2",
    )?;
    let mut rows = statement.query([reference])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let account: String = row.get(0)?;
    if rows.next()?.is_some() {
        return Err(Untold::Invalid(format!("several accounts have a top-up {reference:?}")));
    }
    Ok(Some(account.parse().map_err(corrupt)?))
}

fn page(connection: &Connection, account: &AccountId, limit: u32, before: Option<&str>) -> Result<CreditPage, Untold> {
    let limit = limit.clamp(1, CREDITS_MAX);
    let last = match before {
        None => (i64::MAX, String::new()),
        Some(reference) => {
            let last = entry_of(connection, account, reference)?;
            let last = last.ok_or_else(|| Untold::Invalid(format!("no entry is known by {reference:?}")))?;
            (last.at.0, last.reference)
        }
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM topups WHERE account = ?1 AND (at, reference) < (?2, ?3)
         ORDER BY at DESC, reference DESC LIMIT ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![account.as_str(), last.0, last.1, limit + 1])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    Ok(CreditPage::of(entries, usize::try_from(limit).unwrap_or(usize::MAX)))
}

fn statement(t: &Transaction<'_>, account: &AccountId, (from, to): (Day, Day)) -> Result<Statement, Untold> {
    let name = account.as_str();
    let (begins, ends) = (from.start().0, to.next().start().0);
    let balance: Option<i64> = t
        .query_row("SELECT balance FROM accounts WHERE id = ?1", [name], |row| row.get(0))
        .optional()?;
    let balance = balance.ok_or_else(|| StoreError::Corrupt("the account is not there".to_owned()))?;
    let most = i64::try_from(STATEMENT_ROWS_MAX).unwrap_or(i64::MAX);
    let count: i64 = t.query_row(
        "SELECT (SELECT count(*) FROM topups WHERE account = ?1 AND at >= ?2 AND at < ?3)
              + (SELECT count(*) FROM usage WHERE account = ?1 AND day BETWEEN ?4 AND ?5)",
        params![name, begins, ends, from.0, to.0],
        |row| row.get(0),
    )?;
    if count > most {
        return Err(Untold::Invalid(Statement::too_many(count)));
    }
    let added = sum(t, "amount", "topups", "at >= ?2", (name, ends))?;
    let debited = sum(t, "cost", "usage", "day > ?2", (name, to.0))?;
    let sql =
        format!("SELECT {COLUMNS} FROM topups WHERE account = ?1 AND at >= ?2 AND at < ?3 ORDER BY at, reference");
    let mut entries = Vec::new();
    let mut read = t.prepare_cached(&sql)?;
    let mut rows = read.query(params![name, begins, ends])?;
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    let mut debits = Vec::new();
    let mut read = t.prepare_cached(
        "SELECT day, model, requests, prompt, completion, cost FROM usage
         WHERE account = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day, model",
    )?;
    let mut rows = read.query(params![name, from.0, to.0])?;
    while let Some(row) = rows.next()? {
        debits.push(super::usage::usage_row(row)?.into());
    }
    let closing = i128::from(balance) - added + debited;
    Ok(Statement::ending_with(closing, account, (from, to), (entries, debits))?)
}

/// The sum of a column: in two parts, for that of a long life leaves the range of an int64.
fn sum(t: &Transaction<'_>, column: &str, table: &str, rule: &str, of: (&str, i64)) -> Result<i128, StoreError> {
    let sql = format!(
        "SELECT coalesce(sum({column} / {PART}), 0), coalesce(sum({column} % {PART}), 0) FROM {table}
         WHERE account = ?1 AND {rule}"
    );
    let (whole, rest): (i64, i64) = t
        .prepare_cached(&sql)?
        .query_row(params![of.0, of.1], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(i128::from(whole) * i128::from(PART) + i128::from(rest))
}

fn entry(row: &Row<'_>) -> Result<CreditEntry, StoreError> {
    let kind: Option<String> = row.get(3)?;
    Ok(CreditEntry {
        reference: row.get(0)?,
        amount: Credits::from_pico(row.get(1)?),
        at: Timestamp(row.get(2)?),
        kind: kind
            .map_or(Ok(CreditKind::TopUp), |kind| kind.parse())
            .map_err(corrupt)?,
        note: row.get(4)?,
        balance: row.get::<_, Option<i64>>(5)?.map(Credits::from_pico),
    })
}

/// What an entry is read from, in this order.
const COLUMNS: &str = "reference, amount, at, kind, note, balance";
