//! What the ledger's thread does step by step: what it writes, what it keeps, and what it tells of that.

use super::posts::{Thread, thread, thread_of};
use super::*;
use crate::config::Idempotency;
use crate::failpoints::fails_here;
use crate::ledger::ReceiptFiles;
use crate::ledger::admin::operators::{OPERATORS_MAX, OperatorOp, OperatorRecord};
use crate::ledger::embedded::keys::Write;
use crate::ledger::embedded::spending::bound;
use crate::ledger::embedded::sync::UNSYNCED_MAX;
use crate::ledger::idempotency::call::{Found, KeyEnd, KeyedCall};
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::rig::request_id;
use crate::pure::idempotency::{Fingerprint, KEPT_MS, KeyName};
use crate::pure::operator::{Role, operator_id, token};
use crate::pure::spend::{EndUser, EndUserId, Reset};

pub(super) fn queued(cell: &Arc<EmbeddedAccount>, number: CallNumber, debit: Debit) -> QueuedDebit {
    QueuedDebit {
        is_tracked: false,
        cell: Arc::clone(cell),
        debit: Some(debit),
        day: NOW.day(),
        month: NOW.month(),
        month_used: Credits::ZERO,
        number,
        id: request_id(number.number),
        numbers: Numbers::read(number.number, "").unwrap(),
        queued: NOW,
        entry: Entry::none(),
    }
}

impl Thread {
    fn queue(&self, sequence: u64) {
        let cell = Arc::clone(&self.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
        let number = CallNumber::new(self.shared.producer.current(), sequence);
        let queued = queued(&cell, number, debit("1"));
        self.shared.queue.lock().unwrap().push(queued);
    }

    fn with_files(&self, folder: &Path) -> Arc<ReceiptFiles> {
        let files = ReceiptFiles::start(folder, 0, Clock::manual(NOW)).unwrap();
        self.shared.receipt_files.set(Arc::clone(&files)).unwrap();
        files
    }
}

fn lines(folder: &Path) -> usize {
    let text = std::fs::read_to_string(folder.join("receipts-2026-11-20.jsonl")).unwrap();
    text.lines().filter(|line| !line.is_empty()).count()
}

#[test]
fn what_cannot_be_written_is_told_until_it_is() {
    let mut thread = thread();
    let file = rusqlite::Connection::open(&thread.path).unwrap();
    file.execute_batch("CREATE TRIGGER full BEFORE UPDATE ON accounts BEGIN SELECT RAISE(FAIL, 'full'); END")
        .unwrap();
    thread.queue(1);
    thread.committer.commit().unwrap_err();
    assert_eq!(*thread.shared.unwritten.lock().unwrap(), (1, Some(NOW)));
    file.execute_batch("DROP TRIGGER full").unwrap();
    thread.committer.commit().unwrap();
    assert_eq!(*thread.shared.unwritten.lock().unwrap(), (0, None));
}

/// The places of the journal are free once their debits are on the disk, and that is brought there now and then.
#[test]
fn what_was_committed_keeps_its_place_until_it_is_brought_to_the_disk() {
    let mut thread = thread();
    thread.queue(1);
    thread.committer.commit().unwrap();
    thread.committer.do_what_is_due();
    assert_eq!(thread.committer.unsynced.len(), 1, "it is not due yet");
    thread.committer.sync(true).unwrap();
    assert_eq!(thread.committer.unsynced.len(), 0);
}

/// Calls go on; but that a machine that dies would lose them is told once, and the oldest is what metrics say waits.
#[test]
fn what_the_disk_refuses_is_told_and_not_settled_until_it_takes_it() {
    let clock = Clock::manual(NOW);
    let mut thread = thread_of(rig(), 0, clock.clone());
    thread.queue(1);
    thread.committer.commit().unwrap();
    assert_eq!(thread.shared.unsettled(), (0, None), "it is not due yet");
    clock.advance(5_000);
    let due = |thread: &mut Thread| {
        thread.committer.sync_at = Some(crate::clock::monotonic());
        logged(|| thread.committer.do_what_is_due())
    };
    fails_here(Some("ledger-sync"));
    let lines = due(&mut thread);
    let told = "ERROR MONEY: the ledger's file cannot be brought to the disk: ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
    assert!(thread.committer.sync_at.is_some(), "it is tried again");
    assert_eq!(due(&mut thread), Vec::<String>::new(), "it is known");
    assert_eq!(thread.shared.unsettled(), (1, Some(NOW)));
    assert_eq!(thread.committer.unsynced.len(), 1, "it stands in the journal");
    fails_here(None);
    assert_eq!(
        due(&mut thread),
        ["WARN the ledger's file can be brought to the disk again"]
    );
    assert_eq!(thread.shared.unsettled(), (0, None));
    assert_eq!(thread.committer.unsynced.len(), 0);
}

#[test]
fn that_the_disk_refuses_the_file_at_the_end_is_told() {
    let thread = thread();
    fails_here(Some("ledger-sync"));
    let lines = logged(|| thread.committer.run());
    fails_here(None);
    let told = "ERROR MONEY: the ledger's file cannot be brought to the disk: ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
}

/// Until the files have their receipts, whoever starts next finds them in the journal, as long as that has room.
#[test]
fn places_wait_for_files_of_receipts_but_not_all_of_them() {
    let mut thread = thread();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts");
    let files = thread.with_files(&path);
    thread.queue(1);
    thread.committer.commit().unwrap();
    thread.committer.sync(true).unwrap();
    assert_eq!((thread.committer.unsynced.len(), lines(&path)), (0, 1));
    // Between other work nothing waits for them: their places are free at a later time.
    thread.queue(2);
    thread.committer.commit().unwrap();
    thread.committer.sync(false).unwrap();
    assert!(files.flush());
    thread.committer.sync(false).unwrap();
    assert_eq!((thread.committer.unsynced.len(), lines(&path)), (0, 2));
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    thread.queue(3);
    thread.committer.commit().unwrap();
    thread.committer.sync(false).unwrap();
    assert_eq!(thread.committer.unsynced.len(), 1);
    for (waiting, left) in [(1, 1), (UNSYNCED_MAX - 1, UNSYNCED_MAX - 1), (UNSYNCED_MAX, 0)] {
        thread.committer.unsynced.entries.resize_with(waiting, Entry::none);
        thread.committer.sync(true).unwrap();
        assert_eq!(thread.committer.unsynced.len(), left);
    }
    std::fs::remove_file(&path).unwrap();
    files.close();
}

#[test]
fn receipts_go_to_files_also_where_the_ledger_keeps_none() {
    for days in [0, 30] {
        let mut thread = thread_of(rig(), days, Clock::manual(NOW));
        let folder = tempfile::tempdir().unwrap();
        let files = thread.with_files(folder.path());
        thread.queue(1);
        thread.committer.commit().unwrap();
        files.close();
        assert_eq!(lines(folder.path()), 1, "{days} days");
    }
}

/// Its own process may have died between the ledger and the file.
#[test]
fn what_a_dead_process_left_is_written_to_the_files_again() {
    let rig = rig();
    let folder = tempfile::tempdir().unwrap();
    let files = ReceiptFiles::start(folder.path(), 0, Clock::manual(NOW)).unwrap();
    rig.store.receipt_files().set(Arc::clone(&files)).unwrap();
    let cell = rig.store.find_key(&rig.key).unwrap().place;
    let number = Some(rig.store.next_number(&cell));
    for is_new in [true, false] {
        let owed = crate::ledger::Orphan::Owed {
            debit: debit("1"),
            number,
        };
        let taken = rig.store.take_over(&cell, request_id(1), owed, Entry::none());
        assert_eq!(taken, Ok(is_new));
    }
    rig.store.close();
    files.close();
    assert_eq!(lines(folder.path()), 2);
}

fn keyed(key: &str, name: &str, n: u64) -> KeyedCall {
    let key = key.to_owned().into();
    KeyedCall {
        name: KeyName::of(&key, name.as_bytes()).unwrap(),
        key,
        fingerprint: Fingerprint::from_bytes([1; 32]),
        request: request_id(n),
        limits: Idempotency {
            keys_per_key_max: 2,
            ..Idempotency::default()
        },
    }
}

/// What the clock says of the time before the start may not be so: a key lives as long as it had to when the file was last written.
#[test]
fn keys_that_have_expired_are_deleted_once_that_is_known() {
    let rig = rig();
    let call = keyed("key_x", "a", 1);
    assert!(matches!(block_on(rig.store.take_key(&call)), Ok(Found::Nothing)));
    block_on(rig.store.send_under_key(&call)).unwrap();
    rig.store.end_key(&call, KeyEnd::Billed(None));
    rig.store.close();
    let count = |thread: &Thread| {
        let file = rusqlite::Connection::open(&thread.path).unwrap();
        let count = file.query_row("SELECT count(*) FROM idempotency", [], |row| row.get::<_, i64>(0));
        count.unwrap()
    };
    for (ahead, passed, left) in [
        (0, KEPT_MS - 1, 1),
        (0, KEPT_MS, 0),
        (2 * KEPT_MS, 0, 1),
        (2 * KEPT_MS, KEPT_MS - 1, 1),
        (2 * KEPT_MS, KEPT_MS, 0),
    ] {
        let clock = Clock::manual(NOW.plus_millis(ahead));
        let mut thread = thread_of(copy_of(&rig), 0, clock.clone());
        clock.advance(passed);
        thread.committer.do_what_is_due();
        assert_eq!(count(&thread), left, "{ahead} ms ahead, after {passed} ms");
    }
    // Of a process that ran for a moment by a clock that is ahead the next one learns nothing.
    let ahead = || Clock::manual(NOW.plus_millis(2 * KEPT_MS));
    let mut thread = thread_of(copy_of(&rig), 0, ahead());
    thread.committer.do_what_is_due();
    let before = thread.committer.database.known_time();
    assert_eq!(before, Ok(Some(NOW)));
    // Nor does what runs, when its clock is set ahead.
    let clock = Clock::manual(NOW);
    let mut thread = thread_of(copy_of(&rig), 0, clock.clone());
    clock.set_by(2 * KEPT_MS);
    thread.committer.do_what_is_due();
    assert_eq!(count(&thread), 1);
}

/// A ledger whose file is a copy of that of another, which is closed.
fn copy_of(rig: &Rig) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(rig.store.path(), folder.path().join("ledger.db")).unwrap();
    Rig {
        store: Arc::clone(&rig.store),
        folder,
        key: rig.key,
    }
}

/// At its end the thread tries again; and of debits it tells nothing, for none are left.
#[test]
fn keys_that_cannot_be_written_are_told_once() {
    let mut thread = thread();
    let file = rusqlite::Connection::open(&thread.path).unwrap();
    file.execute_batch("DROP TABLE idempotency").unwrap();
    let ended = Write::Ended(keyed("key_x", "a", 1), KeyEnd::Unsent);
    thread.shared.idempotency.writes().push(ended);
    let lines = logged(|| thread.committer.do_what_is_due());
    let told = "WARN idempotency keys cannot be written: ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
    assert_eq!(logged(|| thread.committer.run()), Vec::<String>::new());
    assert_eq!(thread.shared.idempotency.writes().len(), 1, "it was tried");
}

/// Of which the file has not heard, for none of them is sent.
#[test]
fn keys_of_calls_that_are_not_sent_yet_count_against_the_most_of_their_api_key() {
    let rig = rig();
    let take = |key: &str, name: &str| block_on(rig.store.take_key(&keyed(key, name, 1))).unwrap();
    for name in ["a", "b"] {
        assert!(matches!(take("key_x", name), Found::Nothing), "{name}");
    }
    assert!(matches!(take("key_x", "c"), Found::Full));
    assert!(matches!(take("key_y", "c"), Found::Nothing), "another has its own");
    rig.store.end_key(&keyed("key_x", "a", 1), KeyEnd::Unsent);
    assert!(matches!(take("key_x", "c"), Found::Nothing), "one is free again");
}

#[test]
fn nothing_is_sent_under_a_key_that_another_call_was_sent_under() {
    let rig = rig();
    block_on(rig.store.send_under_key(&keyed("key_x", "a", 1))).unwrap();
    let sent = block_on(rig.store.send_under_key(&keyed("key_x", "a", 2)));
    assert!(matches!(sent, Err(StoreError::Corrupt(_))), "{sent:?}");
}

#[test]
fn there_are_at_most_so_many_operators() {
    let mut thread = thread();
    let digest = token([1; 32]).digest();
    let put = |n: usize| {
        let id = format!("op_{n}");
        let record = OperatorRecord {
            id,
            name: "anna".to_owned(),
            role: Role::Read,
            created: NOW,
            expires: None,
            revoked: None,
        };
        thread.shared.operators.put(digest, record);
    };
    (1..OPERATORS_MAX).for_each(put);
    let mut create = |n: u8| {
        let digest = token([n; 32]).digest();
        let op = OperatorOp::Create {
            digest: digest.to_hex(),
            name: "bea".to_owned(),
            role: Role::Read,
            expires_in_ms: None,
        };
        let created = thread.committer.execute(AdminOp::Operator(op));
        let is_there = thread.shared.operators.get(&operator_id(&digest)).is_some();
        assert_eq!(created.is_ok(), is_there);
        is_there
    };
    assert_eq!([create(2), create(3)], [true, false]);
}

#[test]
fn periods_that_are_over_leave_memory_once_very_many_end_users_are_there() {
    const MOST: usize = 200;
    let rig = rig();
    let cell = rig.store.find_key(&rig.key).unwrap().place;
    let key: crate::pure::ids::KeyId = "key_x".to_owned().into();
    let of = |n: usize| EndUser {
        id: EndUserId::of(&n.to_string()),
        reset: Reset::Daily,
    };
    let id = crate::ledger::tests::rig::request_at(1, NOW);
    let spend = |n| cell.state().spend(&key, Some(of(n)), id, credits("0.1"));
    (0..MOST).for_each(spend);
    let debit = Debit {
        end_user: Some(of(0)),
        ..debit("0.1")
    };
    let number = CallNumber::new(rig.store.producer(), 1);
    let written = [queued(&cell, number, debit)];
    let later = NOW.plus_millis(5 * 86_400_000).day();
    bound(&written, later, MOST);
    assert_eq!(cell.state().end_users_known(), MOST);
    spend(MOST);
    bound(&written, NOW.day(), MOST);
    assert_eq!(cell.state().end_users_known(), MOST + 1, "the day is not over");
    bound(&written, later, MOST);
    assert_eq!(cell.state().end_users_known(), 0);
}

/// Each try would wait for five seconds, fifty times.
#[test]
fn a_stop_waits_ten_seconds_for_another_process_that_writes() {
    let rig = rig();
    let caller = super::spending::caller(&rig.store, rig.key);
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    let other = rusqlite::Connection::open(rig.store.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    hold.settle(debit("1"));
    let began = std::time::Instant::now();
    rig.store.close();
    assert!((10..25).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// It was done only once nothing was asked any more: while operators or keyed calls kept the thread busy no debit was written, no place of the
/// journal became free, and no outage was over.
#[test]
fn what_is_due_is_done_while_more_is_asked() {
    let mut thread = thread();
    thread.queue(1);
    let now = crate::clock::monotonic();
    let long_ago = now.checked_sub(std::time::Duration::from_secs(1)).unwrap();
    thread.committer.commit_at = Some(long_ago);
    thread.committer.sync_at = Some(long_ago);
    let (commands, inbox) = std::sync::mpsc::channel();
    thread.committer.inbox = inbox;
    let mut answers = Vec::new();
    for n in 0..20_000 {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let asked = Command::KnownKey(Box::new(keyed("key_x", "a", n)), reply);
        assert!(commands.send(asked).is_ok());
        answers.push(answer);
    }
    let shared = Arc::clone(&thread.shared);
    let committer = thread.committer;
    let runs = std::thread::spawn(move || committer.run());
    answers.remove(0).blocking_recv().unwrap().unwrap();
    assert!(shared.queue.lock().unwrap().is_empty());
    assert_eq!(shared.unsettled(), (0, None));
    drop(commands);
    runs.join().unwrap();
}
