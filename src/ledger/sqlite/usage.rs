//! Usage in the embedded ledger's file: a row an account, day and model, and the same for each key.
//!
//! The account's rows are the books: debits are their sum. The rows of keys only tell who spent it; those of calls that an earlier version
//! billed are missing.

use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, Row, Transaction, params};

use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::{Debit, StoreError, UsageRow};
use crate::pure::hash_map::FastMap;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::money::Credits;
use crate::pure::time::Day;

/// The usage rows of one account in a group of debits.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct UsageSums {
    of_account: FastMap<(Day, Arc<str>), UsageSum>,
    of_keys: FastMap<(KeyId, Day, Arc<str>), UsageSum>,
}

/// The sums of one row.
#[derive(Clone, Copy, Debug, Default)]
struct UsageSum {
    requests: i64,
    prompt: i64,
    completion: i64,
    cost: i64,
}

impl UsageSum {
    fn add(&mut self, debit: &Debit) {
        let add = |to: &mut i64, value: u64| *to = to.saturating_add(i64::try_from(value).unwrap_or(i64::MAX));
        add(&mut self.requests, 1);
        add(&mut self.prompt, debit.usage.prompt.0);
        add(&mut self.completion, debit.usage.completion.0);
        self.cost = self.cost.saturating_add(debit.cost.pico());
    }
}

impl UsageSums {
    /// Counts a debit of `day` as usage of its account and its key.
    pub(in crate::ledger) fn add(&mut self, day: Day, debit: &Debit) {
        let row = (day, Arc::clone(&debit.model));
        self.of_account.entry(row).or_default().add(debit);
        let row = (debit.key.clone(), day, Arc::clone(&debit.model));
        self.of_keys.entry(row).or_default().add(debit);
    }
}

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS key_usage (
            account TEXT NOT NULL REFERENCES accounts, key TEXT NOT NULL, day INTEGER NOT NULL, model TEXT NOT NULL,
            requests INTEGER NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, cost INTEGER NOT NULL,
            PRIMARY KEY (account, key, day, model)
        ) STRICT, WITHOUT ROWID",
    )?;
    Ok(())
}

/// The statements by which sums are added to rows.
pub(super) struct UsageRows<'t> {
    of_account: CachedStatement<'t>,
    of_key: CachedStatement<'t>,
}

impl UsageRows<'_> {
    pub(super) fn prepare<'t>(t: &'t Transaction<'_>) -> Result<UsageRows<'t>, StoreError> {
        Ok(UsageRows {
            of_account: t.prepare_cached(
                "INSERT INTO usage (account, day, model, requests, prompt, completion, cost) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (account, day, model) DO UPDATE SET requests = requests + ?4, prompt = prompt + ?5,
                     completion = completion + ?6, cost = cost + ?7",
            )?,
            of_key: t.prepare_cached(
                "INSERT INTO key_usage (account, key, day, model, requests, prompt, completion, cost)
                 VALUES (?1, ?8, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (account, key, day, model) DO UPDATE SET requests = requests + ?4, prompt = prompt + ?5,
                     completion = completion + ?6, cost = cost + ?7",
            )?,
        })
    }

    /// Adds a group's sums to the rows of its account.
    pub(super) fn add(&mut self, account: &AccountId, usage: &UsageSums) -> Result<(), StoreError> {
        for ((day, model), sum) in in_order(&usage.of_account) {
            self.of_account.execute(params![
                account.as_str(),
                day.0,
                model.as_ref(),
                sum.requests,
                sum.prompt,
                sum.completion,
                sum.cost
            ])?;
        }
        Ok(())
    }

    /// Adds a group's sums to the rows of its account's keys.
    pub(super) fn add_of_keys(&mut self, account: &AccountId, usage: &UsageSums) -> Result<(), StoreError> {
        for ((key, day, model), sum) in in_order(&usage.of_keys) {
            self.of_key.execute(params![
                account.as_str(),
                day.0,
                model.as_ref(),
                sum.requests,
                sum.prompt,
                sum.completion,
                sum.cost,
                key.as_str()
            ])?;
        }
        Ok(())
    }
}

/// As the rows stand in their table.
fn in_order<K: Ord>(sums: &FastMap<K, UsageSum>) -> Vec<(&K, &UsageSum)> {
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_unstable_by_key(|(row, _)| *row);
    rows
}

/// The usage rows that are asked for, oldest first, seen from `today`.
pub(super) fn rows(connection: &Connection, query: &UsageQuery, today: Day) -> Result<Vec<KeyedRow>, StoreError> {
    let (from, to) = query.days.bounds(today);
    let table = match query.key.is_some() || query.by_key {
        true => "key_usage",
        false => "usage",
    };
    let key = if query.by_key { "key" } else { "NULL" };
    let of_key = if query.key.is_some() {
        "AND key = ?4"
    } else {
        "AND ?4 IS NULL"
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT day, model, requests, prompt, completion, cost, {key} FROM {table}
         WHERE account = ?1 AND day BETWEEN ?2 AND ?3 {of_key} ORDER BY day, model, 7"
    ))?;
    let wanted = query.key.as_ref().map(KeyId::as_str);
    let mut rows = statement.query(params![query.account.as_str(), from.0, to.0, wanted])?;
    let mut usage = Vec::new();
    while let Some(row) = rows.next()? {
        let key: Option<String> = row.get(6)?;
        let key = key.map(KeyId::from);
        usage.push(KeyedRow {
            key,
            row: usage_row(row)?,
        });
    }
    Ok(usage)
}

pub(super) fn usage_row(row: &Row<'_>) -> Result<UsageRow, StoreError> {
    let count = |value: i64| u64::try_from(value).map_err(|error| StoreError::Corrupt(error.to_string()));
    Ok(UsageRow {
        day: Day(row.get(0)?),
        model: row.get(1)?,
        requests: count(row.get(2)?)?,
        prompt_tokens: count(row.get(3)?)?,
        completion_tokens: count(row.get(4)?)?,
        cost: Credits::from_pico(row.get(5)?),
    })
}
