//! Terms and credit over several gateways, and beside gateways of earlier versions.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::Value;

use super::super::reply;
use super::super::shared::Shared;
use super::{node, on_node, patient, request};
use crate::config::SuspendedStreams;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPage, CreditPost, Posted, Statement};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::journal::Entry;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{
    audit_is_clean, block_on, caller_of, credits, debit, key_create, on_workers, redis_of, run,
};
use crate::ledger::{Ledger, Uncovered};
use crate::pure::error::AccountStop;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Day;

fn post(amount: &str, reference: &str) -> CreditPost {
    CreditPost::top_up("acme".parse().unwrap(), credits(amount), reference.to_owned())
}

fn set_status(ledger: &Ledger, status: AccountStatus) {
    let change = TermsChange {
        status: Some(status),
        ..TermsChange::default()
    };
    let account = "acme".parse().unwrap();
    run(ledger, AdminOp::Account(AccountOp::Terms { account, change })).unwrap();
}

fn entries(ledger: &Ledger) -> CreditPage {
    let (account, limit, before) = ("acme".parse().unwrap(), 1_000, None);
    let op = CreditOp::List { account, limit, before };
    match run(ledger, AdminOp::Credit(op)).unwrap() {
        AdminReply::CreditPage(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Each account would have some hundred bytes more, which gateways of earlier versions do not know.
#[test]
fn an_account_has_terms_in_redis_once_they_were_changed() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    assert_eq!(server.ask("HEXISTS tg1:{acme} ut"), [":0"]);
    set_status(&ledger, AccountStatus::Suspended);
    assert_eq!(server.ask("HEXISTS tg1:{acme} ut"), [":1"]);
}

/// One reference is posted 100 times at once over three gateways, and another amount under it now and then.
#[test]
fn of_100_posts_of_one_reference_over_three_nodes_one_counts() {
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let caller = caller_of(first, "acme", "1", LimitOverrides::default());
    for kind in CreditKind::ALL {
        let (amount, reference) = (
            if kind.may_be_negative() { "-0.25" } else { "7" },
            format!("once {kind}"),
        );
        let before = block_on(caller.figures()).unwrap().balance;
        let all = on_workers(nodes.len(), |worker| {
            let one = async |n: usize| {
                let is_other = n % 5 == 4;
                let amount = if is_other { "3" } else { amount };
                let posted = CreditPost {
                    kind,
                    ..post(amount, &reference)
                };
                let op = AdminOp::Credit(CreditOp::Post(posted));
                (is_other, nodes[worker].run(op).await)
            };
            block_on(join_all((0..100).skip(worker).step_by(nodes.len()).map(one)))
        });
        let (mut added, mut conflicts) = (Vec::new(), 0);
        for (is_other, ended) in all.into_iter().flatten() {
            match ended {
                Ok(AdminReply::Posted(Posted { added: true, entry, .. })) => added.push((is_other, entry.amount)),
                Ok(AdminReply::Posted(Posted { added: false, .. })) => {}
                Err(AdminError::ReferenceConflict(conflicting)) if conflicting == reference => conflicts += 1,
                other => panic!("{other:?}"),
            }
        }
        let [(is_other, amount)] = added.as_slice() else {
            panic!("{added:?}");
        };
        assert_eq!(conflicts, if *is_other { 80 } else { 20 });
        let after = block_on(caller.figures()).unwrap().balance;
        assert_eq!(after.checked_sub(before), Some(*amount));
    }
    assert_eq!(entries(first).entries.len(), 1 + CreditKind::ALL.len());
    audit_is_clean(first);
}

/// What one gateway is told, the others hear within a second, also where their subscription is gone: keys that they know, and calls that
/// are to end.
#[test]
fn a_stop_works_on_every_node_within_a_second() {
    let server = RedisServer::start();
    let (one, two) = (node(&server, patient()), node(&server, patient()));
    let digest = crate::pure::ids::ApiKey::from_random("tg_", [92; 32]).digest();
    let caller = caller_of(&one, "acme", "100", LimitOverrides::default());
    run(&one, key_create("acme", &digest)).unwrap();
    let seen = || {
        block_on(two.authenticate(&digest))
            .unwrap()
            .unwrap()
            .account
            .terms
            .status
    };
    let away = on_node(&two, &caller);
    for (round, kills) in [(0u64, false), (1, true)] {
        until("the account is active", || seen() == AccountStatus::Active);
        let call = |n, on_stop| {
            let wanted = request(round * 10 + n, "1");
            block_on(away.reserve_until(&wanted, Entry::none(), on_stop))
                .unwrap()
                .unwrap()
        };
        let (ends, goes_on) = (call(1, SuspendedStreams::End), call(2, SuspendedStreams::Finish));
        assert_eq!(ends.uncovered(), None);
        if kills {
            server.ask("CLIENT KILL TYPE pubsub");
        }
        set_status(&one, AccountStatus::Suspended);
        let start = Instant::now();
        until("it is suspended", || seen() == AccountStatus::Suspended);
        until("its call ends", || {
            ends.uncovered() == Some(Uncovered::Stopped(AccountStop::Suspended))
        });
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!(goes_on.uncovered(), None);
        ends.settle(debit("0.5"));
        goes_on.release();
        set_status(&one, AccountStatus::Active);
    }
    block_on(away.figures()).unwrap();
    audit_is_clean(&one);
}

/// What the version before this one runs for a top-up: it reads of an entry what it knows.
const EARLIER_TOP_UP: &str = concat!(
    include_str!("../lua/clock.lua"),
    include_str!("../lua/amount.lua"),
    r"
local account, amount = KEYS[1], ARGV[3]
local field = ARGV[2] == 'ier' and 't' or 't' .. ARGV[2]
local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', field)
if not fact[1] then return 'none' end
local balance = sum(account, fact[2], negated(fact[3]), fact[1])
if fact[4] then
  local same = string.match(fact[4], '^%d+') == amount
  return (same and 'already ' or 'conflict ') .. balance
end
balance = sum(account, balance, amount)
if not balance then return 'range' end
redis.call('HINCRBY', account, 'avail', amount)
redis.call('HSET', account, field, string.format('%s %d', amount, clock(ARGV[1])))
return 'added ' .. balance
"
);

pub(super) fn earlier_top_up(shared: &Shared, pico: i64, reference: &str) -> String {
    let mut command = redis::cmd("EVAL");
    command
        .arg(EARLIER_TOP_UP)
        .arg(1)
        .arg("tg1:{acme}")
        .arg("")
        .arg(reference)
        .arg(pico);
    let value: Value = block_on(async { shared.command(&shared.link(), command).await.unwrap() });
    reply::text(&value).unwrap().to_owned()
}

/// No entry of this version is known by a reference that ends in a blank; one of an earlier version counts once all the same.
#[test]
fn an_entry_of_an_earlier_version_may_end_in_a_blank() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let shared = &redis_of(&ledger).shared;
    assert!(earlier_top_up(shared, 2_000_000_000_000, "INVOICE-7 ").starts_with("added"));
    let posted = |reference: &str| run(&ledger, AdminOp::Credit(CreditOp::Post(post("2", reference))));
    assert!(matches!(
        posted("INVOICE-7 "),
        Ok(AdminReply::Posted(Posted { added: false, .. }))
    ));
    assert!(matches!(posted("INVOICE-8 "), Err(AdminError::Invalid(_))));
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("3"));
    audit_is_clean(&ledger);
}

/// A gateway of an earlier version works beside this one: its entries are listed and stated, and what it says of ours is right.
#[test]
fn entries_of_an_earlier_version_are_found() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let shared = &redis_of(&ledger).shared;
    assert!(earlier_top_up(shared, 2_000_000_000_000, "old 1").starts_with("added"));
    assert!(earlier_top_up(shared, 500_000_000_000, "ier").starts_with("added"));
    let correction = CreditPost {
        kind: CreditKind::Correction,
        note: Some("a slip".to_owned()),
        ..post("-0.5", "ours")
    };
    run(&ledger, AdminOp::Credit(CreditOp::Post(correction))).unwrap();
    let page = entries(&ledger);
    let mut told: Vec<_> = page
        .entries
        .iter()
        .map(|entry| (entry.reference.as_str(), entry.kind))
        .collect();
    told.sort_by_key(|(reference, _)| *reference);
    let top_up = CreditKind::TopUp;
    let expected = [
        ("first", top_up),
        ("ier", top_up),
        ("old 1", top_up),
        ("ours", CreditKind::Correction),
    ];
    assert_eq!(told, expected);
    let old = page.entries.iter().find(|entry| entry.reference == "old 1").unwrap();
    assert_eq!((old.amount, old.balance, &old.note), (credits("2"), None, &None));

    // Posted since the last look, which a list does not repeat so soon: a statement misses nothing all the same.
    assert!(earlier_top_up(shared, 4_000_000_000_000, "old 2").starts_with("added"));
    assert_eq!(entries(&ledger).entries.len(), 4);
    let (now, account) = (crate::clock::Clock::System.now().day(), "acme".parse().unwrap());
    let (from, to) = (Day(now.0 - 1), now.next());
    let AdminReply::Statement(Statement {
        opening,
        closing,
        entries,
        ..
    }) = run(&ledger, AdminOp::Credit(CreditOp::Statement { account, from, to })).unwrap()
    else {
        panic!("no statement");
    };
    assert_eq!((opening, closing, entries.len()), (Credits::ZERO, credits("7"), 5));

    let again = post("2", "old 1");
    let AdminReply::Posted(posted) = run(&ledger, AdminOp::Credit(CreditOp::Post(again))).unwrap() else {
        panic!("no entry");
    };
    assert_eq!((posted.added, posted.balance), (false, credits("7")));
    let bonus = CreditPost {
        kind: CreditKind::Bonus,
        ..post("2", "old 1")
    };
    let conflict = run(&ledger, AdminOp::Credit(CreditOp::Post(bonus)));
    assert_eq!(conflict, Err(AdminError::ReferenceConflict("old 1".to_owned())));
    // And what the earlier version says of ours.
    assert!(earlier_top_up(shared, 500_000_000_000, "ours").starts_with("conflict"));
    assert!(earlier_top_up(shared, 1_000_000_000_000, "first").starts_with("already"));
    set_status(&ledger, AccountStatus::Suspended);
    assert!(
        earlier_top_up(shared, 1, "old 3").starts_with("added"),
        "it knows no terms"
    );
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("7.000000000001"));
    audit_is_clean(&ledger);
}
