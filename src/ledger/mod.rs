//! The ledger: one contract, two stores.
//!
//! [`Ledger`] is what the gateway and the commands see. The embedded store ([`embedded`]) is owned by one process and keeps
//! accounts in memory over a SQLite file; the Redis store serves one node or many. Reserving may wait for the store, within a bounded time;
//! settling and releasing never wait: the store takes the [`Hold`] and sees to it.

mod acts;
pub mod admin;
mod caller;
pub mod control;
pub(crate) mod control_socket;
mod cover;
pub mod embedded;
mod error;
pub(crate) mod events;
mod extend;
pub(crate) mod folder;
mod handle;
mod hold;
mod idempotency;
pub mod journal;
pub mod key_settings;
mod known_time;
mod producer;
pub mod query;
mod receipt_files;
mod records;
pub mod redis;
mod refusals;
mod remote;
pub(crate) mod rotation;
pub(crate) mod shown;
pub mod sqlite;
pub mod store_metrics;
pub mod terms;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::pure::ids::{AccountId, KeyDigest, KeyId, RequestId};
use crate::pure::receipt::Receipt;
use crate::pure::time::{Days, Timestamp};

use self::admin::{AdminError, AdminOp, AdminReply, AuditReport, ReceiptPage, ReceiptQuery, RecoverReport};
pub use self::caller::{Caller, FoundKey};
pub use self::cover::Uncovered;
pub(crate) use self::error::STOPPED;
pub use self::error::StoreError;
pub(crate) use self::handle::AccountHandle;
pub use self::hold::Hold;
pub use self::idempotency::{KeyedCall, TakenKey, Taking};
use self::query::{EndUserQuery, EndUserUsage, KeyedRow, UsageQuery};
pub use self::receipt_files::ReceiptFiles;
use self::records::clamped;
pub use self::records::{AccountRecord, Debit, Figures, KeyRecord, UsageRow};
pub(crate) use self::records::{Found, Orphan, pico, pico_option};
use self::store_metrics::StoreMetrics;

// The futures of the Redis store are boxed: they are large, and a call on the embedded store should not carry their size.

/// The ledger over one of its stores. Cloning is cheap.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// In memory over a SQLite file, owned by this process.
    Embedded(Arc<embedded::Embedded>),
    /// In Redis, for one node or many.
    Redis(Arc<redis::RedisLedger>),
}

/// Opens the ledger that the configuration names, and keeps receipts as it says. Blocks; called on a thread that is on no runtime.
///
/// # Errors
/// When it cannot be reached or read, is owned by another process, or would lose money by design.
pub fn open(config: &crate::config::Config) -> Result<Ledger, StoreError> {
    let receipts = &config.receipts;
    match &config.store {
        crate::config::Store::Sqlite(path) => {
            let bounds = sqlite::ReceiptBounds {
                days: receipts.keep_days,
                bytes_max: receipts.bytes_max,
            };
            embedded::Embedded::open_within(path, bounds, crate::clock::Clock::System).map(Ledger::Embedded)
        }
        crate::config::Store::Redis(address) => {
            let options = redis::Options {
                receipts_per_account_max: NonZeroU32::new(receipts.per_account_max),
                ..redis::Options::default()
            };
            redis::RedisLedger::connect(address, options).map(Ledger::Redis)
        }
        crate::config::Store::Missing(variable) => Err(missing(variable)),
        crate::config::Store::Remote(_) => Err(elsewhere()),
    }
}

/// Tries what [`open`] needs of the store. Makes, changes and keeps nothing: what it writes to Redis to try its rights is gone again.
/// Blocks; called on a thread that is on no runtime.
///
/// # Errors
/// As [`open`], as far as can be told without opening it.
pub(crate) fn preflight(config: &crate::config::Config) -> Result<(), StoreError> {
    match &config.store {
        crate::config::Store::Sqlite(path) => embedded::Embedded::preflight(path),
        crate::config::Store::Redis(address) => redis::RedisLedger::preflight(address, redis::Options::default()),
        crate::config::Store::Missing(variable) => Err(missing(variable)),
        crate::config::Store::Remote(_) => Err(elsewhere()),
    }
}

/// Where [`open`] would make a new, empty ledger; None where there is one, or where that is not a file.
pub(crate) fn new_at(config: &crate::config::Config) -> Option<&std::path::Path> {
    match &config.store {
        crate::config::Store::Sqlite(path) => embedded::is_new(path).then_some(path.as_path()),
        crate::config::Store::Redis(_) | crate::config::Store::Missing(_) | crate::config::Store::Remote(_) => None,
    }
}

/// Nobody knows where it is.
fn missing(variable: &str) -> StoreError {
    StoreError::Unavailable(format!(
        "the environment variable {variable}, which store_env names, is not set, or empty"
    ))
}

/// Only commands can be given to a gateway elsewhere.
fn elsewhere() -> StoreError {
    StoreError::Unavailable("this works on the gateway's own machine alone: leave out --operator".to_owned())
}

impl Ledger {
    /// A key, with whatever became of it, or nothing when no such key was ever made.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn authenticate(&self, digest: &KeyDigest) -> Result<Option<FoundKey>, StoreError> {
        match self {
            Ledger::Embedded(store) => Ok(store.find_key(digest).map(|found| FoundKey {
                key: found.key,
                account: found.account,
                place: AccountHandle::Embedded(Arc::clone(store), found.place),
            })),
            Ledger::Redis(store) => {
                let found = Box::pin(store.find_key(digest)).await?;
                Ok(found.map(|found| FoundKey {
                    key: found.key,
                    account: found.account,
                    place: AccountHandle::Redis(Arc::clone(store), found.place),
                }))
            }
        }
    }

    /// Where the figures of an account are, for the calls that a dead process left.
    ///
    /// # Errors
    /// When there is no such account.
    pub(crate) fn place(&self, account: &AccountId) -> Result<AccountHandle, StoreError> {
        Ok(match self {
            Ledger::Embedded(store) => AccountHandle::Embedded(Arc::clone(store), store.place(account)?),
            Ledger::Redis(store) => AccountHandle::Redis(Arc::clone(store), store.place(account)),
        })
    }

    /// When a hold made at `now` expires unless it is renewed: see [`Caller::hold_expiry`].
    pub fn hold_expiry(&self, now: Timestamp) -> Timestamp {
        match self {
            Ledger::Embedded(_) => Timestamp(i64::MAX),
            Ledger::Redis(store) => store.hold_expiry(now),
        }
    }

    /// What time it is by the ledger, as far as that is known here: by this its keys and tokens expire. Asks nobody.
    pub fn now(&self) -> Timestamp {
        match self {
            Ledger::Embedded(store) => store.now(),
            Ledger::Redis(store) => store.now(),
        }
    }

    /// The ledger's state now. Cheap enough for a scrape, not for a request.
    pub fn store_metrics(&self) -> StoreMetrics {
        match self {
            Ledger::Embedded(store) => store.store_metrics(),
            Ledger::Redis(store) => store.store_metrics(),
        }
    }

    /// Holds what the calls of a living process before this one hold: only the embedded ledger's owner has to be told.
    pub(crate) fn hold_for_predecessor(&self, hold: &journal::LiveHold) {
        if let Ledger::Embedded(store) = self {
            store.hold_for_predecessor(hold);
        }
    }

    /// Whether another process has taken the ledger over.
    pub(crate) fn is_handed_over(&self) -> bool {
        match self {
            Ledger::Embedded(store) => store.is_handed_over(),
            Ledger::Redis(_) => false,
        }
    }

    /// Whether calls wait, for the process that takes the ledger over does not serve yet: not of the moment that a change of hands takes.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Ledger::Embedded(store) => store.is_away(),
            Ledger::Redis(_) => false,
        }
    }

    /// The embedded ledger, when it is that.
    pub(crate) fn embedded(&self) -> Option<&embedded::Embedded> {
        match self {
            Ledger::Embedded(store) => Some(store),
            Ledger::Redis(_) => None,
        }
    }

    /// Every process before this one has ended, and what it owed was taken.
    pub(crate) fn predecessors_ended(&self) {
        if let Ledger::Embedded(store) = self {
            store.predecessors_ended();
        }
    }

    /// For how long a debit stays in the journal after the store has acknowledged it, and beyond the end of its process.
    pub(crate) fn keeps_acknowledged(&self) -> Duration {
        match self {
            Ledger::Embedded(_) => Duration::ZERO,
            Ledger::Redis(store) => store.replay(),
        }
    }

    /// Keeps what the start recovered, to be shown on request.
    pub fn recovered(&self, report: RecoverReport) {
        if let Ledger::Embedded(store) = self {
            store.recovered(report);
        }
    }

    /// The usage of an account, or of one of its keys, by UTC day and model, oldest first; every settlement made before the call is in it.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn usage(
        &self,
        account: &AccountId,
        key: Option<&KeyId>,
        days: impl Into<Days>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let query = UsageQuery {
            account: account.clone(),
            key: key.cloned(),
            days: days.into(),
            by_key: false,
        };
        let rows = self.usage_of(query).await?;
        Ok(KeyedRow::without_keys(rows))
    }

    /// The same as it is asked for, also apart by key.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn usage_of(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
        let asked = match self {
            Ledger::Embedded(store) => return store.usage(query).await,
            Ledger::Redis(store) => Box::pin(store.run(query.op())).await,
        };
        match asked.map(AdminReply::into_usage) {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(unread(error)),
        }
    }

    /// The usage of an account, or of one of its keys, by end user, over the receipts that are kept; those of every settlement made before
    /// the call are among them.
    ///
    /// # Errors
    /// When the store cannot say, or has a receipt of these days that cannot be read.
    pub async fn end_users(&self, query: EndUserQuery) -> Result<EndUserUsage, StoreError> {
        let asked = match self {
            Ledger::Embedded(store) => return store.end_users(query).await,
            Ledger::Redis(store) => Box::pin(store.run(AdminOp::EndUsers(query))).await,
        };
        match asked.map(AdminReply::into_end_users) {
            Ok(Some(usage)) => Ok(usage),
            Ok(None) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(unread(error)),
        }
    }

    /// An account's receipts, newest first; those of every settlement made before the call are among them.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn receipts(&self, query: ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        let asked = match self {
            Ledger::Embedded(store) => return store.receipts(query).await,
            Ledger::Redis(store) => Box::pin(store.run(AdminOp::Receipts(query))).await,
        };
        match asked {
            Ok(AdminReply::Receipts(page)) => Ok(page),
            Ok(_) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(unread(error)),
        }
    }

    /// The receipt of an account's request. None when there is none, or no more.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn receipt(&self, account: &AccountId, id: RequestId) -> Result<Option<Receipt>, StoreError> {
        let page = self.receipts(ReceiptQuery::of(account, id)).await?;
        Ok(page.receipts.into_iter().next())
    }

    /// Has receipts written to files as well, from now on. To be called once, before the first call; the files are closed after the
    /// ledger.
    pub fn write_receipts_to(&self, files: &Arc<ReceiptFiles>) {
        let place = match self {
            Ledger::Embedded(store) => store.receipt_files(),
            Ledger::Redis(store) => store.receipt_files(),
        };
        if place.set(Arc::clone(files)).is_err() {
            log::error!("the ledger writes its receipts to files already");
        }
    }

    /// Runs an operator's command.
    pub async fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        match self {
            Ledger::Embedded(store) => store.run(op).await,
            Ledger::Redis(store) => Box::pin(store.run(op)).await,
        }
    }

    /// As [`admin::events::EventOp::RaiseExpiring`]; false where it is to be asked again soon. It ends soon once it is given up.
    pub(crate) async fn raise_expiring(&self, is_given_up: &AtomicBool) -> Result<bool, AdminError> {
        match self {
            Ledger::Embedded(store) => store.raise_expiring(is_given_up).await,
            Ledger::Redis(store) => Box::pin(store.raise_expiring(is_given_up)).await,
        }
    }

    /// Audits the books, unless another gateway over the same store did that in the last `within` and found nothing wrong: then it says how long
    /// ago. One does it at a time, for all that ask in the next `every`.
    ///
    /// # Errors
    /// When the store cannot say, or another gateway audits for too long.
    pub(crate) async fn audit_in_turn(
        &self,
        within: Duration,
        every: Duration,
    ) -> Result<(AuditReport, Duration), AdminError> {
        let audited = match self {
            Ledger::Embedded(store) => store.run(AdminOp::Audit).await?,
            Ledger::Redis(store) => return Box::pin(store.audit_in_turn(within, every)).await,
        };
        match audited {
            AdminReply::Audit(report) => Ok((report, Duration::ZERO)),
            _ => Err(AdminError::Store("an answer of another kind".to_owned())),
        }
    }

    /// Whether the operator has switched maintenance on.
    pub fn in_maintenance(&self) -> bool {
        match self {
            Ledger::Embedded(store) => store.in_maintenance(),
            Ledger::Redis(store) => store.in_maintenance(),
        }
    }

    /// Writes out what is not yet durable and stops. Blocks; called once, after the last request.
    pub fn close(&self) {
        match self {
            Ledger::Embedded(store) => store.close(),
            Ledger::Redis(store) => {
                store.close();
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

/// Why a command that only reads has no answer.
fn unread(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(why) => StoreError::Unavailable(why),
        AdminError::Busy(why) => StoreError::Busy(why),
        error => StoreError::Unavailable(error.to_string()),
    }
}
