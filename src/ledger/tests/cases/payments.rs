//! Payments elsewhere: each is credited to one account, whoever it is told for.

use futures::future::join_all;

use super::credits::{entry, post};
use crate::ledger::Caller;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost, Posted};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::rig::{Rig, audit_is_clean, block_on, credits, on_workers};
use crate::pure::ids::AccountId;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;

fn payment(account: &str, amount: &str, reference: &str) -> CreditPost {
    CreditPost {
        is_payment: true,
        ..CreditPost::top_up(account.parse().unwrap(), credits(amount), reference.to_owned())
    }
}

/// Whose payment has a reference, and what was credited for it.
fn payer(rig: &Rig, reference: &str) -> Option<(AccountId, Credits)> {
    let (account, reference) = (None, reference.to_owned());
    match rig.run(AdminOp::Credit(CreditOp::Find { account, reference })) {
        Ok(AdminReply::CreditFound { account, entry }) => account.zip(entry.map(|entry| entry.amount)),
        other => panic!("{other:?}"),
    }
}

pub(super) fn a_payment_is_found_by_its_reference_alone(rig: &Rig) {
    let [payer, other] = ["payer", "other"].map(|name| rig.caller_of(name, "1", LimitOverrides::default()));
    let find = |account: Option<&Caller>, reference: &str| {
        let account = account.map(|caller| caller.account.id.clone());
        let reference = reference.to_owned();
        match rig.run(AdminOp::Credit(CreditOp::Find { account, reference })) {
            Ok(AdminReply::CreditFound { account, entry }) => (account, entry.map(|entry| entry.amount)),
            other => panic!("{other:?}"),
        }
    };
    let payment = CreditPost {
        is_payment: true,
        ..entry(&payer, CreditKind::TopUp, "7", "pi_1")
    };
    assert_eq!(find(None, "pi_1"), (None, None));
    for added in [true, false] {
        assert_eq!(post(rig, payment.clone()).unwrap().added, added);
        assert_eq!(find(None, "pi_1"), (Some(payer.account.id.clone()), Some(credits("7"))));
    }
    assert_eq!(
        find(Some(&payer), "first"),
        (Some(payer.account.id.clone()), Some(credits("1")))
    );
    assert_eq!(find(Some(&other), "pi_1"), (Some(other.account.id.clone()), None));
    // It was paid once: nobody else gets it. What somebody posts by hand under its reference is no payment, and hides none.
    let of_other = CreditPost {
        is_payment: true,
        ..entry(&other, CreditKind::TopUp, "7", "pi_1")
    };
    let conflict = Err(AdminError::ReferenceConflict("pi_1".to_owned()));
    assert_eq!(post(rig, of_other), conflict);
    assert!(post(rig, entry(&other, CreditKind::TopUp, "7", "pi_1")).unwrap().added);
    assert_eq!(find(None, "pi_1"), (Some(payer.account.id.clone()), Some(credits("7"))));
    assert_eq!(rig.figures(&other).balance, credits("8"));
    audit_is_clean(&rig.ledger);
}

/// The same payment is told for two and for ten accounts at the same moment, by several at once for each: one of them gets it, once.
pub(super) fn of_many_accounts_that_are_told_a_payment_one_gets_it(rig: &Rig) {
    const WORKERS: usize = 4;
    for (count, payments) in [(2, 60), (10, 20)] {
        let names: Vec<String> = (0..count).map(|n| format!("told-{count}-{n}")).collect();
        let callers: Vec<Caller> = names
            .iter()
            .map(|name| rig.caller_of(name, "0", LimitOverrides::default()))
            .collect();
        for n in 0..payments {
            let reference = format!("pi_{count}_{n}");
            let told = on_workers(WORKERS, |worker| {
                let tell = async |name: &String| {
                    let op = AdminOp::Credit(CreditOp::Post(payment(name, "3", &reference)));
                    (name.clone(), rig.ledger.run(op).await)
                };
                // Each begins with another of them.
                let order = names.iter().cycle().skip(worker).take(count);
                block_on(join_all(order.map(tell)))
            });
            let mut credited = Vec::new();
            for (name, posted) in told.into_iter().flatten() {
                match posted {
                    Ok(AdminReply::Posted(Posted { added: true, .. })) => credited.push(name),
                    Ok(AdminReply::Posted(Posted { added: false, .. })) | Err(AdminError::ReferenceConflict(_)) => {}
                    Err(AdminError::Store(text)) if text.contains("tell it again") => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(credited.len(), 1, "{reference}: {credited:?}");
            let (account, amount) = payer(rig, &reference).unwrap();
            assert_eq!((account.as_str(), amount), (credited[0].as_str(), credits("3")));
            for name in names.iter().filter(|name| **name != credited[0]) {
                let late = post(rig, payment(name, "3", &reference));
                assert!(matches!(late, Err(AdminError::ReferenceConflict(_))), "{late:?}");
            }
        }
        let balances = callers.iter().map(|caller| rig.figures(caller).balance);
        let all = balances.fold(Credits::ZERO, Credits::saturating_add);
        assert_eq!(all, credits(&(3 * payments).to_string()));
    }
    audit_is_clean(&rig.ledger);
}

/// It is told for an account that cannot take it: whoever can gets it then, and the first one no more.
pub(super) fn a_payment_that_an_account_cannot_take_is_not_lost(rig: &Rig) {
    let [right, closed, rich, other] =
        ["right", "closed", "rich", "other"].map(|name| rig.caller_of(name, "0", LimitOverrides::default()));
    let change = TermsChange {
        status: Some(AccountStatus::Closed),
        ..TermsChange::default()
    };
    let account = closed.account.id.clone();
    rig.run(AdminOp::Account(AccountOp::Terms { account, change })).unwrap();
    let most = Credits::from_pico(i64::MAX).to_string();
    post(rig, entry(&rich, CreditKind::TopUp, &most, "all there is")).unwrap();
    for (n, cannot) in (1..).zip(["nobody", "closed", "rich", "other"]) {
        let reference = format!("pi_{cannot}");
        if cannot == "other" {
            post(rig, entry(&other, CreditKind::Bonus, "1", &reference)).unwrap();
        }
        for _ in 0..2 {
            let refused = post(rig, payment(cannot, "2", &reference));
            assert!(
                matches!(
                    refused,
                    Err(AdminError::NoAccount(_)
                        | AdminError::Conflict(_)
                        | AdminError::Invalid(_)
                        | AdminError::ReferenceConflict(_))
                ),
                "{refused:?}"
            );
            assert_eq!(payer(rig, &reference), None, "{cannot}");
        }
        assert!(post(rig, payment("right", "2", &reference)).unwrap().added, "{cannot}");
        assert!(!post(rig, payment("right", "2", &reference)).unwrap().added);
        assert_eq!(payer(rig, &reference), Some((right.account.id.clone(), credits("2"))));
        assert_eq!(rig.figures(&right).balance, credits(&(2 * n).to_string()));
    }
    // Now it could.
    rig.caller_of("nobody", "0", LimitOverrides::default());
    let late = post(rig, payment("nobody", "2", "pi_nobody"));
    assert_eq!(late, Err(AdminError::ReferenceConflict("pi_nobody".to_owned())));
    assert_eq!(rig.figures(&right).balance, credits("8"));
    audit_is_clean(&rig.ledger);
}

/// An operator was quicker than the message: it is that account's, and no second credit, and no other account is credited it.
pub(super) fn a_payment_that_was_posted_by_hand_is_its_accounts(rig: &Rig) {
    let [payer_of, other] = ["payer", "other"].map(|name| rig.caller_of(name, "0", LimitOverrides::default()));
    post(rig, entry(&payer_of, CreditKind::TopUp, "7", "pi_1")).unwrap();
    assert!(!post(rig, payment("payer", "7", "pi_1")).unwrap().added);
    let conflict = Err(AdminError::ReferenceConflict("pi_1".to_owned()));
    assert_eq!(post(rig, payment("other", "7", "pi_1")), conflict);
    assert_eq!(payer(rig, "pi_1"), Some((payer_of.account.id.clone(), credits("7"))));
    assert_eq!(rig.figures(&other).balance, Credits::ZERO);
    let bonus = CreditPost {
        kind: CreditKind::Bonus,
        ..payment("other", "7", "pi_2")
    };
    assert!(
        matches!(post(rig, bonus), Err(AdminError::Invalid(_))),
        "a payment is a top-up"
    );
    audit_is_clean(&rig.ledger);
}

/// Stripe's message named no account, and an operator gave it to one: a refund finds that account, and no message credits another one.
pub(super) fn a_payment_that_was_given_by_hand_is_found_and_nobody_elses(rig: &Rig) {
    let [owner, other] = ["owner", "other"].map(|name| rig.caller_of(name, "0", LimitOverrides::default()));
    assert!(post(rig, entry(&owner, CreditKind::TopUp, "7", "pi_1")).unwrap().added);
    // As the command line adds it.
    assert!(matches!(
        rig.credit(&owner, "7", "pi_2"),
        Ok(AdminReply::Credited { added: true, .. })
    ));
    for reference in ["pi_1", "pi_2"] {
        let (found, conflict) = (
            Some((owner.account.id.clone(), credits("7"))),
            Err(AdminError::ReferenceConflict(reference.to_owned())),
        );
        assert_eq!(payer(rig, reference), found);
        assert_eq!(post(rig, payment("other", "7", reference)), conflict);
        assert!(
            !post(rig, entry(&owner, CreditKind::TopUp, "7", reference))
                .unwrap()
                .added
        );
        assert_eq!(payer(rig, reference), found);
        // What cannot be added changes nothing.
        post(
            rig,
            entry(&other, CreditKind::Bonus, "1", &format!("{reference} bonus")),
        )
        .unwrap();
        let nobody = CreditPost {
            account: "nobody".parse().unwrap(),
            ..entry(&other, CreditKind::TopUp, "7", reference)
        };
        assert!(post(rig, nobody).is_err());
        assert_eq!(payer(rig, reference), found);
        rig.clock.advance(1);
        // By hand another account gets it all the same. One of the two may be a mistake: a refund is taken from neither.
        for added in [true, false] {
            let by_hand = post(rig, entry(&other, CreditKind::TopUp, "7", reference));
            assert_eq!(by_hand.unwrap().added, added);
            let (account, reference) = (None, reference.to_owned());
            match rig.run(AdminOp::Credit(CreditOp::Find { account, reference })) {
                Err(AdminError::Invalid(why)) => assert!(why.contains("several accounts"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(post(rig, payment("other", "7", reference)), conflict);
        // What a message says is so.
        assert!(!post(rig, payment("owner", "7", reference)).unwrap().added);
        assert_eq!(payer(rig, reference), found);
        assert!(
            !post(rig, entry(&other, CreditKind::TopUp, "7", reference))
                .unwrap()
                .added
        );
        assert_eq!(payer(rig, reference), found);
    }
    // What a message named first stays whose it is, by hand once more too.
    assert!(post(rig, payment("owner", "1", "pi_3")).unwrap().added);
    assert!(!post(rig, entry(&owner, CreditKind::TopUp, "1", "pi_3")).unwrap().added);
    assert!(post(rig, entry(&other, CreditKind::TopUp, "1", "pi_3")).unwrap().added);
    assert_eq!(payer(rig, "pi_3"), Some((owner.account.id.clone(), credits("1"))));
    // What is no top-up has only the same reference.
    for kind in [CreditKind::Bonus, CreditKind::Correction, CreditKind::Refund] {
        let reference = format!("pi_{kind}");
        post(rig, entry(&owner, kind, "1", &reference)).unwrap();
        assert_eq!(payer(rig, &reference), None, "{kind}");
        assert!(post(rig, payment("other", "2", &reference)).unwrap().added, "{kind}");
    }
    assert_eq!(rig.figures(&owner).balance, credits("18"));
    assert_eq!(rig.figures(&other).balance, credits("23"));
    audit_is_clean(&rig.ledger);
}
