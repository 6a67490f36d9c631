//! Holds a stream to what was admitted for it. It is ended at its client's own maximum; where the catalogue's maximum was too low, its hold
//! is raised beside it, or it is ended where the credit is.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::append::append;
use super::early_end::EarlyEnd;
use super::extend::{paid_now, raise};
use crate::gateway::context::{Answer, Attempt, Call, Ctx, Stage};
use crate::ledger::Uncovered;
use crate::pure::charge::Passing;
use crate::pure::error::{AccountShortage, ApiError, DEFAULT_RETRY_AFTER_SECS, Unavailable};
use crate::pure::usage::{CompletionTokens, PromptTokens};

/// Ready once the call's credit is no longer set aside for it: see [`Uncovered`]. Of an answer that has come to its end, whose report may
/// follow, only where its hold is gone: that of a stopped account lives until it is settled.
pub(in crate::gateway) fn poll_uncovered(ctx: &Ctx, context: &mut Context<'_>) -> Poll<()> {
    let Some(call) = ctx.admitted() else {
        return Poll::Pending;
    };
    match &call.admission {
        Some(admission) if call.early_end.is_none() => match admission.hold.poll_uncovered(context) {
            Poll::Ready(why) if may_finish(&call.answer, why) => Poll::Pending,
            uncovered => uncovered.map(drop),
        },
        Some(_) | None => Poll::Pending,
    }
}

/// Whether an answer is left alone although its call is no longer covered so: its client has its last event, or its report alone is to come and
/// its hold is there.
fn may_finish(answer: &Answer, why: Uncovered) -> bool {
    let Answer::Metered(meter) = answer else { return false };
    meter.has_last_event() || meter.is_at_finish() && matches!(why, Uncovered::Stopped(_))
}

/// What a client is told whose call was no longer covered before its answer began.
pub(in crate::gateway) fn uncovered(call: &Call) -> Option<ApiError> {
    let hold = &call.admission.as_ref()?.hold;
    Some(match hold.uncovered()? {
        // What the account has is not known here, and no matter of a key that is locked to domains.
        Uncovered::NoCredit => ApiError::AccountShort(AccountShortage {
            is_quota: false,
            needed: Some(hold.amount()),
            in_flight: false,
        }),
        Uncovered::NoAnswer => ApiError::Unavailable {
            what: Unavailable::Ledger,
            message: "The ledger cannot be reached, and what was set aside for this call may be gone.",
            retry_after_secs: DEFAULT_RETRY_AFTER_SECS,
        },
        Uncovered::Stopped(why) => ApiError::AccountStopped(why),
    })
}

/// Holds a stream to what was admitted for it: to be asked with each piece that does not end it.
pub(in crate::gateway) fn keep_within(ctx: &mut Ctx, body: &mut Option<Bytes>) {
    let Stage::Admitted(call) = &mut ctx.stage else {
        return;
    };
    let Call {
        answer: Answer::Metered(meter),
        admission: Some(admission),
        extension,
        body: request,
        attempt,
        ..
    } = &mut **call
    else {
        return;
    };
    let end = match (admission.hold.uncovered(), meter.passing(&admission.permit.model().id)) {
        (Some(_), _) if meter.has_last_event() => return,
        // What has come to its end is not ended once more: its report would be lost.
        (Some(Uncovered::Stopped(_)), _) if meter.is_at_finish() => return,
        (Some(why), _) => EarlyEnd::from(why),
        (None, Passing::Within) => return,
        (None, Passing::BeyondClient) if meter.is_at_finish() => return,
        (None, Passing::BeyondClient) => EarlyEnd::Maximum,
        // More could not be billed: what it costs was told.
        (None, Passing::BeyondHold) if meter.has_told() => return,
        (None, Passing::BeyondHold) => {
            match raise(meter, admission, (request, overhead(attempt.as_ref())), extension) {
                Some(end) if !meter.is_at_finish() => end,
                Some(_) | None => return,
            }
        }
    };
    let target = attempt.as_ref().map(|attempt| &attempt.candidate);
    let Some(last) = meter.end_early(end, &admission.tariff(request, target)) else {
        return;
    };
    append(body, last);
    call.early_end = Some(end);
    if let Some(recorder) = call.recorder() {
        recorder.passed(true);
    }
}

/// What a call owes should the process die now: completion tokens, and the prompt's where the provider reported it. No more than its hold pays
/// for. None while what came of its answer is an error, or nothing.
pub(in crate::gateway) fn owed_now(call: &mut Call) -> Option<(CompletionTokens, Option<PromptTokens>)> {
    let (Answer::Metered(meter), Some(admission)) = (&call.answer, &mut call.admission) else {
        return None;
    };
    let (came, prompt) = meter.come()?;
    if came <= admission.ceiling.completion {
        return Some((came, prompt));
    }
    Some((paid_now(admission, came, prompt, &call.body), prompt))
}

/// Tokens that the provider adds to a prompt.
fn overhead(attempt: Option<&Attempt>) -> u64 {
    attempt.map_or(0, |attempt| attempt.candidate.upstream.provider.prompt_overhead_tokens)
}

#[cfg(test)]
mod tests;
