//! A cluster as a ledger sees it: plain servers in the places of its masters, which say what the test has them say.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{patient, request};
use crate::ledger::Ledger;
use crate::ledger::redis::admission_breaker::FAILURES_MAX;
use crate::ledger::redis::cache::KnownKey;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::server_health;
use crate::ledger::redis::shards::Shards;
use crate::ledger::redis::shared::{Shared, key_name};
use crate::ledger::redis::slots::{Layout, slot_of};
use crate::ledger::redis::topology;
use crate::ledger::redis::url::Address;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_server::{RedisServer, free_port, until};
use crate::ledger::tests::rig::{Rig, block_on, caller_of, debit, redis_of};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;

fn name(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn cluster_of(nodes: &str) -> Address {
    Address::parse(&format!("redis+cluster://{nodes}"), None, Duration::from_secs(10)).unwrap()
}

/// A ledger without a thread, whose cluster has these slots.
fn opened(server: &RedisServer, slots: &[(u16, u16, String)]) -> Arc<Shared> {
    let (mut shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    runtime.shutdown_background();
    let layout = Layout {
        ranges: slots.iter().cloned().collect(),
        nodes: Default::default(),
    };
    let address = cluster_of(&name(server));
    let shards = Shards::cluster(address, &layout, 10, crate::clock::monotonic()).unwrap();
    Arc::get_mut(&mut shared).expect("nobody else has it").shards = shards;
    shared
}

fn script(shared: &Shared, text: &str) -> Result<Value, String> {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(1).arg("{acme}:probe");
    block_on(shared.command(&Link::default(), command)).map_err(|error| error.to_string())
}

#[test]
fn a_call_goes_where_the_servers_send_it() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = opened(&first, &[(0, 16_383, name(&first))]);
    assert_eq!(script(&shared, "return 7"), Ok(Value::Int(7)));
    second.ask("SET {acme}:probe here");
    let slot = slot_of(b"acme");
    let to = name(&second);
    let text = |kind: &str| {
        format!(
            "if redis.call('EXISTS', KEYS[1]) == 1 then return 8 end return redis.error_reply('{kind} {slot} {to}')"
        )
    };
    let owner = || format!("{:?}", shared.shards.of_slot(slot).address);
    assert_eq!(script(&shared, &text("ASK")), Ok(Value::Int(8)));
    assert_eq!(owner(), name(&first), "once");
    assert_eq!(script(&shared, &text("MOVED")), Ok(Value::Int(8)));
    assert_eq!(owner(), name(&second), "for good");
}

#[test]
fn a_call_that_is_sent_round_in_a_circle_ends() {
    let server = RedisServer::start();
    let mut shared = opened(&server, &[(0, 16_383, name(&server))]);
    let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
    of_test.options.timeout = Duration::from_secs(3);
    let own = name(&server);
    let text = format!("redis.call('INCR', KEYS[1]) return redis.error_reply('MOVED 5 {own}')");
    assert!(script(&shared, &text).is_err());
    let sent = server.ask("GET {acme}:probe");
    assert_eq!(sent.last().map(String::as_str), Some("9"));
}

/// Its calls go on: the master of the account serves them.
#[test]
fn a_key_is_known_while_its_own_master_is_away() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let of_account = slot_of(b"acme");
    let away = |n: u8| {
        let digest = ApiKey::from_random("tg_", [n; 32]).digest();
        (digest, slot_of(key_name(&digest).as_bytes()))
    };
    let (digest, slot) = (1..9).map(away).find(|(_, slot)| *slot != of_account).unwrap();
    let shared = opened(&first, &[(0, 16_383, name(&first))]);
    drop(shared.shards.moved(slot, &name(&second)));
    let caller = Rig::embedded().caller("1");
    let now_ms = shared.now_ms();
    let entry = KnownKey {
        key: Arc::clone(&caller.key),
        facts: Arc::clone(&caller.account),
        account: shared.cache.account(&caller.account.id),
        read_ms: now_ms,
    };
    shared.cache.put(digest, entry, shared.cache.generation());
    shared.cache.subscription_lives(now_ms);
    (0..FAILURES_MAX).for_each(|_| shared.shards.of_slot(slot).guard.failed("test"));
    let known = block_on(shared.key(&digest)).unwrap();
    assert_eq!(known.map(|known| known.key.id.clone()), Some(caller.key.id.clone()));
    // One whose account has the same master is as good as unknown.
    drop(shared.shards.moved(of_account, &name(&second)));
    assert!(block_on(shared.key(&digest)).is_err());
}

/// A server of a cluster that has all slots.
pub(super) fn with_all_slots() -> RedisServer {
    let bus = free_port().to_string();
    let server = RedisServer::start_with(&["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus]);
    assert_eq!(server.ask("CLUSTER ADDSLOTSRANGE 0 16383"), ["+OK"]);
    server
}

#[test]
fn the_map_is_what_the_servers_say() {
    let server = with_all_slots();
    let within = Duration::from_secs(10);
    // One that is not there says nothing.
    let address = cluster_of(&format!("127.0.0.1:1,{}", name(&server)));
    let layout = block_on(topology::read(&address, within)).unwrap();
    assert_eq!(layout.ranges, [(0, 16_383, name(&server))].into());
    assert!(block_on(topology::read(&cluster_of("127.0.0.1:1"), within)).is_err());
}

#[test]
fn a_map_that_is_doubted_is_read_again() {
    let server = with_all_slots();
    let shared = opened(&server, &[(0, 16_383, "127.0.0.1:1".to_owned())]);
    shared.shards.doubt();
    let is_right = async {
        while !shared.shards.of_slot(5).address.is_node(&name(&server)) {
            tokio::task::yield_now().await;
        }
    };
    block_on(async {
        tokio::select! {
            () = topology::follow(Arc::clone(&shared)) => panic!("it is followed for ever"),
            () = is_right => {}
        }
    });
}

#[test]
fn a_ledger_starts_where_one_master_of_many_is_away() {
    let server = RedisServer::start();
    let shared = opened(&server, &[(0, 16_383, name(&server))]);
    assert_eq!(block_on(server_health::check_servers(&shared)), Ok(()));
    drop(shared.shards.moved(5, "127.0.0.1:1"));
    assert_eq!(block_on(server_health::check_servers(&shared)), Ok(()));
    let none = opened(&server, &[(0, 16_383, "127.0.0.1:1".to_owned())]);
    assert!(block_on(server_health::check_servers(&none)).is_err());
}

/// A server that became a master meanwhile was not told that the ledger ends, and the end waited for it for ever.
#[test]
fn a_ledger_ends_where_a_shard_comes_to_be_meanwhile() {
    let server = with_all_slots();
    until("it serves", || {
        let info = server.ask("CLUSTER INFO");
        info.iter().any(|line| line == "cluster_state:ok")
    });
    let options = Options {
        timeout: Duration::from_secs(2),
        close_within: Duration::from_secs(2),
        ..patient()
    };
    let url = format!("redis+cluster://{}", name(&server));
    let ledger = Ledger::Redis(RedisLedger::connect(&url, options).unwrap());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    server.freeze();
    hold.settle(debit("1"));
    let shards = &redis_of(&ledger).shared.shards;
    let (closing, (says, said)) = (Arc::clone(redis_of(&ledger)), std::sync::mpsc::sync_channel(1));
    std::thread::spawn(move || says.send(closing.close()));
    until("it closes", || shards.all().iter().all(|shard| shard.queue.is_closed()));
    drop(shards.moved(5, "127.0.0.1:1"));
    assert_eq!(shards.all().len(), 2);
    let left = said.recv_timeout(Duration::from_secs(60));
    server.thaw();
    assert_eq!(left, Ok(1), "the debit");
}
