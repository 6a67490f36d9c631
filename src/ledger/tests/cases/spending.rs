//! Hard limits of keys and their end users.

use std::sync::Arc;

use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request, request_at};
use crate::ledger::{Caller, Debit, Hold};
use crate::pure::account::{Denial, Extended, ReserveRequest, Spent};
use crate::pure::estimate::HoldRange;
use crate::pure::ids::KeyDigest;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::spend::{EndUserId, Reset, Spender};
use crate::pure::time::Timestamp;

/// The caller as it is after the key was changed.
fn changed(rig: &Rig, caller: &Caller, change: KeyChange) -> Caller {
    let key = KeyRef::Id(caller.key.id.clone());
    let change = Box::new(change);
    let AdminReply::Key(record) = rig.run(AdminOp::KeySet { key, change }).unwrap() else {
        panic!("no key");
    };
    assert_eq!(record.id, caller.key.id);
    Caller {
        key: Arc::new(record),
        ..caller.clone()
    }
}

fn limited(rig: &Rig, caller: &Caller, limit: &str, reset: Reset) -> Caller {
    let change = KeyChange {
        limit: Some(AmountChange::To(credits(limit))),
        limit_reset: Some(reset),
        ..KeyChange::default()
    };
    changed(rig, caller, change)
}

/// A reserve of exactly this amount by a request that came `at`.
fn ask(caller: &Caller, (n, at): (u64, Timestamp), wanted: &str, end_user: Option<&str>) -> ReserveRequest {
    ReserveRequest {
        id: request_at(n, at),
        spend: caller.key.settings.spend(&caller.key.id, end_user.map(EndUserId::of)),
        ..request(n, wanted)
    }
}

fn debit_of(caller: &Caller, cost: &str) -> Debit {
    Debit {
        key: caller.key.id.clone(),
        ..debit(cost)
    }
}

fn spent(caller: &Caller, reset: Reset) -> Spent {
    block_on(caller.key_spent(reset)).unwrap()
}

fn of(spent: &str, held: &str) -> Spent {
    Spent {
        spent: credits(spent),
        held: credits(held),
    }
}

pub(super) fn a_keys_limit_is_as_hard_as_the_balance(rig: &Rig) {
    let caller = limited(rig, &rig.caller("100"), "1", Reset::Daily);
    let first = rig.reserve(&caller, &ask(&caller, (1, NOW), "0.7", None)).unwrap();
    assert_eq!(spent(&caller, Reset::Daily), of("0", "0.7"));
    let denial = rig.reserve(&caller, &ask(&caller, (2, NOW), "0.4", None)).unwrap_err();
    assert!(
        matches!(denial, Denial::Spent { spender: Spender::Key, spent, held, .. } if spent == Credits::ZERO && held == credits("0.7")),
        "{denial:?}"
    );
    let range = ReserveRequest {
        at_least: credits("0.1"),
        ..ask(&caller, (3, NOW), "0.4", None)
    };
    let less = rig.reserve(&caller, &range).unwrap();
    assert_eq!(less.amount(), credits("0.3"));
    first.settle(debit_of(&caller, "0.25"));
    less.release();
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
    assert_eq!(spent(&caller, Reset::Daily), of("0.25", "0"));
    // Another key of the account is free, and so is this one when its limit is taken away; what it spent stays.
    let other = rig.caller_of("acme", "0", LimitOverrides::default());
    rig.reserve(&other, &ask(&other, (4, NOW), "50", None))
        .unwrap()
        .release();
    let none = KeyChange {
        limit: Some(AmountChange::Removed),
        ..KeyChange::default()
    };
    let free = changed(rig, &caller, none);
    let dear = rig.reserve(&free, &ask(&free, (5, NOW), "10", None)).unwrap();
    dear.settle(debit_of(&free, "5"));
    let again = limited(rig, &free, "5.5", Reset::Daily);
    assert_eq!(spent(&again, Reset::Daily), of("5.25", "0"));
    assert!(rig.reserve(&again, &ask(&again, (6, NOW), "0.26", None)).is_err());
    rig.reserve(&again, &ask(&again, (7, NOW), "0.25", None))
        .unwrap()
        .release();
    let revoke = AdminOp::KeyRevoke {
        key: KeyRef::Id(again.key.id.clone()),
    };
    rig.run(revoke).unwrap();
    assert_eq!(spent(&again, Reset::Daily).spent, credits("5.25"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_limit_that_comes_later_counts_what_was_spent_before(rig: &Rig) {
    let caller = rig.caller("100");
    for (n, days, cost) in [(1, 0, "1"), (2, 1, "2"), (3, 3, "4")] {
        let at = NOW.plus_millis(days * 86_400_000);
        rig.clock.advance(at.since(rig.clock.now()));
        let hold = rig.reserve(
            &caller,
            &ReserveRequest {
                expires: at.plus_millis(60_000),
                ..ask(&caller, (n, at), "5", None)
            },
        );
        hold.unwrap().settle(debit_of(&caller, cost));
        rig.figures(&caller);
    }
    // 2026-11-20 is a Friday, and now it is Monday.
    let now = rig.clock.now();
    let running = ReserveRequest {
        expires: now.plus_millis(60_000),
        ..ask(&caller, (4, now), "5", None)
    };
    let running = rig.reserve(&caller, &running).unwrap();
    let caller = limited(rig, &caller, "10", Reset::Weekly);
    let sums = |reset| spent(&caller, reset).spent;
    assert_eq!(Reset::ALL.map(sums), ["7", "4", "4", "7"].map(credits));
    // What ran when the limit came counts when it ends.
    running.settle(debit_of(&caller, "3"));
    rig.figures(&caller);
    assert_eq!(Reset::ALL.map(sums), ["10", "7", "7", "10"].map(credits));
    let more = |n, wanted| ReserveRequest {
        expires: now.plus_millis(60_000),
        ..ask(&caller, (n, now), wanted, None)
    };
    assert!(rig.reserve(&caller, &more(5, "3.1")).is_err());
    rig.reserve(&caller, &more(5, "3")).unwrap().release();
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_stream_over_midnight_counts_on_the_day_on_which_it_came(rig: &Rig) {
    let caller = limited(rig, &rig.caller("100"), "1", Reset::Daily);
    let late = NOW.plus_millis(86_399_999);
    rig.clock.advance(86_399_999);
    let open = |n, at: Timestamp, wanted| {
        let asked = ReserveRequest {
            expires: at.plus_millis(60_000),
            ..ask(&caller, (n, at), wanted, None)
        };
        rig.reserve(&caller, &asked)
    };
    let streams: Vec<_> = (1..=10).map(|n| open(n, late, "0.1").unwrap()).collect();
    assert!(open(11, late, "0.1").is_err());
    assert_eq!(spent(&caller, Reset::Daily), of("0", "1"));
    rig.clock.advance(1);
    let early = rig.clock.now();
    assert_eq!(spent(&caller, Reset::Daily), of("0", "0"));
    assert_eq!(spent(&caller, Reset::None), of("0", "1"));
    let next: Vec<_> = (21..=30).map(|n| open(n, early, "0.1").unwrap()).collect();
    assert!(open(31, early, "0.1").is_err());
    streams
        .into_iter()
        .for_each(|hold| hold.settle(debit_of(&caller, "0.08")));
    assert_eq!(rig.figures(&caller).held, credits("1"));
    assert_eq!(spent(&caller, Reset::Daily), of("0", "1"));
    assert_eq!(spent(&caller, Reset::None), of("0.8", "1"));
    assert!(open(32, early, "0.1").is_err());
    next.into_iter().for_each(|hold| hold.settle(debit_of(&caller, "0.1")));
    assert_eq!(rig.figures(&caller).balance, credits("98.2"));
    assert_eq!(spent(&caller, Reset::Daily), of("1", "0"));
    assert_eq!(spent(&caller, Reset::None), of("1.8", "0"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn each_end_user_has_a_limit_of_its_own(rig: &Rig) {
    let change = KeyChange {
        end_user_limit: Some(AmountChange::To(credits("1"))),
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    };
    let caller = changed(rig, &rig.caller("100"), change);
    let open = |n, wanted, name| rig.reserve(&caller, &ask(&caller, (n, NOW), wanted, Some(name)));
    open(1, "1", "anna").unwrap().settle(debit_of(&caller, "0.6"));
    let hold = open(2, "0.3", "anna").unwrap();
    let denial = open(3, "0.2", "anna").unwrap_err();
    assert!(
        matches!(denial, Denial::Spent { spender: Spender::EndUser, spent, held, .. } if spent == credits("0.6") && held == credits("0.3")),
        "{denial:?}"
    );
    open(4, "1", "bob").unwrap().settle(debit_of(&caller, "1"));
    assert!(open(5, "0.000000000001", "bob").is_err());
    hold.release();
    rig.figures(&caller);
    open(6, "0.4", "anna").unwrap().settle(debit_of(&caller, "0.4"));
    assert!(open(7, "0.000000000001", "anna").is_err());
    // The key as a whole has none, and each day begins anew.
    assert_eq!(spent(&caller, Reset::None).spent, credits("2"));
    let tomorrow = NOW.plus_millis(86_400_000);
    rig.clock.advance(86_400_000);
    let asked = ReserveRequest {
        expires: tomorrow.plus_millis(60_000),
        ..ask(&caller, (8, tomorrow), "1", Some("anna"))
    };
    rig.reserve(&caller, &asked).unwrap().release();
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_debit_after_its_hold_expired_counts_under_its_limits(rig: &Rig) {
    let change = KeyChange {
        limit: Some(AmountChange::To(credits("1"))),
        end_user_limit: Some(AmountChange::To(credits("1"))),
        ..KeyChange::default()
    };
    let caller = changed(rig, &rig.caller("100"), change);
    let short = ReserveRequest {
        expires: NOW.plus_millis(5),
        ..ask(&caller, (1, NOW), "0.9", Some("anna"))
    };
    let hold = rig.reserve(&caller, &short).unwrap();
    rig.clock.advance(10);
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
    assert_eq!(spent(&caller, Reset::None), of("0", "0"));
    hold.settle(debit_of(&caller, "0.8"));
    assert_eq!(rig.figures(&caller).balance, credits("99.2"));
    assert_eq!(spent(&caller, Reset::None), of("0.8", "0"));
    let open = |n, name| rig.reserve(&caller, &ask(&caller, (n, NOW), "0.2", Some(name)));
    let _last = open(2, "anna").unwrap();
    assert!(matches!(
        open(3, "bob"),
        Err(Denial::Spent {
            spender: Spender::Key,
            ..
        })
    ));
    audit_is_clean(&rig.ledger);
}

/// Over more than a year, with a debit that comes when its week is long forgotten.
pub(super) fn what_was_spent_long_ago_is_nothing_to_a_limit_of_now(rig: &Rig) {
    let caller = limited(rig, &rig.caller("100"), "1", Reset::Weekly);
    let open = |n, at: Timestamp, wanted| {
        let expires = at.plus_millis(60_000);
        rig.reserve(
            &caller,
            &ReserveRequest {
                expires,
                ..ask(&caller, (n, at), wanted, None)
            },
        )
    };
    let late = open(1, NOW, "0.9").unwrap();
    for n in 1..=60 {
        rig.clock.advance(7 * 86_400_000);
        let now = rig.clock.now();
        open(10 * n, now, "0.6").unwrap().settle(debit_of(&caller, "0.6"));
        assert_eq!(spent(&caller, Reset::Weekly), of("0.6", "0"));
        assert!(open(10 * n + 1, now, "0.5").is_err());
        open(10 * n + 2, now, "0.4").unwrap().release();
    }
    assert_eq!(spent(&caller, Reset::None), of("36", "0"));
    late.settle(debit_of(&caller, "0.8"));
    assert_eq!(rig.figures(&caller).balance, credits("63.2"));
    assert_eq!(spent(&caller, Reset::Weekly), of("0.6", "0"));
    assert_eq!(spent(&caller, Reset::None), of("36.8", "0"));
    audit_is_clean(&rig.ledger);
}

/// The limits of account, key and end user in every order of tightness: as many win as the tightest lets through.
pub(super) fn of_many_callers_as_many_win_as_the_tightest_limit_lets(rig: &Rig) {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (at, order) in orders.into_iter().enumerate() {
        let amounts = order.map(|place| ["0.4", "0.6", "0.8"][place]);
        let caller = rig.caller_of(&format!("acme-{at}"), amounts[0], LimitOverrides::default());
        let change = KeyChange {
            limit: Some(AmountChange::To(credits(amounts[1]))),
            end_user_limit: Some(AmountChange::To(credits(amounts[2]))),
            ..KeyChange::default()
        };
        let caller = changed(rig, &caller, change);
        let won = on_workers(8, |worker| {
            let numbers = (0..25).map(|n| 1 + n + 25 * u64::try_from(worker).unwrap());
            let holds = numbers.filter_map(|n| {
                block_on(caller.reserve(&ask(&caller, (n, NOW), "0.01", Some("anna"))))
                    .unwrap()
                    .ok()
            });
            let holds: Vec<_> = holds.collect();
            let count = holds.len();
            holds
                .into_iter()
                .for_each(|hold| hold.settle(debit_of(&caller, "0.01")));
            count
        });
        assert_eq!(won.iter().sum::<usize>(), 40, "{order:?}");
        rig.figures(&caller);
        assert_eq!(spent(&caller, Reset::None), of("0.4", "0"), "{order:?}");
    }
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_key_keeps_its_settings(rig: &Rig) {
    let caller = rig.caller("1");
    let change = KeyChange {
        label: Some("ci".to_owned()),
        models: Some(vec!["a/*".parse().unwrap()]),
        addresses: Some(vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]),
        limit: Some(AmountChange::To(credits("2.5"))),
        limit_reset: Some(Reset::Weekly),
        ..KeyChange::default()
    };
    let settings = changed(rig, &caller, change.clone()).key.settings.clone();
    assert_eq!(settings, change.applied(&KeySettings::default()).unwrap());
    let list = AdminOp::KeyList {
        account: caller.account.id.clone(),
    };
    let AdminReply::Keys { keys, .. } = rig.run(list).unwrap() else {
        panic!("no keys");
    };
    assert_eq!(keys.iter().map(|key| &key.settings).collect::<Vec<_>>(), [&settings]);
    let bad = |change| {
        let change = Box::new(change);
        let key = KeyRef::Id(caller.key.id.clone());
        assert!(matches!(
            rig.run(AdminOp::KeySet { key, change }),
            Err(AdminError::Invalid(_))
        ));
    };
    bad(KeyChange {
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    });
    bad(KeyChange {
        label: Some("x".repeat(101)),
        ..KeyChange::default()
    });
    let unknown = KeyRef::Digest(KeyDigest::from_bytes([7; 32]).to_hex());
    let set = AdminOp::KeySet {
        key: unknown,
        change: Box::default(),
    };
    assert_eq!(rig.run(set), Err(AdminError::NoKey));
}

pub(super) fn a_raised_hold_stays_within_its_limits(rig: &Rig) {
    let caller = limited(rig, &rig.caller("100"), "1", Reset::Daily);
    let end_users = KeyChange {
        end_user_limit: Some(AmountChange::To(credits("0.8"))),
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    };
    let caller = changed(rig, &caller, end_users);
    let raise = |hold: &mut Hold, wanted: &str, at_least: &str| {
        let range = HoldRange {
            wanted: credits(wanted),
            at_least: credits(at_least),
        };
        let extended = block_on(hold.extension(range, Credits::MAX)).unwrap();
        if let Extended::To(amount) = extended {
            hold.extended(amount);
        }
        extended
    };
    let mut anna = rig
        .reserve(&caller, &ask(&caller, (1, NOW), "0.5", Some("anna")))
        .unwrap();
    assert_eq!(raise(&mut anna, "0.9", "0.9"), Extended::Refused);
    assert_eq!(raise(&mut anna, "0.9", "0.6"), Extended::To(credits("0.8")));
    let mut bob = rig
        .reserve(&caller, &ask(&caller, (2, NOW), "0.1", Some("bob")))
        .unwrap();
    assert_eq!(raise(&mut bob, "0.3", "0.3"), Extended::Refused);
    assert_eq!(raise(&mut bob, "0.3", "0.1"), Extended::To(credits("0.2")));
    assert_eq!(spent(&caller, Reset::Daily), of("0", "1"));
    anna.release();
    bob.release();
    assert_eq!(spent(&caller, Reset::Daily), of("0", "0"));
    audit_is_clean(&rig.ledger);
}
