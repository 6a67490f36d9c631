//! How a call ended, as far as its connections tell, and what its provider has said of itself.

use pingora::{Error, ErrorSource, ErrorType};

use crate::clock::monotonic;
use crate::gateway::billing::closed_call::Ending;
use crate::gateway::billing::early_end::EarlyEnd;
use crate::gateway::billing::meter::Meter;
use crate::gateway::context::Ctx;
use crate::gateway::transport::deadline::{is_ended, is_stopped};

/// The ending of the call, by the error that its connections ended with, if there was one.
pub(in crate::gateway) fn ending(ctx: &Ctx, error: Option<&Error>) -> Ending {
    let call = ctx.admitted();
    let has_left = call.is_some_and(|call| call.client_has_left);
    let is_drained = call.is_some_and(|call| call.is_drained);
    let unseen_since = call.and_then(|call| call.unseen_since);
    let has_failed = call.is_some_and(|call| call.failed_within);
    let is_refused = call.is_some_and(|call| call.early_end.is_some_and(EarlyEnd::is_refusal));
    let has_last_event = ctx.meter().is_some_and(Meter::has_last_event);
    match (is_drained, has_failed, is_refused) {
        (true, false, false) => return Ending::Drained,
        (true, ..) => return Ending::DrainFailed,
        // Its client was told so, whatever has come or gone behind that.
        (false, true, _) => return Ending::UpstreamFailed,
        (false, false, true) => return Ending::Stopped,
        (false, false, false) => {}
    }
    let Some(error) = error else { return Ending::Complete };
    match (error.esource(), unseen_since) {
        // Clients close right behind `[DONE]`: it was written to this one.
        (ErrorSource::Downstream, _) if has_last_event && !is_unwritten(error) => Ending::Complete,
        // Not the upstream's doing, nor that of a stop: it was read on for as long as it may be, or there was no place for it.
        (ErrorSource::Downstream, Some(since)) => {
            // Behind the finish of all choices nothing was made, where no text followed it.
            let until = ctx.meter().and_then(Meter::finished_at).unwrap_or_else(monotonic);
            let elapsed = until.saturating_duration_since(since);
            Ending::DrainEnded {
                elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            }
        }
        (ErrorSource::Downstream, None) => Ending::ClientGone,
        _ if has_left => Ending::DrainFailed,
        // Of one that had begun; else its client was refused.
        _ if is_stopped(error) || is_ended(error) && ctx.meter().is_some() => Ending::Stopped,
        _ => Ending::UpstreamFailed,
    }
}

/// Whether what came could not be written to the client.
fn is_unwritten(error: &Error) -> bool {
    matches!(
        error.etype(),
        ErrorType::WriteError | ErrorType::WriteTimedout | ErrorType::H2Error
    )
}
