//! Where this gateway has heard of events that are still to be told.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::admission_breaker::millis;
use super::script::PREFIX;
use crate::ledger::admin::events::EventCount;
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

/// Where there may be events.
#[derive(Debug, Default)]
pub(super) struct OpenPlaces {
    /// With the time at which the next one is due.
    places: Mutex<HashMap<Place, Timestamp>>,
    /// How many events were dropped there, as it was last heard, also where none is open any more: at most [`DROPPED_PLACES_MAX`] places.
    dropped: Mutex<HashMap<Place, u64>>,
    /// Where it is yet to be looked for events.
    unsearched: Mutex<BTreeSet<Place>>,
    /// The names of all accounts were to be read for that, and could not be.
    lacks_names: AtomicBool,
    /// Where events were open as they were counted last, and how many.
    counted: Mutex<Arc<HashMap<Place, EventCount>>>,
    /// When all accounts were looked through, and 0 when they are to be.
    pub(super) searched_ms: AtomicU64,
    /// When all accounts were asked how many were dropped.
    dropped_ms: AtomicU64,
    /// Nothing is heard of: this user of Redis may not listen.
    is_deaf: AtomicBool,
}

/// Where events are kept: with an account, or by themselves.
pub(super) type Place = Option<AccountId>;

impl OpenPlaces {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Place, Timestamp>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One was raised there.
    pub(super) fn heard(&self, key: &str) {
        if let Some(place) = place_of(key) {
            self.due(place, Timestamp(0));
        }
    }

    /// Whether it is heard where events are raised.
    pub(super) fn hears(&self, hears: bool) {
        self.is_deaf.store(!hears, Ordering::Relaxed);
    }

    /// Whether all accounts are to be looked through.
    pub(super) fn is_search_due(&self, now_ms: u64) -> bool {
        let searched_ms = self.searched_ms.load(Ordering::Relaxed);
        searched_ms == 0 || now_ms.saturating_sub(searched_ms) >= self.search_every_ms()
    }

    /// It is to be looked for events of these accounts, and for those about none.
    pub(super) fn to_search(&self, accounts: Vec<AccountId>) {
        let places = [None].into_iter().chain(accounts.into_iter().map(Some));
        self.lock_unsearched().extend(places);
    }

    /// Where it is yet to be looked.
    pub(super) fn unsearched(&self) -> Vec<Place> {
        self.lock_unsearched().iter().cloned().collect()
    }

    pub(super) fn has_unsearched(&self) -> bool {
        !self.lock_unsearched().is_empty()
    }

    /// It was looked there.
    pub(super) fn searched(&self, place: &Place) {
        self.lock_unsearched().remove(place);
    }

    fn lock_unsearched(&self) -> MutexGuard<'_, BTreeSet<Place>> {
        self.unsearched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lacks_names(&self) -> bool {
        self.lacks_names.load(Ordering::Relaxed)
    }

    pub(super) fn set_lacks_names(&self, lacks: bool) {
        self.lacks_names.store(lacks, Ordering::Relaxed);
    }

    /// Where events were open as they were counted last.
    pub(super) fn counted(&self) -> Arc<HashMap<Place, EventCount>> {
        Arc::clone(&self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_counted(&self, counted: HashMap<Place, EventCount>) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(counted);
    }

    pub(super) fn search_every_ms(&self) -> u64 {
        millis(match self.is_deaf.load(Ordering::Relaxed) {
            true => SEARCH_DEAF_EVERY,
            false => SEARCH_EVERY,
        })
    }

    /// Whether all accounts are to be asked how many were dropped there: at first and each hour, for a gateway that hears nothing looks
    /// through them often. Where something is open, whatever else is asked tells it.
    pub(super) fn asks_dropped(&self, now_ms: u64) -> bool {
        let asked_ms = self.dropped_ms.load(Ordering::Relaxed);
        let is_due = asked_ms == 0 || now_ms.saturating_sub(asked_ms) >= millis(SEARCH_EVERY);
        if is_due {
            self.dropped_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        is_due
    }

    /// Something may have been raised that was not heard.
    pub(super) fn doubt(&self) {
        self.searched_ms.store(0, Ordering::Relaxed);
    }

    pub(super) fn due(&self, place: Place, at: Timestamp) {
        let mut places = self.lock();
        let due = places.entry(place).or_insert(at);
        *due = (*due).min(at);
    }

    /// So many have been dropped there in all: what was known before counts where it is more.
    pub(super) fn note_dropped(&self, place: &Place, count: u64) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = dropped.get_mut(place) {
            *known = count.max(*known);
        } else if count > 0 && dropped.len() < DROPPED_PLACES_MAX {
            dropped.insert(place.clone(), count);
        }
    }

    /// How many were dropped in all places.
    pub(super) fn dropped(&self) -> u64 {
        let dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    pub(super) fn due_at(&self, now: Timestamp) -> Vec<Place> {
        let places = self.lock();
        let mut due: Vec<(&Place, &Timestamp)> = places.iter().filter(|(_, due)| **due <= now).collect();
        due.sort_by_key(|(_, due)| **due);
        due.into_iter().map(|(place, _)| place.clone()).collect()
    }
}

/// The place of a key; none for one that is no place.
fn place_of(key: &str) -> Option<Place> {
    match key.strip_prefix(PREFIX)? {
        "events" => Some(None),
        name => name.strip_prefix('{')?.strip_suffix('}')?.parse().ok().map(Some),
    }
}

/// The most places whose dropped events are counted: about 10 MB.
const DROPPED_PLACES_MAX: usize = 100_000;
/// How often all accounts are looked through for events that were not heard of.
const SEARCH_EVERY: Duration = Duration::from_secs(3_600);
/// The same where nothing is heard of.
const SEARCH_DEAF_EVERY: Duration = Duration::from_secs(30);
