//! The account as a value: holds, settlements, limits and the month.

use super::*;
use crate::pure::estimate::HoldRange;

mod kept;

const NOW: Timestamp = Timestamp(1_795_132_800_000);
const P: ProducerId = ProducerId(1);

fn id(n: u8) -> RequestId {
    RequestId::from_bytes([n; 16])
}

fn credits(pico: i64) -> Credits {
    Credits::from_pico(pico)
}

fn account(balance: i64) -> AccountState {
    let mut state = AccountState::default();
    assert!(state.top_up(credits(balance)));
    state
}

fn request(n: u8, wanted: i64) -> ReserveRequest {
    ReserveRequest {
        id: id(n),
        scope: Scope::Account,
        limits: Limits {
            rpm: 100,
            tpm: 1000,
            concurrency: 3,
        },
        quota: credits(1_000_000),
        wanted: credits(wanted),
        at_least: credits(wanted),
        tokens: 10,
        expires: NOW.plus_millis(60_000),
        is_counted: false,
        is_last: true,
        spend: None,
    }
}

fn settlement(n: u8, cost: i64, sequence: u64) -> Settlement {
    Settlement {
        hold: id(n),
        cost: credits(cost),
        tokens: 5,
        number: CallNumber::new(P, sequence),
    }
}

#[test]
fn credit_that_is_held_cannot_be_held_again() {
    let mut state = account(100);
    assert_eq!(state.reserve(&request(1, 60), NOW).unwrap().amount, credits(60));
    let denial = state.reserve(&request(2, 60), NOW).unwrap_err();
    assert!(
        matches!(denial, Denial::Credit { available, held, .. } if available == credits(40) && held == credits(60))
    );
    assert_eq!(state.release(id(1)), Some(credits(60)));
    assert!(state.reserve(&request(2, 60), NOW).is_ok());
    assert_eq!(state.held(), state.held_counted());
}

#[test]
fn a_reserve_that_may_shrink_takes_what_is_there() {
    let mut state = account(100);
    let range = ReserveRequest {
        at_least: credits(10),
        ..request(1, 500)
    };
    assert_eq!(state.reserve(&range, NOW).unwrap().amount, credits(100));
    let mut state = account(100);
    let quota = ReserveRequest {
        at_least: credits(10),
        quota: credits(70),
        ..request(1, 500)
    };
    assert_eq!(state.reserve(&quota, NOW).unwrap().amount, credits(70));
    let mut state = account(9);
    assert!(state.reserve(&range, NOW).is_err());
}

#[test]
fn a_settlement_counts_once_and_an_overrun_is_taken_whole() {
    let mut state = account(100);
    state.reserve(&request(1, 60), NOW).unwrap();
    assert_eq!(
        state.settle(&settlement(1, 130, 1), NOW),
        Settled::Now { overrun: true }
    );
    assert_eq!((state.balance(), state.held()), (credits(-30), Credits::ZERO));
    for _ in 0..10 {
        assert_eq!(state.settle(&settlement(1, 130, 1), NOW), Settled::Already);
    }
    assert_eq!(state.balance(), credits(-30));
    // Numbers come in any order.
    assert_eq!(state.settle(&settlement(2, 5, 3), NOW), Settled::Now { overrun: true });
    assert_eq!(state.settle(&settlement(3, 7, 2), NOW), Settled::Now { overrun: true });
    for (n, sequence) in [(2, 3), (3, 2), (1, 1)] {
        assert_eq!(state.settle(&settlement(n, 9, sequence), NOW), Settled::Already);
    }
    assert_eq!(state.month_used(NOW), credits(142));
}

#[test]
fn a_settlement_counts_after_its_hold_expired() {
    let mut state = account(100);
    state.reserve(&request(1, 60), NOW).unwrap();
    assert_eq!(state.expire(NOW.plus_millis(59_999)), 0);
    assert_eq!(state.expire(NOW.plus_millis(60_000)), 1);
    assert_eq!(state.held(), Credits::ZERO);
    assert_eq!(state.settle(&settlement(1, 50, 1), NOW), Settled::Now { overrun: true });
    assert_eq!(state.balance(), credits(50));
}

#[test]
fn a_renewed_hold_outlives_its_first_term() {
    let mut state = account(100);
    state.reserve(&request(1, 60), NOW).unwrap();
    assert!(state.renew(id(1), NOW.plus_millis(120_000)));
    assert_eq!(state.expire(NOW.plus_millis(60_000)), 0);
    assert_eq!(state.expire(NOW.plus_millis(120_000)), 1);
    assert!(!state.renew(id(1), NOW.plus_millis(240_000)));
}

#[test]
fn the_limits_stand_before_the_credit_and_a_refusal_costs_nothing() {
    let mut state = account(0);
    let tight = Limits {
        rpm: 3,
        tpm: 25,
        concurrency: 1,
    };
    let free = |n| ReserveRequest {
        limits: tight,
        wanted: Credits::ZERO,
        at_least: Credits::ZERO,
        ..request(n, 0)
    };
    assert_eq!(state.reserve(&free(1), NOW).unwrap().rate.remaining_requests, 2);
    assert!(matches!(state.reserve(&free(2), NOW), Err(Denial::Concurrency(_))));
    state.release(id(1));
    assert!(state.reserve(&free(3), NOW).is_ok());
    assert!(matches!(state.reserve(&free(4), NOW), Err(Denial::Requests(view)) if view.reset_ms == 60_000));
    state.release(id(3));
    assert!(
        state.reserve(&free(5), NOW.plus_millis(60_000)).is_ok(),
        "the next window is empty"
    );
}

#[test]
fn a_refusal_counts_as_a_request_once_and_that_of_the_limit_of_requests_does_not() {
    let mut state = account(10);
    let limits = Limits {
        rpm: 3,
        tpm: 25,
        concurrency: 9,
    };
    let ask = |n, wanted| ReserveRequest {
        limits,
        ..request(n, wanted)
    };
    let denial = state.reserve(&ask(1, 60), NOW).unwrap_err();
    assert!(denial.is_counted());
    assert!(matches!(denial, Denial::Credit { rate, .. } if rate.remaining_requests == 2 && rate.reset_ms == 60_000));
    let second_try = ReserveRequest {
        is_counted: true,
        ..ask(1, 1)
    };
    assert_eq!(state.reserve(&second_try, NOW).unwrap().rate.remaining_requests, 2);
    let long = ReserveRequest {
        tokens: 20,
        ..ask(2, 1)
    };
    assert!(matches!(state.reserve(&long, NOW), Err(Denial::Tokens(rate)) if rate.remaining_requests == 1));
    let frugal = ReserveRequest {
        quota: Credits::ZERO,
        ..ask(3, 1)
    };
    assert!(matches!(state.reserve(&frugal, NOW), Err(Denial::Quota { rate, .. }) if rate.remaining_requests == 0));
    for _ in 0..3 {
        let denial = state.reserve(&ask(4, 1), NOW).unwrap_err();
        assert!(!denial.is_counted() && matches!(denial, Denial::Requests(_)));
    }
    let third_try = ReserveRequest {
        is_counted: true,
        ..ask(3, 1)
    };
    assert!(state.reserve(&third_try, NOW).is_ok(), "what is counted already fits");
    assert_eq!(state.rate(&Scope::Account, limits, NOW).remaining_requests, 0);
}

#[test]
fn a_look_refuses_what_a_reserve_would_whatever_the_call_is_and_counts_it() {
    let limits = Limits {
        rpm: 3,
        tpm: 1000,
        concurrency: 1,
    };
    let look = |is_paid, quota| Look {
        scope: Scope::Account,
        limits,
        quota: credits(quota),
        is_paid,
    };
    let ask = |n, wanted| ReserveRequest {
        limits,
        ..request(n, wanted)
    };
    let mut state = account(100);
    assert_eq!(state.look(&look(true, 70), NOW), Ok(()));
    assert_eq!(
        state.rate(&Scope::Account, limits, NOW).remaining_requests,
        3,
        "a look is no request"
    );
    state.reserve(&ask(1, 60), NOW).unwrap();
    assert!(matches!(state.look(&look(true, 70), NOW), Err(Denial::Concurrency(rate)) if rate.remaining_requests == 1));
    state.settle(&settlement(1, 60, 1), NOW);
    assert_eq!(state.look(&look(true, 61), NOW), Ok(()));
    assert!(
        matches!(state.look(&look(true, 60), NOW), Err(Denial::Quota { rate, .. }) if rate.remaining_requests == 0)
    );
    assert!(matches!(state.look(&look(true, 70), NOW), Err(Denial::Requests(_))));

    let later = NOW.plus_millis(60_000);
    state.settle(&settlement(2, 40, 2), later);
    assert_eq!(
        state.look(&look(false, 70), later),
        Ok(()),
        "what costs nothing needs no credit"
    );
    assert!(
        matches!(state.look(&look(true, 700), later), Err(Denial::Credit { rate, .. }) if rate.remaining_requests == 2)
    );
    assert!(state.top_up(credits(1)));
    assert_eq!(state.look(&look(true, 700), later), Ok(()));
    state.reserve(&ask(3, 1), later).unwrap();
    state
        .look(
            &Look {
                limits: Limits {
                    concurrency: 2,
                    ..limits
                },
                ..look(true, 700)
            },
            later,
        )
        .expect("what is held may come back");
}

#[test]
fn tokens_a_minute_are_corrected_to_what_was_used() {
    let mut state = account(100);
    let limits = Limits {
        rpm: 100,
        tpm: 20,
        concurrency: 9,
    };
    let ask = |n, tokens| ReserveRequest {
        limits,
        tokens,
        ..request(n, 1)
    };
    state.reserve(&ask(1, 15), NOW).unwrap();
    assert!(matches!(state.reserve(&ask(2, 15), NOW), Err(Denial::Tokens(view)) if view.remaining_tokens == 5));
    state.settle(
        &Settlement {
            tokens: 2,
            ..settlement(1, 1, 1)
        },
        NOW,
    );
    assert!(state.reserve(&ask(2, 15), NOW).is_ok());
    let mut fresh = account(100);
    assert!(
        fresh.reserve(&ask(3, 9000), NOW).is_ok(),
        "one large call passes through an empty window"
    );
}

#[test]
fn a_new_month_starts_with_nothing_used() {
    let mut state = account(1000);
    state.reserve(&request(1, 60), NOW).unwrap();
    state.settle(&settlement(1, 60, 1), NOW);
    let december = Timestamp(1_796_083_200_000);
    assert_eq!(state.month_used(december), Credits::ZERO);
    let tight = |n| ReserveRequest {
        quota: credits(70),
        ..request(n, 20)
    };
    assert!(matches!(state.reserve(&tight(2), NOW), Err(Denial::Quota { used, .. }) if used == credits(60)));
    assert!(
        state
            .reserve(
                &ReserveRequest {
                    expires: december.plus_millis(1),
                    ..tight(3)
                },
                december
            )
            .is_ok()
    );
}

#[test]
fn a_second_reserve_of_the_same_id_is_the_same_hold() {
    let mut state = account(100);
    state.reserve(&request(1, 60), NOW).unwrap();
    assert_eq!(state.reserve(&request(1, 60), NOW).unwrap().amount, credits(60));
    assert_eq!((state.held(), state.open_holds()), (credits(60), 1));
}

#[test]
fn the_use_of_a_month_is_that_of_its_days_whatever_the_clock_did() {
    let mut state = account(1000);
    let far = NOW.plus_millis(400 * 86_400_000);
    state.settle(&settlement(1, 60, 1), NOW);
    state.settle(&settlement(2, 7, 2), far);
    state.settle(&settlement(3, 5, 3), NOW);
    assert_eq!(
        (state.month_used(NOW), state.month_used(far)),
        (credits(65), credits(7))
    );
    let december = Timestamp(1_796_083_200_000);
    state.settle(&settlement(4, 1, 4), december);
    assert_eq!(state.month_used(december), credits(1));
}

fn range(wanted: i64, at_least: i64) -> HoldRange {
    HoldRange {
        wanted: credits(wanted),
        at_least: credits(at_least),
    }
}

#[test]
fn a_hold_is_raised_as_far_as_the_credit_reaches() {
    let mut state = account(100);
    state.reserve(&request(1, 20), NOW).unwrap();
    state.reserve(&request(2, 30), NOW).unwrap();
    let quota = credits(1_000_000);
    let extend = |state: &mut AccountState, wanted, at_least| state.extend(id(1), &range(wanted, at_least), quota, NOW);
    assert_eq!(extend(&mut state, 40, 40), Extended::To(credits(40)));
    assert_eq!(state.held(), credits(70));
    // 30 are another call's.
    assert_eq!(extend(&mut state, 90, 71), Extended::Refused);
    assert_eq!(state.held(), credits(70));
    assert_eq!(extend(&mut state, 90, 70), Extended::To(credits(70)));
    assert_eq!((state.held(), state.held_counted()), (credits(100), credits(100)));
    // The same again, and less.
    assert_eq!(extend(&mut state, 90, 70), Extended::To(credits(70)));
    assert_eq!(extend(&mut state, 10, 10), Extended::To(credits(70)));
    assert_eq!(state.held(), credits(100));
    assert_eq!(state.release(id(1)), Some(credits(70)));
    assert_eq!(extend(&mut state, 90, 1), Extended::Gone);
}

#[test]
fn a_hold_is_raised_within_the_months_quota() {
    let mut state = account(1_000);
    state.reserve(&request(1, 20), NOW).unwrap();
    state.settle(&settlement(1, 20, 1), NOW);
    state.reserve(&request(2, 20), NOW).unwrap();
    let quota = credits(100);
    assert_eq!(state.extend(id(2), &range(90, 81), quota, NOW), Extended::Refused);
    assert_eq!(
        state.extend(id(2), &range(90, 80), quota, NOW),
        Extended::To(credits(80))
    );
    assert!(state.reserve(&ReserveRequest { quota, ..request(3, 1) }, NOW).is_err());
}

#[test]
fn a_hold_that_has_expired_is_not_raised() {
    let mut state = account(100);
    state.reserve(&request(1, 20), NOW).unwrap();
    let later = NOW.plus_millis(60_000);
    assert_eq!(
        state.extend(id(1), &range(40, 40), credits(1_000), later),
        Extended::Gone
    );
    assert_eq!(state.held(), Credits::ZERO);
}
