//! Administrative writes are told only when a replica has them: a fail-over must not undo a payment or a revocation that was acknowledged.

use std::collections::BTreeMap;

use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, RedisResult, Value};

use super::address::Connection;
use super::core::Core;
use super::guard::millis;
use super::link::Link;
use super::reply;
use crate::store::admin::AdminError;

impl Core {
    /// Waits until a replica has what was written on `link`'s connection, at each master that one of `keys` belongs to. A master without
    /// replicas has nothing to wait for.
    ///
    /// # Errors
    /// When none says so within a moment: what was written stands, and may be lost by a fail-over.
    pub(super) async fn confirm(&self, link: &Link, keys: &[&str]) -> Result<(), AdminError> {
        let slots: BTreeMap<u16, &str> = keys.iter().map(|key| (slot_of(key), *key)).collect();
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
        let (mut connection, _) = link.connection(&self.address).await?;
        let role = at(&mut connection, slot, &redis::cmd("ROLE")).await?;
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
            let have = at(&mut connection, slot, &wait).await?;
            if reply::integer(&have).is_ok_and(|replicas| replicas > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Asks the master of a slot.
async fn at(connection: &mut Connection, slot: u16, command: &Cmd) -> RedisResult<Value> {
    match connection {
        Connection::One(_) => connection.send(command).await,
        Connection::Cluster(cluster) => {
            let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
            let answer = cluster.route_command(command.clone(), RoutingInfo::SingleNode(route));
            answer.await?.extract_error()
        }
    }
}

/// The slot of a key, by its hash tag.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    let crc = tag.unwrap_or(key).bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            (crc << 1) ^ carry
        })
    });
    crc % 16_384
}

/// How often a replica is waited for, each time for the most part of a call's time-out.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("tg1:{acme}:keys"), slot_of("acme"));
        assert_eq!(slot_of("a{}b"), slot_of("a{}b"));
    }
}
