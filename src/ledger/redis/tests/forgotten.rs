//! Producers that were silent for a month: what is theirs is never taken twice, and what was never sent is taken.

use std::sync::Arc;

use super::super::queue::{Origin, QueuedDebit};
use super::on_node;
use crate::clock::Clock;
use crate::ledger::journal::Entry;
use crate::ledger::redis::{Account, Options, RedisLedger};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{NOW, audit_is_clean, block_on, caller_of, credits, debit, patient, redis_of, request};
use crate::ledger::{AccountHandle, Caller, Ledger};
use crate::pure::account::ReserveRequest;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, CallNumber};

const DAY_MS: i64 = 86_400_000;

fn node(server: &RedisServer, clock: &Clock) -> Ledger {
    Ledger::Redis(RedisLedger::connect(&server.url(), patient(clock.clone())).unwrap())
}

fn pay(caller: &Caller, clock: &Clock, n: u64) {
    let request = ReserveRequest {
        expires: clock.now().plus_millis(60_000),
        ..request(n, "1")
    };
    let hold = block_on(caller.reserve(&request)).unwrap().unwrap();
    hold.settle(debit("1"));
}

fn balance(caller: &Caller) -> Credits {
    block_on(caller.figures()).unwrap().balance
}

fn owed(account: &Arc<Account>, number: CallNumber, origin: Origin) -> QueuedDebit {
    QueuedDebit {
        account: Arc::clone(account),
        hold: request(2, "1").id,
        known: None,
        debit: debit("1"),
        number,
        origin,
        is_doubted: false,
        is_written_out: false,
        sent: 0,
        queued_ms: 1,
        entry: Entry::none(),
    }
}

/// Another gateway's first call of the account makes Redis forget who was silent.
fn forget_the_silent(server: &RedisServer, clock: &Clock, caller: &Caller, n: u64) -> Ledger {
    let other = node(server, clock);
    let caller = on_node(&other, caller);
    pay(&caller, clock, n);
    // It waits for the debit: the silent one may have been forgotten before by its own gateway.
    balance(&caller);
    until("the silent producer is forgotten", || {
        server.ask("HGET tg1:{acme} forgotten") != ["$-1"]
    });
    other
}

/// The passive one of two gateways: its calls of a month ago are not sent again, and its next call is billed.
#[test]
fn a_gateway_that_was_idle_for_31_days_bills_each_call_once() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let idle = node(&server, &clock);
    let caller = caller_of(&idle, "acme", "100", LimitOverrides::default());
    for n in 0..5 {
        pay(&caller, &clock, n);
    }
    assert_eq!(balance(&caller), credits("95"));
    clock.advance(31 * DAY_MS);
    let other = forget_the_silent(&server, &clock, &caller, 10);
    pay(&caller, &clock, 11);
    pay(&caller, &clock, 12);
    assert_eq!(balance(&caller), credits("92"));
    assert_eq!(balance(&on_node(&other, &caller)), credits("92"));
    audit_is_clean(&idle);
}

/// A debit of a journal that is older than what Redis remembers is neither taken nor lost.
#[test]
fn a_debit_whose_producer_was_forgotten_is_not_taken_again() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let first = node(&server, &clock);
    let caller = caller_of(&first, "acme", "100", LimitOverrides::default());
    let AccountHandle::Redis(_, account) = &caller.place else {
        panic!()
    };
    let number = redis_of(&first).next_number(account);
    pay(&caller, &clock, 1);
    let owed = || owed(account, number, Origin::Adopted);
    let queue = |debit| redis_of(&first).shared.shards.queue_of(account).queue.settle(debit);
    queue(owed());
    assert_eq!(balance(&caller), credits("98"));
    clock.advance(31 * DAY_MS);
    let _other = forget_the_silent(&server, &clock, &caller, 10);
    queue(owed());
    queue(owed());
    assert_eq!(balance(&caller), credits("97"));
    audit_is_clean(&first);
}

/// Redis has lost its scripts: it says that the first try was not run, and the second that its producer is forgotten.
#[test]
fn an_own_debit_that_was_never_run_is_taken_under_another_number() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let first = node(&server, &clock);
    let caller = caller_of(&first, "acme", "100", LimitOverrides::default());
    let AccountHandle::Redis(_, account) = &caller.place else {
        panic!()
    };
    let number = redis_of(&first).next_number(account);
    pay(&caller, &clock, 1);
    assert_eq!(balance(&caller), credits("99"));
    clock.advance(31 * DAY_MS);
    let _other = forget_the_silent(&server, &clock, &caller, 10);
    server.ask("SCRIPT FLUSH");
    let shard = redis_of(&first).shared.shards.queue_of(account);
    shard.queue.settle(owed(account, number, Origin::Own));
    assert_eq!(balance(&caller), credits("97"));
    audit_is_clean(&first);
}

/// One gateway's clock is 60 days behind, another's 400 days ahead.
#[test]
fn a_producer_is_born_by_redis_clock() {
    let server = RedisServer::start();
    for apart_days in [-60, 400] {
        let options = Options {
            redis_clock: Some(Clock::manual(NOW)),
            ..patient(Clock::manual(NOW.plus_millis(apart_days * DAY_MS)))
        };
        let store = RedisLedger::connect(&server.url(), options).unwrap();
        let born = store.shared.producer.current().born();
        assert_eq!(born, Birth::at(NOW), "{apart_days}");
    }
}

/// The clock runs 400 days ahead while calls run, and back: all producers are taken for silent, and no debit is lost or doubled.
#[test]
fn a_clock_400_days_off_and_back_bills_each_call_once() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOW);
    let options = || Options {
        hold_ttl: std::time::Duration::from_secs(3_600),
        ..patient(clock.clone())
    };
    let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), options()).unwrap());
    let caller = caller_of(&ledger, "acme", "100", LimitOverrides::default());
    pay(&caller, &clock, 1);
    let mut running = block_on(caller.reserve(&request(2, "1"))).unwrap().unwrap();
    running.pass(crate::pure::usage::CompletionTokens(1), None);
    assert_eq!(balance(&caller), credits("99"));
    clock.advance(400 * DAY_MS);
    let other = forget_the_silent(&server, &clock, &caller, 10);
    running.settle(debit("1"));
    pay(&caller, &clock, 3);
    assert_eq!(balance(&caller), credits("96"));
    clock.advance(-400 * DAY_MS);
    for n in 4..8 {
        pay(&caller, &clock, n);
    }
    assert_eq!(balance(&caller), credits("92"));
    audit_is_clean(&other);
}

/// Redis' clock is 40 days ahead: whoever was silent for a month is forgotten all the same, and nobody else, so what they owe is taken.
#[test]
fn a_clock_of_redis_that_is_ahead_makes_nobody_silent() {
    let server = RedisServer::start();
    let (clock, redis) = (Clock::manual(NOW), Clock::manual(NOW));
    let node = || {
        let options = Options {
            redis_clock: Some(redis.clone()),
            ..patient(clock.clone())
        };
        Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap())
    };
    let silent = node();
    let caller = caller_of(&silent, "acme", "100", LimitOverrides::default());
    pay(&caller, &redis, 1);
    assert_eq!(balance(&caller), credits("99"));
    clock.advance(31 * DAY_MS);
    redis.advance(31 * DAY_MS);
    let second = node();
    let theirs = on_node(&second, &caller);
    let AccountHandle::Redis(_, account) = &theirs.place else {
        panic!()
    };
    let number = redis_of(&second).next_number(account);
    pay(&theirs, &redis, 2);
    assert_eq!(balance(&theirs), credits("98"));
    redis.advance(40 * DAY_MS);
    let third = node();
    let caller = on_node(&third, &caller);
    pay(&caller, &redis, 3);
    assert_eq!(balance(&caller), credits("97"));
    until("the silent producer is forgotten", || {
        server.ask("HGET tg1:{acme} forgotten") != ["$-1"]
    });
    let shard = redis_of(&second).shared.shards.queue_of(account);
    shard.queue.settle(owed(account, number, Origin::Adopted));
    assert_eq!(balance(&theirs), credits("96"));
    audit_is_clean(&third);
}

/// Redis' clock is 40 days behind while a gateway's calls are billed, and is set right: that gateway was not silent, neither where it had
/// billed before nor where it had not.
#[test]
fn whoever_bills_while_redis_clock_is_behind_is_not_silent() {
    for has_billed_before in [true, false] {
        let server = RedisServer::start();
        let (clock, redis) = (Clock::manual(NOW), Clock::manual(NOW));
        let node = || {
            let options = Options {
                redis_clock: Some(redis.clone()),
                ..patient(clock.clone())
            };
            Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap())
        };
        let silent = node();
        let caller = caller_of(&silent, "acme", "100", LimitOverrides::default());
        pay(&caller, &redis, 1);
        assert_eq!(balance(&caller), credits("99"));
        clock.advance(31 * DAY_MS);
        redis.advance(31 * DAY_MS);
        let second = node();
        let theirs = on_node(&second, &caller);
        let elsewhere = caller_of(&second, "other", "100", LimitOverrides::default());
        let before = if has_billed_before { &theirs } else { &elsewhere };
        pay(before, &redis, 2);
        balance(before);
        redis.advance(-40 * DAY_MS);
        let AccountHandle::Redis(_, account) = &theirs.place else {
            panic!()
        };
        pay(&theirs, &redis, 3);
        let left = balance(&theirs);
        let number = redis_of(&second).next_number(account);
        redis.advance(40 * DAY_MS);
        let third = node();
        let caller = on_node(&third, &caller);
        pay(&caller, &redis, 4);
        balance(&caller);
        until("the silent producer is forgotten", || {
            server.ask("HGET tg1:{acme} forgotten") != ["$-1"]
        });
        let shard = redis_of(&second).shared.shards.queue_of(account);
        shard.queue.settle(owed(account, number, Origin::Adopted));
        let after = left.checked_sub(credits("2")).unwrap();
        assert_eq!(balance(&theirs), after, "{has_billed_before}");
        audit_is_clean(&third);
    }
}
