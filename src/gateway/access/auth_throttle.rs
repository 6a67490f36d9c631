//! Failed authentications: limited by address, and kept away from the ledger's store.
//!
//! A malformed key costs a checksum and no look-up. A well-formed key that no one ever made costs one look-up for some seconds, and
//! none once its address has guessed too often. Keys that have opened before are let through to the ledger all the same, so that who
//! shares an address with a guesser goes on working.
//!
//! Two things are counted for an address. Failures are all that did not authenticate: beyond the limit they are told 429 in place of 401.
//! Guesses are look-ups that found no key: beyond the limit nothing is looked up that has not opened before, good keys among it. So one
//! client that goes on with one dead key or a malformed one, which guesses nothing, keeps no good key out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pingora_limits::rate::{Rate, RateComponents};

use crate::net::client_ip;
use crate::pure::error::{ApiError, KeyFault, LimitKind};
use crate::pure::ids::KeyDigest;
use crate::pure::time::Timestamp;

/// What is known of those who could not authenticate.
pub(crate) struct AuthThrottle {
    /// Failures and guesses by address.
    counts: Rate,
    /// Well-formed keys that the store did not know, or that have ended, each with when that is forgotten.
    unknown: Mutex<HashMap<KeyDigest, Timestamp>>,
    /// Tags of keys that have opened, each somewhere in the set of its own number. A tag that is overwritten is only forgotten.
    opened: Box<[[AtomicU64; WAYS]]>,
}

/// What may be done with a well-formed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// Ask the ledger.
    Ask,
    /// The store did not know it a moment ago, or it had ended.
    Unknown,
    /// Its address has guessed too often for a look-up.
    Limited,
}

/// What is counted, and for whom. In one sketch, so that the windows of both are the same.
#[derive(Hash)]
enum Counted {
    Failure(Option<IpAddr>),
    /// A look-up that found no key.
    Guess(Option<IpAddr>),
}

impl AuthThrottle {
    /// Counts failures in windows of a minute.
    pub(crate) fn new() -> AuthThrottle {
        AuthThrottle::counting_each(WINDOW)
    }

    fn counting_each(window: Duration) -> AuthThrottle {
        AuthThrottle {
            counts: Rate::new_with_estimator_config(window, HASHES, SLOTS),
            unknown: Mutex::default(),
            opened: (0..SETS).map(|_| Default::default()).collect(),
        }
    }

    /// What may be done with a key from `address`, where `most` guesses a minute are forgiven.
    pub(crate) fn check(&self, digest: &KeyDigest, address: Option<IpAddr>, most: u64, now: Timestamp) -> KeyCheck {
        if self.has_opened(digest) {
            return KeyCheck::Ask;
        }
        if self.unknown().get(digest).is_some_and(|until| is_ahead(*until, now)) {
            return KeyCheck::Unknown;
        }
        if count(self.counts.observe(&Counted::Guess(who(address)), 0)) >= most {
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

    /// The key opens no longer. Whoever has it was given it once, and guesses nothing.
    pub(crate) fn note_ended(&self, digest: &KeyDigest, now: Timestamp) {
        let (set, tag) = self.place(digest);
        for slot in set {
            // Other keys keep theirs.
            let _kept = slot.compare_exchange(tag, NO_TAG, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.remember(digest, now);
    }

    /// The store knows no such key: a guess from `address`.
    pub(crate) fn note_unknown(&self, digest: &KeyDigest, address: Option<IpAddr>, now: Timestamp) {
        self.counts.observe(&Counted::Guess(who(address)), 1);
        self.remember(digest, now);
    }

    fn remember(&self, digest: &KeyDigest, now: Timestamp) {
        let mut unknown = self.unknown();
        if unknown.len() >= UNKNOWN_MAX {
            unknown.clear();
        }
        unknown.insert(*digest, now.plus_millis(UNKNOWN_MS));
    }

    /// One more failure from `address`: 401, or 429 once there were more than `most` in this minute.
    pub(crate) fn failed(&self, address: Option<IpAddr>, most: u64) -> ApiError {
        if count(self.counts.observe(&Counted::Failure(who(address)), 1)) <= most {
            return ApiError::Unauthenticated(KeyFault::Invalid);
        }
        self.limited(most)
    }

    /// What is told where a key is not looked up, which may be a good one: it counts as no failure.
    pub(crate) fn limited(&self, most: u64) -> ApiError {
        ApiError::RateLimited {
            limit: LimitKind::FailedAuthentication,
            value: most,
            retry_after_secs: self.until_next_window_secs(),
        }
    }

    /// Seconds until all addresses are counted anew; at least 1.
    fn until_next_window_secs(&self) -> u64 {
        // The window is every address's: whose count is asked for makes no difference.
        let left = self.counts.rate_with(&Counted::Guess(None), |window: RateComponents| {
            let fraction = window.current_interval_fraction.clamp(0.0, 1.0);
            window.interval.mul_f64(1.0 - fraction)
        });
        let begun = u64::from(left.subsec_nanos() > 0);
        left.as_secs().saturating_add(begun).max(1)
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

fn count(counted: isize) -> u64 {
    u64::try_from(counted).unwrap_or(0)
}

/// Whether `until` is still to come. Where the clock was set back meanwhile, it is not believed: a key that had ended by the wrong time
/// would be kept out for as long as that was wrong.
fn is_ahead(until: Timestamp, now: Timestamp) -> bool {
    (1..=UNKNOWN_MS).contains(&until.since(now))
}

const WINDOW: Duration = Duration::from_secs(60);
/// A count-min sketch of four rows: with 1,000 addresses failing and guessing in one minute, one in a million is taken for a worse one.
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
        for number in 1..=3 {
            assert_eq!(throttle.check(&digest(number), bad, 3, NOW), KeyCheck::Ask);
            throttle.note_unknown(&digest(number), bad, NOW);
            assert_eq!(throttle.failed(bad, 3), ApiError::Unauthenticated(KeyFault::Invalid));
        }
        assert_eq!(throttle.check(&digest(4), bad, 3, NOW), KeyCheck::Limited);
        assert!(matches!(
            throttle.failed(bad, 3),
            ApiError::RateLimited {
                limit: LimitKind::FailedAuthentication,
                ..
            }
        ));
        assert_eq!(
            throttle.check(&digest(4), good, 3, NOW),
            KeyCheck::Ask,
            "another address"
        );
    }

    /// A client in a loop with one dead key, or with one that is malformed, kept every good key of its address out that had not opened
    /// since the process began.
    #[test]
    fn failures_without_a_look_up_and_keys_that_have_ended_keep_no_other_key_out() {
        let throttle = AuthThrottle::new();
        let address = from("203.0.113.9");
        throttle.note_unknown(&digest(1), address, NOW);
        for _ in 0..100 {
            assert_eq!(throttle.check(&digest(1), address, 3, NOW), KeyCheck::Unknown);
            drop(throttle.failed(address, 3));
            throttle.note_ended(&digest(2), NOW);
        }
        assert_eq!(throttle.check(&digest(3), address, 3, NOW), KeyCheck::Ask);
        assert!(matches!(throttle.failed(address, 3), ApiError::RateLimited { .. }));
    }

    /// One that comes back as it is told kept its place in the next window, where others had failed before it.
    #[test]
    fn what_is_told_to_wait_is_what_is_left_of_the_window() {
        let throttle = AuthThrottle::counting_each(Duration::from_secs(1));
        let wait = |error| match error {
            ApiError::RateLimited { retry_after_secs, .. } => retry_after_secs,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(throttle.limited(3)), 1);
        assert_eq!(wait(throttle.failed(None, 0)), 1);
        let throttle = AuthThrottle::new();
        assert!((1..=60).contains(&wait(throttle.limited(3))));
    }

    #[test]
    fn a_key_that_had_ended_by_a_clock_that_was_wrong_is_asked_for_once_it_is_right() {
        let throttle = AuthThrottle::new();
        throttle.note_ended(&digest(5), NOW);
        let set_back = NOW.plus_millis(-1);
        assert_eq!(throttle.check(&digest(5), None, 9, set_back), KeyCheck::Ask);
    }

    #[test]
    fn a_key_that_has_opened_is_asked_for_from_everywhere() {
        let throttle = AuthThrottle::new();
        let address = from("203.0.113.9");
        throttle.note_opened(&digest(5));
        throttle.note_unknown(&digest(7), address, NOW);
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
        throttle.note_unknown(&digest(1), None, NOW);
        assert_eq!(throttle.check(&digest(1), None, 9, NOW), KeyCheck::Unknown);
        let later = NOW.plus_millis(UNKNOWN_MS);
        assert_eq!(throttle.check(&digest(1), None, 9, later), KeyCheck::Ask);
        for number in 0..100_000 {
            throttle.note_unknown(&digest(number), None, NOW);
            assert!(throttle.unknown().len() <= UNKNOWN_MAX);
        }
    }

    #[test]
    fn a_window_ends() {
        let throttle = AuthThrottle::counting_each(Duration::from_secs(1));
        let address = from("2001:db8::1");
        while throttle.check(&digest(1), address, 2, NOW) == KeyCheck::Ask {
            throttle.note_unknown(&digest(2), from("2001:db8::2"), NOW);
        }
        let started = crate::clock::monotonic();
        while throttle.check(&digest(1), address, 2, NOW) == KeyCheck::Limited {
            assert!(started.elapsed() < Duration::from_secs(20), "still limited");
            std::thread::yield_now();
        }
    }
}
