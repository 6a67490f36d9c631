//! Several gateways on one Redis.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::book::RedisBook;
use super::{brisk, node, on_node, patient, request};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::{AdminOp, KeyRef};
use crate::ledger::cover::Uncovered;
use crate::ledger::redis::Options;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{
    self, audit_is_clean, block_on, caller_of, credits, debit, key_create, on_workers, request_id, run,
};
use crate::ledger::tests::sequences::Book;
use crate::pure::account::{Denial, ReserveRequest, Settled, Settlement};
use crate::pure::ids::{ApiKey, KeyId, Tier};
use crate::pure::limits::{LimitOverrides, Limits};
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};

/// Three nodes, 2,000 callers, credit for 300 of them.
#[test]
fn of_many_callers_on_three_nodes_as_many_win_as_there_is_credit_for() {
    const CALLERS: usize = 2000;
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let caller = caller_of(first, "acme", "300", LimitOverrides::default());
    let won: usize = on_workers(nodes.len(), |worker| {
        let ledger = &nodes[worker];
        let caller = on_node(ledger, &caller);
        let call = async |n: usize| {
            let asked = request(u64::try_from(n * nodes.len() + worker).unwrap(), "1");
            let hold = caller.reserve(&asked).await.unwrap();
            hold.map(|hold| hold.settle(debit("1"))).is_ok()
        };
        let all = block_on(join_all((0..CALLERS / nodes.len()).map(call)));
        all.into_iter().filter(|paid| *paid).count()
    })
    .into_iter()
    .sum();
    assert_eq!(won, 300);
    for ledger in &nodes {
        block_on(on_node(ledger, &caller).figures()).unwrap();
    }
    let figures = block_on(caller.figures()).unwrap();
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, Credits::ZERO));
    audit_is_clean(first);
}

/// Sixty requests a minute are sixty, not three times sixty; four calls at once are four.
#[test]
fn limits_are_exact_over_three_nodes() {
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let caller = caller_of(first, "acme", "1000", LimitOverrides::default());
    let by_rate = Limits {
        rpm: 60,
        tpm: 1_000_000,
        concurrency: 1000,
    };
    let at_once = Limits {
        rpm: 1000,
        concurrency: 4,
        ..by_rate
    };
    let race = |limits: Limits, base: u64, deny: fn(&Denial) -> bool| {
        let highest = AtomicUsize::new(0);
        let open = AtomicUsize::new(0);
        let admitted: usize = on_workers(nodes.len(), |worker| {
            let ledger = &nodes[worker];
            let caller = on_node(ledger, &caller);
            let call = async |n: usize| {
                let asked = ReserveRequest {
                    limits,
                    ..request(base + u64::try_from(n * nodes.len() + worker).unwrap(), "0.1")
                };
                match caller.reserve(&asked).await.unwrap() {
                    Ok(hold) => {
                        highest.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        open.fetch_sub(1, Ordering::SeqCst);
                        hold.release();
                        true
                    }
                    Err(denial) => {
                        assert!(deny(&denial), "{denial:?}");
                        false
                    }
                }
            };
            block_on(join_all((0..60).map(call)))
                .into_iter()
                .filter(|admitted| *admitted)
                .count()
        })
        .into_iter()
        .sum();
        (admitted, highest.into_inner())
    };
    let (admitted, _) = race(by_rate, 0, |denial| matches!(denial, Denial::Requests(_)));
    assert_eq!(admitted, 60);
    let (_, highest) = race(at_once, 10_000, |denial| matches!(denial, Denial::Concurrency(_)));
    assert!((1..=4).contains(&highest), "{highest} at once");
    audit_is_clean(first);
}

/// The same settlement from two nodes and ten times over, before and after its hold has gone: one debit.
#[test]
fn a_settlement_counts_once_whoever_sends_it() {
    let server = RedisServer::start();
    let (one, two) = (node(&server, patient()), node(&server, patient()));
    let caller = caller_of(&one, "acme", "10", LimitOverrides::default());
    let books = [RedisBook::new(&one, "acme"), RedisBook::new(&two, "acme")];
    let [first, second] = &books;
    first.reserve(&request(1, "4")).unwrap();
    let settlement = Settlement {
        hold: request_id(1),
        cost: credits("3"),
        tokens: 7,
        number: CallNumber::new(ProducerId(5), 1),
    };
    assert_eq!(
        first.settle(&settlement, &debit("3"), None),
        Settled::Now { overrun: false }
    );
    for n in 0..10 {
        assert_eq!(books[n % 2].settle(&settlement, &debit("3"), None), Settled::Already);
    }
    let late = Settlement {
        hold: request_id(2),
        number: CallNumber::new(ProducerId(5), 2),
        ..settlement
    };
    assert_eq!(second.settle(&late, &debit("3"), None), Settled::Now { overrun: true });
    assert_eq!(first.settle(&late, &debit("3"), None), Settled::Already);
    let figures = block_on(caller.figures()).unwrap();
    assert_eq!((figures.balance, figures.held), (credits("4"), Credits::ZERO));
    audit_is_clean(&two);
}

/// A command on one node is heard on the others within a second.
#[test]
fn a_revocation_works_on_every_node_within_a_second() {
    let server = RedisServer::start();
    let (one, two) = (node(&server, patient()), node(&server, patient()));
    caller_of(&one, "acme", "0", LimitOverrides::default());
    let keys = [[90; 32], [91; 32]].map(|random| ApiKey::from_random("tg_", random).digest());
    for digest in keys {
        run(&one, key_create("acme", &digest)).unwrap();
    }
    let known = |digest| block_on(two.authenticate(&digest)).unwrap().unwrap();
    for digest in keys {
        // It is kept, and read from the cache.
        assert!(known(digest).key.revoked.is_none() && known(digest).key.revoked.is_none());
        let revoke = AdminOp::KeyRevoke {
            key: KeyRef::Id(KeyId::of(&digest)),
        };
        run(&one, revoke).unwrap();
        let start = Instant::now();
        until("the key is revoked", || known(digest).key.revoked.is_some());
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        // The second key is revoked while the nodes' subscriptions are gone.
        server.ask("CLIENT KILL TYPE pubsub");
    }
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Free),
        quota_pico: None,
        terms: Default::default(),
    };
    let caller = caller_of(&two, "acme", "0", LimitOverrides::default());
    assert_eq!(caller.account.tier, Tier::Pro);
    let start = Instant::now();
    run(&one, set).unwrap();
    until("the account is changed", || {
        on_node(&two, &caller).account.tier == Tier::Free
    });
    run(&one, AdminOp::Maintenance { on: true }).unwrap();
    until("maintenance is on", || two.in_maintenance());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let late = node(&server, brisk());
    until("maintenance is on for a new node", || late.in_maintenance());
}

/// One gateway's clock is ten minutes behind Redis', the other's ten minutes ahead, and neither has a call. Only Redis' goes on.
#[test]
fn a_key_ends_on_every_node_by_redis_clock() {
    const APART_MS: i64 = 600_000;
    let server = RedisServer::start();
    let redis = Clock::manual(rig::NOW);
    let nodes = [-APART_MS, APART_MS].map(|apart_ms| {
        let options = Options {
            clock: Clock::manual(rig::NOW.plus_millis(apart_ms)),
            redis_clock: Some(redis.clone()),
            ..patient()
        };
        node(&server, options)
    });
    let [first, _] = &nodes;
    caller_of(first, "acme", "1", LimitOverrides::default());
    let digest = ApiKey::from_random("tg_", [92; 32]).digest();
    let mut create = key_create("acme", &digest);
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(60_000);
    }
    run(first, create).unwrap();
    let opens = |ledger: &Ledger| {
        let found = block_on(ledger.authenticate(&digest)).unwrap().unwrap();
        found.checked(ledger.now()).is_some()
    };
    assert_eq!(nodes.each_ref().map(opens), [true; 2]);
    redis.advance(60_000);
    until("it has ended on both", || nodes.each_ref().map(opens) == [false; 2]);
    assert_eq!(nodes.each_ref().map(Ledger::now), [redis.now(); 2]);
}

/// Its clock was behind, and Redis' is right: keys that have a day left end neither now nor until Redis speaks again.
#[test]
fn what_a_gateways_clock_is_set_to_ends_no_key() {
    const DAY_MS: i64 = 86_400_000;
    let server = RedisServer::start();
    let redis = Clock::manual(rig::NOW);
    let clock = Clock::manual(rig::NOW.plus_millis(-2 * DAY_MS));
    let options = Options {
        clock: clock.clone(),
        redis_clock: Some(redis.clone()),
        ..patient()
    };
    let ledger = node(&server, options);
    assert_eq!(ledger.now(), redis.now());
    for step_ms in [2 * DAY_MS, -9 * DAY_MS, 9 * DAY_MS] {
        clock.set_by(step_ms);
        assert_eq!(ledger.now(), redis.now(), "{step_ms}");
    }
    clock.advance(7);
    redis.advance(7);
    until("Redis' time is known again", || ledger.now() == redis.now());
}

/// A node renews the holds of its running calls; those of a node that died expire.
#[test]
fn holds_live_as_long_as_their_node() {
    let server = RedisServer::start();
    // A busy machine may keep the node from its renewals for two thirds of it.
    let hold_ttl = Duration::from_secs(4);
    let options = || Options { hold_ttl, ..patient() };
    let (alive, dead) = (node(&server, options()), node(&server, options()));
    let caller = caller_of(&alive, "acme", "2", LimitOverrides::default());
    let short = |ledger: &Ledger, n| ReserveRequest {
        expires: ledger.hold_expiry(Clock::System.now()),
        ..request(n, "1")
    };
    let hold = block_on(caller.reserve(&short(&alive, 1))).unwrap().unwrap();
    RedisBook::new(&dead, "acme").reserve(&short(&dead, 2)).unwrap();
    assert_eq!(block_on(caller.figures()).unwrap().held, credits("2"));
    let start = Instant::now();
    until("the dead node's hold has expired", || {
        block_on(caller.figures()).unwrap().held == credits("1")
    });
    until("three lives have passed", || start.elapsed() > 3 * hold_ttl);
    let other = block_on(caller.reserve(&request(3, "1.5"))).unwrap();
    assert!(
        matches!(other, Err(Denial::Credit { held, .. }) if held == credits("1")),
        "{other:?}"
    );
    hold.settle(debit("1"));
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("1"));
    audit_is_clean(&alive);
}

/// Redis has lost a running call's hold: it is made anew as long as there is credit for it, and else the call ends.
#[test]
fn a_hold_that_redis_lost_is_made_anew_or_its_call_ends() {
    let server = RedisServer::start();
    let options = || Options {
        hold_ttl: Duration::from_millis(1200),
        ..patient()
    };
    let (own, other) = (node(&server, options()), node(&server, options()));
    let caller = caller_of(&own, "acme", "2", LimitOverrides::default());
    let short = ReserveRequest {
        expires: own.hold_expiry(Clock::System.now()),
        ..request(1, "1")
    };
    let hold = block_on(caller.reserve(&short)).unwrap().unwrap();
    let lose = RedisBook::new(&other, "acme");
    assert_eq!(lose.release(hold.id()), Some(credits("1")));
    let held = || block_on(caller.figures()).unwrap().held;
    until("it is made anew", || held() == credits("1"));
    assert_eq!(hold.uncovered(), None);
    // A renewal may come between the two steps.
    until("another call has its credit", || {
        lose.release(hold.id());
        lose.reserve(&request(2, "1.5")).is_ok()
    });
    until("the call is ended", || hold.uncovered().is_some());
    assert_eq!(hold.uncovered(), Some(Uncovered::NoCredit));
    hold.release();
    assert_eq!(held(), credits("1.5"));
    audit_is_clean(&own);
}
