//! Refunds that are content with what there is: they wait for what running calls hold, and not for ever.

use super::credits::{entry, post, statement};
use crate::ledger::Caller;
use crate::ledger::admin::AdminError;
use crate::ledger::admin::credits::{CreditKind, CreditPost, Posted};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, credits, debit, request};
use crate::pure::money::Credits;

fn part(caller: &Caller, amount: &str, reference: &str) -> CreditPost {
    CreditPost {
        as_available: true,
        ..entry(caller, CreditKind::Refund, amount, reference)
    }
}

/// Whether an entry was added, and what it took.
fn took(posted: Result<Posted, AdminError>) -> Result<(bool, Credits), AdminError> {
    posted.map(|posted| (posted.added, posted.entry.amount))
}

fn is_held(posted: &Result<Posted, AdminError>) -> bool {
    matches!(posted, Err(AdminError::HeldByCalls(text)) if text.contains("running calls hold 4"))
}

pub(super) fn what_is_content_with_less_takes_what_is_available(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    let part = |amount: &str, reference: &str| part(&caller, amount, reference);
    assert_eq!(took(post(rig, part("-2", "all"))), Ok((true, credits("-2"))));
    // What is held may come back: until then nothing is written, be it more than there is in all.
    for amount in ["-7", "-7", "-9"] {
        let refused = post(rig, part(amount, "whole"));
        assert!(is_held(&refused), "{amount}: {refused:?}");
    }
    assert_eq!(rig.figures(&caller).balance, credits("8"));
    hold.settle(debit("1"));
    assert_eq!(rig.figures(&caller).balance, credits("7"));
    assert_eq!(took(post(rig, part("-7", "whole"))), Ok((true, credits("-7"))));
    assert_eq!(took(post(rig, part("-7", "nothing"))), Ok((true, Credits::ZERO)));
    post(rig, entry(&caller, CreditKind::TopUp, "5", "more")).unwrap();
    assert_eq!(took(post(rig, part("-6", "less"))), Ok((true, credits("-5"))));
    post(rig, entry(&caller, CreditKind::TopUp, "5", "more still")).unwrap();
    // What has counted has counted, whatever is held by now.
    let hold = rig.reserve(&caller, &request(2, "4")).unwrap();
    for (reference, amount) in [("all", "-2"), ("whole", "-7"), ("less", "-5"), ("nothing", "0")] {
        assert_eq!(
            took(post(rig, part("-7", reference))),
            Ok((false, credits(amount))),
            "{reference}"
        );
    }
    hold.release();
    // Less than was taken, another kind, and one that is not content with less are others.
    let others = [
        part("-1", "all"),
        entry(&caller, CreditKind::Refund, "-7", "less"),
        CreditPost {
            kind: CreditKind::Correction,
            ..part("-7", "less")
        },
    ];
    for other in others {
        assert!(matches!(post(rig, other), Err(AdminError::ReferenceConflict(_))));
    }
    assert_eq!(rig.figures(&caller).balance, credits("5"));
    let below = CreditPost {
        allow_negative: true,
        ..part("-7", "below")
    };
    assert_eq!(post(rig, below).unwrap().balance, credits("-2"));
    assert_eq!(
        took(post(rig, part("-1", "of less than nothing"))),
        Ok((true, Credits::ZERO))
    );
    assert_eq!(rig.figures(&caller).balance, credits("-2"));
    let told = statement(rig, &caller, NOW.day(), NOW.day()).unwrap();
    assert_eq!((told.opening, told.closing), (Credits::ZERO, credits("-2")));
    audit_is_clean(&rig.ledger);
}

/// Who always has a call run keeps nothing by it: in the end the balance is taken, and what the calls cost is owed.
pub(super) fn what_waits_no_more_takes_what_is_held_as_well(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    let at_once = |amount: &str, reference: &str| CreditPost {
        despite_holds: true,
        ..part(&caller, amount, reference)
    };
    assert_eq!(took(post(rig, at_once("-5", "free"))), Ok((true, credits("-5"))));
    let waits = post(rig, part(&caller, "-7", "rest"));
    assert!(is_held(&waits), "{waits:?}");
    assert_eq!(took(post(rig, at_once("-7", "rest"))), Ok((true, credits("-5"))));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, credits("4")));
    for repeated in [at_once("-7", "rest"), part(&caller, "-7", "rest")] {
        assert_eq!(took(post(rig, repeated)), Ok((false, credits("-5"))));
    }
    // Of nothing nothing comes back: there is nothing to wait for.
    assert_eq!(
        took(post(rig, part(&caller, "-1", "nothing"))),
        Ok((true, Credits::ZERO))
    );
    assert!(rig.reserve(&caller, &request(2, "0.000000000001")).is_err());
    hold.settle(debit("1"));
    assert_eq!(rig.figures(&caller).balance, credits("-1"));
    audit_is_clean(&rig.ledger);
}
