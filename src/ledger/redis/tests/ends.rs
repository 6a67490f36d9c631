//! How a ledger ends: what it counts and tells, and what it leaves.

use std::sync::{Arc, Mutex};

use super::patient;
use crate::ledger::journal::Entry;
use crate::ledger::redis::RedisLedger;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, debit, request_id};

/// A ledger whose thread has ended.
fn without_thread(server: &RedisServer) -> RedisLedger {
    let (shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    let thread = std::thread::Builder::new().spawn(|| {}).unwrap();
    RedisLedger {
        shared,
        settler: Mutex::new(Some(thread)),
        commands: Mutex::new(Some(runtime)),
    }
}

#[test]
fn a_ledger_that_closes_counts_and_tells_what_is_not_acknowledged() {
    let server = RedisServer::start();
    for left in [0, 2] {
        let ledger = without_thread(&server);
        let account = ledger.place(&"acme".parse().unwrap());
        for n in 0..left {
            ledger.settle(&account, request_id(n), None, debit("1"), Entry::none());
        }
        let mut counted = None;
        let lines = logged(|| counted = Some(ledger.close()));
        assert_eq!(counted, usize::try_from(left).ok());
        let told = format!("ERROR MONEY: {left} settlements are not acknowledged at the end");
        let expected = if left > 0 { vec![told] } else { Vec::new() };
        assert_eq!(lines, expected);
    }
}

#[test]
fn a_ledger_that_is_dropped_is_closed_and_its_connections_are_forgotten() {
    let server = RedisServer::start();
    let ledger = without_thread(&server);
    let shared = Arc::clone(&ledger.shared);
    let link = || block_on(async { shared.link() });
    let before = link();
    assert!(Arc::ptr_eq(&before, &link()));
    assert!(!shared.shards.of_slot(0).queue.is_closed());
    drop(ledger);
    assert!(!Arc::ptr_eq(&before, &link()));
    assert!(shared.shards.of_slot(0).queue.is_closed());
}
