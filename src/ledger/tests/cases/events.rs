//! Events for webhooks: each crossing is told once, in the step that is its cause.

use futures::future::join_all;
use serde_json::json;

use super::accounts::change;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use crate::ledger::admin::events::{Delivery, Event, EventCount, EventKind, EventOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::events::{KEEP_MS, OPEN_PER_ACCOUNT_MAX, REMEMBERED_MS};
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request};
use crate::ledger::{Caller, Ledger};
use crate::pure::account::{Denial, ReserveRequest};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;
use crate::pure::time::Period;

const LEASE_MS: i64 = 30_000;

/// Takes all events that are due, and lets them go.
pub(crate) fn told(ledger: &Ledger, caller: &Caller) -> Vec<Event> {
    // What was settled before is in the store then.
    block_on(ledger.usage(&caller.account.id, None, Period::Today)).unwrap();
    let events = claim(ledger, 1_000);
    for event in &events {
        settle(ledger, event, Vec::new());
    }
    events
}

pub(super) fn claim(ledger: &Ledger, limit: u32) -> Vec<Event> {
    if let Ledger::Redis(store) = ledger {
        // What was raised a moment ago may not have been heard yet.
        store.looks_for_events();
    }
    let lease_ms = LEASE_MS;
    match block_on(ledger.run(AdminOp::Event(EventOp::Claim { limit, lease_ms }))).unwrap() {
        AdminReply::Events { events, .. } => events,
        other => panic!("{other:?}"),
    }
}

fn settle(ledger: &Ledger, event: &Event, deliveries: Vec<Delivery>) {
    let op = EventOp::Settle {
        id: event.id.clone(),
        account: event.account.clone(),
        deliveries,
        is_dropped: false,
    };
    assert_eq!(block_on(ledger.run(AdminOp::Event(op))).unwrap(), AdminReply::Done);
}

pub(super) fn count(rig: &Rig) -> EventCount {
    match rig.run(AdminOp::Event(EventOp::Count)).unwrap() {
        AdminReply::EventCount(count) => count,
        other => panic!("{other:?}"),
    }
}

pub(super) fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

fn low_balance(rig: &Rig, low: Option<&str>) {
    let low = TermsChange {
        low_balance_pico: Some(low.map(|low| credits(low).pico())),
        ..TermsChange::default()
    };
    change(rig, low).unwrap();
}

fn pay(rig: &Rig, caller: &Caller, n: u64, cost: &str) {
    rig.reserve(caller, &request(n, cost)).unwrap().settle(debit(cost));
    block_on(rig.ledger.usage(&caller.account.id, None, Period::Today)).unwrap();
}

pub(super) fn raised(rig: &Rig, event: &Event) -> Result<(), AdminError> {
    rig.run(AdminOp::Event(EventOp::Raise(event.clone()))).map(drop)
}

pub(super) fn a_credit_entry_is_told(rig: &Rig) {
    let caller = rig.caller("10");
    let correction = CreditPost {
        amount: credits("-2.5"),
        kind: CreditKind::Correction,
        note: Some("a mistake".to_owned()),
        ..CreditPost::top_up(caller.account.id.clone(), credits("1"), "a b {c}".to_owned())
    };
    for _ in 0..2 {
        rig.run(AdminOp::Credit(CreditOp::Post(correction.clone()))).unwrap();
    }
    let events = told(&rig.ledger, &caller);
    assert_eq!(kinds(&events), [EventKind::CreditsAdded; 2]);
    assert_eq!(
        events[0].data,
        json!({ "account": "acme", "kind": "top_up", "amount": "10", "balance": "10", "reference": "first" })
    );
    assert_eq!(
        events[1].data,
        json!({ "account": "acme", "kind": "correction", "amount": "-2.5", "balance": "7.5", "reference": "a b {c}" })
    );
    assert!(
        events
            .iter()
            .all(|event| event.account.as_ref() == Some(&caller.account.id) && event.at == NOW)
    );
    assert!(events[0].id.starts_with("evt_") && events[0].id.len() == 36 && events[0].id != events[1].id);
    assert_eq!(told(&rig.ledger, &caller), []);
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_balance_that_falls_is_told_once(rig: &Rig) {
    let caller = rig.caller("10");
    low_balance(rig, Some("5"));
    told(&rig.ledger, &caller);
    // What is held is not spent.
    let held = rig.reserve(&caller, &request(1, "6")).unwrap();
    pay(rig, &caller, 2, "1");
    held.settle(debit("4"));
    assert_eq!(told(&rig.ledger, &caller), [], "5 is not below 5");
    pay(rig, &caller, 3, "0.000000000001");
    let events = told(&rig.ledger, &caller);
    assert_eq!(kinds(&events), [EventKind::LowBalance]);
    assert_eq!(
        events[0].data,
        json!({ "account": "acme", "balance": "4.999999999999", "low_balance": "5" })
    );
    pay(rig, &caller, 4, "1");
    rig.credit(&caller, "1", "still low").unwrap();
    pay(rig, &caller, 5, "1");
    assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::CreditsAdded]);
    // Above, and below again: by a debit, and by an entry.
    rig.credit(&caller, "10", "above").unwrap();
    pay(rig, &caller, 6, "9");
    assert_eq!(
        kinds(&told(&rig.ledger, &caller)),
        [EventKind::CreditsAdded, EventKind::LowBalance]
    );
    rig.credit(&caller, "10", "above again").unwrap();
    let correction = CreditPost {
        amount: credits("-10"),
        kind: CreditKind::Correction,
        ..CreditPost::top_up(caller.account.id.clone(), credits("1"), "down".to_owned())
    };
    rig.run(AdminOp::Credit(CreditOp::Post(correction))).unwrap();
    let mut events = kinds(&told(&rig.ledger, &caller));
    events.sort_unstable();
    assert_eq!(
        events,
        [EventKind::LowBalance, EventKind::CreditsAdded, EventKind::CreditsAdded]
    );
    audit_is_clean(&rig.ledger);
}

pub(super) fn another_low_balance_is_told_anew(rig: &Rig) {
    let caller = rig.caller("10");
    low_balance(rig, Some("20"));
    told(&rig.ledger, &caller);
    pay(rig, &caller, 1, "1");
    assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::LowBalance]);
    low_balance(rig, Some("20"));
    pay(rig, &caller, 2, "1");
    assert_eq!(told(&rig.ledger, &caller), [], "it is the same");
    low_balance(rig, Some("30"));
    pay(rig, &caller, 3, "1");
    assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::LowBalance]);
    low_balance(rig, None);
    pay(rig, &caller, 4, "1");
    assert_eq!(told(&rig.ledger, &caller), []);
    // One that comes back is told anew, whatever stood there meanwhile.
    low_balance(rig, Some("30"));
    pay(rig, &caller, 5, "1");
    assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::LowBalance]);
    low_balance(rig, Some("2"));
    low_balance(rig, Some("30"));
    pay(rig, &caller, 6, "1");
    assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::LowBalance]);
    pay(rig, &caller, 7, "1");
    assert_eq!(told(&rig.ledger, &caller), []);
}

pub(super) fn a_quota_is_told_once_a_month_and_value(rig: &Rig) {
    let caller = rig.caller("100");
    told(&rig.ledger, &caller);
    let asks = |n: u64, quota: &str| ReserveRequest {
        quota: credits(quota),
        expires: rig.clock.now().plus_millis(60_000),
        ..request(n, "2")
    };
    rig.reserve(&caller, &asks(1, "3")).unwrap().settle(debit("2"));
    for n in 2..5 {
        let denial = rig.reserve(&caller, &asks(n, "3")).unwrap_err();
        assert!(matches!(denial, Denial::Quota { .. }), "{denial:?}");
    }
    let events = told(&rig.ledger, &caller);
    assert_eq!(kinds(&events), [EventKind::QuotaReached]);
    assert_eq!(
        events[0].data,
        json!({ "account": "acme", "month": "2026-11", "monthly_quota": "3", "monthly_used": "2", "held": "0" })
    );
    for n in 5..8 {
        rig.reserve(&caller, &asks(n, "3.5")).unwrap_err();
    }
    assert_eq!(
        kinds(&told(&rig.ledger, &caller)),
        [EventKind::QuotaReached],
        "another quota"
    );
    rig.clock.advance(20 * 86_400_000);
    for n in 8..11 {
        let refused = rig.reserve(&caller, &asks(n, "1")).unwrap_err();
        assert!(matches!(refused, Denial::Quota { .. }), "{refused:?}");
    }
    let events = told(&rig.ledger, &caller);
    assert_eq!(kinds(&events), [EventKind::QuotaReached], "another month");
    assert_eq!(events[0].data["month"], "2026-12");
}

/// 2,000 calls around a threshold and the end of the credit, while credit comes in twice.
pub(super) fn of_many_racers_one_crosses(rig: &Rig) {
    const WORKERS: usize = 4;
    const CALLERS: usize = 2_000;
    let caller = rig.caller("300");
    low_balance(rig, Some("100"));
    told(&rig.ledger, &caller);
    for round in 0..3 {
        on_workers(WORKERS, |worker| {
            let call = async |n: usize| {
                let n = u64::try_from((round * WORKERS + worker) * CALLERS + n).unwrap();
                if let Ok(hold) = caller.reserve(&request(n, "1")).await.unwrap() {
                    hold.settle(debit("1"));
                }
            };
            block_on(join_all((0..CALLERS / WORKERS).map(call)));
        });
        let mut events = kinds(&told(&rig.ledger, &caller));
        // While calls hold the last of it, those that come are refused for that alone.
        for n in 0..3 {
            let n = u64::try_from(round).unwrap() + 1_000_000 + n * 10;
            rig.reserve(&caller, &request(n, "1")).unwrap_err();
        }
        events.extend(kinds(&told(&rig.ledger, &caller)));
        events.sort_unstable();
        assert_eq!(events, [EventKind::LowBalance, EventKind::Exhausted], "round {round}");
        rig.credit(&caller, "300", &format!("round {round}")).unwrap();
        assert_eq!(kinds(&told(&rig.ledger, &caller)), [EventKind::CreditsAdded]);
    }
    audit_is_clean(&rig.ledger);
}

pub(super) fn an_event_is_claimed_by_one_at_a_time(rig: &Rig) {
    let caller = rig.caller("1");
    rig.credit(&caller, "1", "second").unwrap();
    assert_eq!(count(rig).open, 2);
    let [first] = claim(&rig.ledger, 1).try_into().unwrap();
    let [second] = claim(&rig.ledger, 10).try_into().unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(claim(&rig.ledger, 10), [], "both are claimed");
    [(); 2].iter().for_each(|()| settle(&rig.ledger, &second, Vec::new()));
    // Whoever claimed it has died.
    rig.clock.advance(LEASE_MS);
    let [again] = claim(&rig.ledger, 10).try_into().unwrap();
    assert_eq!((again.claimed, first.claimed), (Some(rig.clock.now()), Some(NOW)));
    assert_eq!((&again.id, &again.deliveries), (&first.id, &first.deliveries));
    let delivery = |url: &str, after_ms: i64| Delivery {
        url: url.to_owned(),
        failed: 1,
        due: rig.clock.now().plus_millis(after_ms),
        done: false,
    };
    let done = Delivery {
        done: true,
        ..delivery("https://c.example", 1_000)
    };
    let deliveries = vec![
        delivery("https://a.example/x?y=\"z\" ", 5_000),
        delivery("https://b.example", 2_000),
        done.clone(),
    ];
    settle(&rig.ledger, &first, deliveries.clone());
    assert_eq!(claim(&rig.ledger, 10), []);
    rig.clock.advance(1_999);
    assert_eq!(claim(&rig.ledger, 10), []);
    rig.clock.advance(1);
    let [again] = claim(&rig.ledger, 10).try_into().unwrap();
    assert_eq!(again.deliveries, deliveries);
    assert_eq!((again.id.clone(), again.data.clone()), (first.id, first.data));
    assert_eq!((count(rig).open, count(rig).oldest), (1, Some(NOW)));
    settle(&rig.ledger, &again, vec![done]);
    rig.clock.advance(LEASE_MS);
    assert_eq!(claim(&rig.ledger, 10), [], "nobody is left");
    assert_eq!(count(rig), EventCount::default());
}

pub(super) fn an_event_of_the_gateways_own_is_raised_once(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    let data = json!({ "key": "key_x", "n": 1.5, "text": "a \"b\" {c}" });
    let account = Some(caller.account.id.clone());
    let of_key = Event::new("evt_key".to_owned(), EventKind::KeyExpiring, NOW, account, data.clone());
    // It is raised late, where the ledger took nothing until now.
    let at = NOW.plus_millis(-420_000);
    let own = Event::new("evt_own".to_owned(), EventKind::ProviderDown, at, None, data);
    for _ in 0..3 {
        raised(rig, &of_key).unwrap();
        raised(rig, &own).unwrap();
    }
    let mut events = told(&rig.ledger, &caller);
    events.sort_by(|a, b| a.id.cmp(&b.id));
    events
        .iter_mut()
        .for_each(|event| assert_eq!(event.claimed.take(), Some(NOW)));
    assert_eq!(events, [of_key.clone(), own.clone()]);
    rig.clock.advance(REMEMBERED_MS - 1);
    raised(rig, &of_key).unwrap();
    assert_eq!(told(&rig.ledger, &caller), [], "it was told before");
    rig.clock.advance(2);
    raised(rig, &of_key).unwrap();
    assert_eq!(told(&rig.ledger, &caller).len(), 1);
    let nobody = Event {
        account: Some("nobody".parse().unwrap()),
        ..own
    };
    assert!(matches!(raised(rig, &nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_key_that_expires_within_a_week_is_told_once(rig: &Rig) {
    let caller = rig.caller("1");
    told(&rig.ledger, &caller);
    let mut keys = Vec::new();
    for (byte, days) in [(1, 8), (2, 3), (3, 3)] {
        let create = AdminOp::KeyCreate {
            digest: ApiKey::from_random("tg_", [byte; 32]).digest().to_hex(),
            account: caller.account.id.clone(),
            tier: None,
            domains: Vec::new(),
            expires_in_ms: Some(days * 86_400_000),
            limits: LimitOverrides::default(),
            settings: Default::default(),
        };
        match rig.run(create).unwrap() {
            AdminReply::Key(key) => keys.push(key),
            other => panic!("{other:?}"),
        }
    }
    let revoked = KeyRef::Id(keys[2].id.clone());
    rig.run(AdminOp::KeyRevoke { key: revoked }).unwrap();
    let told_of = || {
        rig.run(AdminOp::Event(EventOp::RaiseExpiring)).unwrap();
        told(&rig.ledger, &caller)
    };
    let [event] = told_of().try_into().unwrap();
    assert_eq!(told_of(), []);
    assert_eq!(event.kind, EventKind::KeyExpiring);
    let (key, expires_at) = (&keys[1].id, "2026-11-23T00:00:00Z");
    assert_eq!(
        event.data,
        json!({ "account": "acme", "key": key, "label": null, "expires_at": expires_at })
    );
}

pub(super) fn the_oldest_events_make_room(rig: &Rig) {
    let caller = rig.caller("1");
    let most = u64::from(OPEN_PER_ACCOUNT_MAX);
    for n in 0..most + 4 {
        rig.credit(&caller, "1", &format!("r{n}")).unwrap();
    }
    let counted = count(rig);
    assert_eq!((counted.open, counted.dropped), (most, 5));
    let events = claim(&rig.ledger, 1_000);
    assert_eq!(events.len(), 1_000);
    assert!(events.iter().all(|event| event.data["reference"] != "r3"));
    assert_eq!(events[0].data["reference"], "r4");
    // After three days nobody wants to know.
    rig.clock.advance(KEEP_MS + 1);
    rig.credit(&caller, "1", "last").unwrap();
    let counted = count(rig);
    assert_eq!((counted.open, counted.dropped), (1, most + 5));
    // Once all are told they stay counted, and what is dropped of another account is counted too.
    told(&rig.ledger, &caller);
    rig.clock.advance(LEASE_MS);
    assert_eq!(claim(&rig.ledger, 10), []);
    assert_eq!((count(rig).open, count(rig).dropped), (0, most + 5));
    let other = rig.caller_of("beta", "1", LimitOverrides::default());
    rig.clock.advance(KEEP_MS + 1);
    rig.credit(&other, "1", "late").unwrap();
    assert_eq!(claim(&rig.ledger, 10).len(), 1);
    assert_eq!((count(rig).open, count(rig).dropped), (1, most + 6));
    audit_is_clean(&rig.ledger);
}
