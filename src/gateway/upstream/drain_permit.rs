//! How many calls are read on at once for clients that have left: so many in all, and of one account no more than an eighth of them, for what
//! finds no place may cost its account more.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::pure::hash_map::FastMap;
use crate::pure::ids::AccountId;

/// A place among the calls that are read on, given back when it is dropped.
pub(in crate::gateway) struct DrainPermit {
    places: &'static Places,
    account: AccountId,
}

/// The calls that are read on, by account. An account without any does not stand here.
#[derive(Default)]
struct Places(Mutex<FastMap<AccountId, usize>>);

impl DrainPermit {
    /// For a call that waits for the head of its answer.
    pub(in crate::gateway) fn to_wait(account: &AccountId) -> Option<DrainPermit> {
        DrainPermit::among(&WAITING, account)
    }

    /// For a call that is read to its end.
    pub(in crate::gateway) fn to_drain(account: &AccountId) -> Option<DrainPermit> {
        DrainPermit::among(&DRAINED, account)
    }

    /// None when all are taken, or the account has its share: then an upstream is closed at once.
    fn among(places: &'static Places, account: &AccountId) -> Option<DrainPermit> {
        let mut taken = places.lock();
        let own = taken.get(account).copied().unwrap_or(0);
        // Looked at only when somebody leaves: there are as many accounts at most as places.
        let all = taken.values().fold(0, |sum: usize, count| sum.saturating_add(*count));
        if all >= PLACES || own >= PLACES / SHARES {
            return None;
        }
        taken.insert(account.clone(), own.saturating_add(1));
        let account = account.clone();
        Some(DrainPermit { places, account })
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, FastMap<AccountId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DrainPermit {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.account) {
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            _ => drop(taken.remove(&self.account)),
        }
    }
}

/// Calls that wait for the head of their answer.
static WAITING: LazyLock<Places> = LazyLock::new(Places::default);
/// Calls that are read to their end.
static DRAINED: LazyLock<Places> = LazyLock::new(Places::default);
/// Most calls of each kind at once.
const PLACES: usize = 1_024;
/// One account has at most one of so many parts of them.
const SHARES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_calls_are_read_on_and_a_place_that_is_given_back_is_anothers() {
        static PLACES_OF_TEST: LazyLock<Places> = LazyLock::new(Places::default);
        let account = |number: usize| format!("a{number}").parse::<AccountId>().unwrap();
        let place = |number: usize| DrainPermit::among(&PLACES_OF_TEST, &account(number));
        let mut places = Vec::new();
        for number in 0..SHARES {
            let of_one = std::iter::from_fn(|| place(number));
            let before = places.len();
            places.extend(of_one);
            assert_eq!(places.len() - before, PLACES / SHARES, "an account's share");
        }
        assert!(place(SHARES).is_none(), "all are taken");
        drop(places.pop());
        assert!(place(SHARES).is_some());
        drop(places);
        assert!(PLACES_OF_TEST.lock().is_empty());
    }
}
