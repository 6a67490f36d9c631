//! The limit on calls that are read on for clients that have gone. `carry` asks for a place for each.

use std::sync::atomic::{AtomicUsize, Ordering};

use pingora::{Error, ErrorType};

/// A place among the calls that are drained, given back when it is dropped.
pub(super) struct DrainPlace;

impl DrainPlace {
    /// None when all are taken: then an upstream is closed at once.
    pub(super) fn take() -> Option<DrainPlace> {
        let taken = DRAINED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < DRAINED_MAX).then_some(n + 1)
        });
        taken.ok().map(|_| DrainPlace)
    }
}

impl Drop for DrainPlace {
    fn drop(&mut self) {
        DRAINED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The end of a drained call, which is the client's doing.
pub(super) fn drained_out() -> Box<Error> {
    let mut error = Error::explain(ErrorType::ConnectionClosed, "the client has gone, and draining ended");
    error.as_down();
    error
}

static DRAINED: AtomicUsize = AtomicUsize::new(0);
const DRAINED_MAX: usize = 256;
