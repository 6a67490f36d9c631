//! What follows when a client leaves: whether its upstream is read on, and for how long.
//!
//! A provider that works is paid, whether its client listens or not. So the head of an answer is waited for, which tells whether there is
//! one. Then its end is, which tells what was used: where the provider drains, where the model reasons and nobody sees it, where only the
//! report can tell what the request comes to (it has images, sounds or files, asks for reasoning, or for writes to a cache), and where the
//! client may come back for the answer, because it gave the call an idempotency key. The words of a refusal are waited for a moment, for
//! they may be the operator's to read.

use std::time::Duration;

use pingora::{Error, ErrorType, Result};

use super::drain_permit::DrainPermit;
use crate::config::OnDisconnect;
use crate::gateway::context::{Answer, Call, Ctx};
use crate::pure::request_body::ResponseMode;

/// The client of a call has left: for how long its upstream is read on, none to close it. `head_came`: the head of its answer has come
/// and was decided on.
pub(in crate::gateway) fn client_left(ctx: &mut Ctx, head_came: bool) -> Option<Duration> {
    let timeouts = ctx.snapshot.config.timeouts;
    let call = ctx.call()?;
    call.client_has_left = true;
    // The place of a call that waited for its head is another's now.
    call.read_on = None;
    let account = &call.admission.as_ref()?.caller.account.id;
    let first_byte = match call.body.mode() {
        ResponseMode::Stream => timeouts.first_byte,
        ResponseMode::Whole => timeouts.whole_first_byte,
    };
    let (permit, within) = match (head_came, &call.answer) {
        (false, _) => (DrainPermit::to_wait(account), first_byte),
        (true, Answer::Refusal(_)) => (DrainPermit::to_drain(account), REFUSAL_MAX),
        (true, _) if is_read_on(call) => (DrainPermit::to_drain(account), timeouts.disconnect_drain),
        (true, _) => return None,
    };
    call.read_on = permit;
    // Of one that reasons unseen the time is billed also where there is no place, unless its use is known.
    let waits_for_use = call.read_on.is_some() || call.reasons_unseen();
    if let Answer::Metered(meter) = &mut call.answer
        && head_came
        && waits_for_use
    {
        meter.read_on();
    }
    call.read_on.as_ref().map(|_| within)
}

/// Whether an answer whose client has left is read to its end.
fn is_read_on(call: &Call) -> bool {
    let drains = call
        .attempt
        .as_ref()
        .is_some_and(|attempt| attempt.candidate.upstream.provider.on_disconnect == OnDisconnect::Drain);
    let waits_for_report = drains || call.reasons_unseen() || call.body.is_known_by_report_alone();
    matches!(call.answer, Answer::Metered(_)) && (waits_for_report || is_asked_for_again(call))
}

/// Whether its client may come back for the answer, with its idempotency key.
fn is_asked_for_again(call: &Call) -> bool {
    call.capture.as_ref().is_some_and(|capture| capture.is_kept())
}

/// An answer was carried to its end.
///
/// # Errors
/// When its client had left.
pub(in crate::gateway) fn ended(ctx: &mut Ctx) -> Result<()> {
    match ctx.call() {
        Some(call) if call.client_has_left => {
            // A refusal is no answer.
            call.is_drained = matches!(call.answer, Answer::Metered(_));
            let error = Error::explain(
                ErrorType::ConnectionClosed,
                "the client has left, and the answer was read to its end",
            );
            Err(error.into_down())
        }
        _ => Ok(()),
    }
}

/// How long the words of a refusal are waited for whose client has left. What came of them by then decides.
const REFUSAL_MAX: Duration = Duration::from_secs(1);
