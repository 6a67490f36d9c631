//! Keys that expire within a week. What cannot be asked for or read keeps no other key from being told, and is named.

use std::fmt::Display;
use std::time::Duration;

use futures::future::join_all;
use redis::Value;

use super::AT_ONCE;
use crate::ledger::admin::AdminError;
use crate::ledger::events;
use crate::ledger::redis::account::keys_of_account;
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::reply;
use crate::ledger::redis::script::PREFIX;
use crate::ledger::redis::shared::{Shared, key_name};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::time::Timestamp;

/// What was passed over: nobody knows whether it expires soon.
#[derive(Debug, Default)]
struct PassedOver {
    count: usize,
    /// The first of it, each with why.
    named: Vec<String>,
}

impl PassedOver {
    fn note(&mut self, what: impl Display, why: impl Display) {
        self.join(PassedOver {
            count: 1,
            named: vec![format!("{what}: {why}")],
        });
    }

    fn join(&mut self, other: PassedOver) {
        self.count = self.count.saturating_add(other.count);
        let room = NAMED_MAX.saturating_sub(self.named.len());
        self.named.extend(other.named.into_iter().take(room));
    }

    /// # Errors
    /// When something was passed over.
    fn told(self) -> Result<(), AdminError> {
        match self.count {
            0 => Ok(()),
            count => Err(AdminError::Store(format!(
                "passed over {count}, all others were looked at: {}",
                self.named.join("; ")
            ))),
        }
    }
}

impl Shared {
    /// One gateway of many looks at all keys, or more of them do where nobody can say whose turn it is: an event is raised once.
    ///
    /// # Errors
    /// When something was passed over: it is named, and all others were looked at.
    pub(super) async fn raise_expiring(&self, link: &Link) -> Result<(), AdminError> {
        let mut passed_over = PassedOver::default();
        let mut turn = redis::cmd("SET");
        turn.arg(format!("{PREFIX}events:keys")).arg("1").arg("NX").arg("PX");
        turn.arg(millis(KEYS_EVERY));
        match self.command(link, turn).await {
            Ok(Value::Nil) => return Ok(()),
            Ok(_) => {}
            Err(error) => passed_over.note("the turn", error),
        }
        // A week is long: what is known of the time here is enough.
        let now = self.redis_now();
        let names = match self.read_names(link).await {
            Ok(names) => names,
            Err(error) => {
                passed_over.note("accounts whose names are not known", error);
                self.cache.account_names()
            }
        };
        for some in names.chunks(AT_ONCE) {
            // Each question to a server that does not answer may wait for its time-out.
            let skips_silent = passed_over.count > 0;
            let looks = some
                .iter()
                .map(|account| self.raise_expiring_of(link, account, now, skips_silent));
            for looked in join_all(looks).await {
                passed_over.join(looked);
            }
        }
        passed_over.told()
    }

    async fn raise_expiring_of(
        &self,
        link: &Link,
        account: &AccountId,
        now: Timestamp,
        skips_silent: bool,
    ) -> PassedOver {
        let mut passed_over = PassedOver::default();
        let is_silent = |key: &str| skips_silent && self.shard_of_key(key).guard.is_failing();
        if is_silent(&keys_of_account(account)) {
            passed_over.note(format_args!("the keys of {account}"), SILENT);
            return passed_over;
        }
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys_of_account(account));
        let members = self.command(link, members).await;
        let digests = match members.as_ref().map_err(Clone::clone).and_then(reply::list) {
            Ok(digests) => digests,
            Err(error) => {
                passed_over.note(format_args!("the keys of {account}"), error);
                return passed_over;
            }
        };
        for hex in digests {
            let Some(digest) = reply::text(hex).ok().and_then(KeyDigest::from_hex) else {
                passed_over.note(format_args!("a key of {account}"), "its digest is none");
                continue;
            };
            if is_silent(&key_name(&digest)) {
                passed_over.note(KeyId::of(&digest), SILENT);
            } else if let Err(error) = self.raise_if_expiring(link, &digest, now).await {
                passed_over.note(KeyId::of(&digest), error);
            }
        }
        passed_over
    }

    /// A key in its account's list has a record: that was written first.
    async fn raise_if_expiring(&self, link: &Link, digest: &KeyDigest, now: Timestamp) -> Result<(), AdminError> {
        let (key, _) = self.record_of(link, digest).await?;
        match events::expiring(&key, now) {
            Some(event) => self.raise(link, &event).await,
            None => Ok(()),
        }
    }
}

/// How often one of all gateways looks at all keys: a little more often than each of them wants to.
const KEYS_EVERY: Duration = Duration::from_secs(3_500);
/// Why something is passed over that a server has which gave no answer before.
const SILENT: &str = "its server does not answer";
/// What is named of what was passed over.
const NAMED_MAX: usize = 10;
