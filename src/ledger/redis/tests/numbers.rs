//! Numbers in any order, near and far apart: the script closes those that the reference closes.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::book::RedisBook;
use super::patient;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{audit_is_clean, caller_of, debit, request_id};
use crate::ledger::tests::sequences::Book;
use crate::pure::account::{Settled, Settlement};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, Numbers, ProducerId};

/// What an account keeps of a producer: its highest number, and every number up to that one that is open.
fn kept(server: &RedisServer, account: &str, producer: ProducerId) -> (u64, Vec<u64>) {
    let answer = server.ask(&format!("HGET tg1:{{{account}}} n{:016x}", producer.0));
    let mut words = answer.last().unwrap().split_ascii_whitespace();
    let high = words.next().unwrap().parse().unwrap();
    let runs = words.skip(1).flat_map(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    });
    let mut open: Vec<u64> = runs.collect();
    open.sort_unstable();
    (high, open)
}

#[test]
fn numbers_in_any_order_are_closed_as_the_reference_closes_them() {
    let server = RedisServer::start();
    let ledger = super::node(&server, patient());
    let mut runner = TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    });
    let count = std::cell::Cell::new(0);
    let number = prop_oneof![3 => 1u64..30, 2 => 1u64..400, 1 => 1u64..5_000];
    let outcome = runner.run(&proptest::collection::vec(number, 1..120), |numbers| {
        count.set(count.get() + 1);
        let name = format!("account-{}", count.get());
        caller_of(&ledger, &name, "1", LimitOverrides::default());
        let book = RedisBook::new(&ledger, &name);
        let producer = ProducerId(1_795_000_000 << 32 | 7);
        let mut reference = Numbers::default();
        for number in numbers {
            let settlement = Settlement {
                hold: request_id(number),
                cost: Credits::ZERO,
                tokens: 0,
                number: CallNumber::new(producer, number),
            };
            let is_new = book.settle(&settlement, &debit("0"), None) != Settled::Already;
            prop_assert_eq!(is_new, reference.resolve(number), "{}", number);
            let open: Vec<u64> = reference
                .open()
                .iter()
                .flat_map(|(first, last)| *first..=*last)
                .collect();
            prop_assert_eq!(kept(&server, &name, producer), (reference.high(), open));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    audit_is_clean(&ledger);
}
