//! What a start leaves alone: what takes long, and what only a clock that may be ahead calls old.

use std::time::Duration;

use super::posts::thread_of;
use super::spending::{ask, debit_of, limited};
use super::*;
use crate::clock::monotonic;
use crate::ledger::Orphan;
use crate::ledger::admin::RecoverReport;
use crate::pure::numbers::ProducerId;
use crate::pure::spend::Reset;

fn count(path: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(path).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    file.query_row(&sql, [], |row| row.get(0)).unwrap()
}

/// There may be millions of rows, and each deletion holds the ledger's thread up.
#[test]
fn what_was_spent_long_ago_is_forgotten_in_small_steps() {
    let mut thread = thread_of(rig(), 0, Clock::manual(NOW));
    let path = thread.path.clone();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1200)
         INSERT INTO spent (account, key, end_user, period, spent) SELECT 'acme', 'key_x', printf('%022d', n), 'd1', 1 FROM n",
    )
    .unwrap();
    let mut left = Vec::new();
    loop {
        thread.committer.spent_at = Some(monotonic());
        thread.committer.do_what_is_due();
        left.push(count(&path, "spent"));
        if thread.committer.spent_seen.is_none() {
            break;
        }
        let soon = monotonic() + Duration::from_secs(1);
        assert!(thread.committer.spent_at.is_some_and(|at| at <= soon));
    }
    assert_eq!(left, [700, 200, 0]);
    let today = monotonic() + Duration::from_secs(80_000);
    assert!(thread.committer.spent_at.is_some_and(|at| at > today));
}

#[test]
fn a_clock_that_is_ahead_deletes_no_receipts() {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    hold.settle(debit("1"));
    let Rig { folder, store, .. } = rig;
    drop((caller, store));
    let path = folder.path().join("ledger.db");
    assert_eq!(count(&path, "receipt_lists"), 1);
    for days in [100, 0] {
        let clock = Clock::manual(NOW.plus_millis(days * 86_400_000));
        drop(Embedded::open(&path, clock).unwrap());
        assert_eq!(count(&path, "receipt_lists"), 1, "{days} days ahead");
    }
}

/// A clock that is 400 days ahead, over a start and calls that are billed by it: when it is set right, what the month used is there.
#[test]
fn a_clock_that_is_ahead_at_a_start_leaves_out_no_month_that_counts() {
    const AHEAD_MS: i64 = 400 * 86_400_000;
    let pay = |store: &Arc<Embedded>, key: &KeyDigest, n: u8, cost: &str| {
        let caller = caller_of(store, key);
        let asked = ReserveRequest {
            expires: Timestamp(i64::MAX),
            ..request(n, cost)
        };
        block_on(caller.reserve(&asked)).unwrap().unwrap().settle(debit(cost));
    };
    let rig = rig();
    pay(&rig.store, &rig.key, 1, "1.5");
    let Rig { folder, store, key } = rig;
    drop(store);
    let path = folder.path().join("ledger.db");
    for n in 2..4 {
        let clock = Clock::manual(NOW.plus_millis(AHEAD_MS));
        let store = Embedded::open(&path, clock.clone()).unwrap();
        pay(&store, &key, n, "0.25");
        let figures = || block_on(caller_of(&store, &key).figures()).unwrap().monthly_used;
        clock.set_by(-AHEAD_MS);
        assert_eq!(figures(), credits("1.5"), "{n}");
        clock.set_by(AHEAD_MS);
        assert_eq!(figures(), credits(if n == 2 { "0.25" } else { "0.5" }));
        assert!(audit(&store).findings.is_empty());
    }
}

/// A ledger with two producers that have been silent for long, 77 and 78, and one that has billed today.
fn with_silent_producers() -> tempfile::TempDir {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    hold.settle(debit("1"));
    let Rig { folder, store, .. } = rig;
    drop((caller, store));
    let path = folder.path().join("ledger.db");
    for producer in [77, 78] {
        let sql =
            "INSERT INTO producers (account, producer, sequence, day, open, born) VALUES ('acme', ?1, 1, ?2, '', 5)";
        let silent = rusqlite::params![producer, NOW.day().0 - 31];
        rusqlite::Connection::open(&path).unwrap().execute(sql, silent).unwrap();
    }
    folder
}

/// What a journal says that a call of a producer owes.
fn take_late(store: &Arc<Embedded>, producer: u64) -> Result<bool, StoreError> {
    let owed = Orphan::Owed {
        debit: debit("0.5"),
        number: Some(CallNumber::new(ProducerId(producer), 2)),
    };
    let place = store.place(&"acme".parse().unwrap()).unwrap();
    let id = RequestId::from_bytes([u8::try_from(producer).unwrap(); 16]);
    store.take_over(&place, id, owed, Entry::none())
}

/// Its clock was set back for a moment: a producer looked silent whose call ran until its process died.
#[test]
fn a_start_forgets_silent_producers_once_the_journals_were_recovered() {
    let folder = with_silent_producers();
    let path = folder.path().join("ledger.db");
    let store = open(&folder);
    let known = || {
        assert!(
            audit(&store).findings.is_empty(),
            "its thread has done what came before"
        );
        count(&path, "producers")
    };
    assert_eq!(known(), 3);
    assert_eq!(take_late(&store, 77), Ok(true));
    store.recovered(RecoverReport::default());
    assert_eq!(known(), 3, "another process may live that has calls of them");
    store.predecessors_ended();
    assert_eq!(known(), 2);
    assert!(take_late(&store, 78).is_err());
    assert_eq!(take_late(&store, 77), Ok(false), "it is known still");
    store.predecessors_ended();
    assert_eq!(known(), 2);
    drop(store);
    assert!(take_late(&open(&folder), 78).is_err());
}

#[test]
fn nobody_is_forgotten_for_a_command_or_while_a_journal_is_refused() {
    let folder = with_silent_producers();
    let path = folder.path().join("ledger.db");
    let store = open(&folder);
    store.predecessors_ended();
    let refused = RecoverReport {
        refused: vec!["a journal that could not be read".to_owned()],
        ..RecoverReport::default()
    };
    store.recovered(refused);
    store.close();
    assert_eq!(count(&path, "producers"), 3);
}

const FAR_AHEAD_MS: i64 = 100 * 86_400_000;

/// A ledger whose key has a limit for a day and has spent 0.7 of it, and what that day's calls were billed as.
fn spent_by_a_key() -> Rig {
    let rig = rig();
    let caller = limited(&rig);
    let hold = block_on(caller.reserve(&ask(&caller, 1, "0.8", "anna"))).unwrap();
    hold.unwrap().settle(debit_of(&caller, "0.7"));
    rig.store.close();
    let file = Database::open(&rig.folder.path().join("ledger.db")).unwrap();
    file.keep_known_time(NOW).unwrap();
    rig
}

/// Else the key could spend as much once more on the day on which the clock is set right.
#[test]
fn a_clock_that_is_far_ahead_forgets_nothing_that_a_key_has_spent() {
    let rig = spent_by_a_key();
    let path = rig.folder.path().join("ledger.db");
    // A call was billed by that clock.
    let billed = "UPDATE producers SET day = day + 100";
    rusqlite::Connection::open(&path).unwrap().execute(billed, []).unwrap();
    let mut thread = thread_of(rig, 0, Clock::manual(NOW.plus_millis(FAR_AHEAD_MS)));
    let before = count(&thread.path, "spent");
    assert!(before > 0);
    thread.committer.spent_at = Some(monotonic());
    thread.committer.do_what_is_due();
    assert!(thread.committer.spent_seen.is_none());
    assert_eq!(count(&thread.path, "spent"), before);
}

#[test]
fn what_a_key_has_spent_is_there_once_a_clock_that_was_far_ahead_is_set_right() {
    let Rig { folder, store, key } = spent_by_a_key();
    drop(store);
    let path = folder.path().join("ledger.db");
    for n in 2..4 {
        let clock = Clock::manual(NOW.plus_millis(FAR_AHEAD_MS));
        let store = Embedded::open(&path, clock.clone()).unwrap();
        let caller = spending::caller(&store, key);
        let asked = ReserveRequest {
            id: crate::ledger::tests::rig::request_at(n, clock.now()),
            expires: Timestamp(i64::MAX),
            ..ask(&caller, n, "0.1", "anna")
        };
        block_on(caller.reserve(&asked))
            .unwrap()
            .unwrap()
            .settle(debit_of(&caller, "0.1"));
        assert!(audit(&store).findings.is_empty(), "it is written by then");
        clock.set_by(-FAR_AHEAD_MS);
        let spent = block_on(caller.key_spent(Reset::Daily)).unwrap().spent;
        assert_eq!(spent, credits("0.7"), "{n}");
        assert!(audit(&store).findings.is_empty());
    }
}
