//! What is brought to the disk, and by which way.

use std::cell::RefCell;

use super::*;

#[test]
fn what_is_brought_to_the_disk_stands_in_the_file_itself() {
    let rig = Rig::new();
    rig.database.sync().unwrap();
    let copy = rig.folder.path().join("copy.db");
    std::fs::copy(rig.path(), &copy).unwrap();
    let copy = Database::open(&copy).unwrap();
    assert_eq!(copy.accounts().unwrap().len(), 1);
}

/// A log whose file is gone cannot be brought to the disk by itself: that shows whether it was tried.
#[test]
fn the_log_is_brought_to_the_disk_by_itself_only_where_a_reader_keeps_it() {
    for has_reader in [false, true] {
        let rig = Rig::new();
        let read = Database::open_to_read(&rig.path()).unwrap();
        if has_reader {
            read.begin_moment().unwrap();
        }
        rig.change("UPDATE accounts SET balance = 5");
        std::fs::remove_file(rig.folder.path().join("ledger.db-wal")).unwrap();
        match rig.database.sync() {
            Ok(()) => assert!(!has_reader),
            Err(error) => assert!(has_reader && error.to_string().contains("ledger.db-wal: "), "{error}"),
        }
    }
}

/// A ledger's file that is brought to the disk while another connection writes its log back, and what came of that.
type Beside = (Option<Rig>, Option<Result<(), StoreError>>);

thread_local! {
    static BESIDE: RefCell<Beside> = const { RefCell::new((None, None)) };
}

/// Waits for nobody: whoever asks has the right to write the log back, and this thread's file is brought to the disk meanwhile.
fn brings_to_the_disk(_: i32) -> bool {
    BESIDE.with_borrow_mut(|(rig, synced)| *synced = rig.as_ref().map(|rig| rig.database.sync()));
    false
}

/// Then a checkpoint says that it was busy, and has synced nothing.
#[test]
fn the_log_is_brought_to_the_disk_by_itself_where_another_process_writes_it_back() {
    let rig = Rig::new();
    let open = || {
        let connection = rusqlite::Connection::open(rig.path()).unwrap();
        connection
            .query_row("SELECT count(*) FROM accounts", [], |_| Ok(()))
            .unwrap();
        connection
    };
    let (writes, writes_back) = (open(), open());
    rig.change("UPDATE accounts SET balance = 5");
    // So that whoever would write all back waits for this one.
    writes.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::fs::remove_file(rig.folder.path().join("ledger.db-wal")).unwrap();
    BESIDE.set((Some(rig), None));
    writes_back.busy_handler(Some(brings_to_the_disk)).unwrap();
    writes_back
        .query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))
        .unwrap();
    let (_rig, synced) = BESIDE.take();
    let error = synced.unwrap().unwrap_err();
    assert!(error.to_string().contains("ledger.db-wal: "), "{error}");
}
