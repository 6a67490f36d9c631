//! What the ledger wants to know of its servers: whether they are fit to hold money, whether they are still the same, and what
//! other nodes and commands have changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use redis::{RedisResult, Value};

use super::events;
use super::options::{Options, unavailable};
use super::reply;
use super::script::PREFIX;
use super::shared::Shared;
use super::stops::Stops;
use super::url::{Address, Connection};
use crate::ledger::StoreError;
use crate::pure::ids::{AccountId, KeyDigest};

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

/// All operators.
pub(super) fn operators_key() -> String {
    format!("{PREFIX}operators")
}

/// The name of the maintenance flag.
pub(super) fn maintenance_key() -> String {
    format!("{PREFIX}maintenance")
}

/// How long a server may take until it is taken for absent at the start.
pub(super) fn connect_within(options: &Options) -> Duration {
    options.timeout.max(PRESENT_WITHIN)
}

/// Asks the servers whether they are fit to hold money.
///
/// # Errors
/// When none can be reached, or one of them evicts keys when its memory is full. What a server does not tell is only warned of, and so is
/// a master of a cluster that is away: the others serve their accounts.
pub(super) async fn check_servers(shared: &Shared) -> Result<(), StoreError> {
    let (link, shards) = (shared.link(), shared.shards.all());
    let asked = shards.iter().map(async |shard| {
        let line = link.line(shard);
        let facts = async {
            let (mut connection, _) = line.connection(&shard.address).await?;
            facts(&mut connection).await
        };
        let facts = tokio::time::timeout(connect_within(&shared.options), facts).await;
        (&shard.address, facts)
    });
    let (mut reached, mut missed) = (false, None);
    for (address, facts) in join_all(asked).await {
        match facts {
            Ok(Ok(facts)) => check(address, &facts)?,
            Ok(Err(error)) if error.code() == Some("NOPERM") => {
                log::warn!(
                    "Redis does not tell its settings: see that maxmemory-policy is noeviction and that AOF is on"
                );
            }
            failed => {
                let missing = match failed {
                    Ok(Err(error)) => unavailable(&format!("{address:?}: {error}")),
                    _ => unavailable(&format!("no answer from {address:?}")),
                };
                if shared.shards.is_cluster() {
                    log::warn!("a master of the cluster is away: {missing}");
                }
                missed = Some(missing);
                continue;
            }
        }
        reached = true;
    }
    match missed {
        Some(error) if !reached => Err(error),
        _ => Ok(()),
    }
}

/// # Errors
/// When the server evicts keys.
fn check(node: &Address, facts: &Facts) -> Result<(), StoreError> {
    let fact = |name: &str| facts.get(name).map(String::as_str);
    match (fact("maxmemory"), fact("maxmemory_policy")) {
        (Some("0"), _) | (_, Some("noeviction")) => {}
        (Some(_), Some(policy)) => {
            return Err(unavailable(&format!(
                "{node:?} may evict keys (maxmemory-policy {policy}) and so lose money: set maxmemory-policy noeviction"
            )));
        }
        _ => log::warn!("{node:?} does not tell its maxmemory-policy: it has to be noeviction"),
    }
    if fact("aof_enabled") != Some("1") {
        log::warn!(
            "{node:?} has no AOF: after a crash it loses what happened since its last snapshot (appendonly yes)"
        );
    }
    Ok(())
}

/// Which server this is. One that is restarted, or takes another's place, is not one that was there before.
pub(super) async fn identity(connection: &mut Connection) -> RedisResult<String> {
    let facts = facts(connection).await?;
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    Ok(format!("{} {}", fact("run_id"), fact("master_replid")))
}

/// What a server says of itself.
type Facts = BTreeMap<String, String>;

async fn facts(connection: &mut Connection) -> RedisResult<Facts> {
    let answer = connection.send(&redis::cmd("INFO")).await?;
    let lines = reply::text(&answer).unwrap_or_default().lines();
    let facts = lines.filter_map(|line| line.split_once(':'));
    Ok(facts
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

/// Follows what is published, for ever. While it does, what was looked up holds until it is changed.
pub(super) async fn subscribe(shared: Arc<Shared>) {
    loop {
        if let Err(error) = follow(&shared).await {
            log::debug!("the subscription to changes ended: {error}");
        }
        shared.cache.subscription_ended();
        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
    }
}

async fn follow(shared: &Shared) -> Result<(), StoreError> {
    let opened = tokio::time::timeout(CONNECT_WITHIN, async {
        let client = shared.shards.address().client().await?;
        let (mut sink, stream) = client.get_async_pubsub().await?.split();
        sink.subscribe(channel()).await?;
        // Whoever may not hear of them looks for them.
        shared.events.hears(sink.subscribe(events::channel()).await.is_ok());
        RedisResult::Ok((sink, stream))
    });
    let failed = |error: redis::RedisError| unavailable(&error.to_string());
    let (mut sink, mut stream) = opened.await.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
    // What was said before is not heard any more: everything is read anew.
    shared.cache.doubt_all(shared.now_ms());
    shared.events.doubt();
    let mut is_read = read_maintenance(shared).await.is_ok();
    let mut stops = Stops::all(shared);
    shared.cache.subscription_lives(shared.now_ms());
    let mut ping_at = crate::clock::monotonic();
    loop {
        if !is_read {
            // Its server is away, and what is heard of the others matters all the same.
            is_read = read_maintenance(shared).await.is_ok();
        }
        tokio::select! {
            message = stream.next() => {
                let message = message.ok_or_else(|| unavailable("the connection was closed"))?;
                shared.cache.subscription_lives(shared.now_ms());
                if message.get_channel_name() == events::channel() {
                    shared.events.heard(std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default());
                } else {
                    heard(shared, &mut stops, message.get_payload_bytes()).await?;
                }
            }
            () = tokio::time::sleep_until(ping_at.into()) => {
                let ping = tokio::time::timeout(PING_WITHIN, sink.ping::<Value>());
                ping.await.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
                shared.cache.subscription_lives(shared.now_ms());
                ping_at = crate::clock::monotonic() + PING_EVERY;
            }
            () = stops.step() => {}
        }
    }
}

async fn heard(shared: &Shared, stops: &mut Stops<'_>, message: &[u8]) -> Result<(), StoreError> {
    match std::str::from_utf8(message).ok().and_then(Change::parse) {
        Some(Change::Key(digest)) => shared.cache.forget_key(&digest),
        Some(Change::Account(id)) => {
            shared.cache.forget_account(&id);
            if let Some(account) = shared.cache.known_account(&id) {
                stops.add(account);
            }
        }
        Some(Change::Maintenance) => read_maintenance(shared).await?,
        // A newer node may say more than this one understands.
        None => {
            shared.cache.forget_all();
            stops.add_all();
        }
    }
    Ok(())
}

async fn read_maintenance(shared: &Shared) -> Result<(), StoreError> {
    let mut command = redis::cmd("GET");
    command.arg(maintenance_key());
    let value = shared.command(&shared.link(), command).await?;
    let on = reply::optional_text(&value)? == Some("on");
    shared.maintenance.store(on, Ordering::Relaxed);
    Ok(())
}

/// A start whose store is away says so within a second.
const PRESENT_WITHIN: Duration = Duration::from_millis(600);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// How often the subscription is tried for life, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_millis(200);
const PING_WITHIN: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::logged::logged;

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

    #[test]
    fn a_server_without_an_aof_is_warned_of() {
        let node = Address::parse("redis://a:1", None, Duration::from_secs(1)).unwrap();
        let told = |aof: &str| {
            let facts = [("maxmemory", "0"), ("aof_enabled", aof)];
            let facts = Facts::from(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
            logged(|| check(&node, &facts).unwrap())
        };
        assert_eq!(told("1"), [""; 0]);
        let lines = told("0");
        assert!(
            lines.len() == 1 && lines[0].starts_with("WARN a:1 has no AOF: "),
            "{lines:?}"
        );
    }
}
