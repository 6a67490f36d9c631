//! Holds, settlements, credit and quota.

use futures::future::join_all;

use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::redis_server::until;
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request, request_id};
use crate::pure::account::{Denial, ReserveRequest, Settled, Settlement};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::time::Period;

pub(super) fn a_settlement_takes_the_cost_and_gives_the_rest_back(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    assert_eq!(hold.amount(), credits("4"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("10"), credits("4")));
    hold.settle(debit("1.000000000001"));
    let figures = rig.figures(&caller);
    assert_eq!(figures.balance, credits("8.999999999999"));
    assert_eq!(figures.held, Credits::ZERO);
    assert_eq!(figures.monthly_used, credits("1.000000000001"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn an_overrun_is_taken_whole(rig: &Rig) {
    let caller = rig.caller("1");
    rig.reserve(&caller, &request(1, "1")).unwrap().settle(debit("2.5"));
    assert_eq!(rig.figures(&caller).balance, credits("-1.5"));
    let denial = rig.reserve(&caller, &request(2, "0.1")).unwrap_err();
    assert!(
        matches!(denial, Denial::Credit { available, .. } if available == credits("-1.5")),
        "{denial:?}"
    );
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_released_or_dropped_hold_leaves_nothing(rig: &Rig) {
    let caller = rig.caller("1");
    rig.reserve(&caller, &request(1, "1")).unwrap().release();
    drop(rig.reserve(&caller, &request(2, "1")).unwrap());
    let view = rig.show(&caller);
    assert_eq!((view.figures.held, view.open_holds), (Credits::ZERO, 0));
    assert!(rig.usage(&caller, Period::All).is_empty());
    audit_is_clean(&rig.ledger);
}

pub(super) fn what_is_held_cannot_be_held_again(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.7")).unwrap();
    assert!(rig.reserve(&caller, &request(2, "0.7")).is_err());
    let other = rig.reserve(&caller, &request(3, "0.3")).unwrap();
    hold.release();
    let again = rig.reserve(&caller, &request(4, "0.7")).unwrap();
    assert_eq!(rig.figures(&caller).held, credits("1"));
    again.release();
    other.release();
}

pub(super) fn a_denial_says_what_there_is(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.25")).unwrap();
    let denial = rig.reserve(&caller, &request(2, "0.9")).unwrap_err();
    assert!(
        matches!(denial, Denial::Credit { available, held, .. } if available == credits("0.75") && held == credits("0.25")),
        "{denial:?}"
    );
    hold.settle(debit("0.2"));
    let quota = ReserveRequest {
        quota: credits("0.5"),
        ..request(3, "0.4")
    };
    let denial = rig.reserve(&caller, &quota).unwrap_err();
    assert!(
        matches!(denial, Denial::Quota { used, held, .. } if used == credits("0.2") && held == Credits::ZERO),
        "{denial:?}"
    );
}

pub(super) fn a_hold_lives_longer_than_the_moment_it_was_made(rig: &Rig) {
    let caller = rig.caller("1");
    let now = rig.clock.now();
    assert!(caller.hold_expiry(now).since(now) >= 1_000, "a second at the least");
    assert_eq!(rig.ledger.hold_expiry(now), caller.hold_expiry(now));
}

pub(super) fn a_hold_that_is_given_back_says_nothing_and_a_lost_one_is_logged(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    assert_eq!(logged(|| hold.release()), Vec::<String>::new());
    let lost = rig.reserve(&caller, &request(2, "1")).unwrap();
    let lines = logged(|| drop(lost));
    assert!(lines.len() == 1 && lines[0].starts_with("WARN "), "{lines:?}");
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
}

pub(super) fn a_hold_may_shrink_to_what_there_is(rig: &Rig) {
    let caller = rig.caller("1");
    let range = |n, quota: &str, at_least: &str| ReserveRequest {
        at_least: credits(at_least),
        quota: credits(quota),
        ..request(n, "5")
    };
    let hold = rig.reserve(&caller, &range(1, "100", "0.5")).unwrap();
    assert_eq!(hold.amount(), credits("1"));
    hold.release();
    let hold = rig.reserve(&caller, &range(2, "0.300000000001", "0.3")).unwrap();
    assert_eq!(hold.amount(), credits("0.300000000001"));
    hold.release();
    assert!(rig.reserve(&caller, &range(3, "100", "1.000000000001")).is_err());
}

pub(super) fn the_quota_counts_by_the_month(rig: &Rig) {
    let caller = rig.caller("100");
    let monthly = |n, wanted: &str| ReserveRequest {
        quota: credits("10"),
        expires: rig.clock.now().plus_millis(60_000),
        ..request(n, wanted)
    };
    rig.reserve(&caller, &monthly(1, "8")).unwrap().settle(debit("8"));
    let hold = rig.reserve(&caller, &monthly(2, "2")).unwrap();
    assert!(matches!(
        rig.reserve(&caller, &monthly(3, "1")),
        Err(Denial::Quota { .. })
    ));
    // Eleven days later it is December, and the hold of November has expired.
    rig.clock.advance(11 * 86_400_000);
    hold.settle(debit("3"));
    assert_eq!(rig.figures(&caller).monthly_used, credits("3"));
    let hold = rig.reserve(&caller, &monthly(4, "7")).unwrap();
    assert!(matches!(
        rig.reserve(&caller, &monthly(5, "0.1")),
        Err(Denial::Quota { .. })
    ));
    hold.settle(debit("7"));
    assert_eq!(rig.figures(&caller).monthly_used, credits("10"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_call_that_costs_nothing_needs_no_credit(rig: &Rig) {
    let caller = rig.caller("0");
    let free = ReserveRequest {
        quota: Credits::ZERO,
        ..request(1, "0")
    };
    let hold = rig.reserve(&caller, &free).unwrap();
    assert_eq!(rig.show(&caller).open_holds, 1);
    hold.settle(debit("0"));
    assert_eq!(rig.show(&caller).open_holds, 0);
    let rows = rig.usage(&caller, Period::Today);
    assert_eq!((rows.len(), rows[0].requests, rows[0].cost), (1, 1, Credits::ZERO));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_hold_that_nobody_renews_expires_and_its_settlement_counts(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    rig.clock.advance(59_999);
    assert!(rig.reserve(&caller, &request(2, "1")).is_err());
    rig.clock.advance(1);
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
    let later = ReserveRequest {
        expires: NOW.plus_millis(120_000),
        ..request(3, "1")
    };
    let other = rig.reserve(&caller, &later).unwrap();
    hold.settle(debit("0.75"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("0.25"), credits("1")));
    other.release();
    audit_is_clean(&rig.ledger);
}

pub(super) fn the_same_request_holds_once(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.6")).unwrap();
    let again = rig.reserve(&caller, &request(1, "0.6")).unwrap();
    assert_eq!((hold.amount(), again.amount()), (credits("0.6"), credits("0.6")));
    assert_eq!(rig.show(&caller).open_holds, 1);
    again.settle(debit("0.5"));
    hold.release();
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("0.5"), Credits::ZERO));
}

/// Twice, ten times, with another amount, above the hold, after the hold expired, and again a month later.
pub(super) fn a_settlement_counts_once_however_often_and_late_it_comes(rig: &Rig) {
    let caller = rig.caller("100");
    let book = rig.book(&caller);
    let settlement = |n, cost: &str| Settlement {
        hold: request_id(n),
        cost: credits(cost),
        tokens: 7,
        number: CallNumber::new(ProducerId(5), n),
    };
    let settle = |n, cost: &str| book.settle(&settlement(n, cost), &debit(cost), None);
    let balance = || rig.figures(&caller).balance;
    for n in 1..=3 {
        book.reserve(&request(n, "10")).unwrap();
    }
    assert_eq!(settle(1, "4"), Settled::Now { overrun: false });
    assert_eq!(settle(1, "4"), Settled::Already);
    assert_eq!(balance(), credits("96"));
    assert_eq!(settle(2, "25"), Settled::Now { overrun: true }, "above the hold");
    assert_eq!(balance(), credits("71"), "taken whole");
    rig.clock.advance(60_000);
    assert_eq!(rig.figures(&caller).held, Credits::ZERO, "the third hold has expired");
    assert_eq!(settle(3, "6"), Settled::Now { overrun: true });
    assert_eq!(balance(), credits("65"));
    rig.clock.advance(40 * 86_400_000);
    for _ in 0..10 {
        for (n, cost) in [(1, "4"), (2, "25"), (3, "6"), (3, "7")] {
            assert_eq!(settle(n, cost), Settled::Already);
        }
    }
    assert_eq!((balance(), rig.figures(&caller).held), (credits("65"), Credits::ZERO));
    assert_eq!(
        rig.usage(&caller, Period::All)
            .iter()
            .map(|row| row.requests)
            .sum::<u64>(),
        3
    );
    audit_is_clean(&rig.ledger);
}

/// 2,000 callers want one credit each, and there are 300: exactly 300 pay, and nobody is refused while credit is free.
pub(super) fn of_many_callers_as_many_win_as_there_is_credit_for(rig: &Rig) {
    const WORKERS: usize = 4;
    const CALLERS: usize = 2000;
    let caller = rig.caller("300");
    let won: usize = on_workers(WORKERS, |worker| {
        let call = async |n: usize| {
            let n = u64::try_from(worker * CALLERS + n).unwrap();
            match caller.reserve(&request(n, "1")).await.unwrap() {
                Ok(hold) => {
                    hold.settle(debit("1"));
                    true
                }
                Err(Denial::Credit { available, .. }) => {
                    assert!(available < credits("1"), "refused although there was {available}");
                    false
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        let all = block_on(join_all((0..CALLERS / WORKERS).map(call)));
        all.into_iter().filter(|paid| *paid).count()
    })
    .into_iter()
    .sum();
    assert_eq!(won, 300);
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, Credits::ZERO));
    assert_eq!(rig.usage(&caller, Period::Today)[0].requests, 300);
    audit_is_clean(&rig.ledger);
}

pub(super) fn the_smallest_and_the_largest_amounts_are_exact(rig: &Rig) {
    let rich = rig.caller_of("rich", "9000000", LimitOverrides::default());
    let poor = rig.caller_of("poor", "0.000000000001", LimitOverrides::default());
    rig.reserve(&rich, &request(1, "8999999.999999999999"))
        .unwrap()
        .settle(debit("0.000000000001"));
    assert_eq!(rig.figures(&rich).balance, credits("8999999.999999999999"));
    let hold = rig.reserve(&rich, &request(2, "8999999.999999999999")).unwrap();
    assert!(rig.reserve(&rich, &request(3, "0.000000000001")).is_err());
    hold.settle(debit("8999999.999999999998"));
    assert_eq!(rig.figures(&rich).balance, credits("0.000000000001"));
    let hold = rig.reserve(&poor, &request(4, "0.000000000001")).unwrap();
    assert!(rig.reserve(&poor, &request(5, "0.000000000001")).is_err());
    hold.settle(debit("0.000000000001"));
    assert_eq!(rig.figures(&poor).balance, Credits::ZERO);
    audit_is_clean(&rig.ledger);
}

/// The clock runs 400 days ahead for a moment, and back: the month's use is what its days say, then and in the months that follow.
pub(super) fn a_clock_that_was_wrong_does_not_change_what_a_month_used(rig: &Rig) {
    const DAYS: i64 = 400 * 86_400_000;
    let caller = rig.caller("100");
    let pay = |n: u64, cost: &str| {
        let monthly = ReserveRequest {
            quota: credits("10"),
            expires: rig.clock.now().plus_millis(60_000),
            ..request(n, cost)
        };
        rig.reserve(&caller, &monthly).map(|hold| hold.settle(debit(cost)))
    };
    pay(1, "6").unwrap();
    assert_eq!(rig.figures(&caller).monthly_used, credits("6"));
    let before = rig.reserve(&caller, &request(2, "1")).unwrap();
    rig.clock.advance(DAYS);
    before.settle(debit("1"));
    assert_eq!(rig.figures(&caller).monthly_used, credits("1"));
    rig.clock.advance(-DAYS);
    assert_eq!(rig.figures(&caller).monthly_used, credits("6"));
    pay(3, "3").unwrap();
    assert_eq!(rig.figures(&caller).monthly_used, credits("9"));
    assert!(matches!(pay(4, "3"), Err(Denial::Quota { used, .. }) if used == credits("9")));
    audit_is_clean(&rig.ledger);
    rig.clock.advance(60 * 86_400_000);
    assert_eq!(rig.figures(&caller).monthly_used, Credits::ZERO);
    pay(5, "8").unwrap();
    assert_eq!(rig.figures(&caller).monthly_used, credits("8"));
    audit_is_clean(&rig.ledger);
    assert_eq!(
        rig.run(AdminOp::Repair),
        Ok(AdminReply::Repaired { findings: Vec::new() })
    );
}

/// Of accounts below zero the embedded ledger alone knows without looking for them.
pub(super) fn the_metrics_say_what_is_held_and_owed(rig: &Rig) {
    let caller = rig.caller("10");
    let open = || {
        let metrics = rig.ledger.store_metrics();
        (metrics.holds_open, metrics.held)
    };
    assert_eq!(open(), (0, Credits::ZERO));
    let [one, two] = [1, 2].map(|n| rig.reserve(&caller, &request(n, "2.5")).unwrap());
    assert_eq!(open(), (2, credits("5")));
    one.release();
    two.settle(debit("10"));
    assert_eq!(open(), (0, Credits::ZERO));
    rig.usage(&caller, Period::All);
    let is_embedded = rig.ledger.embedded().is_some();
    let owed = || {
        // Usage is told once the debit is written; the queue hears that it is empty a moment later.
        until("nothing is owed", || rig.ledger.store_metrics().unsettled_age.is_zero());
        let metrics = rig.ledger.store_metrics();
        assert_eq!(metrics.kind == "embedded", is_embedded);
        (metrics.unsettled, metrics.unsettled_age.as_millis(), metrics.below_zero)
    };
    assert_eq!(
        owed(),
        (0, 0, is_embedded.then_some(0)),
        "a balance of zero is none below"
    );
    let free = ReserveRequest {
        wanted: Credits::ZERO,
        at_least: Credits::ZERO,
        ..request(3, "1")
    };
    rig.reserve(&caller, &free).unwrap().settle(debit("0.000000000001"));
    rig.usage(&caller, Period::All);
    assert_eq!(owed(), (0, 0, is_embedded.then_some(1)));
}
