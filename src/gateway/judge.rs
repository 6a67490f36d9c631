//! The judgement of an upstream's answer: by its header, and then by what passes.

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use super::forward::{EVENT_STREAM, JSON, give_up_target};
use super::meter::{Meter, Passed};
use super::observe;
use super::respond;
use super::stage::{Answer, Call, Ctx};
use crate::clock::Clock;
use crate::pure::chat::ResponseMode;
use crate::pure::error::{ApiError, DEFAULT_RETRY_AFTER_SECS};
use crate::pure::tap::Framing;
use crate::pure::tokens::Encoding;

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Judges the upstream's answer by its header, which may be all of it: the header that is passed on, or our own.
///
/// # Errors
/// To have the next target tried, or to end the call: `failure` says with what.
pub(super) fn judge(
    upstream_response: &ResponseHeader,
    is_all: bool,
    ctx: &mut Ctx,
    clock: &Clock,
) -> pingora::Result<ResponseHeader> {
    let status = upstream_response.status.as_u16();
    let Some(call) = ctx.call() else {
        return Error::e_explain(ErrorType::InternalError, "an answer without a call");
    };
    if let Some(trace) = call.tally().and_then(|tally| tally.trace()) {
        trace.answered(status);
    }
    let problem = unusable(upstream_response, call.body.mode());
    if status == 200 && problem.is_none() {
        if let Some(attempt) = &call.attempt {
            attempt.candidate.breaker.succeeded(clock.now());
        }
        let mut headers = accept(upstream_response, call);
        respond::decorate(&mut headers, ctx);
        return Ok(respond::head(StatusCode::OK, headers));
    }
    let retry_after = retry_after_secs(upstream_response);
    let error = ApiError::from_upstream_status(status, retry_after);
    if let Some(attempt) = &call.attempt {
        let provider = &attempt.candidate.upstream.provider.name;
        log::warn!(
            "{provider} answered {status}{}",
            problem.map(|p| format!(" with {p}")).unwrap_or_default()
        );
    }
    if let ApiError::UpstreamRefused { .. } = error {
        call.failure = Some(error.clone());
        if let Some(tally) = call.tally() {
            tally.failed(&error);
        }
        if let Some(attempt) = &call.attempt {
            attempt.candidate.breaker.succeeded(clock.now());
        }
        return refuse(upstream_response, is_all, ctx, error);
    }
    Err(failed(ctx, error, status, retry_after, clock))
}

/// The upstream gave no answer that is one: the next target is tried, if there is another, or else the client is told `error`. What is
/// the request's own fault is not tried again.
fn failed(ctx: &mut Ctx, error: ApiError, status: u16, retry_after_secs: Option<u64>, clock: &Clock) -> Box<Error> {
    let refused = matches!(error, ApiError::UpstreamRefused { .. });
    let mut left = false;
    observe::fault(ctx, observe::fault_of_status(status));
    if let Some(call) = ctx.call() {
        if let Some(attempt) = call.attempt.as_ref().filter(|_| !refused) {
            attempt.candidate.breaker.failed(clock.now(), retry_after_secs);
        }
        call.failure = Some(error);
        left = give_up_target(ctx) && !refused;
    }
    let mut error = Error::explain(ErrorType::HTTPStatus(status), "the upstream failed");
    error.as_up();
    error.set_retry(left);
    error
}

/// The upstream's 200 is passed on, with headers from an allow-list.
fn accept(upstream_response: &ResponseHeader, call: &mut Call) -> HeaderMap {
    let mut headers = respond::headers();
    call.failure = None;
    let meter = Meter::new(&call.body, encoding(call), framing(upstream_response), call.ceiling());
    let content_type = if meter.is_stream() { EVENT_STREAM } else { JSON };
    headers.insert(header::CONTENT_TYPE, content_type);
    if meter.is_stream() {
        // Its length may change, so it is not promised.
        headers.insert(header::CACHE_CONTROL, NO_CACHE);
    } else {
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CACHE_CONTROL] {
            if let Some(value) = upstream_response.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
    }
    call.answer = Answer::Metered(Box::new(meter));
    if let Some(attempt) = &mut call.attempt {
        attempt.body = Bytes::new(); // No other attempt will be made.
    }
    headers
}

/// The upstream's refusal is put in the interface's shape, with its own message when that can be read.
fn refuse(
    upstream_response: &ResponseHeader,
    is_all: bool,
    ctx: &mut Ctx,
    error: ApiError,
) -> pingora::Result<ResponseHeader> {
    let headers = &upstream_response.headers;
    let empty = headers
        .get(header::CONTENT_LENGTH)
        .is_some_and(|length| length == HeaderValue::from_static("0"));
    // Without a length or a coding, as in HTTP/2, its type tells whether there is a body.
    let has_body = !is_all
        && !empty
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
    let wire = error.to_wire();
    let header = respond::head(respond::status(&wire)?, respond::error_headers(&wire, ctx));
    if let Some(call) = ctx.call() {
        call.answer = Answer::Refusal {
            error,
            words: Vec::new(),
        };
    }
    Ok(header)
}

/// One piece of the upstream's answer passes to the client.
///
/// # Errors
/// When what came is no answer, and when a refusal's words do not end.
pub(super) fn pass(body: &mut Option<Bytes>, ends: bool, ctx: &mut Ctx, clock: &Clock) -> pingora::Result<()> {
    let Some(call) = ctx.call() else { return Ok(()) };
    if (ends || body.as_ref().is_some_and(|bytes| !bytes.is_empty()))
        && let Some(tally) = call.tally()
    {
        tally.passed(ends);
    }
    let passed = match &mut call.answer {
        Answer::None => return Ok(()),
        Answer::Metered(meter) => meter.pass(body, ends),
        Answer::Refusal { error, words } => return pass_refusal(body, ends, error, words),
    };
    note(call, body.as_ref());
    match passed {
        Passed::On => Ok(()),
        Passed::Died => {
            if let Some(attempt) = &call.attempt {
                attempt.candidate.breaker.failed(clock.now(), None);
            }
            if let Some(tally) = call.tally() {
                tally.died();
            }
            Ok(())
        }
        Passed::Cut => {
            *body = None;
            Err(failed(ctx, ApiError::UpstreamUnreachable, 502, None, clock))
        }
        Passed::NoAnswer { code } => {
            *body = None;
            if let Some(attempt) = &call.attempt {
                let provider = &attempt.candidate.upstream.provider.name;
                log::warn!("{provider} answered 200 with what is no answer; its code: {code:?}");
            }
            let status = code.filter(|code| (400..600).contains(code)).unwrap_or(502);
            Err(failed(
                ctx,
                ApiError::from_upstream_status(status, None),
                status,
                None,
                clock,
            ))
        }
    }
}

/// Whether what was passed on stands between two events of a stream, so that a comment could follow.
pub(super) fn is_between_events(ctx: &mut Ctx) -> bool {
    matches!(ctx.call().map(|call| &call.answer), Some(Answer::Metered(meter)) if meter.is_between_events())
}

/// The client was sent a comment between two events.
pub(super) fn commented(ctx: &mut Ctx) {
    if let Some(Answer::Metered(meter)) = ctx.call().map(|call| &mut call.answer) {
        meter.commented();
    }
}

/// What is about to be passed on stands in the journal before it is.
fn note(call: &mut Call, passes: Option<&Bytes>) {
    if passes.is_none_or(Bytes::is_empty) {
        return;
    }
    if let (Answer::Metered(meter), Some(admission)) = (&call.answer, &mut call.admission)
        && let Some((delivered, prompt)) = meter.owed_now()
    {
        admission.hold.pass(delivered, prompt);
    }
}

fn pass_refusal(body: &mut Option<Bytes>, ends: bool, error: &ApiError, words: &mut Vec<u8>) -> pingora::Result<()> {
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

/// How the answer's end will be known.
fn framing(response: &ResponseHeader) -> Framing {
    let framed = response.version == http::Version::HTTP_2
        || [header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
            .iter()
            .any(|name| response.headers.contains_key(name));
    if framed { Framing::Framed } else { Framing::UntilClosed }
}

/// The tokenizer of the model's family.
fn encoding(call: &Call) -> Encoding {
    call.admission.as_ref().map_or(Encoding::O200k, |admission| {
        Encoding::for_model(&admission.permit.model().id)
    })
}

/// Most bytes of an upstream's refusal that are read for its message.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Most characters of that message that are passed on.
const REFUSAL_CHARS_MAX: usize = 2_000;
