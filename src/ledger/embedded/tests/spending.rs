//! What was spent under limits is in the file: a start finds it, also when a killed process left a call behind.

use super::*;
use crate::ledger::Orphan;
use crate::ledger::admin::KeyRef;
use crate::ledger::embedded::spending::END_USERS_IN_MEMORY;
use crate::ledger::journal::LiveHold;
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::pure::account::{Denial, Spent};
use crate::pure::spend::{EndUser, EndUserId, Reset, SpendPeriod, Spender};
use crate::pure::time::Day;

pub(super) fn limited(rig: &Rig) -> Caller {
    let change = KeyChange {
        limit: Some(AmountChange::To(credits("2"))),
        limit_reset: Some(Reset::Daily),
        end_user_limit: Some(AmountChange::To(credits("1"))),
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    };
    let set = AdminOp::KeySet {
        key: KeyRef::Digest(rig.key.to_hex()),
        change: Box::new(change),
    };
    rig.store.run_blocking(set).unwrap();
    caller(&rig.store, rig.key)
}

pub(super) fn caller(store: &Arc<Embedded>, key: KeyDigest) -> Caller {
    let ledger = Ledger::Embedded(Arc::clone(store));
    let found = crate::ledger::tests::rig::block_on(ledger.authenticate(&key));
    found.unwrap().unwrap().checked(NOW).unwrap()
}

pub(super) fn ask(caller: &Caller, n: u64, wanted: &str, user: &str) -> ReserveRequest {
    ReserveRequest {
        id: crate::ledger::tests::rig::request_at(n, NOW),
        spend: caller.key.settings.spend(&caller.key.id, Some(EndUserId::of(user))),
        ..crate::ledger::tests::rig::request(n, wanted)
    }
}

pub(super) fn debit_of(caller: &Caller, cost: &str) -> Debit {
    Debit {
        key: caller.key.id.clone(),
        ..crate::ledger::tests::rig::debit(cost)
    }
}

#[test]
fn a_start_finds_what_was_spent_and_what_a_killed_process_left() {
    let rig = rig();
    let caller_before = limited(&rig);
    let reserve = |caller: &Caller, n, wanted, user| {
        crate::ledger::tests::rig::block_on(caller.reserve(&ask(caller, n, wanted, user))).unwrap()
    };
    reserve(&caller_before, 1, "0.8", "anna")
        .unwrap()
        .settle(debit_of(&caller_before, "0.7"));
    // Its process dies with it open; the journal says what it owes, and whose it was.
    reserve(&caller_before, 2, "0.9", "bob").unwrap().forget();
    rig.store.close();
    drop(caller_before);
    let Rig { folder, store, key } = rig;
    drop(store);

    let store = open(&folder);
    let caller = caller(&store, key);
    let spent = || crate::ledger::tests::rig::block_on(caller.key_spent(Reset::Daily)).unwrap();
    let of = |spent: &str| Spent {
        spent: credits(spent),
        held: Credits::ZERO,
    };
    assert_eq!(spent(), of("0.7"));
    let owed = Orphan::Owed {
        debit: Debit {
            end_user: Some(EndUser {
                id: EndUserId::of("bob"),
                reset: Reset::Daily,
            }),
            ..debit_of(&caller, "0.9")
        },
        number: Some(CallNumber::new(store.producer(), 7)),
    };
    let place = store.place(&caller.account.id).unwrap();
    let id = crate::ledger::tests::rig::request_at(2, NOW);
    assert_eq!(store.take_over(&place, id, owed, Entry::none()), Ok(true));
    assert_eq!(spent(), of("1.6"));
    let denial = |n, wanted, user| reserve(&caller, n, wanted, user).unwrap_err();
    let is_of = |denial: Denial, whose| matches!(denial, Denial::Spent { spender, .. } if spender == whose);
    assert!(is_of(denial(3, "0.2", "bob"), Spender::EndUser));
    assert!(is_of(denial(4, "0.31", "anna"), Spender::Key) || is_of(denial(4, "0.31", "anna"), Spender::EndUser));
    assert!(is_of(denial(5, "0.41", "carla"), Spender::Key));
    reserve(&caller, 6, "0.3", "anna").unwrap().release();
    let AdminReply::Audit(report) = store.run_blocking(AdminOp::Audit).unwrap() else {
        panic!("no audit");
    };
    assert_eq!(report.findings, []);
}

#[test]
fn keys_of_a_rotation_spend_one_limit_after_a_start_too() {
    let rig = rig();
    let old = limited(&rig);
    let new_digest = ApiKey::from_random("tg_", [77; 32]).digest();
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Digest(rig.key.to_hex()),
        digest: new_digest.to_hex(),
        overlap_ms: 900,
    };
    rig.store.run_blocking(rotate).unwrap();
    let reserve = |caller: &Caller, n, wanted, user| {
        crate::ledger::tests::rig::block_on(caller.reserve(&ask(caller, n, wanted, user))).unwrap()
    };
    let new = caller(&rig.store, new_digest);
    reserve(&old, 1, "0.7", "anna").unwrap().settle(debit_of(&old, "0.7"));
    reserve(&new, 2, "0.8", "bob").unwrap().settle(debit_of(&new, "0.8"));
    rig.store.close();
    let Rig { folder, store, key } = rig;
    drop((old, new, store));
    let store = open(&folder);
    for (n, digest) in [key, new_digest].into_iter().enumerate() {
        let caller = caller(&store, digest);
        let spent = crate::ledger::tests::rig::block_on(caller.key_spent(Reset::Daily)).unwrap();
        assert_eq!((spent.spent, spent.held), (credits("1.5"), Credits::ZERO));
        let n = 10 * u64::try_from(n).unwrap();
        assert!(reserve(&caller, n + 3, "0.51", "carla").is_err());
        assert!(reserve(&caller, n + 4, "0.31", "anna").is_err());
        reserve(&caller, n + 5, "0.3", "anna").unwrap().release();
    }
    let AdminReply::Audit(report) = store.run_blocking(AdminOp::Audit).unwrap() else {
        panic!("no audit");
    };
    assert_eq!(report.findings, []);
}

/// The first was made with a limit, of which nothing was spent when both lost it.
#[test]
fn keys_of_a_rotation_that_lost_their_limit_count_together_after_a_start() {
    let rig = rig();
    let [first, second] = [78, 79].map(|byte| ApiKey::from_random("tg_", [byte; 32]).digest());
    let limit = |limit| KeyChange {
        limit: Some(limit),
        ..KeyChange::default()
    };
    let made_with = limit(AmountChange::To(credits("2")));
    let create = AdminOp::KeyCreate {
        digest: first.to_hex(),
        account: "acme".parse().unwrap(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: Default::default(),
        settings: Box::new(made_with.applied(&Default::default()).unwrap()),
    };
    rig.store.run_blocking(create).unwrap();
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Digest(first.to_hex()),
        digest: second.to_hex(),
        overlap_ms: 900,
    };
    rig.store.run_blocking(rotate).unwrap();
    for key in [first, second] {
        let set = AdminOp::KeySet {
            key: KeyRef::Digest(key.to_hex()),
            change: Box::new(limit(AmountChange::Removed)),
        };
        rig.store.run_blocking(set).unwrap();
    }
    rig.store.close();
    let Rig { folder, store, .. } = rig;
    drop(store);
    let store = open(&folder);
    let callers = [first, second].map(|key| caller(&store, key));
    for (n, caller) in (1..).zip(&callers) {
        let hold = crate::ledger::tests::rig::block_on(caller.reserve(&ask(caller, n, "0.7", "anna")));
        hold.unwrap().unwrap().settle(debit_of(caller, "0.7"));
    }
    assert_eq!(audit(&store).findings, []);
    for caller in &callers {
        let spent = crate::ledger::tests::rig::block_on(caller.key_spent(Reset::None)).unwrap();
        assert_eq!((spent.spent, spent.held), (credits("1.4"), Credits::ZERO));
    }
}

const LATER_MS: i64 = 100 * 86_400_000;

/// Rows of what was spent, and those of all time.
fn rows(path: &Path) -> (i64, i64) {
    let file = rusqlite::Connection::open(path).unwrap();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    (
        count("SELECT count(*) FROM spent"),
        count("SELECT count(*) FROM spent WHERE period = 't'"),
    )
}

/// What is left of them once the ledger's thread has looked through them that much later.
fn rows_later(file: &Path, key: KeyDigest) -> (i64, i64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    std::fs::copy(file, &path).unwrap();
    let clock = Clock::manual(NOW.plus_millis(LATER_MS));
    let store = Embedded::open(&path, clock.clone()).unwrap();
    let mut thread = super::posts::thread_of(Rig { folder, store, key }, 0, clock);
    thread.committer.do_what_is_due();
    rows(&thread.path)
}

#[test]
fn periods_that_were_over_long_ago_are_forgotten_and_all_time_is_not() {
    let rig = rig();
    let caller = limited(&rig);
    let hold = crate::ledger::tests::rig::block_on(caller.reserve(&ask(&caller, 1, "0.5", "anna")));
    hold.unwrap().unwrap().settle(debit_of(&caller, "0.5"));
    rig.store.close();
    let path = rig.folder.path().join("ledger.db");
    assert_eq!(rows(&path), (5, 1));
    // Nothing shows that this time has passed: the clock may be ahead.
    assert_eq!(rows_later(&path, rig.key), (5, 1));
    let Rig { folder, store, key } = rig;
    drop((caller, store));
    let open_at = |later_ms| {
        Embedded::open(
            &folder.path().join("ledger.db"),
            Clock::manual(NOW.plus_millis(later_ms)),
        )
    };
    // What is now counts in a process that began by a clock that was ahead.
    for later_ms in [0, LATER_MS] {
        let store = open_at(later_ms).unwrap();
        let cell = store.find_key(&key).unwrap().place;
        let key = crate::pure::ids::KeyId::of(&key);
        let spent = cell.state().spent(&key, Reset::Daily.period(NOW.day()));
        assert_eq!(spent.spent, credits("0.5"), "it still counts");
        assert_eq!(cell.state().end_users_known(), 1);
        store.close();
    }
    // A debit that much later shows it, once its process has known for long what time it is.
    let store = open_at(LATER_MS).unwrap();
    let caller_later = self::caller(&store, key);
    let asked = ReserveRequest {
        id: crate::ledger::tests::rig::request_at(2, NOW.plus_millis(LATER_MS)),
        expires: NOW.plus_millis(LATER_MS + 60_000),
        ..ask(&caller_later, 2, "0.5", "anna")
    };
    let hold = crate::ledger::tests::rig::block_on(caller_later.reserve(&asked));
    hold.unwrap().unwrap().settle(debit_of(&caller_later, "0.5"));
    store.close();
    drop((caller_later, store));
    assert_eq!(rows(&path), (9, 1));
    assert_eq!(rows_later(&path, key), (9, 1));
    let file = Database::open(&path).unwrap();
    file.keep_known_time(NOW.plus_millis(LATER_MS)).unwrap();
    drop(file);
    assert_eq!(rows_later(&path, key), (5, 1));
    // And the days of before are not read at the next start.
    let store = open_at(LATER_MS).unwrap();
    let cell = store.find_key(&key).unwrap().place;
    assert_eq!(cell.state().end_users_known(), 1);
    let spent = |day: Day| {
        let key = crate::pure::ids::KeyId::of(&key);
        cell.state().spent(&key, Reset::Daily.period(day)).spent
    };
    let later = NOW.plus_millis(LATER_MS).day();
    assert_eq!([NOW.day(), later].map(spent), [Credits::ZERO, credits("0.5")]);
}

/// Calls of the process before, which are held without being asked for, count under their limits.
#[test]
fn what_a_process_before_holds_counts_under_the_limits() {
    let rig = rig();
    let caller = limited(&rig);
    let held = |n, amount: &str, end_user: Option<&str>| {
        rig.store.hold_for_predecessor(&LiveHold {
            id: crate::ledger::tests::rig::request_at(n, NOW),
            account: caller.account.id.clone(),
            key: caller.key.id.clone(),
            end_user: end_user.map(|name| EndUser {
                id: EndUserId::of(name),
                reset: Reset::Daily,
            }),
            amount: credits(amount),
        });
    };
    let denied = |n, wanted, user| {
        let reserved = crate::ledger::tests::rig::block_on(caller.reserve(&ask(&caller, n, wanted, user))).unwrap();
        match reserved {
            Ok(hold) => {
                hold.release();
                None
            }
            Err(Denial::Spent { spender, .. }) => Some(spender),
            Err(other) => panic!("{other:?}"),
        }
    };
    held(1, "0.9", Some("bob"));
    assert_eq!(denied(2, "0.1", "bob"), None);
    assert_eq!(denied(3, "0.2", "bob"), Some(Spender::EndUser));
    assert_eq!(denied(4, "0.2", "anna"), None);
    held(5, "1", None);
    assert_eq!(denied(6, "0.1", "anna"), None);
    assert_eq!(denied(7, "0.2", "anna"), Some(Spender::Key));
}

/// What somebody else has written there does not balance with the key's usage.
#[test]
fn the_audit_holds_what_a_key_has_spent_against_its_usage() {
    let rig = rig();
    let caller = limited(&rig);
    let hold = crate::ledger::tests::rig::block_on(caller.reserve(&ask(&caller, 1, "0.5", "anna")));
    hold.unwrap().unwrap().settle(debit_of(&caller, "0.5"));
    assert!(audit(&rig.store).findings.is_empty());
    let file = rusqlite::Connection::open(rig.folder.path().join("ledger.db")).unwrap();
    let sql = "UPDATE spent SET spent = spent + 1 WHERE end_user = '' AND period = 't'";
    assert_eq!(file.execute(sql, []).unwrap(), 1);
    let findings = audit(&rig.store).findings;
    let [finding] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(finding.rule, "usage of the key = spent by the key");
    let pico = (finding.expected.pico(), finding.found.pico());
    assert_eq!(pico, (500_000_000_000, 500_000_000_001));
}

/// The audit found it, and nothing mended it.
#[test]
fn a_repair_makes_what_a_key_has_spent_what_its_usage_says() {
    let rig = rig();
    let before = limited(&rig);
    let hold = block_on(before.reserve(&ask(&before, 1, "0.8", "anna"))).unwrap();
    hold.unwrap().settle(debit_of(&before, "0.7"));
    assert!(audit(&rig.store).findings.is_empty());
    let Rig { folder, store, .. } = rig;
    let (account, key) = (before.account.id.clone(), before.key.id.clone());
    drop((before, store));
    let file = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    let sql = "UPDATE spent SET spent = 5 WHERE end_user = '' AND period = 't'";
    assert_eq!(file.execute(sql, []).unwrap(), 1);
    let store = open(&folder);
    let in_memory = || {
        store
            .place(&account)
            .unwrap()
            .state()
            .spent(&key, SpendPeriod::Life)
            .spent
    };
    assert_eq!(in_memory(), Credits::from_pico(5));
    let found = audit(&store).findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].expected, found[0].found),
        (credits("0.7"), Credits::from_pico(5))
    );
    for mended in [found, Vec::new()] {
        let AdminReply::Repaired { findings } = store.run_blocking(AdminOp::Repair).unwrap() else {
            panic!("no repair");
        };
        assert_eq!(findings, mended);
        assert_eq!(in_memory(), credits("0.7"));
        assert!(audit(&store).findings.is_empty());
    }
}

/// Its limits could be spent a second time once the clock is set right, or at once where they are of a month.
#[test]
fn a_clock_that_is_set_ahead_has_nothing_forgotten_where_very_many_end_users_are_there() {
    const AHEAD_MS: i64 = 40 * 86_400_000;
    let clock = Clock::manual(NOW);
    let mut thread = super::posts::thread_of(rig(), 0, clock.clone());
    let cell = Arc::clone(&thread.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    let of = |n: usize| EndUser {
        id: EndUserId::of(&n.to_string()),
        reset: Reset::Monthly,
    };
    let key: crate::pure::ids::KeyId = "key_x".to_owned().into();
    let id = crate::ledger::tests::rig::request_at(1, NOW);
    let all = END_USERS_IN_MEMORY + 1;
    (0..all).for_each(|n| cell.state().spend(&key, Some(of(n)), id, credits("0.1")));
    let mut known_behind_commit = |sequence| {
        let number = CallNumber::new(thread.shared.producer.current(), sequence);
        let debit = Debit {
            end_user: Some(of(0)),
            ..super::debit("0.1")
        };
        let queued = super::thread::queued(&cell, number, debit);
        thread.shared.queue.lock().unwrap().push(queued);
        thread.committer.commit().unwrap();
        cell.state().end_users_known()
    };
    clock.set_by(AHEAD_MS);
    assert_eq!(known_behind_commit(1), all, "no time has passed");
    clock.set_by(-AHEAD_MS);
    clock.advance(AHEAD_MS);
    assert_eq!(known_behind_commit(2), 0);
}
