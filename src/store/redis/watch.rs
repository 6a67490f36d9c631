//! What the ledger wants to know of its servers: whether they are fit to hold money, whether they are still the same, and what
//! other nodes and commands have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{RedisResult, Value};

use super::address::Connection;
use super::core::Core;
use super::script::PREFIX;
use super::{reply, unavailable};
use crate::pure::ids::{AccountId, KeyDigest};
use crate::store::StoreError;

/// What is said on [`channel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A key.
    Key(KeyDigest),
    /// An account's tier or quota.
    Account(AccountId),
    /// Maintenance was switched.
    Maintenance,
}

impl Change {
    /// As it is published.
    pub(super) fn text(&self) -> String {
        match self {
            Change::Key(digest) => format!("key {}", digest.to_hex()),
            Change::Account(id) => format!("account {id}"),
            Change::Maintenance => "maintenance".to_owned(),
        }
    }

    fn parse(text: &str) -> Option<Change> {
        match text.split_once(' ') {
            Some(("key", hex)) => KeyDigest::from_hex(hex).map(Change::Key),
            Some(("account", id)) => id.parse().ok().map(Change::Account),
            _ => (text == "maintenance").then_some(Change::Maintenance),
        }
    }
}

/// Where changes are published.
pub(super) fn channel() -> String {
    format!("{PREFIX}changed")
}

/// The name of the maintenance flag.
pub(super) fn maintenance_key() -> String {
    format!("{PREFIX}maintenance")
}

/// Asks the servers whether they are fit to hold money.
///
/// # Errors
/// When they cannot be reached, or one of them evicts keys when its memory is full. What a server does not tell is only warned
/// of.
pub(super) async fn check_server(core: &Core) -> Result<(), StoreError> {
    let within = core.options.timeout.max(CONNECT_WITHIN);
    let asking = async {
        let link = core.link();
        let (mut connection, _) = link.connection(&core.address).await?;
        info(&mut connection).await
    };
    let answers = match tokio::time::timeout(within, asking).await {
        Ok(answers) => answers,
        Err(_) => return Err(unavailable(&format!("no answer from {:?}", core.address))),
    };
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) if error.code() == Some("NOPERM") => {
            log::warn!("Redis does not tell its settings: see that maxmemory-policy is noeviction and that AOF is on");
            return Ok(());
        }
        Err(error) => return Err(unavailable(&format!("{:?}: {error}", core.address))),
    };
    for (node, facts) in &answers {
        let fact = |name: &str| facts.get(name).map(String::as_str);
        match (fact("maxmemory"), fact("maxmemory_policy")) {
            (Some("0"), _) | (_, Some("noeviction")) => {}
            (Some(_), Some(policy)) => {
                return Err(unavailable(&format!(
                    "{node} may evict keys (maxmemory-policy {policy}) and so lose money: set maxmemory-policy noeviction"
                )));
            }
            _ => log::warn!("{node} does not tell its maxmemory-policy: it has to be noeviction"),
        }
        if fact("aof_enabled") != Some("1") {
            log::warn!(
                "{node} has no AOF: after a crash it loses what happened since its last snapshot (appendonly yes)"
            );
        }
    }
    Ok(())
}

/// The servers that hold the ledger now. One that is restarted, or takes another's place, is not one that was there before.
pub(super) async fn servers(connection: &mut Connection) -> RedisResult<BTreeSet<String>> {
    let facts = info(connection).await?;
    let name = |facts: &BTreeMap<String, String>| {
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        format!("{} {}", fact("run_id"), fact("master_replid"))
    };
    Ok(facts.values().map(name).collect())
}

/// `INFO` of each server that is a master, by its name.
async fn info(connection: &mut Connection) -> RedisResult<BTreeMap<String, BTreeMap<String, String>>> {
    let command = redis::cmd("INFO");
    let answers = match connection {
        Connection::One(_) => vec![("Redis".to_owned(), connection.send(&command).await?)],
        Connection::Cluster(cluster) => {
            let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            match cluster.route_command(command, all).await?.extract_error()? {
                Value::Map(nodes) => nodes
                    .into_iter()
                    .map(|(node, answer)| (reply::text(&node).unwrap_or("Redis").to_owned(), answer))
                    .collect(),
                other => vec![("Redis".to_owned(), other)],
            }
        }
    };
    let facts = |answer: &Value| {
        let lines = reply::text(answer).unwrap_or_default().lines();
        lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    };
    Ok(answers
        .iter()
        .map(|(node, answer)| (node.clone(), facts(answer)))
        .collect())
}

/// Follows what is published, for ever. While it does, what was looked up holds until it is changed.
pub(super) async fn subscribe(core: Arc<Core>) {
    loop {
        if let Err(error) = follow(&core).await {
            log::debug!("the subscription to changes ended: {error}");
        }
        core.cache.subscription_ended();
        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
    }
}

async fn follow(core: &Core) -> Result<(), StoreError> {
    let opened = tokio::time::timeout(CONNECT_WITHIN, async {
        let client = core.address.client().await?;
        let (mut sink, stream) = client.get_async_pubsub().await?.split();
        sink.subscribe(channel()).await?;
        RedisResult::Ok((sink, stream))
    });
    let failed = |error: redis::RedisError| unavailable(&error.to_string());
    let (mut sink, mut stream) = opened.await.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
    // What was said before is not heard any more: everything is read anew.
    core.cache.forget_all();
    read_maintenance(core).await?;
    loop {
        core.cache.subscription_lives(core.guard.now_ms());
        tokio::select! {
            message = stream.next() => {
                let message = message.ok_or_else(|| unavailable("the connection was closed"))?;
                heard(core, message.get_payload_bytes()).await?;
            }
            () = tokio::time::sleep(PING_EVERY) => {
                let ping = tokio::time::timeout(PING_WITHIN, sink.ping::<Value>());
                ping.await.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
            }
        }
    }
}

async fn heard(core: &Core, message: &[u8]) -> Result<(), StoreError> {
    match std::str::from_utf8(message).ok().and_then(Change::parse) {
        Some(Change::Key(digest)) => core.cache.forget_key(&digest),
        Some(Change::Account(id)) => core.cache.forget_account(&id),
        Some(Change::Maintenance) => read_maintenance(core).await?,
        // A newer node may say more than this one understands.
        None => core.cache.forget_all(),
    }
    Ok(())
}

async fn read_maintenance(core: &Core) -> Result<(), StoreError> {
    let mut command = redis::cmd("GET");
    command.arg(maintenance_key());
    let value = core.command(&core.link(), command).await?;
    let on = reply::optional_text(&value)? == Some("on");
    core.maintenance.store(on, Ordering::Relaxed);
    Ok(())
}

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// How often the subscription is tried for life, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_millis(200);
const PING_WITHIN: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_back() {
        let changes = [
            Change::Key(KeyDigest::from_bytes([7; 32])),
            Change::Account("acme".parse().unwrap()),
            Change::Maintenance,
        ];
        for change in changes {
            assert_eq!(Change::parse(&change.text()), Some(change));
        }
        assert_eq!(Change::parse("weather sunny"), None);
    }
}
