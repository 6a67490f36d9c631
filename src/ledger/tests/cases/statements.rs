//! Statements: they add up to the last digit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::credits::{entry, post, statement};
use crate::ledger::admin::AdminError;
use crate::ledger::admin::credits::{CreditKind, CreditPost, DebitRow, Statement};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, credits, debit, request};
use crate::ledger::{Caller, Debit};
use crate::pure::account::ReserveRequest;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Day;

fn model_debit(model: &str, cost: &str) -> Debit {
    Debit {
        model: model.into(),
        ..debit(cost)
    }
}

fn call(rig: &Rig, caller: &Caller, (n, model): (u64, &str), cost: &str) {
    let wanted = ReserveRequest {
        expires: rig.clock.now().plus_millis(60_000),
        ..request(n, "0")
    };
    rig.reserve(caller, &wanted).unwrap().settle(model_debit(model, cost));
    rig.figures(caller); // A store may settle a moment later, by the clock of that moment.
}

const DAY_MS: i64 = 86_400_000;

pub(super) fn a_statement_adds_up(rig: &Rig) {
    let (first, caller) = (NOW.day(), rig.caller("10"));
    call(rig, &caller, (1, "a/m"), "1");
    call(rig, &caller, (2, "b/m"), "0.5");
    rig.clock.advance(DAY_MS - 1);
    call(rig, &caller, (3, "a/m"), "0.25");
    post(rig, entry(&caller, CreditKind::Bonus, "3", "last moment")).unwrap();
    rig.clock.advance(1);
    post(rig, entry(&caller, CreditKind::Refund, "-2", "next day")).unwrap();
    call(rig, &caller, (4, "a/m"), "0.125");
    let second = first.next();
    let whole = statement(rig, &caller, first, second).unwrap();
    assert_eq!((whole.opening, whole.closing), (Credits::ZERO, credits("9.125")));
    let references = |statement: &Statement| -> Vec<String> {
        statement.entries.iter().map(|entry| entry.reference.clone()).collect()
    };
    assert_eq!(references(&whole), ["first", "last moment", "next day"]);
    let row = |day, model: &str, requests, cost: &str| DebitRow {
        day,
        model: model.to_owned(),
        requests,
        prompt_tokens: 3 * requests,
        completion_tokens: 4 * requests,
        cost: credits(cost),
    };
    let rows = [
        row(first, "a/m", 2, "1.25"),
        row(first, "b/m", 1, "0.5"),
        row(second, "a/m", 1, "0.125"),
    ];
    assert_eq!(whole.debits, rows);
    let one = statement(rig, &caller, first, first).unwrap();
    assert_eq!((one.opening, one.closing), (Credits::ZERO, credits("11.25")));
    assert_eq!(
        (references(&one), one.debits.as_slice()),
        (vec!["first".to_owned(), "last moment".to_owned()], &rows[..2])
    );
    let other = statement(rig, &caller, second, second).unwrap();
    assert_eq!((other.opening, other.closing), (one.closing, whole.closing));
    let before = statement(rig, &caller, Day(first.0 - 9), Day(first.0 - 1)).unwrap();
    assert_eq!(
        (before.opening, before.closing, before.entries.len()),
        (Credits::ZERO, Credits::ZERO, 0)
    );
    let after = statement(rig, &caller, second.next(), Day(second.0 + 300)).unwrap();
    assert_eq!(
        (after.opening, after.closing, after.debits.len()),
        (whole.closing, whole.closing, 0)
    );
}

pub(super) fn a_statement_has_its_bounds(rig: &Rig) {
    let caller = rig.caller("10");
    let today = NOW.day();
    assert!(statement(rig, &caller, Day(today.0 - 366), today).is_ok());
    assert!(matches!(
        statement(rig, &caller, Day(today.0 - 367), today),
        Err(AdminError::Invalid(_))
    ));
    assert!(matches!(
        statement(rig, &caller, today.next(), today),
        Err(AdminError::Invalid(_))
    ));
    let far = statement(rig, &caller, Day(i64::MIN), Day(i64::MIN + 5)).unwrap();
    assert_eq!((far.opening, far.closing), (Credits::ZERO, Credits::ZERO));
    let far = statement(rig, &caller, Day(i64::MAX - 5), Day(i64::MAX)).unwrap();
    assert_eq!((far.opening, far.closing), (credits("10"), credits("10")));
    assert!(matches!(
        statement(rig, &caller, Day(i64::MIN), Day(i64::MAX)),
        Err(AdminError::Invalid(_))
    ));
}

/// What happens on a day: entries and calls, with amounts in 10^-12 credit.
#[derive(Clone, Debug)]
enum Act {
    Post(i64),
    Call(u8, i64),
    Wait(i64),
}

fn act() -> impl Strategy<Value = Act> {
    let amount = || prop_oneof![1i64..1_000, 1i64..(1 << 53), (1i64 << 53)..(1 << 55)];
    prop_oneof![
        2 => amount().prop_map(Act::Post),
        1 => amount().prop_map(|amount| Act::Post(-amount)),
        4 => (0u8..3, amount()).prop_map(|(model, cost)| Act::Call(model, cost)),
        3 => (0i64..20 * DAY_MS).prop_map(Act::Wait),
    ]
}

/// A year of entries and debits of every size, and statements of its parts, against sums that are kept apart.
pub(super) fn a_statement_of_a_year_is_that_of_an_oracle(rig: &Rig) {
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    let count = std::cell::Cell::new(0u64);
    let year = (
        proptest::collection::vec(act(), 1..120),
        proptest::collection::vec((0i64..400, 0i64..366), 4),
    );
    let outcome = runner.run(&year, |(acts, spans)| {
        count.set(count.get() + 1);
        rig.clock.advance(NOW.since(rig.clock.now()));
        let caller = rig.caller_of(&format!("year-{}", count.get()), "0", LimitOverrides::default());
        let mut entries: Vec<(Day, i64)> = Vec::new();
        let mut debits: BTreeMap<(Day, String), i64> = BTreeMap::new();
        for (n, act) in acts.into_iter().enumerate() {
            let today = rig.clock.now().day();
            match act {
                Act::Post(pico) => {
                    let post_it = CreditPost {
                        amount: Credits::from_pico(pico),
                        allow_negative: true,
                        ..entry(&caller, CreditKind::Correction, "1", &n.to_string())
                    };
                    post(rig, post_it).unwrap();
                    entries.push((today, pico));
                }
                Act::Call(model, cost) => {
                    let (id, model) = (count.get() * 1_000 + u64::try_from(n).unwrap(), format!("m/{model}"));
                    call(rig, &caller, (id, &model), &Credits::from_pico(cost).to_string());
                    *debits.entry((today, model)).or_default() += cost;
                }
                Act::Wait(ms) => rig.clock.advance(ms),
            }
        }
        let balance = rig.figures(&caller).balance;
        let today = rig.clock.now().day();
        let spans = spans
            .into_iter()
            .map(|(first, days)| (Day(NOW.day().0 + first), Day(NOW.day().0 + first + days)));
        for (from, to) in spans.chain([(Day(today.0 - 366), today), (today, today)]) {
            let told = statement(rig, &caller, from, to).unwrap();
            let sum_before = |day: Day| -> i64 {
                let added: i64 = entries.iter().filter(|(at, _)| *at < day).map(|(_, pico)| pico).sum();
                let of = debits.iter().filter(|((at, _), _)| *at < day);
                added - of.map(|(_, cost)| cost).sum::<i64>()
            };
            prop_assert_eq!(told.opening.pico(), sum_before(from));
            prop_assert_eq!(told.closing.pico(), sum_before(to.next()));
            let within = |day: &Day| (from..=to).contains(day);
            let expected: Vec<i64> = entries
                .iter()
                .filter(|(day, _)| within(day))
                .map(|(_, pico)| *pico)
                .collect();
            let mut amounts: Vec<i64> = told.entries.iter().map(|entry| entry.amount.pico()).collect();
            // Those of one moment stand in the order of their references.
            let sorted = |mut amounts: Vec<i64>| {
                amounts.sort_unstable();
                amounts
            };
            amounts = sorted(amounts);
            prop_assert_eq!(amounts, sorted(expected));
            let rows: Vec<_> = told
                .debits
                .iter()
                .map(|row| ((row.day, row.model.clone()), row.cost.pico()))
                .collect();
            let of_days = debits.iter().filter(|((day, _), _)| within(day));
            prop_assert_eq!(
                rows,
                of_days.map(|(row, cost)| (row.clone(), *cost)).collect::<Vec<_>>()
            );
            if to >= today {
                prop_assert_eq!(told.closing, balance);
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    audit_is_clean(&rig.ledger);
}
