//! The limits of calls that are read on for clients that have left: how many, and for how long.

use pingora::{Error, ErrorType, Result};

use super::context::Ctx;
use crate::config::OnDisconnect;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The client of a call has left: for how long its upstream is read on, none to close it.
pub(super) fn client_left(ctx: &mut Ctx, head_came: bool) -> Option<Duration> {
    let call = ctx.call()?;
    call.client_has_left = true;
    let drains = call
        .attempt
        .as_ref()
        .is_some_and(|attempt| attempt.candidate.upstream.provider.on_disconnect == OnDisconnect::Drain);
    // Before the answer has begun nothing is owed, so nothing is worth waiting for.
    if !head_came || !drains {
        return None;
    }
    if call.drain.is_none() {
        call.drain = DrainPlace::take();
    }
    call.drain.as_ref().map(|_| DRAIN_MAX)
}

/// An answer was carried to its end.
///
/// # Errors
/// When its client had left.
pub(super) fn ended(ctx: &mut Ctx) -> Result<()> {
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

static DRAINED: AtomicUsize = AtomicUsize::new(0);
const DRAINED_MAX: usize = 256;
/// How long an upstream is read on for a client that has left, for its usage report.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(120);
