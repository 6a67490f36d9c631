//! What follows a failure: the same target again, the next one, or an end that the client is told. One enum says what happened, one
//! match what follows.

use std::sync::Arc;
use std::time::Duration;

use pingora::proxy::Session;
use pingora::{Error, ErrorSource, ErrorType, RetryType};

use super::error_reply::{is_upstreams, level};
use super::refusal;
use super::verdict::Verdict;
use crate::clock::{Clock, monotonic};
use crate::gateway::api::responses;
use crate::gateway::billing::discard;
use crate::gateway::billing::keep_within;
use crate::gateway::context::{Answer, Attempt, Call, Ctx};
use crate::gateway::recorder;
use crate::gateway::trace;
use crate::gateway::transport::deadline::{is_ended, is_stopped};
use crate::net::error_text::ErrorText;
use crate::pure::error::ApiError;

/// Why an attempt, or the whole call, came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The client left, or takes nothing any more.
    ClientLeft,
    /// The client has left, and the upstream that was waited for on its behalf failed before anything had passed on.
    FailedUnread,
    /// The process stops and no longer waits.
    Stopped,
    /// Its credit is no longer set aside for it.
    Uncovered,
    /// A mistake of ours.
    Ours,
    /// No connection could be made.
    Unreachable,
    /// None could be begun, for this process is given no socket: which is no target's fault.
    NoSocket,
    /// The connection was of no more use when the request reached it, or the upstream said that it had not begun to work on it.
    Untouched,
    /// An answer came that is none: [`Call::verdict`] has what it comes to.
    NoAnswer,
    /// The upstream refused the request, and the words of its refusal broke off or did not end: it is a refusal all the same.
    Refused,
    /// The upstream failed before the client was sent anything.
    Failed,
    /// The upstream failed within an answer that the client was sent a part of.
    BrokeOff,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The same target once more: at another address, or over a fresh connection.
    Again,
    /// Another target, if one is left.
    Another,
    /// The end.
    End,
}

/// A connection could not be made. The error's retry says whether there is another attempt.
pub(in crate::gateway) fn connect_failed(ctx: &mut Ctx, mut error: Box<Error>, clock: &Clock) -> Box<Error> {
    let is_ipv6 = ctx
        .call()
        .and_then(|call| call.attempt.as_ref())
        .is_some_and(|attempt| attempt.is_ipv6);
    let cause = match (error.etype(), error.root_etype()) {
        // Without an address or a permitted way of IPv6, it is no fault of this process.
        (ErrorType::InternalError, root) if !is_ipv6 || *root == ErrorType::SocketError => Cause::NoSocket,
        _ => Cause::Unreachable,
    };
    if let (Cause::Unreachable, Some(attempt)) = (cause, ctx.call().and_then(|call| call.attempt.as_mut())) {
        attempt.unreached.note(attempt.is_ipv6);
    }
    let next = follow(ctx, cause, &error, clock);
    error.set_retry(next != Next::End);
    error
}

/// Something failed after the connection stood. The error's retry says whether there is another attempt. `had_waited`: the connection had
/// waited for a request before, and as far as is known it was of no more use when this one came.
pub(in crate::gateway) fn exchange_failed(
    session: &Session,
    ctx: &mut Ctx,
    mut error: Box<Error>,
    had_waited: bool,
    clock: &Clock,
) -> Box<Error> {
    let cause = cause(session, ctx, &error, had_waited);
    let next = follow(ctx, cause, &error, clock);
    error.set_retry(next != Next::End);
    error
}

fn cause(session: &Session, ctx: &mut Ctx, error: &Error, had_waited: bool) -> Cause {
    let has_begun = responses::has_begun(session);
    let Some(call) = ctx.call() else { return Cause::Ours };
    if is_stopped(error) {
        return Cause::Stopped;
    }
    if is_ended(error) {
        return Cause::Uncovered;
    }
    let is_refusal = matches!(call.answer, Answer::Refusal(_)) && call.verdict.is_none();
    if is_refusal && (is_upstreams(error) || call.client_has_left) {
        refusal::broke_off(call);
        if call.verdict.is_none() {
            return Cause::Refused;
        }
    }
    let is_failure = is_upstreams(error) || call.verdict.is_some();
    if call.client_has_left && is_failure && !is_untouched(call, error, had_waited) {
        return match &call.answer {
            // Its client would have been sent what came, and owes that.
            Answer::Metered(meter) if !meter.is_gathered() => Cause::BrokeOff,
            _ => Cause::FailedUnread,
        };
    }
    if call.client_has_left || *error.esource() == ErrorSource::Downstream {
        return Cause::ClientLeft;
    }
    if !is_upstreams(error) {
        return Cause::Ours;
    }
    if has_begun {
        // Of a whole answer, only white space has left then.
        let is_refused = call.verdict.as_deref().is_some_and(Verdict::is_requests_fault);
        return if is_refused { Cause::NoAnswer } else { Cause::BrokeOff };
    }
    if call.verdict.is_some() {
        return Cause::NoAnswer;
    }
    if is_untouched(call, error, had_waited) {
        return Cause::Untouched;
    }
    Cause::Failed
}

/// Whether no work can have begun: the upstream says so (RFC 9113 sections 6.8, 8.7), or its connection had waited, and was closed when
/// the request came, or at once after. One over HTTP/2 had waited where it had no request before, or only some that came together with this
/// one, and nothing was heard from it since.
fn is_untouched(call: &Call, error: &Error, had_waited: bool) -> bool {
    if !matches!(call.answer, Answer::None) {
        return false;
    }
    match (&error.retry, error.etype()) {
        // The peer could not be understood: what it did with the request is unknown.
        (_, ErrorType::InvalidH2) => false,
        (RetryType::Decided(true), _) => true,
        (RetryType::ReusedOnly, _) | (_, ErrorType::WriteError) => {
            let asked_at = call.attempt.as_ref().and_then(|attempt| attempt.asked_at);
            let lasted = asked_at.map(|at| monotonic().saturating_duration_since(at));
            had_waited && lasted.is_none_or(|lasted| lasted <= STALE_MAX)
        }
        _ => false,
    }
}

/// Decides what follows, and does what that asks for.
fn follow(ctx: &mut Ctx, cause: Cause, error: &Error, clock: &Clock) -> Next {
    let Some(call) = ctx.call() else { return Next::End };
    let next = next(call, cause);
    let verdict = call.verdict.take();
    match (next, cause) {
        (Next::Again, Cause::Untouched) => {
            if let Some(attempt) = &mut call.attempt {
                attempt.is_repeated = true;
            }
            trace::again(ctx, "stale");
            Next::Again
        }
        (Next::Again, _) => {
            trace::again(ctx, recorder::fault_of(error, false));
            Next::Again
        }
        (Next::Another, _) => give_up_target(ctx, (cause, error), verdict, clock),
        (Next::End, Cause::BrokeOff) => {
            if let Some(attempt) = &call.attempt {
                attempt.failed(clock, None);
            }
            if matches!(&call.answer, Answer::Metered(meter) if !meter.is_stream()) {
                discard_gathered(call);
            }
            let of_error = || recorder::fault_of(error, true);
            let fault = verdict.map_or_else(of_error, |verdict| recorder::fault_of_status(verdict.status));
            recorder::fault(ctx, fault);
            Next::End
        }
        (Next::End, Cause::NoAnswer) => {
            call.failure = verdict.map(|verdict| Box::new(verdict.error));
            Next::End
        }
        (Next::End, Cause::Uncovered) => {
            call.failure = keep_within::uncovered(call).map(Box::new);
            discard_gathered(call);
            Next::End
        }
        (Next::End, Cause::Stopped) => {
            discard_gathered(call);
            Next::End
        }
        (Next::End, Cause::FailedUnread) => {
            failed_unread(call, verdict.as_deref(), error, clock);
            Next::End
        }
        (Next::End, _) => Next::End,
    }
}

/// Of an answer that began and is gathered its client gets nothing.
fn discard_gathered(call: &mut Call) {
    if matches!(&call.answer, Answer::Metered(meter) if meter.is_gathered()) {
        discard::answer(call);
    }
}

/// Had the client stayed, it would have been given another answer, or a failure: nobody pays for this one. For its target it is a failure
/// like any other.
fn failed_unread(call: &mut Call, verdict: Option<&Verdict>, error: &Error, clock: &Clock) {
    if !verdict.is_some_and(Verdict::is_requests_fault) {
        tell_breaker(call, Cause::FailedUnread, verdict, clock);
        let has_answered = matches!(call.answer, Answer::Metered(_));
        let of_error = || recorder::fault_of(error, has_answered);
        let fault = verdict.map_or_else(of_error, |verdict| recorder::fault_of_status(verdict.status));
        if let Some(recorder) = call.recorder() {
            recorder.fault(fault);
        }
    }
    discard::answer(call);
}

/// What an attempt that has failed says of its target, for the target's breaker.
fn tell_breaker(call: &Call, cause: Cause, verdict: Option<&Verdict>, clock: &Clock) {
    let Some(attempt) = &call.attempt else { return };
    // What it said is of this request alone, or it could not be asked.
    let is_of_request = verdict.is_some_and(|verdict| verdict.is_of_request);
    // One may be refused with the connection that it is on. A repeat has a connection of its own.
    let is_of_connection = cause == Cause::Untouched && !attempt.is_repeated;
    if is_of_request || is_of_connection || cause == Cause::NoSocket {
        return attempt.inconclusive();
    }
    let retry_after_secs = verdict.and_then(|verdict| verdict.retry_after_secs);
    attempt.failed(clock, retry_after_secs);
}

fn next(call: &Call, cause: Cause) -> Next {
    match cause {
        Cause::ClientLeft
        | Cause::FailedUnread
        | Cause::Stopped
        | Cause::Uncovered
        | Cause::Ours
        | Cause::Refused
        | Cause::BrokeOff => Next::End,
        Cause::NoAnswer => match &call.verdict {
            Some(verdict) if verdict.is_requests_fault() => Next::End,
            _ => Next::Another,
        },
        Cause::Failed | Cause::NoSocket => Next::Another,
        Cause::Untouched => match &call.attempt {
            Some(attempt) if !attempt.is_repeated => Next::Again,
            _ => Next::Another,
        },
        Cause::Unreachable => match &call.attempt {
            Some(attempt) if has_another_address(attempt) => Next::Again,
            _ => Next::Another,
        },
    }
}

fn has_another_address(attempt: &Attempt) -> bool {
    attempt.candidate.upstream.host.addresses.has_another(attempt.unreached)
}

/// The target of this attempt has failed and is not tried again.
fn give_up_target(
    ctx: &mut Ctx,
    (cause, error): (Cause, &Error),
    verdict: Option<Box<Verdict>>,
    clock: &Clock,
) -> Next {
    let has_socket = cause != Cause::NoSocket;
    let fault = match &verdict {
        Some(verdict) => recorder::fault_of_status(verdict.status),
        None => recorder::fault_of(error, ctx.meter().is_some()),
    };
    let id = ctx.id;
    match has_socket {
        true => recorder::fault(ctx, fault),
        false => log::error!(
            "request {id}: no connection can be opened ({}): see LimitNOFILE",
            ErrorText(error)
        ),
    }
    let snapshot = Arc::clone(&ctx.snapshot);
    let Some(call) = ctx.call() else { return Next::End };
    tell_breaker(call, cause, verdict.as_deref(), clock);
    let is_credential_refused = verdict.as_ref().is_some_and(|verdict| verdict.refuses_credential());
    let failed = call.attempt.as_ref().map(|attempt| &attempt.candidate);
    if let Some(failed) = failed {
        call.tried.push(failed.index);
    }
    let target = failed.map_or_else(String::new, |failed| {
        format!("{}:{}", failed.upstream.name, failed.model)
    });
    discard::answer(call);
    let unreachable = if has_socket {
        ApiError::UpstreamUnreachable
    } else {
        ApiError::NO_SOCKET
    };
    let failure = verdict.map_or(unreachable, |verdict| verdict.error);
    let next = level(&failure, error);
    call.failure = Some(Box::new(failure));
    if let Some(recorder) = call.recorder() {
        recorder.begins_again();
    }
    let model = call.admission.as_ref().map(|admission| &admission.permit.model().id);
    let Some(model) = model else { return Next::End };
    if !snapshot.is_target_left(model, |index| call.tried.contains(&index)) {
        // Of a credential that a reload has replaced meanwhile nothing is noted: with the new one another try may be answered.
        if is_credential_refused && snapshot.all_refuse_credential(model) {
            call.failure = Some(Box::new(ApiError::CredentialRefused));
        }
        return Next::End;
    }
    log::log!(
        next,
        "request {id}: {target} failed on {model}, the next target is asked: {}",
        ErrorText(error)
    );
    Next::Another
}

/// How soon after a request a connection that had waited must end for that to be the reason: longer, and work may have begun.
const STALE_MAX: Duration = Duration::from_millis(100);
