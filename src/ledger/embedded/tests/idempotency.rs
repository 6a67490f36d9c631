//! Idempotency keys of calls that run in the process before this one, and of those that a process of before has sent.

use super::spending::caller;
use super::*;
use crate::config::Idempotency;
use crate::ledger::control;
use crate::ledger::embedded::stops::tell_freed;
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
    assert!(block_on(rig.store.known_key(&late)).is_err());
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
    // Whoever only looks sees the same.
    let known = |name| block_on(successor.known_key(&keyed(&caller, name, 8))).unwrap();
    let both = |name| (state(name), known(name).map(|record| record.state));
    let is = |owner| (State::Sent(owner), Some(State::Sent(owner)));
    assert_eq!(both("runs"), is(Owner::Runs));
    assert_eq!(both("gone"), is(Owner::Gone));
    successor.predecessors_ended();
    assert_eq!(both("runs"), is(Owner::Gone));
    assert_eq!(known("late"), None);
    assert!(matches!(
        block_on(successor.take_key(&keyed(&caller, "late", 9))),
        Ok(Found::Nothing)
    ));
}

/// Whoever no longer waits for its key has none, whether the ledger's thread has heard of it by then or not.
#[test]
fn a_key_that_nobody_waits_for_is_free() {
    let rig = rig();
    let caller = caller(&rig.store, rig.key);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    for n in 0..100 {
        let call = keyed(&caller, "left", n);
        {
            let mut asked = std::pin::pin!(rig.store.take_key(&call));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if asked.as_mut().poll(&mut context).is_ready() {
                rig.store.end_key(&call, KeyEnd::Unsent);
            } else if n % 2 == 0 {
                block_on(rig.store.known_key(&keyed(&caller, "other", 1_000))).unwrap();
            }
        }
        // The thread has done what it was asked before, once it answers.
        block_on(rig.store.known_key(&keyed(&caller, "other", 1_000))).unwrap();
        assert_eq!(block_on(rig.store.known_key(&call)).unwrap(), None, "{n}");
    }
    assert!(matches!(
        block_on(rig.store.take_key(&keyed(&caller, "left", 200))),
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

/// Sends a call under this name.
fn send(store: &Embedded, call: &KeyedCall) {
    assert!(matches!(block_on(store.take_key(call)), Ok(Found::Nothing)));
    block_on(store.send_under_key(call)).unwrap();
}

/// While calls run on, and as their process ends.
#[test]
fn a_key_whose_call_comes_to_nothing_in_the_process_before_is_free() {
    let rig = rig();
    let caller = caller(&rig.store, rig.key);
    let calls = [("none", 1), ("billed", 2), ("last", 3)].map(|(name, n)| keyed(&caller, name, n));
    calls.iter().for_each(|call| send(&rig.store, call));
    rig.store.hand_over().unwrap();
    let [none, billed, last] = calls;
    rig.store.end_key(&none, KeyEnd::Freed);
    tell_freed(&rig.store.shared, rig.store.path());
    assert_eq!(rig.store.shared.idempotency.freed(9).len(), 1, "nobody listens yet");

    let successor = open(&rig.folder);
    control::listen(&successor).unwrap();
    let is_free = |name| match block_on(successor.take_key(&keyed(&caller, name, 9))) {
        Ok(Found::Nothing) => true,
        Ok(Found::Known(_)) => false,
        other => panic!("{other:?}"),
    };
    rig.store.end_key(&billed, KeyEnd::Billed(None));
    tell_freed(&rig.store.shared, rig.store.path());
    assert_eq!(["none", "billed", "last"].map(is_free), [true, false, false]);
    assert!(rig.store.shared.idempotency.freed(9).is_empty());
    rig.store.end_key(&last, KeyEnd::Freed);
    rig.store.close();
    assert_eq!(["billed", "last"].map(is_free), [false, true]);
}

/// A machine boots two days ahead, and its clock is set right while the gateway runs; and the other way round.
#[test]
fn no_clock_that_is_ahead_has_a_call_made_again() {
    let rig = rig();
    let call = keyed(&caller(&rig.store, rig.key), "a", 1);
    send(&rig.store, &call);
    rig.store.end_key(&call, KeyEnd::Billed(None));
    let Rig { folder, store, .. } = rig;
    drop(store);
    let again = KeyedCall {
        request: request_id(2),
        ..call
    };
    let two_days = 2 * KEPT_MS;
    for (at_start, then) in [(two_days, -two_days), (0, two_days)] {
        let clock = Clock::manual(NOW.plus_millis(at_start));
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("ledger.db");
        std::fs::copy(folder.path().join("ledger.db"), &path).unwrap();
        let store = Embedded::open(&path, clock.clone()).unwrap();
        let is_known = || match block_on(store.take_key(&again)) {
            Ok(Found::Known(_)) => true,
            Ok(Found::Nothing) => {
                store.end_key(&again, KeyEnd::Unsent);
                false
            }
            other => panic!("{other:?}"),
        };
        assert!(is_known());
        clock.set_by(then);
        assert!(is_known());
        clock.advance(KEPT_MS - 1);
        assert!(is_known());
        clock.advance(1);
        assert!(!is_known());
    }
}

/// A batch of 100,000 calls would stay for more than an hour behind its time, at 1,000 a minute.
#[test]
fn very_many_keys_that_expire_at_once_are_deleted_one_part_behind_another() {
    are_deleted_in_parts(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
         INSERT INTO idempotency (key, name, fingerprint, request, state, expires)
             SELECT 'key_x', randomblob(16), zeroblob(32), randomblob(16), 2, 1 FROM n;
         INSERT INTO idempotency_sums (key, known, bytes) VALUES ('key_x', 2500, 0), ('', 2500, 0);",
        &[1_500, 500, 0],
    );
}

/// Debits wait behind each part: one of 1,000 long answers is most of a GiB.
#[test]
fn long_answers_that_expire_at_once_are_deleted_by_16_mib() {
    are_deleted_in_parts(
        "WITH answers (expires, bytes) AS (VALUES (1, 17 << 20), (2, 8 << 20), (3, 8 << 20), (4, 1 << 20))
         INSERT INTO idempotency (key, name, fingerprint, request, state, expires, bytes, answer)
             SELECT 'key_x', randomblob(16), zeroblob(32), randomblob(16), 1, expires, bytes, zeroblob(bytes)
                 FROM answers;
         INSERT INTO idempotency_sums (key, known, bytes) VALUES ('key_x', 4, 34 << 20), ('', 4, 34 << 20);",
        &[3, 1, 0],
    );
}

/// Checks how many of these records each step of deletions leaves, which is soon followed by another while there are some.
#[track_caller]
fn are_deleted_in_parts(records: &str, steps: &[i64]) {
    let mut thread = super::posts::thread();
    let file = rusqlite::Connection::open(&thread.path).unwrap();
    file.execute_batch(records).unwrap();
    let rows = |table| {
        let sql = format!("SELECT count(*) FROM {table}");
        file.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    for left in steps {
        thread.committer.keys_at = Some(crate::clock::monotonic());
        thread.committer.do_what_is_due();
        assert_eq!(rows("idempotency"), *left);
        let soon = crate::clock::monotonic().checked_add(std::time::Duration::from_secs(30));
        assert_eq!(thread.committer.keys_at < soon, *left > 0, "{left} are left");
    }
    assert_eq!(rows("idempotency_sums"), 0);
}
