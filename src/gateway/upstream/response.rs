//! What an upstream's answer means: by its header, and then by what passes.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use super::answer_head::{CODED, Fields};
use super::refusal;
use super::retry_after::retry_after_secs;
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
use crate::pure::error::ApiError;
use crate::pure::tokens::Encoding;
use crate::pure::usage::CompletionFrom;

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Decides on the upstream's answer by its head: in its place stands what the client gets, or nothing of it passes.
///
/// # Errors
/// To have the next target tried, or to end the call: the call's verdict says with what.
pub(in crate::gateway) fn head(response: &mut ResponseHeader, ctx: &mut Ctx, clock: &Clock) -> pingora::Result<()> {
    let status = response.status.as_u16();
    let may_ask_another =
        ctx.is_streamed() && ctx.snapshot.config.timeouts.first_event.is_some() && is_another_left(ctx);
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
        if let (true, Answer::Metered(meter)) = (may_ask_another, &mut call.answer) {
            meter.await_event();
        }
        responses::decorate(&mut headers, ctx);
        *response = responses::head(StatusCode::OK, headers);
        return Ok(());
    }
    let retry_after_secs = retry_after_secs(&response.headers, clock.now());
    let may_flag = status == 403 && fields.is_json() && problem != Some(CODED);
    let error = match problem {
        // Its body cannot be told from what surrounds it.
        Some(CODED) => ApiError::UpstreamUnreachable,
        _ if may_flag => refusal::flagged(),
        _ => ApiError::from_upstream_status(status, retry_after_secs),
    };
    if let Some(attempt) = &call.attempt
        && !may_flag
    {
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
        is_of_request: false,
    };
    Err(call.end_attempt(verdict))
}

/// Whether the call's model has a target that was not tried, beside that of the attempt.
fn is_another_left(ctx: &Ctx) -> bool {
    let Some(call) = ctx.admitted() else { return false };
    let (Some(admission), Some(attempt)) = (&call.admission, &call.attempt) else {
        return false;
    };
    let is_tried = |index| call.tried.contains(&index) || index == attempt.candidate.index;
    ctx.snapshot.is_target_left(&admission.permit.model().id, is_tried)
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
    let waits = awaits_event(call);
    if (ends || !is_empty)
        && !waits
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
        Answer::Refusal(_) => return refusal::piece(body, ends, call),
    };
    if call.unseen_since.is_some()
        && let Answer::Metered(meter) = &mut call.answer
    {
        meter.note_finish(monotonic);
    }
    let verdict = match passed {
        Passed::On => {
            if waits
                && !awaits_event(call)
                && let Some(recorder) = call.recorder()
            {
                recorder.passed(ends);
            }
            if !ends {
                // It may end the stream, which is then all of the answer.
                keep_within::keep_within(ctx, body);
            }
            let Some(call) = ctx.call() else { return Ok(()) };
            if matches!(&call.answer, Answer::Metered(meter) if meter.has_answered(ends)) {
                succeeded(call, clock);
            } else if ends
                && let Answer::Metered(meter) = &call.answer
                && let Some(code) = meter.was_none()
            {
                // How its call ended is for what came of it to say.
                if Verdict::of_code(code).is_requests_fault() {
                    refuses_request(call);
                } else if let Some(attempt) = &call.attempt {
                    attempt.failed(clock, None);
                }
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
            is_of_request: false,
        },
        Passed::NoAnswer { code } => {
            let verdict = Verdict::of_code(code);
            let said = about_operator(call);
            if let Some(attempt) = &call.attempt {
                let provider = &attempt.candidate.upstream.provider.name;
                let level = level(&verdict);
                log::log!(
                    level,
                    "{provider} answered 200 with what is no answer; its code: {code:?}"
                );
                if said.is_some() || matches!(verdict.status, 401 | 402) {
                    refusal::credential_refused(&attempt.candidate, verdict.status, said);
                }
            }
            if verdict.is_requests_fault() {
                refuses_request(call);
            }
            verdict
        }
    };
    *body = None;
    Err(call.end_attempt(verdict))
}

/// Whether nothing of a stream has passed on, because its first event has not come.
fn awaits_event(call: &Call) -> bool {
    matches!(&call.answer, Answer::Metered(meter) if meter.is_stream() && meter.is_gathered())
}

/// How loud an error within a 200 is told: the request may be to blame for it, or the provider be busy.
fn level(verdict: &Verdict) -> log::Level {
    match verdict.error {
        ApiError::UpstreamRefused { .. } | ApiError::UpstreamBusy { .. } => log::Level::Debug,
        _ => log::Level::Warn,
    }
}

/// The target of an attempt.
fn target(attempt: Option<&Attempt>) -> Option<&Candidate> {
    attempt.map(|attempt| &attempt.candidate)
}

/// The provider sent an error event within its stream, of which the client had the head: as an answer that is none, but no other target can
/// be asked.
fn error_event(call: &mut Call, code: Option<u16>, clock: &Clock) {
    let verdict = Verdict::of_code(code);
    let level = level(&verdict);
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
        return refuses_request(call);
    }
    let said = about_operator(call);
    if let Some(attempt) = &call.attempt
        && (said.is_some() || matches!(verdict.status, 401 | 402))
    {
        refusal::credential_refused(&attempt.candidate, verdict.status, said);
    }
    if let Some(recorder) = call.recorder() {
        recorder.fault(recorder::fault_of_status(verdict.status));
    }
    failed_within(call, clock);
}

/// By which words an error in the answer speaks of the operator's key or account with the provider.
fn about_operator(call: &Call) -> Option<&'static str> {
    match &call.answer {
        Answer::Metered(meter) => meter.about_operator(),
        Answer::Refusal(_) | Answer::None => None,
    }
}

/// The target failed within a stream.
fn failed_within(call: &mut Call, clock: &Clock) {
    call.failed_within = true;
    if let Some(attempt) = &call.attempt {
        attempt.failed(clock, None);
    }
}

/// The request is to blame, as where a target refuses one by its head: that is no failure of the target, and neither shows that it works nor
/// that it takes the gateway's credential.
fn refuses_request(call: &mut Call) {
    if let Some(attempt) = &call.attempt {
        attempt.inconclusive();
    }
    let is_flagged = matches!(&call.answer, Answer::Metered(meter) if meter.flags_content());
    if is_flagged && let Some(recorder) = call.recorder() {
        recorder.refused_content();
    }
}

/// The target answered: with a stream to its last event, or with a whole answer, or with so much of one that it is passed on.
fn succeeded(call: &Call, clock: &Clock) {
    let Some(attempt) = &call.attempt else { return };
    attempt.succeeded(clock);
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
    let Answer::Metered(meter) = &call.answer else { return };
    // The end of a stream brings nothing by itself; that of an answer that was gathered, all of it.
    if (is_empty && meter.is_stream()) || meter.is_gathered() {
        return;
    }
    pass_owed(call);
}

fn pass_owed(call: &mut Call) {
    let owed = keep_within::owed_now(call);
    if let (Some((delivered, prompt)), Some(admission)) = (owed, &mut call.admission) {
        admission.hold.pass(delivered, prompt);
    }
}

/// An answer that was gathered has passed the limits of that, and begins to be passed on before its end: what has come of it stands in the
/// journal before it is. White space is nothing of an answer. Where the client has left nobody gets anything; a whole answer that has come is
/// owed all the same.
pub(in crate::gateway) fn begins_unfinished(ctx: &mut Ctx) {
    let Some(call) = ctx.call() else { return };
    let Answer::Metered(meter) = &mut call.answer else {
        return;
    };
    if call.client_has_left {
        meter.stop_gathering_unread();
    } else {
        meter.stop_gathering();
    }
    // Of a stream no event has come: nothing is owed for what leaves with its head.
    if meter.is_stream() || meter.is_gathered() {
        return;
    }
    // Whether its target works is known at its end.
    pass_owed(call);
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
