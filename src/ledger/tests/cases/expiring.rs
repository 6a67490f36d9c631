//! Keys that expire soon, beside other events that are open.

use serde_json::json;

use super::events::{count, kinds, raised, told};
use crate::ledger::Caller;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};
use crate::ledger::events::{OPEN_OF_KEYS_MAX, OPEN_PER_ACCOUNT_MAX};
use crate::ledger::tests::rig::{NOW, Rig, key_create};
use crate::pure::ids::ApiKey;

/// An account with a key that expires in three days, and so many open events of another kind.
fn beside(rig: &Rig, open: u32) -> Caller {
    let caller = rig.caller("0");
    for n in 0..open {
        let account = Some(caller.account.id.clone());
        let event = Event::new(format!("evt_{n}"), EventKind::Test, NOW, account, json!({}));
        raised(rig, &event).unwrap();
    }
    let mut create = key_create("acme", &ApiKey::from_random("tg_", [9; 32]).digest());
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(3 * 86_400_000);
    }
    rig.run(create).unwrap();
    caller
}

/// A webhook that is away keeps its events open: another one is told of keys all the same.
pub(super) fn other_open_events_keep_no_key_from_being_told(rig: &Rig) {
    let open = OPEN_OF_KEYS_MAX + 10;
    let caller = beside(rig, open);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    assert_eq!(count(rig).open, u64::from(open) + 1);
    let told = kinds(&told(&rig.ledger, &caller));
    let of_keys = told.iter().filter(|kind| **kind == EventKind::KeyExpiring);
    assert_eq!(of_keys.count(), 1);
}

pub(super) fn a_key_that_expires_drops_no_open_event(rig: &Rig) {
    let caller = beside(rig, OPEN_PER_ACCOUNT_MAX);
    rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
    let counted = count(rig);
    assert_eq!((counted.open, counted.dropped), (u64::from(OPEN_PER_ACCOUNT_MAX), 0));
    let told = kinds(&told(&rig.ledger, &caller));
    assert!(told.iter().all(|kind| *kind == EventKind::Test), "{told:?}");
}
