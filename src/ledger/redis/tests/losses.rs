//! A Redis that comes back without its last moments: what was acknowledged is sent again.

use std::time::{Duration, Instant};

use super::book::RedisBook;
use super::{node, patient, request};
use crate::ledger::redis::Options;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit};
use crate::ledger::tests::sequences::Book;
use crate::ledger::{Caller, StoreError};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;

/// A server with a snapshot of this moment: whatever comes later is lost when it is killed.
fn snapshot(server: &RedisServer) {
    assert_eq!(server.ask("SAVE"), ["+OK"]);
}

fn pay(caller: &Caller, calls: std::ops::Range<u64>) {
    for n in calls {
        block_on(caller.reserve(&request(n, "1")))
            .unwrap()
            .unwrap()
            .settle(debit("1"));
    }
    block_on(caller.figures()).unwrap();
}

/// The servers' identity changes, and accounts are made whole though nobody calls any more.
#[test]
fn a_redis_without_its_last_moments_gets_them_again() {
    let mut server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    let silent = caller_of(&ledger, "silent", "100", LimitOverrides::default());
    pay(&caller, 0..5);
    snapshot(&server);
    pay(&caller, 5..12);
    pay(&silent, 100..103);
    server.restart();
    pay_when_back(&caller, 20);
    let balance = |caller: &Caller| block_on(caller.figures()).map(|figures| figures.balance);
    until("nothing is missing", || {
        balance(&caller) == Ok(credits("87")) && balance(&silent) == Ok(credits("97"))
    });
    audit_is_clean(&ledger);
}

/// Money: such a server has no replica that would have what it acknowledged last, or no disk. Its successor comes when it comes.
#[test]
fn what_was_acknowledged_before_no_more_writes_were_taken_is_sent_again_however_long_that_lasts() {
    let mut server = RedisServer::start();
    // The last calls are not older than that by the time at which writes are refused, however busy the machine is.
    let replay = Duration::from_secs(5);
    let options = Options { replay, ..patient() };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    pay(&caller, 0..5);
    snapshot(&server);
    pay(&caller, 5..12);
    assert_eq!(server.ask("CONFIG SET min-replicas-to-write 1"), ["+OK"]);
    let refused = || {
        let stats = server.ask("INFO commandstats");
        let of_set = stats.iter().find(|line| line.starts_with("cmdstat_set:"));
        let refused = of_set.and_then(|line| line.split_once("rejected_calls=")?.1.split(',').next()?.parse().ok());
        refused.unwrap_or(0_u64)
    };
    let began = Instant::now();
    // Longer than Redis is thought to lose anything.
    until("writes are refused for a while", || {
        began.elapsed() > replay + Duration::from_secs(1) && refused() >= 4
    });
    server.restart();
    until("nothing is missing", || {
        block_on(caller.figures()).is_ok_and(|figures| figures.balance == credits("88"))
    });
    audit_is_clean(&ledger);
}

/// A gap that is only seen by its number, on a server that stayed the same.
#[test]
fn a_missing_settlement_is_filled_in_by_its_number() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    pay(&caller, 0..3);
    server.ask("COPY tg1:{acme} kept");
    pay(&caller, 3..6);
    server.ask("COPY kept tg1:{acme} REPLACE");
    assert_eq!(RedisBook::new(&ledger, "acme").view().0.balance, credits("97"));
    pay(&caller, 6..7);
    until("nothing is missing", || {
        block_on(caller.figures()).is_ok_and(|figures| figures.balance == credits("93"))
    });
    audit_is_clean(&ledger);
}

/// The store has lost more than is kept here: what is here is taken under new numbers, and nothing waits for ever.
#[test]
fn what_is_lost_for_good_holds_nothing_up() {
    let server = RedisServer::start();
    let options = Options {
        replay: Duration::ZERO,
        ..patient()
    };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    server.ask("COPY tg1:{acme} kept");
    pay(&caller, 0..6);
    server.ask("COPY kept tg1:{acme} REPLACE");
    pay(&caller, 6..8);
    let figures = block_on(caller.figures()).unwrap();
    assert!(figures.balance <= credits("98"), "{figures:?}");
    pay(&caller, 8..10);
    assert!(block_on(caller.figures()).unwrap().balance <= credits("96"));
    audit_is_clean(&ledger);
}

/// An account that is missing holds up nobody else.
#[test]
fn an_account_that_is_gone_waits_alone() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let gone = caller_of(&ledger, "gone", "100", LimitOverrides::default());
    let other = caller_of(&ledger, "other", "100", LimitOverrides::default());
    let holds: Vec<_> = (0..3)
        .map(|n| block_on(gone.reserve(&request(n, "1"))).unwrap().unwrap())
        .collect();
    server.ask("RENAME tg1:{gone} elsewhere");
    for hold in holds {
        hold.settle(debit("1"));
    }
    pay(&other, 10..20);
    assert_eq!(block_on(other.figures()).unwrap().balance, credits("90"));
    assert!(block_on(gone.reserve(&request(30, "1"))).is_err());
    server.ask("RENAME elsewhere tg1:{gone}");
    until("the account's settlements arrive", || {
        block_on(gone.figures()).is_ok_and(|figures| figures.balance == credits("97"))
    });
    audit_is_clean(&ledger);
}

fn pay_when_back(caller: &Caller, n: u64) {
    let mut n = n;
    until("calls are served again", || {
        n += 1;
        match block_on(caller.reserve(&request(n, "1"))) {
            Ok(Ok(hold)) => {
                hold.settle(debit("1"));
                true
            }
            _ => false,
        }
    });
}

/// Keys that Redis has lost are not wrong keys: their clients would throw them away.
#[test]
fn a_redis_that_came_back_empty_knows_no_wrong_keys() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let unknown = ApiKey::from_random("tg_", [250; 32]).digest();
    let look = || block_on(ledger.authenticate(&unknown));
    assert!(look().unwrap().is_none(), "one that is new and empty does");
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    assert!(look().unwrap().is_none());
    let is_told_once = || {
        server.ask("FLUSHALL");
        for is_told in [true, false] {
            let mut lost = None;
            let lines = logged(|| lost = Some(look()));
            assert!(matches!(lost, Some(Err(StoreError::Unavailable(_)))), "{lost:?}");
            let told = "ERROR MONEY: Redis has no accounts any more: ";
            assert_eq!(
                lines.iter().any(|line| line.starts_with(told)),
                is_told,
                "once: {lines:?}"
            );
        }
    };
    is_told_once();
    caller_of(&ledger, "other", "1", LimitOverrides::default());
    assert!(look().unwrap().is_none(), "it has accounts again");
    is_told_once();
    // Also where only keys that are there were tried meanwhile.
    caller_of(&ledger, "third", "1", LimitOverrides::default());
    is_told_once();
}
