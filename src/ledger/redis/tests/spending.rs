//! Hard limits over several gateways on one Redis, and beside gateways of versions that know none.

use futures::future::join_all;

use super::{node, on_node, patient, request};
use crate::ledger::Caller;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditFinding, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::redis::shared::key_name;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{
    audit, audit_is_clean, block_on, caller_of, credits, debit, key_create, on_workers, request_at, run,
};
use crate::ledger::{Debit, KeyRecord, Ledger};
use crate::pure::account::{ReserveRequest, Spent};
use crate::pure::ids::{ApiKey, RequestId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::spend::{EndUser, EndUserId, Reset};
use crate::pure::time::Timestamp;

pub(super) fn changed(ledger: &Ledger, caller: &Caller, change: KeyChange) -> Caller {
    let key = KeyRef::Id(caller.key.id.clone());
    let change = Box::new(change);
    let AdminReply::Key(record) = run(ledger, AdminOp::KeySet { key, change }).unwrap() else {
        panic!("no key");
    };
    Caller {
        key: std::sync::Arc::new(record),
        ..caller.clone()
    }
}

/// Three nodes and 2,000 callers, with the limits of account, key and end user in every order of tightness.
#[test]
fn of_2000_racers_over_three_nodes_as_many_win_as_the_tightest_limit_lets() {
    const CALLERS: usize = 2000;
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let now = first_now(first);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (at, order) in orders.into_iter().enumerate() {
        let [balance, own, of_user] = order.map(|place| ["150", "225", "300"][place]);
        let caller = caller_of(first, &format!("acme-{at}"), balance, LimitOverrides::default());
        let change = KeyChange {
            limit: Some(AmountChange::To(credits(own))),
            limit_reset: Some(Reset::Daily),
            end_user_limit: Some(AmountChange::To(credits(of_user))),
            end_user_limit_reset: Some(Reset::Monthly),
            ..KeyChange::default()
        };
        let caller = changed(first, &caller, change);
        let won: usize = on_workers(nodes.len(), |worker| {
            let caller = on_node(&nodes[worker], &caller);
            let call = async |n: usize| {
                let n = u64::try_from(n * nodes.len() + worker).unwrap();
                let asked = ReserveRequest {
                    id: request_at(n + 1, now),
                    spend: caller.key.settings.spend(&caller.key.id, Some(EndUserId::of("anna"))),
                    ..request(n, "1")
                };
                let hold = caller.reserve(&asked).await.unwrap();
                let paid = Debit {
                    key: caller.key.id.clone(),
                    ..debit("1")
                };
                hold.map(|hold| hold.settle(paid)).is_ok()
            };
            let all = block_on(join_all((0..CALLERS / nodes.len()).map(call)));
            all.into_iter().filter(|paid| *paid).count()
        })
        .into_iter()
        .sum();
        assert_eq!(won, 150, "{order:?}");
        for ledger in &nodes {
            block_on(on_node(ledger, &caller).figures()).unwrap();
        }
        let expected = Spent {
            spent: credits("150"),
            held: Credits::ZERO,
        };
        assert_eq!(block_on(caller.key_spent(Reset::None)), Ok(expected), "{order:?}");
        let left = credits(balance).saturating_sub(credits("150"));
        assert_eq!(block_on(caller.figures()).unwrap().balance, left, "{order:?}");
    }
    audit_is_clean(first);
}

fn first_now(ledger: &Ledger) -> Timestamp {
    crate::ledger::tests::rig::redis_of(ledger).shared.redis_now()
}

/// There is a most of end users that are known: those of free calls, and of calls that came to nothing, must not use it up.
#[test]
fn who_has_spent_nothing_and_holds_nothing_is_not_known() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let change = KeyChange {
        end_user_limit: Some(AmountChange::To(credits("1"))),
        ..KeyChange::default()
    };
    let caller = changed(&ledger, &caller, change);
    let now = first_now(&ledger);
    let users = format!("tg1:{{acme}}:spent:{}:t", caller.key.id.as_str());
    // The number of those that are known, once what happened is in Redis.
    let known = || {
        block_on(caller.figures()).unwrap();
        let answer = server.ask(&format!("HGET {users} n"));
        answer.last().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let call = |n: u64, wanted: &str| {
        let asked = ReserveRequest {
            id: request_at(n, now),
            spend: caller
                .key
                .settings
                .spend(&caller.key.id, Some(EndUserId::of(&n.to_string()))),
            ..request(n, wanted)
        };
        block_on(caller.reserve(&asked)).unwrap().unwrap()
    };
    let debit_of = |n: u64, cost: &str| Debit {
        key: caller.key.id.clone(),
        end_user: Some(EndUser {
            id: EndUserId::of(&n.to_string()),
            reset: Reset::None,
        }),
        ..debit(cost)
    };
    call(1, "0").settle(debit_of(1, "0"));
    assert_eq!(known(), 0);
    let held = call(2, "1");
    assert_eq!(known(), 1);
    held.settle(debit_of(2, "0"));
    assert_eq!(known(), 0);
    drop(call(3, "1"));
    assert_eq!(known(), 0);
    call(4, "1").settle(debit_of(4, "0.5"));
    assert_eq!(known(), 1);
    audit_is_clean(&ledger);
}

/// A gateway of a version that knows no limits cannot read the record of a key that has one, and refuses it; one without is read as before.
#[test]
fn a_version_without_limits_does_not_let_a_limited_key_in() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let digest = ApiKey::from_random("tg_", [7; 32]).digest();
    let create = AdminOp::AccountCreate {
        account: "acme".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    run(&ledger, create).unwrap();
    run(&ledger, key_create("acme", &digest)).unwrap();
    // What earlier versions read: the text of `record` as it stands.
    let earlier = || {
        let answer = server.ask(&format!("HGET {} record", key_name(&digest))).concat();
        let text = answer.trim_start_matches(|c| c != '{' && c != 'r').to_owned();
        serde_json::from_str::<KeyRecord>(&text).is_ok()
    };
    assert!(earlier());
    let set = |change| {
        let key = KeyRef::Digest(digest.to_hex());
        let change = Box::new(change);
        run(&ledger, AdminOp::KeySet { key, change }).unwrap();
    };
    let limit = |limit| KeyChange {
        limit: Some(limit),
        ..KeyChange::default()
    };
    set(limit(AmountChange::To(credits("5"))));
    assert!(!earlier());
    let found = block_on(ledger.authenticate(&digest)).unwrap().unwrap();
    assert_eq!(found.key.settings.limit.unwrap().amount, credits("5"));
    set(limit(AmountChange::Removed));
    assert!(earlier());
    set(KeyChange {
        label: Some("ci".to_owned()),
        ..KeyChange::default()
    });
    assert!(earlier(), "a label forbids nothing");
}

/// A gateway of a version that knows no limits frees a hold that nobody renews, as it always did: what that took of limits is left, found
/// by the audit and mended by the repair.
#[test]
fn what_an_earlier_version_leaves_under_a_limit_is_found_and_mended() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let change = KeyChange {
        limit: Some(AmountChange::To(credits("1"))),
        end_user_limit: Some(AmountChange::To(credits("1"))),
        ..KeyChange::default()
    };
    let caller = changed(&ledger, &caller, change);
    let ask = |id: [u8; 16]| ReserveRequest {
        id: RequestId::from_bytes(id),
        spend: caller.key.settings.spend(&caller.key.id, Some(EndUserId::of("anna"))),
        ..request(1, "1")
    };
    let hold = block_on(caller.reserve(&ask(*b"0123456789abcdef"))).unwrap().unwrap();
    for step in [
        "HINCRBY tg1:{acme} avail 1000000000000",
        "HINCRBY tg1:{acme} committed -1000000000000",
        "HSET tg1:{acme} w \"0 0 0 0\"",
        "HDEL tg1:{acme} h0123456789abcdef",
        "ZREM tg1:{acme}:expiry 0123456789abcdef",
    ] {
        server.ask(step);
    }
    hold.forget();
    let left = |findings: Vec<AuditFinding>| findings.into_iter().map(|finding| finding.rule).collect::<Vec<_>>();
    assert_eq!(
        left(audit(&ledger).findings),
        ["what counts under a limit is an open hold"]
    );
    assert!(block_on(caller.reserve(&ask(*b"0123456789abcdeg"))).unwrap().is_err());
    // What an audit found before is so no more, for no gateway.
    assert_eq!(server.ask("SET tg1:audit:found before"), ["+OK"]);
    let AdminReply::Repaired { findings } = run(&ledger, AdminOp::Repair).unwrap() else {
        panic!("no repair");
    };
    assert_eq!(server.ask("EXISTS tg1:audit:found"), [":0"]);
    assert_eq!(findings[0].found, credits("1"), "one was freed");
    assert_eq!(left(findings), ["what counts under a limit is an open hold"]);
    audit_is_clean(&ledger);
    block_on(caller.reserve(&ask(*b"0123456789abcdeg")))
        .unwrap()
        .unwrap()
        .release();
}

/// The new one would have the whole limit again.
#[test]
fn a_limited_key_whose_spending_is_not_counted_is_not_rotated() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let limit = KeyChange {
        limit: Some(AmountChange::To(credits("5"))),
        ..KeyChange::default()
    };
    let caller = changed(&ledger, &caller, limit);
    let uncounted = server.ask(&format!("HDEL tg1:{{acme}} ul{}", caller.key.id));
    assert_eq!(uncounted, [":1"]);
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Id(caller.key.id.clone()),
        digest: ApiKey::from_random("tg_", [8; 32]).digest().to_hex(),
        overlap_ms: 0,
    };
    let refused = run(&ledger, rotate);
    assert!(
        matches!(&refused, Err(AdminError::Store(text)) if text.contains("is not counted; no new key was made")),
        "{refused:?}"
    );
}
