//! The most that a call can use: by the bound of its prompt, which is there at once, or with the prompt's text counted, which is work.
//! Admission alone asks for it, and decides when the work is worth doing.

use crate::gateway::snapshot::Snapshot;
use crate::pure::bill::{self, COUNTED_INLINE_BYTES_MAX};
use crate::pure::catalogue::{Model, ModelKind};
use crate::pure::estimate::{Bound, WorstCase};
use crate::pure::money::Credits;
use crate::pure::prices::HoldPrices;
use crate::pure::prompt_count::counted_text_within;
use crate::pure::request_body::{PromptBounds, RequestBody};
use crate::pure::tokens::Encoding;
use crate::pure::usage::PromptTokens;

/// The worst case of a call whose prompt has at most so many tokens.
pub(super) fn worst_case(model: &Model, body: &RequestBody, prompt: u64) -> WorstCase {
    let (completion_each, bound) = match (model.kind(), body.max_tokens()) {
        (ModelKind::Embedding, _) => (0, Bound::Client),
        (ModelKind::Chat, Some(max)) => (max.get(), Bound::Client),
        (ModelKind::Chat, None) => (model.max_completion_tokens, Bound::Model),
    };
    WorstCase {
        prompt: PromptTokens(prompt),
        completion_each,
        least_each: model.min_completion_tokens.max(body.demanded_tokens()),
        choices: body.choices(),
        bound,
    }
}

/// The worst case with the prompt's text counted, and a margin for what the provider counts otherwise. Never above `cheap`. None where the
/// text has more than `limit` tokens, or more than the whole prompt of `cheap`: what comes then is not counted, however long it is.
pub(super) async fn counted(
    model: &Model,
    body: &RequestBody,
    bounds: &PromptBounds,
    cheap: &WorstCase,
    limit: u64,
) -> Option<WorstCase> {
    let encoding = Encoding::for_model(&model.id);
    let limit = limit.min(cheap.prompt.0);
    let text = if body.visited_bytes() <= COUNTED_INLINE_BYTES_MAX {
        counted_text_within(body, encoding, limit)
    } else {
        let body = body.clone();
        let _place = COUNTING.acquire().await.ok()?;
        let count = move || counted_text_within(&body, encoding, limit);
        tokio::task::spawn_blocking(count).await.ok()?
    };
    if text.tokens > limit {
        return None;
    }
    // Another family's tokenizer may need more than the one that counts here: twice as much for what is ASCII, and for each other byte a
    // token, where its vocabulary has little of a script.
    let margin = if Encoding::is_known_for(&model.id) {
        text.tokens / 10
    } else {
        text.tokens.saturating_add(text.non_ascii_bytes)
    };
    let with_margin = text.tokens.saturating_add(margin).saturating_add(8);
    let prompt = body.prompt_tokens_of_text(with_margin, bounds).min(cheap.prompt.0);
    Some(WorstCase {
        prompt: PromptTokens(prompt),
        ..*cheap
    })
}

/// How many tokens of its text are counted at most for a call that was refused and could spend so much: as many as that pays for beside one
/// completion token a choice. So a text beside which a completion can be paid is counted whole, and a refusal is no more work the longer
/// its text is. None where a count would change nothing: prompts cost nothing, however long they are.
pub(super) fn countable(model: &Model, body: &RequestBody, cheap: &WorstCase, spendable: Credits) -> Option<u64> {
    let prices = model.prices.hold(PromptTokens(0), &body.asks());
    let is_free = prices.pricing.prompt.is_zero() && prices == hold_prices(cheap, model, body);
    (!is_free).then(|| cheap.affordable_prompt(spendable, &prices))
}

/// What bounds a prompt of the model, whichever of its targets gets it.
pub(super) fn prompt_bounds(snapshot: &Snapshot, model: &Model) -> PromptBounds {
    let upstreams = model
        .targets
        .iter()
        .filter_map(|target| snapshot.upstreams.get(&target.provider));
    let overhead = upstreams.map(|upstream| upstream.provider.prompt_overhead_tokens).max();
    PromptBounds {
        overhead_tokens: overhead.unwrap_or(0),
        ..bill::prompt_bounds(model)
    }
}

/// The dearest that tokens of the call can cost.
pub(super) fn hold_prices(worst: &WorstCase, model: &Model, body: &RequestBody) -> HoldPrices {
    model.prices.hold(worst.prompt, &body.asks())
}

/// How many long prompts are counted at once for admission: it is work for callers who may not be able to pay.
static COUNTING: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
