//! How many calls are read on at once for clients that have left.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A place among the calls that are read on, given back when it is dropped.
pub(in crate::gateway) struct DrainPermit(&'static AtomicUsize);

impl DrainPermit {
    /// For a call that waits for the head of its answer.
    pub(in crate::gateway) fn to_wait() -> Option<DrainPermit> {
        DrainPermit::among(&WAITING)
    }

    /// For a call that is read to its end.
    pub(in crate::gateway) fn to_drain() -> Option<DrainPermit> {
        DrainPermit::among(&DRAINED)
    }

    /// None when all are taken: then an upstream is closed at once.
    fn among(places: &'static AtomicUsize) -> Option<DrainPermit> {
        let taken = places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < PLACES).then_some(n + 1));
        taken.ok().map(|_| DrainPermit(places))
    }
}

impl Drop for DrainPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls that wait for the head of their answer.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Calls that are read to their end.
static DRAINED: AtomicUsize = AtomicUsize::new(0);
/// Most calls of each kind at once.
const PLACES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_calls_are_read_on_and_a_place_that_is_given_back_is_anothers() {
        static PLACES_OF_TEST: AtomicUsize = AtomicUsize::new(0);
        let mut places: Vec<DrainPermit> = std::iter::from_fn(|| DrainPermit::among(&PLACES_OF_TEST)).collect();
        assert_eq!(places.len(), PLACES);
        assert!(DrainPermit::among(&PLACES_OF_TEST).is_none());
        drop(places.pop());
        assert!(DrainPermit::among(&PLACES_OF_TEST).is_some());
        drop(places);
        assert_eq!(PLACES_OF_TEST.load(Ordering::Relaxed), 0);
    }
}
