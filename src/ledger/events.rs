//! What events for webhooks tell, and how many are kept. Stores raise them in the step that is their cause.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::admin::credits::CreditKind;
use super::admin::events::{Event, EventKind};
use super::admin::{AdminReply, AuditFinding, AuditReport};
use super::{KeyRecord, StoreError};
use crate::clock::Clock;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Month, Timestamp};

/// The most open events about one account, or about none; the oldest goes for one that is new.
pub(crate) const OPEN_PER_ACCOUNT_MAX: u32 = 1_000;
/// With so many open events of keys that expire no more of an account's keys are told which can wait: that is for a later look.
pub(crate) const OPEN_OF_KEYS_MAX: u32 = OPEN_PER_ACCOUNT_MAX / 2;
/// With so many none is told: keys that expire soon have places that the others do not take.
const OPEN_OF_ALL_KEYS_MAX: u32 = OPEN_PER_ACCOUNT_MAX / 4 * 3;
/// With so much time left until it expires, in milliseconds, an event of a key waits no more for room: three days.
pub(crate) const AWAITED_UNTIL_MS: i64 = 3 * 86_400_000;
/// The most open events in an embedded ledger; the oldest goes for one that is new.
pub(crate) const OPEN_MAX: u32 = 100_000;
/// For how long an event is told to who does not take it, in milliseconds: three days.
pub(crate) const KEEP_MS: i64 = 3 * 86_400_000;
/// For how long the id of an event of the gateway's own is known, in milliseconds: it is raised once in this time.
pub(crate) const REMEMBERED_MS: i64 = 9 * 86_400_000;
/// So long before it expires, a key's event is raised, in milliseconds: a week.
pub(crate) const EXPIRING_MS: i64 = 7 * 86_400_000;
/// Later than this no delivery is due, in milliseconds: an hour, where the longest pause is 18 minutes. One that is was put off by a clock that
/// was ahead, and is due.
pub(crate) const DUE_WITHIN_MS: i64 = 3_600_000;
/// The most events that are given at once.
pub(crate) const CLAIMED_MAX: u32 = 1_000;

/// A call that was refused in a way that its account's operator is told of, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// For lack of credit.
    Credit { available: Credits, held: Credits },
    /// By the monthly quota.
    Quota {
        month: Month,
        quota: Credits,
        used: Credits,
        held: Credits,
    },
}

/// What is done for the event of a key where another open one would go for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It waits for a later look.
    Awaited,
    /// The oldest one goes, as for each other event, unless very many are of keys: the key expires soon.
    Made,
}

impl Room {
    /// With how many open events of keys that expire it waits all the same.
    pub(crate) fn open_of_keys_max(self) -> u32 {
        match self {
            Room::Awaited => OPEN_OF_KEYS_MAX,
            Room::Made => OPEN_OF_ALL_KEYS_MAX,
        }
    }
}

/// By which times an event is raised or claimed, and others are forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTimes {
    /// What the clock says: from then on the event is due.
    pub(super) clock: Timestamp,
    /// What time it is as far as that is known: what is too old by then is forgotten. A clock that is ahead for a moment would have all go.
    pub(super) known: Timestamp,
    /// The latest that it can be: when an event is said to have happened. By a clock that is behind, it would be too old once that is set right.
    pub(super) latest: Timestamp,
}

impl EventTimes {
    /// The same of what happened when this clock said another time.
    pub(super) fn when(self, clock: Timestamp) -> EventTimes {
        EventTimes {
            clock,
            latest: self.latest.plus_millis(clock.since(self.clock)),
            ..self
        }
    }
}

/// What was told of an account's refused calls: the first, and then one that leaves less than half of what the one told before left. So a
/// call that needs more than there is does not use up the event of the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Of lack of credit, since credit came in last: the balance at the refusal that was told last, at least 0.
    pub(super) exhausted: Option<Credits>,
    /// Of a month's quota: the month, the quota, and what of it was not used at the refusal that was told last.
    pub(super) quota: Option<(Month, Credits, Credits)>,
}

/// What a refusal left that a build told which did not keep that: so much that the next one is told.
pub(super) const LEFT_UNKNOWN: Credits = Credits::MAX;

/// Whether a refusal is told that leaves so much, where the one that was told before left `before`.
pub(super) fn is_told_again(left: Credits, before: Credits) -> bool {
    left.saturating_add(left) < before
}

impl Refused {
    pub(crate) fn kind(&self) -> EventKind {
        match self {
            Refused::Credit { .. } => EventKind::Exhausted,
            Refused::Quota { .. } => EventKind::QuotaReached,
        }
    }

    pub(crate) fn data(&self, account: &AccountId) -> Value {
        match self {
            Refused::Credit { available, held } => json!({
                "account": account, "available": available.to_string(), "held": held.to_string(),
            }),
            Refused::Quota {
                month,
                quota,
                used,
                held,
            } => json!({
                "account": account, "month": month_text(*month), "monthly_quota": quota.to_string(),
                "monthly_used": used.to_string(), "held": held.to_string(),
            }),
        }
    }
}

/// The answer to a claim. `missed` is why some could not be asked for or read.
///
/// # Errors
/// When that is so, and nothing was claimed: nobody knows that there is nothing.
pub(super) fn claimed(events: Vec<Event>, missed: Option<StoreError>) -> Result<AdminReply, StoreError> {
    match missed {
        Some(why) if events.is_empty() => Err(why),
        missed => Ok(AdminReply::Events {
            events,
            missed: missed.map(|why| why.to_string()),
        }),
    }
}

/// The answer to a look at keys that expire. One that was not whole says so by events that it does not have: builds before it was told take any
/// answer for a whole one.
pub(super) fn looked(is_whole: bool) -> AdminReply {
    match is_whole {
        true => AdminReply::Done,
        false => AdminReply::Events {
            events: Vec::new(),
            missed: Some("not all keys were looked at".to_owned()),
        },
    }
}

/// Says that accounts have keys which expire and are not told of yet, if there are any.
pub(super) fn warn_of_waiting(accounts: usize) {
    if accounts > 0 {
        log::warn!(
            "keys of {accounts} accounts expire, and are not told of yet: too many events of these accounts are open"
        );
    }
}

/// What is told of a balance that has fallen.
pub(crate) fn low_balance(account: &AccountId, balance: Credits, low: Credits) -> Value {
    json!({ "account": account, "balance": balance.to_string(), "low_balance": low.to_string() })
}

/// What is told of a credit entry.
pub(crate) fn credits_added(
    account: &AccountId,
    kind: CreditKind,
    (amount, balance): (Credits, Credits),
    reference: &str,
) -> Value {
    json!({
        "account": account, "kind": kind, "amount": amount.to_string(), "balance": balance.to_string(),
        "reference": reference,
    })
}

/// When a key expires, if that is soon, and what is done for its event.
pub(crate) fn expires_soon(key: &KeyRecord, now: Timestamp) -> Option<(Timestamp, Room)> {
    let expires = key.expires.filter(|_| key.revoked.is_none())?;
    let left = expires.since(now);
    if !(1..=EXPIRING_MS).contains(&left) {
        return None;
    }
    let room = match left <= AWAITED_UNTIL_MS {
        true => Room::Made,
        false => Room::Awaited,
    };
    Some((expires, room))
}

/// The event of a key that expires soon; none for another one. It has one id for as long as the key expires then.
pub(crate) fn expiring(key: &KeyRecord, now: Timestamp) -> Option<(Event, Room)> {
    let (expires, room) = expires_soon(key, now)?;
    let name = format!("key {} {}", key.id, expires.0);
    let data = json!({
        "account": key.account, "key": key.id, "label": key.settings.label, "expires_at": expires.to_string(),
    });
    let account = Some(key.account.clone());
    Some((
        Event::new(id_of(&name), EventKind::KeyExpiring, now, account, data),
        room,
    ))
}

/// The event by which somebody tries one webhook, or all.
pub(crate) fn test(clock: &Clock, url: Option<&str>) -> Event {
    let id = format!("evt_{}", clock.request_id().to_string().replace('-', ""));
    Event::new(id, EventKind::Test, clock.now(), None, json!({ "url": url }))
}

/// The event of what an audit found: one id for the same findings of a day. Of an account that it has passed over it may have found any part:
/// that is one and the same.
pub(crate) fn unbalanced(report: &AuditReport, now: Timestamp) -> Event {
    let AuditReport {
        findings, passed_over, ..
    } = report;
    let lines = findings.iter().map(|finding| {
        let AuditFinding { account, rule, .. } = finding;
        match passed_over.contains(account) {
            true => account.to_string(),
            false => format!("{account} {rule} {} {}", finding.expected, finding.found),
        }
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.dedup();
    let shown = findings.iter().take(FINDINGS_TOLD_MAX).map(|finding| {
        json!({
            "account": finding.account, "rule": finding.rule, "expected": finding.expected.to_string(),
            "found": finding.found.to_string(),
        })
    });
    let data = json!({ "findings": findings.len(), "first": shown.collect::<Vec<Value>>() });
    let id = id_of(&format!("books {} {}", now.day(), lines.join("\n")));
    Event::new(id, EventKind::BooksUnbalanced, now, None, data)
}

fn id_of(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let mut id = "evt_".to_owned();
    id.extend(digest.iter().take(16).map(|byte| format!("{byte:02x}")));
    id
}

/// Findings of an audit that an event names.
const FINDINGS_TOLD_MAX: usize = 20;

impl Event {
    /// An event that nobody has claimed yet.
    pub(crate) fn new(id: String, kind: EventKind, at: Timestamp, account: Option<AccountId>, data: Value) -> Event {
        Event {
            id,
            kind,
            at,
            account,
            data,
            deliveries: Vec::new(),
            claimed: None,
            is_too_old: false,
        }
    }

    /// Says when it was claimed, and whether it is too old by the ledger's own time.
    pub(in crate::ledger) fn claimed_at(&mut self, at: EventTimes) {
        self.claimed = Some(at.clock);
        self.is_too_old = at.known.since(self.at) > KEEP_MS;
    }
}

fn month_text(Month(month): Month) -> String {
    format!("{:04}-{:02}", month.div_euclid(100), month.rem_euclid(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_for_three_days_known_for_nine_and_a_key_is_told_of_a_week_before_its_end() {
        let days = [KEEP_MS, REMEMBERED_MS, EXPIRING_MS, AWAITED_UNTIL_MS];
        let days = days.map(|ms| (ms / 86_400_000, ms % 86_400_000));
        assert_eq!(days, [(3, 0), (9, 0), (7, 0), (3, 0)]);
    }

    #[test]
    fn a_claim_that_missed_something_says_so_and_is_never_empty() {
        let event = Event::new("evt_x".to_owned(), EventKind::Test, Timestamp(1), None, json!({}));
        let why = StoreError::Unavailable("away".to_owned());
        assert_eq!(claimed(Vec::new(), Some(why.clone())), Err(why.clone()));
        for (events, missed) in [
            (vec![event.clone()], Some(why)),
            (vec![event], None),
            (Vec::new(), None),
        ] {
            let told = missed.as_ref().map(ToString::to_string);
            let expected = AdminReply::Events {
                events: events.clone(),
                missed: told,
            };
            assert_eq!(claimed(events, missed), Ok(expected));
        }
    }

    #[test]
    fn an_event_of_the_gateways_own_has_one_id_and_another_has_another() {
        let [one, again, other] = ["key a 1", "key a 1", "key a 2"].map(id_of);
        assert_eq!(one, again);
        assert_ne!(one, other);
        let digits = one.strip_prefix("evt_").unwrap();
        assert!(
            digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{one}"
        );
    }
}
