//! One call by its name, pages of one key, and usage of chosen days and by key.

use crate::ledger::admin::ReceiptQuery;
use crate::ledger::query::{RunningCall, UsageQuery};
use crate::ledger::tests::rig::{NOW, Rig, block_on, credits, debit, request, request_id};
use crate::ledger::{Caller, Debit};
use crate::pure::ids::KeyId;
use crate::pure::limits::LimitOverrides;
use crate::pure::receipt::{CallDetails, Receipt};
use crate::pure::time::{Day, Days, Period};

fn named(rig: &Rig, caller: &Caller, name: &str) -> (Option<Receipt>, Option<RunningCall>) {
    let query = ReceiptQuery::named(&caller.account.id, name);
    let page = block_on(rig.ledger.receipts(query)).unwrap();
    (page.receipts.into_iter().next(), page.running)
}

/// What is debited for an answer with an id of its own.
fn answered(cost: &str, upstream_id: &str) -> Debit {
    let details = CallDetails {
        upstream_id: Some(upstream_id.to_owned()),
        ..CallDetails::default()
    };
    Debit {
        details: Some(Box::new(details)),
        ..debit(cost)
    }
}

pub(super) fn a_call_is_found_by_both_its_names(rig: &Rig) {
    let caller = rig.caller("100");
    let twice = request_id(7).to_string();
    for (n, id) in [(1, "gen-1"), (2, "\u{e9} \"2\"\n"), (3, "gen-1"), (4, twice.as_str())] {
        rig.reserve(&caller, &request(n, "1"))
            .unwrap()
            .settle(answered("0.5", id));
    }
    let found = |name: &str| named(rig, &caller, name).0.map(|receipt| receipt.billed.id);
    for n in 1..=4 {
        let id = request_id(n).to_string();
        assert_eq!(found(&id), Some(request_id(n)));
        assert_eq!(found(&id.to_uppercase()), Some(request_id(n)));
    }
    // Two answers with one id: the newest.
    assert_eq!(found("gen-1"), Some(request_id(3)));
    assert_eq!(found("\u{e9} \"2\"\n"), Some(request_id(2)));
    // An answer's own id that has the form of a request's.
    assert_eq!(found(&twice), Some(request_id(4)));
    for unknown in ["gen-2", "gen-", "GEN-1", "a/m", &request_id(9).to_string()] {
        assert_eq!(named(rig, &caller, unknown), (None, None), "{unknown}");
    }
    let other = rig.caller_of("other", "1", LimitOverrides::default());
    assert_eq!(named(rig, &other, "gen-1"), (None, None));
    assert_eq!(named(rig, &other, &request_id(1).to_string()), (None, None));
}

pub(super) fn a_call_that_holds_credit_runs(rig: &Rig) {
    let caller = rig.caller("100");
    let hold = rig.reserve(&caller, &request(1, "2")).unwrap();
    let name = request_id(1).to_string();
    let (receipt, running) = named(rig, &caller, &name);
    let running = running.unwrap();
    assert_eq!((receipt, running.id, running.held), (None, request_id(1), credits("2")));
    assert_eq!(running.key, None);
    // Its answer's own id is not known before it is billed; nor is it another account's.
    assert_eq!(named(rig, &caller, "gen-1"), (None, None));
    let other = rig.caller_of("other", "1", LimitOverrides::default());
    assert_eq!(named(rig, &other, &name), (None, None));
    hold.settle(answered("1", "gen-1"));
    for name in [&name, "gen-1"] {
        let (receipt, running) = named(rig, &caller, name);
        assert_eq!((receipt.unwrap().billed.cost, running), (credits("1"), None));
    }
    // Of a key with limits of its own the hold says so.
    let limits = LimitOverrides {
        rpm: Some(100),
        ..LimitOverrides::default()
    };
    let limited = rig.caller_of("acme", "0", limits);
    let mut asked = request(2, "1");
    asked.scope = crate::pure::account::Scope::of(&limited.key.id, &limits);
    let hold = rig.reserve(&limited, &asked).unwrap();
    let (_, running) = named(rig, &limited, &request_id(2).to_string());
    assert_eq!(running.unwrap().key.as_ref(), Some(&limited.key.id));
    hold.release();
    assert_eq!(named(rig, &limited, &request_id(2).to_string()), (None, None));
}

fn of_key(cost: &str, key: &KeyId, model: &str) -> Debit {
    Debit {
        key: key.clone(),
        model: model.into(),
        ..debit(cost)
    }
}

pub(super) fn a_page_may_be_of_one_key(rig: &Rig) {
    let caller = rig.caller("10");
    let other = rig.caller("0");
    for n in 1..=6 {
        let key = if n % 3 == 0 { &other.key.id } else { &caller.key.id };
        rig.reserve(&caller, &request(n, "0.1"))
            .unwrap()
            .settle(of_key("0.1", key, "a/m"));
    }
    let mut query = ReceiptQuery {
        key: Some(other.key.id.clone()),
        ..ReceiptQuery::newest(&caller.account.id, 1)
    };
    let mut ids = Vec::new();
    loop {
        let page = block_on(rig.ledger.receipts(query.clone())).unwrap();
        ids.extend(page.receipts.iter().map(|receipt| receipt.billed.id));
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    assert_eq!(ids, [6, 3].map(request_id));
}

pub(super) fn usage_is_of_chosen_days_and_by_key(rig: &Rig) {
    let caller = rig.caller("100");
    let other = rig.caller("0");
    let first = NOW.day();
    for n in 0..5_u64 {
        for (key, cost) in [(&caller.key.id, "0.000000000001"), (&other.key.id, "0.2")] {
            let id = 10 + n * 2 + u64::from(*key == other.key.id);
            rig.reserve(&caller, &request(id, "1"))
                .unwrap()
                .settle(of_key(cost, key, "a/m"));
        }
        // What was settled has its day before the clock goes on.
        rig.usage(&caller, Period::Today);
        rig.clock.advance(86_400_000);
    }
    let rows = |from: i64, to: i64, key: Option<&KeyId>, by_key: bool| {
        let query = UsageQuery {
            account: caller.account.id.clone(),
            key: key.cloned(),
            days: Days::Span {
                from: Day(first.0 + from),
                to: Day(first.0 + to),
            },
            by_key,
        };
        let rows = block_on(rig.ledger.usage_of(query)).unwrap();
        let figures = |keyed: crate::ledger::query::KeyedRow| {
            (keyed.row.day.0 - first.0, keyed.key, keyed.row.requests, keyed.row.cost)
        };
        rows.into_iter().map(figures).collect::<Vec<_>>()
    };
    let both = credits("0.200000000001");
    assert_eq!(rows(1, 2, None, false), [(1, None, 2, both), (2, None, 2, both)]);
    assert_eq!(rows(-9, 0, None, false), [(0, None, 2, both)]);
    assert_eq!(rows(4, 99, None, false), [(4, None, 2, both)]);
    assert_eq!(rows(5, 9, None, false), []);
    assert_eq!(rows(2, 1, None, true), []);
    let own = (3, Some(caller.key.id.clone()), 1, credits("0.000000000001"));
    let others = (3, Some(other.key.id.clone()), 1, credits("0.2"));
    let mut expected = [own, others.clone()];
    expected.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(rows(3, 3, None, true), expected);
    assert_eq!(rows(3, 3, Some(&other.key.id), true), [others]);
    assert_eq!(rows(3, 3, Some(&other.key.id), false), [(3, None, 1, credits("0.2"))]);
}
