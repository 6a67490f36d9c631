//! The audits that gateways make by themselves: of many one does it, and all know what it found.

use std::time::Duration;

use super::book::RedisBook;
use super::{node, patient};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditReport};
use crate::ledger::redis::link::Link;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{self, NOW, block_on, caller_of, on_workers, redis_of, run};
use crate::ledger::tests::sequences::Book;
use crate::pure::limits::LimitOverrides;

const EVERY: Duration = Duration::from_secs(300);

fn audited(ledger: &Ledger) -> (AuditReport, Duration) {
    block_on(ledger.audit_in_turn(EVERY, EVERY)).unwrap()
}

/// How often all of an account was read since this was asked for last.
fn read_whole(server: &RedisServer) -> usize {
    let stats = server.ask("INFO commandstats");
    server.ask("CONFIG RESETSTAT");
    let of_hgetall = stats
        .iter()
        .find_map(|line| line.strip_prefix("cmdstat_hgetall:calls="));
    of_hgetall.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn of_many_gateways_one_audits_and_all_know_what_it_found() {
    let server = RedisServer::start();
    let nodes = [(); 8].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    caller_of(first, "acme", "10", LimitOverrides::default());
    read_whole(&server);
    let all = on_workers(nodes.len(), |worker| audited(&nodes[worker]).0);
    assert_eq!(read_whole(&server), 1);
    let [report, ..] = all.as_slice() else {
        panic!("nobody audited")
    };
    assert_eq!((report.accounts, report.findings.len()), (1, 0));
    assert!(all.iter().all(|other| other == report), "{all:?}");
    // It is what the last one found that is told, until it is too old.
    server.ask("HINCRBY tg1:{acme} avail 7");
    assert_eq!(audited(first).0, *report);
    assert_eq!(read_whole(&server), 0);
    server.ask("DEL tg1:audit:found");
    let (unbalanced, age) = audited(first);
    assert_eq!((unbalanced.findings.len(), age), (1, Duration::ZERO));
    // What was wrong may have been mended: each looks for itself.
    assert_eq!(nodes.each_ref().map(|node| audited(node).0.findings.len()), [1; 8]);
    assert_eq!(read_whole(&server), 9);
    server.ask("HINCRBY tg1:{acme} avail -7");
    assert_eq!(nodes.each_ref().map(|node| audited(node).0.findings.len()), [0; 8]);
    assert_eq!(read_whole(&server), 1);
}

#[test]
fn another_gateway_audits_where_the_one_whose_turn_it_was_has_died() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "10", LimitOverrides::default());
    server.ask("SET tg1:audit 1 PX 300");
    let (report, age) = audited(&ledger);
    assert_eq!((report.accounts, age), (1, Duration::ZERO));
    assert_eq!(server.ask("EXISTS tg1:audit"), [":0"]);
    // One who looks more often does not wait for what others find.
    server.ask("DEL tg1:audit:found");
    audited(&ledger);
    read_whole(&server);
    block_on(ledger.audit_in_turn(Duration::ZERO, EVERY)).unwrap();
    assert_eq!(read_whole(&server), 1);
}

/// Its field ended the audit for all, and what was found before it was told to nobody.
#[test]
fn accounts_that_cannot_be_read_keep_no_other_from_an_audit_and_a_repair() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let unreadable: Vec<String> = (10..24).map(|n| format!("beta-{n}")).collect();
    for name in ["acme", "gamma"]
        .into_iter()
        .chain(unreadable.iter().map(String::as_str))
    {
        caller_of(&ledger, name, "10", LimitOverrides::default());
    }
    let used = |used: &str| {
        for name in &unreadable {
            server.ask(&format!("HSET tg1:{{{name}}} used {used}"));
        }
    };
    used("x");
    for name in ["acme", "gamma"] {
        server.ask(&format!("HINCRBY tg1:{{{name}}} used 7"));
        server.ask(&format!("HINCRBY tg1:{{{name}}} committed 7"));
    }
    let (report, _) = audited(&ledger);
    let mut wrong: Vec<&str> = report.findings.iter().map(|finding| finding.account.as_str()).collect();
    wrong.sort_unstable();
    wrong.dedup();
    assert_eq!(
        (wrong, report.accounts, report.unchecked),
        (vec!["acme", "gamma"], 2, 14)
    );
    assert!(
        report.why_unchecked.iter().all(|why| why.starts_with("beta-")),
        "{report:?}"
    );
    let repaired = run(&ledger, AdminOp::Repair);
    let told = "2 counters in all, and for beta-10: ";
    assert!(
        matches!(&repaired, Err(AdminError::Store(text)) if text.contains(told) && text.contains("13 more accounts")),
        "{repaired:?}"
    );
    // It is kept for nobody: each looks for itself, until all can be read.
    let (report, age) = audited(&ledger);
    assert_eq!((report.findings.len(), report.unchecked, age), (0, 14, Duration::ZERO));
    used("0");
    assert!(audited(&ledger).0.is_clean());
}

/// The first of them ended it, and what was done before was told to nobody.
#[test]
fn accounts_that_cannot_be_read_keep_no_other_from_a_recovery() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let ledger = node(&server, rig::patient(clock.clone()));
    for (n, name) in [(1, "acme"), (2, "gamma")] {
        caller_of(&ledger, name, "10", LimitOverrides::default());
        RedisBook::new(&ledger, name).reserve(&rig::request(n, "1")).unwrap();
    }
    for n in 10..32 {
        server.ask(&format!("SADD tg1:accounts beta-{n}"));
        server.ask(&format!("SET tg1:{{beta-{n}}} text"));
    }
    clock.advance(61_000);
    let report = match run(&ledger, AdminOp::Recover).unwrap() {
        AdminReply::Recovered(report) => report,
        other => panic!("{other:?}"),
    };
    let lines = &report.refused;
    assert_eq!((report.released, lines.len()), (2, 21), "{lines:?}");
    let told = "expired holds were not given back: ";
    assert!(lines[0].starts_with(&format!("{told}beta-10: ")), "{lines:?}");
    assert_eq!(lines[20], format!("{told}2 more accounts"));
}

/// After five of them the server was taken to be away, and the accounts behind them were passed over.
#[test]
fn accounts_whose_key_has_another_type_keep_no_other_from_an_audit_and_a_repair() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in ["acme", "gamma"] {
        caller_of(&ledger, name, "10", LimitOverrides::default());
    }
    for n in 10..24 {
        server.ask(&format!("SADD tg1:accounts beta-{n}"));
        server.ask(&format!("SET tg1:{{beta-{n}}} text"));
    }
    for field in ["used", "committed"] {
        server.ask(&format!("HINCRBY tg1:{{gamma}} {field} 7"));
    }
    let (report, _) = audited(&ledger);
    let of_gamma = report
        .findings
        .iter()
        .all(|finding| finding.account.as_str() == "gamma");
    assert!(of_gamma && !report.findings.is_empty(), "{report:?}");
    assert_eq!((report.accounts, report.unchecked), (2, 14), "{report:?}");
    let repaired = run(&ledger, AdminOp::Repair);
    let told = "1 counters in all, and for beta-10: ";
    assert!(
        matches!(&repaired, Err(AdminError::Store(text)) if text.contains(told) && text.contains("13 more accounts")),
        "{repaired:?}"
    );
}

/// What its counters came to was forgotten with the rest.
#[test]
fn what_was_found_of_an_account_that_is_passed_over_is_told() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "10", LimitOverrides::default());
    server.ask("HINCRBY tg1:{acme} avail 7");
    server.ask("HSET tg1:{acme} ulk1 1");
    server.ask("HSET tg1:{acme}:usage:k1 c1 x");
    let report = audited(&ledger).0;
    let [found] = report.findings.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(
        (found.rule.as_str(), report.unchecked),
        ("top-ups - debits = balance", 1)
    );
    assert_eq!(report.passed_over, ["acme".parse().unwrap()]);
}

/// Its turn has ended, and another has it: it neither lasts longer nor ends by the first.
#[test]
fn a_turn_is_kept_and_ended_by_whoever_took_it() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "10", LimitOverrides::default());
    server.ask("SET tg1:audit another PX 60000");
    let link = Link::default();
    let shared = &redis_of(&ledger).shared;
    assert_eq!(block_on(shared.keep_turn(&link, "own", Duration::ZERO)), Ok(false));
    assert_eq!(server.ask("GET tg1:audit"), ["$7", "another"]);
    assert_eq!(block_on(shared.keep_turn(&link, "another", Duration::ZERO)), Ok(true));
    assert_eq!(server.ask("EXISTS tg1:audit"), [":0"]);
    assert_eq!(block_on(shared.take_turn(&link, "own")), Ok(true));
    assert_eq!(block_on(shared.take_turn(&link, "own")), Ok(true), "an answer was lost");
    assert_eq!(block_on(shared.take_turn(&link, "another")), Ok(false));
}
