//! Whether the embedded ledger could be opened, tried without opening it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::Embedded;
use super::load::{cannot_lock, owned_by_another};
use super::place::{self, kept};
use crate::clock::monotonic;
use crate::ledger::{StoreError, folder, sqlite};

impl Embedded {
    /// Tries what opening the ledger at `path` needs. Makes, changes and keeps nothing; a lock that is found free is free again when this
    /// returns. Blocks while another process owns the ledger, which a command does for a moment, for [`OWNED_MAX`] at most.
    ///
    /// # Errors
    /// As [`Embedded::open`] would, as far as the head of the file tells.
    pub(in crate::ledger) fn preflight(path: &Path) -> Result<(), StoreError> {
        let path = &place::real(path);
        let above = path.parent().unwrap_or(Path::new(""));
        folder::can_be_made(above).map_err(|error| {
            let folder = above.display();
            let failed = match above.as_os_str().is_empty() || above.exists() {
                true => "cannot make files in",
                false => "cannot make",
            };
            StoreError::Unavailable(format!("{failed} the folder {folder}: {error}"))
        })?;
        place::check_names(path)?;
        place::expect_lock_of(path)?;
        sqlite::check_header(path)?;
        place::check_writable(path)?;
        let started = monotonic();
        while is_owned(&path.with_extension("lock"))? {
            if started.elapsed() >= OWNED_MAX {
                return Err(owned_by_another(path));
            }
            std::thread::sleep(OWNED_PAUSE);
        }
        // Only of a ledger that nobody has: what is said then is no advice for one that is in use.
        let opened_last = File::open(path.with_extension("lock"))
            .ok()
            .and_then(|lock| kept(&lock));
        place::check(path, opened_last)
    }

    /// Tells of a process that has the lock of the ledger at `path`. Makes, changes and keeps nothing.
    ///
    /// # Errors
    /// When there is one, or that cannot be told.
    pub(in crate::ledger) fn expect_no_owner(path: &Path) -> Result<(), StoreError> {
        match is_owned(&path.with_extension("lock"))? {
            true => Err(owned_by_another(path)),
            false => Ok(()),
        }
    }
}

fn is_owned(lock: &Path) -> Result<bool, StoreError> {
    match OpenOptions::new().write(true).open(lock) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(cannot_lock(lock, &error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::Unavailable(format!(
            "cannot open {}: {}",
            lock.display(),
            folder::denied(lock, &error)
        ))),
    }
}

/// How long a command may own the ledger: a start that fails says so within a second.
const OWNED_MAX: Duration = Duration::from_millis(600);
const OWNED_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_is_not_there_can_be_made_and_nothing_is_made_of_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Embedded::preflight(&folder.path().join("a/ledger.db")), Ok(()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_is_found_free_and_left_free() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("ledger.lock")).unwrap();
        assert_eq!(Embedded::preflight(&folder.path().join("ledger.db")), Ok(()));
        lock.try_lock().unwrap();
    }

    #[test]
    fn one_who_owns_the_ledger_for_a_moment_is_waited_for_and_another_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let lock = File::create(folder.path().join("ledger.lock")).unwrap();
        lock.lock().unwrap();
        let began = monotonic();
        let refused = Embedded::preflight(&path);
        assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
        assert!(began.elapsed() >= OWNED_MAX);
        std::thread::scope(|scope| {
            let tried = scope.spawn(|| Embedded::preflight(&path));
            lock.unlock().unwrap();
            assert_eq!(tried.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn what_failed_of_the_folder_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (path, failed) in [
            (file.join("ledger.db"), "cannot make files in the folder "),
            (file.join("a/ledger.db"), "cannot make the folder "),
        ] {
            let refused = Embedded::preflight(&path);
            assert!(
                matches!(&refused, Err(StoreError::Unavailable(why)) if why.starts_with(failed)),
                "{refused:?}"
            );
        }
    }

    /// They were root's after a command without a service's user: a check passed, and the start failed.
    #[test]
    fn a_file_of_the_ledger_that_may_not_be_written_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        drop(Embedded::open(&path, crate::clock::Clock::System).unwrap());
        let mode = |path: &Path, bits| std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).unwrap();
        mode(folder.path(), 0o777);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            mode(&file.unwrap().path(), 0o666);
        }
        for name in ["ledger.db-wal", "ledger.db-shm"] {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            mode(&file, 0o444);
            let refused = folder::as_nobody(|| Embedded::preflight(&path));
            let says = format!("cannot write {}: ", file.display());
            assert!(
                matches!(&refused, Err(StoreError::Unavailable(why)) if why.starts_with(&says)),
                "{refused:?}"
            );
            mode(&file, 0o666);
            assert_eq!(folder::as_nobody(|| Embedded::preflight(&path)), Ok(()));
        }
    }

    #[test]
    fn a_lock_that_cannot_be_opened_is_no_free_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ledger.lock")).unwrap();
        let refused = Embedded::preflight(&folder.path().join("ledger.db"));
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
}
