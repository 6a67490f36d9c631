//! What requests, commands and the ledger's thread share.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::keys::Keys;
use super::operators::Operators;
use super::owner::OwnedBy;
use super::predecessors::Predecessors;
use super::stoppable::Stoppable;
use super::told::ToldOf;
use crate::clock::Clock;
use crate::ledger::admin::{KeyRef, RecoverReport};
use crate::ledger::cover::{Cover, Uncovered};
use crate::ledger::journal::Entry;
use crate::ledger::producer::{AccountNumbers, Producer};
use crate::ledger::store_metrics::Times;
use crate::ledger::{AccountRecord, Debit, Figures, KeyRecord, ReceiptFiles};
use crate::pure::account::AccountState;
use crate::pure::error::AccountStop;
use crate::pure::hash_map::FastMap;
use crate::pure::ids::{AccountId, KeyDigest, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, Numbers};
use crate::pure::receipt::{Billed, Receipt};
use crate::pure::time::{Day, Month, Timestamp};

/// How long debits wait to be committed together: they stand in the journal meanwhile, and who reads the file has them written out before.
/// A commit writes whole pages, and debits of many accounts share few of them: of 500 each costs two thirds of what it does of 100. What
/// a kill may take is what receipts know beside their debits (when and how a call ended), so the window is not longer.
pub const COMMIT_WINDOW: Duration = Duration::from_millis(500);
/// So many do not wait: whoever reads the file waits for them, some 100 ms. Of 2,048 debits of 1,000 accounts and all models each wrote more
/// than half a page, of so many a quarter.
pub(super) const GROUP_MAX: usize = 8192;

/// The name of the setting that says whether calls are refused.
pub(super) const MAINTENANCE: &str = "maintenance";

/// An account in memory.
#[derive(Debug)]
pub struct EmbeddedAccount {
    pub(super) record: ArcSwap<AccountRecord>,
    pub(super) state: Mutex<AccountState>,
    pub(super) numbers: AccountNumbers,
    /// Its keys, in no order.
    keys: Mutex<Vec<KeyDigest>>,
    /// Held by whoever reads the account's usage.
    #[expect(
        clippy::disallowed_types,
        reason = "who waits for it gives up when a report takes too long"
    )]
    pub(super) reporting: tokio::sync::Mutex<()>,
    /// What was told of its refused calls.
    pub(super) told: ToldOf,
    /// Whether it is stopped, as its record says: each reserve looks.
    is_stopped: AtomicBool,
    /// Its calls that are to end when it is stopped.
    pub(super) stoppable: Stoppable,
}

/// What requests, commands and the ledger's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    /// In the order of their names.
    pub(super) accounts: RwLock<BTreeMap<AccountId, Arc<EmbeddedAccount>>>,
    pub(super) keys: RwLock<FastMap<KeyDigest, KeyEntry>>,
    pub(super) operators: Operators,
    pub(super) queue: Mutex<Vec<QueuedDebit>>,
    /// The journal's entries of what had been taken before: closed with what is committed next.
    pub(super) taken_before: Mutex<Vec<Entry>>,
    pub(super) maintenance: AtomicBool,
    pub(super) unwritable: AtomicBool,
    pub(super) owner: OwnedBy,
    /// Whether the process that the ledger was handed to serves by now.
    pub(super) successor_serves: AtomicBool,
    /// How many groups of debits this process has made, to name the next.
    pub(super) groups: AtomicU64,
    /// Held while a command of the control socket is done and answered.
    pub(super) answering: Mutex<()>,
    /// The lock on the file, given up when the ledger changes hands.
    pub(super) lock: Mutex<Option<File>>,
    pub(super) predecessors: Predecessors,
    /// Since when another process has the ledger, or this one takes it back.
    pub(super) away_since: Mutex<Option<Instant>>,
    pub(super) idempotency: Keys,
    /// What the start found in the journals of processes that had died.
    pub(super) recovered: Mutex<RecoverReport>,
    pub(super) producer: Producer,
    /// Where receipts are written to as well.
    pub(super) receipt_files: OnceLock<Arc<ReceiptFiles>>,
    pub(super) clock: Clock,
    pub(super) commits: Times,
    /// Debits that the thread has taken and not written, with when the first was queued.
    pub(super) unwritten: Mutex<(usize, Option<Timestamp>)>,
    /// What is in the file and not on the disk, with when the first of it was committed: while the disk refuses it, else nothing.
    pub(super) unsynced: Mutex<(usize, Option<Timestamp>)>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    pub(super) record: Arc<KeyRecord>,
    pub(super) cell: Arc<EmbeddedAccount>,
}

/// A call that is resolved in memory and not in the file.
#[derive(Debug)]
pub(super) struct QueuedDebit {
    pub(super) cell: Arc<EmbeddedAccount>,
    /// None for one that owes nothing.
    pub(super) debit: Option<Debit>,
    pub(super) day: Day,
    pub(super) month: Month,
    /// Spent in `month` after this debit.
    pub(super) month_used: Credits,
    pub(super) number: CallNumber,
    /// Its request.
    pub(super) id: RequestId,
    /// Its key has, or had, a limit: what it spends is counted.
    pub(super) is_tracked: bool,
    /// Its producer's numbers, this one closed.
    pub(super) numbers: Numbers,
    pub(super) queued: Timestamp,
    /// Closed once the file has it.
    pub(super) entry: Entry,
}

impl Shared {
    /// Debits that are not in the file, or that the disk refuses, and since when the oldest of them waits.
    pub(super) fn unsettled(&self) -> (usize, Option<Timestamp>) {
        let lock = |mutex: &Mutex<(usize, Option<Timestamp>)>| *mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, oldest) = lock(&self.unwritten);
        let (queued, first) = {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            (queue.len(), queue.first().map(|debit| debit.queued))
        };
        let (unsynced, committed) = lock(&self.unsynced);
        let since = [oldest.or(first), committed].into_iter().flatten().min();
        (taken.saturating_add(queued).saturating_add(unsynced), since)
    }

    /// Keeps a key as it is now.
    pub(super) fn keep_key(&self, digest: KeyDigest, entry: KeyEntry) {
        let cell = Arc::clone(&entry.cell);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.insert(digest, entry).is_none() {
            cell.has_key(digest);
        }
    }

    /// The record of an account's key.
    pub(super) fn key_of(&self, cell: &EmbeddedAccount, id: &KeyId) -> Option<Arc<KeyRecord>> {
        // An id is the first bytes of a digest: many are compared without a text of each.
        let begins = u64::from_str_radix(id.as_str().strip_prefix("key_")?, 16).ok()?;
        let is_named = |digest: &&KeyDigest| {
            let first = digest.as_bytes().first_chunk::<8>();
            first.is_some_and(|first| u64::from_be_bytes(*first) == begins)
        };
        let digest = {
            let of_account = cell.keys.lock().unwrap_or_else(PoisonError::into_inner);
            of_account.iter().find(is_named).copied()?
        };
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&digest).map(|entry| Arc::clone(&entry.record))
    }

    /// The record of a key of whichever account. Accounts are looked at one by one, as in a list of their keys: nobody waits for it.
    pub(super) fn key_named(&self, key: &KeyRef) -> Option<Arc<KeyRecord>> {
        let id = match key {
            KeyRef::Id(id) => id,
            KeyRef::Digest(hex) => {
                let digest = KeyDigest::from_hex(hex)?;
                let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
                return keys.get(&digest).map(|entry| Arc::clone(&entry.record));
            }
        };
        let cells: Vec<Arc<EmbeddedAccount>> = {
            let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
            accounts.values().cloned().collect()
        };
        cells.iter().find_map(|cell| self.key_of(cell, id))
    }

    /// The keys of an account, oldest first. Those of others are not looked at: whoever has many holds up nobody who has few.
    pub(super) fn keys_of(&self, cell: &EmbeddedAccount) -> Vec<KeyRecord> {
        let digests = cell.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut of = Vec::new();
        for some in digests.chunks(KEYS_AT_ONCE) {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            let found = some.iter().filter_map(|digest| keys.get(digest));
            of.extend(found.map(|entry| KeyRecord::clone(&entry.record)));
        }
        of.sort_by(|a, b| (a.created, a.id.as_str()).cmp(&(b.created, b.id.as_str())));
        of
    }
}

/// Keys that are read before whoever wants to change one may do so.
const KEYS_AT_ONCE: usize = 256;

impl EmbeddedAccount {
    pub(super) fn new(record: AccountRecord, state: AccountState) -> EmbeddedAccount {
        EmbeddedAccount {
            is_stopped: AtomicBool::new(record.terms.status.stop().is_some()),
            record: ArcSwap::from_pointee(record),
            state: Mutex::new(state),
            numbers: AccountNumbers::default(),
            keys: Mutex::default(),
            reporting: Default::default(),
            told: ToldOf::default(),
            stoppable: Stoppable::default(),
        }
    }

    /// It has another key.
    pub(super) fn has_key(&self, digest: KeyDigest) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(digest);
    }

    /// Changes its facts, which calls see from now on. Where it is stopped, its calls that are to end then end.
    pub(super) fn set_record(&self, record: AccountRecord) {
        let stop = record.terms.status.stop();
        self.record.store(Arc::new(record));
        self.is_stopped.store(stop.is_some(), Ordering::Release);
        if let Some(stop) = stop {
            self.stoppable.end(stop);
        }
    }

    /// Why it may not call.
    pub(super) fn stop(&self) -> Option<AccountStop> {
        if !self.is_stopped.load(Ordering::Acquire) {
            return None;
        }
        self.record.load().terms.status.stop()
    }

    /// A call is to end when the account is stopped: at once, where that came before its hold.
    pub(in crate::ledger) fn ends_when_stopped(&self, cover: &Arc<Cover>) {
        self.stoppable.add(cover);
        if let Some(stop) = self.record.load().terms.status.stop() {
            cover.end(Uncovered::Stopped(stop));
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AccountState> {
        // Every step of an account leaves it whole, so a panic elsewhere while it was locked does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn figures(&self, clock: &Clock) -> Figures {
        let mut state = self.state();
        state.expire(clock.now());
        Figures {
            balance: state.balance(),
            held: state.held(),
            monthly_used: state.month_used(clock.now()),
        }
    }
}

impl QueuedDebit {
    /// Its receipt, when it owes something.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        let debit = self.debit.as_ref()?;
        let account = self.cell.record.load();
        Some(Receipt {
            // The moment that decides the day of the usage row.
            resolved: self.queued,
            billed: billed(&account.id, (self.id, self.number), debit),
        })
    }
}

pub(super) fn billed(account: &AccountId, (id, number): (RequestId, CallNumber), debit: &Debit) -> Billed {
    Billed::new(
        id,
        number,
        (account, &debit.key),
        &debit.model,
        (debit.usage, debit.cost, debit.held),
        debit.details.as_deref(),
    )
}
