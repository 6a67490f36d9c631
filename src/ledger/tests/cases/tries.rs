//! Which refusals events tell of. Of calls that may be tried twice that of a first try only where nothing is left, that of the last always; of
//! none that is for what running calls hold.

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
    // All of it is held, and a call that comes meanwhile is refused for that alone.
    let held = rig.reserve(&caller, &request(4, "1")).unwrap();
    for n in 5..8 {
        let denial = rig.reserve(&caller, &short(n, "100")).unwrap_err();
        assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
    }
    assert_eq!(kinds(rig, &caller), []);
    // An overrun takes the balance below zero.
    held.settle(debit("1.5"));
    assert_eq!(kinds(rig, &caller), []);
    for n in 8..11 {
        rig.reserve(&caller, &short(n, "100")).unwrap_err();
    }
    assert_eq!(kinds(rig, &caller), [EventKind::Exhausted]);
    rig.credit(&caller, "0.1", "some").unwrap();
    for n in 11..14 {
        rig.reserve(&caller, &short(n, "100")).unwrap_err();
    }
    assert_eq!(kinds(rig, &caller), [EventKind::CreditsAdded, EventKind::Exhausted]);
}

pub(super) fn a_call_without_credit_is_told_until_credit_comes(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    let held = rig.reserve(&caller, &request(1, "0.4")).unwrap();
    for n in 2..5 {
        let denial = rig.reserve(&caller, &request(n, "1.1")).unwrap_err();
        assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
    }
    let [event] = told(&rig.ledger, &caller).try_into().unwrap();
    assert_eq!(event.kind, EventKind::Exhausted);
    assert_eq!(
        event.data,
        json!({ "account": "acme", "available": "0.6", "held": "0.4" })
    );
    held.release();
    rig.reserve(&caller, &request(5, "0.5")).unwrap().settle(debit("0.5"));
    assert_eq!(kinds(rig, &caller), []);
    rig.reserve(&caller, &request(6, "0.7")).unwrap_err();
    assert_eq!(kinds(rig, &caller), [], "no credit has come in, and half of it is left");
    rig.credit(&caller, "0.1", "some").unwrap();
    rig.reserve(&caller, &request(7, "0.7")).unwrap_err();
    rig.reserve(&caller, &request(8, "0.7")).unwrap_err();
    assert_eq!(kinds(rig, &caller), [EventKind::CreditsAdded, EventKind::Exhausted]);
}

/// A request within a quota that is the same each time.
fn within(request: ReserveRequest, quota: &str) -> ReserveRequest {
    ReserveRequest {
        quota: credits(quota),
        ..request
    }
}

/// What running calls hold is back in a moment: the event is kept for the end.
pub(super) fn a_refusal_for_what_is_held_is_no_event_and_the_end_is(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    let held = rig.reserve(&caller, &request(1, "1")).unwrap();
    for n in 2..5 {
        // The first try of a long prompt needs more than there is, and nobody knows yet what the prompt comes to.
        for refused in [first(n, "1.3"), first(n, "0.3"), last(n, "0.2"), last(n, "1")] {
            let denial = rig.reserve(&caller, &refused).unwrap_err();
            assert!(matches!(denial, Denial::Credit { .. }), "{denial:?}");
        }
    }
    held.settle(debit("0.9"));
    assert_eq!(kinds(rig, &caller), [], "credit was held");
    for n in 5..8 {
        rig.reserve(&caller, &request(n, "0.2")).unwrap_err();
    }
    let [event] = told(&rig.ledger, &caller).try_into().unwrap();
    assert_eq!(event.kind, EventKind::Exhausted);
    assert_eq!(
        event.data,
        json!({ "account": "acme", "available": "0.1", "held": "0" })
    );
    // The same of a quota: a tenth of it is left in the end.
    rig.credit(&caller, "100", "much").unwrap();
    assert_eq!(kinds(rig, &caller), [EventKind::CreditsAdded]);
    let held = rig.reserve(&caller, &within(request(8, "1"), "1.9")).unwrap();
    for n in 9..12 {
        for refused in [first(n, "1.3"), first(n, "0.3"), last(n, "0.2"), last(n, "1")] {
            let denial = rig.reserve(&caller, &within(refused, "1.9")).unwrap_err();
            assert!(matches!(denial, Denial::Quota { .. }), "{denial:?}");
        }
    }
    held.settle(debit("0.9"));
    assert_eq!(kinds(rig, &caller), [], "the quota was held");
    for n in 12..15 {
        rig.reserve(&caller, &within(request(n, "0.2"), "1.9")).unwrap_err();
    }
    let [event] = told(&rig.ledger, &caller).try_into().unwrap();
    assert_eq!(event.kind, EventKind::QuotaReached);
    assert_eq!(
        event.data,
        json!({ "account": "acme", "month": "2026-11", "monthly_quota": "1.9", "monthly_used": "1.8", "held": "0" })
    );
}

/// A call that needs more than there is is told; so is the end, and on the way one that leaves less than half of what the one told before left.
fn a_large_call_leaves_the_end_to_tell(rig: &Rig, balance: &str, quota: &str, kind: EventKind) {
    let caller = rig.caller(balance);
    told(&rig.ledger, &caller);
    for (n, spent, refused, is_told) in [
        (10, None, "6", true),
        (20, Some("2.5"), "2.6", false),
        (30, Some("0.000000000001"), "2.6", true),
        (40, Some("2.499999999999"), "0.1", true),
        (50, None, "0.1", false),
    ] {
        if let Some(spent) = spent {
            let hold = rig.reserve(&caller, &within(request(n, spent), quota)).unwrap();
            hold.settle(debit(spent));
            assert_eq!(kinds(rig, &caller), [], "{n}");
        }
        for again in 1..4 {
            rig.reserve(&caller, &within(request(n + again, refused), quota))
                .unwrap_err();
        }
        let expected = if is_told { vec![kind] } else { Vec::new() };
        assert_eq!(kinds(rig, &caller), expected, "{n}");
    }
}

pub(super) fn a_large_call_leaves_the_end_of_the_credit_to_tell(rig: &Rig) {
    a_large_call_leaves_the_end_to_tell(rig, "5", "1000", EventKind::Exhausted);
}

pub(super) fn a_large_call_leaves_the_end_of_the_quota_to_tell(rig: &Rig) {
    a_large_call_leaves_the_end_to_tell(rig, "1000", "5", EventKind::QuotaReached);
}
