//! Answers that began and were thrown away, because nothing of them could be passed on: the account pays nothing, and what their providers
//! are likely to charge is the operator's. It is counted here.

use super::meter::Meter;
use crate::gateway::context::{Answer, Call};
use crate::pure::bill::{COUNTED_INLINE_BYTES_MAX, prompt_limits};
use crate::pure::money::Credits;
use crate::pure::prompt_count::{counted_prompt, estimated_prompt};
use crate::pure::usage::{TokenKinds, Usage};

/// Throws away what came of the call's answer, if anything did.
pub(in crate::gateway) fn answer(call: &mut Call) {
    if let Answer::Metered(meter) = std::mem::replace(&mut call.answer, Answer::None) {
        note(call, *meter);
    }
    call.unseen_since = None;
}

fn note(call: &mut Call, meter: Meter) {
    let Some(admission) = &mut call.admission else { return };
    let Some((reported, completion)) = meter.likely_use() else {
        return;
    };
    let model = admission.permit.model();
    let prompt = reported.unwrap_or_else(|| match call.body.visited_bytes() {
        bytes if bytes <= COUNTED_INLINE_BYTES_MAX => counted_prompt(&call.body, &model.id, &prompt_limits(model)),
        _ => estimated_prompt(call.body.prompt_bytes()),
    });
    let usage = Usage {
        prompt: prompt.min(admission.ceiling.prompt),
        completion,
    };
    let cost = model
        .prices
        .cost(usage, TokenKinds::default(), None)
        .unwrap_or(Credits::MAX);
    log::warn!(
        "request {}: an answer of {} broke off and is not passed on; its provider is likely to charge for {} prompt and {} completion \
         tokens, which are not billed ({cost})",
        admission.hold.id(),
        model.id,
        usage.prompt.0,
        usage.completion.0
    );
    admission.recorder.discarded(cost);
}

#[cfg(test)]
mod tests;
