//! How calls under idempotency keys ended is told to each shard beside the others.

use std::collections::BTreeMap;

use super::*;
use crate::config::Idempotency;
use crate::ledger::idempotency::call::{ENDS_MAX, KeyEnd, KeyedCall};
use crate::ledger::redis::account::idempotency_of_key;
use crate::ledger::redis::key_ends::Ended;
use crate::ledger::redis::tests::parted;
use crate::pure::idempotency::{Fingerprint, KeyName};
use crate::pure::ids::KeyId;

/// A call that takes a key for itself: one that Redis does not know is as good, and told all the same.
fn call() -> KeyedCall {
    let key = KeyId::from("key_x".to_owned());
    KeyedCall {
        name: KeyName::of(&key, b"one").unwrap(),
        key,
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(1),
        limits: Idempotency::default(),
    }
}

fn freed(shared: &Shared, account: &Arc<Account>, call: &KeyedCall) -> Ended {
    Ended {
        account: Arc::clone(account),
        call: call.clone(),
        end: KeyEnd::Freed,
        queued_ms: shared.now_ms(),
    }
}

#[test]
fn a_shard_that_is_silent_holds_up_no_ends_of_the_others() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "acme");
    let (silent, other, call) = (account(&shared, "acme"), account(&shared, "beta"), call());
    let [records, ..] = idempotency_of_key(other.id(), &call.key);
    // The key is taken, as its script writes it.
    let mut taken = redis::cmd("HSET");
    let mut record = b"t".to_vec();
    record.extend_from_slice(call.fingerprint.as_bytes());
    record.extend_from_slice(call.request.as_bytes());
    taken.arg(&records).arg(call.name.as_bytes()).arg(record);
    block_on(shared.command(&Link::default(), taken)).unwrap();
    second.freeze();
    for account in [&silent, &silent, &silent, &other] {
        shared.key_ends.push(&shared.shards, freed(&shared, account, &call));
    }
    let is_told = async {
        while first.ask(&format!("EXISTS {records}")) != [":0"] {
            tokio::task::yield_now().await;
        }
    };
    let began = crate::clock::monotonic();
    block_on(async {
        tokio::select! {
            () = keys::run(Arc::clone(&shared)) => panic!("one shard is silent"),
            () = is_told => {}
        }
    });
    // Before the first of the silent shard's is given up.
    let took = began.elapsed();
    assert!(took < shared.options.timeout, "{took:?}");
}

#[test]
fn the_ends_of_one_shard_leave_room_for_those_of_the_others() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "acme");
    let (many, other, call) = (account(&shared, "acme"), account(&shared, "beta"), call());
    let push = |account: &Arc<Account>| shared.key_ends.push(&shared.shards, freed(&shared, account, &call));
    (0..ENDS_MAX).for_each(|_| push(&many));
    push(&other);
    shared.key_ends.close();
    let mut counts = BTreeMap::new();
    while let Some(shard) = block_on(shared.key_ends.shard()) {
        let ends = std::iter::from_fn(|| shared.key_ends.next(shard));
        counts.insert(shard, ends.count());
    }
    let number = |account: &Account| shared.shards.of(account).number;
    assert_eq!(counts, [(number(&many), ENDS_MAX / 2), (number(&other), 1)].into());
}

/// Whoever is told to tell a shard's ends does so until there is none: nobody else begins meanwhile.
#[test]
fn a_shards_ends_are_told_by_one_at_a_time() {
    use futures::FutureExt;
    let server = RedisServer::start();
    let shared = opened(&server);
    let (acme, call, ends) = (account(&shared, "acme"), call(), &shared.key_ends);
    let push = || ends.push(&shared.shards, freed(&shared, &acme, &call));
    push();
    assert_eq!(ends.shard().now_or_never(), Some(Some(0)));
    push();
    assert_eq!(ends.shard().now_or_never(), None, "it is told already");
    ends.close();
    assert_eq!(ends.shard().now_or_never(), None, "and may be queued again");
    let told = std::iter::from_fn(|| ends.next(0));
    assert_eq!(told.count(), 2);
    assert_eq!(ends.shard().now_or_never(), Some(None));
    push();
    assert_eq!(ends.shard().now_or_never(), Some(Some(0)));
}
