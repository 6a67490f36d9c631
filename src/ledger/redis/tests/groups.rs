//! Several servers that share the ledger: a cluster whose slots move and whose masters fail, a master that Sentinels replace.

use std::time::Duration;

use super::load::under_load;
use super::request;
use crate::ledger::Ledger;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::{RedisCluster, RedisUnderSentinels};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of};
use crate::pure::limits::LimitOverrides;

/// Accounts in slots of all three masters.
const NAMES: [&str; 6] = ["acme", "beta", "gamma", "delta", "epsilon", "zeta"];

/// A slot is moved to another master key by key, as resharding does it, while its account is in use. The account's calls are sent after
/// it (ASK, MOVED) or wait (TRYAGAIN), and every one that was paid for is debited once.
#[test]
fn a_slot_that_moves_under_load_loses_no_debit() {
    let cluster = RedisCluster::start();
    let nodes = two_nodes(&cluster.url());
    let slot = cluster.slot("tg1:{acme}");
    let from = cluster.first_owner(slot);
    let to = (from + 1) % 3;
    under_load(&nodes, &NAMES, |load| {
        cluster.open_slot(slot, from, to);
        load.goes_on_for("acme");
        cluster.move_key("tg1:{acme}", from, to);
        // The account's keys are apart: its calls are refused, and those of others are not.
        load.is_refused();
        for name in NAMES.into_iter().filter(|name| *name != "acme") {
            load.goes_on_for(name);
        }
        cluster.move_key("tg1:{acme}:expiry", from, to);
        load.goes_on_for("acme");
        cluster.move_key("tg1:{acme}:keys", from, to);
        cluster.close_slot(slot, to);
        load.goes_on_for("acme");
    });
    let errors = ["ASK", "MOVED", "TRYAGAIN"].map(|kind| (kind, cluster.errors(kind)));
    assert!(errors.iter().all(|(_, count)| *count > 0), "{errors:?}");
}

/// An account that has no open hold is served while its slot is open, like any other.
#[test]
fn an_idle_account_is_served_while_its_slot_moves() {
    let cluster = RedisCluster::start();
    let ledger = Ledger::Redis(RedisLedger::connect(&cluster.url(), super::patient()).unwrap());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let slot = cluster.slot("tg1:{acme}");
    let from = cluster.first_owner(slot);
    let to = (from + 1) % 3;
    let call = |n| {
        let hold = block_on(caller.reserve(&super::request(n, "1"))).unwrap();
        hold.unwrap().release();
        block_on(caller.figures()).unwrap();
    };
    cluster.open_slot(slot, from, to);
    call(1);
    for key in ["tg1:{acme}", "tg1:{acme}:expiry", "tg1:{acme}:keys"] {
        cluster.move_key(key, from, to);
    }
    call(2);
    cluster.close_slot(slot, to);
    call(3);
}

/// The replica takes over from its master by agreement, in the middle of load.
#[test]
fn a_handover_in_a_cluster_loses_no_debit() {
    let cluster = RedisCluster::start_with_replica();
    let nodes = two_nodes(&cluster.url());
    under_load(&nodes, &NAMES, |_| {
        assert_eq!(cluster.replica().ask("CLUSTER FAILOVER"), ["+OK"]);
        until("the replica leads", || leads(cluster.replica()));
    });
    assert!(leads(cluster.replica()));
}

/// A master is killed in the middle of load, and its replica is elected. What the master had acknowledged and not yet passed on is
/// missing there, and is sent again.
#[test]
fn a_failover_in_a_cluster_loses_no_debit() {
    let mut cluster = RedisCluster::start_with_replica();
    let nodes = two_nodes(&cluster.url());
    under_load(&nodes, &NAMES, |load| {
        cluster.kill_first();
        load.is_refused();
        until("the replica leads", || leads(cluster.replica()));
    });
}

/// A master is silent until its replica has taken over, and comes back taking itself for the master that it was.
#[test]
fn a_silent_master_that_is_replaced_and_comes_back_loses_no_debit() {
    let cluster = RedisCluster::start_with_replica();
    let nodes = two_nodes(&cluster.url());
    under_load(&nodes, &NAMES, |load| {
        cluster.master(0).freeze();
        load.is_refused();
        until("the replica leads", || leads(cluster.replica()));
        for name in NAMES {
            load.goes_on_for(name);
        }
        cluster.master(0).thaw();
        until("the old master follows", || !leads(cluster.master(0)));
    });
}

/// The same where Sentinels choose the new master.
#[test]
fn a_failover_by_sentinels_loses_no_debit() {
    let mut servers = RedisUnderSentinels::start();
    let nodes = [(); 2].map(|()| Ledger::Redis(RedisLedger::connect(&servers.url(), options()).unwrap()));
    under_load(&nodes, &NAMES, |load| {
        servers.kill_master();
        load.is_refused();
        until("the replica leads", || servers.replica_leads());
    });
}

/// The first Sentinel hangs: the next one is asked within the time that a command has.
#[test]
fn a_sentinel_that_hangs_hides_no_other() {
    let servers = RedisUnderSentinels::start();
    let [ledger, patient] = [Options::default(), options()]
        .map(|options| Ledger::Redis(RedisLedger::connect(&servers.url(), options).unwrap()));
    caller_of(&patient, "acme", "10", LimitOverrides::default());
    let caller = caller_of(&ledger, "acme", "0", LimitOverrides::default());
    servers.freeze_first_sentinel();
    servers.disconnect_clients();
    until("the master is found", || {
        block_on(caller.reserve(&request(1, "1"))).is_ok_and(|hold| hold.is_ok())
    });
    until("another one connects", || {
        RedisLedger::connect(&servers.url(), Options::default()).is_ok()
    });
}

fn two_nodes(url: &str) -> [Ledger; 2] {
    [(); 2].map(|()| Ledger::Redis(RedisLedger::connect(url, options()).unwrap()))
}

/// Holds that a dead master never heard were given back are gone soon. A command asks the Sentinels, the server's role, and the replica
/// whether it has what was written, one after the other.
fn options() -> Options {
    Options {
        timeout: Duration::from_secs(2),
        hold_ttl: Duration::from_secs(3),
        ..Options::default()
    }
}

fn leads(server: &RedisServer) -> bool {
    let role = server.ask("INFO replication");
    role.iter().any(|line| line == "role:master")
}
