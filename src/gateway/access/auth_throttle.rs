//! Failed authentications: limited by address, and kept away from the ledger's store.
//!
//! A malformed key costs a checksum and no look-up. A well-formed key that no one ever made costs one look-up for some seconds, and
//! none once its address has failed too often. Keys that have opened before are let through to the ledger all the same, so that who
//! shares an address with a guesser goes on working.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pingora_limits::rate::Rate;

use crate::net::client_ip;
use crate::pure::error::{ApiError, KeyFault, LimitKind};
use crate::pure::ids::KeyDigest;
use crate::pure::time::Timestamp;

/// What is known of those who could not authenticate.
pub(crate) struct AuthThrottle {
    failures: Rate,
    /// Well-formed keys that the store did not know, each with when that is forgotten.
    unknown: Mutex<HashMap<KeyDigest, Timestamp>>,
    /// Tags of keys that have opened, each somewhere in the set of its own number. A tag that is overwritten is only forgotten.
    opened: Box<[[AtomicU64; WAYS]]>,
}

/// What may be done with a well-formed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// Ask the ledger.
    Ask,
    /// The store did not know it a moment ago.
    Unknown,
    /// Its address has failed too often for a look-up.
    Limited,
}

impl AuthThrottle {
    /// Counts failures in windows of a minute.
    pub(crate) fn new() -> AuthThrottle {
        AuthThrottle::counting_each(WINDOW)
    }

    fn counting_each(window: Duration) -> AuthThrottle {
        AuthThrottle {
            failures: Rate::new_with_estimator_config(window, HASHES, SLOTS),
            unknown: Mutex::default(),
            opened: (0..SETS).map(|_| Default::default()).collect(),
        }
    }

    /// What may be done with a key from `address`, where `most` failures a minute are forgiven.
    pub(crate) fn check(&self, digest: &KeyDigest, address: Option<IpAddr>, most: u64, now: Timestamp) -> KeyCheck {
        if self.has_opened(digest) {
            return KeyCheck::Ask;
        }
        if self.unknown().get(digest).is_some_and(|until| now < *until) {
            return KeyCheck::Unknown;
        }
        if count(self.failures.observe(&who(address), 0)) >= most {
            return KeyCheck::Limited;
        }
        KeyCheck::Ask
    }

    /// The key opened.
    pub(crate) fn note_opened(&self, digest: &KeyDigest) {
        if self.has_opened(digest) {
            return;
        }
        let (set, tag) = self.place(digest);
        let free = set.iter().find(|slot| slot.load(Ordering::Relaxed) == NO_TAG);
        // Where there is none, the key's number says which other one has to go.
        let chosen = free.or_else(|| set.get(usize::from(tag.to_be_bytes()[0]) % WAYS));
        if let Some(slot) = chosen {
            slot.store(tag, Ordering::Relaxed);
        }
    }

    fn has_opened(&self, digest: &KeyDigest) -> bool {
        let (set, tag) = self.place(digest);
        set.iter().any(|slot| slot.load(Ordering::Relaxed) == tag)
    }

    /// The key opens no longer: it is as one that the store does not know.
    pub(crate) fn note_ended(&self, digest: &KeyDigest, now: Timestamp) {
        let (set, tag) = self.place(digest);
        for slot in set {
            // Other keys keep theirs.
            let _kept = slot.compare_exchange(tag, NO_TAG, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.note_unknown(digest, now);
    }

    /// The store knows no such key.
    pub(crate) fn note_unknown(&self, digest: &KeyDigest, now: Timestamp) {
        let mut unknown = self.unknown();
        if unknown.len() >= UNKNOWN_MAX {
            unknown.clear();
        }
        unknown.insert(*digest, now.plus_millis(UNKNOWN_MS));
    }

    /// One more failure from `address`: 401, or 429 once there were more than `most` in this minute.
    pub(crate) fn failed(&self, address: Option<IpAddr>, most: u64) -> ApiError {
        if count(self.failures.observe(&who(address), 1)) <= most {
            return ApiError::Unauthenticated(KeyFault::Invalid);
        }
        ApiError::RateLimited {
            limit: LimitKind::FailedAuthentication,
            value: most,
            retry_after_secs: WINDOW.as_secs(),
        }
    }

    /// The set of a digest, and 64 other bits of it that tell it from the others there.
    fn place(&self, digest: &KeyDigest) -> (&[AtomicU64], u64) {
        let [a, b, c, d, e, f, g, h, i, j, ..] = *digest.as_bytes();
        let set = self.opened.get(usize::from(u16::from_be_bytes([a, b])) % SETS);
        let tag = u64::from_be_bytes([c, d, e, f, g, h, i, j]) | 1;
        (set.map_or(&[], <[AtomicU64; WAYS]>::as_slice), tag)
    }

    fn unknown(&self) -> MutexGuard<'_, HashMap<KeyDigest, Timestamp>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who shares a count. Connections without an address (none of a real listener's) share one.
fn who(address: Option<IpAddr>) -> Option<IpAddr> {
    address.map(client_ip::group)
}

fn count(failures: isize) -> u64 {
    u64::try_from(failures).unwrap_or(0)
}

const WINDOW: Duration = Duration::from_secs(60);
/// A count-min sketch of four rows: with 1,000 addresses failing in one minute, one in ten million is taken for a worse one.
const HASHES: usize = 4;
const SLOTS: usize = 65_536;
/// Sets of keys that are remembered to have opened: 65,536 keys in half a MiB.
const SETS: usize = 1 << 13;
/// Keys of a set, a line of the processor's cache: with one each, of 1,000 keys fifteen would push another one out whenever they open. With
/// eight, of 20,000 keys fewer than one in a thousand do.
const WAYS: usize = 8;
/// The value of a slot that was not used yet: of no key.
const NO_TAG: u64 = 0;
/// Keys that are remembered as unknown, and for how long.
const UNKNOWN_MAX: usize = 10_000;
const UNKNOWN_MS: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn digest(number: u32) -> KeyDigest {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        KeyDigest::from_bytes(bytes)
    }

    fn from(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn an_address_that_failed_too_often_is_not_looked_up_for() {
        let throttle = AuthThrottle::new();
        let (bad, good) = (from("203.0.113.9"), from("203.0.113.10"));
        for _ in 0..3 {
            assert_eq!(throttle.check(&digest(1), bad, 3, NOW), KeyCheck::Ask);
            assert_eq!(throttle.failed(bad, 3), ApiError::Unauthenticated(KeyFault::Invalid));
        }
        assert_eq!(throttle.check(&digest(1), bad, 3, NOW), KeyCheck::Limited);
        assert!(matches!(
            throttle.failed(bad, 3),
            ApiError::RateLimited {
                limit: LimitKind::FailedAuthentication,
                ..
            }
        ));
        assert_eq!(
            throttle.check(&digest(1), good, 3, NOW),
            KeyCheck::Ask,
            "another address"
        );
    }

    #[test]
    fn a_key_that_has_opened_is_asked_for_from_everywhere() {
        let throttle = AuthThrottle::new();
        let address = from("203.0.113.9");
        throttle.note_opened(&digest(5));
        for _ in 0..9 {
            drop(throttle.failed(address, 1));
        }
        assert_eq!(throttle.check(&digest(5), address, 1, NOW), KeyCheck::Ask);
        assert_eq!(throttle.check(&digest(6), address, 1, NOW), KeyCheck::Limited);
    }

    /// Behind one address there may be thousands of callers, and a guesser.
    #[test]
    fn keys_that_have_opened_do_not_push_one_another_out() {
        let throttle = AuthThrottle::new();
        let address = from("203.0.113.9");
        let digests: Vec<KeyDigest> = (0..5_000_u32)
            .map(|number| {
                let mut random = [0; 32];
                random[..4].copy_from_slice(&number.to_be_bytes());
                crate::pure::ids::ApiKey::from_random("tg_", random).digest()
            })
            .collect();
        digests.iter().for_each(|digest| throttle.note_opened(digest));
        drop(throttle.failed(address, 0));
        let limited = digests
            .iter()
            .filter(|digest| throttle.check(digest, address, 0, NOW) == KeyCheck::Limited);
        assert_eq!(limited.count(), 0);
    }

    /// More keys of one set than it has room for: the last ones are there, and the others are only forgotten.
    #[test]
    fn of_a_full_set_a_key_that_opens_takes_anothers_place() {
        let throttle = AuthThrottle::new();
        let of_one_set: Vec<KeyDigest> = (0..100).map(digest).collect();
        for opens in &of_one_set {
            throttle.note_opened(opens);
            throttle.note_opened(opens);
            assert!(throttle.has_opened(opens));
        }
        let known = of_one_set.iter().filter(|digest| throttle.has_opened(digest));
        assert_eq!(known.count(), WAYS);
    }

    #[test]
    fn a_key_that_has_ended_is_asked_for_no_longer() {
        let throttle = AuthThrottle::new();
        throttle.note_opened(&digest(5));
        throttle.note_ended(&digest(5), NOW);
        assert_eq!(throttle.check(&digest(5), None, 9, NOW), KeyCheck::Unknown);
        let later = NOW.plus_millis(UNKNOWN_MS);
        assert_eq!(throttle.check(&digest(5), None, 9, later), KeyCheck::Ask);
        throttle.note_opened(&digest(6));
        throttle.note_ended(&digest(5), NOW);
        assert_eq!(throttle.check(&digest(6), None, 0, NOW), KeyCheck::Ask, "another key's");
    }

    #[test]
    fn an_unknown_key_is_remembered_for_some_seconds_and_only_so_many() {
        let throttle = AuthThrottle::new();
        throttle.note_unknown(&digest(1), NOW);
        assert_eq!(throttle.check(&digest(1), None, 9, NOW), KeyCheck::Unknown);
        let later = NOW.plus_millis(UNKNOWN_MS);
        assert_eq!(throttle.check(&digest(1), None, 9, later), KeyCheck::Ask);
        for number in 0..100_000 {
            throttle.note_unknown(&digest(number), NOW);
            assert!(throttle.unknown().len() <= UNKNOWN_MAX);
        }
    }

    #[test]
    fn a_window_ends() {
        let throttle = AuthThrottle::counting_each(Duration::from_secs(1));
        let address = from("2001:db8::1");
        while throttle.check(&digest(1), address, 2, NOW) == KeyCheck::Ask {
            drop(throttle.failed(from("2001:db8::2"), 2));
        }
        let started = crate::clock::monotonic();
        while throttle.check(&digest(1), address, 2, NOW) == KeyCheck::Limited {
            assert!(started.elapsed() < Duration::from_secs(20), "still limited");
            std::thread::yield_now();
        }
    }
}
