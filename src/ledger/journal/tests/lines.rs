//! What the journal logs: what an operator has to know, once, and nothing else.

use std::collections::HashSet;

use super::*;
use crate::failpoints::fails_here;
use crate::ledger::journal::recover::tell_unopened;
use crate::ledger::tests::logged::logged;

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_journal_with_calls_is_told_when_it_is_closed_and_an_empty_one_is_not() {
    let mut rig = Rig::new();
    let process = rig.process();
    let mut entry = process.begin(1, PROMPT);
    let path = process.journal.own().unwrap();
    let lines = logged(|| process.journal.close());
    assert_eq!(
        lines,
        [format!("WARN 1 calls stand in {} for the next start", path.display())]
    );
    entry.close();
    assert_eq!(logged(|| process.journal.close()), nothing());
    assert!(!path.exists());
    rig.process = None;
}

/// The end of an upgrade is nothing that somebody has to look at, unless a call has not come to its end.
#[test]
fn a_journal_whose_calls_are_followed_is_told_as_one_that_is_in_order() {
    let rig = Rig::new();
    let process = rig.process();
    let (mut released, owes, mut runs) = (rig.call(1), rig.call(2), rig.call(3));
    released.pass(CompletionTokens(0), None);
    runs.pass(CompletionTokens(1), None);
    let Ledger::Embedded(store) = &process.ledger else {
        panic!()
    };
    store.hand_over().unwrap();
    assert!(!store.is_followed(), "the new one does not serve yet");
    store.stays_handed_over();
    assert!(store.is_followed());
    let path = process.journal.own().unwrap();
    let debit = debit_of(&owes, 8, 5);
    owes.settle(debit);
    released.release();
    let close = || logged(|| process.journal.close_followed());
    let told = format!("calls stand in {} for the process that has the ledger", path.display());
    assert_eq!(close(), [format!("WARN 3 {told}, and not all are over")]);
    let debit = debit_of(&runs, 8, 1);
    runs.settle(debit);
    assert_eq!(close(), [format!("INFO 3 {told}")]);
}

#[test]
fn a_journal_that_cannot_be_made_is_told_once_and_that_it_can_again_too() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("journals");
    std::fs::write(&blocked, "").unwrap();
    let mut journal = None;
    let lines = logged(|| journal = Some(Journal::open(&blocked)));
    assert!(
        lines.len() == 1 && lines[0].starts_with("ERROR MONEY: no journal can be made in "),
        "{lines:?}"
    );
    let journal = journal.unwrap();
    assert_eq!(logged(|| journal.tend()), nothing(), "it is known");
    std::fs::remove_file(&blocked).unwrap();
    let lines = logged(|| journal.tend());
    let told = "WARN the journal can be written again: ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
    let other = folder.path().join("others");
    assert_eq!(logged(|| drop(Journal::open(&other))), nothing(), "nothing was wrong");
}

#[test]
fn a_full_journal_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path());
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let lines = logged(|| drop(journal.refused(&full())));
    let told = "ERROR MONEY: the journal is full, paid calls are refused: ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
    assert_eq!(logged(|| drop(journal.refused(&full()))), nothing());
}

/// Whoever sees that it is full may send no more calls.
#[test]
fn a_full_journal_is_usable_again_without_a_call_once_it_has_room() {
    let rig = Rig::new();
    let process = rig.process();
    let journal = &process.journal;
    // As many as it has place for without growing.
    let mut entries: Vec<Entry> = (0..4096).map(|n| process.begin(n, b"")).collect();
    fails_here(Some("journal-grow"));
    let refused = || journal.begin(&process.intent(request(5000, "1").id), b"").is_err();
    assert!(refused() && !journal.is_usable());
    assert_eq!(logged(|| journal.tend()), nothing());
    assert!(!journal.is_usable(), "nothing has changed");
    entries.pop().unwrap().close();
    let again = ["WARN the journal takes calls again"];
    assert_eq!(logged(|| journal.tend()), again);
    assert!(journal.is_usable());
    entries.push(process.begin(6000, b""));
    assert!(refused() && !journal.is_usable());
    fails_here(None);
    assert_eq!(logged(|| journal.tend()), again, "it can grow");
    assert!(journal.is_usable());
    entries.iter_mut().for_each(Entry::close);
}

/// What stands there outlives the process all the same, so no call is refused.
#[test]
fn a_disk_that_refuses_the_journal_is_told_once_and_that_it_takes_it_again_too() {
    let rig = Rig::new();
    let process = rig.process();
    let tend = || logged(|| process.journal.tend());
    assert_eq!(tend(), nothing());
    assert!(process.journal.reaches_disk());
    fails_here(Some("journal-flush"));
    let lines = tend();
    let told = "ERROR MONEY: the journal cannot be brought to the disk, ";
    assert!(lines.len() == 1 && lines[0].starts_with(told), "{lines:?}");
    assert_eq!(tend(), nothing(), "it is known");
    assert!(!process.journal.reaches_disk() && process.journal.is_usable());
    process.begin(1, PROMPT).close();
    fails_here(None);
    assert_eq!(tend(), ["WARN the journal can be brought to the disk again"]);
    assert!(process.journal.reaches_disk());
}

#[test]
fn a_recovery_is_told_when_there_was_a_journal() {
    let mut rig = Rig::new();
    let empty = rig.folder.path().join("empty");
    let ledger = rig.process().ledger.clone();
    assert_eq!(logged(|| drop(recover(&empty, &ledger))), nothing());
    drop(ledger);
    die(vec![rig.call(1)]);
    rig.process = None;
    let store = Embedded::open(&rig.folder.path().join("ledger.db"), Clock::manual(NOW)).unwrap();
    let ledger = Ledger::Embedded(store);
    let lines = logged(|| drop(recover(rig.folder.path(), &ledger)));
    let told = "WARN recovered 1 journals of dead processes: ";
    assert_eq!(
        lines.iter().filter(|line| line.starts_with(told)).count(),
        1,
        "{lines:?}"
    );
}

/// It passes: the next round looks again, and nothing of it is about money.
#[test]
fn too_many_open_files_are_told_once_until_all_could_be_opened() {
    let folder = Path::new("data");
    let mut told = HashSet::new();
    let mut tell = |unopened: Option<&str>| {
        let mut report = RecoverReport::default();
        let lines = logged(|| tell_unopened(folder, unopened.map(str::to_owned), &mut told, &mut report));
        let refused: Vec<String> = report.refused.iter().map(|line| format!("WARN {line}")).collect();
        assert_eq!(lines, refused);
        lines
    };
    for _ in 0..2 {
        assert_eq!(tell(None), nothing());
        let lines = tell(Some("data: Too many open files"));
        let begins = "WARN data: Too many open files: ";
        assert!(lines.len() == 1 && lines[0].starts_with(begins), "{lines:?}");
        assert_eq!(tell(Some("data: Too many open files")), nothing(), "it is known");
    }
}

#[test]
fn a_journal_that_was_closed_is_neither_missed_nor_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path());
    journal.close();
    assert_eq!(logged(|| journal.tend()), nothing());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_deleted_is_told_and_one_that_is_not_there_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DEAD).with_extension("new");
    std::fs::write(&path, "").unwrap();
    assert_eq!(logged(|| JournalFile::delete_if_unfinished(&path)), nothing());
    assert!(!path.exists());
    let prompts = path.with_extension("prompts");
    std::fs::create_dir(&prompts).unwrap();
    let lines = logged(|| JournalFile::delete_if_unfinished(&prompts));
    let told = format!("WARN {} cannot be deleted: ", prompts.display());
    assert!(lines.len() == 1 && lines[0].starts_with(&told), "{lines:?}");
}
