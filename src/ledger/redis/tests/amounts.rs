//! Amounts that a double cannot hold, through many operations.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::book::RedisBook;
use super::{node, patient, request};
use crate::ledger::Debit;
use crate::ledger::admin::AdminOp;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{audit_is_clean, caller_of, credits, request_id, run};
use crate::ledger::tests::sequences::Book;
use crate::pure::account::{Settled, Settlement};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// 100,000 reserves, settlements and releases on a balance of 9,000,000 credits and on one of 10^-12: every figure exact.
#[test]
fn the_largest_and_the_smallest_balance_stay_exact_through_100_000_operations() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    for (name, balance) in [("rich", "9000000"), ("poor", "0.000000000001")] {
        caller_of(&ledger, name, balance, LimitOverrides::default());
        let book = RedisBook::new(&ledger, name);
        let mut expected = credits(balance).pico();
        for n in 0..25_000u64 {
            if expected == 0 {
                let again = AdminOp::CreditsAdd {
                    account: name.parse().unwrap(),
                    amount: Credits::PICO,
                    reference: format!("again {n}"),
                };
                run(&ledger, again).unwrap();
                expected = 1;
            }
            // Four operations a round: what a call takes, all the rest, given back, and the call's settlement.
            let most = expected.min((expected / 20_000).max(1));
            let cost = (0..=most).new_tree(&mut runner).unwrap().current();
            let mut wanted = request(n, "0");
            wanted.wanted = Credits::from_pico(cost);
            wanted.at_least = wanted.wanted;
            assert_eq!(book.reserve(&wanted).unwrap().amount.pico(), cost);
            let twin = crate::pure::account::ReserveRequest {
                id: request_id(u64::MAX - n),
                wanted: Credits::from_pico(expected - cost),
                at_least: Credits::from_pico(expected - cost),
                ..wanted.clone()
            };
            assert_eq!(
                book.reserve(&twin).unwrap().amount.pico(),
                expected - cost,
                "all the rest"
            );
            assert_eq!(book.release(twin.id), Some(twin.wanted));
            let settlement = Settlement {
                hold: wanted.id,
                cost: wanted.wanted,
                tokens: 2,
                number: CallNumber::new(ProducerId(7), n + 1),
            };
            assert_eq!(
                book.settle(&settlement, &debit(wanted.wanted), None),
                Settled::Now { overrun: false }
            );
            expected -= cost;
            if n % 1000 == 0 {
                let (figures, open) = book.view();
                assert_eq!((figures.balance.pico(), figures.held.pico(), open), (expected, 0, 0));
            }
        }
        assert_eq!(book.view().0.balance.pico(), expected);
    }
    audit_is_clean(&ledger);
}

#[test]
fn a_settlement_beyond_the_range_changes_nothing() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let book = RedisBook::new(&ledger, "acme");
    let settle = |sequence, cost| {
        let settlement = Settlement {
            hold: request_id(1),
            cost,
            tokens: 0,
            number: CallNumber::new(ProducerId(1), sequence),
        };
        book.settle(&settlement, &debit(cost), None)
    };
    assert!(matches!(settle(1, Credits::MAX), Settled::Now { overrun: true }));
    let before = book.view();
    assert_eq!(settle(2, Credits::MAX), Settled::OutOfRange);
    assert_eq!(
        settle(2, credits("2")),
        Settled::OutOfRange,
        "the month would leave its range"
    );
    assert_eq!(book.view(), before);
    assert!(matches!(settle(2, Credits::ZERO), Settled::Now { .. }));
    audit_is_clean(&ledger);
}

fn debit(cost: Credits) -> Debit {
    Debit {
        model: "a/m".into(),
        key: "key_x".to_owned().into(),
        usage: Usage {
            prompt: PromptTokens(1),
            completion: CompletionTokens(1),
        },
        cost,
        held: None,
        details: None,
        end_user: None,
    }
}
