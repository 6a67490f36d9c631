//! What the ledger wants to know of its servers: whether they are fit to hold money, and whether they are still the same; and what is
//! published of changes.

use std::time::Duration;

use futures::future::join_all;
use redis::RedisResult;

use super::options::{Options, unavailable};
use super::reply;
use super::script::PREFIX;
use super::server_facts::{Facts, evicts_by, time_of};
use super::shared::Shared;
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

    pub(super) fn parse(text: &str) -> Option<Change> {
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
/// When none can be reached, or one of them refuses INFO or evicts keys when its memory is full. A master of a cluster that is away is only
/// warned of: the others serve their accounts.
pub(super) async fn check_servers(shared: &Shared) -> Result<(), StoreError> {
    let (link, shards) = (shared.link(), shared.shards.all());
    let asked = shards.iter().map(async |shard| {
        let line = link.line(shard);
        let facts = async {
            let (mut connection, _) = line.connection(&shard.address).await?;
            facts(shared, &mut connection).await
        };
        let facts = tokio::time::timeout(connect_within(&shared.options), facts).await;
        (&shard.address, facts)
    });
    let (mut reached, mut missed) = (false, None);
    for (address, facts) in join_all(asked).await {
        match facts {
            Ok(Ok(facts)) => check(address, &facts)?,
            // No debit would be sent: whether it is still the same server is asked before each first one.
            Ok(Err(error)) if error.code() == Some("NOPERM") => {
                return Err(unavailable(&format!(
                    "{address:?} does not tell its settings: give its user the right to INFO (+info)"
                )));
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
    if let Some(policy) = evicts_by(facts) {
        return Err(unavailable(&format!(
            "{node:?} may evict keys (maxmemory-policy {policy}) and so lose money: set maxmemory-policy noeviction"
        )));
    }
    let fact = |name: &str| facts.get(name).map(String::as_str);
    if fact("maxmemory") != Some("0") && fact("maxmemory_policy") != Some("noeviction") {
        log::warn!("{node:?} does not tell its maxmemory-policy: it has to be noeviction");
    }
    if fact("aof_enabled") != Some("1") {
        log::warn!(
            "{node:?} has no AOF: after a crash it loses what happened since its last snapshot (appendonly yes)"
        );
    }
    Ok(())
}

/// What a server tells of itself; what time it is is kept.
pub(super) async fn facts(shared: &Shared, connection: &mut Connection) -> RedisResult<Facts> {
    let answer = connection.send(&redis::cmd("INFO")).await?;
    let lines = reply::text(&answer).unwrap_or_default().lines();
    let facts = lines.filter_map(|line| line.split_once(':'));
    let facts: Facts = facts
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    shared.server_said(time_of(&facts));
    Ok(facts)
}

/// A start whose store is away says so within a second.
const PRESENT_WITHIN: Duration = Duration::from_millis(600);

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
