//! Administrative writes are told only when a replica has them: a fail-over must not undo a payment or a revocation that was acknowledged.

use std::collections::BTreeMap;

use redis::{RedisResult, Value};

use super::admission_breaker::millis;
use super::link::Link;
use super::reply;
use super::shared::Shared;
use super::slots::slot_of;
use crate::ledger::admin::AdminError;

impl Shared {
    /// Waits until a replica has what was written on `link`'s connection, at each master that one of `keys` belongs to. A master without
    /// replicas has nothing to wait for.
    ///
    /// # Errors
    /// When none says so within a moment: what was written stands, and may be lost by a fail-over.
    pub(super) async fn confirm(&self, link: &Link, keys: &[&str]) -> Result<(), AdminError> {
        let slots: BTreeMap<u16, &str> = keys.iter().map(|key| (slot_of(key.as_bytes()), *key)).collect();
        for slot in slots.into_keys() {
            let asked = self.confirm_at(link, slot);
            let confirmed = match tokio::time::timeout(self.options.timeout.saturating_mul(TRIES + 1), asked).await {
                Ok(Ok(confirmed)) => confirmed,
                Ok(Err(error)) if error.code() == Some("NOPERM") => {
                    log::warn!(
                        "Redis does not tell whether a replica has what was written: its user needs +role and +wait"
                    );
                    true
                }
                Ok(Err(error)) => return Err(AdminError::NotConfirmed(error.to_string())),
                Err(_) => false,
            };
            if !confirmed {
                return Err(AdminError::NotConfirmed("no replica has it yet".to_owned()));
            }
        }
        Ok(())
    }

    async fn confirm_at(&self, link: &Link, slot: u16) -> RedisResult<bool> {
        let shard = self.shards.of_slot(slot);
        let (mut connection, _) = link.line(&shard).connection(&shard.address).await?;
        let role = connection.send(&redis::cmd("ROLE")).await?;
        let replicas = reply::list(&role).ok().and_then(|role| reply::list(role.get(2)?).ok());
        if replicas.is_none_or(<[Value]>::is_empty) {
            return Ok(true);
        }
        let within = self
            .options
            .timeout
            .saturating_mul(4)
            .checked_div(5)
            .unwrap_or_default();
        for _ in 0..TRIES {
            let mut wait = redis::cmd("WAIT");
            wait.arg(1).arg(millis(within).max(1));
            let have = connection.send(&wait).await?;
            if reply::integer(&have).is_ok_and(|replicas| replicas > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How often a replica is waited for, each time for the most part of a call's time-out.
const TRIES: u32 = 3;
