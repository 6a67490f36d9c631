//! Events of calls that may be tried twice: the refusal of a first try is told only where nothing is left, that of the last always.

use serde_json::json;

use super::events::told;
use crate::ledger::Caller;
use crate::ledger::admin::events::EventKind;
use crate::ledger::tests::rig::{Rig, credits, debit, request};
use crate::pure::account::{Denial, ReserveRequest};

/// The first try of a call, after which there may be another.
fn first(n: u64, wanted: &str) -> ReserveRequest {
    ReserveRequest {
        is_last: false,
        ..request(n, wanted)
    }
}

/// The same call, tried once more.
fn last(n: u64, wanted: &str) -> ReserveRequest {
    ReserveRequest {
        is_counted: true,
        ..request(n, wanted)
    }
}

fn kinds(rig: &Rig, caller: &Caller) -> Vec<EventKind> {
    told(&rig.ledger, caller).iter().map(|event| event.kind).collect()
}

pub(super) fn a_shortage_of_credit_is_told_by_the_last_try(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    for n in 1..4 {
        let denial = rig.reserve(&caller, &first(n, "2")).unwrap_err();
        assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
        rig.reserve(&caller, &last(n, "0.1")).unwrap().settle(debit("0.1"));
    }
    assert_eq!(kinds(rig, &caller), [], "each was served");
    for n in 4..7 {
        for refused in [first(n, "2"), last(n, "0.8")] {
            let denial = rig.reserve(&caller, &refused).unwrap_err();
            assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
        }
    }
    let [event] = told(&rig.ledger, &caller).try_into().unwrap();
    assert_eq!(event.kind, EventKind::Exhausted);
    assert_eq!(
        event.data,
        json!({ "account": "acme", "available": "0.7", "held": "0" })
    );
}

pub(super) fn a_shortage_of_quota_is_told_by_the_last_try(rig: &Rig) {
    let caller = rig.caller("100");
    told(&rig.ledger, &caller);
    let within = |request: ReserveRequest| ReserveRequest {
        quota: credits("1"),
        ..request
    };
    for n in 1..4 {
        let denial = rig.reserve(&caller, &within(first(n, "2"))).unwrap_err();
        assert!(matches!(denial, Denial::Quota { .. }), "{denial:?}");
        rig.reserve(&caller, &within(last(n, "0.1")))
            .unwrap()
            .settle(debit("0.1"));
    }
    assert_eq!(kinds(rig, &caller), [], "each was served");
    for n in 4..7 {
        for refused in [first(n, "2"), last(n, "0.8")] {
            let denial = rig.reserve(&caller, &within(refused)).unwrap_err();
            assert!(matches!(denial, Denial::Quota { .. }), "{denial:?}");
        }
    }
    let [event] = told(&rig.ledger, &caller).try_into().unwrap();
    assert_eq!(event.kind, EventKind::QuotaReached);
    assert_eq!(
        event.data,
        json!({ "account": "acme", "month": "2026-11", "monthly_quota": "1", "monthly_used": "0.3", "held": "0" })
    );
}

pub(super) fn a_first_try_that_finds_nothing_left_is_told(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    let short = |n, quota: &str| ReserveRequest {
        quota: credits(quota),
        ..first(n, "0.1")
    };
    for n in 1..4 {
        let denial = rig.reserve(&caller, &short(n, "0")).unwrap_err();
        assert!(matches!(denial, Denial::Quota { .. }), "{denial:?}");
    }
    assert_eq!(kinds(rig, &caller), [EventKind::QuotaReached]);
    // All of it is held, and nothing is left to a call that comes meanwhile.
    let held = rig.reserve(&caller, &request(4, "1")).unwrap();
    for n in 5..8 {
        let denial = rig.reserve(&caller, &short(n, "100")).unwrap_err();
        assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
    }
    assert_eq!(kinds(rig, &caller), [EventKind::Exhausted]);
    // An overrun takes the balance below zero.
    held.settle(debit("1.5"));
    assert_eq!(kinds(rig, &caller), []);
    rig.credit(&caller, "0.1", "some").unwrap();
    for n in 8..11 {
        rig.reserve(&caller, &short(n, "100")).unwrap_err();
    }
    assert_eq!(kinds(rig, &caller), [EventKind::CreditsAdded, EventKind::Exhausted]);
}
