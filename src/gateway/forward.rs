//! The way to an upstream and back: peer, request, the judgement of its answer, and what follows when it fails.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::Session;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType};

use super::buffered::{self, Ticket};
use super::meter::Meter;
use super::respond;
use super::route::{self, Candidate};
use super::snapshot::Snapshot;
use super::stage::{Answer, Attempt, Call, Ctx};
use crate::clock::Clock;
use crate::config::OnDisconnect;
use crate::pure::chat::{Cap, Edit, Endpoint, ResponseMode};
use crate::pure::error::{ApiError, DEFAULT_RETRY_AFTER_SECS};
use crate::pure::tokens::Encoding;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

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
            if let Some(ticket) = &call.ticket {
                ticket.set_drains(attempt.candidate.upstream.provider.on_disconnect == OnDisconnect::Drain);
            }
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
    let cap = admission.cap.map(|tokens| Cap {
        tokens,
        field: candidate.upstream.cap_field,
    });
    let body = call.body.edit(&Edit {
        model: &candidate.model,
        cap,
    });
    Some(Attempt {
        candidate,
        body,
        addresses_tried: 0,
    })
}

/// Builds the upstream's request from nothing: what the client sent does not leave, but for its body.
pub(super) fn request(upstream_request: &mut RequestHeader, call: &Call) -> pingora::Result<()> {
    let Some(attempt) = &call.attempt else {
        return Error::e_explain(ErrorType::InternalError, "a request without an attempt");
    };
    let upstream = &attempt.candidate.upstream;
    let path: Cow<'static, str> = match call.endpoint() {
        Endpoint::Chat | Endpoint::ChatStream => "/chat/completions".into(),
        Endpoint::Embeddings => "/embeddings".into(),
    };
    let path = format!("{}{path}", upstream.provider.base_url.path);
    let mut request = RequestHeader::build("POST", path.as_bytes(), Some(10))?;
    request.set_version(upstream_request.version);
    request.insert_header(header::HOST, upstream.provider.base_url.authority.as_str())?;
    request.insert_header(header::CONTENT_TYPE, JSON)?;
    request.insert_header(header::CONTENT_LENGTH, HeaderValue::from(attempt.body.len()))?;
    request.insert_header(
        header::ACCEPT,
        match call.body.mode() {
            ResponseMode::Stream => EVENT_STREAM,
            ResponseMode::Whole => JSON,
        },
    )?;
    request.insert_header(header::ACCEPT_ENCODING, IDENTITY)?;
    request.insert_header(header::USER_AGENT, USER_AGENT)?;
    if let Some(authorization) = &upstream.authorization {
        request.insert_header(header::AUTHORIZATION, authorization)?;
    }
    for (name, value) in &upstream.headers {
        request.insert_header(name, value)?;
    }
    *upstream_request = request;
    Ok(())
}

/// Judges the upstream's answer by its header: passes it on, or has it retried elsewhere, or turns it into our own.
///
/// # Errors
/// To have Pingora try the next target, or to end the call: `failure` says with what.
pub(super) fn judge(upstream_response: &mut ResponseHeader, ctx: &mut Ctx, clock: &Clock) -> pingora::Result<()> {
    let status = upstream_response.status.as_u16();
    if status < 200 {
        return Ok(());
    }
    let snapshot = Arc::clone(&ctx.snapshot);
    let Some(call) = ctx.call() else { return Ok(()) };
    let now = clock.now();
    let problem = unusable(upstream_response, call.body.mode());
    if status == 200 && problem.is_none() {
        if let Some(attempt) = &call.attempt {
            attempt.candidate.breaker.succeeded();
        }
        return accept(upstream_response, ctx);
    }
    let retry_after = retry_after_secs(upstream_response);
    let error = ApiError::from_upstream_status(status, retry_after);
    let provider_fault = !matches!(error, ApiError::UpstreamRefused { .. });
    if let Some(attempt) = &call.attempt {
        let provider = &attempt.candidate.upstream.provider.name;
        log::warn!(
            "{provider} answered {status}{}",
            problem.map(|p| format!(" with {p}")).unwrap_or_default()
        );
        if provider_fault {
            attempt.candidate.breaker.failed(now, retry_after);
        } else {
            attempt.candidate.breaker.succeeded();
        }
    }
    call.failure = Some(error.clone());
    if provider_fault {
        give_up_target(call);
        let left = call.admission.as_ref().is_some_and(|admission| {
            route::next_target(&snapshot, &admission.permit.model().id, &call.tried, now).is_some()
        });
        let mut error = Error::explain(ErrorType::HTTPStatus(status), "the upstream failed");
        error.as_up();
        error.set_retry(left);
        return Err(error);
    }
    refuse(upstream_response, ctx, error)
}

/// The upstream's 200 is passed on, with headers from an allow-list.
fn accept(upstream_response: &mut ResponseHeader, ctx: &mut Ctx) -> pingora::Result<()> {
    let mut header = ResponseHeader::build(200, Some(respond::HEADERS))?;
    let Some(call) = ctx.call() else { return Ok(()) };
    call.failure = None;
    let meter = Meter::new(&call.body, call.encoding());
    let content_type = if meter.is_stream() { EVENT_STREAM } else { JSON };
    header.insert_header(header::CONTENT_TYPE, content_type)?;
    if meter.is_stream() {
        // Its length may change, so it is not promised.
        header.insert_header(header::CACHE_CONTROL, NO_CACHE)?;
    } else {
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CACHE_CONTROL] {
            if let Some(value) = upstream_response.headers.get(&name) {
                header.insert_header(name, value)?;
            }
        }
    }
    call.answer = Answer::Metered(Box::new(meter));
    if let Some(attempt) = &mut call.attempt {
        attempt.body = Bytes::new(); // No other attempt will be made.
    }
    respond::decorate(&mut header, ctx)?;
    header.set_version(upstream_response.version);
    *upstream_response = header;
    Ok(())
}

/// The upstream's refusal is put in the interface's shape, with its own message when that can be read.
fn refuse(upstream_response: &mut ResponseHeader, ctx: &mut Ctx, error: ApiError) -> pingora::Result<()> {
    let headers = &upstream_response.headers;
    let empty = headers
        .get(header::CONTENT_LENGTH)
        .is_some_and(|length| length == HeaderValue::from_static("0"));
    // Without a length or a coding, as in HTTP/2, its type tells whether there is a body.
    let has_body = !empty
        && [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_TYPE]
            .iter()
            .any(|h| headers.contains_key(h));
    if !has_body {
        // Nothing will pass that could be replaced: the answer is written where failures are.
        let mut failed = Error::explain(
            ErrorType::HTTPStatus(upstream_response.status.as_u16()),
            "refused without words",
        );
        failed.as_up();
        failed.set_retry(false);
        return Err(failed);
    }
    let mut header = respond::error_header(&error.to_wire(), ctx)?;
    header.set_version(upstream_response.version);
    *upstream_response = header;
    if let Some(call) = ctx.call() {
        call.answer = Answer::Refusal {
            error,
            words: Vec::new(),
        };
    }
    Ok(())
}

/// One piece of the upstream's answer passes to the client.
///
/// # Errors
/// When a refusal's words do not end.
pub(super) fn pass(body: &mut Option<Bytes>, ends: bool, call: &mut Call) -> pingora::Result<()> {
    match &mut call.answer {
        Answer::None => Ok(()),
        Answer::Metered(meter) => {
            meter.pass(body, ends);
            Ok(())
        }
        Answer::Refusal { error, words } => {
            if let Some(chunk) = body.take() {
                let room = REFUSAL_BYTES_MAX.saturating_sub(words.len());
                words.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
                if chunk.len() > room {
                    let mut failed = Error::explain(ErrorType::InvalidHTTPHeader, "a refusal without end");
                    failed.as_up();
                    return Err(failed);
                }
            }
            *body = Some(if ends {
                Bytes::from(worded(error, words).to_wire().body())
            } else {
                Bytes::new()
            });
            Ok(())
        }
    }
}

/// The upstream ended its answer with trailers: what is left to send. The trailers themselves stay inside.
pub(super) fn trailers(call: &mut Call) -> pingora::Result<Option<Bytes>> {
    let mut body = None;
    pass(&mut body, true, call)?;
    Ok(body.filter(|bytes| !bytes.is_empty()))
}

/// A connection could not be made: is there another target?
pub(super) fn connect_failed(ctx: &mut Ctx, mut error: Box<Error>, clock: &Clock) -> Box<Error> {
    if let Some(call) = ctx.call()
        && let Some(attempt) = &mut call.attempt
        && attempt.addresses_tried < attempt.candidate.upstream.place.count().min(ADDRESSES_MAX)
    {
        // The host has another address.
        error.set_retry(true);
        return error;
    }
    let left = failed_target(ctx, clock, ApiError::UpstreamUnreachable);
    error.set_retry(left);
    error
}

/// Something failed after the connection stood: may it be tried again?
pub(super) fn proxy_failed(
    session: &Session,
    ctx: &mut Ctx,
    mut error: Box<Error>,
    reused: bool,
    clock: &Clock,
) -> Box<Error> {
    error.retry.decide_reuse(reused);
    let client_is_gone = ctx
        .call()
        .and_then(|call| call.ticket.as_ref())
        .is_some_and(Ticket::client_is_gone);
    let written = session
        .response_written()
        .is_some_and(|header| !header.status.is_informational());
    if is_upstreams(&error)
        && written
        && let Some(attempt) = ctx.call().and_then(|call| call.attempt.as_ref())
    {
        attempt.candidate.breaker.failed(clock.now(), None);
    }
    if !is_upstreams(&error) || written || client_is_gone {
        error.set_retry(false);
        return error;
    }
    if matches!(error.etype(), ErrorType::HTTPStatus(_)) {
        return error; // Judged already.
    }
    let stale = reused
        && matches!(
            error.etype(),
            ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError | ErrorType::H2Error
        );
    if stale
        && let Some(call) = ctx.call()
        && call.stale_retries < STALE_RETRIES_MAX
    {
        // A pooled connection that the provider had closed: the same target again.
        call.stale_retries = call.stale_retries.saturating_add(1);
        call.answer = Answer::None;
        error.set_retry(true);
        return error;
    }
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
    *error.esource() == ErrorSource::Upstream || buffered::is_upstreams_fault(error)
}

fn failed_target(ctx: &mut Ctx, clock: &Clock, failure: ApiError) -> bool {
    let snapshot = Arc::clone(&ctx.snapshot);
    let now = clock.now();
    let Some(call) = ctx.call() else { return false };
    if let Some(attempt) = &call.attempt {
        attempt.candidate.breaker.failed(now, None);
    }
    call.answer = Answer::None;
    call.failure = Some(failure);
    give_up_target(call);
    call.admission.as_ref().is_some_and(|admission| {
        route::next_target(&snapshot, &admission.permit.model().id, &call.tried, now).is_some()
    })
}

fn give_up_target(call: &mut Call) {
    if let Some(Attempt {
        candidate: Candidate { index, .. },
        ..
    }) = &call.attempt
    {
        call.tried.push(*index);
    }
}

/// Why a 200 cannot be used: it is not what was asked for, or cannot be read.
fn unusable(response: &ResponseHeader, mode: ResponseMode) -> Option<&'static str> {
    let text = |name| {
        response
            .headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or(""))
    };
    if text(header::CONTENT_ENCODING).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Some("a content-encoding that was not asked for");
    }
    let content_type = text(header::CONTENT_TYPE)?;
    let kind = content_type.split(';').next().unwrap_or("").trim();
    let wanted = match mode {
        ResponseMode::Stream => "text/event-stream",
        ResponseMode::Whole => "application/json",
    };
    (!kind.eq_ignore_ascii_case(wanted)).then_some("a content-type that was not asked for")
}

fn retry_after_secs(response: &ResponseHeader) -> Option<u64> {
    let text = response.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    // An HTTP date is rare; a usual wait is as good.
    Some(text.trim().parse::<u64>().unwrap_or(DEFAULT_RETRY_AFTER_SECS))
}

fn worded(error: &ApiError, words: &[u8]) -> ApiError {
    let ApiError::UpstreamRefused { status, message } = error else {
        return error.clone();
    };
    let said = serde_json::from_slice::<serde_json::Value>(words)
        .ok()
        .and_then(|value| {
            let error = value.get("error").unwrap_or(&value);
            error.get("message").or(Some(error))?.as_str().map(str::to_owned)
        });
    let said = said.map(|text| text.chars().take(REFUSAL_CHARS_MAX).collect::<String>());
    ApiError::UpstreamRefused {
        status: *status,
        message: said.unwrap_or_else(|| message.clone()),
    }
}

impl Call {
    /// The tokenizer of the model's family.
    fn encoding(&self) -> Encoding {
        self.admission.as_ref().map_or(Encoding::O200k, |admission| {
            Encoding::for_model(&admission.permit.model().id)
        })
    }

    fn endpoint(&self) -> Endpoint {
        self.body.endpoint()
    }
}

/// Most bytes of an upstream's refusal that are read for its message.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Most characters of that message that are passed on.
const REFUSAL_CHARS_MAX: usize = 2_000;
/// How many addresses of one host are tried before the next target.
const ADDRESSES_MAX: usize = 3;
/// How often a call may meet connections that had been closed while they waited in the pool.
const STALE_RETRIES_MAX: u32 = 3;
