//! The way to an upstream: which target is asked next, and with what request. `response` reads its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType};

use super::circuit_breaker::Admitted;
use super::long_body;
use super::targets::Candidate;
use crate::clock::Clock;
use crate::gateway::access::parse::is_long;
use crate::gateway::admission::Admission;
use crate::gateway::context::{Attempt, Call, Ctx};
use crate::gateway::recorder;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::trace;
use crate::net::dns::Unreached;
use crate::pure::error::ApiError;
use crate::pure::request_body::{Edit, Endpoint};

/// Chooses the next target and prepares its body. Waits for nothing, unless the body is a long one.
///
/// # Errors
/// When no target is left, or none has a known address: the call's `failure` says what the client is told.
pub(in crate::gateway) async fn peer(
    client: &RequestHeader,
    ctx: &mut Ctx,
    clock: &Clock,
) -> pingora::Result<Box<HttpPeer>> {
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
            None => {
                let next = match is_long(call.body.bytes().len()) {
                    false => next_attempt(client, &snapshot, call, clock),
                    // In a box, for it is seldom.
                    true => Box::pin(next_of_long(client, &snapshot, call, clock)).await?,
                };
                let Some(attempt) = next else {
                    call.failure.get_or_insert(Box::new(ApiError::UpstreamUnreachable));
                    return Error::e_explain(ErrorType::ConnectNoRoute, "no target is left");
                };
                attempt
            }
        };
        let upstream = &attempt.candidate.upstream;
        if let Some(address) = upstream.host.addresses.pick(&mut attempt.unreached) {
            let peer = upstream.peer_at(address);
            attempt.is_ipv6 = address.is_ipv6();
            call.attempt = Some(attempt);
            return Ok(Box::new(peer));
        }
        call.attempt = Some(attempt);
        no_address(call, clock);
    }
}

/// No address of the attempt's host is known: its target has failed, as one has that nobody can be reached at.
fn no_address(call: &mut Call, clock: &Clock) {
    recorder::attempt(call);
    let Some(attempt) = &call.attempt else { return };
    let candidate = &attempt.candidate;
    // Once it is passed over, the resolver's own warnings are enough.
    let level = match candidate.breaker.open_until() {
        0 => log::Level::Warn,
        _ => log::Level::Debug,
    };
    log::log!(
        level,
        "provider {} has no known address",
        candidate.upstream.provider.name
    );
    attempt.failed(clock, None);
    call.tried.push(candidate.index);
    call.failure = Some(Box::new(ApiError::UpstreamUnreachable));
    if let Some(recorder) = call.recorder() {
        recorder.fault(recorder::UNREACHED);
    }
}

fn next_attempt(client: &RequestHeader, snapshot: &Snapshot, call: &Call, clock: &Clock) -> Option<Attempt> {
    let admission = call.admission.as_ref()?;
    let model = admission.permit.model();
    let conversation = || {
        let account = admission.caller.account.id.as_str();
        call.body.conversation(account, session_id(client))
    };
    let (candidate, admitted) = snapshot.next_target(&model.id, &call.tried, conversation, clock)?;
    let body = call.body.edit(&edit_for(&candidate, admission));
    Some(attempt(call, (candidate, admitted), body))
}

/// The same of a long body.
///
/// # Errors
/// When it cannot be read or copied.
async fn next_of_long(
    client: &RequestHeader,
    snapshot: &Snapshot,
    call: &Call,
    clock: &Clock,
) -> pingora::Result<Option<Attempt>> {
    let Some(admission) = &call.admission else {
        return Ok(None);
    };
    let model = admission.permit.model();
    let mut conversation = None;
    if snapshot.are_targets_shared(&model.id) {
        let account = admission.caller.account.id.as_str();
        let told = long_body::conversation(&call.body, account, session_id(client)).await;
        conversation = told.map_err(not_ready)?;
    }
    let Some((candidate, admitted)) = snapshot.next_target(&model.id, &call.tried, || conversation, clock) else {
        return Ok(None);
    };
    let edited = long_body::edited(&call.body, &edit_for(&candidate, admission)).await;
    match edited {
        Ok(body) => Ok(Some(attempt(call, (candidate, admitted), body))),
        Err(error) => {
            candidate.breaker.inconclusive(admitted);
            Err(not_ready(error))
        }
    }
}

fn not_ready(_: ApiError) -> Box<Error> {
    Error::explain(ErrorType::InternalError, "a long body could not be made ready")
}

/// How a client names its conversation in the head.
fn session_id(client: &RequestHeader) -> Option<&str> {
    client.headers.get(X_SESSION_ID).and_then(|name| name.to_str().ok())
}

/// What a target's provider gets otherwise than the client wrote it.
fn edit_for<'a>(candidate: &'a Candidate, admission: &Admission) -> Edit<'a> {
    Edit {
        model: &candidate.model,
        maximum: candidate.upstream.provider.maximum_field,
        cap: admission.cap,
        rules: candidate.upstream.parts.rules,
        stream_usage: candidate.upstream.provider.stream_usage,
    }
}

/// An attempt at a target with this body.
fn attempt(call: &Call, (candidate, admitted): (Candidate, Admitted), body: Bytes) -> Attempt {
    let is_copy = body.as_ptr() != call.body.bytes().as_ptr();
    let body = if is_copy { call.body_owner.keep_copy(body) } else { body };
    Attempt {
        candidate,
        admitted,
        body,
        is_ipv6: false,
        unreached: Unreached::default(),
        asked_at: None,
        is_repeated: false,
    }
}

/// Writes the upstream's request from nothing: what the client sent does not leave, but for its body and its trace context.
///
/// # Errors
/// When there is no attempt: a mistake of ours.
pub(in crate::gateway) fn request(
    client: &RequestHeader,
    call: &mut Call,
    request: &mut RequestHeader,
) -> pingora::Result<()> {
    let Some(attempt) = &call.attempt else {
        return Error::e_explain(ErrorType::InternalError, "a request without an attempt");
    };
    let upstream = &attempt.candidate.upstream;
    if attempt.unreached.has(!attempt.is_ipv6) {
        upstream.host.addresses.reached(attempt.is_ipv6);
    }
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.version = request.version;
    parts.uri = match call.body.endpoint() {
        Endpoint::Chat | Endpoint::ChatStream => upstream.parts.chat.clone(),
        Endpoint::Embeddings => upstream.parts.embeddings.clone(),
    };
    parts.headers = upstream.parts.headers(call.body.mode()).clone();
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(attempt.body.len()));
    trace::pass_on(&client.headers, call, &mut parts.headers);
    *request = RequestHeader::from(parts);
    Ok(())
}

/// What [`request`] is written into.
pub(in crate::gateway) fn blank_request() -> RequestHeader {
    let (parts, ()) = http::Request::new(()).into_parts();
    RequestHeader::from(parts)
}

/// The body as the attempt's target gets it. Its time begins.
pub(in crate::gateway) fn body(call: &mut Call) -> Option<Bytes> {
    let attempt = call.attempt.as_mut()?;
    attempt.asked_at = Some(crate::clock::monotonic());
    Some(attempt.body.clone())
}

/// Which conversation a request is of, where its body does not say it.
const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
