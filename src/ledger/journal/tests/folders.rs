//! What a recovery makes of a folder: of what is no journal, what cannot be read, and what the process before left.

use super::*;
use crate::ledger::tests::rig::{debit, receipts_of};

#[test]
fn a_folder_that_is_not_there_has_no_journals_and_one_that_cannot_be_read_is_told() {
    let rig = Rig::new();
    let ledger = &rig.process().ledger;
    let path = rig.folder.path().join("journals");
    assert_eq!(recover(&path, ledger), RecoverReport::default());
    std::fs::write(&path, "a file where the folder should be").unwrap();
    let report = recover(&path, ledger);
    assert_eq!((report.journals, report.refused.len()), (0, 1));
    assert!(
        report.refused[0].starts_with(&format!("{}: ", path.display())),
        "{report:?}"
    );
}

#[test]
fn what_is_no_journal_is_put_aside_and_what_cannot_be_read_stays() {
    let rig = Rig::new();
    let path = rig.folder.path().join("dead");
    std::fs::create_dir(&path).unwrap();
    let [no_journal, unreadable] = ["0", "1"].map(|n| path.join(n.repeat(32)).with_extension("journal"));
    std::fs::write(&no_journal, "no journal").unwrap();
    std::fs::create_dir(&unreadable).unwrap();
    let report = recover(&path, &rig.process().ledger);
    assert_eq!((report.journals, report.refused.len()), (0, 2), "{report:?}");
    let aside = no_journal.with_extension("refused");
    assert!(
        report.refused[0].ends_with(&format!("; kept as {}", aside.display())),
        "{report:?}"
    );
    assert!(
        report.refused[1].starts_with(&format!("{}: ", unreadable.display())),
        "{report:?}"
    );
    let there = [no_journal, aside, unreadable].map(|path| path.exists());
    assert_eq!(there, [false, true, true]);
}

/// A disk that reads it another time has the calls: what cannot be read is not taken for damaged.
#[test]
fn a_journal_that_the_disk_does_not_read_keeps_its_name() {
    let rig = Rig::new();
    let path = rig.folder.path().join("dead");
    std::fs::create_dir(&path).unwrap();
    let journal = path.join(DEAD).with_extension("journal");
    // Nothing is mapped at the address 0: reading there fails as a bad disk does (EIO).
    std::os::unix::fs::symlink("/proc/self/mem", &journal).unwrap();
    let report = recover(&path, &rig.process().ledger);
    assert_eq!((report.journals, report.refused.len()), (0, 1), "{report:?}");
    assert!(
        report.refused[0].starts_with(&format!("{}: ", journal.display())) && !report.refused[0].contains("kept as"),
        "{report:?}"
    );
    assert!(journal.is_symlink() && !journal.with_extension("refused").is_symlink());
}

#[test]
fn a_recovery_deletes_what_was_never_finished_and_leaves_what_is_somebody_elses() {
    let rig = Rig::new();
    let path = rig.folder.path().join("dead");
    std::fs::create_dir(&path).unwrap();
    let named = |n: &str, extension: &str| path.join(n.repeat(32)).with_extension(extension);
    let unfinished = [named("0", "new"), named("1", "prompts")];
    let others = [path.join("notes.prompts"), path.join("abc.new"), named("z", "new")];
    let others = others.into_iter().chain([named("2", "refused"), named("3", "txt")]);
    let others: Vec<PathBuf> = others.collect();
    for file in unfinished.iter().chain(&others) {
        std::fs::write(file, "").unwrap();
    }
    assert_eq!(recover(&path, &rig.process().ledger), RecoverReport::default());
    assert!(unfinished.iter().all(|path| !path.exists()));
    let gone: Vec<&PathBuf> = others.iter().filter(|path| !path.exists()).collect();
    assert_eq!(gone, Vec::<&PathBuf>::new());
}

#[test]
fn the_receipt_of_a_call_of_the_process_before_says_what_was_held_where_something_was() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let granted = rig.call(1);
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();
    let new = Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap();
    let ledger = Ledger::Embedded(Arc::clone(&new));
    follow::hold_for_predecessors(&folder, &ledger);
    let amount = granted.amount();
    let owed = debit_of(&granted, 8, 5);
    granted.settle(owed);
    let mut not_granted = old.begin(2, PROMPT);
    not_granted.owe(&debit("0.5"), CallNumber::new(store.producer(), 9));
    follow::follow_predecessors(&folder, &new, None, &mut Default::default());
    let receipts = receipts_of(&ledger, &old.caller.account.id);
    let mut held: Vec<_> = receipts
        .iter()
        .map(|receipt| (receipt.billed.completion_tokens, receipt.billed.held))
        .collect();
    held.sort_unstable();
    assert_eq!(held, [(4, None), (5, Some(amount))]);
    drop(not_granted);
}
