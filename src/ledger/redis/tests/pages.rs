//! Names of accounts as several gateways come to know them.

use super::{node, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::accounts::{AccountOp, AccountQuery};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{caller_of, run};
use crate::pure::limits::LimitOverrides;

fn make(ledger: &Ledger, name: &str) {
    caller_of(ledger, name, "1", LimitOverrides::default());
}

fn page(ledger: &Ledger) -> Vec<String> {
    let op = AdminOp::Account(AccountOp::Page(AccountQuery {
        limit: 50,
        ..AccountQuery::default()
    }));
    match run(ledger, op).unwrap() {
        AdminReply::AccountPage(page) => page.accounts.iter().map(|view| view.record.id.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

fn calls(server: &RedisServer, command: &str) -> bool {
    let prefix = format!("cmdstat_{command}:");
    server
        .ask("INFO commandstats")
        .iter()
        .any(|line| line.starts_with(&prefix))
}

/// A million names are read once, not at each page.
#[test]
fn a_page_learns_new_names_without_reading_all_of_them() {
    let server = RedisServer::start();
    let (one, two) = (node(&server, patient()), node(&server, patient()));
    make(&one, "beta");
    assert_eq!(page(&one), ["beta"]);
    server.ask("CONFIG RESETSTAT");
    assert_eq!(page(&one), ["beta"]);
    assert!(!calls(&server, "sscan"), "none is new");
    assert!(!calls(&server, "lrange"), "none is new");
    make(&two, "alpha");
    make(&two, "gamma");
    assert_eq!(page(&one), ["alpha", "beta", "gamma"]);
    assert!(!calls(&server, "sscan"), "those that came last are enough");
    // A gateway of an earlier version adds a name that is not among those that came last.
    server.ask("DEL tg1:accounts:newest");
    make(&two, "delta");
    server.ask("DEL tg1:accounts:newest");
    assert_eq!(page(&one), ["alpha", "beta", "delta", "gamma"]);
    assert!(calls(&server, "sscan"));
}

#[test]
fn so_many_names_are_kept_as_those_that_came_last() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let newest = || -> Vec<String> {
        let lines = server.ask("LRANGE tg1:accounts:newest 0 -1");
        lines.into_iter().filter(|line| !line.starts_with(['$', '*'])).collect()
    };
    make(&ledger, "first");
    make(&ledger, "first");
    assert_eq!(newest(), ["first"]);
    server.ask("EVAL \"for n = 1, 1999 do redis.call('RPUSH', KEYS[1], 'a' .. n) end\" 1 tg1:accounts:newest");
    assert_eq!(newest().len(), 2_000);
    make(&ledger, "last");
    let kept = newest();
    assert_eq!(kept.len(), 2_000);
    let ends = [kept.first(), kept.last()].map(|name| name.map(String::as_str));
    assert_eq!(ends, [Some("a1"), Some("last")]);
}
