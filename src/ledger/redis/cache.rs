//! Keys and accounts that were looked up, kept as long as they are surely current.
//!
//! Every change of a key or an account is published by the script that makes it. While the subscription is known to be alive an
//! entry holds until it is invalidated; else for [`AGE_MAX`]. So a revocation works on every node within a second, whatever
//! happens to the subscription.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::account::Account;
use super::admission_breaker::millis;
use crate::ledger::{AccountRecord, KeyRecord};
use crate::pure::hash_map::FastMap;
use crate::pure::ids::{AccountId, KeyDigest};

/// What is known of keys and accounts.
#[derive(Debug)]
pub(super) struct Cache {
    known: RwLock<Known>,
    /// Until when the subscription is known to be alive, by the ledger's monotonic clock.
    live_until_ms: AtomicU64,
    /// When it gave its last sign of life.
    heard_ms: AtomicU64,
    /// Wakes when its server may not be the one that calls are sent to.
    subscription_doubted: Notify,
    /// For those who read keys again before they are too old.
    ahead: Arc<Semaphore>,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            known: RwLock::default(),
            live_until_ms: AtomicU64::default(),
            heard_ms: AtomicU64::default(),
            subscription_doubted: Notify::new(),
            ahead: Arc::new(Semaphore::new(AHEAD_MAX)),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    keys: FastMap<KeyDigest, Kept>,
    accounts: FastMap<AccountId, Arc<Account>>,
    /// Counts the invalidations: what was read before one may be what it was about.
    generation: u64,
    /// What was read before this may be out of date.
    doubted_ms: u64,
}

/// A key with its account's facts.
#[derive(Clone, Debug)]
pub(super) struct KnownKey {
    pub(super) key: Arc<KeyRecord>,
    pub(super) facts: Arc<AccountRecord>,
    pub(super) account: Arc<Account>,
    pub(super) read_ms: u64,
}

/// A key that is current.
#[derive(Debug)]
pub(super) struct CurrentKey {
    pub(super) known: KnownKey,
    /// It will soon be too old, and nobody reads it again yet.
    pub(super) is_due: bool,
}

#[derive(Debug)]
struct Kept {
    known: KnownKey,
    /// It is read again, or was when that failed.
    is_read: AtomicBool,
}

impl Cache {
    /// The key, when what is known of it is current at `now_ms`.
    pub(super) fn key(&self, digest: &KeyDigest, now_ms: u64) -> Option<CurrentKey> {
        let known = self.read();
        let Kept { known: entry, is_read } = known.keys.get(digest)?;
        let live = now_ms < self.live_until_ms.load(Ordering::Acquire);
        let age_max = if live { LIVE_AGE_MAX } else { AGE_MAX };
        let age_ms = now_ms.saturating_sub(entry.read_ms);
        let is_current = age_ms < millis(age_max) && entry.read_ms > known.doubted_ms;
        is_current.then(|| CurrentKey {
            known: entry.clone(),
            is_due: age_ms >= millis(DUE_AGE) && !is_read.load(Ordering::Relaxed),
        })
    }

    /// Leave to read a key again before it is too old, to be kept until that is done; none where somebody does, or enough others are read.
    pub(super) fn read_ahead(&self, digest: &KeyDigest) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.ahead).try_acquire_owned().ok()?;
        let known = self.read();
        let is_free = !known.keys.get(digest)?.is_read.swap(true, Ordering::Relaxed);
        is_free.then_some(permit)
    }

    /// Leave to go on with a reading that its call does not wait for; none where enough others are read.
    pub(super) fn read_on(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).try_acquire_owned().ok()
    }

    /// The account of a key that was read, however long ago.
    pub(super) fn account_of(&self, digest: &KeyDigest) -> Option<Arc<Account>> {
        self.read().keys.get(digest).map(|kept| Arc::clone(&kept.known.account))
    }

    /// The key as it was when its server answered last, where that is not too long ago and the subscription is alive, or about to be again; and
    /// whether it is doubted: it may have been revoked since, unheard.
    pub(super) fn key_while_away(&self, digest: &KeyDigest, now_ms: u64) -> Option<(KnownKey, bool)> {
        let unheard_ms = now_ms.saturating_sub(self.heard_ms.load(Ordering::Acquire));
        let known = self.read();
        let entry = &known.keys.get(digest)?.known;
        let is_recent = now_ms.saturating_sub(entry.read_ms) < millis(AWAY_AGE_MAX);
        let is_heard = now_ms < self.live_until_ms.load(Ordering::Acquire);
        let is_doubted = !is_heard || entry.read_ms <= known.doubted_ms;
        (unheard_ms < millis(UNHEARD_MAX) && is_recent).then(|| (entry.clone(), is_doubted))
    }

    /// To be asked before something is read that will be put.
    pub(super) fn generation(&self) -> u64 {
        self.read().generation
    }

    /// Keeps what was read, unless something was invalidated since `generation`.
    pub(super) fn put(&self, digest: KeyDigest, entry: KnownKey, generation: u64) {
        let mut known = self.write();
        if known.generation != generation {
            return;
        }
        entry.account.heard_stop(entry.facts.terms.status.stop());
        if known.keys.len() >= KEYS_MAX {
            known.keys.clear();
        }
        let kept = Kept {
            known: entry,
            is_read: AtomicBool::new(false),
        };
        known.keys.insert(digest, kept);
    }

    /// The account of this name: one for the life of the process, since what is under way is counted in it.
    pub(super) fn account(&self, id: &AccountId) -> Arc<Account> {
        if let Some(account) = self.read().accounts.get(id) {
            return Arc::clone(account);
        }
        let mut known = self.write();
        let account = known
            .accounts
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Account::new(id.clone())));
        Arc::clone(account)
    }

    /// The account of this name, if this process has had to do with it.
    pub(super) fn known_account(&self, id: &AccountId) -> Option<Arc<Account>> {
        self.read().accounts.get(id).cloned()
    }

    /// The names of the accounts that this process has had to do with.
    pub(super) fn account_names(&self) -> Vec<AccountId> {
        self.read().accounts.keys().cloned().collect()
    }

    /// Forgets one key.
    pub(super) fn forget_key(&self, digest: &KeyDigest) {
        let mut known = self.write();
        known.generation = known.generation.wrapping_add(1);
        known.keys.remove(digest);
    }

    /// Forgets what was read of an account.
    pub(super) fn forget_account(&self, id: &AccountId) {
        let mut known = self.write();
        known.generation = known.generation.wrapping_add(1);
        known.keys.retain(|_, kept| kept.known.account.id() != id);
    }

    /// Forgets everything that was read.
    pub(super) fn forget_all(&self) {
        let mut known = self.write();
        known.generation = known.generation.wrapping_add(1);
        known.keys.clear();
    }

    /// What was read until now may have changed unheard, and is read again before it is used.
    pub(super) fn doubt_all(&self, now_ms: u64) {
        let mut known = self.write();
        known.generation = known.generation.wrapping_add(1);
        known.doubted_ms = now_ms;
    }

    /// The subscription is known to be alive for some time from `now_ms`.
    pub(super) fn subscription_lives(&self, now_ms: u64) {
        self.live_until_ms
            .store(now_ms.saturating_add(millis(LIVES_FOR)), Ordering::Release);
        self.heard_ms.store(now_ms, Ordering::Release);
    }

    /// The subscription is gone.
    pub(super) fn subscription_ended(&self) {
        self.live_until_ms.store(0, Ordering::Release);
    }

    /// Another server answers calls: changes may be published there, and unheard where the subscription is.
    pub(super) fn doubt_subscription(&self) {
        self.subscription_doubted.notify_one();
    }

    /// Waits until that is so.
    pub(super) async fn subscription_doubted(&self) {
        self.subscription_doubted.notified().await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How old an entry may be while no subscription is known to be alive.
pub(super) const AGE_MAX: Duration = Duration::from_millis(900);
/// How old an entry may be at most.
const LIVE_AGE_MAX: Duration = Duration::from_secs(60);
/// From which age on an entry that is used is read again.
const DUE_AGE: Duration = Duration::from_secs(30);
/// How many are read again at once.
const AHEAD_MAX: usize = 32;
/// How old an entry may be whose server is away, while that of its account serves.
const AWAY_AGE_MAX: Duration = Duration::from_secs(600);
/// How long nothing may have been heard on the subscription for that: it takes this long to be made anew where its server is away too.
const UNHEARD_MAX: Duration = Duration::from_secs(5);
/// How long one sign of life of the subscription is trusted.
const LIVES_FOR: Duration = Duration::from_millis(700);
/// Keys that are kept.
const KEYS_MAX: usize = 100_000;

#[cfg(test)]
mod tests;
