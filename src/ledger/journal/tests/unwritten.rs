//! What a process has taken from the journal of one before it, and has not written yet, when both have died.

use super::*;

/// What a kill leaves in a folder, as another folder.
fn left_in(folder: &Path) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("db" | "db-wal" | "journal" | "prompts")) {
            std::fs::copy(&path, left.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    left
}

#[test]
fn a_debit_of_the_process_before_stands_in_its_journal_until_the_file_has_it() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let hold = rig.call(1);
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();
    let new = Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap();
    let ledger = Ledger::Embedded(Arc::clone(&new));
    follow::hold_for_predecessors(&folder, &ledger);
    // Nothing can be written until this ends.
    let other = rusqlite::Connection::open(folder.join("ledger.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let debit = debit_of(&hold, 8, 5);
    hold.settle(debit);
    // In one round it is taken, its process ends, and the journal is adopted.
    follow::follow_predecessors(&folder, &new, None, &mut Default::default());
    drop(old);
    let report = recover(&folder, &ledger);
    assert_eq!((report.settled, report.already), (0, 1));
    let mut killed = Rig {
        folder: left_in(&folder),
        process: None,
    };
    other.execute_batch("ROLLBACK").unwrap();
    new.close();
    assert_eq!(rig.files("journal"), Vec::<PathBuf>::new());

    killed.start("0");
    let report = &killed.process().recovered;
    assert_eq!((report.settled, report.already), (1, 0));
    assert_eq!(killed.spent(), cost(8, 5));
}
