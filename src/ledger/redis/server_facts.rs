//! What a server says of itself (INFO): which one it is, what time it is there, and whether it may evict keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::unavailable;
use super::url::Address;
use crate::ledger::StoreError;
use crate::pure::time::Timestamp;

/// By name.
pub(super) type Facts = BTreeMap<String, String>;

/// The policy by which the server evicts keys when its memory is full; none when it evicts none, or does not tell.
pub(super) fn evicts_by(facts: &Facts) -> Option<&str> {
    let (most, policy) = (facts.get("maxmemory")?, facts.get("maxmemory_policy")?);
    (most != "0" && policy != "noeviction").then_some(policy.as_str())
}

/// Which server this is. One that is restarted, or takes another's place, is not one that was there before.
pub(super) fn identity(facts: &Facts) -> String {
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    format!("{} {}", fact("run_id"), fact("master_replid"))
}

/// What time it is there; none when it does not say.
pub(super) fn time_of(facts: &Facts) -> Option<Timestamp> {
    let micros: i64 = facts.get("server_time_usec")?.parse().ok()?;
    Some(Timestamp(micros / 1000))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::tests::logged::logged;

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
    fn a_server_says_what_time_it_is() {
        let time = |text: &str| time_of(&Facts::from([("server_time_usec".to_owned(), text.to_owned())]));
        assert_eq!(time("1795132800123456"), Some(Timestamp(1_795_132_800_123)));
        assert_eq!((time("soon"), time_of(&Facts::new())), (None, None));
    }
}
