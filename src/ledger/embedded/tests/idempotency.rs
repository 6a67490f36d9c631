//! Idempotency keys of calls that run in the process before this one.

use super::spending::caller;
use super::*;
use crate::config::Idempotency;
use crate::ledger::idempotency::call::{Found, KeyEnd, KeyedCall};
use crate::ledger::journal::LiveHold;
use crate::ledger::tests::rig::request_id;
use crate::pure::idempotency::{Fingerprint, KEPT_MS, KeyName, Owner, State};

fn keyed(caller: &Caller, name: &str, n: u64) -> KeyedCall {
    KeyedCall {
        key: caller.key.id.clone(),
        name: KeyName::of(&caller.key.id, name.as_bytes()).unwrap(),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(n),
        limits: Idempotency::default(),
    }
}

#[test]
fn a_key_runs_as_long_as_its_call_does_in_the_process_before() {
    let rig = rig();
    let caller = caller(&rig.store, rig.key);
    for (name, n) in [("runs", 1), ("gone", 2)] {
        let call = keyed(&caller, name, n);
        assert!(matches!(block_on(rig.store.take_key(&call)), Ok(Found::Nothing)));
        block_on(rig.store.send_under_key(&call)).unwrap();
    }
    rig.store.hand_over().unwrap();
    // Whoever has handed the ledger over takes no key, and sends nothing under one.
    let late = keyed(&caller, "late", 3);
    assert!(block_on(rig.store.take_key(&late)).is_err());
    assert!(block_on(rig.store.send_under_key(&late)).is_err());

    let successor = open(&rig.folder);
    successor.hold_for_predecessor(&LiveHold {
        id: request_id(1),
        account: caller.account.id.clone(),
        key: caller.key.id.clone(),
        end_user: None,
        amount: credits("1"),
    });
    let state = |name| match block_on(successor.take_key(&keyed(&caller, name, 9))) {
        Ok(Found::Known(record)) => record.state,
        other => panic!("{other:?}"),
    };
    assert_eq!(state("runs"), State::Sent(Owner::Runs));
    assert_eq!(state("gone"), State::Sent(Owner::Gone));
    successor.predecessors_ended();
    assert_eq!(state("runs"), State::Sent(Owner::Gone));
    assert!(matches!(
        block_on(successor.take_key(&keyed(&caller, "late", 9))),
        Ok(Found::Nothing)
    ));
}

/// How many keys are known, and what they take, counts against a bound: it is what stands in the file.
#[test]
fn a_name_that_is_used_again_when_it_has_expired_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(NOW);
    let store = Embedded::open(&folder.path().join("ledger.db"), clock.clone()).unwrap();
    let key: crate::pure::ids::KeyId = "key_x".to_owned().into();
    let call = |name: &str, n| KeyedCall {
        key: key.clone(),
        name: KeyName::of(&key, name.as_bytes()).unwrap(),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(n),
        limits: Idempotency::default(),
    };
    for n in 0..4 {
        clock.advance(KEPT_MS + 1);
        for name in ["again", &n.to_string()] {
            let call = call(name, n);
            assert!(matches!(block_on(store.take_key(&call)), Ok(Found::Nothing)));
            block_on(store.send_under_key(&call)).unwrap();
            store.end_key(&call, KeyEnd::Billed(None));
        }
        // What was written before is in the file once this was looked for.
        let other = call("other", n);
        assert!(matches!(block_on(store.take_key(&other)), Ok(Found::Nothing)));
        store.end_key(&other, KeyEnd::Unsent);
    }
    store.close();
    let file = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    let row = |sql: &str| {
        let row = file.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
        row.unwrap()
    };
    let standing = row("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM idempotency");
    assert_eq!(
        row("SELECT known, bytes FROM idempotency_sums WHERE key = ''"),
        standing
    );
    assert_eq!(
        row("SELECT known, bytes FROM idempotency_sums WHERE key = 'key_x'"),
        standing
    );
    drop(file);
    // The ledger's thread looks again as long as something is left.
    let mut database = Database::open(&folder.path().join("ledger.db")).unwrap();
    assert!(database.delete_expired_keys(clock.now()).unwrap());
    assert!(!database.delete_expired_keys(clock.now().plus_millis(KEPT_MS)).unwrap());
}
