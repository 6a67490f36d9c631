//! What the ledger wants to know of its servers: whether they are fit to hold money, and whether they are still the same; and what is
//! published of changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use redis::RedisResult;

use super::options::{Options, unavailable};
use super::reply;
use super::script::PREFIX;
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

/// Whether a server may evict keys when its memory is full, as it said last. The one that was fit at the start may be told to, or be replaced
/// by one that does.
#[derive(Debug, Default)]
pub(super) struct Eviction(AtomicBool);

impl Eviction {
    /// Takes what the server says of itself. It is told once when it may evict keys, and once when it does no more.
    pub(super) fn heard(&self, node: &Address, facts: &Facts) {
        let policy = evicts_by(facts);
        match (self.0.swap(policy.is_some(), Ordering::Relaxed), policy) {
            (false, Some(policy)) => log::error!(
                "MONEY: {node:?} may evict keys (maxmemory-policy {policy}) and so lose money, new paid calls are refused: \
                 set maxmemory-policy noeviction"
            ),
            (true, None) => log::warn!("{node:?} evicts no keys any more, calls are admitted again"),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// # Errors
    /// While the server may evict keys: then no more calls may be admitted.
    pub(super) fn check(&self, node: &Address) -> Result<(), StoreError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(unavailable(&format!(
                "{node:?} may evict keys: its maxmemory-policy has to be noeviction"
            ))),
            false => Ok(()),
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

/// The policy by which the server evicts keys when its memory is full; none when it evicts none, or does not tell.
fn evicts_by(facts: &Facts) -> Option<&str> {
    let (most, policy) = (facts.get("maxmemory")?, facts.get("maxmemory_policy")?);
    (most != "0" && policy != "noeviction").then_some(policy.as_str())
}

/// Which server this is. One that is restarted, or takes another's place, is not one that was there before.
pub(super) fn identity(facts: &Facts) -> String {
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    format!("{} {}", fact("run_id"), fact("master_replid"))
}

/// What a server says of itself.
pub(super) type Facts = BTreeMap<String, String>;

pub(super) async fn facts(connection: &mut Connection) -> RedisResult<Facts> {
    let answer = connection.send(&redis::cmd("INFO")).await?;
    let lines = reply::text(&answer).unwrap_or_default().lines();
    let facts = lines.filter_map(|line| line.split_once(':'));
    Ok(facts
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
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
    fn a_server_that_comes_to_evict_keys_is_told_once_and_once_that_it_does_no_more() {
        let node = Address::parse("redis://a:1", None, Duration::from_secs(1)).unwrap();
        let eviction = Eviction::default();
        let told = |most: &str, policy: &str| {
            let facts = [("maxmemory", most), ("maxmemory_policy", policy)];
            let facts = Facts::from(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
            let lines = logged(|| eviction.heard(&node, &facts));
            (lines, eviction.check(&node).is_err())
        };
        let evicts = "ERROR MONEY: a:1 may evict keys (maxmemory-policy volatile-lru) and so lose money, new paid calls are refused: \
                      set maxmemory-policy noeviction";
        let is_over = "WARN a:1 evicts no keys any more, calls are admitted again";
        for (most, policy, line, is_refused) in [
            ("0", "volatile-lru", None, false),
            ("7", "noeviction", None, false),
            ("7", "volatile-lru", Some(evicts), true),
            ("7", "allkeys-lru", None, true),
            ("7", "noeviction", Some(is_over), false),
            ("7", "noeviction", None, false),
        ] {
            let expected: Vec<String> = line.into_iter().map(str::to_owned).collect();
            assert_eq!(told(most, policy), (expected, is_refused), "{most} {policy}");
        }
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
