//! Raises the hold of a call that uses more than was admitted, where the catalogue's maximum was too low: beside a stream that goes on, or
//! before the debit of an answer that has ended.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::early_end::EarlyEnd;
use super::meter::Meter;
use crate::failpoints;
use crate::gateway::admission::Admission;
use crate::gateway::shutdown::{InFlight, Lifecycle};
use crate::ledger::StoreError;
use crate::pure::account::Extended;
use crate::pure::bill::{COUNTED_INLINE_BYTES_MAX, prompt_bounds, prompt_limits};
use crate::pure::charge::Ceiling;
use crate::pure::estimate::{Bound, HoldRange, WorstCase};
use crate::pure::prompt_count::{counted_prompt, counted_text_within};
use crate::pure::request_body::{PromptBounds, RequestBody};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};
use crate::telemetry::record::Raised;

/// A hold that the store is asked to raise, while the answer goes on.
pub(in crate::gateway) struct Extension {
    reply: oneshot::Receiver<Result<Extended, StoreError>>,
    /// What the answer may have then: its prompt, and its completion over all choices.
    wanted: Usage,
}

/// Asks for more, or takes in what was answered. An end when there is no more; the answer goes on otherwise. `request`: with the tokens that
/// its provider adds to a prompt.
///
/// It is rare and needs 50 KiB of the stack, which each piece of each answer would else touch.
#[cold]
#[inline(never)]
pub(super) fn raise(
    meter: &mut Meter,
    admission: &mut Admission,
    request: (&RequestBody, u64),
    extension: &mut Option<Box<Extension>>,
) -> Option<EarlyEnd> {
    let Some(asked) = extension else {
        *extension = match ask(meter, admission, request) {
            Ok(asked) => asked.map(Box::new),
            Err(end) => return Some(end),
        };
        return None;
    };
    let reply = match asked.reply.try_recv() {
        Ok(reply) => reply,
        Err(TryRecvError::Empty) => return None,
        Err(TryRecvError::Closed) => Err(StoreError::Unavailable("the question was dropped".to_owned())),
    };
    let wanted = asked.wanted;
    *extension = None;
    match take_in(admission, reply, wanted) {
        Raised::Granted => {
            meter.extend(admission.ceiling);
            None
        }
        Raised::Refused => Some(EarlyEnd::NoCredit),
        Raised::Failed => Some(EarlyEnd::NoAnswer),
    }
}

/// What the store said to a hold that was to be raised for so much.
fn take_in(admission: &mut Admission, reply: Result<Extended, StoreError>, wanted: Usage) -> Raised {
    let id = admission.hold.id();
    let raised = match reply {
        Ok(Extended::To(amount)) => {
            admission.hold.extended(amount);
            let prices = admission.hold_prices();
            let ceiling = &mut admission.ceiling;
            let affordable = prices.affordable_completion(amount, wanted.prompt).unwrap_or(0);
            let affordable = CompletionTokens(affordable).min(wanted.completion);
            ceiling.completion = ceiling.completion.max(affordable);
            Raised::Granted
        }
        Ok(Extended::Refused) => Raised::Refused,
        Ok(Extended::Gone) => {
            log::error!("MONEY: the hold of request {id} is gone, and cannot be raised");
            Raised::Failed
        }
        Err(error) => {
            log::error!("the hold of request {id} cannot be raised: {error}");
            Raised::Failed
        }
    };
    admission.recorder.raised(raised);
    raised
}

/// Of so many completion tokens that came, which are more than was admitted, those that are owed should the process die now: what is held pays
/// for them beside the prompt, as its provider reported it or as the next start will count it.
///
/// Of each piece of an answer that goes on behind a maximum of the catalogue that is too low, so the prompt is counted once. One that takes
/// long to count is as long as was admitted.
#[cold]
#[inline(never)]
pub(super) fn paid_now(
    admission: &mut Admission,
    came: CompletionTokens,
    reported: Option<PromptTokens>,
    request: &RequestBody,
) -> CompletionTokens {
    let admitted = admission.ceiling.completion;
    if admission.ceiling.bound != Bound::Model {
        return admitted;
    }
    let model = admission.permit.model();
    if model.prices.is_free() {
        return came;
    }
    let prompt = match (reported, admission.counted_prompt) {
        (Some(prompt), _) | (None, Some(prompt)) => prompt,
        (None, None) if request.visited_bytes() > COUNTED_INLINE_BYTES_MAX => admission.ceiling.prompt,
        (None, None) => counted_prompt(request, &model.id, &prompt_limits(model)),
    };
    if reported.is_none() {
        admission.counted_prompt = Some(prompt);
    }
    let prices = admission.hold_prices();
    let paid = prices
        .affordable_completion(admission.hold.amount(), prompt)
        .unwrap_or(0);
    came.min(CompletionTokens(paid)).max(admitted)
}

/// Asks the store to raise the hold, by as much again as was admitted. A model that costs nothing needs no hold.
fn ask(
    meter: &mut Meter,
    admission: &mut Admission,
    (request, overhead_tokens): (&RequestBody, u64),
) -> Result<Option<Extension>, EarlyEnd> {
    let delivered = meter.delivered();
    let more = admission.ceiling.completion.0.max(RAISED_TOKENS_MIN);
    let wanted = Usage {
        prompt: prompt_at_most(admission, request, overhead_tokens),
        completion: CompletionTokens(delivered.0.saturating_add(more)),
    };
    if admission.permit.model().prices.is_free() {
        admission.ceiling.completion = wanted.completion;
        meter.extend(admission.ceiling);
        return Ok(None);
    }
    log::warn!(
        "{} gave request {} more than the {} completion tokens that were admitted: the catalogue's maximum may be too low",
        admission.permit.model().id,
        admission.hold.id(),
        admission.ceiling.completion.0
    );
    let least = delivered.0.saturating_add(LEAST_TOKENS);
    let question = question(admission, wanted, least, admission.ceiling.prompt).ok_or(EarlyEnd::NoCredit)?;
    let (answer, reply) = oneshot::channel();
    #[expect(
        clippy::disallowed_methods,
        reason = "the question must be answered even when its call has ended; the hold bounds how long it takes"
    )]
    tokio::spawn(async move {
        // Nobody listens once the call has ended: its settlement gives back whatever was raised.
        let _ = answer.send(question.await);
    });
    Ok(Some(Extension { reply, wanted }))
}

/// The most that the prompt of a call can come to by its provider's count, as far as ours tells: what was admitted is often several times
/// that, and as much less of the answer would be paid for. Of a long prompt, which takes long to count, it is what was admitted.
fn prompt_at_most(admission: &Admission, request: &RequestBody, overhead_tokens: u64) -> PromptTokens {
    let (model, admitted) = (admission.permit.model(), admission.ceiling.prompt);
    if request.visited_bytes() > COUNTED_INLINE_BYTES_MAX {
        return admitted;
    }
    let text = counted_text_within(request, Encoding::for_model(&model.id), u64::MAX);
    let is_known = Ceiling::is_known(&model.id);
    // Of other scripts than Latin another tokenizer may make a token of each byte.
    let more = if is_known { 0 } else { text.non_ascii_bytes };
    let text = Ceiling::counted_at_most(text.tokens, is_known).saturating_add(more);
    let bounds = PromptBounds {
        overhead_tokens,
        ..prompt_bounds(model)
    };
    PromptTokens(request.prompt_tokens_of_text(text, &bounds)).min(admitted)
}

/// The question for a hold that covers `wanted`, with a prompt of `prompt_most` where the credit is there, or a shorter completion, but not
/// below `least`. None when no account could hold that.
fn question(
    admission: &Admission,
    wanted: Usage,
    least: u64,
    prompt_most: PromptTokens,
) -> Option<impl Future<Output = Result<Extended, StoreError>> + Send + use<>> {
    let worst = WorstCase {
        prompt: wanted.prompt,
        completion_each: wanted.completion.0,
        least_each: least,
        choices: 1,
        bound: Bound::Model,
    };
    let prices = admission.hold_prices();
    let at_least = worst.hold(&prices).ok()?.at_least;
    let most = WorstCase {
        prompt: prompt_most,
        ..worst
    };
    let range = HoldRange {
        at_least,
        ..most.hold(&prices).ok()?
    };
    Some(admission.hold.extension(range, admission.quota))
}

/// A call that used more than is held for it, since the catalogue's maximum was too low, is debited once its hold was raised as far as the
/// credit reaches. Whoever drops it before debits what its hold pays for.
struct Closing {
    admission: Option<Box<Admission>>,
    usage: Usage,
    debit: fn(Box<Admission>, Usage),
    /// A stop waits for the debit. The last field: it is dropped after the debit was made.
    _in_flight: InFlight,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(mut admission) = self.admission.take() {
            admission.admit_paid(self.usage);
            (self.debit)(admission, self.usage);
        }
    }
}

/// Debits by `debit` what a call used: when the catalogue's maximum was too low for it and what is held does not pay for all of it, after its
/// hold was raised on `runtime`, that of its request. The request is over by then, so it counts as under way until the debit is made.
pub(in crate::gateway) fn raise_and_debit(
    mut admission: Box<Admission>,
    usage: Usage,
    debit: fn(Box<Admission>, Usage),
    lifecycle: &Arc<Lifecycle>,
    runtime: impl FnOnce() -> Option<Handle>,
) {
    let is_beyond = usage.completion > admission.ceiling.completion && admission.ceiling.bound == Bound::Model;
    if !is_beyond {
        return debit(admission, usage);
    }
    if admission.admit_all(usage) {
        admission.recorder.raised(Raised::Granted);
        return debit(admission, usage);
    }
    let Some(runtime) = runtime() else {
        admission.admit_paid(usage);
        return debit(admission, usage);
    };
    let wanted = Usage {
        prompt: usage.prompt.min(admission.ceiling.prompt),
        ..usage
    };
    let least = admission.ceiling.completion.0.saturating_add(1);
    let Some(question) = question(&admission, wanted, least, wanted.prompt) else {
        admission.admit_paid(usage);
        return debit(admission, usage);
    };
    let mut closing = Closing {
        admission: Some(admission),
        usage,
        debit,
        _in_flight: lifecycle.enter(),
    };
    // A stop waits for it, and the store bounds how long it takes.
    runtime.spawn(async move {
        failpoints::stall("raise");
        let reply = question.await;
        if let Some(admission) = &mut closing.admission {
            take_in(admission, reply, wanted);
        }
    });
}

/// Fewest completion tokens by which a hold is raised where there is credit for them, so that a low maximum does not ask often.
const RAISED_TOKENS_MIN: u64 = 1_024;
/// With less than this beyond what was delivered an answer is not worth going on.
const LEAST_TOKENS: u64 = 64;

#[cfg(test)]
mod tests;
