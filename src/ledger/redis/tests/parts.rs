//! Parts of the ledger by themselves: what is known of names and events, what may be sent again, what a command writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::cover::Cover;
use crate::ledger::journal::Entry;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::commands::written_keys;
use crate::ledger::redis::holds::OpenHold;
use crate::ledger::redis::kept_terms;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::names::Names;
use crate::ledger::redis::open_places::OpenPlaces;
use crate::ledger::redis::queue::{Origin, QueuedDebit};
use crate::ledger::redis::replay::{Released, ReplayBuffer};
use crate::ledger::terms::{AccountTerms, TermsChange};
use crate::ledger::tests::rig::{block_on, debit, key_create, request_id};
use crate::pure::account::Scope;
use crate::pure::ids::{AccountId, ApiKey};
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::time::Timestamp;

fn account(name: &str) -> AccountId {
    name.parse().unwrap()
}

fn accounts(names: &[&str]) -> Vec<AccountId> {
    names.iter().map(|name| account(name)).collect()
}

#[test]
fn names_are_known_once_and_in_order() {
    let names = Names::default();
    names.add(&account("beta"));
    assert!(names.get().is_empty(), "who knows none reads them all");
    names.set(Arc::new(accounts(&["beta", "delta"])), 0);
    for name in ["alpha", "beta", "delta"] {
        names.add(&account(name));
    }
    assert_eq!(*names.get(), accounts(&["alpha", "beta", "delta"]));
    assert!(names.learn(accounts(&["epsilon", "gamma", "alpha"])));
    let all = accounts(&["alpha", "beta", "delta", "epsilon", "gamma"]);
    assert_eq!(*names.get(), all);
    assert!(!names.learn(accounts(&["gamma", "alpha"])), "they were known");
    assert_eq!(*names.get(), all);
    let doubts = names.doubts();
    names.doubt();
    names.set(Arc::new(all.clone()), doubts);
    assert!(names.get().is_empty(), "they were read before");
    names.set(Arc::new(all.clone()), names.doubts());
    assert_eq!(*names.get(), all);
}

#[test]
fn events_are_looked_for_where_one_was_heard_of() {
    let places = OpenPlaces::default();
    for key in ["tg1:{acme}", "tg1:events", "tg1:acme", "events", "tg1:{acme}:keys"] {
        places.heard(key);
    }
    let mut due = places.due_at(Timestamp(0));
    due.sort();
    assert_eq!(due, [None, Some(account("acme"))]);
}

#[test]
fn who_hears_of_no_events_looks_for_them_more_often() {
    let places = OpenPlaces::default();
    let hour = 3_600_000;
    assert_eq!(places.search_every_ms(), hour);
    places.hears(false);
    assert_eq!(places.search_every_ms(), 30_000);
    places.hears(true);
    assert_eq!(places.search_every_ms(), hour);
    places.searched_ms.store(5, Ordering::Relaxed);
    places.doubt();
    assert_eq!(places.searched_ms.load(Ordering::Relaxed), 0);
}

#[test]
fn how_many_were_dropped_is_asked_at_first_and_each_hour() {
    let (places, hour) = (OpenPlaces::default(), 3_600_000);
    for (now_ms, is_asked) in [
        (5, true),
        (6, false),
        (hour + 4, false),
        (hour + 5, true),
        (hour + 6, false),
        (2 * hour + 4, false),
        (2 * hour + 5, true),
    ] {
        assert_eq!(places.asks_dropped(now_ms), is_asked, "{now_ms}");
    }
}

fn settled(name: &str, producer: u64, number: u64) -> QueuedDebit {
    QueuedDebit {
        account: Arc::new(Account::new(account(name))),
        hold: request_id(number),
        known: None,
        debit: debit("1"),
        number: CallNumber::new(ProducerId(producer), number),
        origin: Origin::Own,
        is_doubted: false,
        is_written_out: false,
        sent: 1,
        queued_ms: 1,
        entry: Entry::none(),
    }
}

fn released(number: u64) -> Released {
    Released {
        account: Arc::new(Account::new(account("acme"))),
        hold: request_id(number),
        number: CallNumber::new(ProducerId(5), number),
    }
}

fn numbers(debits: Vec<QueuedDebit>) -> Vec<(String, u64, u64)> {
    let name = |debit: QueuedDebit| {
        let number = debit.number;
        (debit.account.id().to_string(), number.producer.0, number.number)
    };
    debits.into_iter().map(name).collect()
}

#[test]
fn what_was_acknowledged_is_kept_for_its_time_and_no_longer() {
    let filled = || {
        let mut ring = ReplayBuffer::new(Duration::from_millis(100), 10);
        ring.tend(1_000);
        ring.push(settled("acme", 5, 1), 1_000);
        ring.push(settled("acme", 5, 2), 1_050);
        ring
    };
    for (now_ms, kept) in [(1_100, 2), (1_101, 1), (1_150, 1), (1_151, 0)] {
        let mut ring = filled();
        ring.tend(now_ms);
        assert_eq!(ring.take_all().len(), kept, "{now_ms}");
    }
}

#[test]
fn what_was_given_back_is_kept_as_long_as_what_was_settled() {
    for (now_ms, kept) in [(1_100, 2), (1_101, 1), (1_150, 1), (1_151, 0)] {
        for by_push in [false, true] {
            let mut ring = ReplayBuffer::new(Duration::from_millis(100), 10);
            ring.tend(1_000);
            for (number, at_ms) in [(1, 1_000), (2, 1_050)] {
                ring.push_released(released(number), at_ms);
            }
            match by_push {
                true => ring.push_released(released(3), now_ms),
                false => ring.tend(now_ms),
            }
            assert!(ring.take_all().is_empty(), "they are no settlements");
            let of_first = ring.take_released(|released| released.number.number == 1).len();
            let others = ring.take_released(|_| true).len();
            assert_eq!(of_first, usize::from(kept == 2), "{now_ms} {by_push}");
            assert_eq!(of_first + others, kept + usize::from(by_push), "{now_ms} {by_push}");
        }
    }
}

/// Money: what a server acknowledged before it took no writes is what it may lose, however long that lasts.
#[test]
fn nothing_grows_old_while_the_server_takes_no_writes() {
    let filled = || {
        let mut ring = ReplayBuffer::new(Duration::from_millis(100), 10);
        ring.push(settled("acme", 5, 1), 10);
        assert!(ring.stands_still(), "it was not looked at yet");
        ring.tend(1_000);
        ring.push(settled("acme", 5, 2), 1_050);
        ring.stand_still(1_060);
        ring.push(settled("acme", 5, 3), 70_000);
        ring.stand_still(80_000);
        assert!(ring.stands_still());
        ring.tend(90_000);
        assert!(!ring.stands_still());
        ring
    };
    // The first is 60 ms old at 90,000, the second is 10, and the third has just come.
    for (now_ms, kept) in [
        (90_000, 3),
        (90_040, 3),
        (90_041, 2),
        (90_090, 2),
        (90_091, 1),
        (90_101, 0),
    ] {
        for by_push in [false, true] {
            let mut ring = filled();
            match by_push {
                true => ring.push(settled("acme", 5, 4), now_ms),
                false => ring.tend(now_ms),
            }
            let left = ring.take_all().len();
            assert_eq!(left, kept + usize::from(by_push), "{now_ms} {by_push}");
        }
    }
}

/// It does not answer, or this process was stopped: whether the server took writes meanwhile nobody knows.
#[test]
fn little_time_passes_while_nobody_looks_at_the_server() {
    let mut ring = ReplayBuffer::new(Duration::from_secs(60), 10);
    ring.tend(1_000);
    ring.push(settled("acme", 5, 1), 1_000);
    for now_ms in [100_000, 200_000, 300_000] {
        ring.tend(now_ms);
    }
    ring.push(settled("acme", 5, 2), 400_000);
    assert_eq!(ring.take_all().len(), 2);
}

/// The journal keeps what there is no room for.
#[test]
fn nothing_goes_for_what_comes_while_the_server_takes_no_writes() {
    let kept = |stands_still: bool| {
        let mut ring = ReplayBuffer::new(Duration::from_secs(60), 2);
        ring.tend(1_000);
        for number in 1..=2 {
            ring.push(settled("acme", 5, number), 1_000);
        }
        if stands_still {
            ring.stand_still(1_001);
        }
        ring.push(settled("acme", 5, 3), 1_002);
        let kept = ring.take_all();
        kept.iter().map(|debit| debit.number.number).collect::<Vec<_>>()
    };
    assert_eq!(kept(true), [1, 2]);
    assert_eq!(kept(false), [2, 3]);
}

#[test]
fn the_oldest_go_from_a_ring_that_gets_smaller_where_any_may() {
    for (stands_still, left) in [(false, vec![3]), (true, vec![1, 2, 3])] {
        let mut ring = ReplayBuffer::new(Duration::from_secs(60), 10);
        ring.tend(1_000);
        for number in 1..=3 {
            ring.push(settled("acme", 5, number), 1_000);
        }
        if stands_still {
            ring.stand_still(1_001);
        }
        ring.keep_at_most(1);
        let kept: Vec<u64> = ring.take_all().iter().map(|debit| debit.number.number).collect();
        assert_eq!(kept, left);
    }
}

/// The waker in a call's cover keeps the memory of the task that carried it.
#[test]
fn what_is_kept_of_a_settlement_does_not_keep_its_call() {
    let cover = Arc::new(Cover::default());
    let mut ring = ReplayBuffer::new(Duration::from_secs(60), 10);
    let mut debit = settled("acme", 5, 1);
    debit.known = Some(OpenHold {
        account: Arc::clone(&debit.account),
        scope: Scope::Account,
        amount: debit.debit.cost,
        quota: debit.debit.cost,
        ttl_ms: 1,
        renewed_ms: 1,
        raised_ms: None,
        cover: Arc::clone(&cover),
        spend: None,
        ends_when_stopped: false,
    });
    ring.push(debit, 1_000);
    assert_eq!(Arc::strong_count(&cover), 1);
    assert_eq!(ring.take_all().len(), 1);
}

#[test]
fn those_of_one_account_and_producer_are_taken_by_their_numbers() {
    let mut ring = ReplayBuffer::new(Duration::from_secs(60), 10);
    for debit in [
        settled("acme", 5, 1),
        settled("acme", 5, 2),
        settled("acme", 6, 1),
        settled("other", 5, 1),
    ] {
        ring.push(debit, 1_000);
    }
    let taken = ring.take(&Account::new(account("acme")), ProducerId(5), &[1, 9]);
    assert_eq!(numbers(taken), [("acme".to_owned(), 5, 1)]);
    let rest = [("acme", 5, 2), ("acme", 6, 1), ("other", 5, 1)];
    assert_eq!(
        numbers(ring.take_all()),
        rest.map(|(name, p, n)| (name.to_owned(), p, n))
    );
}

/// A fail-over must not undo what was told: each of these is asked for at a replica.
#[test]
fn a_command_names_the_keys_that_it_writes() {
    let digest = ApiKey::from_random("tg_", [9; 32]).digest();
    let of_key = format!("tg1:key:{}", digest.to_hex());
    let id = || account("acme");
    for (op, expected) in [
        (
            AdminOp::AccountSet {
                account: id(),
                tier: None,
                quota_pico: None,
                terms: Default::default(),
            },
            vec!["tg1:{acme}"],
        ),
        (
            AdminOp::CreditsAdd {
                account: id(),
                amount: crate::pure::money::Credits::ZERO,
                reference: "one".to_owned(),
            },
            vec!["tg1:{acme}"],
        ),
        (
            AdminOp::Account(AccountOp::Terms {
                account: id(),
                change: TermsChange::default(),
            }),
            vec!["tg1:{acme}"],
        ),
        (key_create("acme", &digest), vec!["tg1:{acme}:keys", &of_key]),
        (AdminOp::Maintenance { on: true }, vec!["tg1:maintenance"]),
        (AdminOp::Operator(OperatorOp::List), vec!["tg1:operators"]),
        (AdminOp::AccountList, vec![]),
    ] {
        assert_eq!(written_keys(&op), expected, "{op:?}");
    }
}

#[test]
fn terms_that_are_cut_short_are_not_those_of_a_new_account() {
    assert_eq!(kept_terms::read("").unwrap(), AccountTerms::default());
    for text in ["active", "active {"] {
        assert!(kept_terms::read(text).is_err(), "{text}");
    }
}

#[test]
fn a_thread_keeps_the_link_of_a_ledger_until_the_ledger_is_gone() {
    block_on(async {
        let [one, two] = [u64::MAX, u64::MAX - 1].map(Link::of_runtime);
        assert!(!Arc::ptr_eq(&one, &two));
        assert!(Arc::ptr_eq(&one, &Link::of_runtime(u64::MAX)));
        Link::forget_ledger(u64::MAX);
        assert!(!Arc::ptr_eq(&one, &Link::of_runtime(u64::MAX)));
        assert!(Arc::ptr_eq(&two, &Link::of_runtime(u64::MAX - 1)));
    });
}
