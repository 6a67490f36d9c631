//! What a server says of itself (INFO): which one it is, what time it is there, whether it may evict keys, and whether it takes writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use redis::RedisError;

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

/// Whether a server takes writes. One that answers and takes none may lose what it acknowledged last: its disk refuses it, or it is cut off
/// from its replicas, of which one may be its successor by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Taken,
    Refused,
    /// It was not tried, or what it answered says nothing of it.
    Unknown,
}

impl Writes {
    /// That the server says of itself that it takes none; nothing else is to be had from what it says. How many replicas it has to have it does
    /// not say, only that it has none of those that it needs.
    pub(super) fn by(facts: &Facts) -> Option<Writes> {
        let is = |name: &str, value: &str| facts.get(name).is_some_and(|fact| fact == value);
        let is_refused =
            is("min_slaves_good_slaves", "0") || is("aof_enabled", "1") && is("aof_last_write_status", "err");
        is_refused.then_some(Writes::Refused)
    }

    /// What the server's answer to a write says that it did not take; none when it did not answer.
    pub(super) fn told(error: &RedisError) -> Option<Writes> {
        let told = |code: &str| match REFUSALS.contains(&code) {
            true => Writes::Refused,
            false => Writes::Unknown,
        };
        error.code().map(told)
    }
}

/// How a server's clock goes beside the ledger's monotonic one, in milliseconds, as the server said last.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<i64>>);

impl ServerClock {
    /// Takes what time it is there at `now_ms` of the ledger's monotonic clock. A clock that jumps is told: holds are free, and limits and keys
    /// end, by it. A server that is asked for the first time is compared with another one, where there is one.
    pub(super) fn heard(
        &self,
        node: &Address,
        time: Option<Timestamp>,
        now_ms: u64,
        of_others: impl FnOnce() -> Option<i64>,
    ) {
        let Some(time) = time else { return };
        let ahead = time.0.saturating_sub(i64::try_from(now_ms).unwrap_or(i64::MAX));
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(ahead);
        let jump = own.or_else(of_others).map_or(0, |before| ahead.saturating_sub(before));
        if jump.unsigned_abs() > JUMP_MS_MAX {
            log::error!(
                "the clock of {node:?} has jumped by {jump} ms, or this machine has slept: holds, limits and the ends of keys go by it, \
                 and a hold is free 90 s after its last renewal"
            );
        }
    }

    /// How it goes, when the server has said it.
    pub(super) fn known(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server begins the answer to a write with that it does not take now, whatever the write is.
const REFUSALS: [&str; 7] = [
    "NOREPLICAS",
    "MISCONF",
    "OOM",
    "READONLY",
    "MASTERDOWN",
    "LOADING",
    "CLUSTERDOWN",
];
/// A server's clock that has moved by more than this beside the monotonic one has jumped.
const JUMP_MS_MAX: u64 = 5_000;

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

    fn facts(of: &[(&str, &str)]) -> Facts {
        of.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_server_whose_disk_or_replicas_are_gone_says_that_it_takes_no_writes() {
        for (of, said) in [
            (vec![("aof_enabled", "1"), ("aof_last_write_status", "err")], true),
            (vec![("aof_enabled", "1"), ("aof_last_write_status", "ok")], false),
            (vec![("aof_enabled", "0"), ("aof_last_write_status", "err")], false),
            (vec![("min_slaves_good_slaves", "0")], true),
            (vec![("min_slaves_good_slaves", "1")], false),
            (vec![], false),
        ] {
            let expected = said.then_some(Writes::Refused);
            assert_eq!(Writes::by(&facts(&of)), expected, "{of:?}");
        }
    }

    #[test]
    fn an_answer_to_a_write_says_whether_any_would_be_refused() {
        let told = |text: &str| {
            let answer = redis::parse_redis_value(format!("-{text} some\r\n").as_bytes()).unwrap();
            Writes::told(&answer.extract_error().unwrap_err())
        };
        for code in REFUSALS {
            assert_eq!(told(code), Some(Writes::Refused), "{code}");
        }
        for code in ["ERR", "NOPERM", "MOVED", "ASK", "TRYAGAIN", "WRONGTYPE"] {
            assert_eq!(told(code), Some(Writes::Unknown), "{code}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(Writes::told(&broken), None);
    }

    /// Of a fail-over to a server whose clock is ahead nothing was said, though it frees what running calls hold.
    #[test]
    fn a_clock_that_jumps_is_told() {
        let node = Address::parse("redis://a:1", None, Duration::from_secs(1)).unwrap();
        let (clock, other) = (ServerClock::default(), ServerClock::default());
        let start = 1_795_132_800_000;
        let told = |clock: &ServerClock, time: i64, now_ms: u64, others: Option<i64>| {
            let lines = logged(|| clock.heard(&node, Some(Timestamp(start + time)), now_ms, || others));
            let jumps = lines.iter().map(|line| {
                let jump = line.strip_prefix("ERROR the clock of a:1 has jumped by ")?;
                jump.split_once(" ms")?.0.parse::<i64>().ok()
            });
            jumps.collect::<Vec<_>>()
        };
        const NONE: [Option<i64>; 0] = [];
        assert_eq!(clock.known(), None);
        assert_eq!(told(&clock, 10, 10, None), NONE);
        assert_eq!(clock.known(), Some(start));
        assert_eq!(told(&clock, 6_020, 1_020, None), NONE, "it runs fast");
        assert_eq!(told(&clock, 207_021, 2_020, None), [Some(200_001)]);
        assert_eq!(told(&clock, 208_021, 3_020, None), NONE, "once");
        assert_eq!(told(&clock, 4_020, 4_020, None), [Some(-205_001)]);
        assert_eq!(told(&other, 9_000, 4_000, clock.known()), NONE);
        let third = ServerClock::default();
        assert_eq!(told(&third, 9_001, 4_000, clock.known()), [Some(5_001)]);
        let lines = logged(|| third.heard(&node, None, 9_999_999, || None));
        assert_eq!(
            (lines, third.known()),
            (Vec::new(), Some(start + 5_001)),
            "it did not say"
        );
    }

    #[test]
    fn a_server_says_what_time_it_is() {
        let time = |text: &str| time_of(&Facts::from([("server_time_usec".to_owned(), text.to_owned())]));
        assert_eq!(time("1795132800123456"), Some(Timestamp(1_795_132_800_123)));
        assert_eq!((time("soon"), time_of(&Facts::new())), (None, None));
    }
}
