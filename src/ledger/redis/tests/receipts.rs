//! Receipts in Redis that were changed by another hand.

use super::{node, patient, request};
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::{AdminError, AdminOp, LOOKED_THROUGH_MAX, ReceiptQuery};
use crate::ledger::query::{EndUserQuery, EndUserUsage};
use crate::ledger::redis::Options;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{self, NOW, audit, block_on, caller_of, credits, debit, redis_of};
use crate::ledger::{Ledger, StoreError};
use crate::pure::ids::AccountId;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Days, Period};

fn keeping() -> Options {
    Options {
        receipts_per_account_max: std::num::NonZeroU32::new(1_000),
        ..patient()
    }
}

fn three_calls(ledger: &Ledger) {
    let caller = caller_of(ledger, "acme", "100", LimitOverrides::default());
    for n in 1..=3 {
        block_on(caller.reserve(&request(n, "1")))
            .unwrap()
            .unwrap()
            .settle(debit("1"));
    }
    block_on(ledger.usage(&"acme".parse().unwrap(), None, Period::All)).unwrap();
}

#[test]
fn an_entry_that_cannot_be_read_hides_no_other_and_is_found() {
    let server = RedisServer::start();
    let ledger = node(&server, keeping());
    three_calls(&ledger);
    assert!(audit(&ledger).findings.is_empty());
    server.ask("XADD tg1:{acme}:receipts * t 1795132800000 r garbage");
    let account = "acme".parse().unwrap();
    let page = block_on(ledger.receipts(ReceiptQuery::newest(&account, 9))).unwrap();
    assert_eq!((page.receipts.len(), page.unreadable), (3, 1));
    // By the entry's place, for what it says cannot be read.
    let [(day, 1)] = page.unreadable_days[..] else {
        panic!("{:?}", page.unreadable_days);
    };
    assert!(day >= page.receipts.first().unwrap().resolved.day());
    let one = page.receipts.first().unwrap().billed.id;
    assert!(block_on(ledger.receipt(&account, one)).unwrap().is_some());
    let [finding] = &audit(&ledger).findings[..] else {
        panic!("{:?}", audit(&ledger).findings);
    };
    assert!(finding.rule.ends_with("can be read"), "{}", finding.rule);
    assert_eq!(finding.found, Credits::ZERO);
}

/// By Redis' own clock, whose time an entry's place in the stream has: days that are not asked for are not read.
#[test]
fn usage_by_end_user_is_of_the_days_that_are_asked_for() {
    let server = RedisServer::start();
    let ledger = node(&server, keeping());
    three_calls(&ledger);
    let account: AccountId = "acme".parse().unwrap();
    let today = Clock::System.now().day();
    let calls = |from: i64, to: i64| {
        let query = EndUserQuery {
            account: account.clone(),
            key: None,
            days: Days::Span {
                from: Day(today.0 + from),
                to: Day(today.0 + to),
            },
        };
        match block_on(ledger.end_users(query)).unwrap() {
            EndUserUsage::Sums(rows) => rows.iter().map(|row| row.requests).sum::<u64>(),
            beyond => panic!("{beyond:?}"),
        }
    };
    // The test may run over midnight.
    assert_eq!((calls(0, 1), calls(-9, 1), calls(2, 9), calls(-9, -1)), (3, 3, 0, 0));
    // An entry of a day that is not asked for cannot be read: nobody needs it. Of one that is, no part is told.
    let later = Day(today.0 + 5).start().0 + 1;
    server.ask(&format!("XADD tg1:{{acme}}:receipts {later}-0 t {later} r garbage"));
    assert_eq!((calls(0, 1), calls(-9, 1)), (3, 3));
    let query = EndUserQuery {
        account: account.clone(),
        key: None,
        days: Days::Span {
            from: today,
            to: Day(today.0 + 5),
        },
    };
    assert!(block_on(ledger.end_users(query)).is_err());
}

#[test]
fn as_many_receipts_are_kept_as_the_configuration_says() {
    let server = RedisServer::start();
    let kept = |per_account_max: u32| {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = folder.path().join("catalogue.yaml");
        std::fs::write(&catalogue, "[]").unwrap();
        let conf = serde_json::json!({
            "catalogue": catalogue.to_str(), "data_dir": folder.path().to_str(), "store": server.url(),
            "receipts": { "per_account_max": per_account_max },
            "providers": { "main": { "base_url": "http://127.0.0.1:1/v1", "api_key_env": "SET" } },
        });
        let environment = |name: &str| (name == "SET").then(|| "secret".to_owned());
        let config = Config::parse(std::path::Path::new("t.yaml"), &conf.to_string(), &environment).unwrap();
        let ledger = crate::ledger::open(&config).unwrap();
        let name = format!("acme-{per_account_max}");
        let caller = caller_of(&ledger, &name, "100", LimitOverrides::default());
        for n in 1..=400 {
            let hold = block_on(caller.reserve(&request(n, "0.1"))).unwrap().unwrap();
            hold.settle(debit("0.1"));
        }
        block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
        let count = server.ask(&format!("XLEN tg1:{{{name}}}:receipts"));
        ledger.close();
        count.concat().trim_start_matches(':').parse::<u64>().unwrap()
    };
    assert_eq!(kept(0), 0);
    assert_eq!(kept(1_000), 400);
    // A stream is cut by whole nodes of a hundred.
    assert!((150..400).contains(&kept(150)));
}

/// One entry again, as another hand would write it.
fn write_again(server: &RedisServer) {
    let text = "local e = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][2] redis.call('XADD', KEYS[1], '*', unpack(e))";
    server.ask(&format!("EVAL \"{text}\" 1 tg1:{{acme}}:receipts"));
}

/// The audit holds the receipts of today and yesterday against the usage.
#[test]
fn a_receipt_too_many_is_found_until_the_day_after() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let ledger = node(&server, rig::patient(clock.clone()));
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let hold = block_on(caller.reserve(&rig::request(1, "1"))).unwrap().unwrap();
    hold.settle(debit("1"));
    block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
    assert_eq!(audit(&ledger).findings, []);
    write_again(&server);
    for (day, found) in [("today", 4), ("yesterday", 4), ("before", 0)] {
        let findings = audit(&ledger).findings;
        assert_eq!(findings.len(), found, "{day}: {findings:?}");
        for (finding, (expected, found)) in findings.iter().zip([("1", "2"), ("3", "6"), ("4", "8"), ("1", "2")]) {
            assert!(finding.rule.starts_with("receipts = usage: "), "{}", finding.rule);
            assert_eq!((finding.expected, finding.found), (credits(expected), credits(found)));
        }
        clock.advance(86_400_000);
    }
}

/// Entries that nobody can read.
fn add_unreadable(server: &RedisServer, count: u32) {
    let text = format!("for n = 1, {count} do redis.call('XADD', KEYS[1], '*', 't', '1', 'r', '{{}}') end");
    server.ask(&format!("EVAL \"{text}\" 1 tg1:{{acme}}:receipts"));
}

/// A receipt among as many others before it and behind it.
fn found_among(others: u32) -> bool {
    let server = RedisServer::start();
    let ledger = node(&server, rig::patient(Clock::manual(NOW)));
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    add_unreadable(&server, others);
    let hold = block_on(caller.reserve(&rig::request(1, "1"))).unwrap().unwrap();
    let id = hold.id();
    hold.settle(debit("1"));
    block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
    add_unreadable(&server, others);
    let receipt = block_on(ledger.receipt(&caller.account.id, id)).unwrap();
    assert!(receipt.iter().all(|receipt| receipt.billed.id == id));
    receipt.is_some()
}

#[test]
fn a_receipt_is_found_far_behind_the_newest_and_not_looked_for_without_end() {
    assert!(found_among(2_500));
    assert!(!found_among(LOOKED_THROUGH_MAX + 200));
}

#[test]
fn a_page_that_finds_nothing_in_so_many_entries_says_where_the_next_begins() {
    let server = RedisServer::start();
    let ledger = node(&server, keeping());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    add_unreadable(&server, LOOKED_THROUGH_MAX + 1);
    let mut query = ReceiptQuery::newest(&caller.account.id, 9);
    for (unreadable, is_last) in [(u64::from(LOOKED_THROUGH_MAX), false), (1, true)] {
        let page = block_on(ledger.receipts(query.clone())).unwrap();
        assert_eq!((page.receipts.len(), page.unreadable), (0, unreadable));
        assert_eq!(page.next.is_none(), is_last);
        query.before = page.next;
    }
}

/// A name that this process has had to do with, as one in a journal.
#[test]
fn there_is_no_usage_by_end_user_of_an_account_that_is_not_there() {
    let server = RedisServer::start();
    let ledger = node(&server, keeping());
    let account: AccountId = "acme".parse().unwrap();
    ledger.place(&account).unwrap();
    let query = EndUserQuery {
        account: account.clone(),
        key: None,
        days: Days::Span {
            from: NOW.day(),
            to: NOW.day(),
        },
    };
    let asked = rig::run(&ledger, AdminOp::EndUsers(query));
    assert_eq!(asked, Err(AdminError::NoAccount(account)));
}

#[test]
fn reports_of_one_account_that_wait_for_too_long_say_that_they_are_too_many() {
    let server = RedisServer::start();
    let options = Options {
        timeout: std::time::Duration::from_secs(2),
        ..keeping()
    };
    let ledger = node(&server, options);
    let account = caller_of(&ledger, "acme", "1", LimitOverrides::default())
        .account
        .id
        .clone();
    let known = redis_of(&ledger).shared.cache.account(&account);
    let today = Clock::System.now().day();
    let by_end_user = EndUserQuery {
        account: account.clone(),
        key: None,
        days: Days::Span { from: today, to: today },
    };
    block_on(async {
        let turn = known.reporting.lock().await;
        let (usage, end_users, calls) = tokio::join!(
            ledger.usage(&account, None, Period::All),
            ledger.end_users(by_end_user),
            ledger.receipts(ReceiptQuery::newest(&account, 1)),
        );
        assert!(matches!(usage, Err(StoreError::Busy(_))), "{usage:?}");
        assert!(matches!(end_users, Err(StoreError::Busy(_))), "{end_users:?}");
        assert!(matches!(calls, Err(StoreError::Busy(_))), "{calls:?}");
        drop(turn);
        assert_eq!(ledger.usage(&account, None, Period::All).await, Ok(Vec::new()));
    });
}
