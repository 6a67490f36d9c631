//! What only Redis has: numbers, lost answers, several nodes, servers that stop and come back.

mod accounts;
mod acts;
mod amounts;
mod answers;
mod audits;
pub(in crate::ledger) mod book;
mod confirmed;
mod doubts;
mod ends;
mod events;
mod expiring;
mod forgotten;
mod groups;
mod journals;
mod key_lookup;
mod keys;
mod load;
mod losses;
pub(in crate::ledger::redis) mod lost_answers;
mod map;
mod moving;
mod nodes;
mod numbers;
mod outages;
mod pages;
mod parts;
mod payments;
mod periods;
mod receipts;
mod replicas;
mod shards;
mod spending;
mod statements;
mod subscription;
mod tls;
mod unconfirmed;
mod unknown;

use std::sync::Arc;
use std::time::Duration;

use super::shards::Shards;
use super::shared::Shared;
use super::slots::{Layout, SLOTS, slot_of};
use super::url::Address;
use super::{Options, RedisLedger};
use crate::clock::Clock;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig;
use crate::ledger::tests::rig::{block_on, redis_of};
use crate::ledger::{AccountHandle, Caller, Ledger};
use crate::pure::account::ReserveRequest;

/// Options of a node whose calls do not wait long.
fn brisk() -> Options {
    Options::default()
}

/// Options on a machine that may be busy, by Redis' own clock.
fn patient() -> Options {
    Options {
        timeout: Duration::from_secs(10),
        ..Options::default()
    }
}

/// A reserve of exactly this amount, with limits that are far away and a minute of life by the machine's clock.
fn request(n: u64, wanted: &str) -> ReserveRequest {
    ReserveRequest {
        expires: Clock::System.now().plus_millis(60_000),
        ..rig::request(n, wanted)
    }
}

/// A gateway's ledger.
fn node(server: &RedisServer, options: Options) -> Ledger {
    Ledger::Redis(store(server, options))
}

fn store(server: &RedisServer, options: Options) -> Arc<RedisLedger> {
    RedisLedger::connect(&server.url(), options).unwrap()
}

/// A ledger without its thread, over two servers as if they were masters of a cluster: the slot of this key is the second one's, and each
/// other one the first one's.
pub(in crate::ledger::redis) fn parted(first: &RedisServer, second: &RedisServer, key: &str) -> Arc<Shared> {
    let (shared, _) = RedisLedger::reach(&first.url(), rig::patient(Clock::manual(rig::NOW))).unwrap();
    let shared = Arc::into_inner(shared).unwrap();
    let nodes = [first, second].map(|server| format!("127.0.0.1:{}", server.port()));
    let ([of_all, of_one], slot) = (nodes.clone(), slot_of(key.as_bytes()));
    let ranges = [
        (0, slot - 1, of_all.clone()),
        (slot, slot, of_one),
        (slot + 1, SLOTS - 1, of_all),
    ];
    let url = format!("redis+cluster://{}", nodes.join(","));
    let layout = Layout {
        ranges: ranges.into(),
        nodes: nodes.into(),
    };
    let address = Address::parse(&url, None, shared.options.timeout).unwrap();
    let shards = Shards::cluster(address, &layout, shared.options.waiting_max, shared.started).unwrap();
    Arc::new(Shared { shards, ..shared })
}

/// The same caller as another node knows it.
fn on_node(ledger: &Ledger, caller: &Caller) -> Caller {
    let store = redis_of(ledger);
    let shared = &store.shared;
    let account = shared.cache.account(&caller.account.id);
    let facts = block_on(async { shared.read_facts(&shared.link(), &account).await.unwrap() });
    Caller {
        key: Arc::clone(&caller.key),
        account: Arc::new(facts),
        place: AccountHandle::Redis(Arc::clone(store), account),
    }
}

#[test]
fn a_server_of_another_test_is_not_taken_for_ones_own() {
    let first = RedisServer::start();
    assert!(RedisServer::start_at(first.port(), &[]).is_none());
    assert_eq!(first.ask("PING"), ["+PONG"]);
}
