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

fn note(call: &mut Call, mut meter: Meter) {
    let Some(admission) = &mut call.admission else { return };
    let own_id = meter.take_said().id;
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
    let attempt = call.attempt.as_ref();
    let provider = attempt.map_or("a provider", |attempt| &*attempt.candidate.upstream.name);
    log::warn!(
        "request {}: an answer of {} by {provider}, {}, broke off and is not passed on; its provider is likely to charge for {} \
         prompt and {} completion tokens, which are not billed ({cost} at its list prices)",
        admission.hold.id(),
        model.id,
        shown(own_id.as_deref()),
        usage.prompt.0,
        usage.completion.0
    );
    admission.recorder.discarded(cost);
}

/// An answer's own id, by which its provider's export of calls names it. It is the provider's text, of 256 bytes at most: what is more than a name
/// is not shown.
fn shown(own_id: Option<&str>) -> String {
    let is_name = |id: &str| {
        id.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
    };
    match own_id {
        None | Some("") => "without an id".to_owned(),
        Some(id) if is_name(id) => format!("with the id {id}"),
        Some(_) => "with an id that is no name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
