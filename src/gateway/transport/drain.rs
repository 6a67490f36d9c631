//! The limits of calls that are read on for clients that have left: how many, and for how long.
//!
//! A provider that works is paid, whether its client listens or not. So the head of an answer is waited for, which tells whether there is
//! one; and then its end, which tells what was used, where the provider drains or the model reasons where nobody sees it.

use pingora::{Error, ErrorType, Result};

use crate::config::OnDisconnect;
use crate::gateway::context::{Answer, Call, Ctx};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The client of a call has left: for how long its upstream is read on, none to close it. `head_came`: the head of its answer has come
/// and was decided on.
pub(in crate::gateway) fn client_left(ctx: &mut Ctx, head_came: bool) -> Option<Duration> {
    let timeouts = ctx.snapshot.config.timeouts;
    let call = ctx.call()?;
    call.client_has_left = true;
    // The place of a call that waited for its head is another's now.
    call.read_on = None;
    let (places, within) = match head_came {
        false => (&WAITING, timeouts.first_byte),
        true if is_read_on(call) => (&DRAINED, timeouts.disconnect_drain),
        true => return None,
    };
    call.read_on = DrainPermit::among(places);
    call.read_on.as_ref().map(|_| within)
}

/// Whether an answer whose client has left is read to its end.
fn is_read_on(call: &Call) -> bool {
    let drains = call
        .attempt
        .as_ref()
        .is_some_and(|attempt| attempt.candidate.upstream.provider.on_disconnect == OnDisconnect::Drain);
    // A refusal costs nothing, so nothing is worth waiting for.
    matches!(call.answer, Answer::Metered(_)) && (drains || call.reasons_unseen())
}

/// An answer was carried to its end.
///
/// # Errors
/// When its client had left.
pub(in crate::gateway) fn ended(ctx: &mut Ctx) -> Result<()> {
    match ctx.call() {
        Some(call) if call.client_has_left => {
            call.is_drained = true;
            let error = Error::explain(
                ErrorType::ConnectionClosed,
                "the client has left, and the answer was read to its end",
            );
            Err(error.into_down())
        }
        _ => Ok(()),
    }
}

/// A place among the calls that are read on, given back when it is dropped.
pub(in crate::gateway) struct DrainPermit(&'static AtomicUsize);

impl DrainPermit {
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
