//! Where the subscription to changes is, and what is heard though it hears nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::map::with_all_slots;
use super::{node, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::{AdminOp, KeyRef};
use crate::ledger::redis::{RedisLedger, subscription};
use crate::ledger::tests::redis_group::{RedisCluster, Sentinel};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of, credits, key_create, run};
use crate::pure::ids::{ApiKey, KeyDigest, KeyId};
use crate::pure::limits::LimitOverrides;

/// The connections of a server that listen to changes, as it names them.
fn subscribers(server: &RedisServer) -> Vec<String> {
    let clients = server.ask("CLIENT LIST TYPE pubsub");
    let ids = clients.iter().filter_map(|line| line.split(' ').next());
    ids.filter(|id| id.starts_with("id=")).map(str::to_owned).collect()
}

fn listens(server: &RedisServer) -> bool {
    !subscribers(server).is_empty()
}

fn connect(url: &str) -> Ledger {
    Ledger::Redis(RedisLedger::connect(url, patient()).unwrap())
}

fn is_revoked(ledger: &Ledger, digest: &KeyDigest) -> Option<bool> {
    let found = block_on(ledger.authenticate(digest)).ok().flatten();
    found.map(|found| found.key.revoked.is_some())
}

/// It was told at debug alone, five times a second, while all that was looked up was asked for again and again.
#[test]
fn a_server_that_lets_its_user_not_subscribe_is_told_from_one_that_is_away() {
    let server = RedisServer::start();
    server.ask("ACL SETUSER gateway reset on >s3cret ~* &* +@all -subscribe");
    let url = server.url().replace("redis://", "redis://gateway:s3cret@");
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let refused = redis::cmd("SUBSCRIBE").arg("x").exec(&mut connection).unwrap_err();
    assert!(subscription::is_refused(&subscription::failed(refused)));
    let unknown = redis::cmd("SUBSCRIBES").arg("x").exec(&mut connection).unwrap_err();
    assert!(subscription::is_refused(&subscription::failed(unknown)));
    let other = redis::cmd("SUBSCRIBE").exec(&mut connection).unwrap_err();
    assert!(!subscription::is_refused(&subscription::failed(other)));
}

/// A key that the gateway knows is revoked by another: it is heard long before what is known is read again for its age, a minute.
fn a_revocation_is_heard(gateway: &Ledger, other: &Ledger, digest: &KeyDigest) {
    until("the gateway knows the key", || {
        is_revoked(gateway, digest) == Some(false)
    });
    let key = KeyRef::Id(KeyId::of(digest));
    run(other, AdminOp::KeyRevoke { key }).unwrap();
    let began = Instant::now();
    until("the key is revoked", || is_revoked(gateway, digest) == Some(true));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// A key of a new account.
fn key(ledger: &Ledger) -> KeyDigest {
    caller_of(ledger, "acme", "10", LimitOverrides::default());
    let digest = ApiKey::from_random("tg_", [90; 32]).digest();
    run(ledger, key_create("acme", &digest)).unwrap();
    digest
}

/// It answers as before, and hears nothing more of the others.
#[test]
fn a_server_that_has_left_its_cluster_is_not_listened_to() {
    let cluster = RedisCluster::start();
    cluster.serve_what_is_left();
    let gateway = connect(&cluster.url());
    until("the gateway listens at the first master", || listens(cluster.master(0)));
    cluster.first_leaves();
    until("it listens elsewhere", || {
        !listens(cluster.master(0)) && (listens(cluster.master(1)) || listens(cluster.master(2)))
    });
    let other = connect(&cluster.url());
    let digest = key(&other);
    a_revocation_is_heard(&gateway, &other, &digest);
    run(&other, AdminOp::Maintenance { on: true }).unwrap();
    until("maintenance is heard of", || gateway.in_maintenance());
}

/// The address may still name a server that is not in the cluster any more.
#[test]
fn a_server_that_is_not_in_the_cluster_is_passed_over() {
    let (outside, server) = (RedisServer::start(), with_all_slots());
    until("the cluster serves", || {
        server.ask("CLUSTER INFO").iter().any(|line| line == "cluster_state:ok")
    });
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        outside.port(),
        server.port()
    );
    let gateway = connect(&url);
    until("it listens in the cluster", || listens(&server));
    assert!(!listens(&outside));
    let other = connect(&url);
    let digest = key(&other);
    a_revocation_is_heard(&gateway, &other, &digest);
}

/// A master that was cut off from the Sentinels goes on by itself: it answers, and hears nothing of what is changed at its successor.
#[test]
fn a_master_that_the_sentinels_have_replaced_is_neither_listened_to_nor_asked() {
    let memory_only = ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"];
    let [old, new] = [(); 2].map(|()| RedisServer::start_with(&memory_only));
    let sentinel = Sentinel::start(old.port(), "");
    let gateway = connect(&sentinel.url());
    let caller = caller_of(&gateway, "acme", "10", LimitOverrides::default());
    let digest = key(&gateway);
    new.ask(&format!("REPLICAOF 127.0.0.1 {}", old.port()));
    until("the replica has all", || {
        let state = new.ask("INFO replication");
        state.iter().any(|line| line == "master_link_status:up")
    });
    assert_eq!(new.ask("REPLICAOF NO ONE"), ["+OK"]);
    assert_eq!(is_revoked(&gateway, &digest), Some(false));
    until("the gateway listens", || listens(&old));
    sentinel.names(new.port());
    until("it listens at the new master", || listens(&new) && !listens(&old));
    let at_new = node(&new, patient());
    a_revocation_is_heard(&gateway, &at_new, &digest);
    let add = AdminOp::CreditsAdd {
        account: caller.account.id.clone(),
        amount: credits("5"),
        reference: "second".to_owned(),
    };
    run(&at_new, add).unwrap();
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("15"));
}

/// Its message may be lost.
#[test]
fn maintenance_that_nobody_tells_of_is_read() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    until("the gateway listens", || listens(&server));
    for (state, is_on) in [("on", true), ("off", false)] {
        server.ask(&format!("SET tg1:maintenance {state}"));
        until("it is read", || ledger.in_maintenance() == is_on);
    }
}

/// The address may lead elsewhere by now.
#[test]
fn the_subscription_is_made_anew_where_another_server_answers_the_calls() {
    let server = RedisServer::start();
    let (shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    runtime.shutdown_background();
    let is_anew = async {
        let mut before = Vec::new();
        loop {
            let now = subscribers(&server);
            if before.is_empty() && !now.is_empty() {
                shared.cache.doubt_subscription();
                before = now;
            } else if !now.is_empty() && now != before {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    block_on(async {
        tokio::select! {
            () = subscription::subscribe(Arc::clone(&shared)) => panic!("it is for ever"),
            anew = tokio::time::timeout(Duration::from_secs(60), is_anew) => anew.expect("it is made anew"),
        }
    });
}
