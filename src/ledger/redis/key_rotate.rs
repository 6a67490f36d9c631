//! A key in place of another one, in Redis: first the new one, then the end of the old one, which every node hears of. What dies between
//! leaves a key that nobody has, and the old one as it was.

use redis::Value;

use super::account::{account_keys, keys_of_account};
use super::commands::key_id_key;
use super::link::Link;
use super::nonce::nonce;
use super::reply;
use super::script;
use super::server_health::{Change, channel};
use super::shared::{Shared, key_name, read_record, record_text};
use super::unconfirmed::Left;
use crate::ledger::KeyRecord;
use crate::ledger::admin::{AdminError, AdminReply, KeyRef};
use crate::ledger::rotation::{Rotation, over, taken};
use crate::pure::ids::{KeyDigest, KeyId};

impl Shared {
    pub(super) async fn rotate_key(
        &self,
        link: &Link,
        key: &KeyRef,
        rotation: Rotation,
    ) -> Result<AdminReply, AdminError> {
        let old_digest = self.digest_of(link, key).await?;
        let (old, _) = self.record_of(link, &old_digest).await?;
        let terms = self.view(link, &old.account).await?.record.terms;
        terms.allows_key().map_err(AdminError::Conflict)?;
        let now = self.time(link).await?;
        let id = KeyId::of(&rotation.digest);
        // Whether it can be rotated at all, before anything is written.
        rotation.new_key(&old, None, now)?;
        let mut exists = redis::cmd("EXISTS");
        exists.arg(key_name(&rotation.digest));
        if reply::integer(&self.command(link, exists).await?)? != 0 {
            return Err(taken());
        }
        let [account, _] = account_keys(&old.account);
        let shared = self
            .run_script(link, &script::KEY_SHARE, &[&account], &[id.as_str(), old.id.as_str()])
            .await?;
        let counts_as = match reply::text(&shared)? {
            "" if old.settings.has_limits() => {
                return Err(AdminError::Store("what the key spends is not counted".to_owned()));
            }
            "" => None,
            key => Some(KeyId::from(key.to_owned())),
        };
        let new = rotation.new_key(&old, counts_as, now)?;
        self.insert_key(link, &rotation.digest, &new).await?;
        let (of_account, of_id) = (keys_of_account(&new.account), key_id_key(&new.id));
        // The old one is ended once a fail-over cannot lose the new one.
        self.confirm(link, &[&account, &of_account, &of_id, &key_name(&rotation.digest)])
            .await?;
        self.end_key(link, &old_digest, rotation).await?;
        // From here on the customer may have the new one alone.
        let left = Left::Successor(rotation.digest, key.clone());
        match self.confirm(link, &[&key_name(&old_digest)]).await {
            Ok(()) => Ok(AdminReply::Key(new)),
            Err(error) => self.done_unconfirmed(link, &left, AdminReply::Key(new), error).await,
        }
    }

    /// A key's record, and the same as it is kept.
    pub(super) async fn record_of(&self, link: &Link, digest: &KeyDigest) -> Result<(KeyRecord, String), AdminError> {
        let mut command = redis::cmd("HMGET");
        command.arg(key_name(digest)).arg("record").arg("revoked");
        let read: Value = self.command(link, command).await?;
        let record = read_record(&read)?.ok_or(AdminError::NoKey)?;
        match reply::list(&read)? {
            [text, _] => Ok((record, reply::text(text)?.to_owned())),
            _ => Err(AdminError::NoKey),
        }
    }

    /// Writes a key that is not there yet, and the ways to find it. Its record first: a digest is in the lists of its own account alone. Where
    /// that was done before, the same command again does the rest.
    pub(super) async fn insert_key(
        &self,
        link: &Link,
        digest: &KeyDigest,
        record: &KeyRecord,
    ) -> Result<(), AdminError> {
        let (name, text, nonce) = (key_name(digest), record_text(record)?, nonce()?);
        let created = self
            .run_script(link, &script::KEY_CREATE, &[&name], &[&text, &nonce])
            .await?;
        let is_new = reply::integer(&created)? != 0;
        if !is_new && self.record_of(link, digest).await?.0.account != record.account {
            return Err(taken());
        }
        let mut by_id = redis::cmd("SET");
        by_id.arg(key_id_key(&record.id)).arg(digest.to_hex());
        self.command(link, by_id).await?;
        let mut of_account = redis::cmd("SADD");
        of_account.arg(keys_of_account(&record.account)).arg(digest.to_hex());
        self.command(link, of_account).await?;
        if is_new { Ok(()) } else { Err(taken()) }
    }

    /// Ends the old key of a rotation, now or when the overlap is over.
    async fn end_key(&self, link: &Link, digest: &KeyDigest, rotation: Rotation) -> Result<(), AdminError> {
        let (name, channel, message) = (key_name(digest), channel(), Change::Key(*digest).text());
        if rotation.is_at_once() {
            let (now, new) = (self.now_text(), KeyId::of(&rotation.digest));
            let arguments = [now.as_str(), &channel, &message, new.as_str()];
            let revoked = self.run_script(link, &script::REVOKE, &[&name], &arguments).await?;
            self.cache.forget_key(digest);
            if reply::list(&revoked)?.is_empty() {
                // Another rotation, or somebody who revokes it, was first.
                self.revoke_unseen(link, &rotation.digest).await?;
                return Err(over(&self.record_of(link, digest).await?.0.id, "revoked"));
            }
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            let (record, before) = self.record_of(link, digest).await?;
            let unrevoked = KeyRecord {
                revoked: None,
                ..rotation.old_key(&record, self.time(link).await?)
            };
            let text = record_text(&unrevoked)?;
            let new = KeyId::of(&rotation.digest);
            let arguments: [&str; 5] = [&before, &text, &channel, &message, new.as_str()];
            let set = self.run_script(link, &script::KEY_SET, &[&name], &arguments).await?;
            match reply::text(&set)? {
                "set" => {
                    self.cache.forget_key(digest);
                    return Ok(());
                }
                "revoked" => {
                    self.revoke_unseen(link, &rotation.digest).await?;
                    return Err(over(&record.id, "revoked"));
                }
                _ => {}
            }
        }
        Err(AdminError::Store(
            "others change the old key at the same time: it holds on, and a new key is there that nobody has"
                .to_owned(),
        ))
    }
}

/// How often the end of a key is tried while others change it.
const TRIES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::ledger::Ledger;
    use crate::ledger::admin::AdminOp;
    use crate::ledger::redis::RedisLedger;
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::{NOW, block_on, key_create, patient, redis_of, run};
    use crate::pure::ids::Tier;

    /// Whoever revokes the old key, as one that was stolen, leaves no key that works: the new one may be the thief's.
    #[test]
    fn a_key_in_place_of_one_that_is_revoked_meanwhile_is_revoked_too() {
        let server = RedisServer::start();
        let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(Clock::manual(NOW))).unwrap());
        let create = AdminOp::AccountCreate {
            account: "acme".parse().unwrap(),
            tier: Tier::Pro,
            quota_pico: None,
            terms: Default::default(),
        };
        run(&ledger, create).unwrap();
        let shared = &redis_of(&ledger).shared;
        for (n, overlap_ms) in [(1, 0), (3, 3_600_000)] {
            let [old, new] = [n, n + 1].map(|n| KeyDigest::from_bytes([n; 32]));
            for key in [old, new] {
                run(&ledger, key_create("acme", &key)).unwrap();
            }
            let key = KeyRef::Digest(old.to_hex());
            run(&ledger, AdminOp::KeyRevoke { key }).unwrap();
            let rotation = Rotation::of(&new.to_hex(), overlap_ms).unwrap();
            let (ended, left) = block_on(async {
                let link = shared.link();
                let ended = shared.end_key(&link, &old, rotation).await;
                (ended, shared.record_of(&link, &new).await.unwrap().0)
            });
            assert!(
                matches!(&ended, Err(AdminError::Conflict(text)) if text.contains("is revoked")),
                "{overlap_ms}: {ended:?}"
            );
            assert!(left.revoked.is_some(), "{overlap_ms}");
        }
    }
}
