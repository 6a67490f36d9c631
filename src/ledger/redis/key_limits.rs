//! Hard limits of keys: how they are set, and what is asked of them.

use super::RedisLedger;
use super::account::{Account, account_keys, usage_of_key};
use super::link::Link;
use super::reply;
use super::script::{self, PREFIX};
use super::server_health::{Change, channel};
use super::shared::{Shared, key_name, read_record, record_text};
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminReply, KeyRef};
use crate::ledger::key_settings::KeyChange;
use crate::pure::account::Spent;
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::spend::Reset;

impl RedisLedger {
    /// What a key has spent, and holds, in the period that is now.
    ///
    /// # Errors
    /// When Redis cannot say.
    pub(in crate::ledger) async fn key_spent(
        &self,
        account: &Account,
        key: &KeyId,
        reset: Reset,
    ) -> Result<Spent, StoreError> {
        let shared = &self.shared;
        shared.barrier(account).await?;
        shared.key_spent(&shared.link(), account.keys(), key, reset).await
    }
}

impl Shared {
    pub(super) async fn key_spent(
        &self,
        link: &Link,
        keys: [&str; 2],
        key: &KeyId,
        reset: Reset,
    ) -> Result<Spent, StoreError> {
        let now = self.now_text();
        let arguments = [now.as_str(), key.as_str(), reset.name()];
        let found = self.run_script(link, &script::KEY_SPENT, &keys, &arguments).await?;
        let [spent, committed] = reply::list(&found)? else {
            return Err(reply::corrupt("what a key has spent has two parts"));
        };
        let (spent, committed) = (reply::amount(spent)?, reply::amount(committed)?);
        let held = reply::held(committed, spent)?;
        Ok(Spent { spent, held })
    }

    /// Counts what a key spends from now on, when it is not counted yet. `is_new`: it was made just now, and has no usage to be looked for.
    pub(super) async fn track(
        &self,
        link: &Link,
        (account, key): (&AccountId, &KeyId),
        is_new: bool,
    ) -> Result<(), AdminError> {
        let [name, _] = account_keys(account);
        let (of_key, now) = (usage_of_key(account, key), self.now_text());
        let arguments = [key.as_str(), &now, if is_new { "1" } else { "" }];
        let tracked = self
            .run_script(link, &script::TRACK, &[&name, &of_key], &arguments)
            .await?;
        match reply::text(&tracked)? {
            "none" => Err(AdminError::NoAccount(account.clone())),
            _ => Ok(()),
        }
    }

    pub(super) async fn set_key(
        &self,
        link: &Link,
        key: &KeyRef,
        change: &KeyChange,
    ) -> Result<AdminReply, AdminError> {
        let digest = self.digest_of(link, key).await?;
        let name = key_name(&digest);
        let (channel, message) = (channel(), Change::Key(digest).text());
        for _ in 0..SET_TRIES_MAX {
            let mut command = redis::cmd("HMGET");
            command.arg(&name).arg("record").arg("revoked");
            let read = self.command(link, command).await?;
            let mut record = read_record(&read)?.ok_or(AdminError::NoKey)?;
            let (before, was_revoked) = match reply::list(&read)? {
                [text, revoked] => (reply::text(text)?, reply::optional_text(revoked)?.unwrap_or_default()),
                _ => return Err(AdminError::NoKey),
            };
            record.settings = change.applied(&record.settings).map_err(AdminError::Invalid)?;
            if record.settings.has_limits() {
                // First: from when on a limit can be asked for, what counts under it is counted.
                self.track(link, (&record.account, &record.id), false).await?;
                let [account, _] = account_keys(&record.account);
                self.confirm(link, &[&account]).await?;
            }
            let unrevoked = crate::ledger::KeyRecord {
                revoked: None,
                ..record.clone()
            };
            let text = record_text(&unrevoked)?;
            let arguments: [&str; 6] = [before, &text, &channel, &message, "", was_revoked];
            let set = self.run_script(link, &script::KEY_SET, &[&name], &arguments).await?;
            if reply::text(&set)? == "set" {
                self.cache.forget_key(&digest);
                self.confirm(link, &[&name]).await?;
                return Ok(AdminReply::Key(record));
            }
        }
        Err(AdminError::Store(
            "others change the key at the same time; nothing was changed".to_owned(),
        ))
    }

    /// The digest of the key that a command names.
    pub(super) async fn digest_of(&self, link: &Link, key: &KeyRef) -> Result<KeyDigest, AdminError> {
        let digest = match key {
            KeyRef::Digest(hex) => KeyDigest::from_hex(hex),
            KeyRef::Id(id) => {
                let mut command = redis::cmd("GET");
                command.arg(format!("{PREFIX}keyid:{id}"));
                let hex = self.command(link, command).await?;
                reply::optional_text(&hex)?.and_then(KeyDigest::from_hex)
            }
        };
        digest.ok_or(AdminError::NoKey)
    }
}

/// How often a change of a key is tried while others change it.
const SET_TRIES_MAX: u32 = 8;
