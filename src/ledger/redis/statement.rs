//! Statements in Redis: read in many small steps, so that no call waits for one, and yet as one moment has it.
//!
//! Days that are over do not change, and credit entries are only added behind the others. So these are read step by step, and one script at
//! the end reads what may have changed: the balance, the last entries, and the debits of the day. What is available and committed is changed
//! by entries alone, beside what a month used: where the entries since the beginning do not explain it, one was posted that is in no order,
//! by a gateway of an earlier version, and all of it is read again.

use redis::Value;

use super::account::{account_keys, credits_of_account};
use super::credits::entries;
use super::link::Link;
use super::reply::{self, corrupt};
use super::script;
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::ledger::admin::AdminError;
use crate::ledger::admin::credits::{CreditEntry, DebitRow, STATEMENT_ROWS_MAX, Statement};
use crate::pure::ids::AccountId;
use crate::pure::time::{Day, Timestamp};

/// How an account stands when its statement begins.
struct Begin {
    at: Timestamp,
    /// What is available and committed.
    credit: i128,
    /// How many credit entries there are, and how many before the first day and before the end of the last.
    entries: u64,
    before: u64,
    until: u64,
    /// The reference of the last.
    last: String,
}

/// What was read so far.
#[derive(Default)]
struct Parts {
    entries: Vec<CreditEntry>,
    debits: Vec<DebitRow>,
    /// Credited and debited after the last day.
    added: i128,
    debited: i128,
}

impl Shared {
    pub(super) async fn statement(
        &self,
        link: &Link,
        account: &AccountId,
        days: (Day, Day),
    ) -> Result<Statement, AdminError> {
        let known = self.existing(link, account).await?;
        let turn = async { (known.reporting.lock().await, STATEMENTS.acquire().await) };
        let Ok(_turn) = tokio::time::timeout(self.options.timeout, turn).await else {
            return Err(AdminError::Busy(
                "statements are asked for faster than they can be read".to_owned(),
            ));
        };
        self.barrier(&known).await?;
        for _ in 0..READ_MAX {
            let begin = self.begin_statement(link, account, days).await?;
            // What an earlier version's gateway had posted before, and was not in the order, is found by a scan.
            if self.complete_order(link, account).await? > 0 {
                continue;
            }
            if let Some(read) = self.read_statement(link, account, days, &begin).await? {
                return Ok(read);
            }
        }
        Err(AdminError::Store(
            "entries are posted by gateways of earlier versions faster than they are read".to_owned(),
        ))
    }

    async fn begin_statement(
        &self,
        link: &Link,
        account: &AccountId,
        (from, to): (Day, Day),
    ) -> Result<Begin, AdminError> {
        let ([name, _], credits) = (account_keys(account), credits_of_account(account));
        let now = self.now_text();
        let (begins, ends) = (from.start().0.to_string(), to.next().start().0.to_string());
        let arguments = [now.as_str(), &begins, &ends];
        let value = self
            .run_script(link, &script::STATEMENT_BEGIN, &[&name, &credits], &arguments)
            .await?;
        if value == Value::Nil {
            return Err(AdminError::NoAccount(account.clone()));
        }
        let [now, available, committed, _, count, before, until, last] = reply::list(&value)? else {
            return Err(corrupt("a statement begins with other parts than it should").into());
        };
        Ok(Begin {
            at: Timestamp(reply::integer(now)?),
            credit: pico(available)? + pico(committed)?,
            entries: count_of(count)?,
            before: count_of(before)?,
            until: count_of(until)?,
            last: reply::text(last)?.to_owned(),
        })
    }

    /// The statement; nothing when somebody came in between.
    async fn read_statement(
        &self,
        link: &Link,
        account: &AccountId,
        (from, to): (Day, Day),
        begin: &Begin,
    ) -> Result<Option<Statement>, AdminError> {
        let mut parts = Parts::default();
        let within = begin.until.saturating_sub(begin.before);
        if within > u64::try_from(STATEMENT_ROWS_MAX).unwrap_or(u64::MAX) {
            return Err(too_many());
        }
        let mut place = begin.before;
        while place < begin.entries {
            let next = place.saturating_add(ENTRIES_AT_ONCE).min(begin.entries);
            for entry in self.some_entries(link, account, (place, next)).await? {
                parts.entry(entry, to)?;
            }
            place = next;
        }
        let yesterday = Day(begin.at.day().0.saturating_sub(1));
        let (mut first, mut place) = (from, 0);
        loop {
            let (rows, next) = self.some_debits(link, account, (first, place, yesterday)).await?;
            for row in rows {
                parts.debit(row, to)?;
            }
            match next {
                Some(next) => (first, place) = next,
                None => break,
            }
        }
        self.end_statement(link, account, (from, to), begin, parts).await
    }

    async fn some_entries(
        &self,
        link: &Link,
        account: &AccountId,
        (first, end): (u64, u64),
    ) -> Result<Vec<CreditEntry>, StoreError> {
        let ([name, _], credits) = (account_keys(account), credits_of_account(account));
        let (first, last) = (first.to_string(), end.saturating_sub(1).to_string());
        let keys = [name.as_str(), &credits];
        let value = self
            .run_script(link, &script::STATEMENT_ENTRIES, &keys, &[&first, &last])
            .await?;
        entries(reply::list(&value)?)
    }

    /// Some debits, and where the next ones begin: a day, and a place in it.
    async fn some_debits(
        &self,
        link: &Link,
        account: &AccountId,
        (first, place, last): (Day, i64, Day),
    ) -> Result<(Vec<DebitRow>, Option<(Day, i64)>), StoreError> {
        let [name, _] = account_keys(account);
        let numbers = [first.0, place, last.0, ROWS_AT_ONCE].map(|number| number.to_string());
        let arguments = numbers.each_ref().map(String::as_str);
        let value = self
            .run_script(link, &script::STATEMENT_DAYS, &[&name], &arguments)
            .await?;
        let (rows, next) = reply::some_rows(&value)?.ok_or_else(|| corrupt("debits are no list"))?;
        Ok((rows.into_iter().map(DebitRow::from).collect(), next))
    }

    async fn end_statement(
        &self,
        link: &Link,
        account: &AccountId,
        (from, to): (Day, Day),
        begin: &Begin,
        mut parts: Parts,
    ) -> Result<Option<Statement>, AdminError> {
        let ([name, _], credits) = (account_keys(account), credits_of_account(account));
        let place = begin.entries.saturating_sub(1).to_string();
        let most = ENTRIES_AT_ONCE.to_string();
        let day = begin.at.day().max(from).0.to_string();
        let rows_max = ROWS_TODAY_MAX.to_string();
        let arguments = [place.as_str(), &most, &day, &rows_max];
        let value = self
            .run_script(link, &script::STATEMENT_END, &[&name, &credits], &arguments)
            .await?;
        let ended = match &value {
            Value::Nil => return Err(AdminError::NoAccount(account.clone())),
            Value::Int(_) => return Err(too_many()),
            other => reply::list(other)?,
        };
        let [available, committed, used, last, rows] = ended else {
            return Err(corrupt("a statement has other parts than it should").into());
        };
        let credit = pico(available)? + pico(committed)?;
        let mut last = entries(reply::list(last)?)?.into_iter();
        let mut is_as_before = begin.entries == 0 || last.next().is_some_and(|entry| entry.reference == begin.last);
        let mut since = 0;
        for entry in last {
            since += i128::from(entry.amount.pico());
            // One that was posted before, and put into the order since, explains nothing.
            is_as_before &= entry.at > begin.at;
            if entry.at >= from.start() {
                parts.entry(entry, to)?;
            }
        }
        if !is_as_before || begin.credit + since != credit {
            return Ok(None);
        }
        for row in reply::rows(rows)?.unwrap_or_default() {
            parts.debit(row.into(), to)?;
        }
        let closing = credit - pico(used)? - parts.added + parts.debited;
        let within = (parts.entries, parts.debits);
        Ok(Some(Statement::ending_with(closing, account, (from, to), within)?))
    }
}

impl Parts {
    fn entry(&mut self, entry: CreditEntry, to: Day) -> Result<(), AdminError> {
        if entry.at >= to.next().start() {
            self.added += i128::from(entry.amount.pico());
            return Ok(());
        }
        self.entries.push(entry);
        self.check()
    }

    fn debit(&mut self, row: DebitRow, to: Day) -> Result<(), AdminError> {
        if row.day > to {
            self.debited += i128::from(row.cost.pico());
            return Ok(());
        }
        self.debits.push(row);
        self.check()
    }

    fn check(&self) -> Result<(), AdminError> {
        match self.entries.len().saturating_add(self.debits.len()) > STATEMENT_ROWS_MAX {
            true => Err(too_many()),
            false => Ok(()),
        }
    }
}

fn too_many() -> AdminError {
    AdminError::Invalid(Statement::too_many(format_args!("more than {STATEMENT_ROWS_MAX}")))
}

fn pico(value: &Value) -> Result<i128, StoreError> {
    reply::amount(value).map(|amount| i128::from(amount.pico()))
}

fn count_of(value: &Value) -> Result<u64, StoreError> {
    u64::try_from(reply::integer(value)?).map_err(|_| corrupt("a negative count"))
}

/// How many statements are read at once in a process.
static STATEMENTS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
/// How often a statement is read where entries of earlier versions are found.
const READ_MAX: u32 = 5;
/// Entries, and rows of debits, that are read by one script: each in a millisecond or so.
const ENTRIES_AT_ONCE: u64 = 500;
const ROWS_AT_ONCE: i64 = 500;
/// Rows of debits of the day that is not over.
const ROWS_TODAY_MAX: i64 = 2_000;

#[cfg(test)]
mod tests;
