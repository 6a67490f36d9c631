//! Whether calls that dead processes left are this Redis': a journal may be another's, where an account of the same name is another customer's,
//! but no key of it is the same. Asked by whoever recovers a journal; calls of this process, whose keys Redis has admitted, ask nothing here.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::RedisLedger;
use super::account::{account_keys, keys_of_account, producer_field};
use super::commands::key_id_key;
use super::link::Link;
use super::options::unavailable;
use super::reply;
use super::shared::{Shared, key_name, read_record};
use crate::ledger::{STOPPED, StoreError};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::numbers::CallNumber;

/// An account, and the key under which calls of it were made.
pub(in crate::ledger) type KeyOfAccount = (AccountId, KeyId);

/// Which calls of a key are this Redis'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum KnownCalls {
    /// All of them: the account has the key, revoked or not.
    All,
    /// Those with these numbers, which the account has closed; the key is not there.
    Closed(Vec<CallNumber>),
}

impl RedisLedger {
    /// Which calls of these keys are this Redis', of those with these numbers. An error says nothing of any. Blocks; called on a thread that is
    /// on no runtime.
    pub(in crate::ledger) fn known_calls(
        &self,
        asked: BTreeMap<KeyOfAccount, Vec<CallNumber>>,
    ) -> BTreeMap<KeyOfAccount, Result<KnownCalls, StoreError>> {
        if asked.is_empty() {
            return BTreeMap::new();
        }
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        match &*commands {
            Some(runtime) => runtime.block_on(self.shared.known_calls(asked)),
            None => {
                let unasked = |key| (key, Err(unavailable(STOPPED)));
                asked.into_keys().map(unasked).collect()
            }
        }
    }
}

impl Shared {
    /// Asks for some keys at once, and for no more of them once that has taken long: whoever recovers a journal tends another one.
    async fn known_calls(
        &self,
        asked: BTreeMap<KeyOfAccount, Vec<CallNumber>>,
    ) -> BTreeMap<KeyOfAccount, Result<KnownCalls, StoreError>> {
        let (own, began) = (self.link(), crate::clock::monotonic());
        let link: &Link = &own;
        let asks = asked.into_iter().map(|((account, key), numbers)| async move {
            let known = match began.elapsed() < ASKED_MAX {
                true => self.known_of_key(link, (&account, &key), &numbers).await,
                false => Err(unavailable("the answers for other keys have taken too long")),
            };
            ((account, key), known)
        });
        stream::iter(asks).buffer_unordered(AT_ONCE).collect().await
    }

    async fn known_of_key(
        &self,
        link: &Link,
        (account, key): (&AccountId, &KeyId),
        numbers: &[CallNumber],
    ) -> Result<KnownCalls, StoreError> {
        if self.has_key(link, account, key).await? {
            return Ok(KnownCalls::All);
        }
        // Where somebody had calls of a key billed that was lost, this Redis has them.
        let mut by_producer: BTreeMap<String, Vec<CallNumber>> = BTreeMap::new();
        for number in numbers {
            by_producer.entry(producer_field(*number)).or_default().push(*number);
        }
        let [name, _] = account_keys(account);
        let mut closed = Vec::new();
        for (field, numbers) in by_producer {
            let mut command = redis::cmd("HGET");
            command.arg(&name).arg(&field);
            if let Some(known) = reply::numbers(&self.command(link, command).await?) {
                closed.extend(numbers.into_iter().filter(|number| known.is_closed(number.number)));
            }
        }
        Ok(KnownCalls::Closed(closed))
    }

    /// Whether the key is one of the account's, revoked or not: no key's record is ever deleted. In a cluster another master than the account's
    /// may have it. Where that one has lost it, or does not answer, the list at the account's own is believed that it has the key; that it has not
    /// is believed only beside the other's answer.
    pub(super) async fn has_key(&self, link: &Link, account: &AccountId, key: &KeyId) -> Result<bool, StoreError> {
        match self.has_record(link, account, key).await {
            Ok(true) => Ok(true),
            Ok(false) => self.lists_key(link, account, key).await,
            Err(error) if self.shards.is_cluster() => match self.lists_key(link, account, key).await {
                Ok(true) => Ok(true),
                Ok(false) | Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn has_record(&self, link: &Link, account: &AccountId, key: &KeyId) -> Result<bool, StoreError> {
        let mut by_id = redis::cmd("GET");
        by_id.arg(key_id_key(key));
        let found = self.command(link, by_id).await?;
        let Some(hex) = reply::optional_text(&found)? else {
            return Ok(false);
        };
        let digest = KeyDigest::from_hex(hex).ok_or_else(|| reply::corrupt("a key's digest"))?;
        let mut command = redis::cmd("HMGET");
        command.arg(key_name(&digest)).arg("record").arg("revoked");
        let record = read_record(&self.command(link, command).await?)?;
        Ok(record.is_some_and(|record| record.account == *account))
    }

    async fn lists_key(&self, link: &Link, account: &AccountId, key: &KeyId) -> Result<bool, StoreError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys_of_account(account));
        let members = self.command(link, members).await?;
        for hex in reply::list(&members)? {
            let digest = KeyDigest::from_hex(reply::text(hex)?).ok_or_else(|| reply::corrupt("a key's digest"))?;
            if KeyId::of(&digest) == *key {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How many keys are asked for at once.
const AT_ONCE: usize = 256;
/// For how long keys are asked for in one look at journals, for its thread tends this process' own; each ask takes as long as a call waits for
/// Redis, a few times, at most. What is left is asked for in the next look.
const ASKED_MAX: Duration = Duration::from_secs(1);
