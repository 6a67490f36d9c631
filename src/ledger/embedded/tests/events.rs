//! Events for webhooks outlive the process, and so does what was told.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::posts::thread;
use super::{NOW, Rig, credits, open, rig};
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::events::{Delivery, Event, EventKind, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::embedded::Embedded;
use crate::ledger::embedded::events::LOOK_KEPT_MS;
use crate::ledger::embedded::told::ToldOf;
use crate::ledger::events::{KEEP_MS, Refused};
use crate::ledger::sqlite::Database;
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::rig::{block_on, debit, key_create, request};
use crate::pure::account::Denial;
use crate::pure::ids::{ApiKey, KeyDigest, KeyId};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

const LEASE_MS: i64 = 60_000;

fn claim(store: &Embedded) -> Vec<Event> {
    let op = EventOp::Claim {
        limit: 100,
        lease_ms: LEASE_MS,
    };
    match store.run_blocking(AdminOp::Event(op)).unwrap() {
        AdminReply::Events { events, .. } => events,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_told_is_known_after_a_restart_and_what_was_claimed_is_due() {
    let rig = rig();
    let (folder, key) = (rig.folder, rig.key);
    let low = TermsChange {
        low_balance_pico: Some(Some(credits("9").pico())),
        ..TermsChange::default()
    };
    let account = "acme".parse().unwrap();
    rig.store
        .run_blocking(AdminOp::Account(AccountOp::Terms { account, change: low }))
        .unwrap();
    let mut store = rig.store;
    let mut kinds = Vec::new();
    for round in 0..3 {
        let ledger = Ledger::Embedded(Arc::clone(&store));
        let found = block_on(ledger.authenticate(&key)).unwrap().unwrap();
        let caller = found.checked(super::NOW).unwrap();
        let hold = block_on(caller.reserve(&request(round, "2"))).unwrap().unwrap();
        hold.settle(debit("2"));
        block_on(caller.reserve(&request(100 + round, "100")))
            .unwrap()
            .unwrap_err();
        drop((caller, ledger));
        store.close();
        drop(store);
        store = open(&folder);
        kinds.push(claim(&store).iter().map(|event| event.kind).collect::<Vec<_>>());
        assert_eq!(claim(&store), [], "they are claimed");
    }
    let mut first = kinds[0].clone();
    first.sort_unstable();
    assert_eq!(
        first,
        [EventKind::LowBalance, EventKind::Exhausted, EventKind::CreditsAdded]
    );
    assert!(kinds.iter().all(|kinds| kinds.len() == 3), "{kinds:?}");
}

/// Its process dies before all refusals are written that are told: a start tells of each that is not, and of no other.
#[test]
fn of_refusals_that_a_crash_left_unwritten_events_tell_after_the_start() {
    let mut thread = thread();
    let cell = Arc::clone(&thread.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    let denial = cell.state().reserve(&request(1, "100"), NOW).unwrap_err();
    let Denial::Credit { rate, .. } = denial else {
        panic!("{denial:?}");
    };
    let (quota, held) = (credits("9"), Credits::ZERO);
    let by_credit = |left: &str| Denial::Credit {
        available: credits(left),
        held,
        rate,
    };
    let by_quota = |used: &str| Denial::Quota {
        used: credits(used),
        held,
        rate,
    };
    // A large call, and the end.
    let denials = [by_credit("5"), by_quota("4"), by_credit("0"), by_quota("9")];
    let all: Vec<Refused> = denials
        .iter()
        .filter_map(|denial| cell.told.to_tell(denial, quota, NOW))
        .collect();
    assert_eq!(all.len(), denials.len());
    for (written, refused) in (1..).zip(&all) {
        thread.committer.raise_refused(&cell, refused);
        let told = ToldOf::new(thread.committer.database.told().unwrap()["acme"]);
        let tells = denials.map(|denial| told.to_tell(&denial, quota, NOW).is_some());
        let expected = [1, 2, 3, 4].map(|n| n > written);
        assert_eq!(tells, expected, "{written} are written");
    }
}

/// What is settled was tried and failed, and is due again then.
fn settle(store: &Embedded, event: &Event, due: Timestamp) {
    let again = Delivery {
        url: "https://example.com/x".to_owned(),
        failed: 1,
        due,
        done: false,
    };
    let op = EventOp::Settle {
        id: event.id.clone(),
        account: event.account.clone(),
        deliveries: vec![again],
        is_dropped: false,
    };
    store.run_blocking(AdminOp::Event(op)).unwrap();
}

fn credit(store: &Embedded, reference: &str) {
    let add = AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits("1"),
        reference: reference.to_owned(),
    };
    store.run_blocking(add).unwrap();
}

/// The ids of events that are due, of which none is too old.
fn told(store: &Embedded) -> Vec<String> {
    let events = claim(store);
    assert!(events.iter().all(|event| !event.is_too_old), "{events:?}");
    events.into_iter().map(|event| event.id).collect()
}

#[test]
fn a_clock_that_is_ahead_for_a_moment_loses_no_event() {
    let rig = rig();
    let folder = rig.folder;
    drop(rig.store);
    let four_days = KEEP_MS + 86_400_000;
    let path = folder.path().join("ledger.db");
    // Set ahead while it runs, and ahead from the start.
    for (from, in_all) in [(0, 2), (four_days, 3)] {
        let clock = Clock::manual(NOW.plus_millis(from));
        let store = Embedded::open(&path, clock.clone()).unwrap();
        clock.set_by(four_days - from);
        clock.advance(1_000);
        let events = claim(&store);
        assert!(
            !events.is_empty() && events.iter().all(|event| !event.is_too_old),
            "{events:?}"
        );
        for event in &events {
            settle(&store, event, clock.now().plus_millis(1_000));
        }
        // Whatever is raised deletes what is too old.
        credit(&store, &format!("from {from}"));
        clock.set_by(-four_days);
        // Until it was due by the clock that was ahead it is claimed.
        clock.advance(1_000);
        let left = told(&store);
        assert!(events.iter().all(|event| left.contains(&event.id)), "{left:?}");
        assert_eq!(left.len(), in_all, "{left:?}");
        store.close();
    }
}

#[test]
fn an_event_is_too_old_once_three_days_have_passed() {
    let rig = rig();
    let folder = rig.folder;
    drop(rig.store);
    let clock = Clock::manual(NOW);
    let store = Embedded::open(&folder.path().join("ledger.db"), clock.clone()).unwrap();
    for (passes, is_too_old) in [(KEEP_MS, false), (1, true)] {
        clock.advance(passes);
        let [event] = claim(&store).try_into().unwrap();
        assert_eq!(event.is_too_old, is_too_old, "{passes}");
        // Whoever claimed it has died.
        clock.advance(LEASE_MS * i64::from(!is_too_old));
    }
}

/// Only the time at which it is due protected it: it was claimed at once where the clock was a minute ahead, or an hour back.
#[test]
fn a_clock_that_is_set_gives_away_no_event_that_is_claimed_for_longer() {
    for (due_ms, set_by) in [
        (LEASE_MS, 86_400_000),
        (LEASE_MS, -7_200_000),
        // To be tried later: claimed no longer than any other.
        (15 * LEASE_MS, 86_400_000),
    ] {
        for is_set_first in [true, false] {
            let rig = rig();
            let folder = rig.folder;
            drop(rig.store);
            let clock = Clock::manual(NOW);
            let store = Embedded::open(&folder.path().join("ledger.db"), clock.clone()).unwrap();
            let [event] = claim(&store).try_into().unwrap();
            if is_set_first {
                clock.set_by(set_by);
            }
            clock.advance(10_000);
            // As whoever claimed it counts.
            settle(&store, &event, NOW.plus_millis(10_000 + due_ms));
            if !is_set_first {
                clock.set_by(set_by);
            }
            let case = format!("due after {due_ms} ms, set by {set_by} ms, before it is settled: {is_set_first}");
            for (passes, open) in [(0, 0), (LEASE_MS - 1, 0), (1, 1)] {
                clock.advance(passes);
                assert_eq!(claim(&store).len(), open, "{case}");
            }
            store.close();
        }
    }
}

#[test]
fn an_event_that_is_put_off_is_claimed_as_soon_as_it_is_due() {
    let rig = rig();
    let folder = rig.folder;
    drop(rig.store);
    let clock = Clock::manual(NOW);
    let store = Embedded::open(&folder.path().join("ledger.db"), clock.clone()).unwrap();
    let [event] = claim(&store).try_into().unwrap();
    for due_ms in [1_000, 3 * LEASE_MS] {
        settle(&store, &event, clock.now().plus_millis(due_ms));
        for (passes, open) in [(due_ms - 1, 0), (1, 1)] {
            clock.advance(passes);
            assert_eq!(claim(&store).len(), open, "due after {due_ms} ms");
        }
    }
}

/// Whoever raises it may take a while. In Redis its time is that of Redis.
#[test]
fn an_event_of_the_gateways_own_has_the_time_that_it_came_with() {
    let rig = rig();
    let at = NOW.plus_millis(-60_000);
    let event = Event::new(
        "evt_own".to_owned(),
        EventKind::ProviderDown,
        at,
        None,
        serde_json::json!({}),
    );
    rig.store.run_blocking(AdminOp::Event(EventOp::Raise(event))).unwrap();
    let times: Vec<_> = claim(&rig.store).iter().map(|event| (event.kind, event.at)).collect();
    assert!(times.contains(&(EventKind::ProviderDown, at)), "{times:?}");
}

/// Makes keys of acme that expire in five days: more than the ledger's thread looks at at once.
fn make_keys(store: &Embedded) -> Vec<KeyDigest> {
    let digests = (0..250_u8).map(|n| {
        let mut random = [77; 32];
        random[0] = n;
        ApiKey::from_random("tg_", random).digest()
    });
    let digests: Vec<KeyDigest> = digests.collect();
    for digest in &digests {
        let mut create = key_create("acme", digest);
        if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
            *expires_in_ms = Some(5 * 86_400_000);
        }
        store.run_blocking(create).unwrap();
    }
    digests
}

/// Which keys are told of now.
fn told_keys(store: &Embedded) -> Vec<String> {
    let claimed = std::iter::repeat_with(|| claim(store)).take_while(|some| !some.is_empty());
    let of_keys = claimed.flatten().filter(|event| event.kind == EventKind::KeyExpiring);
    of_keys
        .map(|event| event.data["key"].as_str().unwrap().to_owned())
        .collect()
}

/// Asks for a part of a look at keys: whether it was the last.
fn look_is_whole(store: &Embedded) -> bool {
    let looked = store.run_blocking(AdminOp::Event(EventOp::RaiseExpiring));
    looked.unwrap() == AdminReply::Done
}

/// The others waited for five minutes, and so did each further part of them.
#[test]
fn one_look_tells_all_keys_that_expire_however_many_unless_it_is_given_up() {
    let rig = rig();
    claim(&rig.store);
    make_keys(&rig.store);
    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    let look = |is_given_up| block_on(ledger.raise_expiring(&AtomicBool::new(is_given_up)));
    let told = || told_keys(&rig.store).len();
    assert_eq!((look(true), told()), (Ok(false), 0));
    // That of the rig expires in a second.
    assert_eq!((look(false), told()), (Ok(true), 251));
    assert_eq!((look(false), told()), (Ok(true), 0));
}

/// Each part looked at all that were told before, and others waited for the ledger's thread.
#[test]
fn the_thread_looks_at_some_keys_at_once_though_they_are_told_and_keeps_no_look_that_is_given_up() {
    let rig = rig();
    make_keys(&rig.store);
    for _ in 0..2 {
        assert!(!look_is_whole(&rig.store));
        assert!(look_is_whole(&rig.store));
    }
    assert!(!look_is_whole(&rig.store));
    rig.store.shared.clock.advance(LOOK_KEPT_MS);
    assert!(!look_is_whole(&rig.store), "this is the first part of another");
    rig.store.shared.clock.advance(LOOK_KEPT_MS - 1);
    assert!(look_is_whole(&rig.store));
}

#[test]
fn a_key_that_is_revoked_between_two_parts_of_a_look_is_not_told() {
    let rig = rig();
    claim(&rig.store);
    let mut digests = make_keys(&rig.store);
    digests.push(rig.key);
    assert!(!look_is_whole(&rig.store));
    let told = told_keys(&rig.store);
    digests.retain(|digest| !told.iter().any(|key| key == KeyId::of(digest).as_str()));
    assert_eq!((told.len(), digests.len()), (200, 51));
    for digest in digests {
        let key = KeyRef::Digest(digest.to_hex());
        rig.store.run_blocking(AdminOp::KeyRevoke { key }).unwrap();
    }
    assert!(look_is_whole(&rig.store));
    assert_eq!(told_keys(&rig.store), [""; 0]);
}

/// A machine boots with a clock that is behind, in 1970 where it has no battery, and it is set right once credit was paid in.
#[test]
fn an_event_of_a_clock_that_was_behind_is_told_though_it_is_set_right() {
    for behind_ms in [KEEP_MS + 2 * 86_400_000, NOW.0] {
        let Rig { folder, store, .. } = rig();
        store.close();
        drop(store);
        let path = folder.path().join("ledger.db");
        Database::open(&path).unwrap().keep_known_time(NOW).unwrap();
        let clock = Clock::manual(NOW.plus_millis(-behind_ms));
        let store = Embedded::open(&path, clock.clone()).unwrap();
        let pay = |reference: &str| {
            let add = AdminOp::CreditsAdd {
                account: "acme".parse().unwrap(),
                amount: credits("1"),
                reference: reference.to_owned(),
            };
            store.run_blocking(add).unwrap();
        };
        let told = || {
            let paid = claim(&store).into_iter().map(|event| {
                assert!(!event.is_too_old, "{event:?}");
                event.data["reference"].clone()
            });
            paid.collect::<Vec<_>>()
        };
        pay("behind");
        assert_eq!(told(), ["behind", "A"], "at once");
        clock.set_by(behind_ms);
        clock.advance(LEASE_MS);
        pay("set right");
        assert_eq!(told(), ["behind", "A", "set right"], "{behind_ms}");
    }
}
