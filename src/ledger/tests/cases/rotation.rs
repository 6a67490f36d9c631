//! Keys in place of others.

use std::sync::Arc;

use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request, request_at};
use crate::ledger::{Caller, Debit, KeyRecord};
use crate::pure::account::{Denial, ReserveRequest, Spent};
use crate::pure::ids::{ApiKey, KeyDigest, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::spend::{EndUserId, Reset};
use crate::pure::time::Timestamp;

const HOUR: i64 = 3_600_000;

fn digest(n: u8) -> KeyDigest {
    ApiKey::from_random("tg_", [n; 32]).digest()
}

fn rotate(rig: &Rig, key: &KeyRecord, n: u8, overlap_ms: i64) -> Result<KeyRecord, AdminError> {
    let op = AdminOp::KeyRotate {
        key: KeyRef::Id(key.id.clone()),
        digest: digest(n).to_hex(),
        overlap_ms,
    };
    match rig.run(op)? {
        AdminReply::Key(record) => Ok(record),
        other => panic!("{other:?}"),
    }
}

fn found(rig: &Rig, digest: &KeyDigest) -> KeyRecord {
    let found = block_on(rig.ledger.authenticate(digest)).unwrap().unwrap();
    KeyRecord::clone(&found.key)
}

fn caller_with(rig: &Rig, n: u8) -> Caller {
    let found = block_on(rig.ledger.authenticate(&digest(n))).unwrap().unwrap();
    found.checked(rig.clock.now()).unwrap()
}

/// A key of an account with 100 credits that has these limits, and its digest's number.
fn limited(rig: &Rig, n: u8, change: KeyChange) -> Caller {
    let account = rig.caller("100").account.id.clone();
    let create = AdminOp::KeyCreate {
        digest: digest(n).to_hex(),
        account,
        tier: Some(Tier::Lite),
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(5 * HOUR),
        limits: LimitOverrides {
            rpm: Some(7),
            ..LimitOverrides::default()
        },
        settings: Box::new(change.applied(&Default::default()).unwrap()),
    };
    rig.run(create).unwrap();
    caller_with(rig, n)
}

fn with_limits() -> KeyChange {
    KeyChange {
        label: Some("shop".to_owned()),
        limit: Some(AmountChange::To(credits("10"))),
        limit_reset: Some(Reset::Monthly),
        end_user_limit: Some(AmountChange::To(credits("4"))),
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    }
}

fn ask(caller: &Caller, n: u64, at: Timestamp, wanted: &str, user: &str) -> ReserveRequest {
    ReserveRequest {
        id: request_at(n, at),
        expires: at.plus_millis(60_000),
        spend: caller.key.settings.spend(&caller.key.id, Some(EndUserId::of(user))),
        ..request(n, wanted)
    }
}

fn debit_of(caller: &Caller, request: &ReserveRequest, cost: &str) -> Debit {
    Debit {
        key: caller.key.id.clone(),
        end_user: request.spend.as_ref().and_then(|limits| limits.end_user()),
        ..debit(cost)
    }
}

/// A call that costs what it holds.
fn call(rig: &Rig, caller: &Caller, n: u64, cost: &str, user: &str) -> Result<(), Denial> {
    let asked = ask(caller, n, rig.clock.now(), cost, user);
    let hold = rig.reserve(caller, &asked)?;
    hold.settle(debit_of(caller, &asked, cost));
    Ok(())
}

pub(super) fn a_rotated_key_is_the_old_one_with_another_text(rig: &Rig) {
    let old = limited(rig, 100, with_limits());
    rig.clock.advance(HOUR);
    let now = NOW.plus_millis(HOUR);
    let new = rotate(rig, &old.key, 101, HOUR).unwrap();
    let mut settings = old.key.settings.clone();
    settings.counts_as = Some(old.key.id.clone());
    let expected = KeyRecord {
        id: new.id.clone(),
        created: now,
        settings,
        ..KeyRecord::clone(&old.key)
    };
    assert_eq!(new, expected);
    assert_ne!(new.id, old.key.id);
    assert_eq!(found(rig, &digest(101)), new);
    assert_eq!(found(rig, &digest(100)).expires, Some(now.plus_millis(HOUR)));
    let listed = rig.show(&old).keys;
    assert_eq!(listed.len(), 3);
    assert!(listed.contains(&new));
    // It is not made longer by an overlap that is longer, and without one it is revoked.
    let third = rotate(rig, &new, 102, 100 * HOUR).unwrap();
    assert_eq!(found(rig, &digest(101)).expires, Some(NOW.plus_millis(5 * HOUR)));
    assert_eq!(third.settings.counts_as, Some(old.key.id.clone()), "the first of them");
    let fourth = rotate(rig, &third, 103, 0).unwrap();
    assert_eq!(found(rig, &digest(102)).revoked, Some(now));
    assert_eq!(found(rig, &digest(103)), fourth);
    audit_is_clean(&rig.ledger);
}

/// Whoever has lost the new key asks for another one while the old key still works, and that one does not end with the overlap.
pub(super) fn a_key_that_is_rotated_twice_gives_its_own_expiry_both_times(rig: &Rig) {
    let old = limited(rig, 113, with_limits());
    let own = old.key.expires;
    assert_eq!(own, Some(NOW.plus_millis(5 * HOUR)));
    for (n, overlap) in [(114, HOUR), (115, 2 * HOUR)] {
        let before = found(rig, &digest(113));
        let new = rotate(rig, &before, n, overlap).unwrap();
        assert_eq!((new.expires, new.settings.replaced), (own, None), "{n}");
        assert_eq!(found(rig, &digest(n)), new);
        let end = NOW.plus_millis(HOUR);
        assert_eq!(found(rig, &digest(113)).expires, Some(end), "the first overlap");
    }
    let third = rotate(rig, &found(rig, &digest(113)), 116, 0).unwrap();
    assert_eq!(third.expires, own);
    // The successor's own rotation says nothing of the first one's.
    let fourth = rotate(rig, &third, 117, HOUR).unwrap();
    assert_eq!(rotate(rig, &found(rig, &digest(116)), 118, HOUR).unwrap().expires, own);
    assert_eq!(fourth.expires, own);
    // One that never expires has successors that never do.
    let never = rig.caller_of("acme", "0", LimitOverrides::default());
    for n in [119, 160] {
        let new = rotate(rig, &never.key, n, HOUR).unwrap();
        assert_eq!((new.expires, new.settings.replaced), (None, None), "{n}");
    }
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_key_that_is_over_is_not_rotated(rig: &Rig) {
    let old = limited(rig, 104, with_limits());
    let invalid = |result: Result<KeyRecord, AdminError>, why: &str| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, AdminError::Invalid(text) if text.contains(why)),
            "{error}"
        );
    };
    let conflict = |result: Result<KeyRecord, AdminError>, why: &str| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, AdminError::Conflict(text) if text.contains(why)),
            "{error}"
        );
    };
    invalid(rotate(rig, &old.key, 105, -1), "overlap");
    invalid(rotate(rig, &old.key, 105, 367 * 24 * HOUR), "overlap");
    invalid(rotate(rig, &old.key, 104, HOUR), "there already");
    let unknown = KeyRecord {
        id: "key_0123456789abcdef".to_owned().into(),
        ..KeyRecord::clone(&old.key)
    };
    assert_eq!(rotate(rig, &unknown, 105, 0), Err(AdminError::NoKey));
    rig.clock.advance(5 * HOUR);
    conflict(rotate(rig, &old.key, 105, 0), "is expired");
    let other = rig.caller_of("acme", "0", LimitOverrides::default());
    let key = KeyRef::Id(other.key.id.clone());
    rig.run(AdminOp::KeyRevoke { key }).unwrap();
    conflict(rotate(rig, &other.key, 105, HOUR), "is revoked");
    assert!(
        block_on(rig.ledger.authenticate(&digest(105))).unwrap().is_none(),
        "nothing was made"
    );
    audit_is_clean(&rig.ledger);
}

/// Without an overlap the first ends the key, and the others find one that is over.
pub(super) fn of_many_rotations_at_once_without_overlap_one_makes_a_key(rig: &Rig) {
    for round in 0..8 {
        let old = limited(rig, 120 + round * 5, with_limits());
        let made = on_workers(4, |worker| {
            let n = 121 + round * 5 + u8::try_from(worker).unwrap();
            rotate(rig, &old.key, n, 0)
        });
        let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{made:?}");
        for error in refused.into_iter().map(Result::unwrap_err) {
            assert!(
                matches!(&error, AdminError::Conflict(text) if text.contains("is revoked")),
                "{error}"
            );
        }
        let good = rig
            .show(&old)
            .keys
            .into_iter()
            .filter(|key| key.revoked.is_none() && key.settings.counts_as.is_some());
        let good: Vec<KeyRecord> = good
            .filter(|key| key.settings.counts_as.as_ref() == Some(&old.key.id))
            .collect();
        assert_eq!(good, [made.into_iter().next().unwrap().unwrap()]);
    }
    audit_is_clean(&rig.ledger);
}

pub(super) fn both_keys_of_a_rotation_spend_one_limit(rig: &Rig) {
    let old = limited(rig, 106, with_limits());
    call(rig, &old, 1, "3", "anna").unwrap();
    let running = ask(&old, 2, NOW, "1", "bea");
    let hold = rig.reserve(&old, &running).unwrap();
    let new = rotate(rig, &old.key, 107, HOUR).unwrap();
    let new = Caller {
        key: Arc::new(new),
        ..caller_with(rig, 107)
    };
    // 10 a month, of which 3 are spent and 1 is held; anna has 1 of her 4 left.
    let of = |spent: &str, held: &str| Spent {
        spent: credits(spent),
        held: credits(held),
    };
    let spent = |caller: &Caller| block_on(caller.key_spent(Reset::Monthly)).unwrap();
    assert_eq!((spent(&old), spent(&new)), (of("3", "1"), of("3", "1")));
    assert!(matches!(call(rig, &new, 3, "1.1", "anna"), Err(Denial::Spent { .. })));
    call(rig, &new, 4, "1", "anna").unwrap();
    assert!(matches!(call(rig, &old, 5, "0.1", "anna"), Err(Denial::Spent { .. })));
    hold.settle(debit_of(&old, &running, "0.5"));
    assert_eq!((spent(&old), spent(&new)), (of("4.5", "0"), of("4.5", "0")));
    call(rig, &new, 6, "2.5", "carl").unwrap();
    call(rig, &old, 7, "1", "dora").unwrap();
    assert!(matches!(call(rig, &new, 8, "2.1", "emil"), Err(Denial::Spent { .. })));
    assert!(matches!(call(rig, &old, 9, "2.1", "emil"), Err(Denial::Spent { .. })));
    // A debit whose hold has expired counts all the same.
    let late = ask(&new, 10, NOW, "1.5", "emil");
    let hold = rig.reserve(&new, &late).unwrap();
    rig.clock.advance(120_000);
    hold.settle(debit_of(&new, &late, "1.5"));
    assert_eq!((spent(&old), spent(&new)), (of("9.5", "0"), of("9.5", "0")));
    assert!(matches!(call(rig, &new, 11, "0.6", "fritz"), Err(Denial::Spent { .. })));
    // The old one's end leaves the count to the new one, and so does one more rotation.
    let third = rotate(rig, &new.key, 108, 0).unwrap();
    let third = Caller {
        key: Arc::new(third),
        ..caller_with(rig, 108)
    };
    assert_eq!(spent(&third), of("9.5", "0"));
    call(rig, &third, 12, "0.5", "fritz").unwrap();
    assert!(call(rig, &third, 13, "0.000000000001", "gert").is_err());
    assert_eq!(
        rig.usage_of_key(&third, crate::pure::time::Period::All)[0].cost,
        credits("0.5")
    );
    // Its limit changes, and what was spent stays.
    let key = KeyRef::Id(third.key.id.clone());
    let change = Box::new(KeyChange {
        limit: Some(AmountChange::To(credits("11"))),
        ..KeyChange::default()
    });
    let AdminReply::Key(raised) = rig.run(AdminOp::KeySet { key, change }).unwrap() else {
        panic!("no key");
    };
    let raised = Caller {
        key: Arc::new(raised),
        ..third
    };
    assert!(call(rig, &raised, 14, "1.1", "gert").is_err());
    call(rig, &raised, 15, "1", "gert").unwrap();
    // In the next month it begins anew.
    rig.clock.advance(40 * 24 * HOUR);
    assert_eq!(spent(&raised), of("0", "0"));
    call(rig, &raised, 16, "4", "anna").unwrap();
    assert_eq!(spent(&raised), of("4", "0"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn of_many_callers_with_both_keys_as_many_win_as_the_limit_lets(rig: &Rig) {
    let change = KeyChange {
        limit: Some(AmountChange::To(credits("10"))),
        ..KeyChange::default()
    };
    let old = limited(rig, 109, change);
    let new = rotate(rig, &old.key, 110, HOUR).unwrap();
    let new = Caller {
        key: Arc::new(new),
        ..caller_with(rig, 110)
    };
    let won: usize = on_workers(4, |worker| {
        let caller = if worker % 2 == 0 { &old } else { &new };
        let of = |n: u64| {
            let n = n * 4 + u64::try_from(worker).unwrap() + 1;
            usize::from(call(rig, caller, n, "0.25", "").is_ok())
        };
        (0..50).map(of).sum::<usize>()
    })
    .into_iter()
    .sum();
    assert_eq!(won, 40, "ten credits by a quarter");
    let spent = |caller: &Caller| block_on(caller.key_spent(Reset::None)).unwrap().spent;
    assert_eq!((spent(&old), spent(&new)), (credits("10"), credits("10")));
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_key_without_limits_leaves_nothing_to_its_successor(rig: &Rig) {
    let old = limited(rig, 111, KeyChange::default());
    call(rig, &old, 1, "3", "").unwrap();
    let new = rotate(rig, &old.key, 112, HOUR).unwrap();
    assert_eq!(new.settings.counts_as, None);
    let key = KeyRef::Id(new.id.clone());
    let change = Box::new(with_limits());
    let AdminReply::Key(new) = rig.run(AdminOp::KeySet { key, change }).unwrap() else {
        panic!("no key");
    };
    let new = Caller {
        key: Arc::new(new),
        ..caller_with(rig, 112)
    };
    call(rig, &old, 2, "20", "").unwrap();
    call(rig, &new, 3, "4", "anna").unwrap();
    let spent = block_on(new.key_spent(Reset::Monthly)).unwrap().spent;
    assert_eq!(spent, credits("4"));
    audit_is_clean(&rig.ledger);
}

/// It would spend another key's limit, or count under a name that is no key's.
pub(crate) fn a_new_key_counts_as_no_other(rig: &Rig) {
    let known = limited(rig, 41, KeyChange::default());
    for name in [known.key.id.as_str(), "a\nb", ""] {
        let mut create = crate::ledger::tests::rig::key_create(known.account.id.as_str(), &digest(42));
        if let AdminOp::KeyCreate { settings, .. } = &mut create {
            settings.counts_as = Some(name.to_owned().into());
        }
        assert!(matches!(rig.run(create), Err(AdminError::Invalid(_))), "{name:?}");
    }
    let mut create = crate::ledger::tests::rig::key_create(known.account.id.as_str(), &digest(42));
    if let AdminOp::KeyCreate { settings, .. } = &mut create {
        settings.replaced = Some(Default::default());
    }
    assert!(matches!(rig.run(create), Err(AdminError::Invalid(_))));
    assert!(block_on(rig.ledger.authenticate(&digest(42))).unwrap().is_none());
    audit_is_clean(&rig.ledger);
}
