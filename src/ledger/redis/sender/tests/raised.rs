//! Holds that were raised, and that a server which lost its last moments has as they were before.

use super::*;
use crate::ledger::redis::extend::extend_command;
use crate::ledger::redis::script::{EXTEND, EvalMode};
use crate::pure::estimate::HoldRange;

const TTL_MS: u64 = 90_000;

/// A settler that has seen at `replaced_ms` that its server was replaced.
fn after(shared: &Arc<Shared>, replaced_ms: u64) -> Settler {
    let mut settler = settler(shared);
    settler.replaced_ms = Some(replaced_ms);
    settler
}

/// A hold that Redis has at 2, and this process at 5 since `raised_ms`.
fn lowered(shared: &Shared, acme: &Arc<Account>, raised_ms: u64) -> Arc<Cover> {
    let held = block_on(shared.try_reserve(&Link::default(), acme, (&request(1, "2"), true), &mut None));
    held.unwrap().unwrap();
    let hold = open_hold(acme, "2", TTL_MS);
    let cover = Arc::clone(&hold.cover);
    shared.holds.insert(request_id(1), hold);
    shared.holds.extended(request_id(1), credits("5"), raised_ms);
    cover
}

fn held(shared: &Shared, acme: &Account) -> Credits {
    let view = block_on(shared.view(&Link::default(), acme.id()));
    view.unwrap().figures.held
}

#[test]
fn a_hold_is_raised_again_where_redis_has_it_as_it_was_before() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let cover = lowered(&shared, &acme, 1_000);
    let mut settler = after(&shared, 1_000);
    block_on(settler.renew(TTL_MS / 3 - 1));
    assert_eq!(held(&shared, &acme), credits("2"), "it is not due");
    block_on(settler.renew(TTL_MS / 3));
    assert_eq!((held(&shared, &acme), cover.ended()), (credits("5"), None));
}

#[test]
fn the_call_of_a_raised_hold_ends_where_its_credit_is_gone() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let cover = lowered(&shared, &acme, 1_000);
    let other = block_on(shared.try_reserve(&Link::default(), &acme, (&request(2, "5.1"), true), &mut None));
    other.unwrap().unwrap();
    block_on(after(&shared, 1_000).renew(TTL_MS / 3));
    assert_eq!(cover.ended(), Some(Uncovered::NoCredit));
    assert!(shared.holds.known(request_id(1)).is_some(), "its settlement closes it");
    assert_eq!(held(&shared, &acme), credits("7.1"));
}

/// A server that is replaced has lost seconds, and a hold is renewed within its life: all else costs a renewal nothing.
#[test]
fn only_what_a_replaced_server_may_have_lost_is_asked_for() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let replay_ms = u64::try_from(shared.options.replay.as_millis()).unwrap();
    let replaced_ms = 1_000_000;
    let mut now_ms = replaced_ms;
    lowered(&shared, &acme, 0);
    let mut renewed = |settler: &mut Settler, raised_ms: u64, later_ms: u64| {
        shared.holds.extended(request_id(1), credits("5"), raised_ms);
        now_ms += later_ms;
        block_on(settler.renew(now_ms));
        held(&shared, &acme)
    };
    assert_eq!(
        renewed(&mut settler(&shared), replaced_ms, 0),
        credits("2"),
        "it was not replaced"
    );
    let mut settler = after(&shared, replaced_ms);
    let oldest_ms = replaced_ms - replay_ms;
    assert_eq!(
        renewed(&mut settler, oldest_ms - 1, TTL_MS / 3),
        credits("2"),
        "long before"
    );
    assert_eq!(renewed(&mut settler, oldest_ms, TTL_MS / 3), credits("5"));
}

#[test]
fn holds_are_asked_for_until_each_was_renewed_since() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    lowered(&shared, &acme, 1_000);
    block_on(after(&shared, 1_000).renew(1_000 + TTL_MS + 1));
    assert_eq!(held(&shared, &acme), credits("2"));
    block_on(after(&shared, 1_000 + TTL_MS / 2).renew(1_000 + TTL_MS + 1 + TTL_MS / 3));
    assert_eq!(held(&shared, &acme), credits("5"));
}

/// Its own call raises it further while a renewal asks.
#[test]
fn a_hold_that_is_higher_in_redis_stays_so() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    lowered(&shared, &acme, 1_000);
    let range = HoldRange {
        wanted: credits("8"),
        at_least: credits("8"),
    };
    let command = extend_command(
        &acme,
        (request_id(1), &range, Credits::MAX),
        (&shared.now_text(), EvalMode::Text),
        None,
    );
    let call = crate::ledger::redis::link::Call {
        command,
        script: Some(&EXTEND),
    };
    block_on(shared.ask(&Link::default(), &call)).unwrap();
    block_on(after(&shared, 1_000).renew(TTL_MS / 3));
    assert_eq!(held(&shared, &acme), credits("8"));
    assert_eq!(
        shared.holds.known(request_id(1)).map(|hold| hold.amount),
        Some(credits("5"))
    );
}

/// What the settler has seen, whoever serves the hold by then.
#[test]
fn a_hold_is_raised_again_after_a_server_was_replaced_and_after_its_slot_got_another_master() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    lowered(&shared, &acme, shared.now_ms());
    let mut settler = settler(&shared);
    let renewed = |settler: &mut Settler, later_ms: u64| {
        block_on(settler.renew(shared.now_ms() + later_ms));
        held(&shared, &acme)
    };
    assert_eq!(
        renewed(&mut settler, TTL_MS / 3),
        credits("2"),
        "it is the first that is seen"
    );
    settler.asked_server("another".to_owned());
    assert_eq!(renewed(&mut settler, 2 * (TTL_MS / 3)), credits("5"));

    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = crate::ledger::redis::tests::parted(&first, &second, "acme");
    let acme = make(&shared, "10");
    lowered(&shared, &acme, shared.now_ms());
    let of_acme = Settler::new(
        Arc::clone(&shared),
        shared.shards.all().remove(shared.shards.of(&acme).number),
    );
    let mut settler = of_acme;
    block_on(settler.renew(shared.now_ms() + TTL_MS / 3));
    assert_eq!(held(&shared, &acme), credits("5"), "it may be a successor's");
}
