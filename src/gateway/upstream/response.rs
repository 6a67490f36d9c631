//! What an upstream's answer means: by its header, and then by what passes.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use super::circuit_breaker::RETRY_AFTER_SECS_MAX;
use super::refusal;
use super::targets::Candidate;
use super::verdict::Verdict;
use crate::clock::{Clock, monotonic};
use crate::gateway::api::responses;
use crate::gateway::billing::keep_within;
use crate::gateway::billing::meter::Meter;
use crate::gateway::billing::passed::Passed;
use crate::gateway::context::{Answer, Attempt, Call, Ctx, Refusal};
use crate::gateway::media_type::{EVENT_STREAM, JSON};
use crate::gateway::recorder;
use crate::pure::error::{ApiError, DEFAULT_RETRY_AFTER_SECS};
use crate::pure::request_body::ResponseMode;
use crate::pure::tap::Framing;
use crate::pure::tokens::Encoding;
use crate::pure::usage::CompletionFrom;

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Decides on the upstream's answer by its head: in its place stands what the client gets, or nothing of it passes.
///
/// # Errors
/// To have the next target tried, or to end the call: the call's verdict says with what.
pub(in crate::gateway) fn head(response: &mut ResponseHeader, ctx: &mut Ctx) -> pingora::Result<()> {
    let status = response.status.as_u16();
    let Some(call) = ctx.call() else {
        return Error::e_explain(ErrorType::InternalError, "an answer without a call");
    };
    if let Some(trace) = call.recorder().and_then(|recorder| recorder.trace()) {
        trace.answered(status);
    }
    let fields = Fields::of(&response.headers);
    let problem = fields.unusable(call.body.mode());
    if status == 200 && problem.is_none() {
        let mut headers = accept(&fields, response.version, call);
        responses::decorate(&mut headers, ctx);
        *response = responses::head(StatusCode::OK, headers);
        return Ok(());
    }
    let retry_after_secs = retry_after_secs(&response.headers);
    let error = match problem {
        // Its body cannot be told from what surrounds it.
        Some(CODED) => ApiError::UpstreamUnreachable,
        _ => ApiError::from_upstream_status(status, retry_after_secs),
    };
    if let Some(attempt) = &call.attempt {
        tell(&attempt.candidate, status, problem);
    }
    let has_words = match error {
        ApiError::UpstreamRefused { .. } => true,
        ApiError::UpstreamBusy { .. } => fields.is_json(),
        _ => false,
    };
    if has_words {
        let refusal = Refusal {
            error,
            status,
            retry_after_secs,
            words: Vec::new(),
        };
        return refusal::begin(response, ctx, refusal);
    }
    let verdict = Verdict {
        error,
        status,
        retry_after_secs,
    };
    Err(call.end_attempt(verdict))
}

/// Tells of an answer that is none, as loud as somebody has to act on it.
fn tell(candidate: &Candidate, status: u16, problem: Option<&str>) {
    let provider = &candidate.upstream.provider.name;
    match (status, problem) {
        (401..=403, _) => refusal::credential_refused(candidate, status, None),
        (200..300, Some(problem)) => log::warn!("{provider} answered {status} with {problem}"),
        (500.., _) => log::warn!("{provider} answered {status}"),
        // It is busy, or the request is to blame; or its words say otherwise.
        (400..500, _) => log::debug!("{provider} answered {status}"),
        _ => log::warn!("{provider} answered {status}, which is no answer to a call"),
    }
}

/// The upstream's 200 is passed on, with headers from an allow-list.
fn accept(fields: &Fields<'_>, version: Version, call: &mut Call) -> HeaderMap {
    let mut headers = responses::headers();
    call.failure = None;
    let meter = Meter::new(&call.body, reading(call), fields.framing(version), call.ceiling());
    let content_type = if meter.is_stream() { EVENT_STREAM } else { JSON };
    headers.insert(header::CONTENT_TYPE, content_type);
    if meter.is_stream() {
        // Its length may change, so it is not promised.
        headers.insert(header::CACHE_CONTROL, NO_CACHE);
    } else {
        // Its framing is the transport's, and its length is not the upstream's once it tells its cost.
        if let Some(value) = fields.cache_control {
            headers.insert(header::CACHE_CONTROL, value.clone());
        }
    }
    call.answer = Answer::Metered(Box::new(meter));
    if let Some(capture) = &mut call.capture {
        capture.begins();
    }
    if call.reasons_unseen() {
        call.unseen_since = Some(monotonic());
    }
    if let Some(attempt) = &mut call.attempt {
        attempt.body = Bytes::new(); // This target is not asked again.
    }
    headers
}

/// One piece of the upstream's answer passes the meter.
///
/// # Errors
/// When what came is no answer, and when a refusal's words do not end, or say that the request is not at fault.
pub(in crate::gateway) fn piece(
    body: &mut Option<Bytes>,
    ends: bool,
    ctx: &mut Ctx,
    has_begun: impl Fn() -> bool,
    clock: &Clock,
) -> pingora::Result<()> {
    let Some(call) = ctx.call() else { return Ok(()) };
    let is_empty = body.as_ref().is_none_or(Bytes::is_empty);
    if (ends || !is_empty)
        && let Some(recorder) = call.recorder()
    {
        recorder.passed(ends);
    }
    let passed = match &mut call.answer {
        Answer::None => return Ok(()),
        // A 200 without a body, of which the client has not heard yet.
        Answer::Metered(meter) if ends && is_empty && !has_begun() && !meter.has_begun() => Passed::Cut,
        Answer::Metered(meter) => match &call.admission {
            Some(admission) => meter.pass(body, ends, || {
                admission.tariff(&call.body, target(call.attempt.as_ref()))
            }),
            None => return Ok(()),
        },
        Answer::Refusal(_) => return refusal::piece(body, ends, call, clock),
    };
    let verdict = match passed {
        Passed::On => {
            if !ends {
                // It may end the stream, which is then all of the answer.
                keep_within::keep_within(ctx, body);
            }
            let Some(call) = ctx.call() else { return Ok(()) };
            if matches!(&call.answer, Answer::Metered(meter) if meter.has_answered(ends)) {
                succeeded(call, clock);
            }
            return Ok(());
        }
        Passed::Died => {
            failed_within(call, clock);
            if let Some(recorder) = call.recorder() {
                recorder.died();
            }
            return Ok(());
        }
        Passed::Failed { code } => {
            error_event(call, code, clock);
            return Ok(());
        }
        Passed::Cut => Verdict {
            error: ApiError::UpstreamUnreachable,
            status: 502,
            retry_after_secs: None,
        },
        Passed::NoAnswer { code } => {
            if let Some(attempt) = &call.attempt {
                let provider = &attempt.candidate.upstream.provider.name;
                log::warn!("{provider} answered 200 with what is no answer; its code: {code:?}");
            }
            Verdict::of_code(code)
        }
    };
    *body = None;
    Err(call.end_attempt(verdict))
}

/// The target of an attempt.
fn target(attempt: Option<&Attempt>) -> Option<&Candidate> {
    attempt.map(|attempt| &attempt.candidate)
}

/// The provider sent an error event within its stream, of which the client had the head: as an answer that is none, but no other target can
/// be asked.
fn error_event(call: &mut Call, code: Option<u16>, clock: &Clock) {
    let verdict = Verdict::of_code(code);
    let level = match verdict.error {
        // The request is to blame, or it is busy.
        ApiError::UpstreamRefused { .. } | ApiError::UpstreamBusy { .. } => log::Level::Debug,
        _ => log::Level::Warn,
    };
    if let Some(attempt) = &call.attempt {
        let provider = &attempt.candidate.upstream.provider.name;
        log::log!(
            level,
            "{provider} ended a stream with an error event; its code: {code:?}"
        );
    }
    if let Some(recorder) = call.recorder() {
        recorder.failed(&verdict.error);
    }
    if verdict.is_requests_fault() {
        // It works, as one that refuses a request by its head does.
        return succeeded(call, clock);
    }
    if let (401 | 402, Some(attempt)) = (verdict.status, &call.attempt) {
        refusal::credential_refused(&attempt.candidate, verdict.status, None);
    }
    if let Some(recorder) = call.recorder() {
        recorder.fault(recorder::fault_of_status(verdict.status));
    }
    failed_within(call, clock);
}

/// The target failed within a stream.
fn failed_within(call: &mut Call, clock: &Clock) {
    call.failed_within = true;
    if let Some(attempt) = &call.attempt {
        attempt.candidate.breaker.failed(clock, None);
    }
}

/// The target answered: with a stream to its last event, or with a whole answer, or with so much of one that it is passed on.
fn succeeded(call: &Call, clock: &Clock) {
    let Some(attempt) = &call.attempt else { return };
    attempt.candidate.breaker.succeeded(clock);
    if attempt.candidate.note_credential_refused(false) {
        let (provider, model) = (&attempt.candidate.upstream.provider.name, &attempt.candidate.model);
        log::info!("{provider} takes the gateway's credential for {model} again");
    }
}

/// The client was sent a comment between two events.
pub(in crate::gateway) fn commented(ctx: &mut Ctx) {
    if let Some(Answer::Metered(meter)) = ctx.call().map(|call| &mut call.answer) {
        meter.commented();
    }
}

/// What is about to be passed on stands in the journal before it is; of an answer that is gathered that is nothing until it `ends`.
pub(in crate::gateway) fn journal(ctx: &mut Ctx, passes: Option<&Bytes>, ends: bool) {
    let is_empty = passes.is_none_or(Bytes::is_empty);
    if is_empty && !ends {
        return;
    }
    let Some(call) = ctx.call() else { return };
    if let (Answer::Metered(meter), Some(admission)) = (&call.answer, &mut call.admission)
        // The end of a stream brings nothing by itself; that of an answer that was gathered, all of it.
        && !(is_empty && meter.is_stream())
        && !meter.is_gathered()
        && let Some((delivered, prompt)) = meter.owed_now()
    {
        admission.hold.pass(delivered, prompt);
    }
}

/// An answer that was gathered begins to be passed on before its end: what has come of it stands in the journal before it is.
pub(in crate::gateway) fn begins_unfinished(ctx: &mut Ctx, clock: &Clock) {
    let Some(call) = ctx.call() else { return };
    succeeded(call, clock);
    if call.client_has_left {
        // It is read on, and nobody gets anything.
        return;
    }
    if let (Answer::Metered(meter), Some(admission)) = (&mut call.answer, &mut call.admission) {
        meter.stop_gathering();
        if let Some((delivered, prompt)) = meter.owed_now() {
            admission.hold.pass(delivered, prompt);
        }
    }
}

/// What is looked at in the head of an upstream's answer, found in one pass: of each field the first.
#[derive(Default)]
struct Fields<'a> {
    content_type: Option<&'a HeaderValue>,
    content_encoding: Option<&'a HeaderValue>,
    content_length: Option<&'a HeaderValue>,
    transfer_encoding: Option<&'a HeaderValue>,
    /// Lines of `transfer-encoding`.
    transfer_encodings: usize,
    cache_control: Option<&'a HeaderValue>,
}

impl<'a> Fields<'a> {
    fn of(headers: &'a HeaderMap) -> Fields<'a> {
        let mut fields = Fields::default();
        for (name, value) in headers {
            let field = match *name {
                header::CONTENT_TYPE => &mut fields.content_type,
                header::CONTENT_ENCODING => &mut fields.content_encoding,
                header::CONTENT_LENGTH => &mut fields.content_length,
                header::TRANSFER_ENCODING => {
                    fields.transfer_encodings = fields.transfer_encodings.saturating_add(1);
                    &mut fields.transfer_encoding
                }
                header::CACHE_CONTROL => &mut fields.cache_control,
                _ => continue,
            };
            field.get_or_insert(value);
        }
        fields
    }

    /// Why a 200 cannot be used: it is not what was asked for, or cannot be read.
    fn unusable(&self, mode: ResponseMode) -> Option<&'static str> {
        let text = |value: &'a HeaderValue| value.to_str().unwrap_or("");
        let is_other = |value: Option<&'a HeaderValue>, wanted: &str| {
            value.is_some_and(|value| !text(value).eq_ignore_ascii_case(wanted))
        };
        if is_other(self.content_encoding, "identity") {
            return Some("a content-encoding that was not asked for");
        }
        if is_other(self.transfer_encoding, "chunked") || self.transfer_encodings > 1 {
            return Some(CODED);
        }
        let kind = text(self.content_type?);
        let wanted = match mode {
            ResponseMode::Stream => "text/event-stream",
            ResponseMode::Whole => "application/json",
        };
        let is_wanted = kind.eq_ignore_ascii_case(wanted)
            || kind
                .split_once(';')
                .map_or(kind, |(kind, _)| kind)
                .trim()
                .eq_ignore_ascii_case(wanted);
        (!is_wanted).then_some("a content-type that was not asked for")
    }

    /// Whether its body can be words that are read.
    fn is_json(&self) -> bool {
        let kind = self.content_type.and_then(|kind| kind.to_str().ok());
        kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("json"))
    }

    /// How the answer's end will be known.
    fn framing(&self, version: Version) -> Framing {
        let is_framed = version == Version::HTTP_2 || self.content_length.is_some() || self.transfer_encodings > 0;
        if is_framed {
            Framing::Framed
        } else {
            Framing::UntilClosed
        }
    }
}

/// How long the upstream asks to be left alone, in seconds, at most as long as a target is passed over for that.
fn retry_after_secs(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    // An HTTP date is rare; a usual wait is as good.
    let secs = text.trim().parse::<u64>().unwrap_or(DEFAULT_RETRY_AFTER_SECS);
    Some(secs.min(RETRY_AFTER_SECS_MAX))
}

/// By what its text is counted, and where its provider's reports name the completion.
fn reading(call: &Call) -> (Encoding, CompletionFrom) {
    let encoding = call.admission.as_ref().map_or(Encoding::O200k, |admission| {
        Encoding::for_model(&admission.permit.model().id)
    });
    let provider = call
        .attempt
        .as_ref()
        .map(|attempt| &attempt.candidate.upstream.provider);
    (
        encoding,
        provider.map_or_else(CompletionFrom::default, |provider| provider.completion_from),
    )
}

/// Why an answer cannot be used whose body is coded otherwise than in chunks.
const CODED: &str = "a transfer-coding that nobody asked for";
