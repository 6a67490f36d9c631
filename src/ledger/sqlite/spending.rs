//! What keys with limits, and their end users, have spent: a row each and period. A key has rows from its first limit on, for ever.
//!
//! Beside the usage of keys, which counts a call on the day on which it ended, these count it in the period in which it came.

use std::collections::HashMap;

use rusqlite::{Connection, Row, Transaction, params};

use super::{Database, PART, corrupt};
use crate::ledger::StoreError;
use crate::ledger::admin::AuditFinding;
use crate::ledger::key_settings::KeySettings;
use crate::ledger::records::clamped;
use crate::pure::account::KeptSpending;
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::money::Credits;
use crate::pure::spend::{EndUserId, SpendPeriod};
use crate::pure::time::Day;

/// What a group of debits adds: who spent how much in which period.
pub(in crate::ledger) type SpendSums = HashMap<(KeyId, Option<EndUserId>, SpendPeriod), Credits>;

/// What a key with limits has spent in all, where that is not what its usage says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct WrongSpent {
    pub(in crate::ledger) account: AccountId,
    pub(in crate::ledger) key: KeyId,
    /// What its usage says.
    pub(in crate::ledger) expected: Credits,
    pub(in crate::ledger) found: Credits,
}

/// The rule that such a key breaks.
pub(in crate::ledger) const SPENT_RULE: &str = "usage of the key = spent by the key";

/// A row by its name: up to which one all were looked at. Without one it is before the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct SpentRow {
    account: String,
    key: String,
    end_user: String,
    period: String,
}

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same, and know no limits.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_table_info('keys') WHERE name = 'settings'";
    let known: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if known == 0 {
        connection.execute_batch("ALTER TABLE keys ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'")?;
    }
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS spent (
            account TEXT NOT NULL REFERENCES accounts, key TEXT NOT NULL, end_user TEXT NOT NULL, period TEXT NOT NULL,
            spent INTEGER NOT NULL, PRIMARY KEY (account, key, end_user, period)
        ) STRICT, WITHOUT ROWID",
    )?;
    Ok(())
}

/// What each account's keys and end users have spent, in the periods that were not over before `day`.
pub(super) fn since(connection: &Connection, day: Day) -> Result<HashMap<String, KeptSpending>, StoreError> {
    let mut statement = connection.prepare("SELECT account, key, end_user, period, spent FROM spent")?;
    let mut rows = statement.query([])?;
    let mut all: HashMap<String, KeptSpending> = HashMap::new();
    while let Some(row) = rows.next()? {
        let period: SpendPeriod = row.get_ref(3)?.as_str().map_err(corrupt)?.parse().map_err(corrupt)?;
        if period.is_before(day) {
            continue;
        }
        let (key, end_user): (String, String) = (row.get(1)?, row.get(2)?);
        let end_user = match end_user.as_str() {
            "" => None,
            _ => Some(EndUserId::try_from(end_user).map_err(corrupt)?),
        };
        let spent = Credits::from_pico(row.get(4)?);
        all.entry(row.get(0)?)
            .or_default()
            .insert((key.into(), end_user, period), spent);
    }
    Ok(all)
}

/// Adds a group's sums to the rows of its account. A sum that would leave the range is the largest amount, as in memory.
pub(super) fn write(t: &Transaction<'_>, account: &AccountId, sums: &SpendSums) -> Result<(), StoreError> {
    for ((key, end_user, period), spent) in sums {
        t.prepare_cached(
            "INSERT INTO spent (account, key, end_user, period, spent) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (account, key, end_user, period) DO UPDATE
             SET spent = CASE WHEN spent > 9223372036854775807 - ?5 THEN 9223372036854775807 ELSE spent + ?5 END",
        )?
        .execute(params![
            account.as_str(),
            key.as_str(),
            end_user.map(String::from).unwrap_or_default(),
            period.to_string(),
            spent.pico()
        ])?;
    }
    Ok(())
}

impl Database {
    /// Keeps a key's settings. One that has a limit now has what it spent before counted from its usage, and that is told.
    pub(in crate::ledger) fn set_key(
        &mut self,
        digest: &KeyDigest,
        (account, key): (&AccountId, &KeyId),
        settings: &KeySettings,
        counts: bool,
    ) -> Result<HashMap<SpendPeriod, Credits>, StoreError> {
        let text = serde_json::to_string(settings).map_err(corrupt)?;
        self.durably(|t| {
            t.execute(
                "UPDATE keys SET settings = ?2 WHERE digest = ?1",
                params![digest.to_hex(), text],
            )?;
            if !counts {
                return Ok(HashMap::new());
            }
            let before = spent_before(t, account, key)?;
            let row = |(period, spent): (&SpendPeriod, &Credits)| ((key.clone(), None, *period), *spent);
            write(t, account, &before.iter().map(row).collect())?;
            Ok(before)
        })
    }

    /// Looks at the rows that follow `from`, a few of them, and deletes those of periods that were over long before `today`: their usage
    /// stays. The last row that was looked at; none when no more follow.
    pub(in crate::ledger) fn forget_spending(
        &mut self,
        from: &SpentRow,
        today: Day,
    ) -> Result<Option<SpentRow>, StoreError> {
        let oldest = Day(today.0.saturating_sub(KEPT_DAYS));
        let mut rows = self.rows_behind(from)?;
        let mut old: Vec<&SpentRow> = Vec::new();
        for row in &rows {
            if row.period.parse::<SpendPeriod>().map_err(corrupt)?.is_before(oldest) {
                old.push(row);
            }
        }
        if !old.is_empty() {
            let transaction = self.connection.transaction()?;
            for row in old {
                transaction
                    .prepare_cached(
                        "DELETE FROM spent WHERE account = ?1 AND key = ?2 AND end_user = ?3 AND period = ?4",
                    )?
                    .execute([&row.account, &row.key, &row.end_user, &row.period])?;
            }
            transaction.commit()?;
        }
        let is_last = rows.len() < usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX);
        Ok(rows.pop().filter(|_| !is_last))
    }

    /// In the order in which they lie in the file, so that no index is needed to look through all of them.
    fn rows_behind(&self, from: &SpentRow) -> Result<Vec<SpentRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT account, key, end_user, period FROM spent WHERE (account, key, end_user, period) > (?1, ?2, ?3, ?4)
             ORDER BY account, key, end_user, period LIMIT ?5",
        )?;
        let named = |row: &Row<'_>| {
            Ok(SpentRow {
                account: row.get(0)?,
                key: row.get(1)?,
                end_user: row.get(2)?,
                period: row.get(3)?,
            })
        };
        let (account, key, end_user, period) = (&from.account, &from.key, &from.end_user, &from.period);
        let rows = statement.query_map(params![account, key, end_user, period, ROWS_AT_ONCE], named)?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(rows)
    }

    /// What a key with a limit has spent in all is what its usage says, with that of keys which count as it, or the largest amount where that is
    /// more.
    pub(super) fn audit_spending(&self, findings: &mut Vec<AuditFinding>) -> Result<(), StoreError> {
        findings.extend(self.wrong_spending()?.into_iter().map(|wrong| AuditFinding {
            account: wrong.account,
            rule: SPENT_RULE.to_owned(),
            expected: wrong.expected,
            found: wrong.found,
        }));
        Ok(())
    }

    /// Makes it that, and says where it was not.
    pub(in crate::ledger) fn repair_spending(&mut self) -> Result<Vec<WrongSpent>, StoreError> {
        let all = self.wrong_spending()?;
        if all.is_empty() {
            return Ok(all);
        }
        self.durably(|t| {
            for wrong in &all {
                t.execute(
                    "UPDATE spent SET spent = ?3 WHERE account = ?1 AND key = ?2 AND end_user = '' AND period = 't'",
                    params![wrong.account.as_str(), wrong.key.as_str(), wrong.expected.pico()],
                )?;
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn wrong_spending(&self) -> Result<Vec<WrongSpent>, StoreError> {
        let mut all = Vec::new();
        let others = self.usage_for_other_keys()?;
        let mut statement = self.connection.prepare_cached(&usage_of_spenders())?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let spender: (String, String) = (row.get(0)?, row.get(1)?);
            let found = Credits::from_pico(row.get(2)?);
            let of_others = others.get(&spender).copied().unwrap_or_default();
            let expected = clamped(usage(row, 3)?.saturating_add(of_others));
            if expected != found {
                let (account, key) = spender;
                all.push(WrongSpent {
                    account: account.parse().map_err(corrupt)?,
                    key: key.into(),
                    expected,
                    found,
                });
            }
        }
        Ok(all)
    }

    /// What the usage of keys comes to that count as another one, by account and that other key.
    fn usage_for_other_keys(&self) -> Result<HashMap<(String, String), i128>, StoreError> {
        let mut statement = self.connection.prepare_cached(&usage_of_sharers())?;
        let mut rows = statement.query([])?;
        let mut all: HashMap<(String, String), i128> = HashMap::new();
        while let Some(row) = rows.next()? {
            let sum = all.entry((row.get(0)?, row.get(1)?)).or_default();
            *sum = sum.saturating_add(usage(row, 2)?);
        }
        Ok(all)
    }
}

/// Each key that has spent under limits, with what it has spent in all and its own usage.
pub(super) fn usage_of_spenders() -> String {
    let usage = usage_of("s.account", "s.key");
    format!("SELECT s.account, s.key, s.spent, {usage} FROM spent s WHERE s.end_user = '' AND s.period = 't'")
}

/// Each key that counts as another one, with that one and its own usage.
pub(super) fn usage_of_sharers() -> String {
    let usage = usage_of("k.account", KEY_ID);
    format!("SELECT k.account, {COUNTS_AS}, {usage} FROM keys k WHERE {COUNTS_AS} <> {KEY_ID}")
}

/// A key's usage in two parts, for that of a long life leaves the range of an int64. It is found by account and key, so that an audit looks at
/// each row of usage twice, however many keys there are.
fn usage_of(account: &str, key: &str) -> String {
    let rows = format!("FROM key_usage u WHERE u.account = {account} AND u.key = {key}");
    format!("(SELECT coalesce(sum(cost / {PART}), 0) {rows}), (SELECT coalesce(sum(cost % {PART}), 0) {rows})")
}

/// The same as a row has it, from this column on.
fn usage(row: &Row<'_>, at: usize) -> Result<i128, StoreError> {
    let (whole, rest): (i64, i64) = (row.get(at)?, row.get(at.saturating_add(1))?);
    Ok(i128::from(whole) * i128::from(PART) + i128::from(rest))
}

fn spent_before(
    t: &Transaction<'_>,
    account: &AccountId,
    key: &KeyId,
) -> Result<HashMap<SpendPeriod, Credits>, StoreError> {
    // The key is counted from now on even if it has spent nothing.
    let mut before = HashMap::from([(SpendPeriod::Life, Credits::ZERO)]);
    let mut statement = t.prepare_cached("SELECT day, cost FROM key_usage WHERE account = ?1 AND key = ?2")?;
    let mut rows = statement.query(params![account.as_str(), key.as_str()])?;
    while let Some(row) = rows.next()? {
        for period in SpendPeriod::all_of(Day(row.get(0)?)) {
            let sum = before.entry(period).or_default();
            *sum = sum.saturating_add(Credits::from_pico(row.get(1)?));
        }
    }
    Ok(before)
}

/// For how many days after its end a period is remembered: calls that came in it may be found in a journal as late. In Redis, too (`spend.lua`).
const KEPT_DAYS: i64 = 62;
/// How many rows are looked at, and may be deleted, at once: some milliseconds.
pub(super) const ROWS_AT_ONCE: i64 = 500;
/// The key that a row of `keys` counts as, if it is another one.
const COUNTS_AS: &str = "json_extract(k.settings, '$.counts_as')";
/// The id of the key of a row of `keys`.
const KEY_ID: &str = "'key_' || substr(k.digest, 1, 16)";
