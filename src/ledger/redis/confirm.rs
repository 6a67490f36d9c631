//! Administrative writes are told only when a replica has them: a fail-over must not undo a payment or a revocation that was acknowledged.
//!
//! What is confirmed need not have been written by whoever asks: a command that finds done what it was to do has written nothing, and the
//! process that did it may have died before a replica had it.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::admission_breaker::millis;
use super::link::Link;
use super::reply;
use super::script::PREFIX;
use super::shared::Shared;
use super::slots::{slot_of, tag_of};
use crate::ledger::admin::AdminError;

impl Shared {
    /// Waits until a replica has what was written until now, by anybody, at each master that one of `keys` belongs to. A master without
    /// replicas has nothing to wait for.
    ///
    /// # Errors
    /// When none says so within a moment, or the server is a master no more: what was written stands, and may be lost by a fail-over.
    pub(super) async fn confirm(&self, link: &Link, keys: &[&str]) -> Result<(), AdminError> {
        let slots: BTreeMap<u16, &str> = keys.iter().map(|key| (slot_of(key.as_bytes()), *key)).collect();
        for slot in slots.into_keys() {
            let asked = self.confirm_at(link, slot);
            let confirmed = match tokio::time::timeout(self.options.timeout.saturating_mul(TRIES + 1), asked).await {
                Ok(Ok(confirmed)) => confirmed,
                Ok(Err(error)) if error.code() == Some("NOPERM") => Err(NO_RIGHT),
                Ok(Err(error)) => return Err(AdminError::NotConfirmed(error.to_string())),
                Err(_) => Err(NOT_YET),
            };
            confirmed.map_err(|why| AdminError::NotConfirmed(why.to_owned()))?;
        }
        Ok(())
    }

    /// Says why nothing is confirmed, where that is not an error of Redis'.
    async fn confirm_at(&self, link: &Link, slot: u16) -> RedisResult<Result<(), &'static str>> {
        let shard = self.shards.of_slot(slot);
        let (mut connection, _) = link.line(&shard).connection(&shard.address).await?;
        match has_replicas(&connection.send(&redis::cmd("ROLE")).await?) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(why) => return Ok(Err(why)),
        }
        // From version 7.2 on, WAIT waits for what its own connection wrote last. That may be nothing, or less than is to be confirmed; this
        // comes after all of it.
        let mut write = redis::cmd("SET");
        write.arg(confirm_key(slot)).arg("").arg("PX").arg(millis(KEPT));
        connection.send(&write).await?;
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
                return Ok(Ok(()));
            }
        }
        Ok(Err(NOT_YET))
    }
}

/// Whether a server has replicas, as it answers `ROLE`: of a master's replicas that names those that are online.
///
/// # Errors
/// When it is no master, or the answer cannot be read: what was written there may be lost already.
fn has_replicas(role: &Value) -> Result<bool, &'static str> {
    let [kind, rest @ ..] = reply::list(role).unwrap_or_default() else {
        return Err(UNREADABLE);
    };
    match (reply::text(kind), rest) {
        (Ok("master"), [_, replicas, ..]) => match reply::list(replicas) {
            Ok(replicas) => Ok(!replicas.is_empty()),
            Err(_) => Err(UNREADABLE),
        },
        (Ok("slave"), _) => Err(NO_MASTER),
        _ => Err(UNREADABLE),
    }
}

/// What is written for a replica to confirm, in a slot. It expires.
pub(super) fn confirm_key(slot: u16) -> String {
    format!("{PREFIX}confirm:{{{}}}", tag_of(slot))
}

/// How often a replica is waited for, each time for the most part of a call's time-out.
const TRIES: u32 = 3;
/// How long what is written for that stays there.
const KEPT: Duration = Duration::from_secs(60);
const NO_RIGHT: &str = "whether a replica has it is not known, for Redis' user needs +role, +wait and +set";
const NOT_YET: &str = "no replica has it yet";
const NO_MASTER: &str = "the server is a replica now, and its master may not have it";
const UNREADABLE: &str = "the server's answer to ROLE cannot be read";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_master_says_whether_it_has_replicas() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let replica = Value::Array(vec![text("127.0.0.1"), text("6380"), text("7")]);
        let master = |replicas: Vec<Value>| Value::Array(vec![text("master"), Value::Int(7), Value::Array(replicas)]);
        assert_eq!(has_replicas(&master(Vec::new())), Ok(false));
        assert_eq!(has_replicas(&master(vec![replica])), Ok(true));
        let of_replica = [text("slave"), text("127.0.0.1"), Value::Int(1), text("connected")];
        assert_eq!(has_replicas(&Value::Array(of_replica.to_vec())), Err(NO_MASTER));
        for unreadable in [
            Value::Nil,
            Value::Array(Vec::new()),
            Value::Array(vec![text("master"), Value::Int(7)]),
            Value::Array(vec![text("master"), Value::Int(7), Value::Int(7)]),
            Value::Array(vec![text("sentinel"), Value::Array(Vec::new())]),
        ] {
            assert_eq!(has_replicas(&unreadable), Err(UNREADABLE), "{unreadable:?}");
        }
    }
}
