//! Events for webhooks, with several gateways on one Redis.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures::future::join_all;

use super::{RedisLedger, brisk, node, on_node, patient, request};
use crate::ledger::Ledger;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::redis::shared::Shared;
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::cases::events::told;
use crate::ledger::tests::redis_group::RedisCluster;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, key_create, on_workers, run};
use crate::pure::account::ReserveRequest;
use crate::pure::ids::{ApiKey, KeyDigest, KeyId};
use crate::pure::limits::LimitOverrides;

impl RedisLedger {
    /// The next claim looks through all accounts.
    pub(in crate::ledger) fn looks_for_events(&self) {
        self.shared.events.doubt();
    }
}

/// Three nodes, 2,000 callers around a threshold and the end of the credit: each is told once.
#[test]
fn of_many_racers_on_three_nodes_one_crosses() {
    const CALLERS: usize = 2_000;
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let caller = caller_of(first, "acme", "300", LimitOverrides::default());
    let low = TermsChange {
        low_balance_pico: Some(Some(credits("100").pico())),
        ..TermsChange::default()
    };
    let account = caller.account.id.clone();
    run(first, AdminOp::Account(AccountOp::Terms { account, change: low })).unwrap();
    told(first, &caller);
    on_workers(nodes.len(), |worker| {
        let caller = on_node(&nodes[worker], &caller);
        let call = async |n: usize| {
            let asked = request(u64::try_from(n * nodes.len() + worker).unwrap(), "1");
            if let Ok(hold) = caller.reserve(&asked).await.unwrap() {
                hold.settle(debit("1"));
            }
        };
        block_on(join_all((0..CALLERS / nodes.len()).map(call)));
    });
    for ledger in &nodes {
        block_on(on_node(ledger, &caller).figures()).unwrap();
    }
    // While calls held the last of it, those that came were refused for that alone.
    for (n, ledger) in (1_000_000..).zip(&nodes) {
        block_on(on_node(ledger, &caller).reserve(&request(n, "1")))
            .unwrap()
            .unwrap_err();
    }
    let mut kinds: Vec<EventKind> = told(first, &caller).iter().map(|event| event.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [EventKind::LowBalance, EventKind::Exhausted]);
    audit_is_clean(first);
}

/// A gateway of an earlier build tells of what is only held as well, and keeps nothing of what was left: so the end is told all the same, once,
/// and what is noted by then keeps that gateway silent.
#[test]
fn what_an_earlier_gateway_told_does_not_use_up_the_end() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    told(&ledger, &caller);
    server.ask("HSET tg1:{acme} uex 1");
    let refused = |numbers: Range<u64>, quota: &str| {
        for n in numbers {
            let asked = ReserveRequest {
                quota: credits(quota),
                ..request(n, "2")
            };
            block_on(caller.reserve(&asked)).unwrap().unwrap_err();
        }
    };
    let field = |name: &str| server.ask(&format!("HGET tg1:{{acme}} {name}")).pop().unwrap();
    let kinds = || -> Vec<EventKind> { told(&ledger, &caller).iter().map(|event| event.kind).collect() };
    refused(1..4, "100");
    assert_eq!(kinds(), [EventKind::Exhausted]);
    assert_eq!(field("uex"), "1 1000000000000");
    // It puts its flag where there is none.
    assert_eq!(server.ask("HSETNX tg1:{acme} uex 1"), [":0"]);
    let credit = AdminOp::CreditsAdd {
        account: caller.account.id.clone(),
        amount: credits("99"),
        reference: "much".to_owned(),
    };
    run(&ledger, credit).unwrap();
    assert_eq!(kinds(), [EventKind::CreditsAdded]);
    refused(4..7, "1");
    assert_eq!(kinds(), [EventKind::QuotaReached]);
    let quota = field("ueq");
    assert!(quota.ends_with(" 1000000000000"), "{quota}");
    // Its own note of the same quota says nothing of what was left.
    server.ask("HDEL tg1:{acme} uer");
    refused(7..10, "1");
    assert_eq!(kinds(), [EventKind::QuotaReached]);
    assert_eq!(field("ueq"), quota);
}

/// A client that is refused tries again and again: what was left when an event told of it is compared, and nothing added up that has not changed.
#[test]
fn what_was_told_costs_a_refused_call_little() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    told(&ledger, &caller);
    for (wanted, quota, sums, kind) in [
        ("2", "100", 0, EventKind::Exhausted),
        ("0.5", "0", 1, EventKind::QuotaReached),
    ] {
        let refused = |n| {
            let asked = ReserveRequest {
                quota: credits(quota),
                ..request(n, wanted)
            };
            block_on(caller.reserve(&asked)).unwrap().unwrap_err();
        };
        refused(1);
        let kinds: Vec<EventKind> = told(&ledger, &caller).iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [kind]);
        server.ask("CONFIG RESETSTAT");
        refused(2);
        let stats = server.ask("INFO commandstats");
        let deleted = stats.iter().find_map(|line| line.strip_prefix("cmdstat_hdel:calls="));
        let deleted = deleted.map_or(0, |rest| rest.split(',').next().unwrap().parse::<usize>().unwrap());
        assert_eq!(deleted, sums, "{kind:?}: each sum deletes its field: {stats:?}");
        assert_eq!(told(&ledger, &caller), []);
    }
}

/// What one gateway raises, another hears of and claims, and nobody else meanwhile.
#[test]
fn an_event_is_heard_of_and_claimed_once() {
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let claim = |node: usize| {
        let op = EventOp::Claim {
            limit: 10,
            lease_ms: 60_000,
        };
        match run(&nodes[node], AdminOp::Event(op)).unwrap() {
            AdminReply::Events { events, .. } => events,
            other => panic!("{other:?}"),
        }
    };
    // From here on they only look where they hear of something.
    (0..3).for_each(|node| assert_eq!(claim(node), []));
    for n in 0..20 {
        let name = format!("account{n}");
        caller_of(&nodes[n % 3], &name, "1", LimitOverrides::default());
    }
    let mut claimed = Vec::new();
    until("all are claimed", || {
        (0..3).for_each(|node| claimed.extend(claim(node)));
        claimed.len() >= 20
    });
    claimed.extend((0..3).flat_map(claim));
    let mut ids: Vec<&str> = claimed.iter().map(|event| event.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), claimed.len()), (20, 20));
}

/// What was raised before a gateway was there, it has not heard of.
#[test]
fn a_gateway_that_comes_later_finds_the_events_that_are_open() {
    let server = RedisServer::start();
    let first = node(&server, patient());
    for name in ["acme", "beta"] {
        caller_of(&first, name, "1", LimitOverrides::default());
    }
    let later = node(&server, patient());
    let op = EventOp::Claim {
        limit: 10,
        lease_ms: 60_000,
    };
    let AdminReply::Events { events, .. } = run(&later, AdminOp::Event(op)).unwrap() else {
        panic!("no events");
    };
    let mut accounts: Vec<String> = events
        .iter()
        .filter_map(|event| Some(event.account.as_ref()?.to_string()))
        .collect();
    accounts.sort();
    assert_eq!(accounts, ["acme", "beta"]);
}

/// It is deaf to what others raise, for its thread does not run: what it was not told, it finds where it looks.
#[test]
fn all_accounts_are_looked_through_once_and_again_where_something_may_have_been_missed() {
    let server = RedisServer::start();
    let raises = node(&server, patient());
    let (shared, _runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    caller_of(&raises, "acme", "1", LimitOverrides::default());
    assert_eq!(claimed(&shared), (1, true));
    caller_of(&raises, "beta", "1", LimitOverrides::default());
    assert_eq!(
        claimed(&shared),
        (0, true),
        "all accounts were looked through a moment ago"
    );
    shared.events.doubt();
    assert_eq!(claimed(&shared), (1, true));
}

/// Of a gateway whose thread does not run: how many it claims, and whether all of the ledger said what it has.
fn claimed(shared: &Arc<Shared>) -> (usize, bool) {
    let op = AdminOp::Event(EventOp::Claim {
        limit: 10,
        lease_ms: 60_000,
    });
    match block_on(async { shared.execute(&shared.link(), op).await }) {
        Ok(AdminReply::Events { events, missed }) => (events.len(), missed.is_none()),
        Err(AdminError::Store(_)) => (0, false),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_of_accounts_that_could_not_be_read_are_read_at_the_next_look() {
    let server = RedisServer::start();
    caller_of(&node(&server, patient()), "acme", "1", LimitOverrides::default());
    let (shared, _runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    server.ask("RENAME tg1:accounts aside");
    server.ask("SET tg1:accounts unreadable");
    assert_eq!(claimed(&shared), (0, false));
    server.ask("RENAME aside tg1:accounts");
    assert_eq!(claimed(&shared), (1, true));
}

/// What is claimed for a second, and whether all of the ledger said what it has.
fn claim_what_answers(ledger: &Ledger) -> (Vec<Event>, bool) {
    let op = EventOp::Claim {
        limit: 10,
        lease_ms: 1_000,
    };
    match run(ledger, AdminOp::Event(op)) {
        Ok(AdminReply::Events { events, missed }) => (events, missed.is_none()),
        Err(AdminError::Store(_)) => (Vec::new(), false),
        other => panic!("{other:?}"),
    }
}

/// How many are open, and whether that is all of them. None where nothing said so.
fn count_what_answers(ledger: &Ledger) -> Option<(u64, bool)> {
    match run(ledger, AdminOp::Event(EventOp::Count)) {
        Ok(AdminReply::EventCount(count)) => Some((count.open, !count.is_partial)),
        Err(AdminError::Store(_)) => None,
        other => panic!("{other:?}"),
    }
}

/// A cluster with an account at each master, each of which has an event, and a master that falls silent: events of the others are claimed and
/// settled, and its own once it is back. `known`: how many are counted while it is silent, where all were counted before, or none.
fn a_master_is_silent(silent: impl FnOnce(&RedisCluster) -> usize, is_counted_before: bool, known: u64) {
    let cluster = RedisCluster::start();
    cluster.serve_what_is_left();
    let silent = silent(&cluster);
    let ledger = Ledger::Redis(RedisLedger::connect(&cluster.url(), brisk()).unwrap());
    let mut masters = BTreeMap::new();
    for master in 0..3 {
        let mut names = (0..).map(|n| format!("account-{n}"));
        let name = names.find(|name| cluster.master_of(name) == master).unwrap();
        caller_of(&ledger, &name, "1", LimitOverrides::default());
        masters.insert(name, master);
    }
    let master_of = |event: &Event| masters[event.account.as_ref().unwrap().as_str()];
    if is_counted_before {
        until("all are counted", || count_what_answers(&ledger) == Some((3, true)));
    }
    cluster.master(silent).freeze();
    let mut claimed = BTreeMap::new();
    until("those of the others are claimed", || {
        let (events, is_whole) = claim_what_answers(&ledger);
        assert!(!is_whole, "a part of the ledger is silent");
        claimed.extend(events.into_iter().map(|event| (event.id.clone(), event)));
        claimed.len() == 2
    });
    assert!(claimed.values().all(|event| master_of(event) != silent));
    until("what is known is counted", || {
        count_what_answers(&ledger) == Some((known, false))
    });
    for event in claimed.into_values() {
        let op = EventOp::Settle {
            id: event.id,
            account: event.account,
            deliveries: Vec::new(),
            is_dropped: false,
        };
        until("it is settled", || {
            run(&ledger, AdminOp::Event(op.clone())) == Ok(AdminReply::Done)
        });
    }
    cluster.master(silent).thaw();
    let mut claimed = Vec::new();
    until("its own comes when it is back, and nothing is missed any more", || {
        let (events, is_whole) = claim_what_answers(&ledger);
        claimed.extend(events);
        !claimed.is_empty() && is_whole
    });
    assert!(claimed.iter().all(|event| master_of(event) == silent));
    until("it alone is open", || count_what_answers(&ledger) == Some((1, true)));
}

#[test]
fn a_silent_master_holds_up_no_event_of_the_others() {
    let has_no_names = |cluster: &RedisCluster| (cluster.first_owner(cluster.slot("tg1:accounts")) + 1) % 3;
    a_master_is_silent(has_no_names, true, 3);
}

/// The ledger has not looked for any event before.
#[test]
fn the_master_that_has_the_names_of_all_accounts_holds_up_no_event_of_the_others() {
    let has_names = |cluster: &RedisCluster| cluster.first_owner(cluster.slot("tg1:accounts"));
    a_master_is_silent(has_names, false, 2);
}

/// One that a later version has raised, for example.
#[test]
fn an_event_that_cannot_be_read_is_named_and_holds_up_no_other() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in ["acme", "beta"] {
        caller_of(&ledger, name, "1", LimitOverrides::default());
    }
    let ids = server.ask("HGET tg1:{acme} uei");
    let id = ids[1].trim();
    server.ask(&format!("HSET tg1:{{acme}} ue{id} \"0 another.kind 1 1\""));
    let op = EventOp::Claim {
        limit: 10,
        lease_ms: 60_000,
    };
    let (events, missed) = match run(&ledger, AdminOp::Event(op)).unwrap() {
        AdminReply::Events { events, missed } => (events, missed.unwrap()),
        other => panic!("{other:?}"),
    };
    assert!(missed.contains(id), "{missed}");
    let accounts: Vec<&str> = events
        .iter()
        .map(|event| event.account.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(accounts, ["beta"]);
}

/// Records that no version has written, one that is gone, and a digest that is none.
#[test]
fn a_key_that_cannot_be_read_is_named_and_keeps_no_other_from_being_told() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    told(&ledger, &caller);
    let digests = [101u8, 102, 103, 104, 105].map(|byte| ApiKey::from_random("tg_", [byte; 32]).digest());
    for digest in &digests {
        let mut create = key_create("acme", digest);
        if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
            *expires_in_ms = Some(3 * 86_400_000);
        }
        run(&ledger, create).unwrap();
    }
    let [text, no_hash, gone, sound, other] = digests;
    let name = |digest: &KeyDigest| format!("tg1:key:{}", digest.to_hex());
    server.ask(&format!("HSET {} record broken", name(&text)));
    server.ask(&format!("DEL {} {}", name(&no_hash), name(&gone)));
    server.ask(&format!("SET {} broken", name(&no_hash)));
    server.ask("SADD tg1:{acme}:keys broken");
    let refused = run(&ledger, AdminOp::Event(EventOp::RaiseExpiring))
        .unwrap_err()
        .to_string();
    for broken in [text, no_hash, gone] {
        assert!(refused.contains(KeyId::of(&broken).as_str()), "{refused}");
        assert!(!refused.contains(&broken.to_hex()), "{refused}");
    }
    assert!(refused.contains("passed over 4"), "{refused}");
    let mut keys: Vec<String> = told(&ledger, &caller)
        .iter()
        .map(|event| {
            assert_eq!(event.kind, EventKind::KeyExpiring);
            event.data["key"].as_str().unwrap().to_owned()
        })
        .collect();
    keys.sort();
    let mut expected = [sound, other].map(|digest| KeyId::of(&digest).as_str().to_owned());
    expected.sort();
    assert_eq!(keys, expected);
}
