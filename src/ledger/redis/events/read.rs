//! What scripts answer of events.

use redis::Value;
use serde_json::Value as Json;

use super::missed::Missed;
use crate::ledger::StoreError;
use crate::ledger::admin::credits::CreditKind;
use crate::ledger::admin::events::{Event, EventCount, EventKind};
use crate::ledger::events::{self, EventTimes, Refused};
use crate::ledger::redis::reply::{self, corrupt};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Month, Timestamp};

/// What was claimed; says when the next is due, and how many were dropped there. An event that cannot be read is missed, and keeps back no other.
pub(super) fn claimed(
    value: &Value,
    account: Option<&AccountId>,
    claimed: &mut Vec<Event>,
    missed: &mut Missed,
) -> Result<(Option<Timestamp>, u64), StoreError> {
    let [next, list, dropped, now] = reply::list(value)? else {
        return Err(corrupt("a claim has other parts than it should"));
    };
    let now = Timestamp(reply::number(Some(reply::text(now)?))?);
    let at = EventTimes {
        clock: now,
        known: now,
        latest: now,
    };
    for part in reply::list(list)?.chunks_exact(3) {
        let [id, text, deliveries] = part else { continue };
        match open_event([id, text, deliveries], account) {
            Ok(mut event) => {
                event.claimed_at(at);
                claimed.push(event);
            }
            Err(error) => missed.note(corrupt(&format!(
                "the event {}: {error}",
                reply::text(id).unwrap_or_default()
            ))),
        }
    }
    let next = match reply::text(next)? {
        "" => None,
        next => Some(Timestamp(reply::number(Some(next))?)),
    };
    Ok((next, number(dropped)?))
}

/// An event, with who is still to be told.
fn open_event(parts: [&Value; 3], account: Option<&AccountId>) -> Result<Event, StoreError> {
    let [id, text, deliveries] = parts.map(reply::text);
    let (id, text, deliveries) = (id?, text?, deliveries?);
    let mut event = event(id, text, account)?;
    if !deliveries.is_empty() {
        let read = serde_json::from_str(deliveries);
        event.deliveries = read.map_err(|error| StoreError::Corrupt(format!("an event's deliveries: {error}")))?;
    }
    Ok(event)
}

pub(super) fn count(value: &Value) -> Result<EventCount, StoreError> {
    let [open, oldest, dropped] = reply::list(value)? else {
        return Err(corrupt("a count of events has other parts than it should"));
    };
    Ok(EventCount {
        open: number(open)?,
        oldest: match reply::text(oldest)? {
            "" => None,
            at => Some(Timestamp(reply::number(Some(at))?)),
        },
        dropped: number(dropped)?,
        is_partial: false,
    })
}

/// A number of events.
pub(super) fn number(value: &Value) -> Result<u64, StoreError> {
    u64::try_from(reply::integer(value)?).map_err(|_| corrupt("a negative count"))
}

/// Reads an event: kind, time, and what is told of it: JSON, or what a script has of it.
fn event(id: &str, text: &str, account: Option<&AccountId>) -> Result<Event, StoreError> {
    let mut parts = text.splitn(3, ' ');
    let kind = parts.next().unwrap_or_default().parse::<EventKind>();
    let kind = kind.map_err(|error| corrupt(&error))?;
    let at = Timestamp(reply::number(parts.next())?);
    let told = parts.next().unwrap_or_default();
    let data = match account {
        Some(account) if !told.starts_with('{') => data(kind, told, account)?,
        _ => serde_json::from_str(told).map_err(|error| StoreError::Corrupt(format!("an event: {error}")))?,
    };
    Ok(Event::new(id.to_owned(), kind, at, account.cloned(), data))
}

fn data(kind: EventKind, told: &str, account: &AccountId) -> Result<Json, StoreError> {
    let mut parts = told.splitn(4, ' ');
    let mut next = || parts.next();
    Ok(match kind {
        EventKind::LowBalance => {
            let (balance, low) = (reply::credits(next())?, reply::credits(next())?);
            events::low_balance(account, balance, low)
        }
        EventKind::Exhausted => {
            let available = reply::credits(next())?;
            let held = reply::held(reply::credits(next())?, reply::credits(next())?)?;
            Refused::Credit { available, held }.data(account)
        }
        EventKind::QuotaReached => {
            let (month, quota) = (Month(reply::number(next())?), reply::credits(next())?);
            let used = reply::credits(next())?;
            let held = reply::held(reply::credits(next())?, used)?;
            Refused::Quota {
                month,
                quota,
                used,
                held,
            }
            .data(account)
        }
        EventKind::CreditsAdded => {
            let kind = next().unwrap_or_default().parse::<CreditKind>();
            let kind = kind.map_err(|error| corrupt(&error))?;
            let amounts: (Credits, Credits) = (reply::credits(next())?, reply::credits(next())?);
            events::credits_added(account, kind, amounts, next().unwrap_or_default())
        }
        EventKind::KeyExpiring | EventKind::ProviderDown | EventKind::BooksUnbalanced | EventKind::Test => {
            return Err(corrupt(&format!("an event of the kind {kind} has no JSON")));
        }
    })
}
