//! Events for webhooks in the embedded ledger's file: each is written in the transaction that is its cause, so that neither is there without
//! the other.
//!
//! `event_accounts` has what was told of an account: of which `low_balance`; in `exhausted` whether a call was refused for lack of credit since
//! credit came in last, 0 where none was, 1 by builds that did not keep what was left then, else that and 2; by which month's quota one was
//! refused, and in `quota_told` both with what was left of it. Its row of the empty name counts the events that were dropped.

mod of_keys;
mod raise;

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use self::raise::{count_dropped, forget_ids, is_new, named_at, raise};
use super::{AccountDebit, Database, Reader, corrupt};
use crate::ledger::StoreError;
use crate::ledger::admin::credits::CreditPost;
use crate::ledger::admin::events::{Delivery, Event, EventCount, EventKind, next_due};
use crate::ledger::events::{self, DUE_WITHIN_MS, EventTimes, LEFT_UNKNOWN, Refused, Told};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Month, Timestamp};

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same, and raise nothing.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "BEGIN;
         CREATE TABLE IF NOT EXISTS events (
             id TEXT PRIMARY KEY, kind TEXT NOT NULL, at INTEGER NOT NULL, account TEXT NOT NULL, data TEXT NOT NULL,
             deliveries TEXT NOT NULL, due INTEGER NOT NULL
         ) STRICT;
         CREATE INDEX IF NOT EXISTS events_by_due ON events (due);
         CREATE INDEX IF NOT EXISTS events_by_time ON events (at);
         CREATE INDEX IF NOT EXISTS events_of_account ON events (account, at);
         CREATE TABLE IF NOT EXISTS event_accounts (
             account TEXT PRIMARY KEY, low INTEGER, exhausted INTEGER NOT NULL DEFAULT 0, quota_month INTEGER, quota INTEGER,
             dropped INTEGER NOT NULL DEFAULT 0
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS event_ids (id TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
         COMMIT;",
    )?;
    let sql = "SELECT count(*) FROM pragma_table_info('event_accounts') WHERE name = 'quota_told'";
    let known: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if known == 0 {
        connection.execute_batch("ALTER TABLE event_accounts ADD COLUMN quota_told TEXT")?;
    }
    Ok(())
}

/// Raises what a group of debits crosses. `low` is the account's `low_balance`.
pub(super) fn debited(
    t: &Transaction<'_>,
    account: &AccountId,
    debit: &AccountDebit,
    at: EventTimes,
) -> Result<(), StoreError> {
    match debit.low {
        None => Ok(()),
        Some(low) => watch(t, account, low, at),
    }
}

/// Raises what a credit entry tells, and notes that credit has come in.
pub(super) fn credited(
    t: &Transaction<'_>,
    post: &CreditPost,
    (balance, at): (Credits, EventTimes),
) -> Result<(), StoreError> {
    let account = &post.account;
    let data = events::credits_added(account, post.kind, (post.amount, balance), &post.reference);
    raise(t, (None, EventKind::CreditsAdded), Some(account), &data, at)?;
    if post.amount > Credits::ZERO {
        t.prepare_cached("UPDATE event_accounts SET exhausted = 0 WHERE account = ?1")?
            .execute([account.as_str()])?;
    }
    let terms: String = t
        .prepare_cached("SELECT terms FROM accounts WHERE id = ?1")?
        .query_row([account.as_str()], |row| row.get(0))?;
    match super::terms::read(&terms)?.low_balance {
        None => Ok(()),
        Some(low) => watch(t, account, low, at),
    }
}

/// An account's `low_balance` is this from now on: what was told of another one was not told of it, also when that comes back.
pub(super) fn forget_another_low(
    t: &Transaction<'_>,
    account: &AccountId,
    low: Option<Credits>,
) -> Result<(), StoreError> {
    t.prepare_cached("UPDATE event_accounts SET low = NULL WHERE account = ?1 AND low IS NOT ?2")?
        .execute(params![account.as_str(), low.map(Credits::pico)])?;
    Ok(())
}

/// Tells once of a balance below `low`, until it was not below it.
fn watch(t: &Transaction<'_>, account: &AccountId, low: Credits, at: EventTimes) -> Result<(), StoreError> {
    let (balance, told): (i64, Option<i64>) = t
        .prepare_cached(
            "SELECT balance, (SELECT low FROM event_accounts WHERE account = id) FROM accounts WHERE id = ?1",
        )?
        .query_row([account.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let balance = Credits::from_pico(balance);
    let (is_low, is_told) = (balance < low, told == Some(low.pico()));
    if is_low == is_told {
        return Ok(());
    }
    if is_low {
        let data = events::low_balance(account, balance, low);
        raise(t, (None, EventKind::LowBalance), Some(account), &data, at)?;
    }
    t.prepare_cached(
        "INSERT INTO event_accounts (account, low) VALUES (?1, ?2) ON CONFLICT (account) DO UPDATE SET low = ?2",
    )?
    .execute(params![account.as_str(), is_low.then_some(low.pico())])?;
    Ok(())
}

impl Database {
    /// What was told of accounts' refused calls.
    pub(in crate::ledger) fn told(&self) -> Result<HashMap<String, Told>, StoreError> {
        let sql = "SELECT account, exhausted, quota_month, quota, quota_told FROM event_accounts WHERE account != ''";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut all = HashMap::new();
        while let Some(row) = rows.next()? {
            let quota: Option<(i64, i64)> = row.get::<_, Option<i64>>(2)?.zip(row.get(3)?);
            let quota_told: Option<String> = row.get(4)?;
            let told = Told {
                exhausted: left_of_credit(row.get(1)?),
                quota: quota.map(|(month, quota)| {
                    let (month, quota) = (Month(month), Credits::from_pico(quota));
                    (month, quota, left_of_quota(month, quota, quota_told.as_deref()))
                }),
            };
            all.insert(row.get(0)?, told);
        }
        Ok(all)
    }

    /// Raises that a call was refused, and notes what has been told of refusals of its kind by then. Those of the other kind are noted with
    /// their own events.
    pub(in crate::ledger) fn raise_refused(
        &mut self,
        account: &AccountId,
        refused: &Refused,
        told: Told,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let at = self.event_times(at);
        let t = self.connection.transaction()?;
        raise(&t, (None, refused.kind()), Some(account), &refused.data(account), at)?;
        match refused {
            Refused::Credit { .. } => {
                let exhausted = told.exhausted.map_or(0, |left| left.pico().saturating_add(LEFT_FROM));
                t.prepare_cached(
                    "INSERT INTO event_accounts (account, exhausted) VALUES (?1, ?2)
                     ON CONFLICT (account) DO UPDATE SET exhausted = ?2",
                )?
                .execute(params![account.as_str(), exhausted])?;
            }
            Refused::Quota { .. } => {
                let (month, quota) = told.quota.map(|(month, quota, _)| (month.0, quota.pico())).unzip();
                let quota_told = told
                    .quota
                    .map(|(month, quota, left)| quota_text(month, quota) + &left.pico().to_string());
                t.prepare_cached(
                    "INSERT INTO event_accounts (account, quota_month, quota, quota_told) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (account) DO UPDATE SET quota_month = ?2, quota = ?3, quota_told = ?4",
                )?
                .execute(params![account.as_str(), month, quota, quota_told])?;
            }
        }
        t.commit()?;
        Ok(())
    }

    /// Keeps an event of the gateway's own, once an id.
    pub(in crate::ledger) fn raise_once(&mut self, event: &Event, now: Timestamp) -> Result<(), StoreError> {
        let now = self.event_times(now);
        self.durably(|t| {
            forget_ids(t, now)?;
            if !is_new(t, &event.id, now)? {
                return Ok(());
            }
            let (named, at) = named_at(event, now);
            raise(t, named, event.account.as_ref(), &event.data, at)
        })
    }

    /// Events that are due and not claimed, oldest due first; behind them those that a clock which was ahead has put off. One that cannot be
    /// read is passed over, and beside them is why.
    pub(in crate::ledger) fn due_events(
        &self,
        now: Timestamp,
        limit: usize,
        is_claimed: impl Fn(&str) -> bool,
    ) -> Result<(Vec<Event>, Option<StoreError>), StoreError> {
        let (mut due, mut unreadable) = (Vec::new(), None);
        for (is_due, than) in [("due <= ?1", now), ("due > ?1", now.plus_millis(DUE_WITHIN_MS))] {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT id, kind, at, account, data, deliveries FROM events WHERE {is_due} ORDER BY due, rowid",
            ))?;
            // The index has them in this order, so that no more are read than are given or claimed.
            let mut rows = statement.query([than.0])?;
            while due.len() < limit
                && let Some(row) = rows.next()?
            {
                let id: String = row.get(0)?;
                if is_claimed(&id) {
                    continue;
                }
                match event(row) {
                    Ok(event) => due.push(event),
                    Err(error) => {
                        unreadable.get_or_insert_with(|| corrupt(format!("the event {id}: {error}")));
                    }
                }
            }
        }
        Ok((due, unreadable))
    }

    /// Whether something is still to be told.
    pub(in crate::ledger) fn has_events(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM events)";
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// When the newest open event happened.
    pub(super) fn newest_event(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT max(at) FROM events";
        let newest: Option<i64> = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(newest.map(Timestamp))
    }

    /// What time it is from now on, as far as that is known: by this an event is too old.
    pub(in crate::ledger) fn know_time(&mut self, known: Timestamp) {
        self.known = known;
    }

    /// The latest that it can be from now on: an event happens then.
    pub(in crate::ledger) fn know_latest(&mut self, latest: Timestamp) {
        self.latest = latest;
    }

    pub(super) fn event_times(&self, clock: Timestamp) -> EventTimes {
        EventTimes {
            clock,
            known: self.known,
            latest: self.latest.max(clock),
        }
    }

    /// Keeps who is still to be told of an event; with nobody left it goes.
    pub(in crate::ledger) fn settle_event(&mut self, id: &str, deliveries: &[Delivery]) -> Result<(), StoreError> {
        match next_due(deliveries) {
            None => self
                .connection
                .prepare_cached("DELETE FROM events WHERE id = ?1")?
                .execute([id])?,
            Some(due) => {
                let text = serde_json::to_string(deliveries).map_err(corrupt)?;
                self.connection
                    .prepare_cached("UPDATE events SET deliveries = ?2, due = ?3 WHERE id = ?1")?
                    .execute(params![id, text, due.0])?
            }
        };
        Ok(())
    }

    /// Forgets an event that not every webhook has: it counts as dropped, unless it has gone before.
    pub(in crate::ledger) fn drop_event(&mut self, id: &str) -> Result<(), StoreError> {
        let t = self.connection.transaction()?;
        let dropped = t.prepare_cached("DELETE FROM events WHERE id = ?1")?.execute([id])?;
        count_dropped(&t, dropped)?;
        t.commit()?;
        Ok(())
    }
}

impl Reader {
    /// What is still to be told.
    pub(in crate::ledger) fn event_count(&self) -> Result<EventCount, StoreError> {
        let (open, oldest): (i64, Option<i64>) = self
            .connection
            .prepare_cached("SELECT count(*), min(at) FROM events")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let dropped: Option<i64> = self
            .connection
            .prepare_cached("SELECT dropped FROM event_accounts WHERE account = ''")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(EventCount {
            open: u64::try_from(open).map_err(corrupt)?,
            oldest: oldest.map(Timestamp),
            dropped: u64::try_from(dropped.unwrap_or(0)).map_err(corrupt)?,
            is_partial: false,
        })
    }
}

/// What was left of the credit, as `exhausted` has it; none where nothing was told.
fn left_of_credit(exhausted: i64) -> Option<Credits> {
    match exhausted {
        ..=0 => None,
        1 => Some(LEFT_UNKNOWN),
        left => Some(Credits::from_pico(left.saturating_sub(LEFT_FROM))),
    }
}

/// What was left of the quota, as `quota_told` has it. That of another month or quota is from before a build that did not keep it told of this.
fn left_of_quota(month: Month, quota: Credits, told: Option<&str>) -> Credits {
    let left = told.and_then(|text| text.strip_prefix(&quota_text(month, quota)));
    let left = left.and_then(|left| left.parse::<i64>().ok());
    left.map_or(LEFT_UNKNOWN, Credits::from_pico)
}

/// What `quota_told` begins with.
fn quota_text(month: Month, quota: Credits) -> String {
    format!("{} {} ", month.0, quota.pico())
}

/// `exhausted` where nothing was left.
const LEFT_FROM: i64 = 2;

fn event(row: &Row<'_>) -> Result<Event, StoreError> {
    let kind: String = row.get(1)?;
    let account: String = row.get(3)?;
    Ok(Event {
        id: row.get(0)?,
        kind: kind.parse().map_err(corrupt)?,
        at: Timestamp(row.get(2)?),
        account: match account.as_str() {
            "" => None,
            name => Some(name.parse().map_err(corrupt)?),
        },
        data: serde_json::from_str(&row.get::<_, String>(4)?).map_err(corrupt)?,
        deliveries: serde_json::from_str(&row.get::<_, String>(5)?).map_err(corrupt)?,
        claimed: None,
        is_too_old: false,
    })
}
