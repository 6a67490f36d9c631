//! Events in the file: which are raised, once, and for how long they are there.

use serde_json::json;

use super::entries::post;
use super::*;
use crate::ledger::admin::credits::{CreditKind, CreditPost};
use crate::ledger::admin::events::{Delivery, Event, EventKind};
use crate::ledger::events::{
    DUE_WITHIN_MS, KEEP_MS, LEFT_UNKNOWN, OPEN_MAX, OPEN_PER_ACCOUNT_MAX, REMEMBERED_MS, Refused, Room, Told,
};
use crate::ledger::terms::AccountTerms;

fn event(id: &str, account: Option<&str>) -> Event {
    let account = account.map(|name| name.parse().unwrap());
    Event::new(id.to_owned(), EventKind::Test, NOW, account, json!({}))
}

/// That of a key that expires, which waits for room.
fn of_key(id: &str, account: &str) -> (Event, Room) {
    let event = Event {
        kind: EventKind::KeyExpiring,
        ..event(id, Some(account))
    };
    (event, Room::Awaited)
}

/// So many of them.
fn of_keys(count: u32, account: &str) -> Vec<(Event, Room)> {
    (0..count).map(|n| of_key(&format!("evt_{n}"), account)).collect()
}

impl Rig {
    /// Adds so many open events of another kind, each about the account of its number.
    fn add_open(&mut self, count: u32, account: impl Fn(u32) -> String) {
        let insert = "INSERT INTO events (id, kind, at, account, data, deliveries, due)
                      VALUES ('other' || ?1, ?2, ?3, ?4, '{}', '[]', ?3)";
        let transaction = self.database.connection.transaction().unwrap();
        for n in 0..count {
            transaction
                .prepare_cached(insert)
                .unwrap()
                .execute(rusqlite::params![n, EventKind::Test.name(), NOW.0, account(n)])
                .unwrap();
        }
        transaction.commit().unwrap();
    }

    /// Raises those of keys, some at once.
    fn raise_all(&mut self, events: &[(Event, Room)]) {
        for some in events.chunks(200) {
            self.database.raise_new(some, NOW).unwrap();
        }
    }

    fn due(&self, now: Timestamp) -> Vec<Event> {
        self.database.due_events(now, 10_000, |_| false).unwrap().0
    }

    fn ids(&self, now: Timestamp) -> Vec<String> {
        self.due(now).into_iter().map(|event| event.id).collect()
    }

    /// How many events are open, and how many were dropped.
    fn count(&self) -> (u64, u64) {
        let count = self.reader().event_count().unwrap();
        (count.open, count.dropped)
    }
}

/// A correction, which may be any amount.
fn correction(reference: &str, amount: i64) -> CreditPost {
    CreditPost {
        kind: CreditKind::Correction,
        allow_negative: true,
        ..post("acme", reference, amount)
    }
}

#[test]
fn a_balance_is_told_to_be_low_once_until_it_was_not() {
    let mut rig = Rig::new();
    let mut told = 0;
    for (step, (low, amount, balance, is_told)) in [
        (None, 10, 10, false),
        (Some(10), 1, 11, false),
        (Some(10), -1, 10, false),
        (Some(10), -1, 9, true),
        (Some(10), -1, 8, false),
        (Some(10), 2, 10, false),
        (Some(10), -1, 9, true),
        (Some(12), 1, 10, true),
        (Some(12), -1, 9, false),
        (Some(9), 0, 9, false),
        (Some(9), -1, 8, true),
    ]
    .into_iter()
    .enumerate()
    {
        let terms = AccountTerms {
            low_balance: low.map(Credits::from_pico),
            ..AccountTerms::default()
        };
        rig.database.set_terms(&acme(), &terms).unwrap();
        assert_eq!(rig.post(&correction(&step.to_string(), amount)), "added");
        assert_eq!(rig.balance(), balance);
        let due = rig.due(NOW);
        let low = due.iter().filter(|event| event.kind == EventKind::LowBalance).count();
        told += usize::from(is_told);
        assert_eq!(low, told, "step {step}");
    }
}

#[test]
fn an_account_is_exhausted_again_only_when_credit_has_come_in() {
    let mut rig = Rig::new();
    rig.change("INSERT INTO event_accounts (account, exhausted) VALUES ('acme', 1)");
    for (amount, expected) in [(-1, true), (0, true), (1, false)] {
        rig.post(&correction(&amount.to_string(), amount));
        let told = rig.database.told().unwrap();
        assert_eq!(told.get("acme").unwrap().exhausted.is_some(), expected, "{amount}");
    }
}

/// What an earlier build wrote says nothing of it.
#[test]
fn what_was_left_when_a_refusal_was_told_is_kept() {
    let mut rig = Rig::new();
    let (zero, left, quota) = (Credits::ZERO, Credits::from_pico(7), Credits::from_pico(9));
    let month = NOW.month();
    for (exhausted, of_quota) in [
        (None, Some((month, quota, left))),
        (Some(zero), None),
        (Some(Credits::from_pico(1)), Some((month, quota, zero))),
        (Some(left), Some((month, quota, left))),
    ] {
        let told = Told {
            exhausted,
            quota: of_quota,
        };
        let by_credit = Refused::Credit {
            available: zero,
            held: zero,
        };
        let by_quota = Refused::Quota {
            month,
            quota,
            used: zero,
            held: zero,
        };
        for refused in [by_credit, by_quota] {
            rig.database.raise_refused(&acme(), &refused, told, NOW).unwrap();
        }
        rig.database = Database::open(&rig.path()).unwrap();
        assert_eq!(rig.database.told().unwrap()["acme"], told);
    }
    let month = month.0;
    rig.change(&format!(
        "UPDATE event_accounts SET exhausted = 1, quota_month = {month}, quota = 10"
    ));
    let told = rig.database.told().unwrap()["acme"];
    assert_eq!(told.exhausted, Some(LEFT_UNKNOWN));
    assert_eq!(told.quota.unwrap().2, LEFT_UNKNOWN, "what is kept is of another quota");
}

#[test]
fn the_oldest_events_of_an_account_make_room_and_those_of_too_long_ago_go() {
    let mut rig = Rig::new();
    let (most, now, kept) = (OPEN_PER_ACCOUNT_MAX, NOW.0, NOW.0 - KEEP_MS);
    let kind = EventKind::Test.name();
    rig.change(&format!(
        "INSERT INTO events (id, kind, at, account, data, deliveries, due)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {most} - 1)
         SELECT 'a' || n, '{kind}', {now} - {most} + n, 'acme', '{{}}', '[]', {now} FROM n;
         INSERT INTO events (id, kind, at, account, data, deliveries, due) VALUES
             ('kept', '{kind}', {kept}, 'beta', '{{}}', '[]', {now}), ('old', '{kind}', {kept} - 1, 'beta', '{{}}', '[]', {now});"
    ));
    let most = u64::from(most);
    assert_eq!(rig.count(), (most + 1, 0));
    rig.database.know_time(NOW);
    rig.database.raise_once(&event("b1", Some("acme")), NOW).unwrap();
    assert_eq!(rig.count(), (most + 1, 1), "there was room for it, but one is too old");
    for n in 2..=3 {
        let id = format!("b{n}");
        rig.database.raise_once(&event(&id, Some("acme")), NOW).unwrap();
        assert_eq!(rig.count(), (most + 1, n));
    }
    let ids = rig.ids(NOW);
    let has = ["a1", "a2", "a3", "b1", "b3", "kept", "old"].map(|id| ids.iter().any(|found| found == id));
    assert_eq!(has, [false, false, true, true, true, true, false]);
}

#[test]
fn an_event_is_raised_once_while_its_id_is_remembered() {
    let mut rig = Rig::new();
    let forgets = NOW.plus_millis(REMEMBERED_MS);
    let later = forgets.plus_millis(1);
    let raise = |rig: &mut Rig, now| {
        rig.database.know_time(now);
        rig.database.raise_once(&event("evt_1", None), now).unwrap();
    };
    for _ in 0..2 {
        raise(&mut rig, NOW);
        assert_eq!(rig.ids(NOW), ["evt_1"]);
    }
    rig.database.settle_event("evt_1", &[]).unwrap();
    for now in [NOW, forgets] {
        raise(&mut rig, now);
        assert_eq!(rig.ids(now), [""; 0]);
    }
    raise(&mut rig, later);
    assert_eq!(rig.ids(later), ["evt_1"]);
}

#[test]
fn the_id_of_an_event_of_a_clock_that_was_behind_is_remembered_once_it_is_set_right() {
    let mut rig = Rig::new();
    rig.database.know_latest(NOW);
    for now in [Timestamp(1_000), NOW] {
        rig.database.know_time(now);
        let event = Event {
            at: now,
            ..event("evt_1", None)
        };
        rig.database.raise_once(&event, now).unwrap();
        rig.database.settle_event("evt_1", &[]).unwrap();
    }
    rig.database.raise_once(&event("evt_1", None), NOW).unwrap();
    assert_eq!(rig.ids(NOW), [""; 0]);
}

/// A clock that is ahead says that all are too old, and puts off whatever fails.
#[test]
fn by_a_clock_that_is_ahead_nothing_goes_and_what_it_puts_off_is_due_when_it_is_set() {
    let mut rig = Rig::new();
    let ahead = NOW.plus_millis(KEEP_MS + DAY_MS);
    rig.database.know_time(NOW);
    rig.database.raise_once(&event("evt_1", None), NOW).unwrap();
    let second = Event {
        at: ahead,
        ..event("evt_2", None)
    };
    rig.database.raise_once(&second, ahead).unwrap();
    assert_eq!(rig.count(), (2, 0));
    let off = [Delivery {
        url: "https://example.com".to_owned(),
        failed: 1,
        due: ahead.plus_millis(1_000),
        done: false,
    }];
    rig.database.settle_event("evt_1", &off).unwrap();
    assert_eq!(rig.ids(ahead), ["evt_2"]);
    let most = ahead.plus_millis(1_000 - DUE_WITHIN_MS);
    assert_eq!(rig.ids(most), [""; 0]);
    assert_eq!(rig.ids(most.plus_millis(-1)), ["evt_1"]);
    assert_eq!(rig.ids(NOW), ["evt_2", "evt_1"]);
    assert_eq!(rig.database.due_events(NOW, 1, |_| false).unwrap().0.len(), 1);
}

#[test]
fn an_event_is_due_when_the_first_of_its_deliveries_is_and_the_oldest_due_comes_first() {
    let mut rig = Rig::new();
    for id in ["evt_1", "evt_2", "evt_3"] {
        rig.database.raise_once(&event(id, None), NOW).unwrap();
    }
    let due = [7, 5].map(|ms| Delivery {
        url: "https://example.com".to_owned(),
        failed: 1,
        due: NOW.plus_millis(ms),
        done: false,
    });
    rig.database.settle_event("evt_1", &due).unwrap();
    assert_eq!(rig.ids(NOW.plus_millis(4)), ["evt_2", "evt_3"]);
    assert_eq!(rig.ids(NOW.plus_millis(5)), ["evt_2", "evt_3", "evt_1"]);
    let all = rig.due(NOW.plus_millis(5));
    assert_eq!(all.last().unwrap().deliveries, due);
    let (two, _) = rig.database.due_events(NOW.plus_millis(5), 2, |_| false).unwrap();
    assert_eq!(two, all.get(..2).unwrap());
    // What is claimed takes no room.
    let others = rig.database.due_events(NOW.plus_millis(5), 2, |id| id == "evt_2");
    assert_eq!(others.unwrap().0, all.get(1..).unwrap());
}

#[test]
fn the_file_knows_whether_something_is_still_to_be_told() {
    let mut rig = Rig::new();
    assert!(!rig.database.has_events().unwrap());
    rig.database.raise_once(&event("evt_1", None), NOW).unwrap();
    assert!(rig.database.has_events().unwrap());
    let done = [Delivery {
        url: "https://example.com".to_owned(),
        failed: 0,
        due: NOW,
        done: true,
    }];
    rig.database.settle_event("evt_1", &done).unwrap();
    assert!(!rig.database.has_events().unwrap());
}

/// One that a later version has raised, for example.
#[test]
fn an_event_that_cannot_be_read_is_passed_over_and_told() {
    let mut rig = Rig::new();
    for id in ["evt_1", "evt_2", "evt_3"] {
        rig.database.raise_once(&event(id, None), NOW).unwrap();
    }
    assert_eq!(rig.database.due_events(NOW, 10, |_| false).unwrap().1, None);
    rig.change("UPDATE events SET kind = 'another.kind' WHERE id = 'evt_1'");
    let (due, unreadable) = rig.database.due_events(NOW, 2, |_| false).unwrap();
    let ids: Vec<&str> = due.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["evt_2", "evt_3"]);
    let told = unreadable.unwrap().to_string();
    assert!(told.contains("evt_1"), "{told}");
}

#[test]
fn which_accounts_have_keys_that_wait_for_room_is_told() {
    let mut rig = Rig::new();
    rig.add_open(OPEN_PER_ACCOUNT_MAX, |_| "acme".to_owned());
    let events = [of_key("evt_acme", "acme"), of_key("evt_beta", "beta")];
    for _ in 0..2 {
        let waiting = rig.database.raise_new(&events, NOW).unwrap();
        assert_eq!(waiting, std::collections::BTreeSet::from([acme()]));
        assert_eq!(rig.count(), (1_001, 0));
    }
}

#[test]
fn keys_that_expire_drop_no_other_event_of_their_account_and_are_told_when_there_is_room() {
    let mut rig = Rig::new();
    rig.add_open(600, |_| "acme".to_owned());
    let events = of_keys(700, "acme");
    // Of its 1,000 events 400 are of keys, and none goes for one of them.
    for _ in 0..2 {
        rig.raise_all(&events);
        assert_eq!(rig.count(), (1_000, 0));
    }
    // Another account has room.
    rig.raise_all(&[of_key("evt_beta", "beta")]);
    assert_eq!(rig.count(), (1_001, 0));
    for id in rig.ids(NOW) {
        rig.database.settle_event(&id, &[]).unwrap();
    }
    for expected in [300, 300] {
        rig.raise_all(&events);
        assert_eq!(rig.count(), (expected, 0));
    }
}

/// They may be more than are told in three days to a webhook that is away.
#[test]
fn of_an_accounts_open_events_half_as_many_as_there_can_be_are_of_keys() {
    let mut rig = Rig::new();
    let events = of_keys(700, "acme");
    for _ in 0..2 {
        rig.raise_all(&events);
        assert_eq!(rig.count(), (500, 0));
    }
    // Others beside keep none of them back.
    rig.database.settle_event("evt_0", &[]).unwrap();
    rig.add_open(400, |_| "acme".to_owned());
    rig.raise_all(&events);
    assert_eq!(rig.count(), (900, 0));
}

#[test]
fn keys_that_expire_soon_are_told_in_place_of_the_oldest_events_of_their_account() {
    let mut rig = Rig::new();
    rig.add_open(OPEN_PER_ACCOUNT_MAX, |_| "acme".to_owned());
    let mut events = of_keys(900, "acme");
    events.iter_mut().for_each(|(_, room)| *room = Room::Made);
    for _ in 0..2 {
        rig.raise_all(&events);
        assert_eq!(rig.count(), (1_000, 750), "no more than there can be of keys");
    }
    let of_keys = rig.due(NOW);
    let of_keys = of_keys.iter().filter(|event| event.kind == EventKind::KeyExpiring);
    assert_eq!(of_keys.count(), 750);
}

#[test]
fn keys_that_expire_drop_no_event_of_a_file_that_is_full_unless_they_do_soon() {
    let mut rig = Rig::new();
    rig.add_open(OPEN_MAX - 2, |n| format!("account{n}"));
    let mut events = of_keys(5, "acme");
    for _ in 0..2 {
        rig.raise_all(&events);
        assert_eq!(rig.count(), (u64::from(OPEN_MAX), 0));
    }
    events.iter_mut().for_each(|(_, room)| *room = Room::Made);
    rig.raise_all(&events);
    assert_eq!(rig.count(), (u64::from(OPEN_MAX), 3));
}
