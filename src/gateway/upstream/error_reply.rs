//! How a client is told of a failure, and how loud the log is.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use pingora::proxy::{FailToProxy, Session};
use pingora::{Error, ErrorSource};

use crate::gateway::api::responses;
use crate::gateway::billing::capture;
use crate::gateway::context::{Answer, Call, Ctx};
use crate::gateway::transport::deadline::{has_cut_a_write, is_stopped, write_within};
use crate::net::error_text::ErrorText;
use crate::pure::error::{ApiError, STREAM_FAILED, STREAM_STOPPED};

/// Tells the client of a failure, as far as it can still be told: the status that it was told, 0 when it has left, and whether its
/// connection may serve another request.
pub(in crate::gateway) async fn send_error(session: &mut Session, ctx: &mut Ctx, error: &Error) -> FailToProxy {
    let has_left = ctx.call().is_some_and(|call| call.client_has_left);
    let is_clients = *error.esource() == ErrorSource::Downstream;
    if has_left && !is_clients && ctx.call().is_some_and(|call| call.capture.is_some()) {
        // It was read on for its key: who comes back with that is given the end that a client which stayed would have read.
        let tail = error_tail(ctx, error);
        capture::ends_with(ctx, tail.as_ref());
    }
    if has_left || is_clients {
        // Clients that leave are normal traffic.
        log::debug!("request {}: {}", ctx.id, ErrorText(error));
        return FailToProxy {
            error_code: 0,
            can_reuse_downstream: false,
        };
    }
    let failure = told(ctx, error);
    let wire = failure.to_wire();
    let (id, path) = (ctx.id, session.req_header().uri.path());
    log::log!(
        level(&failure, error),
        "request {id} {path} failed with {}: {}",
        wire.status,
        ErrorText(error)
    );
    let mut can_reuse_downstream = false;
    let written = if !responses::has_begun(session) {
        // A stop is nobody's failure and no denial: it is dropped.
        if !is_stopped(error) {
            ctx.recorder().failed(&failure);
        }
        // The connection is closed after a failure, and this says so.
        session.set_keepalive(None);
        responses::error(session, ctx, &wire).await
    } else {
        let tail = error_tail(ctx, error);
        capture::ends_with(ctx, tail.as_ref());
        match tail {
            // It would stand within what was being written. Over HTTP/2 the stream's end says that it is none.
            Some(_) if has_cut_a_write(error) => {
                session
                    .downstream_session
                    .shutdown_with_reason(h2::Reason::INTERNAL_ERROR);
                Ok(())
            }
            // Also when the process stops: this is what it stops with.
            Some(tail) => {
                // The answer has its end, and its head said that the connection is kept: a client uses it again at once.
                can_reuse_downstream = !is_stopped(error);
                let at_most = if is_stopped(error) { STOP_TAIL_MAX } else { TAIL_MAX };
                let at_most = Some(ctx.snapshot.config.timeouts.write.min(at_most));
                let client = &mut session.downstream_session;
                write_within(at_most, || false, pin!(client.write_response_body(tail, true))).await
            }
            None => Ok(()),
        }
    };
    if let Err(error) = written {
        log::debug!("request {id}: the failure could not be told: {}", ErrorText(&error));
        can_reuse_downstream = false;
    }
    FailToProxy {
        error_code: wire.status,
        can_reuse_downstream,
    }
}

/// What ends an answer that has begun, after a failure. None when nothing can.
fn error_tail(ctx: &mut Ctx, error: &Error) -> Option<Bytes> {
    let why = match is_stopped(error) {
        true => STREAM_STOPPED,
        false => STREAM_FAILED,
    };
    let Call {
        answer,
        admission,
        body,
        attempt,
        ..
    } = ctx.call()?;
    match answer {
        Answer::Metered(meter) => {
            let target = attempt.as_ref().map(|attempt| &attempt.candidate);
            let tariff = admission.as_ref().map(|admission| admission.tariff(body, target));
            meter.fail(why, tariff.as_ref())
        }
        // Nothing of a refusal leaves before all of it does.
        Answer::Refusal(_) | Answer::None => None,
    }
}

/// How loud a failure is told: an error is what an operator has to mend, a warning what a provider did wrong, and what providers, clients
/// and stops do every day is neither.
pub(super) fn level(failure: &ApiError, error: &Error) -> log::Level {
    match failure {
        _ if is_stopped(error) => log::Level::Info,
        ApiError::Internal => log::Level::Error,
        ApiError::UpstreamFailed
        | ApiError::CredentialRefused
        | ApiError::UpstreamUnreachable
        | ApiError::Unavailable { .. } => log::Level::Warn,
        _ => log::Level::Info,
    }
}

/// What the client is told when no attempt is left and nothing was sent yet.
fn told(ctx: &mut Ctx, error: &Error) -> ApiError {
    let failure = ctx.call().and_then(|call| call.failure.take());
    if is_stopped(error) {
        return ApiError::STOPPED;
    }
    failure.map(|failure| *failure).unwrap_or(if is_upstreams(error) {
        ApiError::UpstreamUnreachable
    } else {
        ApiError::Internal
    })
}

/// Whether the upstream is to blame.
pub(super) fn is_upstreams(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
}

/// How long a client may take what ends its stream after a failure.
const TAIL_MAX: Duration = Duration::from_secs(1);
/// The same when the process stops, which is not held up for long by who does not read.
const STOP_TAIL_MAX: Duration = Duration::from_millis(500);
