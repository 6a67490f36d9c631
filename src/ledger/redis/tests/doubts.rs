//! What nobody knows of: whether a reserve held anything, whether Redis has a settlement.

use std::sync::Mutex;

use futures::FutureExt;

use super::{node, patient, request};
use crate::ledger::Orphan;
use crate::ledger::journal::Entry;
use crate::ledger::redis::RedisLedger;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::queue::{ReleaseKind, Work};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, caller_of, debit, request_id};
use crate::pure::limits::LimitOverrides;
use crate::pure::numbers::{CallNumber, ProducerId};

#[test]
fn a_reserve_that_is_given_up_is_given_back_and_one_that_was_answered_is_not() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    // Nobody empties its queue.
    let (shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    runtime.shutdown_background();
    let (link, account) = (Link::default(), shared.cache.account(&caller.account.id));
    let [given_up, answered] = [1, 2].map(|n| request(n, "1"));
    let ended = block_on(async {
        shared
            .try_reserve(&link, &account, (&given_up, true), &mut None)
            .now_or_never()
    });
    assert!(ended.is_none());
    let queued = shared.shards.of_slot(0).queue.take();
    let [Work::Release { hold, kind, .. }] = &queued[..] else {
        panic!("{queued:?}");
    };
    assert_eq!((*hold, *kind), (given_up.id, ReleaseKind::Doubtful));
    let granted = block_on(shared.try_reserve(&link, &account, (&answered, true), &mut None));
    assert!(granted.unwrap().is_ok());
    assert!(shared.shards.of_slot(0).queue.is_empty());
}

/// Only what a process gave a number can it have sent.
#[test]
fn a_settlement_is_in_doubt_where_a_dead_process_had_given_it_a_number() {
    let server = RedisServer::start();
    let (shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    // Nobody empties its queue.
    let ledger = RedisLedger {
        shared,
        settler: Mutex::new(None),
        commands: Mutex::new(Some(runtime)),
    };
    let account = ledger.place(&"acme".parse().unwrap());
    for number in [None, Some(CallNumber::new(ProducerId(7), 1))] {
        let orphan = Orphan::Owed {
            debit: debit("1"),
            number,
        };
        ledger.take_over(&account, request_id(1), orphan, Entry::none());
        let queued = ledger.shared.shards.queue_of(&account).queue.take();
        let [work] = &queued[..] else {
            panic!("{queued:?}");
        };
        assert_eq!(work.is_doubted(), number.is_some());
    }
}
