//! Keys that calls come with, and their accounts' facts: from the cache, or read in Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{OptionFuture, join};
use redis::Value;
use tokio::task::JoinHandle;

use super::account::Account;
use super::cache::KnownKey;
use super::link::Link;
use super::options::unavailable;
use super::reply;
use super::shared::{Shared, accounts_key, key_name, read_record};
use super::slots::slot_of;
use crate::ledger::{AccountRecord, StoreError};
use crate::pure::ids::KeyDigest;
use crate::pure::time::Timestamp;

impl Shared {
    /// A key and its account's facts, where Redis knows it. No call waits for what other calls have used in the last half minute: it is read
    /// again before it is too old.
    pub(super) async fn find_key(self: &Arc<Shared>, digest: &KeyDigest) -> Result<Option<KnownKey>, StoreError> {
        let Some(current) = self.cache.key(digest, self.now_ms()) else {
            // Apart, so that the call of a key that is known takes no more memory for it.
            return self.key(digest).boxed().await;
        };
        if current.is_due {
            drop(self.read_ahead(digest));
        }
        Ok(Some(current.known))
    }

    /// Reads a key again, beside the call that found that this is due. None where enough are read already.
    pub(super) fn read_ahead(self: &Arc<Shared>, digest: &KeyDigest) -> Option<JoinHandle<()>> {
        let permit = self.cache.read_ahead(digest)?;
        let (shared, digest) = (Arc::clone(self), *digest);
        #[expect(
            clippy::disallowed_methods,
            reason = "nobody needs its end: where it fails or is dropped, the call that finds the key too old reads it"
        )]
        Some(tokio::spawn(async move {
            let _permit = permit;
            // However slow its server is: no call waits for it.
            if let Err(error) = shared.read_key(&shared.link(), &digest).await {
                log::debug!("a key that is in use was not read again: {error}");
            }
        }))
    }

    /// A key that is not known, or not for sure: read, or as it was while the master that keeps it is away. In a cluster that need not be the
    /// account's own, whose calls go on then. Nobody can revoke the key there meanwhile.
    pub(super) async fn key(self: &Arc<Shared>, digest: &KeyDigest) -> Result<Option<KnownKey>, StoreError> {
        if !self.shards.is_cluster() {
            return self.read_key(&self.link(), digest).await;
        }
        self.key_in_cluster(digest).boxed().await
    }

    async fn key_in_cluster(self: &Arc<Shared>, digest: &KeyDigest) -> Result<Option<KnownKey>, StoreError> {
        let shard = self.shards.of_slot(slot_of(key_name(digest).as_bytes()));
        let link = self.link();
        let known = self.cache.key_while_away(digest, self.now_ms());
        let Some((known, is_doubted)) =
            known.filter(|(known, _)| self.shards.of(&known.account).number != shard.number)
        else {
            return self.read_key(&link, digest).await;
        };
        // Whether the master is back is asked by the ledger's thread: no call of an account of another waits for that.
        if shard.guard.is_open() {
            return Ok(Some(known));
        }
        let (shared, of) = (Arc::clone(self), *digest);
        let mut reading = Box::pin(async move { shared.read_key(&shared.link(), &of).await });
        // One that is slow is not away: it is waited for longer where the key may have been revoked, and read on beside the call that goes on.
        let within = if is_doubted { DOUBTED_AWAY_AFTER } else { AWAY_AFTER };
        match tokio::time::timeout(within, &mut reading).await {
            Ok(Err(StoreError::Unavailable(_))) => Ok(Some(known)),
            Ok(read) => read,
            Err(_) => {
                self.read_on(reading);
                Ok(Some(known))
            }
        }
    }

    /// Goes on with a reading of a key that its call does not wait for.
    fn read_on(&self, reading: impl Future<Output = Result<Option<KnownKey>, StoreError>> + Send + 'static) {
        let Some(permit) = self.cache.read_on() else { return };
        #[expect(clippy::disallowed_methods, reason = "as that of a key that is read ahead")]
        drop(tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = reading.await {
                log::debug!("a key whose server is slow was not read: {error}");
            }
        }));
    }

    /// Reads a key and its account's facts, and keeps them.
    pub(super) async fn read_key(&self, link: &Link, digest: &KeyDigest) -> Result<Option<KnownKey>, StoreError> {
        let generation = self.cache.generation();
        let read_ms = self.now_ms();
        let mut command = redis::cmd("HMGET");
        command.arg(key_name(digest)).arg("record").arg("revoked");
        // Of a key that was known before its account is asked at once.
        let before = self.cache.account_of(digest);
        let facts = OptionFuture::from(before.as_ref().map(|account| self.read_facts(link, account)));
        let (key, facts) = join(self.command(link, command), facts).await;
        let Some(key) = read_record(&key?)? else {
            self.check_that_it_is_all_there(link).boxed().await?;
            return Ok(None);
        };
        self.has_accounts.store(true, Ordering::Relaxed);
        if self.is_emptied.load(Ordering::Relaxed) {
            drop(self.has_list(link).boxed().await);
        }
        let account = self.cache.account(&key.account);
        let facts = match facts {
            Some(facts) if before.is_some_and(|before| *before.id() == key.account) => facts?,
            _ => self.read_facts(link, &account).await?,
        };
        let entry = KnownKey {
            key: Arc::new(key),
            facts: Arc::new(facts),
            account,
            read_ms,
        };
        self.cache.put(*digest, entry.clone(), generation);
        Ok(Some(entry))
    }

    /// A key that Redis does not know is a wrong one, unless Redis has lost everything that it knew when this process asked before: then
    /// no key is wrong, and no call can be admitted. Not asked of a cluster, whose other masters may be away.
    ///
    /// # Errors
    /// When there are no accounts any more, or Redis cannot say.
    async fn check_that_it_is_all_there(&self, link: &Link) -> Result<(), StoreError> {
        if self.shards.is_cluster() || !self.has_accounts.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.has_list(link).await? {
            return Ok(());
        }
        if !self.is_emptied.swap(true, Ordering::Relaxed) {
            log::error!(
                "MONEY: Redis has no accounts any more: it has lost its data. Calls are refused until it is restored"
            );
        }
        Err(unavailable("Redis has lost the accounts that it had"))
    }

    /// Whether Redis has a list of accounts. Once it has, it is not emptied any more: when it loses its data again, that is told again.
    async fn has_list(&self, link: &Link) -> Result<bool, StoreError> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(accounts_key());
        match self.command(link, exists).await? {
            Value::Int(0) => Ok(false),
            Value::Int(_) => {
                self.is_emptied.store(false, Ordering::Relaxed);
                Ok(true)
            }
            other => Err(reply::corrupt(&format!("{other:?} says not whether a key exists"))),
        }
    }

    pub(super) async fn read_facts(&self, link: &Link, account: &Account) -> Result<AccountRecord, StoreError> {
        let [name, _] = account.keys();
        let mut command = redis::cmd("HMGET");
        command.arg(name).arg("tier").arg("quota").arg("created").arg("ut");
        let value = self.command(link, command).await?;
        let [tier, quota, created, terms] = reply::list(&value)? else {
            return Err(reply::corrupt("an account has other fields than it should"));
        };
        let tier = reply::optional_text(tier)?.ok_or_else(reply::no_account)?;
        let quota = reply::optional_text(quota)?;
        Ok(AccountRecord {
            id: account.id().clone(),
            tier: tier.parse().map_err(|_| reply::corrupt("an account has no tier"))?,
            monthly_quota: quota.map(|quota| reply::credits(Some(quota))).transpose()?,
            created: Timestamp(reply::number(reply::optional_text(created)?)?),
            terms: super::kept_terms::read(reply::optional_text(terms)?.unwrap_or_default())?,
        })
    }
}

/// How long a key is waited for that is known from before, in case the master that keeps it is away.
const AWAY_AFTER: Duration = Duration::from_millis(100);
/// The same where a revocation of it may not have been heard.
const DOUBTED_AWAY_AFTER: Duration = Duration::from_millis(200);
const _: () = assert!(DOUBTED_AWAY_AFTER.as_millis() > AWAY_AFTER.as_millis());
