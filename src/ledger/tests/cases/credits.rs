//! Credit entries of every kind, and their list.

use futures::future::join_all;

use crate::ledger::Caller;
use crate::ledger::admin::credits::{CreditEntry, CreditKind, CreditOp, CreditPage, CreditPost, Posted, Statement};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Timestamp};

pub(super) fn entry(caller: &Caller, kind: CreditKind, amount: &str, reference: &str) -> CreditPost {
    CreditPost {
        kind,
        ..CreditPost::top_up(caller.account.id.clone(), credits(amount), reference.to_owned())
    }
}

pub(super) fn post(rig: &Rig, post: CreditPost) -> Result<Posted, AdminError> {
    match rig.run(AdminOp::Credit(CreditOp::Post(post)))? {
        AdminReply::Posted(posted) => Ok(posted),
        other => panic!("{other:?}"),
    }
}

fn list(rig: &Rig, caller: &Caller, limit: u32, before: Option<&str>) -> Result<CreditPage, AdminError> {
    let op = CreditOp::List {
        account: caller.account.id.clone(),
        limit,
        before: before.map(str::to_owned),
    };
    match rig.run(AdminOp::Credit(op))? {
        AdminReply::CreditPage(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

pub(super) fn statement(rig: &Rig, caller: &Caller, from: Day, to: Day) -> Result<Statement, AdminError> {
    let account = caller.account.id.clone();
    match rig.run(AdminOp::Credit(CreditOp::Statement { account, from, to }))? {
        AdminReply::Statement(statement) => Ok(statement),
        other => panic!("{other:?}"),
    }
}

fn is_invalid(posted: &Result<Posted, AdminError>) -> bool {
    matches!(posted, Err(AdminError::Invalid(_)))
}

fn is_conflict(posted: &Result<Posted, AdminError>) -> bool {
    matches!(posted, Err(AdminError::Conflict(_)))
}

pub(super) fn an_entry_has_a_kind_a_note_and_a_balance(rig: &Rig) {
    let caller = rig.caller("10");
    rig.clock.advance(1);
    let noted = CreditPost {
        note: Some("thanks, \u{1f4b6}  and  more".to_owned()),
        ..entry(&caller, CreditKind::Bonus, "2", "B 1")
    };
    let bonus = CreditEntry {
        at: NOW.plus_millis(1),
        kind: CreditKind::Bonus,
        amount: credits("2"),
        reference: "B 1".to_owned(),
        note: noted.note.clone(),
        balance: Some(credits("12")),
    };
    let posted = post(rig, noted.clone()).unwrap();
    assert_eq!(
        (posted.added, posted.balance, &posted.entry),
        (true, credits("12"), &bonus)
    );
    rig.clock.advance(1);
    post(rig, entry(&caller, CreditKind::Correction, "-0.000000000001", "C")).unwrap();
    rig.clock.advance(1);
    post(rig, entry(&caller, CreditKind::Refund, "-1", "R")).unwrap();
    let again = post(
        rig,
        CreditPost {
            note: Some("another note".to_owned()),
            ..noted
        },
    )
    .unwrap();
    let now = credits("10.999999999999");
    assert_eq!(
        (again.added, again.balance, &again.entry),
        (false, now, &bonus),
        "as it was posted first"
    );
    let CreditPage { entries, next } = list(rig, &caller, 10, None).unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.reference.as_str(), entry.kind, entry.amount, entry.balance))
        .collect();
    let expected = [
        ("R", CreditKind::Refund, "-1", "10.999999999999"),
        ("C", CreditKind::Correction, "-0.000000000001", "11.999999999999"),
        ("B 1", CreditKind::Bonus, "2", "12"),
        ("first", CreditKind::TopUp, "10", "10"),
    ];
    let expected =
        expected.map(|(reference, kind, amount, balance)| (reference, kind, credits(amount), Some(credits(balance))));
    assert_eq!((told.as_slice(), next), (expected.as_slice(), None));
    assert_eq!(entries[2], bonus);
    assert_eq!(rig.figures(&caller).balance, now);

    for (kind, amount) in [
        (CreditKind::TopUp, "-1"),
        (CreditKind::Bonus, "-1"),
        (CreditKind::TopUp, "0"),
        (CreditKind::Correction, "0"),
        (CreditKind::Refund, "-9223372.036854775808"),
    ] {
        let refused = post(rig, entry(&caller, kind, amount, "wrong"));
        assert!(is_invalid(&refused), "{kind} {amount}: {refused:?}");
    }
    for note in ["x".repeat(501), "a\nb".to_owned()] {
        let noted = CreditPost {
            note: Some(note),
            ..entry(&caller, CreditKind::Bonus, "2", "wrong")
        };
        assert!(is_invalid(&post(rig, noted)));
    }
    for reference in ["", &"x".repeat(201)] {
        assert!(is_invalid(&post(
            rig,
            entry(&caller, CreditKind::Bonus, "2", reference)
        )));
    }
    let account = "nobody".parse().unwrap();
    let nobody = CreditPost::top_up(account, credits("1"), "x".to_owned());
    assert!(matches!(post(rig, nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_reference_is_one_entry_whatever_its_kind(rig: &Rig) {
    let caller = rig.caller("0");
    let kinds = CreditKind::ALL;
    let conflict = |reference: &str| Err(AdminError::ReferenceConflict(reference.to_owned()));
    for kind in kinds {
        let reference = format!("ref {kind}");
        assert!(post(rig, entry(&caller, kind, "5", &reference)).unwrap().added);
        for other in kinds {
            let again = post(rig, entry(&caller, other, "5", &reference));
            match other == kind {
                true => assert!(!again.unwrap().added),
                false => assert_eq!(again, conflict(&reference)),
            }
        }
        assert_eq!(
            post(rig, entry(&caller, kind, "5.000000000001", &reference)),
            conflict(&reference)
        );
    }
    assert!(matches!(
        rig.credit(&caller, "5", "ref top_up"),
        Ok(AdminReply::Credited { added: false, .. })
    ));
    assert_eq!(
        rig.credit(&caller, "5", "ref refund").unwrap_err(),
        AdminError::ReferenceConflict("ref refund".to_owned())
    );
    // A store may keep references beside other facts of the account, under names that it makes of them.
    for reference in ["ier", "tier", "t", "-", "avail", "0", "ut", "a  b", "\u{1f4b6}"] {
        for added in [true, false] {
            let posted = post(rig, entry(&caller, CreditKind::Correction, "-1", reference));
            assert_eq!(posted.map(|posted| posted.added), Ok(added), "{reference:?}");
        }
    }
    let page = list(rig, &caller, 100, None).unwrap();
    assert_eq!(page.entries.len(), kinds.len() + 9);
    assert!(page.entries.iter().any(|entry| entry.reference == "ier"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn what_is_held_is_not_taken_back(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    for kind in [CreditKind::Correction, CreditKind::Refund] {
        let refused = post(rig, entry(&caller, kind, "-6.000000000001", "too much"));
        let Err(AdminError::Conflict(text)) = refused else {
            panic!("{refused:?}");
        };
        assert!(text.contains("available: 6, with 4 held"), "{text}");
    }
    post(rig, entry(&caller, CreditKind::Refund, "-6", "to the last")).unwrap();
    assert!(rig.reserve(&caller, &request(2, "0.000000000001")).is_err());
    assert!(is_conflict(&post(
        rig,
        entry(&caller, CreditKind::Refund, "-0.000000000001", "beyond")
    )));
    hold.settle(debit("1"));
    assert_eq!(rig.figures(&caller).balance, credits("3"));
    let below = CreditPost {
        allow_negative: true,
        ..entry(&caller, CreditKind::Correction, "-5", "chargeback")
    };
    assert_eq!(post(rig, below).unwrap().balance, credits("-2"));
    assert!(is_conflict(&post(
        rig,
        entry(&caller, CreditKind::Correction, "-1", "below zero")
    )));
    post(rig, entry(&caller, CreditKind::Correction, "1.5", "a step up")).unwrap();
    assert_eq!(rig.figures(&caller).balance, credits("-0.5"));
    // A hold that has expired holds nothing.
    post(rig, entry(&caller, CreditKind::TopUp, "1.5", "more")).unwrap();
    let hold = rig.reserve(&caller, &request(3, "1")).unwrap();
    assert!(is_conflict(&post(
        rig,
        entry(&caller, CreditKind::Refund, "-1", "rest")
    )));
    rig.clock.advance(60_000);
    post(rig, entry(&caller, CreditKind::Refund, "-1", "rest")).unwrap();
    drop(hold);
    let far = |amount: &str, reference: &str| CreditPost {
        allow_negative: true,
        ..entry(&caller, CreditKind::Correction, amount, reference)
    };
    post(rig, far("-9000000", "far")).unwrap();
    assert!(is_invalid(&post(rig, far("-300000", "too far"))));
    assert_eq!(rig.figures(&caller).balance, credits("-9000000"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_new_reference_has_no_white_space_at_its_ends(rig: &Rig) {
    let caller = rig.caller("0");
    post(rig, entry(&caller, CreditKind::TopUp, "5", "INVOICE-7")).unwrap();
    for space in [" ", "  ", "\u{a0}", "\u{2003}", "\u{3000}"] {
        for reference in [
            format!("INVOICE-7{space}"),
            format!("{space}INVOICE-7"),
            space.to_owned(),
        ] {
            let posted = post(rig, entry(&caller, CreditKind::TopUp, "5", &reference));
            assert!(is_invalid(&posted), "{reference:?}: {posted:?}");
            let added = rig.credit(&caller, "5", &reference);
            assert!(matches!(added, Err(AdminError::Invalid(_))), "{reference:?}: {added:?}");
            let payment = CreditPost {
                is_payment: true,
                ..entry(&caller, CreditKind::TopUp, "5", &reference)
            };
            assert!(is_invalid(&post(rig, payment)), "{reference:?}");
        }
    }
    post(rig, entry(&caller, CreditKind::TopUp, "5", "INVOICE 8")).unwrap();
    assert_eq!(rig.figures(&caller).balance, credits("10"));
    audit_is_clean(&rig.ledger);
}

/// A zero-width space behind it, as it comes along when somebody copies it, and the same payment counted twice.
pub(super) fn a_new_reference_has_only_what_is_seen(rig: &Rig) {
    let caller = rig.caller("0");
    post(rig, entry(&caller, CreditKind::TopUp, "5", "INVOICE-7")).unwrap();
    for unseen in [
        "\u{ad}",
        "\u{200b}",
        "\u{200e}",
        "\u{202e}",
        "\u{2060}",
        "\u{2069}",
        "\u{feff}",
        "\u{fe0f}",
        "\u{34f}",
        "\u{115f}",
        "\u{2800}",
        "\u{3164}",
        "\u{e0041}",
        "\u{200c}",
        "\u{200d}",
        "\u{2028}",
        "\u{fffa}",
        "\u{a0}",
        " \u{200b} ",
    ] {
        let within = format!("INV{unseen}OICE-7");
        for reference in [format!("INVOICE-7{unseen}"), format!("{unseen}INVOICE-7"), within] {
            let posted = post(rig, entry(&caller, CreditKind::TopUp, "5", &reference));
            assert!(is_invalid(&posted), "{reference:?}: {posted:?}");
        }
    }
    for reference in ["INVOICE 8", "Rechnung Nr. 9 für Müller, \u{1f4b6}"] {
        assert!(
            post(rig, entry(&caller, CreditKind::TopUp, "5", reference))
                .unwrap()
                .added
        );
    }
    assert_eq!(rig.figures(&caller).balance, credits("15"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn entries_are_listed_page_by_page(rig: &Rig) {
    let caller = rig.caller("0");
    let mut expected = Vec::new();
    for n in 0..25 {
        // Some at one moment: those are in the order of their references.
        if n % 3 == 0 {
            rig.clock.advance(1);
        }
        let reference = format!("{:02}", (n * 7) % 25);
        post(rig, entry(&caller, CreditKind::TopUp, "1", &reference)).unwrap();
        expected.push((rig.clock.now(), reference));
    }
    expected.sort();
    expected.reverse();
    for limit in [1, 4, 24, 25, 26] {
        let (mut told, mut before): (Vec<(Timestamp, String)>, Option<String>) = (Vec::new(), None);
        loop {
            let page = list(rig, &caller, limit, before.as_deref()).unwrap();
            assert!(page.entries.len() <= usize::try_from(limit).unwrap());
            told.extend(page.entries.into_iter().map(|entry| (entry.at, entry.reference)));
            match page.next {
                Some(next) => before = Some(next),
                None => break,
            }
        }
        assert_eq!(told, expected, "{limit}");
    }
    assert!(matches!(
        list(rig, &caller, 5, Some("unknown")),
        Err(AdminError::Invalid(_))
    ));
    assert_eq!(
        list(rig, &rig.caller_of("empty", "0", LimitOverrides::default()), 5, None),
        Ok(CreditPage::default())
    );
    let mut nobody = caller.clone();
    nobody.account = std::sync::Arc::new(crate::ledger::AccountRecord {
        id: "nobody".parse().unwrap(),
        ..(*caller.account).clone()
    });
    assert!(matches!(list(rig, &nobody, 5, None), Err(AdminError::NoAccount(_))));
    assert!(matches!(
        list(rig, &nobody, 5, Some("x")),
        Err(AdminError::NoAccount(_))
    ));
    let (from, to) = (NOW.day(), NOW.day());
    assert!(matches!(
        statement(rig, &nobody, from, to),
        Err(AdminError::NoAccount(_))
    ));
}

/// 400 credits; 600 corrections and calls of one credit each at once: 400 win, and what is available is never below zero.
pub(super) fn of_corrections_and_calls_at_once_as_many_win_as_there_is_credit_for(rig: &Rig) {
    const WORKERS: usize = 4;
    const EACH: usize = 75;
    let caller = rig.caller("400");
    let won: Vec<(usize, usize)> = on_workers(WORKERS, |worker| {
        let calls = async |n: usize| {
            let n = u64::try_from(worker * EACH + n).unwrap();
            let held = caller.reserve(&request(n + 1, "1")).await.unwrap();
            held.map(|hold| hold.settle(debit("1"))).is_ok()
        };
        let corrections = async |n: usize| {
            let correction = entry(&caller, CreditKind::Correction, "-1", &format!("{worker} {n}"));
            match rig.ledger.run(AdminOp::Credit(CreditOp::Post(correction))).await {
                Ok(AdminReply::Posted(Posted { balance, .. })) => {
                    assert!(balance >= Credits::ZERO, "{balance}");
                    true
                }
                Err(AdminError::Conflict(text)) if text.contains("more than is available") => false,
                other => panic!("{other:?}"),
            }
        };
        let count = |won: Vec<bool>| won.into_iter().filter(|won| *won).count();
        let (called, corrected) =
            block_on(async { futures::join!(join_all((0..EACH).map(calls)), join_all((0..EACH).map(corrections))) });
        (count(called), count(corrected))
    });
    let called: usize = won.iter().map(|(called, _)| called).sum();
    let corrected: usize = won.iter().map(|(_, corrected)| corrected).sum();
    assert_eq!(called + corrected, 400, "{called} calls and {corrected} corrections");
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, Credits::ZERO));
    let page = list(rig, &caller, 1_000, None).unwrap();
    assert_eq!(page.entries.len(), corrected + 1);
    audit_is_clean(&rig.ledger);
}
