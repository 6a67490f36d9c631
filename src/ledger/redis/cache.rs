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
mod tests {
    use super::*;
    use crate::ledger::tests::rig::Rig;

    /// Whether a key that was read at `read_ms` is current.
    struct Read {
        cache: Cache,
        digest: KeyDigest,
    }

    impl Read {
        fn at(read_ms: u64) -> Read {
            let caller = Rig::embedded().caller("1");
            let entry = KnownKey {
                key: Arc::clone(&caller.key),
                facts: Arc::clone(&caller.account),
                account: Arc::new(Account::new(caller.account.id.clone())),
                read_ms,
            };
            let (cache, digest) = (Cache::default(), KeyDigest::from_bytes([1; 32]));
            cache.put(digest, entry, cache.generation());
            Read { cache, digest }
        }

        fn is_current(&self, now_ms: u64) -> bool {
            self.cache.key(&self.digest, now_ms).is_some()
        }
    }

    const READ_MS: u64 = 1_000;

    #[test]
    fn without_a_subscription_a_key_is_current_for_less_than_a_second() {
        let read = Read::at(READ_MS);
        assert!(read.is_current(READ_MS + millis(AGE_MAX) - 1));
        assert!(!read.is_current(READ_MS + millis(AGE_MAX)));
    }

    #[test]
    fn while_the_subscription_lives_it_is_current_for_a_minute() {
        let read = Read::at(READ_MS);
        let later = READ_MS + millis(LIVE_AGE_MAX) - 1;
        read.cache.subscription_lives(later - millis(LIVES_FOR) + 1);
        assert!(read.is_current(later));
        // It gave no sign since.
        assert!(!read.is_current(later + 1));
        read.cache.subscription_lives(later + 1);
        assert!(!read.is_current(later + 1), "a minute is over");
        let read = Read::at(READ_MS);
        read.cache.subscription_lives(READ_MS + 5_000);
        assert!(read.is_current(READ_MS + 5_000));
        read.cache.subscription_ended();
        assert!(!read.is_current(READ_MS + 5_000));
    }

    #[test]
    fn a_key_in_use_is_due_for_half_a_minute_once_and_not_for_more_than_are_read_at_once() {
        let read = Read::at(READ_MS);
        let due = READ_MS + millis(DUE_AGE);
        read.cache.subscription_lives(due);
        let is_due = |now_ms| read.cache.key(&read.digest, now_ms).unwrap().is_due;
        assert!(!is_due(due - 1) && is_due(due));
        let others: Vec<_> = (0..AHEAD_MAX)
            .map(|_| Arc::clone(&read.cache.ahead).try_acquire_owned().unwrap())
            .collect();
        assert!(read.cache.read_ahead(&read.digest).is_none());
        assert!(is_due(due), "nobody reads it");
        drop(others);
        let permit = read.cache.read_ahead(&read.digest).unwrap();
        assert!(!is_due(due) && read.cache.read_ahead(&read.digest).is_none());
        drop(permit);
        assert!(
            read.cache.read_ahead(&KeyDigest::from_bytes([9; 32])).is_none(),
            "it is not known"
        );
        let known = KnownKey {
            read_ms: due,
            ..read.cache.key(&read.digest, due).unwrap().known
        };
        read.cache.put(read.digest, known, read.cache.generation());
        assert!(!is_due(due) && read.is_current(due));
        read.cache.subscription_lives(due + millis(DUE_AGE));
        assert!(is_due(due + millis(DUE_AGE)));
    }

    #[test]
    fn what_was_read_before_a_doubt_or_forgotten_is_read_again() {
        let read = Read::at(READ_MS);
        read.cache.doubt_all(READ_MS);
        assert!(!read.is_current(READ_MS));
        let read = Read::at(READ_MS);
        read.cache.doubt_all(READ_MS - 1);
        assert!(read.is_current(READ_MS));
        read.cache.forget_key(&read.digest);
        assert!(!read.is_current(READ_MS));
    }

    #[test]
    fn what_may_have_been_revoked_unheard_is_doubted() {
        let read = Read::at(READ_MS);
        let is_doubted = |now_ms| {
            read.cache
                .key_while_away(&read.digest, now_ms)
                .map(|(_, is_doubted)| is_doubted)
        };
        read.cache.subscription_lives(READ_MS);
        assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR) - 1), Some(false));
        assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR)), Some(true), "it gives no sign");
        read.cache.subscription_lives(READ_MS + millis(LIVES_FOR));
        assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR)), Some(false));
        read.cache.doubt_all(READ_MS);
        assert_eq!(
            is_doubted(READ_MS + millis(LIVES_FOR)),
            Some(true),
            "it was made anew since"
        );
    }

    #[test]
    fn a_key_whose_server_is_away_is_known_while_the_subscription_is_heard() {
        let read = Read::at(READ_MS);
        let known = |now_ms| read.cache.key_while_away(&read.digest, now_ms).is_some();
        let heard = READ_MS + millis(AWAY_AGE_MAX) - millis(UNHEARD_MAX);
        read.cache.subscription_lives(heard);
        read.cache.subscription_ended();
        assert!(known(heard + millis(UNHEARD_MAX) - 1));
        assert!(!known(heard + millis(UNHEARD_MAX)), "nothing was heard since");
        read.cache.subscription_lives(heard + millis(UNHEARD_MAX));
        assert!(!known(heard + millis(UNHEARD_MAX)), "it was read too long ago");
    }

    #[test]
    fn the_last_sign_of_life_is_trusted_for_so_long_and_no_longer() {
        let read = Read::at(READ_MS);
        let heard = READ_MS + millis(AGE_MAX);
        read.cache.subscription_lives(heard);
        assert!(read.is_current(heard + millis(LIVES_FOR) - 1));
        assert!(!read.is_current(heard + millis(LIVES_FOR)));
        let known = |now_ms| read.cache.key_while_away(&read.digest, now_ms).is_some();
        assert!(known(heard + millis(UNHEARD_MAX) - 1));
        assert!(!known(heard + millis(UNHEARD_MAX)));
    }

    #[test]
    fn what_was_read_before_something_was_forgotten_is_not_kept() {
        let read = Read::at(READ_MS);
        let entry = read.cache.key(&read.digest, READ_MS).unwrap().known;
        let other = KeyDigest::from_bytes([2; 32]);
        read.cache.put(other, entry.clone(), read.cache.generation());
        assert!(read.is_current(READ_MS), "another key pushes none out");
        let before = read.cache.generation();
        read.cache.forget_all();
        for digest in [read.digest, other] {
            assert!(read.cache.key(&digest, READ_MS).is_none());
        }
        read.cache.put(other, entry.clone(), before);
        assert!(read.cache.key(&other, READ_MS).is_none(), "it was read before");
        read.cache.put(other, entry, read.cache.generation());
        assert!(read.cache.key(&other, READ_MS).is_some());
    }
}
