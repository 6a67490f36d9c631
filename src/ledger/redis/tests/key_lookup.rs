//! Keys that calls use, and how they stay known.

use std::sync::Arc;
use std::time::Duration;

use super::{node, parted, patient};
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminOp, KeyRef};
use crate::ledger::redis::RedisLedger;
use crate::ledger::redis::cache::KnownKey;
use crate::ledger::redis::commands::key_id_key;
use crate::ledger::redis::shared::{Shared, key_name};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of, key_create, run};
use crate::pure::ids::{AccountId, ApiKey, KeyDigest, KeyId, Tier};
use crate::pure::limits::LimitOverrides;

/// A gateway that was started long ago, and a key of `acme` that it has read.
fn with_key(server: &RedisServer) -> (Arc<Shared>, KeyDigest, KnownKey) {
    let ledger = node(server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let digest = ApiKey::from_random("tg_", [94; 32]).digest();
    run(&ledger, key_create("acme", &digest)).unwrap();
    let (shared, _) = RedisLedger::reach(&server.url(), patient()).unwrap();
    let shared = Arc::into_inner(shared).unwrap();
    let started = shared.started.checked_sub(Duration::from_secs(100)).unwrap();
    let shared = Arc::new(Shared { started, ..shared });
    // It lives to the test's end.
    shared.cache.subscription_lives(shared.now_ms() + 600_000);
    let known = block_on(shared.find_key(&digest)).unwrap().unwrap();
    (shared, digest, known)
}

/// What was read `age_ms` ago is known of the key, and that of this account.
fn put(shared: &Shared, digest: KeyDigest, known: &KnownKey, (account, age_ms): (&str, u64)) -> u64 {
    let read_ms = shared.now_ms() - age_ms;
    let known = KnownKey {
        account: shared.cache.account(&account.parse().unwrap()),
        read_ms,
        ..known.clone()
    };
    shared.cache.put(digest, known, shared.cache.generation());
    read_ms
}

#[test]
fn a_key_in_use_is_read_again_beside_the_call_that_finds_it_old() {
    let server = RedisServer::start();
    let (shared, digest, known) = with_key(&server);
    let read_ms = put(&shared, digest, &known, ("acme", 31_000));
    let found = block_on(shared.find_key(&digest)).unwrap().unwrap();
    assert_eq!(found.read_ms, read_ms, "the call waited");
    until("it is read again", || {
        block_on(tokio::task::yield_now());
        let current = shared.cache.key(&digest, shared.now_ms()).unwrap();
        assert!(!current.is_due);
        current.known.read_ms > read_ms
    });
}

/// Its account is asked in the same moment, and not believed where the key is another's now.
#[test]
fn a_key_that_was_known_is_that_of_the_account_that_redis_says() {
    let server = RedisServer::start();
    let (shared, digest, known) = with_key(&server);
    for account in ["acme", "nobody"] {
        let read_ms = put(&shared, digest, &known, (account, 61_000));
        let found = block_on(shared.find_key(&digest)).unwrap().unwrap();
        assert!(found.read_ms > read_ms);
        assert_eq!((found.account.id().as_str(), found.facts.id.as_str()), ("acme", "acme"));
    }
}

/// Nothing is taken for an answer that a key is not there.
#[test]
fn whether_an_account_has_a_key_is_asked_of_its_own_master_where_the_keys_is_away() {
    let (first, mut second) = (RedisServer::start(), RedisServer::start());
    let digest = ApiKey::from_random("tg_", [95; 32]).digest();
    let id = KeyId::of(&digest);
    let shared = parted(&first, &second, &key_id_key(&id));
    let [acme, beta] = ["acme", "beta"].map(|name| name.parse::<AccountId>().unwrap());
    let run = |op| block_on(async { shared.execute(&shared.link(), op).await }).unwrap();
    run(AdminOp::AccountCreate {
        account: acme.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    });
    run(key_create("acme", &digest));
    let has = |account: &AccountId, key: &KeyId| block_on(async { shared.has_key(&shared.link(), account, key).await });
    let unknown = KeyId::of(&KeyDigest::from_bytes([9; 32]));
    assert_eq!(has(&acme, &id), Ok(true));
    assert_eq!([has(&acme, &unknown), has(&beta, &id)], [Ok(false), Ok(false)]);
    let mut lost = redis::cmd("DEL");
    lost.arg(key_id_key(&id));
    block_on(async { shared.command(&shared.link(), lost).await }).unwrap();
    assert_eq!(has(&acme, &id), Ok(true), "the account's master has it in a list");
    assert_eq!(has(&beta, &id), Ok(false));
    second.kill();
    assert_eq!(has(&acme, &id), Ok(true));
    let unsaid = has(&beta, &id);
    assert!(matches!(unsaid, Err(StoreError::Unavailable(_))), "{unsaid:?}");
}

/// Its server answers, but later than a call waits for one that is known: the answer was thrown away, and each call waited for it anew.
#[test]
fn a_key_whose_server_is_slow_is_read_on_beside_its_call() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let digest = ApiKey::from_random("tg_", [96; 32]).digest();
    let shared = Arc::into_inner(parted(&first, &second, &key_name(&digest))).unwrap();
    let started = shared.started.checked_sub(Duration::from_secs(100)).unwrap();
    let shared = Arc::new(Shared { started, ..shared });
    let run = |op| block_on(async { shared.execute(&shared.link(), op).await }).unwrap();
    run(AdminOp::AccountCreate {
        account: "acme".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    });
    run(key_create("acme", &digest));
    let known = block_on(shared.find_key(&digest)).unwrap().unwrap();
    run(AdminOp::KeyRevoke {
        key: KeyRef::Id(KeyId::of(&digest)),
    });
    // Also where it was to be read ahead before, and was not.
    put(&shared, digest, &known, ("acme", 1_000));
    shared.cache.subscription_lives(shared.now_ms() + 600_000);
    drop(shared.cache.read_ahead(&digest));
    assert_eq!(second.ask("CLIENT PAUSE 400 ALL"), ["+OK"]);
    drop(block_on(shared.key(&digest)));
    until("it is read", || {
        block_on(tokio::task::yield_now());
        let current = shared.cache.key(&digest, shared.now_ms());
        current.is_some_and(|current| current.known.key.revoked.is_some())
    });
}
