//! How a call ended, as far as its connections tell.

use pingora::{Error, ErrorSource};

use crate::clock::monotonic;
use crate::gateway::billing::closed_call::Ending;
use crate::gateway::context::Ctx;
use crate::gateway::transport::deadline::is_stopped;

/// The ending of the call, by the error that its connections ended with, if there was one.
pub(in crate::gateway) fn ending(ctx: &mut Ctx, error: Option<&Error>) -> Ending {
    let (has_left, is_drained, unseen_since) = ctx.call().map_or((false, false, None), |call| {
        (call.client_has_left, call.is_drained, call.unseen_since)
    });
    if is_drained {
        return Ending::Drained;
    }
    let Some(error) = error else { return Ending::Complete };
    match (error.esource(), unseen_since) {
        // Not the upstream's doing, nor that of a stop: it was read on for as long as it may be, or there was no place for it.
        (ErrorSource::Downstream, Some(since)) => {
            let elapsed = monotonic().saturating_duration_since(since);
            Ending::DrainEnded {
                elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            }
        }
        (ErrorSource::Downstream, None) => Ending::ClientGone,
        _ if has_left => Ending::DrainFailed,
        _ if is_stopped(error) => Ending::Stopped,
        _ => Ending::UpstreamFailed,
    }
}
