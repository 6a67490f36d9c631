//! The ledger: one contract, two stores.
//!
//! [`Ledger`] is what the gateway and the commands see. The embedded store ([`embedded`]) is owned by one process and keeps
//! accounts in memory over a SQLite file; the Redis store serves one node or many. Reserving may wait for the store, within a bounded time;
//! settling and releasing never wait: the store takes the [`Hold`] and sees to it.

pub mod admin;
pub mod control;
mod cover;
pub mod embedded;
mod extend;
mod hold;
pub mod journal;
mod producer;
mod receipt_files;
mod records;
pub mod redis;
mod refusals;
pub mod sqlite;
pub mod store_metrics;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::pure::account::{Denial, ReserveRequest};
use crate::pure::ids::{AccountId, KeyDigest, RequestId, Tier};
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::numbers::CallNumber;
use crate::pure::receipt::Receipt;
use crate::pure::time::{Period, Timestamp};

use self::admin::{AdminError, AdminOp, AdminReply, ReceiptPage, ReceiptQuery, RecoverReport};
pub use self::cover::Uncovered;
pub use self::hold::Hold;
use self::journal::Entry;
pub use self::receipt_files::ReceiptFiles;
pub(crate) use self::records::pico;
pub use self::records::{AccountRecord, Debit, Figures, KeyRecord, UsageRow};
use crate::failpoints::point;

/// Who is calling, after the check: account and key facts.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key.
    pub key: Arc<KeyRecord>,
    /// The account.
    pub account: Arc<AccountRecord>,
    pub(crate) place: AccountHandle,
}

/// Where the account's figures are, so that no step has to look the account up again.
#[derive(Clone, Debug)]
pub(crate) enum AccountHandle {
    Embedded(Arc<embedded::EmbeddedAccount>),
    Redis(Arc<redis::Account>),
}

impl Caller {
    /// The key's tier: its account's, or a lower one of its own.
    pub fn tier(&self) -> Tier {
        self.key
            .tier
            .map_or(self.account.tier, |own| own.min(self.account.tier))
    }
}

/// A call that its process left behind when it died, as its journal tells it.
#[derive(Debug)]
pub(crate) enum Orphan {
    /// Nothing of an answer had been passed on: its hold is given back.
    Held,
    /// An answer had begun: this is what it costs, under this number. None in journals of before there were numbers at this stage.
    Owed { debit: Debit, number: Option<CallNumber> },
}

/// Why the store has no answer. At admission each of them is a 503: never "allowed".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or written, or did not answer in time.
    #[error("the ledger's store is unavailable: {0}")]
    Unavailable(String),
    /// Another process owns it: a gateway, or a command for a moment.
    #[error("the ledger's store is unavailable: {0}")]
    Owned(String),
    /// It answered what cannot be.
    #[error("the ledger's store holds something unreadable: {0}")]
    Corrupt(String),
}

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
            embedded::Embedded::open_keeping(path, receipts.keep_days, crate::clock::Clock::System)
                .map(Ledger::Embedded)
        }
        crate::config::Store::Redis(address) => {
            let options = redis::Options {
                receipts_per_account_max: NonZeroU32::new(receipts.per_account_max),
                ..redis::Options::default()
            };
            redis::RedisLedger::connect(address, options).map(Ledger::Redis)
        }
    }
}

impl Ledger {
    /// The caller of a key, or nothing when no such key was ever made. Revocation and expiry are the caller's to check:
    /// see [`KeyRecord`].
    pub async fn authenticate(&self, digest: &KeyDigest) -> Result<Option<Caller>, StoreError> {
        match self {
            Ledger::Embedded(store) => Ok(store.authenticate(digest)),
            Ledger::Redis(store) => Box::pin(store.authenticate(digest)).await,
        }
    }

    /// Checks limits, credit and quota and records a hold, all or nothing, in one step.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say: nothing is held that would not expire by itself.
    ///
    /// For tests and benches: a call of a client has an entry in the journal ([`Ledger::reserve_journaled`]).
    pub async fn reserve(&self, caller: &Caller, request: &ReserveRequest) -> Result<Result<Hold, Denial>, StoreError> {
        self.reserve_journaled(caller, request, Entry::none()).await
    }

    /// [`Ledger::reserve`] for a call that stands in the journal already. The entry goes along with the hold, and is closed once the
    /// store knows how the call ended.
    ///
    /// # Errors
    /// As [`Ledger::reserve`].
    pub async fn reserve_journaled(
        &self,
        caller: &Caller,
        request: &ReserveRequest,
        mut entry: Entry,
    ) -> Result<Result<Hold, Denial>, StoreError> {
        point("reserve", "before");
        let reply = match (self, &caller.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => {
                let reply = match store.reserve(cell, request, &mut entry) {
                    Ok(None) => Box::pin(store.reserve_at_successor(cell, request, &mut entry)).await,
                    Ok(Some(reply)) => Ok(reply),
                    Err(error) => Err(error),
                };
                match &reply {
                    Ok(Ok(granted)) => entry.granted(granted.amount),
                    Ok(Err(_)) | Err(_) => entry.close(),
                }
                reply?.map(|granted| (granted, entry, None))
            }
            (Ledger::Redis(store), AccountHandle::Redis(account)) => Box::pin(store.reserve(account, request, entry))
                .await?
                .map(|(granted, entry, cover)| (granted, entry, Some(cover))),
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                entry.close();
                return Err(foreign());
            }
        };
        point("reserve", "after");
        Ok(reply.map(|(granted, entry, cover)| Hold {
            ledger: self.clone(),
            place: caller.place.clone(),
            id: request.id,
            granted,
            entry,
            number: None,
            cover,
            open: true,
        }))
    }

    /// Where the figures of an account are, for the calls that a dead process left.
    ///
    /// # Errors
    /// When there is no such account.
    pub(crate) fn place(&self, account: &AccountId) -> Result<AccountHandle, StoreError> {
        match self {
            Ledger::Embedded(store) => store.place(account),
            Ledger::Redis(store) => Ok(store.place(account)),
        }
    }

    /// Settles or releases a call that a dead process left. False when its debit is known to have been taken before.
    ///
    /// # Errors
    /// When the place is another store's, or nobody knows whether the debit was taken; the entry stays in its journal then.
    pub(crate) fn take_over(
        &self,
        place: &AccountHandle,
        hold: RequestId,
        orphan: Orphan,
        entry: Entry,
    ) -> Result<bool, StoreError> {
        match (self, place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => store.take_over(cell, hold, orphan, entry),
            (Ledger::Redis(store), AccountHandle::Redis(account)) => {
                store.take_over(account, hold, orphan, entry);
                Ok(true)
            }
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                Err(foreign())
            }
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

    /// Keeps what the start recovered, to be shown on request.
    pub fn recovered(&self, report: RecoverReport) {
        if let Ledger::Embedded(store) = self {
            store.recovered(report);
        }
    }

    /// When a hold made at `now` expires unless it is renewed. In the embedded store a hold ends with its request, for both live in
    /// one process; in Redis the process that made it renews it.
    pub fn hold_expiry(&self, now: Timestamp) -> Timestamp {
        match self {
            Ledger::Embedded(_) => Timestamp(i64::MAX),
            Ledger::Redis(store) => store.hold_expiry(now),
        }
    }

    /// The rate-limit counts for answers that admit nothing.
    pub fn rate(&self, caller: &Caller, scope: &crate::pure::account::Scope, limits: Limits) -> RateView {
        match (self, &caller.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => store.rate(cell, scope, limits),
            (Ledger::Redis(store), AccountHandle::Redis(account)) => store.rate(account, scope, limits),
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                let now = Timestamp::default();
                crate::pure::limits::Window::default().view(limits, now)
            }
        }
    }

    /// The account's figures now.
    pub async fn figures(&self, caller: &Caller) -> Result<Figures, StoreError> {
        match (self, &caller.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) if !store.is_ours() => {
                Box::pin(store.figures_at_successor(cell)).await
            }
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => Ok(store.figures(cell)),
            (Ledger::Redis(store), AccountHandle::Redis(account)) => Box::pin(store.figures(account)).await,
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                Err(foreign())
            }
        }
    }

    /// The account's usage by UTC day and model, oldest first; every settlement made before the call is in it.
    pub async fn usage(&self, account: &AccountId, period: Period) -> Result<Vec<UsageRow>, StoreError> {
        let account = account.clone();
        let asked = match self {
            Ledger::Embedded(store) => return store.usage(&account, period).await,
            Ledger::Redis(store) => Box::pin(store.run(AdminOp::Usage { account, period })).await,
        };
        match asked {
            Ok(AdminReply::Usage { rows, .. }) => Ok(rows),
            Ok(_) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(AdminError::Store(error)) => Err(StoreError::Unavailable(error)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
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
            Err(AdminError::Store(error)) => Err(StoreError::Unavailable(error)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
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

/// A caller of one store was brought to another: a process has one ledger, so this cannot be.
fn foreign() -> StoreError {
    StoreError::Corrupt("the caller belongs to another ledger".to_owned())
}

/// An amount of a finding: the nearest that there is.
fn clamped(amount: i128) -> Credits {
    let limit = if amount < 0 { i64::MIN } else { i64::MAX };
    Credits::from_pico(i64::try_from(amount).unwrap_or(limit))
}

#[cfg(test)]
mod tests;
