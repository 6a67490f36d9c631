//! What a store keeps of an account and asks of it, and the edges of its rules: what is exactly enough, and one less.

use std::hash::BuildHasher;

use super::*;
use crate::pure::error::AccountStop;
use crate::pure::ids::KeyId;
use crate::pure::limits::LimitOverrides;
use crate::pure::numbers::Birth;
use crate::pure::spend::Spender;

const OTHER: ProducerId = ProducerId(2);

fn numbers(closed: &[u64]) -> Numbers {
    let mut numbers = Numbers::default();
    for number in closed {
        assert!((RULES.resolve)(&mut numbers, *number));
    }
    numbers
}

fn kept() -> KeptState {
    KeptState {
        balance: credits(70),
        months: BTreeMap::from([(NOW.month(), credits(30))]),
        producers: HashMap::from([(P, numbers(&[1, 3]))]),
        forgotten: Some(Birth(7)),
        spending: KeptSpending::default(),
    }
}

fn number_of(producer: ProducerId, born: u32) -> CallNumber {
    CallNumber {
        producer,
        born: Birth(born),
        number: 1,
    }
}

#[test]
fn what_was_kept_is_what_is_there_again() {
    let mut state = AccountState::restored(kept());
    assert_eq!((state.balance(), state.month_used(NOW)), (credits(70), credits(30)));
    assert_eq!(*state.months(), kept().months);
    assert_eq!(state.numbers(P), numbers(&[1, 3]));
    assert_eq!(state.numbers(OTHER), Numbers::default());
    for (number, expected) in [
        (1, Settled::Already),
        (2, Settled::Now { overrun: true }),
        (3, Settled::Already),
    ] {
        assert_eq!(state.settle(&settlement(9, 5, number), NOW), expected);
    }
    assert_eq!((state.balance(), state.month_used(NOW)), (credits(65), credits(35)));
    state.set_months(BTreeMap::from([(NOW.month(), credits(99))]));
    assert_eq!(state.month_used(NOW), credits(99));
}

#[test]
fn what_is_read_anew_leaves_the_holds() {
    let mut state = account(100);
    state.reserve(&request(1, 60), NOW).unwrap();
    state.read_anew(kept());
    assert_eq!((state.balance(), state.held()), (credits(70), credits(60)));
    assert!(state.is_held(id(1)) && !state.is_held(id(2)));
}

#[test]
fn a_producer_that_was_forgotten_is_stale_and_one_that_is_known_is_not() {
    let mut state = AccountState::restored(kept());
    for (number, expected) in [
        (number_of(OTHER, 6), Some(Birth(7))),
        (number_of(OTHER, 7), Some(Birth(7))),
        (number_of(OTHER, 8), None),
        (number_of(P, 6), None),
    ] {
        assert_eq!(state.is_stale(number), expected, "{number:?}");
    }
    let stale = Settlement {
        number: number_of(OTHER, 7),
        ..settlement(1, 5, 1)
    };
    assert_eq!(state.settle(&stale, NOW), Settled::Stale { forgotten: Birth(7) });
    assert_eq!(state.balance(), credits(70));
    let young = Settlement {
        number: number_of(OTHER, 8),
        ..stale
    };
    assert_eq!(state.settle(&young, NOW), Settled::Now { overrun: true });
    assert_eq!(AccountState::default().is_stale(number_of(OTHER, 1)), None);
}

#[test]
fn what_is_forgotten_is_no_longer_known_and_its_birth_is_remembered() {
    let mut state = AccountState::default();
    state.forget(P, Birth(5));
    assert_eq!(
        state.is_stale(number_of(P, 1)),
        None,
        "who was never known is not forgotten"
    );
    state.settle(&settlement(1, 5, 1), NOW);
    state.forget(P, Birth(5));
    assert_eq!(state.numbers(P), Numbers::default());
    assert_eq!(state.is_stale(number_of(P, 5)), Some(Birth(5)));
    assert_eq!(state.is_stale(number_of(P, 6)), None);
}

#[test]
fn a_hold_that_was_granted_elsewhere_counts_as_one_of_here() {
    let mut state = account(100);
    let limits = request(1, 0).limits;
    state.hold(&request(1, 60), credits(40), NOW);
    assert_eq!((state.held(), state.open_holds()), (credits(40), 1));
    let view = state.rate(&Scope::Account, limits, NOW);
    assert_eq!((view.remaining_requests, view.remaining_tokens), (99, 990));
    for n in 2..=3 {
        assert_eq!(state.open_holds(), usize::from(n) - 1);
        let great = ReserveRequest {
            tokens: u64::MAX,
            ..request(n, 0)
        };
        state.hold(&great, credits(1), NOW);
    }
    assert_eq!(state.rate(&Scope::Account, limits, NOW).remaining_tokens, 0);
    let mut fourth = request(4, 1);
    fourth.limits.tpm = u64::MAX;
    assert!(matches!(state.reserve(&fourth, NOW), Err(Denial::Concurrency(_))));
    assert_eq!(state.held(), state.held_counted());
}

#[test]
fn each_scope_has_counts_of_its_own() {
    let key = KeyId::of(&crate::pure::ids::KeyDigest::from_hex(&"ab".repeat(32)).unwrap());
    let own = Scope::of(
        &key,
        &LimitOverrides {
            rpm: Some(5),
            ..LimitOverrides::default()
        },
    );
    assert_eq!((own.key(), Scope::Account.key()), (Some(&key), None));
    assert_eq!(Scope::of(&key, &LimitOverrides::default()), Scope::Account);
    let mut state = account(100);
    let limits = request(1, 0).limits;
    let of_key = ReserveRequest {
        scope: own.clone(),
        ..request(1, 10)
    };
    state.reserve(&of_key, NOW).unwrap();
    assert_eq!(state.held_by(id(1)), Some((credits(10), &own)));
    assert_eq!(state.held_by(id(2)), None);
    assert_eq!(state.rate(&own, limits, NOW).remaining_requests, 99);
    assert_eq!(state.rate(&Scope::Account, limits, NOW).remaining_requests, 100);
}

#[test]
fn exactly_enough_is_enough() {
    // Credit and quota.
    assert_eq!(account(60).reserve(&request(1, 60), NOW).unwrap().amount, credits(60));
    assert!(matches!(
        account(59).reserve(&request(1, 60), NOW),
        Err(Denial::Credit { .. })
    ));
    for (quota, is_granted) in [(60, true), (59, false)] {
        let within = ReserveRequest {
            quota: credits(quota),
            ..request(1, 60)
        };
        assert_eq!(account(100).reserve(&within, NOW).is_ok(), is_granted);
    }
    // What costs nothing needs none.
    let mut state = account(0);
    state.settle(&settlement(9, 50, 1), NOW);
    assert_eq!(state.reserve(&request(1, 0), NOW).unwrap().amount, Credits::ZERO);
    assert_eq!(state.held(), Credits::ZERO);
    // Tokens of the window; more than the whole window counts as the window.
    for (tokens, is_granted) in [(990, true), (991, false), (u64::MAX, false)] {
        let mut state = account(100);
        state.reserve(&request(1, 1), NOW).unwrap();
        let many = ReserveRequest {
            tokens,
            ..request(2, 1)
        };
        assert_eq!(state.reserve(&many, NOW).is_ok(), is_granted, "{tokens}");
    }
    let whole = ReserveRequest {
        tokens: u64::MAX,
        ..request(1, 1)
    };
    assert_eq!(account(100).reserve(&whole, NOW).unwrap().rate.remaining_tokens, 0);
}

#[test]
fn a_cost_up_to_what_was_held_is_no_overrun() {
    for (cost, overrun) in [(0, false), (59, false), (60, false), (61, true)] {
        let mut state = account(100);
        state.reserve(&request(1, 60), NOW).unwrap();
        assert_eq!(
            state.settle(&settlement(1, cost, 1), NOW),
            Settled::Now { overrun },
            "{cost}"
        );
        assert_eq!((state.held(), state.balance()), (Credits::ZERO, credits(100 - cost)));
    }
}

#[test]
fn what_would_leave_the_range_changes_nothing() {
    let mut state = AccountState::restored(KeptState {
        balance: credits(i64::MIN),
        ..KeptState::default()
    });
    assert_eq!(state.settle(&settlement(1, 1, 1), NOW), Settled::OutOfRange);
    assert_eq!(
        (state.balance(), state.month_used(NOW)),
        (credits(i64::MIN), Credits::ZERO)
    );
    let mut state = AccountState::restored(KeptState {
        months: BTreeMap::from([(NOW.month(), Credits::MAX)]),
        ..kept()
    });
    assert_eq!(state.settle(&settlement(1, 1, 2), NOW), Settled::OutOfRange);
    assert_eq!(state.balance(), credits(70));
    // It may be told again once it fits.
    state.set_months(BTreeMap::new());
    assert_eq!(state.settle(&settlement(1, 1, 2), NOW), Settled::Now { overrun: true });
    let mut full = AccountState::restored(KeptState {
        balance: Credits::MAX,
        ..KeptState::default()
    });
    assert!(!full.top_up(credits(1)) && full.balance() == Credits::MAX);
}

#[test]
fn holds_expire_one_after_the_other() {
    let mut state = account(100);
    for (n, seconds) in [(1, 30), (2, 10), (3, 20)] {
        let one = ReserveRequest {
            expires: NOW.plus_millis(seconds * 1_000),
            ..request(n, 10)
        };
        state.reserve(&one, NOW).unwrap();
    }
    for (millis, freed, left) in [
        (9_999, 0, 30),
        (10_000, 1, 20),
        (10_000, 0, 20),
        (29_999, 1, 10),
        (30_000, 1, 0),
    ] {
        assert_eq!(state.expire(NOW.plus_millis(millis)), freed, "{millis}");
        assert_eq!(state.held(), credits(left), "{millis}");
    }
    assert_eq!(state.expire(NOW.plus_millis(1_000_000)), 0);
    // A reserve looks for what is over, too.
    state.reserve(&request(4, 100), NOW).unwrap();
    assert!(state.reserve(&request(5, 100), NOW.plus_millis(60_000)).is_ok());
}

#[test]
fn ids_that_differ_in_their_random_part_have_places_of_their_own() {
    let build = BuildHasherDefault::<IdHasher>::default();
    let hashes: std::collections::BTreeSet<u64> = (0..=255u8)
        .map(|last| {
            let mut bytes = [7; 16];
            bytes[15] = last;
            bytes[8] = last;
            build.hash_one(RequestId::from_bytes(bytes))
        })
        .collect();
    assert_eq!(hashes.len(), 256);
}

/// What open calls hold is back when they have ended and cost nothing, at most.
#[test]
fn a_refusal_is_for_open_calls_where_without_them_there_would_be_exactly_enough() {
    let asked = ReserveRequest {
        quota: credits(70),
        at_least: credits(30),
        ..request(1, 60)
    };
    let rate = account(1).rate(&Scope::Account, asked.limits, NOW);
    let credit = |available, held| Denial::Credit {
        available: credits(available),
        held: credits(held),
        rate,
    };
    let quota = |used| Denial::Quota {
        used: credits(used),
        held: credits(1),
        rate,
    };
    let spent = |held| Denial::Spent {
        spender: Spender::Key,
        spent: credits(1),
        held: credits(held),
        rate,
    };
    for (denial, fits) in [
        (credit(10, 20), true),
        (credit(10, 19), false),
        (credit(-10, 40), true),
        (quota(40), true),
        (quota(41), false),
        (spent(1), true),
        (spent(0), false),
        (Denial::Tokens(rate), true),
        (Denial::Concurrency(rate), true),
        (Denial::Requests(rate), false),
        (Denial::EndUsers(rate), false),
        (Denial::Stopped(AccountStop::Closed), false),
    ] {
        assert_eq!(asked.fits_without_holds(&denial), fits, "{denial:?}");
    }
    let limits = Limits {
        concurrency: 0,
        ..asked.limits
    };
    let none_allowed = ReserveRequest { limits, ..asked };
    assert!(!none_allowed.fits_without_holds(&Denial::Concurrency(rate)));
}

/// What is held is back in a moment: an event that tells of it tells of no end.
#[test]
fn an_event_tells_of_what_would_not_fit_without_holds() {
    let asked = |is_last| ReserveRequest {
        quota: credits(70),
        at_least: credits(30),
        is_last,
        ..request(1, 60)
    };
    let rate = account(1).rate(&Scope::Account, asked(true).limits, NOW);
    let credit = |available, held| Denial::Credit {
        available: credits(available),
        held: credits(held),
        rate,
    };
    let quota = |used, held| Denial::Quota {
        used: credits(used),
        held: credits(held),
        rate,
    };
    for (denial, first, last) in [
        (credit(29, 0), false, true),
        (credit(0, 29), false, true),
        (credit(-10, 11), false, true),
        (credit(-10, 10), true, true),
        (credit(0, 0), true, true),
        (credit(0, 30), false, false),
        (credit(29, 1), false, false),
        (quota(41, 20), false, true),
        (quota(40, 20), false, false),
        (quota(70, 0), true, true),
    ] {
        let tells = [false, true].map(|is_last| asked(is_last).tells_of(&denial));
        assert_eq!(tells, [first, last], "{denial:?}");
    }
}
