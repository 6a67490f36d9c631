//! An upstream refuses a call: its words are gathered before the client is told anything, for they say whether the request is at fault, or
//! the operator's key or account.

use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use super::targets::Candidate;
use super::verdict::Verdict;
use crate::gateway::api::responses;
use crate::gateway::context::{Answer, Attempt, Call, Ctx, Refusal};
use crate::pure::error::ApiError;
use crate::pure::error::provider_words::{FLAGGED_STATUS, OPERATOR_STATUS, ProviderWords};

/// The upstream's refusal is put in the interface's shape, with its own message when that can be read: its words are gathered, and ours
/// are written at their end, if another target is not to be asked.
pub(super) fn begin(response: &mut ResponseHeader, ctx: &mut Ctx, refusal: Refusal) -> pingora::Result<()> {
    let wire = refusal.error.to_wire();
    let headers = responses::error_headers(&wire, ctx);
    *response = responses::head(responses::status(&wire)?, headers);
    if let Some(call) = ctx.call() {
        call.failure = Some(Box::new(refusal.error.clone()));
        call.answer = Answer::Refusal(Box::new(refusal));
    }
    Ok(())
}

/// One piece of a refusal's words: nothing passes before their end.
///
/// # Errors
/// When they do not end, and at their end when the request is not at fault.
pub(super) fn piece(body: &mut Option<Bytes>, ends: bool, call: &mut Call) -> pingora::Result<()> {
    let Answer::Refusal(refusal) = &mut call.answer else {
        return Ok(());
    };
    if let Some(chunk) = body.take() {
        let room = REFUSAL_BYTES_MAX.saturating_sub(refusal.words.len());
        let words = &mut refusal.words;
        words.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        if chunk.len() > room {
            let mut failed = Error::explain(ErrorType::InvalidHTTPHeader, "a refusal without end");
            failed.as_up();
            return Err(failed);
        }
    }
    if !ends {
        *body = Some(Bytes::new());
        return Ok(());
    }
    let is_flagged = refusal.status == OPERATOR_STATUS;
    match decide(refusal, call.attempt.as_ref(), Words::Whole) {
        Ok(error) => {
            if is_flagged && let Some(recorder) = call.recorder() {
                recorder.refused_content();
            }
            *body = Some(Bytes::from(error.to_wire().body()));
            if !call.client_has_left
                && let Some(recorder) = call.recorder()
            {
                recorder.failed(&error);
            }
            Ok(())
        }
        Err(verdict) => Err(call.end_attempt(*verdict)),
    }
}

/// The words of a refusal broke off or did not end, or its client has left and they are waited for no longer: what came of them decides.
pub(super) fn broke_off(call: &mut Call) {
    let Answer::Refusal(refusal) = &call.answer else {
        return;
    };
    let words = match call.client_has_left {
        true => Words::Unread,
        false => Words::Cut,
    };
    match decide(refusal, call.attempt.as_ref(), words) {
        Ok(error) => {
            let is_flagged = refusal.status == OPERATOR_STATUS;
            call.failure = Some(Box::new(error));
            if is_flagged && let Some(recorder) = call.recorder() {
                recorder.refused_content();
            }
        }
        Err(verdict) => call.verdict = Some(verdict),
    }
}

/// How much of a refusal's words there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Whole,
    /// They broke off, or did not end.
    Cut,
    /// Nobody waits for them any more.
    Unread,
}

/// What a refusal comes to, by what came of its words: an error for the client, or else a verdict on the target.
fn decide(refusal: &Refusal, attempt: Option<&Attempt>, came: Words) -> Result<ApiError, Box<Verdict>> {
    let words = ProviderWords::read(&refusal.words);
    let candidate = attempt.map(|attempt| &attempt.candidate);
    let retry_after_secs = refusal.retry_after_secs;
    let verdict = |error, status| {
        Box::new(Verdict {
            error,
            status,
            retry_after_secs,
            is_of_request: false,
        })
    };
    if let Some(said) = words.about_operator {
        if let Some(candidate) = candidate {
            credential_refused(candidate, refusal.status, Some(said));
        }
        let error = ApiError::from_upstream_status(OPERATOR_STATUS, None);
        return Err(verdict(error, OPERATOR_STATUS));
    }
    if refusal.status == OPERATOR_STATUS && !words.flags_content {
        let mut verdict = verdict(
            ApiError::from_upstream_status(refusal.status, retry_after_secs),
            refusal.status,
        );
        // Of whom it speaks is not known where nobody has waited for its words.
        verdict.is_of_request = came == Words::Unread;
        if let (Some(candidate), false) = (candidate, verdict.is_of_request) {
            credential_refused(candidate, refusal.status, None);
        }
        return Err(verdict);
    }
    let ApiError::UpstreamRefused { status, message, .. } = &refusal.error else {
        return Err(verdict(refusal.error.clone(), refusal.status));
    };
    if let Some(attempt) = attempt {
        attempt.inconclusive();
    }
    if refusal.status == OPERATOR_STATUS {
        // Its words may name the operator's team and key.
        return Ok(refusal.error.clone());
    }
    if words.is_rate_limit {
        // Another target may have another limit.
        return Err(Box::new(Verdict {
            error: ApiError::from_upstream_status(429, retry_after_secs),
            status: 429,
            retry_after_secs: None,
            is_of_request: true,
        }));
    }
    Ok(ApiError::UpstreamRefused {
        status: *status,
        message: words.message.unwrap_or_else(|| message.clone()),
        named: Box::new(words.named),
    })
}

/// What a client is told whose request a provider refuses for what it says.
pub(super) fn flagged() -> ApiError {
    ApiError::UpstreamRefused {
        status: FLAGGED_STATUS,
        message: "The model's provider refused the request for its content.".into(),
        named: Box::default(),
    }
}

/// The target refuses the gateway's own credential, or the account behind it: the operator is told, once until it is taken again. `said`
/// is what an answer has said of it whose status does not.
pub(super) fn credential_refused(candidate: &Candidate, status: u16, said: Option<&'static str>) {
    let (provider, model) = (&candidate.upstream.provider.name, &candidate.model);
    let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
    if candidate.note_credential_refused(true) {
        log::error!(
            "{provider} answered {status}{said}: it refuses the gateway's own credential for {model}, or the account behind it \
             (providers.{provider}.api_key_env)"
        );
    } else {
        log::debug!("{provider} answered {status}{said}");
    }
}

/// Most bytes of an upstream's refusal that are read for its message.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
