//! What a process knows of an account: its names, what is under way and what waits, and what was heard of it.

use super::*;
use crate::ledger::producer::Producer;
use crate::pure::numbers::Birth;
use crate::pure::time::Timestamp;

fn account() -> Account {
    Account::new("acme".parse().unwrap())
}

/// The producer that was born so many days after the other one of these tests.
fn producer(days: i64) -> ProducerId {
    let born = Birth::at(Timestamp(1_795_132_800_000 + days * 86_400_000));
    ProducerId::new(born, 7)
}

#[test]
fn credit_entries_are_looked_through_again_after_a_while() {
    let account = account();
    assert!(account.credits_are_old(0), "they were never looked through");
    account.looked_at_credits(0);
    assert!(!account.credits_are_old(0));
    account.looked_at_credits(5_000);
    assert!(!account.credits_are_old(5_000 + CREDITS_AGE_MAX_MS - 1));
    assert!(account.credits_are_old(5_000 + CREDITS_AGE_MAX_MS));
}

#[test]
fn that_redis_does_not_have_it_is_logged_at_first_and_once_a_minute() {
    let account = account();
    assert!(account.is_missing(0));
    for (now_ms, is_told) in [
        (0, false),
        (60_000, false),
        (60_001, true),
        (60_002, false),
        (120_001, true),
    ] {
        assert_eq!(account.is_missing(now_ms), is_told, "{now_ms}");
    }
}

#[test]
fn what_was_heard_last_of_a_stop_counts() {
    let account = account();
    assert_eq!(account.stop(), None);
    for stop in [Some(AccountStop::Suspended), Some(AccountStop::Closed), None] {
        account.heard_stop(stop);
        assert_eq!(account.stop(), stop);
    }
}

#[test]
fn what_was_acknowledged_is_that_of_the_youngest_producer() {
    let account = account();
    let (one, two) = (producer(0), producer(1));
    let acknowledge = |producer, numbers: &[u64]| {
        for number in numbers {
            account.acknowledge(CallNumber::new(producer, *number));
        }
    };
    acknowledge(one, &[1, 2, 4]);
    assert_eq!(account.acknowledged(one, (1, 9)), [1, 2, 4]);
    assert_eq!(account.acknowledged(one, (2, 3)), [2]);
    assert_eq!(account.acknowledged(two, (1, 9)), [0; 0]);
    acknowledge(two, &[2]);
    acknowledge(one, &[3]);
    assert_eq!(account.acknowledged(two, (1, 9)), [2]);
    assert_eq!(account.acknowledged(one, (1, 9)), [0; 0], "it was replaced");
}

#[test]
fn what_was_given_back_is_acknowledged_and_no_settlement() {
    let account = account();
    let (one, two) = (producer(0), producer(1));
    account.acknowledge(CallNumber::new(one, 1));
    account.acknowledge_release(CallNumber::new(one, 2));
    assert_eq!(account.acknowledged(one, (1, 9)), [1, 2]);
    assert_eq!(account.settlements_among(one, &[1, 2, 3]), [1, 3]);
    assert_eq!(account.settlements_among(two, &[1, 2, 3]), [1, 2, 3]);
    account.acknowledge(CallNumber::new(two, 1));
    account.acknowledge_release(CallNumber::new(one, 4));
    assert_eq!(
        account.settlements_among(two, &[2, 4]),
        [2, 4],
        "its numbers begin anew"
    );
    let most = u64::try_from(RELEASED_MAX).unwrap();
    for number in 1..=most + 1 {
        account.acknowledge_release(CallNumber::new(two, number));
    }
    assert_eq!(account.settlements_among(two, &[1, 2, most + 1]), [1]);
}

/// The one before was born by a clock that was ahead.
#[test]
fn what_was_acknowledged_is_that_of_the_producer_that_gives_the_numbers() {
    let (account, first) = (account(), Producer::new(Timestamp(1_795_132_800_000)).unwrap());
    let before = [(); 3].map(|()| account.numbers.next(&first));
    account.acknowledge(before[0]);
    let earlier = Producer::new(Timestamp(1_795_132_800_000 - 86_400_000)).unwrap();
    let last = [(); 2].map(|()| account.numbers.next(&earlier));
    account.acknowledge(before[1]);
    assert_eq!(
        account.acknowledged(first.current(), (1, 9)),
        [1, 2],
        "the last one has none yet"
    );
    account.acknowledge(last[1]);
    account.acknowledge(before[2]);
    assert_eq!(account.acknowledged(earlier.current(), (1, 9)), [2]);
    assert_eq!(account.acknowledged(first.current(), (1, 9)), [0; 0], "it was replaced");
}

#[test]
fn something_is_under_way_until_all_of_it_was_heard() {
    let account = account();
    assert!(!account.is_under_way());
    account.begin();
    account.begin();
    account.end();
    assert!(account.is_under_way());
    account.end();
    assert!(!account.is_under_way());
}

#[test]
fn an_account_waits_as_long_as_its_oldest_settlement() {
    let account = account();
    assert_eq!((account.waits_since_ms(), account.waited_ms(900)), (None, 0));
    for (queued_ms, since_ms) in [(500, 500), (700, 500), (300, 300)] {
        account.waits(queued_ms);
        assert_eq!(account.waits_since_ms(), Some(since_ms));
    }
    assert_eq!((account.waited_ms(900), account.waited_ms(200)), (600, 0));
    account.waits_no_more();
    assert_eq!(account.waits_since_ms(), None);
    // The clock began with it.
    account.waits(0);
    assert_eq!(account.waits_since_ms(), Some(1));
}

#[test]
fn what_a_key_counts_as_is_what_was_heard_last() {
    let account = account();
    let key = |text: &str| KeyId::from(text.to_owned());
    assert_eq!(account.counts_as(&key("key_a")), None);
    for root in ["key_b", "key_a"] {
        account.heard_counts_as(&key("key_a"), key(root));
        assert_eq!(account.counts_as(&key("key_a")), Some(key(root)));
    }
    for n in 0..COUNTS_AS_MAX {
        account.heard_counts_as(&key(&format!("key_{n}")), key("key_b"));
    }
    assert_eq!(account.counts_as(&key("key_a")), None, "it is asked of again");
}

#[test]
fn of_two_producers_of_one_birth_the_last_one_counts() {
    let account = account();
    let born = Birth::at(Timestamp(1_795_132_800_000));
    let [one, two] = [7, 8].map(|random| ProducerId::new(born, random));
    account.acknowledge(CallNumber::new(one, 1));
    account.acknowledge(CallNumber::new(two, 2));
    assert_eq!(account.acknowledged(one, (1, 9)), [0; 0]);
    assert_eq!(account.acknowledged(two, (1, 9)), [2]);
}

#[test]
fn an_account_knows_its_queue_and_the_names_of_its_keys() {
    let account = account();
    assert_eq!(account.queued_at(), 0);
    account.queues_at(2);
    assert_eq!(account.queued_at(), 2);
    assert_eq!(account.keys(), ["tg1:{acme}", "tg1:{acme}:expiry"]);
    // Other versions find them by these names.
    for (name, expected) in [
        (keys_of_account(account.id()), "tg1:{acme}:keys"),
        (credits_of_account(account.id()), "tg1:{acme}:credits"),
        (ended_claims_of_account(account.id()), "tg1:{acme}:ended_claims"),
        (receipts_of_account(account.id()), "tg1:{acme}:receipts"),
    ] {
        assert_eq!(name, expected);
    }
}
