//! The embedded ledger's file: schema, and the two kinds of writes (a group of debits, an operator's command).
//!
//! Debits are kept as sums: an account's balance and month, a usage row a day and model, and which numbers of each producer are
//! resolved. All of a group stand in one transaction, so the books balance at every moment on disk.

mod acts;
mod audit;
pub(super) mod credits;
mod events;
mod header;
mod idempotency;
mod months;
mod numbers;
mod operator;
mod reader;
mod receipt_bounds;
mod receipts;
mod spending;
mod statements;
mod stored;
mod terms;
mod usage;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, params};

pub(super) use self::header::check as check_header;
use self::header::{SCHEMA_VERSION, of_another, other_schema};
pub(super) use self::reader::Reader;
pub use self::receipt_bounds::ReceiptBounds;
use self::spending::SpendSums;
pub(super) use self::spending::{SPENT_RULE, SpentRow, WrongSpent};
use self::usage::{UsageRows, UsageSums};
use super::{AccountRecord, StoreError, folder};
use crate::failpoints::fault;
use crate::pure::account::KeptState;
use crate::pure::hash_map::FastMap;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, Numbers, ProducerId};
use crate::pure::receipt::Receipt;
use crate::pure::time::{Day, Month, Timestamp};

/// The open file. One thread owns it.
pub(super) struct Database {
    connection: Connection,
    /// How much is kept of receipts; with 0 days none are written.
    receipt_bounds: ReceiptBounds,
    /// What time it is, as far as that is known; without a word nothing is too old.
    known: Timestamp,
    /// The latest that it can be.
    latest: Timestamp,
    /// The next commit reports an error although it is done.
    #[cfg(test)]
    pub(super) fails_after_commit: bool,
    /// And then the entry cannot be looked for, once.
    #[cfg(test)]
    pub(super) fails_to_look: bool,
}

/// An account as the file has it.
pub(super) struct StoredAccount {
    pub(super) record: AccountRecord,
    pub(super) kept: KeptState,
}

/// The sums of one account in a group of debits.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountDebit {
    /// Of a whole group, so it may be beyond the range of one amount.
    pub(super) cost: i128,
    pub(super) month: Month,
    /// Spent in `month` after the group, as memory has it.
    pub(super) month_used: i64,
    /// Each producer's numbers after the group.
    pub(super) numbers: FastMap<ProducerId, (Birth, Numbers)>,
    pub(super) usage: UsageSums,
    pub(super) spent: SpendSums,
    /// The account's `low_balance`.
    pub(super) low: Option<Credits>,
}

impl Database {
    /// Opens or makes the file and brings its schema up to date.
    pub(super) fn open(path: &Path) -> Result<Database, StoreError> {
        let unavailable = |error: String| StoreError::Unavailable(format!("cannot open {}: {error}", path.display()));
        make_private(path).map_err(|error| unavailable(folder::denied(path, &error)))?;
        let connection = Connection::open(path).map_err(|error| unavailable(error.to_string()))?;
        connection.busy_timeout(BUSY_MAX)?;
        statements::keep(&connection)?;
        // Before anything is written: of what is not ours nothing is changed.
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        match version {
            0 if tables > 0 => return Err(of_another(path)),
            0 | SCHEMA_VERSION => {}
            other => return Err(other_schema(path, other)),
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        if version == 0 {
            connection.execute_batch(SCHEMA)?;
        }
        numbers::complete_schema(&connection)?;
        receipts::complete_schema(&connection)?;
        usage::complete_schema(&connection)?;
        spending::complete_schema(&connection)?;
        idempotency::complete_schema(&connection)?;
        events::complete_schema(&connection)?;
        acts::complete_schema(&connection)?;
        terms::complete_schema(&connection)?;
        credits::complete_schema(&connection)?;
        Ok(Database {
            connection,
            receipt_bounds: ReceiptBounds::days(0),
            known: Timestamp(i64::MIN),
            latest: Timestamp(i64::MIN),
            #[cfg(test)]
            fails_after_commit: false,
            #[cfg(test)]
            fails_to_look: false,
        })
    }

    /// Writes a group in one transaction: all or nothing, and once by its name, even when a try before reported an error.
    pub(super) fn write_debits(
        &mut self,
        group: &FastMap<AccountId, AccountDebit>,
        written: &[Receipt],
        name: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (today, at) = (now.day(), self.event_times(now));
        // By a clock that is ahead no receipt is too old.
        let known_today = now.min(self.known).day();
        let transaction = self.connection.transaction()?;
        let last: Option<String> = transaction
            .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
            .query_row([GROUP], |row| row.get(0))
            .optional()?;
        if last.as_deref() == Some(name) {
            return Ok(());
        }
        let mut group: Vec<(&AccountId, &AccountDebit)> = group.iter().collect();
        group.sort_unstable_by_key(|(account, _)| *account);
        DebitRows::prepare(&transaction)?.write(&group, today)?;
        for (account, debit) in group {
            spending::write(&transaction, account, &debit.spent)?;
            events::debited(&transaction, account, debit, at)?;
        }
        receipts::write(&transaction, written, self.receipt_bounds, known_today)?;
        receipts::note_group(&transaction, (GROUP, name), self.receipt_bounds)?;
        transaction.commit()?;
        #[cfg(test)]
        if std::mem::take(&mut self.fails_after_commit) {
            return Err(StoreError::Unavailable("a test's".to_owned()));
        }
        Ok(())
    }

    /// Runs an operator's write and returns only when it is on the disk.
    fn durably<T>(&mut self, write: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let written = (|| {
            let transaction = self.connection.transaction()?;
            let value = write(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        if let Err(error) = self.connection.pragma_update(None, "synchronous", "NORMAL") {
            log::warn!("the ledger's file stays at full synchronisation: {error}");
        }
        #[cfg(test)]
        if std::mem::take(&mut self.fails_after_commit) {
            return Err(StoreError::Unavailable("a test's".to_owned()));
        }
        written
    }

    /// Brings everything that was committed to the disk. Blocks.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        fault("ledger-sync").map_err(|error| StoreError::Unavailable(error.to_string()))?;
        // With `synchronous = NORMAL` a checkpoint is what syncs the log, unless a reader keeps it from writing anything back, or another
        // process makes one at this moment: then this one was busy, and says nothing of the log.
        let row = |row: &rusqlite::Row<'_>| {
            let number = |at: usize| row.get::<_, i64>(at);
            Ok((number(0)?, number(1)?, number(2)?))
        };
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let (busy, logged, written_back) = self.connection.query_row(checkpoint, [], row)?;
        if (busy != 0 || logged > written_back)
            && let Some(path) = self.connection.path()
        {
            let log = File::open(format!("{path}-wal")).and_then(|log| log.sync_data());
            log.map_err(|error| StoreError::Unavailable(format!("{path}-wal: {error}")))?;
        }
        Ok(())
    }

    /// Writes all of the log back to the file and leaves the log with no bytes, both on the disk. False when another connection keeps it
    /// from that: then nothing is lost, and the log stays. Blocks, for as long as [`Database::wait_for_others`] says.
    pub(super) fn empty_log(&self) -> Result<bool, StoreError> {
        let busy: i64 = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        Ok(busy == 0)
    }

    /// How long each step waits while another process writes to the file.
    pub(super) fn wait_for_others(&self, within: Duration) {
        if let Err(error) = self.connection.busy_timeout(within) {
            log::error!("how long a step waits for other processes cannot be changed: {error}");
        }
    }

    /// A setting's value.
    pub(super) fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        let value = self
            .connection
            .query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0))
            .optional()?;
        Ok(value)
    }

    /// Keeps a setting.
    pub(super) fn set_setting(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2",
                [name, value],
            )?;
            Ok(())
        })
    }
}

/// The statements by which each account of a group is written, looked for once a group.
struct DebitRows<'t> {
    account: CachedStatement<'t>,
    numbers: CachedStatement<'t>,
    usage: UsageRows<'t>,
}

impl DebitRows<'_> {
    fn prepare<'t>(t: &'t Transaction<'_>) -> Result<DebitRows<'t>, StoreError> {
        Ok(DebitRows {
            account: t.prepare_cached(
                "UPDATE accounts SET balance = balance - ?2, month = ?3, month_used = ?4 WHERE id = ?1",
            )?,
            numbers: numbers::prepare(t)?,
            usage: UsageRows::prepare(t)?,
        })
    }

    /// Writes one table after the other, each in the order of its rows: those that follow one another mostly stand on the same page.
    fn write(&mut self, group: &[(&AccountId, &AccountDebit)], today: Day) -> Result<(), StoreError> {
        for (account, debit) in group {
            self.take(account, debit)?;
        }
        for (account, debit) in group {
            for (producer, known) in &debit.numbers {
                numbers::write(&mut self.numbers, account, *producer, known, today)?;
            }
        }
        for (account, debit) in group {
            self.usage.add(account, &debit.usage)?;
        }
        for (account, debit) in group {
            self.usage.add_of_keys(account, &debit.usage)?;
        }
        Ok(())
    }

    fn take(&mut self, account: &AccountId, debit: &AccountDebit) -> Result<(), StoreError> {
        let mut left = debit.cost.max(0);
        loop {
            let part = i64::try_from(left).unwrap_or(i64::MAX);
            self.account
                .execute(params![account.as_str(), part, debit.month.0, debit.month_used])?;
            left -= i128::from(part);
            if left == 0 {
                return Ok(());
            }
        }
    }
}

/// A file that is not there is made so that only its owner reads it; made by root it is its folder's owner's. SQLite gives the files that
/// it puts beside it the same mode and owner.
///
/// One that is there is not opened: where this process has it open in SQLite already, to close it again would give up all of the process'
/// locks on it (POSIX), and other processes would take the file for theirs alone.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    match options.create_new(true).write(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match std::fs::metadata(path)?.is_dir() {
            true => Err(std::io::Error::from_raw_os_error(libc::EISDIR)),
            false => folder::may_be_written(path),
        },
        made => made.map(|made| folder::give_to_owner(&made, path)),
    }
}

fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// The setting with the name of the last group.
const GROUP: &str = "group";
/// One credit, in 10^-12 credit: where the audit cuts its sums in two.
const PART: i64 = 1_000_000_000_000;
/// How long a step waits while another process writes to the file.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(5);
/// The most pages in memory, in KiB: those that the debits of 1,000 accounts and all models write. They are read again otherwise.
const CACHE_KIB: i64 = 16_000;
/// From how many pages of its log on a commit writes them back to the file: 32 MiB. What is written within a second is written back together,
/// as it is brought to the disk; without this, SQLite would write the same pages back after each group of a busy second.
const LOG_PAGES: i64 = 8_000;

const SCHEMA: &str = "
BEGIN;
CREATE TABLE accounts (
    id TEXT PRIMARY KEY, tier TEXT NOT NULL, quota INTEGER, balance INTEGER NOT NULL,
    month INTEGER NOT NULL, month_used INTEGER NOT NULL, created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE topups (
    account TEXT NOT NULL REFERENCES accounts, reference TEXT NOT NULL, amount INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (account, reference)
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
    digest TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts, tier TEXT, domains TEXT NOT NULL, expires INTEGER,
    rpm INTEGER, tpm INTEGER, concurrency INTEGER, revoked INTEGER, created INTEGER NOT NULL
) STRICT;
CREATE TABLE usage (
    account TEXT NOT NULL REFERENCES accounts, day INTEGER NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL, completion INTEGER NOT NULL, cost INTEGER NOT NULL, PRIMARY KEY (account, day, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE producers (
    account TEXT NOT NULL REFERENCES accounts, producer INTEGER NOT NULL, sequence INTEGER NOT NULL, day INTEGER NOT NULL,
    PRIMARY KEY (account, producer)
) STRICT, WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
COMMIT;
";

#[cfg(test)]
mod tests;
