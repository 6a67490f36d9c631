//! For how long what was read is current, due or doubted.

use super::*;
use crate::ledger::tests::rig::Rig;

/// Whether a key that was read at `read_ms` is current.
struct Read {
    cache: Cache,
    digest: KeyDigest,
}

impl Read {
    fn at(read_ms: u64) -> Read {
        let caller = Rig::embedded().caller("1");
        let entry = KnownKey {
            key: Arc::clone(&caller.key),
            facts: Arc::clone(&caller.account),
            account: Arc::new(Account::new(caller.account.id.clone())),
            read_ms,
        };
        let (cache, digest) = (Cache::default(), KeyDigest::from_bytes([1; 32]));
        cache.put(digest, entry, cache.generation());
        Read { cache, digest }
    }

    fn is_current(&self, now_ms: u64) -> bool {
        self.cache.key(&self.digest, now_ms).is_some()
    }
}

const READ_MS: u64 = 1_000;

#[test]
fn without_a_subscription_a_key_is_current_for_less_than_a_second() {
    let read = Read::at(READ_MS);
    assert!(read.is_current(READ_MS + millis(AGE_MAX) - 1));
    assert!(!read.is_current(READ_MS + millis(AGE_MAX)));
}

#[test]
fn while_the_subscription_lives_it_is_current_for_a_minute() {
    let read = Read::at(READ_MS);
    let later = READ_MS + millis(LIVE_AGE_MAX) - 1;
    read.cache.subscription_lives(later - millis(LIVES_FOR) + 1);
    assert!(read.is_current(later));
    // It gave no sign since.
    assert!(!read.is_current(later + 1));
    read.cache.subscription_lives(later + 1);
    assert!(!read.is_current(later + 1), "a minute is over");
    let read = Read::at(READ_MS);
    read.cache.subscription_lives(READ_MS + 5_000);
    assert!(read.is_current(READ_MS + 5_000));
    read.cache.subscription_ended();
    assert!(!read.is_current(READ_MS + 5_000));
}

#[test]
fn a_key_in_use_is_due_for_half_a_minute_once_and_not_for_more_than_are_read_at_once() {
    let read = Read::at(READ_MS);
    let due = READ_MS + millis(DUE_AGE);
    read.cache.subscription_lives(due);
    let is_due = |now_ms| read.cache.key(&read.digest, now_ms).unwrap().is_due;
    assert!(!is_due(due - 1) && is_due(due));
    let others: Vec<_> = (0..AHEAD_MAX)
        .map(|_| Arc::clone(&read.cache.ahead).try_acquire_owned().unwrap())
        .collect();
    assert!(read.cache.read_ahead(&read.digest).is_none());
    assert!(is_due(due), "nobody reads it");
    drop(others);
    let permit = read.cache.read_ahead(&read.digest).unwrap();
    assert!(!is_due(due) && read.cache.read_ahead(&read.digest).is_none());
    drop(permit);
    assert!(
        read.cache.read_ahead(&KeyDigest::from_bytes([9; 32])).is_none(),
        "it is not known"
    );
    let known = KnownKey {
        read_ms: due,
        ..read.cache.key(&read.digest, due).unwrap().known
    };
    read.cache.put(read.digest, known, read.cache.generation());
    assert!(!is_due(due) && read.is_current(due));
    read.cache.subscription_lives(due + millis(DUE_AGE));
    assert!(is_due(due + millis(DUE_AGE)));
}

#[test]
fn what_was_read_before_a_doubt_or_forgotten_is_read_again() {
    let read = Read::at(READ_MS);
    read.cache.doubt_all(READ_MS);
    assert!(!read.is_current(READ_MS));
    let read = Read::at(READ_MS);
    read.cache.doubt_all(READ_MS - 1);
    assert!(read.is_current(READ_MS));
    read.cache.forget_key(&read.digest);
    assert!(!read.is_current(READ_MS));
}

#[test]
fn what_may_have_been_revoked_unheard_is_doubted() {
    let read = Read::at(READ_MS);
    let is_doubted = |now_ms| {
        read.cache
            .key_while_away(&read.digest, now_ms)
            .map(|(_, is_doubted)| is_doubted)
    };
    read.cache.subscription_lives(READ_MS);
    assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR) - 1), Some(false));
    assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR)), Some(true), "it gives no sign");
    read.cache.subscription_lives(READ_MS + millis(LIVES_FOR));
    assert_eq!(is_doubted(READ_MS + millis(LIVES_FOR)), Some(false));
    read.cache.doubt_all(READ_MS);
    assert_eq!(
        is_doubted(READ_MS + millis(LIVES_FOR)),
        Some(true),
        "it was made anew since"
    );
}

#[test]
fn a_key_whose_server_is_away_is_known_while_the_subscription_is_heard() {
    let read = Read::at(READ_MS);
    let known = |now_ms| read.cache.key_while_away(&read.digest, now_ms).is_some();
    let heard = READ_MS + millis(AWAY_AGE_MAX) - millis(UNHEARD_MAX);
    read.cache.subscription_lives(heard);
    read.cache.subscription_ended();
    assert!(known(heard + millis(UNHEARD_MAX) - 1));
    assert!(!known(heard + millis(UNHEARD_MAX)), "nothing was heard since");
    read.cache.subscription_lives(heard + millis(UNHEARD_MAX));
    assert!(!known(heard + millis(UNHEARD_MAX)), "it was read too long ago");
}

#[test]
fn the_last_sign_of_life_is_trusted_for_so_long_and_no_longer() {
    let read = Read::at(READ_MS);
    let heard = READ_MS + millis(AGE_MAX);
    read.cache.subscription_lives(heard);
    assert!(read.is_current(heard + millis(LIVES_FOR) - 1));
    assert!(!read.is_current(heard + millis(LIVES_FOR)));
    let known = |now_ms| read.cache.key_while_away(&read.digest, now_ms).is_some();
    assert!(known(heard + millis(UNHEARD_MAX) - 1));
    assert!(!known(heard + millis(UNHEARD_MAX)));
}

#[test]
fn what_was_read_before_something_was_forgotten_is_not_kept() {
    let read = Read::at(READ_MS);
    let entry = read.cache.key(&read.digest, READ_MS).unwrap().known;
    let other = KeyDigest::from_bytes([2; 32]);
    read.cache.put(other, entry.clone(), read.cache.generation());
    assert!(read.is_current(READ_MS), "another key pushes none out");
    let before = read.cache.generation();
    read.cache.forget_all();
    for digest in [read.digest, other] {
        assert!(read.cache.key(&digest, READ_MS).is_none());
    }
    read.cache.put(other, entry.clone(), before);
    assert!(read.cache.key(&other, READ_MS).is_none(), "it was read before");
    read.cache.put(other, entry, read.cache.generation());
    assert!(read.cache.key(&other, READ_MS).is_some());
}
