//! Hard limits of keys and end users as the scripts take them, and the commands about them.

use std::sync::Arc;

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
use crate::pure::account::{ReserveRequest, Spent};
use crate::pure::ids::{AccountId, KeyDigest, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::spend::{END_USERS_MAX, EndUser, SpendLimits, SpendPeriod};
use crate::pure::time::Timestamp;

/// Where the end users of an account's key count in a period, in the account's slot.
pub(super) fn end_users(account: &AccountId, key: &KeyId, end_user: &EndUser, request: RequestId) -> String {
    format!("{PREFIX}{{{account}}}:spent:{key}:{}", end_user.period(request))
}

/// The hash of a call's end user, when its limits name one.
pub(super) fn end_users_of(
    account: &AccountId,
    limits: Option<&Arc<SpendLimits>>,
    request: RequestId,
) -> Option<String> {
    let limits = limits?;
    let end_user = limits.end_user()?;
    Some(end_users(account, &limits.key, &end_user, request))
}

/// How long the counts of a period are kept, in milliseconds: until its end and [`KEPT_MS`] more, for its calls may end after it. An empty
/// text for a period without an end.
pub(super) fn ttl(end_user: &EndUser, request: RequestId, now: Timestamp) -> String {
    let end = end_user.reset.next(request.time().day());
    end.map_or_else(String::new, |end| {
        end.since(now).max(0).saturating_add(KEPT_MS).to_string()
    })
}

/// The arguments of a reserve for its limits.
pub(super) fn reserve_arguments(
    command: &mut redis::Cmd,
    request: &ReserveRequest,
    limits: &SpendLimits,
    now: Timestamp,
) {
    let below = |limit: Credits, amount: Credits| limit.pico().saturating_sub(amount.pico());
    let wanted = request.wanted.max(Credits::ZERO);
    command.arg(limits.key.as_str()).arg(periods(request.id));
    match limits.own {
        None => command.arg("").arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.id.time().day()).to_string())
            .arg(below(limit.amount, wanted))
            .arg(below(limit.amount, request.at_least)),
    };
    if let (Some((id, limit)), Some(end_user)) = (limits.end_user, limits.end_user()) {
        command
            .arg(id.to_string())
            .arg(below(limit.amount, wanted))
            .arg(below(limit.amount, request.at_least))
            .arg(END_USERS_MAX)
            .arg(ttl(&end_user, request.id, now));
    }
}

/// The arguments of a wish to raise a hold.
pub(super) fn extend_arguments(command: &mut redis::Cmd, limits: &SpendLimits, request: RequestId) {
    command.arg(limits.key.as_str());
    match limits.own {
        None => command.arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.time().day()).to_string())
            .arg(limit.amount.pico()),
    };
    if let Some((id, limit)) = limits.end_user {
        command.arg(id.to_string()).arg(limit.amount.pico());
    }
}

/// The arguments of a hold of `amount` that is made anew.
pub(super) fn remake_arguments(
    command: &mut redis::Cmd,
    limits: &SpendLimits,
    (request, amount): (RequestId, i64),
    now: Timestamp,
) {
    let below = |limit: Credits| limit.pico().saturating_sub(amount);
    command.arg(limits.key.as_str()).arg(periods(request));
    match limits.own {
        None => command.arg("").arg(""),
        Some(limit) => command
            .arg(limit.reset.period(request.time().day()).to_string())
            .arg(below(limit.amount)),
    };
    if let (Some((id, limit)), Some(end_user)) = (limits.end_user, limits.end_user()) {
        let ttl = ttl(&end_user, request, now);
        command.arg(id.to_string()).arg(below(limit.amount)).arg(ttl);
    }
}

fn periods(request: RequestId) -> String {
    SpendPeriod::all_of(request.time().day())
        .map(|period| period.to_string())
        .join(" ")
}

impl RedisLedger {
    /// What a key has spent, and holds, in the period that is now.
    ///
    /// # Errors
    /// When Redis cannot say.
    pub(in crate::ledger) async fn key_spent(
        &self,
        account: &Account,
        key: &KeyId,
        reset: crate::pure::spend::Reset,
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
        reset: crate::pure::spend::Reset,
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

    /// Counts what a key spends from now on, when it is not counted yet.
    pub(super) async fn track(&self, link: &Link, account: &AccountId, key: &KeyId) -> Result<(), AdminError> {
        let [name, _] = account_keys(account);
        let of_key = usage_of_key(account, key);
        let tracked = self
            .run_script(link, &script::TRACK, &[&name, &of_key], &[key.as_str()])
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
            let before = match reply::list(&read)? {
                [text, _] => reply::text(text)?.to_owned(),
                _ => return Err(AdminError::NoKey),
            };
            record.settings = change.applied(&record.settings).map_err(AdminError::Invalid)?;
            if record.settings.has_limits() {
                // First: from when on a limit can be asked for, what counts under it is counted.
                self.track(link, &record.account, &record.id).await?;
                let [account, _] = account_keys(&record.account);
                self.confirm(link, &[&account]).await?;
            }
            let unrevoked = crate::ledger::KeyRecord {
                revoked: None,
                ..record.clone()
            };
            let text = record_text(&unrevoked)?;
            let arguments: [&str; 4] = [&before, &text, &channel, &message];
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

/// For how long the counts of a period outlive it: longer than any call runs.
const KEPT_MS: i64 = 2 * 86_400_000;
/// How often a change of a key is tried while others change it.
const SET_TRIES_MAX: u32 = 8;
