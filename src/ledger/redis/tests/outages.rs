//! Redis stops, is killed, forgets its scripts, or should never have been used.

use std::time::{Duration, Instant};

use super::{brisk, node, patient, request, store};
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::{AccountOp, AccountQuery};
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, run};
use crate::ledger::{Ledger, StoreError};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Period;

/// A frozen Redis: calls fail within the bounded time, then at once, and are served again within two seconds of its return.
#[test]
fn a_frozen_redis_is_refused_in_time_and_service_returns() {
    let server = RedisServer::start();
    let ledger = node(&server, brisk());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    block_on(caller.reserve(&request(1, "1")))
        .unwrap()
        .unwrap()
        .settle(debit("1"));
    let running = block_on(caller.reserve(&request(2, "1"))).unwrap().unwrap();
    server.freeze();
    running.settle(debit("1"));
    let mut slow = 0;
    for n in 0..40 {
        let start = Instant::now();
        let refused = block_on(caller.reserve(&request(10 + n, "1")));
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        let took = start.elapsed();
        assert!(took < Duration::from_millis(1000), "{took:?}");
        slow += u32::from(took > Duration::from_millis(100));
    }
    assert!(slow <= 8, "{slow} calls waited although the breaker is open");
    let unknown = ApiKey::from_random("tg_", [250; 32]).digest();
    assert!(
        block_on(ledger.authenticate(&unknown)).is_err(),
        "unknown is not the same as unavailable"
    );
    server.thaw();
    served_within_two_seconds(&caller);
    // What was refused holds nothing for long, although Redis may have run it when it woke up.
    until("nothing is held", || {
        block_on(caller.figures()).is_ok_and(|figures| figures.held == Credits::ZERO)
    });
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("98"));
    audit_is_clean(&ledger);
}

/// A killed Redis that comes back with what it had on disk: nothing that was settled is lost, nothing is counted twice.
#[test]
fn a_killed_redis_loses_no_debit() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let ledger = node(&server, brisk());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let holds: Vec<_> = (0..20)
        .map(|n| block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap())
        .collect();
    for (n, hold) in holds.into_iter().enumerate() {
        if n == 10 {
            server.kill();
        }
        hold.settle(debit("1"));
    }
    assert!(block_on(caller.reserve(&request(100, "1"))).is_err());
    server.restart();
    served_within_two_seconds(&caller);
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("80"));
    audit_is_clean(&ledger);
}

/// A Redis that forgot the scripts' hashes, as after a restart or fail-over.
#[test]
fn forgotten_scripts_are_sent_again() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    for n in 0..20 {
        server.ask("SCRIPT FLUSH");
        let hold = block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap();
        server.ask("SCRIPT FLUSH");
        hold.settle(debit("1"));
    }
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("80"));
    audit_is_clean(&ledger);
}

/// Connections that are cut are made anew; no call fails for it.
#[test]
fn cut_connections_are_made_anew() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    for n in 0..20 {
        server.ask("CLIENT KILL TYPE normal SKIPME yes");
        let hold = block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap();
        server.ask("CLIENT KILL TYPE normal SKIPME yes");
        hold.settle(debit("1"));
    }
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("80"));
    audit_is_clean(&ledger);
}

#[test]
fn a_redis_that_evicts_is_refused() {
    let evicting = ["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--save", ""];
    let server = RedisServer::start_with(&evicting);
    let error = RedisLedger::connect(&server.url(), brisk()).unwrap_err();
    assert!(error.to_string().contains("noeviction"), "{error}");
    server.ask("CONFIG SET maxmemory-policy noeviction");
    drop(store(&server, brisk()));
}

/// Somebody sets another policy after the start, or a replica that has one is promoted: what is owed is still taken, and nothing is admitted.
#[test]
fn a_redis_that_comes_to_evict_admits_no_calls_until_it_does_so_no_more() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let running = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    let mut n = 10;
    let mut reserve = || {
        n += 1;
        let held = block_on(caller.reserve(&request(n, "0.5")))?;
        held.unwrap().release();
        Ok::<_, StoreError>(())
    };
    assert_eq!(server.ask("CONFIG SET maxmemory 200mb"), ["+OK"]);
    reserve().unwrap();
    assert_eq!(server.ask("CONFIG SET maxmemory-policy volatile-lru"), ["+OK"]);
    until("calls are refused", || {
        reserve().is_err_and(|error| error.to_string().contains("noeviction"))
    });
    running.settle(debit("1"));
    let figures = block_on(caller.figures()).unwrap();
    assert_eq!((figures.balance, figures.held), (credits("99"), Credits::ZERO));
    assert!(reserve().is_err());
    assert_eq!(server.ask("CONFIG SET maxmemory-policy noeviction"), ["+OK"]);
    until("calls are admitted again", || reserve().is_ok());
    audit_is_clean(&ledger);
}

/// The rights that conf/README.md names are enough for all that a gateway and its commands do.
#[test]
fn a_user_with_few_rights_suffices() {
    let server = RedisServer::start();
    let rights =
        "~tg1:* &tg1:changed &tg1:events +@read +@write +@scripting +@pubsub +@connection +info +time +role +wait";
    assert_eq!(server.ask(&format!("ACL SETUSER gateway on >s3cret {rights}")), ["+OK"]);
    let url = server.url().replace("redis://", "redis://gateway:s3cret@");
    let ledger = Ledger::Redis(RedisLedger::connect(&url, patient()).unwrap());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    hold.settle(debit("1"));
    let hold = block_on(caller.reserve(&request(2, "1"))).unwrap().unwrap();
    hold.release();
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("99"));
    let usage = block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
    assert_eq!(usage.len(), 1);
    let other = Ledger::Redis(RedisLedger::connect(&url, patient()).unwrap());
    run(&ledger, AdminOp::Maintenance { on: true }).unwrap();
    until("the other node hears of it", || other.in_maintenance());
    let account = caller.account.id.clone();
    let (limit, before, day) = (9, None, crate::clock::Clock::System.now().day());
    for op in [
        AdminOp::Account(AccountOp::Terms {
            account: account.clone(),
            change: TermsChange::default(),
        }),
        AdminOp::Account(AccountOp::Page(AccountQuery::default())),
        AdminOp::Credit(CreditOp::List {
            account: account.clone(),
            limit,
            before,
        }),
        AdminOp::Credit(CreditOp::Statement {
            account,
            from: day,
            to: day,
        }),
    ] {
        run(&ledger, op).unwrap();
    }
    audit_is_clean(&ledger);
    // With a replica, something is written for it to confirm.
    let replica = RedisServer::start();
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        let replication = server.ask("INFO replication");
        replication.iter().any(|line| line.contains("state=online"))
    });
    run(&ledger, AdminOp::Maintenance { on: false }).unwrap();
    assert_ne!(replica.ask("KEYS tg1:confirm:*"), ["*0"]);
    assert_eq!(
        server.ask("ACL LOG").first().map(String::as_str),
        Some("*0"),
        "nothing was refused"
    );
}

/// Its debits would wait for ever.
#[test]
fn a_user_who_may_not_ask_what_server_it_is_is_refused() {
    let server = RedisServer::start();
    let rights = "~tg1:* &tg1:* +@all -info";
    assert_eq!(server.ask(&format!("ACL SETUSER gateway on >s3cret {rights}")), ["+OK"]);
    let url = server.url().replace("redis://", "redis://gateway:s3cret@");
    for refused in [
        RedisLedger::connect(&url, brisk()).map(drop),
        RedisLedger::preflight(&url, brisk()),
    ] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("+info") && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn no_redis_is_an_error_that_names_the_address() {
    let port = crate::ledger::tests::redis_server::free_port();
    let url = format!("redis://u:secret@127.0.0.1:{port}");
    let error = RedisLedger::connect(&url, brisk()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&port.to_string()) && !text.contains("secret"), "{text}");
    let before_a_start = RedisLedger::preflight(&url, brisk()).unwrap_err();
    assert_eq!(before_a_start.to_string(), text);
    assert_eq!(RedisLedger::preflight(&RedisServer::start().url(), patient()), Ok(()));
}

/// A Redis whose memory is full refuses writes: calls are refused, debits wait and arrive.
#[test]
fn a_full_redis_refuses_calls_and_loses_no_debit() {
    let server = RedisServer::start();
    let ledger = node(&server, brisk());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    // One that costs what it held, and one that costs less: their scripts write in another order.
    let [first, second, third] = [1, 2, 3].map(|n| block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap());
    first.settle(debit("1"));
    block_on(caller.figures()).unwrap();
    server.ask("CONFIG SET maxmemory 1");
    second.settle(debit("1"));
    third.settle(debit("0.5"));
    let refused = block_on(caller.reserve(&request(4, "1")));
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(block_on(caller.figures()).is_err(), "the settlements wait");
    server.ask("CONFIG SET maxmemory 0");
    served_within_two_seconds(&caller);
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("97.5"));
    audit_is_clean(&ledger);
}

/// While settlements cannot be sent, their number is bounded by refusing new calls; closing says what is left.
#[test]
fn a_long_outage_refuses_calls_and_drops_nothing() {
    let server = RedisServer::start();
    let options = Options {
        unsettled_max: 5,
        close_within: Duration::from_millis(300),
        ..brisk()
    };
    let redis = store(&server, options);
    let ledger = Ledger::Redis(std::sync::Arc::clone(&redis));
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let holds: Vec<_> = (0..6)
        .map(|n| block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap())
        .collect();
    server.freeze();
    for hold in holds {
        hold.settle(debit("1"));
    }
    let refused = block_on(caller.reserve(&request(10, "1"))).unwrap_err();
    assert!(refused.to_string().contains("6 settlements wait"), "{refused}");
    let start = Instant::now();
    assert_eq!(redis.close(), 6);
    assert!(start.elapsed() < Duration::from_secs(3));
    server.thaw();
}

fn served_within_two_seconds(caller: &crate::ledger::Caller) {
    let start = Instant::now();
    let mut n = 1000;
    until("calls are served again", || {
        n += 1;
        block_on(caller.reserve(&request(n, "0.5"))).is_ok_and(|held| held.map(|hold| hold.release()).is_ok())
    });
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "served after {took:?}");
}
