//! One Redis: what it is sent, and how often; how a ledger begins and ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{node, patient, request};
use crate::clock::Clock;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::receipt_files::ReceiptFiles;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::shards::Shards;
use crate::ledger::redis::slots::Layout;
use crate::ledger::redis::spending::{remake_arguments, ttl};
use crate::ledger::redis::url::Address;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{
    self, NOW, Rig, block_on, caller_of, credits, debit, key_create, redis_of, request_at, run,
};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;
use crate::pure::spend::{EndUser, EndUserId, Reset, SpendLimit, SpendLimits};
use crate::pure::time::Period;

/// Redis may have run it, and sends no one away: the same command again would do the same again.
#[test]
fn a_call_that_redis_answers_with_an_error_is_sent_once() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let shared = &redis_of(&ledger).shared;
    let mut counts = redis::cmd("EVAL");
    counts.arg("redis.call('INCR', KEYS[1]) return redis.error_reply('ERR no')");
    counts.arg(1).arg("tg1:sent");
    let show = |name: &str| block_on(shared.show(&Link::default(), [name, "tg1:{other}:expiry"]));
    assert!(block_on(shared.command(&Link::default(), counts)).is_err());
    assert_eq!(server.ask("GET tg1:sent").last().map(String::as_str), Some("1"));
    assert_eq!(show("tg1:{other}").map(|shown| shown.is_some()), Ok(false));
    server.ask("SET tg1:{other} text");
    server.ask("CONFIG RESETSTAT");
    assert!(show("tg1:{other}").is_err());
    let by_text = server.ask("INFO commandstats");
    assert!(
        !by_text.iter().any(|line| line.starts_with("cmdstat_eval:")),
        "{by_text:?}"
    );
}

#[test]
fn a_connection_is_shared_until_it_is_given_up() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let shared = &redis_of(&ledger).shared;
    block_on(async {
        let link = shared.link();
        assert!(Arc::ptr_eq(&link, &shared.link()));
        let shard = shared.shards.of_slot(0);
        let line = link.line(&shard);
        assert!(line.found().is_none());
        let number = async || line.connection(&shard.address).await.unwrap().1;
        assert_eq!((number().await, number().await), (1, 1));
        line.give_up_any();
        assert!(line.found().is_none());
        assert_eq!((number().await, number().await), (2, 2));
        line.give_up(1);
        assert_eq!(number().await, 2, "an earlier one");
    });
}

#[test]
fn each_server_of_a_ledger_has_a_line_of_its_own() {
    let address = |text: &str| Address::parse(text, None, Duration::from_secs(1)).unwrap();
    let layout = Layout {
        ranges: [
            (0, 99, "a:1".to_owned()),
            (100, 200, "b:1".to_owned()),
            (201, 16_383, "c:1".to_owned()),
        ]
        .into(),
        nodes: Default::default(),
    };
    let shards = Shards::cluster(address("redis+cluster://a:1"), &layout, 10, Instant::now()).unwrap();
    let link = Link::default();
    let all = shards.all();
    let lines: Vec<_> = all.iter().map(|shard| link.line(shard)).collect();
    for (n, shard) in all.iter().enumerate() {
        for (m, line) in lines.iter().enumerate() {
            assert_eq!(std::ptr::eq(&*link.line(shard), &**line), n == m, "{n} {m}");
        }
    }
}

#[test]
fn a_ledgers_time_runs_from_its_start_on() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let connected = Instant::now();
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let passed = u64::try_from(connected.elapsed().as_millis()).unwrap();
    assert!(redis_of(&ledger).shared.now_ms() >= passed);
}

#[test]
fn redis_time_is_that_of_its_clock() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let shared = &redis_of(&ledger).shared;
    for _ in 0..20 {
        let before = Clock::System.now();
        let time = block_on(shared.time(&Link::default())).unwrap();
        let apart = (time.since(before), Clock::System.now().since(time));
        assert!(apart.0 >= -50 && apart.1 >= -50, "{apart:?}");
    }
}

#[test]
fn a_redis_that_is_not_there_is_told_before_the_start() {
    let server = RedisServer::start();
    assert_eq!(RedisLedger::preflight(&server.url(), patient()), Ok(()));
    server.ask("CONFIG SET maxmemory 50mb maxmemory-policy allkeys-lru");
    let evicts = RedisLedger::preflight(&server.url(), patient()).unwrap_err();
    assert!(evicts.to_string().contains("may evict keys"), "{evicts}");
}

#[test]
fn a_ledger_that_ends_says_what_redis_has_not_taken() {
    let server = RedisServer::start();
    // It gives up soon at its end, and its calls before have time.
    let options = || Options {
        timeout: Duration::from_secs(2),
        close_within: Duration::from_millis(200),
        ..patient()
    };
    let clean = node(&server, options());
    assert_eq!(redis_of(&clean).close(), 0);
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let cut = node(&server, options());
    let away = super::on_node(&cut, &caller);
    let holds = [1, 2].map(|n| block_on(away.reserve(&request(n, "1"))).unwrap().unwrap());
    server.freeze();
    for hold in holds {
        hold.settle(debit("1"));
    }
    assert_eq!(redis_of(&cut).close(), 2);
    server.thaw();
}

#[test]
fn a_ledger_that_is_gone_has_no_connections() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    assert!(server.ask("CLIENT LIST").len() > 3);
    drop(ledger);
    let is_alone = || {
        // This thread's own ends when its runtime runs.
        block_on(tokio::task::yield_now());
        let clients = server.ask("CLIENT LIST");
        // That of the question, with the length of the answer before it.
        clients.iter().filter(|line| line.starts_with("id=")).count() == 1
    };
    // Redis sees it before the second question or so.
    assert!((0..1_000).any(|_| is_alone()), "it has connections");
}

#[test]
fn a_receipt_is_written_out_once() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let ledger = node(&server, rig::patient(clock.clone()));
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, clock).unwrap();
    redis_of(&ledger).receipt_files().set(Arc::clone(&files)).unwrap();
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    for n in 1..=3 {
        let hold = block_on(caller.reserve(&rig::request(n, "1"))).unwrap().unwrap();
        hold.settle(debit("1"));
    }
    block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
    assert!(files.flush());
    let text = std::fs::read_to_string(folder.path().join("receipts-2026-11-20.jsonl")).unwrap();
    assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 3, "{text}");
}

#[test]
fn a_recovery_counts_the_holds_that_it_frees() {
    let rig = Rig::redis();
    let caller = rig.caller("10");
    let book = rig.book(&caller);
    for n in 1..=2 {
        book.reserve(&rig::request(n, "1")).unwrap();
    }
    let released = || match rig.run(AdminOp::Recover).unwrap() {
        AdminReply::Recovered(report) => report.released,
        other => panic!("{other:?}"),
    };
    assert_eq!(released(), 0);
    rig.clock.advance(61_000);
    assert_eq!(released(), 2);
    assert_eq!(released(), 0);
}

#[test]
fn the_same_key_again_does_what_was_left_of_its_making() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "other", "1", LimitOverrides::default());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let digest = ApiKey::from_random("tg_", [93; 32]).digest();
    run(&ledger, key_create("acme", &digest)).unwrap();
    let keys = |account: &str| {
        let account = account.parse().unwrap();
        match run(&ledger, AdminOp::KeyList { account }).unwrap() {
            AdminReply::Keys { keys, .. } => keys.len(),
            other => panic!("{other:?}"),
        }
    };
    server.ask("DEL tg1:{acme}:keys");
    assert_eq!(keys("acme"), 0);
    for account in ["other", "acme"] {
        let again = run(&ledger, key_create(account, &digest));
        assert!(matches!(again, Err(AdminError::Invalid(_))), "{again:?}");
    }
    assert_eq!((keys("acme"), keys("other")), (1, 1));
}

#[test]
fn what_a_period_counts_is_kept_for_two_days_after_it() {
    let request = request_at(1, NOW);
    let of = |reset| EndUser {
        id: EndUserId::of("anna"),
        reset,
    };
    let day_ms = 86_400_000;
    assert_eq!(ttl(&of(Reset::None), request, NOW), "");
    assert_eq!(ttl(&of(Reset::Daily), request, NOW), (3 * day_ms).to_string());
    assert_eq!(
        ttl(&of(Reset::Daily), request, NOW.plus_millis(5 * day_ms)),
        (2 * day_ms).to_string()
    );
}

#[test]
fn a_hold_that_is_made_anew_counts_under_the_same_limits() {
    let limit = |amount| SpendLimit {
        amount: credits(amount),
        reset: Reset::Daily,
    };
    let limits = SpendLimits {
        key: "key_x".to_owned().into(),
        own: Some(limit("7")),
        end_user: Some((EndUserId::of("anna"), limit("5"))),
    };
    let mut command = redis::cmd("EVALSHA");
    remake_arguments(&mut command, &limits, (request_at(1, NOW), credits("2").pico()), NOW);
    let arguments: Vec<String> = command
        .args_iter()
        .map(|argument| match argument {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    let below = |amount| credits(amount).pico().to_string();
    let [_, key, _, _, own, id, of_end_user, kept] = &arguments[..] else {
        panic!("{arguments:?}");
    };
    assert_eq!((key.as_str(), own, of_end_user), ("key_x", &below("5"), &below("3")));
    assert_eq!(
        (id, kept),
        (&EndUserId::of("anna").to_string(), &(3 * 86_400_000).to_string())
    );
}

#[test]
fn an_entry_whose_field_would_be_the_tier_is_found() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    rig.credit(&caller, "2", "ier").unwrap();
    let shared = &redis_of(&rig.ledger).shared;
    for (reference, amount) in [("ier", "2"), ("first", "1")] {
        let found = block_on(shared.credit_entry(&Link::default(), &caller.account.id, reference));
        assert_eq!(
            found.unwrap().map(|entry| entry.amount),
            Some(credits(amount)),
            "{reference}"
        );
    }
}

#[test]
fn what_a_key_of_no_account_spends_is_not_counted() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    let shared = &redis_of(&rig.ledger).shared;
    let track =
        |account: &str| block_on(shared.track(&Link::default(), (&account.parse().unwrap(), &caller.key.id), false));
    assert_eq!(track("acme"), Ok(()));
    assert_eq!(track("nobody"), Err(AdminError::NoAccount("nobody".parse().unwrap())));
}
