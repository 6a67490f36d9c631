//! The way to an upstream and back: peer, request, and what follows when it fails. `judge` reads its answer.

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Uri, Version};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, OrErr};

use super::carry;
use super::observe;
use super::respond;
use super::route;
use super::snapshot::Snapshot;
use super::stage::{Answer, Attempt, Call, Ctx};
use super::trace;
use crate::clock::Clock;
use crate::pure::chat::{Edit, Endpoint, ResponseMode};
use crate::pure::error::ApiError;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Chooses the next target and prepares its body.
///
/// # Errors
/// When no target is left, or none has a known address: the call's `failure` says what the client is told.
pub(super) fn peer(ctx: &mut Ctx, clock: &Clock) -> pingora::Result<Box<HttpPeer>> {
    let snapshot = Arc::clone(&ctx.snapshot);
    let Some(call) = ctx.call() else {
        return Error::e_explain(ErrorType::InternalError, "the call was not admitted");
    };
    loop {
        let again = call
            .attempt
            .take()
            .filter(|attempt| !call.tried.contains(&attempt.candidate.index));
        let mut attempt = match again {
            Some(attempt) => attempt,
            None => match next_attempt(&snapshot, call, clock) {
                Some(attempt) => attempt,
                None => {
                    call.failure.get_or_insert(ApiError::UpstreamUnreachable);
                    return Error::e_explain(ErrorType::ConnectNoRoute, "no target is left");
                }
            },
        };
        if let Some(peer) = attempt.candidate.upstream.peer() {
            attempt.addresses_tried = attempt.addresses_tried.saturating_add(1);
            call.attempt = Some(attempt);
            return Ok(Box::new(peer));
        }
        log::warn!(
            "provider {} has no known address",
            attempt.candidate.upstream.provider.name
        );
        call.tried.push(attempt.candidate.index);
        call.failure = Some(ApiError::UpstreamUnreachable);
    }
}

fn next_attempt(snapshot: &Snapshot, call: &Call, clock: &Clock) -> Option<Attempt> {
    let admission = call.admission.as_ref()?;
    let model = admission.permit.model();
    let candidate = route::next_target(snapshot, &model.id, &call.tried, clock.now())?;
    let body = call.body.edit(&Edit {
        model: &candidate.model,
        maximum: candidate.upstream.maximum_field,
        cap: admission.cap,
    });
    Some(Attempt {
        candidate,
        body,
        addresses_tried: 0,
    })
}

/// Builds the upstream's request from nothing: what the client sent does not leave, but for its body and its trace context.
pub(super) fn request(client: &RequestHeader, call: &mut Call, http2: bool) -> pingora::Result<RequestHeader> {
    let Some(attempt) = &call.attempt else {
        return Error::e_explain(ErrorType::InternalError, "a request without an attempt");
    };
    let upstream = &attempt.candidate.upstream;
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.version = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    parts.uri = match call.body.endpoint() {
        Endpoint::Chat | Endpoint::ChatStream => upstream.parts.chat.clone(),
        Endpoint::Embeddings => upstream.parts.embeddings.clone(),
    };
    parts.headers = upstream.parts.headers.clone();
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(attempt.body.len()));
    // The configuration may name another.
    parts.headers.entry(header::ACCEPT).or_insert(match call.body.mode() {
        ResponseMode::Stream => EVENT_STREAM,
        ResponseMode::Whole => JSON,
    });
    trace::pass_on(&client.headers, call, &mut parts.headers);
    if http2 && let Some(host) = parts.headers.remove(header::HOST) {
        // There the target has the authority (RFC 9113 section 8.3.1), and some servers take no head with both.
        let target = Uri::builder().scheme(Scheme::HTTPS).authority(host.as_bytes());
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let target = target.path_and_query(path).build();
        parts.uri = target.or_err(ErrorType::InternalError, "a target that is none")?;
    }
    Ok(RequestHeader::from(parts))
}

/// A connection could not be made: is there another target?
pub(super) fn connect_failed(ctx: &mut Ctx, mut error: Box<Error>, clock: &Clock) -> Box<Error> {
    if let Some(call) = ctx.call()
        && let Some(attempt) = &mut call.attempt
        && attempt.addresses_tried < attempt.candidate.upstream.host.addresses.count().min(ADDRESSES_MAX)
    {
        // The host has another address.
        trace::again(ctx, observe::fault_of(&error));
        error.set_retry(true);
        return error;
    }
    observe::fault(ctx, observe::fault_of(&error));
    let left = failed_target(ctx, clock, ApiError::UpstreamUnreachable);
    error.set_retry(left);
    error
}

/// Something failed after the connection stood: may it be tried again?
pub(super) fn exchange_failed(
    client: &ServerSession,
    ctx: &mut Ctx,
    mut error: Box<Error>,
    reused: bool,
    clock: &Clock,
) -> Box<Error> {
    error.retry.decide_reuse(reused);
    let client_is_gone = ctx.call().is_some_and(|call| call.client_is_gone);
    let written = respond::has_begun(client);
    if *error.etype() == ErrorType::Custom(carry::STOPPING) {
        // No target's failure, and no time for another.
        error.set_retry(false);
        return error;
    }
    if is_upstreams(&error)
        && written
        && let Some(attempt) = ctx.call().and_then(|call| call.attempt.as_ref())
    {
        attempt.candidate.breaker.failed(clock.now(), None);
        observe::fault(ctx, observe::fault_of(&error));
    }
    if !is_upstreams(&error) || written || client_is_gone {
        error.set_retry(false);
        return error;
    }
    if matches!(error.etype(), ErrorType::HTTPStatus(_)) {
        // Judged already. What was read of the answer has not reached the client.
        if let Some(call) = ctx.call() {
            call.answer = Answer::None;
        }
        return error;
    }
    let stale = reused
        && matches!(
            error.etype(),
            ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError | ErrorType::H2Error
        );
    if stale
        && let Some(call) = ctx.call()
        && matches!(call.answer, Answer::None)
        && call.stale_retries < STALE_RETRIES_MAX
    {
        // A pooled connection that the provider had closed: the same target again.
        call.stale_retries = call.stale_retries.saturating_add(1);
        trace::again(ctx, "stale");
        error.set_retry(true);
        return error;
    }
    observe::fault(ctx, observe::fault_of(&error));
    let left = failed_target(ctx, clock, ApiError::UpstreamUnreachable);
    error.set_retry(left);
    error
}

/// What the client is told when no attempt is left and nothing was sent yet.
pub(super) fn final_error(call: Option<&mut Call>, error: &Error) -> ApiError {
    let failure = call.and_then(|call| call.failure.take());
    failure.unwrap_or(if is_upstreams(error) {
        ApiError::UpstreamUnreachable
    } else {
        ApiError::Internal
    })
}

/// Whether the upstream is to blame.
pub(super) fn is_upstreams(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
}

fn failed_target(ctx: &mut Ctx, clock: &Clock, failure: ApiError) -> bool {
    let Some(call) = ctx.call() else { return false };
    if let Some(attempt) = &call.attempt {
        attempt.candidate.breaker.failed(clock.now(), None);
    }
    call.answer = Answer::None;
    call.failure = Some(failure);
    give_up_target(ctx)
}

/// The target of this attempt is not tried again. Whether there is another.
pub(super) fn give_up_target(ctx: &mut Ctx) -> bool {
    let snapshot = Arc::clone(&ctx.snapshot);
    let Some(call) = ctx.call() else { return false };
    if let Some(attempt) = &call.attempt {
        call.tried.push(attempt.candidate.index);
    }
    if let Some(tally) = call.tally() {
        tally.begins_again();
    }
    call.admission
        .as_ref()
        .is_some_and(|admission| route::is_target_left(&snapshot, &admission.permit.model().id, &call.tried))
}

/// How many addresses of one host are tried before the next target.
const ADDRESSES_MAX: usize = 3;
/// How often a call may meet connections that had been closed while they waited in the pool.
const STALE_RETRIES_MAX: u32 = 3;
