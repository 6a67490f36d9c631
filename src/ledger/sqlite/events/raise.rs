//! How an event is kept, and room made for it, within a transaction.

use rusqlite::{Transaction, params};
use serde_json::Value;

use crate::ledger::StoreError;
use crate::ledger::admin::events::{Event, EventKind};
use crate::ledger::events::{EventTimes, KEEP_MS, OPEN_MAX, OPEN_PER_ACCOUNT_MAX, REMEMBERED_MS};
use crate::ledger::sqlite::corrupt;
use crate::pure::ids::AccountId;

/// Keeps an event; the oldest make room for it. One without an id gets one.
pub(super) fn raise(
    t: &Transaction<'_>,
    named: (Option<&str>, EventKind),
    account: Option<&AccountId>,
    data: &Value,
    at: EventTimes,
) -> Result<(), StoreError> {
    let name = account.map_or("", AccountId::as_str);
    drop_old(t, at)?;
    make_room(t, name)?;
    keep(t, named, name, data, at)
}

/// Drops events that are too old.
pub(super) fn drop_old(t: &Transaction<'_>, at: EventTimes) -> Result<(), StoreError> {
    let dropped = t
        .prepare_cached("DELETE FROM events WHERE at < ?1")?
        .execute([at.known.0.saturating_sub(KEEP_MS)])?;
    count_dropped(t, dropped)
}

/// Drops the oldest events where there would be too many with one more about the account of this name.
pub(super) fn make_room(t: &Transaction<'_>, name: &str) -> Result<(), StoreError> {
    let mut dropped = 0_usize;
    for (count, delete, most) in [
        (
            "SELECT count(*) FROM events WHERE account = ?1",
            "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE account = ?1 ORDER BY at, rowid LIMIT ?2)",
            OPEN_PER_ACCOUNT_MAX,
        ),
        (
            "SELECT count(*) FROM events WHERE ?1 = ?1",
            "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE ?1 = ?1 ORDER BY at, rowid LIMIT ?2)",
            OPEN_MAX,
        ),
    ] {
        let open: i64 = t.prepare_cached(count)?.query_row([name], |row| row.get(0))?;
        let over = open.saturating_add(1).saturating_sub(i64::from(most));
        if over > 0 {
            dropped = dropped.saturating_add(t.prepare_cached(delete)?.execute(params![name, over])?);
        }
    }
    count_dropped(t, dropped)
}

/// Counts events that have gone before every webhook had them.
pub(super) fn count_dropped(t: &Transaction<'_>, dropped: usize) -> Result<(), StoreError> {
    if dropped > 0 {
        t.prepare_cached(
            "INSERT INTO event_accounts (account, dropped) VALUES ('', ?1)
             ON CONFLICT (account) DO UPDATE SET dropped = dropped + ?1",
        )?
        .execute([i64::try_from(dropped).unwrap_or(i64::MAX)])?;
    }
    Ok(())
}

/// Keeps an event for which there is room.
pub(super) fn keep(
    t: &Transaction<'_>,
    (id, kind): (Option<&str>, EventKind),
    name: &str,
    data: &Value,
    at: EventTimes,
) -> Result<(), StoreError> {
    let data = serde_json::to_string(data).map_err(corrupt)?;
    t.prepare_cached(
        "INSERT INTO events (id, kind, at, account, data, deliveries, due)
         VALUES (coalesce(?1, 'evt_' || lower(hex(randomblob(16)))), ?2, ?3, ?4, ?5, '[]', ?6)",
    )?
    .execute(params![id, kind.name(), at.latest.0, name, data, at.clock.0])?;
    Ok(())
}

/// Forgets ids that were known for long enough. That looks at each: once a transaction.
pub(super) fn forget_ids(t: &Transaction<'_>, now: EventTimes) -> Result<(), StoreError> {
    t.prepare_cached("DELETE FROM event_ids WHERE until < ?1")?
        .execute([now.known.0])?;
    Ok(())
}

/// Whether the id was not known; it is from now on.
pub(super) fn is_new(t: &Transaction<'_>, id: &str, now: EventTimes) -> Result<bool, StoreError> {
    let new = t
        .prepare_cached("INSERT INTO event_ids (id, until) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING")?
        .execute(params![id, now.latest.0.saturating_add(REMEMBERED_MS)])?;
    Ok(new > 0)
}

/// How an event of the gateway's own is kept that is raised now.
pub(super) fn named_at(event: &Event, now: EventTimes) -> ((Option<&str>, EventKind), EventTimes) {
    ((Some(event.id.as_str()), event.kind), now.when(event.at))
}
