//! A ledger's file that is not the one that it was: replaced while the gateway was stopped or ran, deleted, or made by root.

use std::os::unix::fs::MetadataExt;

use super::posts::{Thread, thread};
use super::*;
use crate::clock::monotonic;
use crate::ledger::control::{self, LedgerAccess};
use crate::ledger::folder::as_nobody;
use crate::ledger::tests::logged::logged;

fn log_bytes(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("ledger.db-wal")).map_or(0, |about| about.len())
}

/// A folder with copies of what a process leaves that is killed: SQLite's log has pages, and the files are other ones.
fn left_by_a_kill(names: &[&str]) -> tempfile::TempDir {
    let (rig, left) = (rig(), tempfile::tempdir().unwrap());
    assert!(log_bytes(rig.folder.path()) > 0);
    for name in names {
        std::fs::copy(rig.folder.path().join(name), left.path().join(name)).unwrap();
    }
    left
}

/// What opening and trying it say.
fn refused(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("ledger.db");
    let told = Embedded::open(&path, Clock::manual(NOW)).map(drop).unwrap_err();
    assert_eq!(Embedded::preflight(&path), Err(told.clone()));
    told.to_string()
}

#[test]
fn a_ledger_that_was_closed_leaves_an_empty_log() {
    let rig = rig();
    // Whoever has read keeps a connection, so that SQLite does not see the last one close.
    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    block_on(ledger.usage(&"acme".parse().unwrap(), None, crate::pure::time::Period::All)).unwrap();
    assert!(log_bytes(rig.folder.path()) > 0);
    rig.store.close();
    assert_eq!(log_bytes(rig.folder.path()), 0);
    // And nothing is missing from the file itself.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(rig.store.path(), copy.path().join("ledger.db")).unwrap();
    assert!(open(&copy).find_key(&rig.key).is_some());
}

#[test]
fn a_log_is_not_read_into_another_file_than_its_own() {
    let left = left_by_a_kill(&["ledger.db", "ledger.db-wal", "ledger.lock"]);
    let told = refused(&left);
    assert!(
        told.contains("is another file than the one that") && told.contains("ledger.db-shm"),
        "{told}"
    );
    assert!(log_bytes(left.path()) > 0);
    std::fs::remove_file(left.path().join("ledger.db-wal")).unwrap();
    drop(open(&left));
}

/// As an earlier version leaves it.
#[test]
fn a_lock_that_says_nothing_lets_the_log_be_read() {
    let left = left_by_a_kill(&["ledger.db", "ledger.db-wal"]);
    let key = ApiKey::from_random("tg_", [1; 32]).digest();
    assert!(open(&left).find_key(&key).is_some());
}

#[test]
fn a_log_without_its_file_begins_no_new_ledger() {
    let left = left_by_a_kill(&["ledger.db-wal"]);
    let path = left.path().join("ledger.db");
    assert!(refused(&left).contains("is missing or empty"));
    assert!(!is_new(&path), "`check` says that one will be made where this is so");
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    assert!(refused(&left).contains("is missing or empty"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    std::fs::remove_file(left.path().join("ledger.db-wal")).unwrap();
    assert!(is_new(&path));
}

#[test]
fn a_symbolic_link_leads_to_the_lock_and_the_socket_of_its_file() {
    let (rig, elsewhere) = (rig(), tempfile::tempdir().unwrap());
    let link = elsewhere.path().join("books.db");
    std::os::unix::fs::symlink(rig.store.path(), &link).unwrap();
    let tries = [
        Embedded::open(&link, Clock::manual(NOW)).map(drop),
        Embedded::preflight(&link),
        LedgerAccess::to_embedded(&link).map(drop),
    ];
    for tried in tries {
        assert!(matches!(tried, Err(StoreError::Owned(_))), "{tried:?}");
    }
    control::listen(&rig.store).unwrap();
    let way = LedgerAccess::to_embedded(&link).unwrap();
    assert!(matches!(way, LedgerAccess::Socket(_)), "{way:?}");
    assert!(way.run(AdminOp::AccountList).is_ok());
    let beside = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(beside, 1, "something was made beside the link");
}

#[test]
fn a_ledger_that_is_opened_by_a_symbolic_link_has_no_second_owner_by_its_own_name() {
    let Rig { folder, store, key } = rig();
    drop(store);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("books.db");
    std::os::unix::fs::symlink(folder.path().join("ledger.db"), &link).unwrap();
    let store = Embedded::open(&link, Clock::manual(NOW)).unwrap();
    assert!(store.find_key(&key).is_some());
    let refused = Embedded::open(&folder.path().join("ledger.db"), Clock::manual(NOW)).map(drop);
    assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
}

/// SQLite makes the file where the link leads to, so that is where its owner has to be found.
#[test]
fn a_ledger_that_is_made_by_a_symbolic_link_has_no_second_owner_by_its_own_name() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, link) = (folder.path().join("ledger.db"), elsewhere.path().join("books.db"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let store = Embedded::open(&link, Clock::manual(NOW)).unwrap();
    assert!(file.is_file());
    let refused = Embedded::open(&file, Clock::manual(NOW)).map(drop);
    assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
    drop(store);
}

/// What is said of a ledger that has the lock of another one in its folder, by whatever opens it or asks its owner.
fn each_refuses(path: &Path) {
    let tries = [
        Embedded::open(path, Clock::manual(NOW)).map(drop),
        Embedded::preflight(path),
        LedgerAccess::to_embedded(path).map(drop),
        LedgerAccess::to_existing(path).map(drop),
    ];
    for tried in tries {
        let is_told = matches!(
            &tried,
            Err(StoreError::Unavailable(why)) if why.contains("ledger.lock") && why.contains("give ") && why.contains(" another name")
        );
        assert!(is_told, "{tried:?}");
    }
    assert!(!LedgerAccess::is_new(path));
}

/// Lock and control socket are named without the extension: a command for the copy was done on the ledger that ran.
#[test]
fn a_copy_beside_a_ledger_that_runs_is_not_asked_of_its_owner() {
    let rig = rig();
    control::listen(&rig.store).unwrap();
    for name in ["ledger.bak", "ledger.2026-11-20"] {
        let copy = rig.folder.path().join(name);
        std::fs::copy(rig.store.path(), &copy).unwrap();
        each_refuses(&copy);
    }
    each_refuses(&rig.folder.path().join("ledger.new"));
    let own = LedgerAccess::to_embedded(rig.store.path()).unwrap();
    assert!(matches!(own, LedgerAccess::Socket(_)), "{own:?}");
}

/// The lock said then that the ledger was the copy, and the next start on the ledger was refused.
#[test]
fn a_copy_beside_a_ledger_that_nobody_has_takes_no_lock_of_it() {
    let Rig { folder, store, key } = rig();
    drop(store);
    let [path, copy, lock] = ["ledger.db", "ledger.bak", "ledger.lock"].map(|name| folder.path().join(name));
    std::fs::copy(&path, &copy).unwrap();
    let said = std::fs::read(&lock).unwrap();
    each_refuses(&copy);
    assert_eq!(std::fs::read(&lock).unwrap(), said);
    assert!(open(&folder).find_key(&key).is_some());
    // Where the ledger is gone, its log is what was written to it last.
    std::fs::remove_file(&path).unwrap();
    let log = folder.path().join("ledger.db-wal");
    std::fs::write(&log, "pages").unwrap();
    each_refuses(&copy);
    std::fs::remove_file(log).unwrap();
    let store = Embedded::open(&copy, Clock::manual(NOW)).unwrap();
    assert!(store.find_key(&key).is_some());
    drop(store);
    assert!(std::fs::read_to_string(lock).unwrap().ends_with(" file ledger.bak\n"));
}

#[test]
fn a_ledger_with_the_name_of_its_lock_or_its_socket_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ledger.lock", "ledger.control"] {
        let tried = Embedded::open(&folder.path().join(name), Clock::manual(NOW)).map(drop);
        let is_told = matches!(&tried, Err(StoreError::Unavailable(why)) if why.contains("cannot be a ledger"));
        assert!(is_told, "{tried:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// By each of them the file would have an owner.
#[test]
fn a_ledger_with_two_names_is_opened_by_neither() {
    let Rig { folder, store, .. } = rig();
    drop(store);
    let other = tempfile::tempdir().unwrap();
    let second = other.path().join("ledger.db");
    std::fs::hard_link(folder.path().join("ledger.db"), &second).unwrap();
    for place in [&folder, &other] {
        let told = refused(place);
        assert!(told.contains("ledger.db has 2 names (hard links)"), "{told}");
    }
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    std::fs::remove_file(second).unwrap();
    drop(open(&folder));
}

#[test]
fn nothing_is_written_to_a_file_that_is_not_in_its_place() {
    let mut thread = thread();
    let aside = thread.path.with_extension("aside");
    let add = |thread: &mut Thread, reference: &str| {
        thread.committer.execute(AdminOp::CreditsAdd {
            account: "acme".parse().unwrap(),
            amount: credits("1"),
            reference: reference.to_owned(),
        })
    };
    for is_replaced in [false, true] {
        std::fs::rename(&thread.path, &aside).unwrap();
        if is_replaced {
            std::fs::write(&thread.path, "").unwrap();
        }
        for told in [1, 0] {
            thread.committer.file_at = Some(monotonic());
            let lines = logged(|| thread.committer.do_what_is_due());
            let errors = lines.iter().filter(|line| line.starts_with("ERROR MONEY: "));
            assert_eq!(errors.count(), told, "{lines:?}");
        }
        assert!(thread.shared.unwritable.load(Ordering::Relaxed), "calls are refused");
        let added = add(&mut thread, "lost");
        assert!(matches!(&added, Err(AdminError::Store(_))), "{added:?}");
        let lines = logged(|| thread.committer.sync_or_retry());
        assert_eq!(lines, Vec::<String>::new(), "it is told already");
        assert!(thread.committer.sync(true).is_err(), "the journal keeps its entries");
        std::fs::rename(&aside, &thread.path).unwrap();
        thread.committer.commit_or_retry();
        assert!(!thread.shared.unwritable.load(Ordering::Relaxed));
        add(&mut thread, &is_replaced.to_string()).unwrap();
    }
}

/// A folder that was given to another user was told as a ledger that is gone, to be put back.
#[test]
fn a_file_that_may_not_be_looked_at_is_not_told_as_gone() {
    let mut thread = thread();
    let folder = thread.path.parent().unwrap().to_owned();
    let set_mode = |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o000);
    let committer = &mut thread.committer;
    let lines = as_nobody(|| logged(|| committer.look_for_file()));
    set_mode(0o700);
    let says = format!(
        "ERROR MONEY: {} cannot be looked at: Permission denied",
        thread.path.display()
    );
    let told: Vec<&String> = lines.iter().filter(|line| line.starts_with(&says)).collect();
    assert!(
        told.len() == 1 && told[0].contains("owner or mode") && !told[0].contains("put its file back"),
        "{lines:?}"
    );
    assert!(thread.shared.unwritable.load(Ordering::Relaxed), "calls are refused");
    thread.committer.commit_or_retry();
    assert!(!thread.shared.unwritable.load(Ordering::Relaxed));
}

/// Only root can give files away, so this is tried by root alone.
#[test]
fn what_root_makes_belongs_to_whoever_has_the_folder() {
    const NOBODY: u32 = 65534;
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let _store = open(&folder);
    for name in ["ledger.db", "ledger.db-wal", "ledger.lock"] {
        let about = std::fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!((about.uid(), about.gid()), (NOBODY, NOBODY), "{name}");
    }
}
