//! Keys that expire soon, beside other events that are open.

use serde_json::json;

use super::events::{count, kinds, raised, told};
use crate::ledger::Caller;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};
use crate::ledger::events::{AWAITED_UNTIL_MS, OPEN_OF_KEYS_MAX, OPEN_PER_ACCOUNT_MAX, Room};
use crate::ledger::tests::rig::{NOW, Rig, key_create};
use crate::pure::ids::{ApiKey, KeyId};

/// An account with so many open events of another kind.
fn with_open(rig: &Rig, open: u32) -> Caller {
    let caller = rig.caller("0");
    raise(rig, &caller, EventKind::Test, open);
    caller
}

/// Raises so many events of this kind.
fn raise(rig: &Rig, caller: &Caller, kind: EventKind, count: u32) {
    for n in 0..count {
        let account = Some(caller.account.id.clone());
        let event = Event::new(format!("evt_{n}"), kind, NOW, account, json!({ "key": "another" }));
        raised(rig, &event).unwrap();
    }
}

/// Makes a key of the account that expires in so many milliseconds.
fn key(rig: &Rig, byte: u8, ms: i64) -> KeyId {
    let digest = ApiKey::from_random("tg_", [byte; 32]).digest();
    let mut create = key_create("acme", &digest);
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(ms);
    }
    rig.run(create).unwrap();
    KeyId::of(&digest)
}

/// A webhook that is away keeps its events open: another one is told of keys all the same.
pub(super) fn other_open_events_keep_no_key_from_being_told(rig: &Rig) {
    let open = OPEN_OF_KEYS_MAX + 10;
    let caller = with_open(rig, open);
    key(rig, 9, AWAITED_UNTIL_MS + 1);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    assert_eq!(count(rig).open, u64::from(open) + 1);
    let told = kinds(&told(&rig.ledger, &caller));
    let of_keys = told.iter().filter(|kind| **kind == EventKind::KeyExpiring);
    assert_eq!(of_keys.count(), 1);
}

/// It expired, and nobody had heard of it, where a webhook was away for a week.
pub(super) fn a_key_drops_the_oldest_open_event_only_once_three_days_are_left(rig: &Rig) {
    let caller = with_open(rig, OPEN_PER_ACCOUNT_MAX);
    key(rig, 8, AWAITED_UNTIL_MS + 1);
    let soon = key(rig, 9, AWAITED_UNTIL_MS);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    let counted = count(rig);
    assert_eq!((counted.open, counted.dropped), (u64::from(OPEN_PER_ACCOUNT_MAX), 1));
    let mut told = told(&rig.ledger, &caller);
    told.retain(|event| event.kind == EventKind::KeyExpiring);
    let keys: Vec<&str> = told.iter().map(|event| event.data["key"].as_str().unwrap()).collect();
    assert_eq!(keys, [soon.as_str()]);
}

/// A webhook that was away for days had so many before it that the key expired.
pub(super) fn a_key_that_expires_soon_is_told_behind_many_that_can_wait(rig: &Rig) {
    let caller = rig.caller("0");
    raise(rig, &caller, EventKind::KeyExpiring, OPEN_OF_KEYS_MAX);
    key(rig, 8, AWAITED_UNTIL_MS + 1);
    let soon = key(rig, 9, AWAITED_UNTIL_MS);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    let told = told(&rig.ledger, &caller);
    let mut keys: Vec<&str> = told.iter().map(|event| event.data["key"].as_str().unwrap()).collect();
    keys.retain(|key| *key != "another");
    assert_eq!(keys, [soon.as_str()]);
}

/// Those of an account with very many keys leave room for its other events.
pub(super) fn keys_that_expire_soon_take_no_more_than_their_part_of_an_accounts_events(rig: &Rig) {
    let caller = rig.caller("0");
    let most = Room::Made.open_of_keys_max();
    raise(rig, &caller, EventKind::KeyExpiring, most - 1);
    key(rig, 8, AWAITED_UNTIL_MS);
    key(rig, 9, AWAITED_UNTIL_MS);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    assert_eq!(told(&rig.ledger, &caller).len(), usize::try_from(most).unwrap());
}
