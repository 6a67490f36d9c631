//! Refunds that are content with what there is, whatever running calls hold of it.

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

pub(super) fn what_is_content_with_less_takes_what_is_available(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    let part = |amount: &str, reference: &str| part(&caller, amount, reference);
    assert_eq!(took(post(rig, part("-2", "all"))), Ok((true, credits("-2"))));
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

/// Who has a call run keeps nothing by it, neither what that holds nor what it does not: what it costs is owed.
pub(super) fn what_is_content_with_less_takes_what_is_held_as_well(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    let part = |amount: &str, reference: &str| part(&caller, amount, reference);
    assert_eq!(took(post(rig, part("-5", "free"))), Ok((true, credits("-5"))));
    assert_eq!(took(post(rig, part("-7", "rest"))), Ok((true, credits("-5"))));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, credits("4")));
    assert_eq!(took(post(rig, part("-7", "rest"))), Ok((false, credits("-5"))));
    assert_eq!(took(post(rig, part("-1", "nothing"))), Ok((true, Credits::ZERO)));
    assert!(rig.reserve(&caller, &request(2, "0.000000000001")).is_err());
    hold.settle(debit("1"));
    assert_eq!(rig.figures(&caller).balance, credits("-1"));
    audit_is_clean(&rig.ledger);
}
