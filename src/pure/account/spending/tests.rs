//! Hard limits of keys and end users on the account as a value.

use super::*;
use crate::pure::account::{Extended, ReserveRequest, Scope, Settlement};
use crate::pure::estimate::HoldRange;
use crate::pure::limits::Limits;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::spend::Reset;
use crate::pure::time::Timestamp;

/// 2026-11-29, a Sunday.
const NOW: Timestamp = Timestamp(1_795_910_400_000);

fn credits(pico: i64) -> Credits {
    Credits::from_pico(pico)
}

fn key() -> KeyId {
    "key_0123456789abcdef".to_owned().into()
}

fn account(balance: i64) -> AccountState {
    let mut state = AccountState::default();
    assert!(state.top_up(credits(balance)));
    state
}

/// The `n`th request that came at `at`.
fn id(n: u8, at: Timestamp) -> RequestId {
    let mut bytes = [n; 16];
    bytes
        .iter_mut()
        .zip(at.0.to_be_bytes().into_iter().skip(2))
        .for_each(|(place, byte)| *place = byte);
    RequestId::from_bytes(bytes)
}

fn limit(amount: i64, reset: Reset) -> SpendLimit {
    let amount = credits(amount);
    SpendLimit { amount, reset }
}

fn limits(own: Option<SpendLimit>, end_user: Option<(&str, SpendLimit)>) -> Option<Arc<SpendLimits>> {
    let end_user = end_user.map(|(name, limit)| (EndUserId::of(name), limit));
    Some(Arc::new(SpendLimits {
        key: key(),
        own,
        end_user,
    }))
}

fn request(n: u8, at: Timestamp, wanted: i64, spend: Option<Arc<SpendLimits>>) -> ReserveRequest {
    let far = 1_000_000;
    ReserveRequest {
        id: id(n, at),
        scope: Scope::Account,
        limits: Limits {
            rpm: far,
            tpm: far,
            concurrency: far,
        },
        quota: Credits::MAX,
        wanted: credits(wanted),
        at_least: credits(wanted),
        tokens: 1,
        expires: NOW.plus_millis(600_000_000),
        is_counted: false,
        is_last: true,
        spend,
    }
}

fn settle(state: &mut AccountState, hold: RequestId, cost: i64, number: u64, end_user: Option<&str>) {
    let number = CallNumber::new(ProducerId(1), number);
    let settlement = Settlement {
        hold,
        cost: credits(cost),
        tokens: 1,
        number,
    };
    state.settle(&settlement, NOW);
    let reset = Reset::Daily;
    let end_user = end_user.map(|name| EndUser {
        id: EndUserId::of(name),
        reset,
    });
    state.spend(&key(), end_user, hold, credits(cost));
}

#[test]
fn the_tightest_of_account_quota_key_and_end_user_decides() {
    let amounts = [100, 200, 300, 400];
    let orders = (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6 & 3]);
    let orders = orders.filter(|order| (0..4).all(|n| order.contains(&n)));
    for order in orders {
        let [balance, quota, own, user] = order.map(|at| amounts[at]);
        let mut state = account(balance);
        let spend = limits(
            Some(limit(own, Reset::Daily)),
            Some(("anna", limit(user, Reset::Monthly))),
        );
        let ask = |n| ReserveRequest {
            quota: credits(quota),
            at_least: credits(1),
            ..request(n, NOW, 1_000, spend.clone())
        };
        assert_eq!(state.reserve(&ask(1), NOW).unwrap().amount, credits(100), "{order:?}");
        let denial = state.reserve(&ask(2), NOW).unwrap_err();
        let is_right = match order.iter().position(|at| *at == 0) {
            Some(0) => matches!(denial, Denial::Credit { .. }),
            Some(1) => matches!(denial, Denial::Quota { .. }),
            Some(2) => matches!(denial, Denial::Spent { spender: Spender::Key, held, .. } if held == credits(100)),
            _ => matches!(denial, Denial::Spent { spender: Spender::EndUser, held, .. } if held == credits(100)),
        };
        assert!(is_right, "{order:?}: {denial:?}");
        assert!(denial.is_counted());
        assert_eq!(state.release(id(1, NOW)), Some(credits(100)));
        assert_eq!(state.reserve(&ask(2), NOW).unwrap().amount, credits(100), "{order:?}");
    }
}

#[test]
fn a_call_counts_in_the_period_in_which_it_came() {
    let mut state = account(10_000);
    let spend = limits(Some(limit(100, Reset::Daily)), None);
    let (late, early) = (NOW.plus_millis(86_399_999), NOW.plus_millis(86_400_000));
    assert!(state.reserve(&request(1, late, 60, spend.clone()), late).is_ok());
    assert!(state.reserve(&request(2, late, 60, spend.clone()), late).is_err());
    // Midnight: the day begins with all of its limit, whatever still runs.
    assert!(state.reserve(&request(3, early, 100, spend.clone()), early).is_ok());
    settle(&mut state, id(1, late), 55, 1, None);
    let [before, after] = [late, early].map(|at| state.spent(&key(), SpendPeriod::Day(at.day())));
    assert_eq!(
        before,
        Spent {
            spent: credits(55),
            held: Credits::ZERO
        }
    );
    assert_eq!(
        after,
        Spent {
            spent: Credits::ZERO,
            held: credits(100)
        }
    );
    settle(&mut state, id(3, early), 40, 2, None);
    assert_eq!(state.spent(&key(), SpendPeriod::Life).spent, credits(95));
    assert!(state.reserve(&request(4, early, 61, spend.clone()), early).is_err());
    assert!(state.reserve(&request(4, early, 60, spend.clone()), early).is_ok());
    // A Sunday and a Monday, in one month until the first of December.
    let sums = |reset: Reset, at: Timestamp| state.spent(&key(), reset.period(at.day())).spent;
    assert_eq!(
        [sums(Reset::Weekly, late), sums(Reset::Weekly, early)],
        [credits(55), credits(40)]
    );
    assert_eq!(sums(Reset::Monthly, early), credits(95));
}

#[test]
fn a_debit_counts_even_when_its_hold_is_gone_and_a_reset_can_change() {
    let mut state = account(10_000);
    let own = |amount, reset| limits(Some(limit(amount, reset)), None);
    let short = ReserveRequest {
        expires: NOW.plus_millis(10),
        ..request(1, NOW, 50, own(100, Reset::Daily))
    };
    assert!(state.reserve(&short, NOW).is_ok());
    assert_eq!(state.expire(NOW.plus_millis(10)), 1);
    settle(&mut state, id(1, NOW), 70, 1, None);
    assert!(
        state
            .reserve(&request(2, NOW, 31, own(100, Reset::Daily)), NOW)
            .is_err()
    );
    assert!(
        state
            .reserve(&request(2, NOW, 31, own(100, Reset::Weekly)), NOW)
            .is_err()
    );
    assert!(state.reserve(&request(2, NOW, 31, own(101, Reset::None)), NOW).is_ok());
    // What is tracked is not read a second time.
    state.track(&key(), &HashMap::from([(SpendPeriod::Life, credits(1))]));
    assert_eq!(state.spent(&key(), SpendPeriod::Life).spent, credits(70));
}

#[test]
fn a_key_without_limits_is_not_counted_until_it_is_tracked() {
    let mut state = account(10_000);
    assert!(state.reserve(&request(1, NOW, 50, None), NOW).is_ok());
    settle(&mut state, id(1, NOW), 50, 1, None);
    assert!(!state.tracks(&key()));
    let before = HashMap::from(SpendPeriod::all_of(NOW.day()).map(|period| (period, credits(50))));
    assert!(state.reserve(&request(2, NOW, 20, None), NOW).is_ok());
    state.track(&key(), &before);
    // What ran when the limit came counts when it ends.
    settle(&mut state, id(2, NOW), 20, 2, None);
    assert_eq!(state.spent(&key(), SpendPeriod::Day(NOW.day())).spent, credits(70));
    assert!(
        state
            .reserve(&request(3, NOW, 31, limits(Some(limit(100, Reset::Daily)), None)), NOW)
            .is_err()
    );
}

#[test]
fn a_hold_is_raised_within_the_limits() {
    let mut state = account(10_000);
    let spend = limits(Some(limit(100, Reset::Daily)), Some(("anna", limit(80, Reset::Daily))));
    assert!(state.reserve(&request(1, NOW, 20, spend.clone()), NOW).is_ok());
    let other = limits(Some(limit(100, Reset::Daily)), Some(("bob", limit(80, Reset::Daily))));
    assert!(state.reserve(&request(2, NOW, 30, other), NOW).is_ok());
    let range = |wanted, at_least| HoldRange {
        wanted: credits(wanted),
        at_least: credits(at_least),
    };
    let mut raise = |wanted, least| state.extend(id(1, NOW), &range(wanted, least), Credits::MAX, NOW);
    assert_eq!(raise(200, 71), Extended::Refused);
    assert_eq!(raise(200, 70), Extended::To(credits(70)));
    let period = SpendPeriod::Day(NOW.day());
    assert_eq!(state.spent(&key(), period).held, credits(100));
    assert_eq!(state.spent_by(&key(), EndUserId::of("anna"), period).held, credits(70));
    settle(&mut state, id(1, NOW), 70, 1, Some("anna"));
    state.release(id(2, NOW));
    assert_eq!(
        state.spent(&key(), period),
        Spent {
            spent: credits(70),
            held: Credits::ZERO
        }
    );
    assert_eq!(state.spent_by(&key(), EndUserId::of("bob"), period), Spent::default());
}

/// What runs in another process is held without its limits; a wish from there brings them.
#[test]
fn a_hold_is_raised_within_the_limits_that_come_with_the_wish() {
    let mut state = account(10_000);
    let own = |amount| limits(Some(limit(amount, Reset::Daily)), None);
    state.reserve(&request(1, NOW, 20, own(5_000)), NOW).unwrap();
    state.reserve(&request(2, NOW, 30, own(5_000)), NOW).unwrap();
    let range = |wanted, at_least| HoldRange {
        wanted: credits(wanted),
        at_least: credits(at_least),
    };
    let within = own(100);
    let mut raise =
        |wanted, least| state.extend_within(id(1, NOW), &range(wanted, least), Credits::MAX, within.as_deref(), NOW);
    assert_eq!(raise(200, 71), Extended::Refused);
    assert_eq!(raise(200, 70), Extended::To(credits(70)));
    assert_eq!(raise(200, 70), Extended::To(credits(70)));
    assert_eq!(state.limits_of(id(1, NOW)), own(5_000));
    let period = SpendPeriod::Day(NOW.day());
    assert_eq!(state.spent(&key(), period).held, credits(100));
}

#[test]
fn a_hold_that_was_raised_elsewhere_is_recorded_and_never_lowered() {
    let mut state = account(100);
    let own = limits(Some(limit(50, Reset::Daily)), None);
    state.reserve(&request(1, NOW, 20, own), NOW).unwrap();
    let period = SpendPeriod::Day(NOW.day());
    // Whatever there is here: another process has granted it.
    for (amount, expected) in [(10, 20), (300, 300), (300, 300), (40, 300)] {
        state.extended(id(1, NOW), credits(amount));
        let held = [state.held(), state.held_counted(), state.spent(&key(), period).held];
        assert_eq!(held, [credits(expected); 3], "{amount}");
    }
    state.extended(id(2, NOW), credits(7));
    assert_eq!(state.release(id(1, NOW)), Some(credits(300)));
    let held = [state.held(), state.held_counted(), state.spent(&key(), period).held];
    assert_eq!(held, [Credits::ZERO; 3]);
}

#[test]
fn a_call_that_costs_nothing_makes_no_end_user_known() {
    let mut state = account(100);
    let both = limits(Some(limit(50, Reset::Daily)), Some(("anna", limit(50, Reset::Daily))));
    state.reserve(&request(1, NOW, 0, both.clone()), NOW).unwrap();
    assert!(state.end_users_known() == 0 && !state.tracks(&key()));
    settle(&mut state, id(1, NOW), 0, 1, Some("anna"));
    assert!(state.end_users_known() == 0 && !state.tracks(&key()));
    state.reserve(&request(2, NOW, 1, both.clone()), NOW).unwrap();
    assert!(state.end_users_known() == 1 && state.tracks(&key()));
    settle(&mut state, id(2, NOW), 0, 2, Some("anna"));
    assert_eq!(state.end_users_known(), 0);
    state.reserve(&request(3, NOW, 1, both.clone()), NOW).unwrap();
    state.release(id(3, NOW));
    assert_eq!(state.end_users_known(), 0);
    state.reserve(&request(4, NOW, 1, both.clone()), NOW).unwrap();
    settle(&mut state, id(4, NOW), 1, 3, Some("anna"));
    state.reserve(&request(5, NOW, 1, both), NOW).unwrap();
    state.release(id(5, NOW));
    assert_eq!(state.end_users_known(), 1);
}

#[test]
fn end_users_are_as_many_as_are_counted() {
    let mut state = account(1_000_000);
    let day = SpendPeriod::Day(NOW.day());
    let all = (0..END_USERS_MAX).map(|n| (EndUserId::of(&n.to_string()), Spent::default()));
    state.spending.end_users.insert((key(), day), all.collect());
    let of = |name| limits(None, Some((name, limit(100, Reset::Daily))));
    assert!(matches!(
        state.reserve(&request(1, NOW, 1, of("new")), NOW),
        Err(Denial::EndUsers(_))
    ));
    assert!(state.reserve(&request(2, NOW, 1, of("7")), NOW).is_ok());
    let tomorrow = NOW.plus_millis(86_400_000);
    assert!(state.reserve(&request(3, tomorrow, 1, of("new")), tomorrow).is_ok());
    state.forget_spending(tomorrow.day());
    assert!(
        state.spending.end_users.contains_key(&(key(), day)),
        "one of them holds something"
    );
    state.release(id(2, NOW));
    state.forget_spending(tomorrow.day());
    assert!(!state.spending.end_users.contains_key(&(key(), day)));
    assert_eq!(state.spent(&key(), SpendPeriod::Life).held, credits(1));
}

#[test]
fn what_a_key_has_spent_is_replaced_where_it_is_counted() {
    let (mut state, newer) = (account(0), KeyId::from("key_newer".to_owned()));
    state.track(&key(), &HashMap::new());
    state.share(&newer, &key());
    state.set_spent(&newer, SpendPeriod::Life, credits(5));
    assert_eq!(state.spent(&key(), SpendPeriod::Life).spent, credits(5));
}

#[test]
fn a_period_that_is_over_is_forgotten_unless_it_holds_something() {
    let (mut state, old) = (account(10_000), NOW.plus_millis(-86_400_000));
    let spend = limits(
        Some(limit(1_000, Reset::Daily)),
        Some(("anna", limit(1_000, Reset::Daily))),
    );
    for (n, at) in [(1, old), (2, old), (3, NOW)] {
        assert!(state.reserve(&request(n, at, 60, spend.clone()), at).is_ok());
    }
    settle(&mut state, id(1, old), 50, 1, Some("anna"));
    settle(&mut state, id(3, NOW), 7, 2, Some("anna"));
    let of = |state: &AccountState, at: Timestamp| {
        let day = SpendPeriod::Day(at.day());
        let anna = state.spent_by(&key(), EndUserId::of("anna"), day);
        [state.spent(&key(), day), anna].map(|sums| (sums.spent.pico(), sums.held.pico()))
    };
    state.forget_spending(NOW.day());
    assert_eq!(of(&state, old), [(50, 60); 2], "a call of that day still runs");
    state.release(id(2, old));
    state.forget_spending(old.day());
    assert_eq!(of(&state, old), [(50, 0); 2], "the day is not over yet");
    state.forget_spending(NOW.day());
    assert_eq!((of(&state, old), of(&state, NOW)), ([(0, 0); 2], [(7, 0); 2]));
}

#[test]
fn what_was_spent_is_kept_and_read_back_and_what_is_held_stays() {
    let (mut state, day) = (account(10_000), NOW.day());
    let spend = limits(
        Some(limit(1_000, Reset::Daily)),
        Some(("anna", limit(1_000, Reset::Daily))),
    );
    for n in [1, 2] {
        assert!(state.reserve(&request(n, NOW, 60, spend.clone()), NOW).is_ok());
    }
    settle(&mut state, id(1, NOW), 50, 1, Some("anna"));
    let kept = state.kept_spending();
    let (own, anna) = (SpendPeriod::Day(day), EndUserId::of("anna"));
    assert_eq!(kept.get(&(key(), None, own)), Some(&credits(50)));
    assert_eq!(kept.get(&(key(), Some(anna), own)), Some(&credits(50)));
    assert_eq!(kept.len(), 5, "four periods of the key and one of its end user");
    let mut other = account(10_000);
    other.read_spending(kept.clone());
    assert_eq!(other.kept_spending(), kept);
    // Only what the store has counts, but what is held stays.
    state.read_spending(KeptSpending::from([((key(), Some(anna), own), credits(9))]));
    let held = credits(60);
    let spent = |pico| Spent {
        spent: credits(pico),
        held,
    };
    assert_eq!(state.spent(&key(), own), spent(0));
    assert_eq!(state.spent_by(&key(), anna, own), spent(9));
}

#[test]
fn a_key_that_shares_counts_as_the_other_and_an_unknown_one_is_not_tracked() {
    let mut state = account(10_000);
    let [next, last, unknown] = ["next", "last", "unknown"].map(|name| KeyId::from(name.to_owned()));
    state.track(&key(), &HashMap::new());
    state.share(&next, &key());
    state.share(&last, &next);
    for (of, tracked) in [(key(), true), (next, true), (last.clone(), true), (unknown, false)] {
        assert_eq!(state.tracks(&of), tracked, "{of}");
    }
    assert_eq!(state.counted_as(&last), &key());
    state.spend(&last, None, id(1, NOW), credits(5));
    assert_eq!(state.spent(&key(), SpendPeriod::Life).spent, credits(5));
}
