//! Usage by end user: sums over receipts, of a key's own calls and of chosen days, and none where there is too much.

use crate::ledger::admin::{AdminError, AdminOp};
use crate::ledger::query::{END_USERS_MAX, EndUserBound, EndUserQuery, EndUserUsage};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, request};
use crate::ledger::{Caller, Debit};
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::KeyId;
use crate::pure::receipt::CallDetails;
use crate::pure::time::{Day, Days, Period};

fn of(end_user: Option<&str>, cost: &str, key: &KeyId) -> Debit {
    let details = CallDetails {
        end_user: end_user.map(Box::from),
        ..CallDetails::default()
    };
    Debit {
        key: key.clone(),
        details: Some(Box::new(details)),
        ..debit(cost)
    }
}

fn asked(rig: &Rig, caller: &Caller, key: Option<&KeyId>, days: impl Into<Days>) -> EndUserUsage {
    let query = EndUserQuery {
        account: caller.account.id.clone(),
        key: key.cloned(),
        days: days.into(),
    };
    let usage = block_on(rig.ledger.end_users(query.clone())).unwrap();
    // A command is told the same.
    let told = rig.run(AdminOp::EndUsers(query)).unwrap().into_end_users();
    assert_eq!(told.as_ref(), Some(&usage));
    usage
}

/// Names, calls, tokens of both sides together, and cost.
fn rows(usage: EndUserUsage) -> Vec<(Option<String>, u64, u64, CreditSum)> {
    let EndUserUsage::Sums(rows) = usage else {
        panic!("{usage:?}");
    };
    let figures = rows.into_iter().map(|row| {
        let tokens = row.prompt_tokens + row.completion_tokens;
        (row.end_user.map(String::from), row.requests, tokens, row.cost)
    });
    figures.collect()
}

pub(super) fn usage_is_told_by_end_user(rig: &Rig) {
    let caller = rig.caller("100");
    let other = rig.caller("0");
    let (own, others) = (&caller.key.id, &other.key.id);
    assert_eq!(rows(asked(rig, &caller, None, Period::All)), []);
    let day = |n: i64| Days::Span {
        from: Day(NOW.day().0 + n),
        to: Day(NOW.day().0 + n),
    };
    let calls = [
        (0, Some("anna"), "0.000000000001", own),
        (0, None, "0.5", own),
        (0, Some("\u{e4} \"b\"\n"), "0.25", own),
        (1, Some("anna"), "0.000000000001", own),
        (1, Some("anna"), "2", others),
        (1, None, "0", others),
        // Named by nobody, and with nothing told of it at all.
        (2, None, "0.125", own),
    ];
    let mut today = 0;
    for (n, (day, end_user, cost, key)) in (1..).zip(calls) {
        if day > today {
            // What was settled has its day before the clock goes on.
            rig.usage(&caller, Period::Today);
            rig.clock.advance(86_400_000);
            today = day;
        }
        let told = match day {
            2 => debit(cost),
            _ => of(end_user, cost, key),
        };
        rig.reserve(&caller, &request(n, "5")).unwrap().settle(told);
    }
    rig.reserve(&caller, &request(99, "5")).unwrap().release();
    let anna = |calls: u64, cost: &str| {
        (
            Some("anna".to_owned()),
            calls,
            7 * calls,
            CreditSum::from(credits(cost)),
        )
    };
    let nobody = |calls: u64, cost: &str| (None, calls, 7 * calls, CreditSum::from(credits(cost)));
    let third = (
        Some("\u{e4} \"b\"\n".to_owned()),
        1,
        7,
        CreditSum::from(credits("0.25")),
    );
    let all = asked(rig, &caller, None, Period::All);
    assert_eq!(
        rows(all),
        [nobody(3, "0.625"), anna(3, "2.000000000002"), third.clone()]
    );
    assert_eq!(rows(asked(rig, &caller, None, Period::Today)), [nobody(1, "0.125")]);
    assert_eq!(
        rows(asked(rig, &caller, None, day(0))),
        [nobody(1, "0.5"), anna(1, "0.000000000001"), third]
    );
    assert_eq!(
        rows(asked(rig, &caller, None, day(1))),
        [nobody(1, "0"), anna(2, "2.000000000001")]
    );
    assert_eq!(
        rows(asked(rig, &caller, Some(others), day(1))),
        [nobody(1, "0"), anna(1, "2")]
    );
    assert_eq!(rows(asked(rig, &caller, Some(others), day(0))), []);
    assert_eq!(rows(asked(rig, &caller, None, day(9))), []);
    // Together they are the debits.
    let spent: i128 = rows(asked(rig, &caller, None, Period::All))
        .iter()
        .map(|row| row.3.pico())
        .sum();
    let left = CreditSum::from_pico(CreditSum::from(credits("100")).pico() - spent);
    assert_eq!(left, CreditSum::from(rig.figures(&caller).balance));
    let nobody = AdminOp::EndUsers(EndUserQuery {
        account: "nobody".parse().unwrap(),
        key: None,
        days: Period::All.into(),
    });
    assert!(matches!(rig.run(nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

pub(super) fn of_too_many_end_users_there_are_no_sums(rig: &Rig) {
    let caller = rig.caller("10");
    let most = u64::try_from(END_USERS_MAX).unwrap();
    let call = |n: u64| {
        let name = format!("user-{n}");
        let debit = of(Some(&name), "0.001", &caller.key.id);
        rig.reserve(&caller, &request(n, "0.001")).unwrap().settle(debit);
    };
    (1..=most).for_each(call);
    assert_eq!(rows(asked(rig, &caller, None, Period::Today)).len(), END_USERS_MAX);
    call(most + 1);
    let beyond = EndUserUsage::Beyond(EndUserBound::EndUsers);
    assert_eq!(asked(rig, &caller, None, Period::Today), beyond);
    rig.usage(&caller, Period::Today);
    rig.clock.advance(86_400_000);
    call(most + 2);
    assert_eq!(rows(asked(rig, &caller, None, Period::Today)).len(), 1);
}
