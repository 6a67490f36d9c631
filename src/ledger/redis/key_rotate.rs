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

/// A rotation whose new key is written, and whose old key holds on as it was.
struct Begun {
    old_digest: KeyDigest,
    /// The old key's record as it was read, which the new one was made of.
    before: String,
    new: KeyRecord,
}

/// What became of a step that ends the old key.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Ended,
    /// Its record is another one than the new key was made of, and it was not ended.
    Changed,
}

impl Shared {
    pub(super) async fn rotate_key(
        &self,
        link: &Link,
        key: &KeyRef,
        rotation: Rotation,
    ) -> Result<AdminReply, AdminError> {
        let begun = self.begin_rotation(link, key, rotation).await?;
        let (old_digest, new) = (begun.old_digest, self.finish_rotation(link, begun, rotation).await?);
        // From here on the customer may have the new one alone.
        let left = Left::Successor(rotation.digest, key.clone());
        match self.confirm(link, &[&key_name(&old_digest)]).await {
            Ok(()) => Ok(AdminReply::Key(new)),
            Err(error) => self.done_unconfirmed(link, &left, AdminReply::Key(new), error).await,
        }
    }

    /// Writes the new key.
    async fn begin_rotation(&self, link: &Link, key: &KeyRef, rotation: Rotation) -> Result<Begun, AdminError> {
        let old_digest = self.digest_of(link, key).await?;
        let (old, before) = self.record_of(link, &old_digest).await?;
        let terms = self.view(link, &old.account).await?.record.terms;
        terms.allows_key().map_err(AdminError::Conflict)?;
        // Whether it can be rotated at all, before anything is written.
        rotation.new_key(&old, None, self.time(link).await?)?;
        let mut exists = redis::cmd("EXISTS");
        exists.arg(key_name(&rotation.digest));
        if reply::integer(&self.command(link, exists).await?)? != 0 {
            return Err(taken());
        }
        let new = self.successor(link, &old, rotation).await?;
        self.insert_key(link, &rotation.digest, &new).await?;
        Ok(Begun {
            old_digest,
            before,
            new,
        })
    }

    /// Ends the old key, once a fail-over cannot lose the new one. Where the old one was changed since it was read, the new one, whose text
    /// nobody has yet, is first given what it has now: else a limit that was set meanwhile would hold for no key that stays.
    ///
    /// # Errors
    /// 409 when the old key has ended otherwise, or others go on changing it: the new one is revoked then.
    async fn finish_rotation(&self, link: &Link, begun: Begun, rotation: Rotation) -> Result<KeyRecord, AdminError> {
        let finished = self.try_to_finish(link, begun, rotation).await;
        if let Err(AdminError::Conflict(_)) = &finished {
            self.revoke_unseen(link, &rotation.digest).await?;
        }
        finished
    }

    async fn try_to_finish(&self, link: &Link, begun: Begun, rotation: Rotation) -> Result<KeyRecord, AdminError> {
        let Begun {
            old_digest,
            mut before,
            mut new,
        } = begun;
        for _ in 0..TRIES_MAX {
            let [account, _] = account_keys(&new.account);
            let (of_account, of_id) = (keys_of_account(&new.account), key_id_key(&new.id));
            self.confirm(link, &[&account, &of_account, &of_id, &key_name(&rotation.digest)])
                .await?;
            if self.end_key(link, &old_digest, &before, rotation).await? == Ending::Ended {
                return Ok(new);
            }
            let (old, text) = self.record_of(link, &old_digest).await?;
            let newer = self.successor(link, &old, rotation).await?;
            self.replace_unseen(link, &rotation.digest, (&new, &newer)).await?;
            (before, new) = (text, newer);
        }
        Err(AdminError::Conflict(format!(
            "others change {} at the same time: it holds on, and is not rotated; run it again",
            KeyId::of(&old_digest)
        )))
    }

    /// The new key, as the old one's record has it; what it spends counts from now on.
    async fn successor(&self, link: &Link, old: &KeyRecord, rotation: Rotation) -> Result<KeyRecord, AdminError> {
        let now = self.time(link).await?;
        // An old one that has ended is given no share.
        rotation.new_key(old, None, now)?;
        let (id, [account, _]) = (KeyId::of(&rotation.digest), account_keys(&old.account));
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
        rotation.new_key(old, counts_as, now)
    }

    /// Writes another record of a key whose text nobody has.
    async fn replace_unseen(
        &self,
        link: &Link,
        digest: &KeyDigest,
        (before, record): (&KeyRecord, &KeyRecord),
    ) -> Result<(), AdminError> {
        let (before, text) = (record_text(before)?, record_text(record)?);
        let (channel, message) = (channel(), Change::Key(*digest).text());
        let arguments: [&str; 4] = [&before, &text, &channel, &message];
        let set = self
            .run_script(link, &script::KEY_SET, &[&key_name(digest)], &arguments)
            .await?;
        self.cache.forget_key(digest);
        // A step that was sent twice finds what it wrote itself.
        if reply::text(&set)? == "set" || self.record_of(link, digest).await?.1 == text {
            return Ok(());
        }
        Err(AdminError::Conflict(format!(
            "somebody else changes the new key {}: the old one holds on, and is not rotated; run it again",
            record.id
        )))
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

    /// Ends the old key of a rotation, now or when the overlap is over, unless its record is another one than `before`.
    async fn end_key(
        &self,
        link: &Link,
        digest: &KeyDigest,
        before: &str,
        rotation: Rotation,
    ) -> Result<Ending, AdminError> {
        let (name, channel, message) = (key_name(digest), channel(), Change::Key(*digest).text());
        let new = KeyId::of(&rotation.digest);
        // Another rotation, or somebody who revokes it, was first.
        let was_revoked = || Err(over(&KeyId::of(digest), "revoked"));
        if rotation.is_at_once() {
            let now = self.now_text();
            let arguments: [&str; 5] = [&now, &channel, &message, new.as_str(), before];
            let revoked = self.run_script(link, &script::REVOKE, &[&name], &arguments).await?;
            self.cache.forget_key(digest);
            return match reply::list(&revoked)? {
                [] => was_revoked(),
                [_] => Ok(Ending::Changed),
                _ => Ok(Ending::Ended),
            };
        }
        let (record, current) = self.record_of(link, digest).await?;
        if record.revoked.is_some() {
            return was_revoked();
        }
        if current != before {
            return Ok(Ending::Changed);
        }
        let text = record_text(&rotation.old_key(&record, self.time(link).await?))?;
        let arguments: [&str; 5] = [before, &text, &channel, &message, new.as_str()];
        let set = self.run_script(link, &script::KEY_SET, &[&name], &arguments).await?;
        self.cache.forget_key(digest);
        match reply::text(&set)? {
            "set" => Ok(Ending::Ended),
            "revoked" => was_revoked(),
            _ => Ok(Ending::Changed),
        }
    }
}

/// How often the end of a key is tried while others change it: each time the new one is written and confirmed anew.
const TRIES_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::ledger::Ledger;
    use crate::ledger::admin::AdminOp;
    use crate::ledger::key_settings::{AmountChange, KeyChange};
    use crate::ledger::redis::RedisLedger;
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::{NOW, block_on, credits, key_create, patient, redis_of, run};
    use crate::pure::ids::Tier;

    fn ledger_with_account(server: &RedisServer) -> Ledger {
        let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(Clock::manual(NOW))).unwrap());
        let create = AdminOp::AccountCreate {
            account: "acme".parse().unwrap(),
            tier: Tier::Pro,
            quota_pico: None,
            terms: Default::default(),
        };
        run(&ledger, create).unwrap();
        ledger
    }

    /// Between the steps of a rotation another node sets a limit, which was told as set: the key that stays has it.
    #[test]
    fn what_is_set_while_a_key_is_rotated_holds_for_the_key_that_stays() {
        let server = RedisServer::start();
        let ledger = ledger_with_account(&server);
        let shared = &redis_of(&ledger).shared;
        for (n, overlap_ms) in [(1, 0), (3, 3_600_000)] {
            let [old, new] = [n, n + 1].map(|n| KeyDigest::from_bytes([n; 32]));
            run(&ledger, key_create("acme", &old)).unwrap();
            let key = KeyRef::Digest(old.to_hex());
            let rotation = Rotation::of(&new.to_hex(), overlap_ms).unwrap();
            let link = Link::default();
            let begun = block_on(shared.begin_rotation(&link, &key, rotation)).unwrap();
            let change = KeyChange {
                label: Some("till".to_owned()),
                limit: Some(AmountChange::To(credits("1"))),
                ..KeyChange::default()
            };
            let change = Box::new(change);
            run(&ledger, AdminOp::KeySet { key, change }).unwrap();
            let finished = block_on(shared.finish_rotation(&link, begun, rotation)).unwrap();
            let (kept, _) = block_on(shared.record_of(&link, &new)).unwrap();
            assert_eq!(finished, kept, "{overlap_ms}");
            let limit = kept.settings.limit.map(|limit| limit.amount);
            assert_eq!(
                (kept.settings.label.as_deref(), limit, kept.settings.counts_as),
                (Some("till"), Some(credits("1")), Some(KeyId::of(&old))),
                "{overlap_ms}"
            );
            let (ended, _) = block_on(shared.record_of(&link, &old)).unwrap();
            assert_eq!(
                (kept.revoked, ended.revoked.is_some(), ended.expires.is_some()),
                (None, overlap_ms == 0, overlap_ms > 0),
                "{overlap_ms}"
            );
        }
    }

    /// Whoever revokes the old key, as one that was stolen, leaves no key that works: the new one may be the thief's.
    #[test]
    fn a_key_in_place_of_one_that_is_revoked_meanwhile_is_revoked_too() {
        let server = RedisServer::start();
        let ledger = ledger_with_account(&server);
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
                let begun = Begun {
                    old_digest: old,
                    before: shared.record_of(&link, &old).await.unwrap().1,
                    new: shared.record_of(&link, &new).await.unwrap().0,
                };
                let ended = shared.finish_rotation(&link, begun, rotation).await;
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
