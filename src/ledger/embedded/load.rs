//! What a process takes over at its start: the lock, and the accounts of the file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::super::StoreError;
use super::super::producer::Producer;
use super::super::sqlite::{Database, StoredAccount};
use super::super::store_metrics::Times;
use super::keys::Keys;
use super::operators::Operators;
use super::owner::OwnedBy;
use super::predecessors::Predecessors;
use super::shared::{EmbeddedAccount, KeyEntry, MAINTENANCE, Shared};
use super::spending;
use super::told::ToldOf;
use crate::clock::Clock;
use crate::pure::account::AccountState;
use crate::pure::hash_map::FastMap;
use crate::pure::time::Day;

impl Shared {
    pub(super) fn load(database: &Database, clock: Clock, lock: File) -> Result<Shared, StoreError> {
        let mut told = database.told()?;
        let mut accounts = BTreeMap::new();
        for stored in stored_accounts(database, &clock)? {
            let state = AccountState::restored(stored.kept);
            let id = stored.record.id.clone();
            let mut account = EmbeddedAccount::new(stored.record, state);
            account.told = ToldOf::new(told.remove(id.as_str()).unwrap_or_default());
            accounts.insert(id, Arc::new(account));
        }
        let mut keys = FastMap::default();
        for (digest, record) in database.keys()? {
            let cell = accounts
                .get(&record.account)
                .ok_or_else(|| StoreError::Corrupt(format!("{} has no account", record.id)))?;
            spending::track(cell, &record);
            cell.has_key(digest);
            keys.insert(
                digest,
                KeyEntry {
                    record: Arc::new(record),
                    cell: Arc::clone(cell),
                },
            );
        }
        let maintenance = database.setting(MAINTENANCE)?.as_deref() == Some("on");
        Ok(Shared {
            accounts: RwLock::new(accounts),
            keys: RwLock::new(keys),
            operators: Operators::load(database)?,
            queue: Mutex::default(),
            taken_before: Mutex::default(),
            maintenance: AtomicBool::new(maintenance),
            unwritable: AtomicBool::new(false),
            owner: OwnedBy::default(),
            successor_serves: AtomicBool::new(false),
            groups: AtomicU64::new(1),
            answering: Mutex::default(),
            lock: Mutex::new(Some(lock)),
            predecessors: Predecessors::default(),
            away_since: Mutex::default(),
            idempotency: Keys::default(),
            recovered: Mutex::default(),
            producer: Producer::new(clock.now())?,
            receipt_files: OnceLock::new(),
            clock,
            commits: Times::default(),
            unwritten: Mutex::default(),
            unsynced: Mutex::default(),
        })
    }
}

/// The accounts of the file, with what was spent in the periods that may count: those that were not over on the day before the known one, and
/// the months that were not over then, and the one before. By a clock that is ahead, those that are now would be left out.
pub(super) fn stored_accounts(database: &Database, clock: &Clock) -> Result<Vec<StoredAccount>, StoreError> {
    let known = database.known_day(clock.now().day())?;
    let before = |days: i64| Day(known.0.saturating_sub(days));
    database.accounts_spending(before(1), before(MONTH_DAYS))
}

/// No month has more days.
const MONTH_DAYS: i64 = 31;

pub(super) fn take_lock(path: &Path) -> Result<File, StoreError> {
    let unavailable = |what: String| StoreError::Unavailable(what);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        crate::ledger::folder::make(folder)
            .map_err(|error| unavailable(format!("cannot make the folder {}: {error}", folder.display())))?;
    }
    let lock_path = path.with_extension("lock");
    let lock = open_or_make(&lock_path).map_err(|error| {
        let why = crate::ledger::folder::denied(&lock_path, &error);
        unavailable(format!("cannot open {}: {why}", lock_path.display()))
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(owned_by_another(path)),
        Err(TryLockError::Error(error)) => Err(cannot_lock(&lock_path, &error)),
    }
}

/// Nobody need have it: some file systems have no locks.
pub(super) fn cannot_lock(lock: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot lock {}: {error}", lock.display()))
}

/// What the file says, which ledger was opened last, is left as it is.
fn open_or_make(lock: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().create_new(true).open(lock) {
        Ok(made) => {
            crate::ledger::folder::give_to_owner(&made, lock);
            Ok(made)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.create(true).truncate(false).open(lock),
        Err(error) => Err(error),
    }
}

/// What is said of a ledger at `path` whose lock is held.
pub(super) fn owned_by_another(path: &Path) -> StoreError {
    let lock = path.with_extension("lock");
    StoreError::Owned(format!(
        "another process owns {} (locked by {})",
        path.display(),
        lock.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_is_missing_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/ledger.db");
        let lock = take_lock(&path).unwrap();
        for above in path.ancestors().skip(1).take(2) {
            let mode = above.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", above.display());
        }
        let refused = take_lock(&path);
        assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
        drop(lock);
        assert!(take_lock(&path).is_ok());
    }
}
