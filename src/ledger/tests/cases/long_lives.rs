//! Keys and accounts that spend more in all than one amount can be.

use std::sync::Arc;

use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::tests::rig::{Rig, audit_is_clean, block_on, credits, debit, request, request_at};
use crate::ledger::{Caller, Debit, Hold};
use crate::pure::account::{Denial, ReserveRequest, Spent};
use crate::pure::credit_sum::CreditSum;
use crate::pure::money::Credits;
use crate::pure::spend::{Reset, Spender};
use crate::pure::time::Period;

/// The caller with a limit of its key.
fn limited(rig: &Rig, caller: &Caller, reset: Reset) -> Caller {
    let change = KeyChange {
        limit: Some(AmountChange::To(credits("9000000"))),
        limit_reset: Some(reset),
        ..KeyChange::default()
    };
    let op = AdminOp::KeySet {
        key: KeyRef::Id(caller.key.id.clone()),
        change: Box::new(change),
    };
    let AdminReply::Key(record) = rig.run(op).unwrap() else {
        panic!("no key");
    };
    Caller {
        key: Arc::new(record),
        ..caller.clone()
    }
}

/// A reserve of exactly this amount by a request that comes now.
fn asked(rig: &Rig, caller: &Caller, n: u64, wanted: &str) -> Result<Hold, Denial> {
    let now = rig.clock.now();
    let asked = ReserveRequest {
        id: request_at(n, now),
        spend: caller.key.settings.spend(&caller.key.id, None),
        expires: now.plus_millis(60_000),
        ..request(n, wanted)
    };
    rig.reserve(caller, &asked)
}

fn of(caller: &Caller, cost: &str) -> Debit {
    Debit {
        key: caller.key.id.clone(),
        ..debit(cost)
    }
}

fn spent(caller: &Caller) -> Spent {
    block_on(caller.key_spent(Reset::None)).unwrap()
}

/// What counts as spent, and what is held with it, is the largest amount from where it would be more; the books balance all the same.
pub(super) fn a_key_may_spend_more_in_all_than_one_amount(rig: &Rig) {
    let caller = limited(rig, &rig.caller("9000000"), Reset::Daily);
    asked(rig, &caller, 1, "5000000")
        .unwrap()
        .settle(of(&caller, "5000000"));
    rig.figures(&caller);
    rig.clock.advance(31 * 86_400_000);
    rig.credit(&caller, "5000000", "next month").unwrap();
    let dear = asked(rig, &caller, 2, "4100000").unwrap();
    let other = asked(rig, &caller, 3, "400000").unwrap();
    audit_is_clean(&rig.ledger);
    dear.release();
    rig.figures(&caller);
    let expected = Spent {
        spent: credits("5000000"),
        held: credits("400000"),
    };
    assert_eq!(spent(&caller), expected);
    audit_is_clean(&rig.ledger);
    let dear = asked(rig, &caller, 4, "4300000").unwrap();
    dear.settle(of(&caller, "4300000"));
    rig.figures(&caller);
    assert_eq!(spent(&caller).spent, Credits::MAX);
    audit_is_clean(&rig.ledger);
    other.settle(of(&caller, "0.5"));
    rig.figures(&caller);
    let most = Spent {
        spent: Credits::MAX,
        held: Credits::ZERO,
    };
    assert_eq!(spent(&caller), most);
    audit_is_clean(&rig.ledger);
    for rows in [rig.usage(&caller, Period::All), rig.usage_of_key(&caller, Period::All)] {
        let cost: CreditSum = rows.iter().map(|row| row.cost).sum();
        assert_eq!(cost.to_string(), "9300000.5");
    }
    // The day's limit leaves something; one for all time would not.
    asked(rig, &caller, 5, "1").unwrap().release();
    let for_ever = limited(rig, &caller, Reset::None);
    assert!(matches!(
        asked(rig, &for_ever, 6, "1"),
        Err(Denial::Spent {
            spender: Spender::Key,
            ..
        })
    ));
    audit_is_clean(&rig.ledger);
}

/// What it spent before is counted from its usage.
pub(super) fn a_limit_may_come_after_more_was_spent_than_one_amount(rig: &Rig) {
    let caller = rig.caller("9000000");
    asked(rig, &caller, 1, "5000000")
        .unwrap()
        .settle(of(&caller, "5000000"));
    rig.figures(&caller);
    rig.clock.advance(31 * 86_400_000);
    rig.credit(&caller, "5000000", "next month").unwrap();
    asked(rig, &caller, 2, "5000000")
        .unwrap()
        .settle(of(&caller, "5000000"));
    rig.figures(&caller);
    let caller = limited(rig, &caller, Reset::None);
    assert_eq!(spent(&caller).spent, Credits::MAX);
    assert!(asked(rig, &caller, 3, "1").is_err());
    audit_is_clean(&rig.ledger);
}
