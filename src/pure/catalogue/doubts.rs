//! What of a new catalogue is more often a provider's mistake than its wish: asked where nobody looks at an import before it is in force.

use super::{Catalogue, Model};
use crate::pure::money::ListPrice;
use crate::pure::prices::PriceRow;
use crate::pure::usage::PromptTokens;

/// What no provider asks more than.
#[derive(Clone, Copy, Debug)]
pub struct PriceMax {
    /// For a token.
    pub token: ListPrice,
    /// For a call, beside its tokens.
    pub call: ListPrice,
}

/// Why nobody should take `new` in the place of `old` without having looked: more than a third of the models are gone but for `own` ones, which
/// no import takes out, a bound of a model's tokens falls
/// below a tenth, a price falls to nothing, moves by more than ten times or is one of what cost nothing, or one that is not as it was is above
/// `max`.
pub fn between(old: &Catalogue, new: &Catalogue, own: usize, max: Option<PriceMax>) -> Option<String> {
    let before = old.models().len().saturating_sub(own);
    let gone = old.models().iter().filter(|model| new.model(&model.id).is_none());
    let gone = gone.count();
    if gone.saturating_mul(3) > before {
        return Some(format!("it removes {gone} of {before} models"));
    }
    let mut models = new.models().iter();
    models.find_map(|model| {
        let before = old.model(&model.id);
        let doubt = before.and_then(|before| shrank(before, model)).or_else(|| {
            if before.is_some_and(|before| before.prices == model.prices) {
                return None;
            }
            too_dear(before.map(|before| &**before), model, max).or_else(|| match before {
                Some(before) => moved(before, model, max).or_else(|| free_no_longer(before, model)),
                None => too_dear_call(model, max),
            })
        });
        doubt.map(|doubt| format!("{}: {doubt}", model.id))
    })
}

/// Each price of a model in both that becomes ten times what it was or more, or a tenth or less, and each bound of its tokens that becomes a
/// tenth or less.
pub fn moves(old: &Catalogue, new: &Catalogue) -> Vec<String> {
    let mut moves = Vec::new();
    for model in new.models() {
        let Some(before) = old.model(&model.id) else {
            continue;
        };
        let fallen = bounds(before, model).into_iter();
        let fallen = fallen.filter(|(_, from, to)| to < from && to.saturating_mul(FALLS_MAX) <= *from);
        moves.extend(fallen.map(|bound| format!("{}: {}", model.id, bound_text(bound))));
        if before.prices == model.prices {
            continue;
        }
        for (tier, prompt) in points(model) {
            let (from, to) = (before.prices.row(prompt, tier), model.prices.row(prompt, tier));
            for ((name, from), (_, to)) in own(from).into_iter().zip(own(to)) {
                if has_moved(from, to) {
                    let text = move_text(name, (tier, prompt), from, to);
                    moves.push(format!("{}: {text}", model.id));
                }
            }
        }
    }
    moves
}

/// Of prices that both have: one that begins, or is left out, is told with the other changes.
fn has_moved(from: Option<ListPrice>, to: Option<ListPrice>) -> bool {
    let (Some(from), Some(to)) = (from, to) else {
        return false;
    };
    let (from, to) = (from.units(), to.units());
    from != to && (to >= from.saturating_mul(MOVES_MAX) || to.saturating_mul(MOVES_MAX) <= from)
}

/// The bounds of a model's tokens: what a provider reports above them is not believed, and the operator's loss.
fn bounds(before: &Model, model: &Model) -> [Bound; 2] {
    [
        ("context_length", before.context_length, model.context_length),
        (
            "max_completion_tokens",
            before.max_completion_tokens,
            model.max_completion_tokens,
        ),
    ]
}

/// A bound that falls below a tenth.
fn shrank(before: &Model, model: &Model) -> Option<String> {
    // Where a list does not say a maximum the context is taken for it: that it says one now is no slip.
    let was_unsaid = before.max_completion_tokens == before.context_length;
    let is_said_now = |name: &str, to: u64| name == "max_completion_tokens" && was_unsaid && to >= MAXIMUM_USUAL;
    let mut bounds = bounds(before, model).into_iter();
    let bound = bounds.find(|(name, from, to)| to.saturating_mul(FALLS_MAX) < *from && !is_said_now(name, *to))?;
    Some(bound_text(bound))
}

fn bound_text((name, from, to): Bound) -> String {
    format!("its {name} goes from {from} to {to}")
}

/// A price of a token that nobody asks.
fn too_dear(before: Option<&Model>, model: &Model, max: Option<PriceMax>) -> Option<String> {
    let max = max?.token;
    // Of those that stood there before somebody was asked then.
    let known: Vec<_> = before.into_iter().flat_map(rows).flat_map(tokens).collect();
    let mut prices = rows(model).flat_map(tokens).filter(|price| !known.contains(price));
    let (name, price) = prices.find(|(_, price)| price.is_some_and(|price| price.units() > max.units()))?;
    Some(format!("its {name} price of {} for one token cannot be", shown(price)))
}

/// A price of a call that nobody asks, of a new model.
fn too_dear_call(model: &Model, max: Option<PriceMax>) -> Option<String> {
    let max = max?.call;
    let mut prices = rows(model).map(|row| row.kinds.request);
    let price = prices.find(|price| price.is_some_and(|price| price.units() > max.units()))?;
    Some(format!("its {CALL} price of {} for a call is too high", shown(price)))
}

/// A price of any kind of what cost nothing at all.
fn free_no_longer(before: &Model, model: &Model) -> Option<String> {
    let has_begun = before.prices.is_free() && !model.prices.is_free();
    has_begun.then(|| "it cost nothing, and would have a price".to_owned())
}

/// A price that falls to nothing or is one of what cost nothing, or becomes more than ten times what it was, or less than a tenth; and one
/// of a call that rises above what anybody asks.
fn moved(before: &Model, model: &Model, max: Option<PriceMax>) -> Option<String> {
    let mut all = points(before);
    all.extend(points(model));
    all.into_iter().find_map(|(tier, prompt)| {
        let (from, to) = (before.prices.row(prompt, tier), model.prices.row(prompt, tier));
        let mut pairs = paid(from).into_iter().zip(paid(to));
        let of_prompt = to.pricing.prompt;
        // Of what cost nothing any price is told.
        let from_is_free = before.prices.is_free();
        let is_doubtful = |(name, from): &(&str, _), to| match (*name, from) {
            (CACHE_READ, None) => !from_is_free && is_no_price_of_reads(to, of_prompt),
            (name, from) => is_doubtful(name, *from, to, max),
        };
        let ((name, from), (_, to)) = pairs.find(|(from, (_, to))| is_doubtful(from, *to))?;
        match (name, from) {
            (CACHE_READ, None) => Some(format!(
                "its {name} price would be {}, and its prompt price {of_prompt}",
                shown(to)
            )),
            _ => Some(move_text(name, (tier, prompt), from, to)),
        }
    })
}

/// `its prompt price in the tier flex goes from 0.1 to 0.2 in prompts of 300 tokens`.
fn move_text(
    name: &str,
    (tier, prompt): (Option<&str>, PromptTokens),
    from: Option<ListPrice>,
    to: Option<ListPrice>,
) -> String {
    let (from, to) = (shown(from), shown(to));
    let tier = tier.map_or_else(String::new, |tier| format!(" in the tier {tier}"));
    match prompt.0 {
        0 => format!("its {name} price{tier} goes from {from} to {to}"),
        tokens => format!("its {name} price{tier} goes from {from} to {to} in prompts of {tokens} tokens"),
    }
}

fn is_doubtful(name: &str, from: Option<ListPrice>, to: Option<ListPrice>, max: Option<PriceMax>) -> bool {
    // Without a price of their own reads cost what the prompt costs.
    if name == CACHE_READ && to.is_none() {
        return false;
    }
    let units = |price: Option<ListPrice>| price.map_or(0, ListPrice::units);
    let (from, to) = (units(from), units(to));
    if name == CALL && to > from && max.is_some_and(|max| to > max.call.units()) {
        return true;
    }
    match from {
        // Models begin to have a price for a call, and few have one.
        0 => to > 0 && name != CALL,
        from => to == 0 || to > from.saturating_mul(MOVES_MAX) || to.saturating_mul(MOVES_MAX) < from,
    }
}

/// Whether reads from a cache would begin to have a price that none has: they get one, far below that of others, when a provider begins to have
/// a cache.
fn is_no_price_of_reads(to: Option<ListPrice>, of_prompt: ListPrice) -> bool {
    to.is_some_and(|to| {
        let (to, prompt) = (to.units(), of_prompt.units());
        to.saturating_mul(READS_MAX) < prompt || to > prompt.saturating_mul(MOVES_MAX)
    })
}

/// The rows where prices may change.
fn rows(model: &Model) -> impl Iterator<Item = &PriceRow> {
    let points = points(model).into_iter();
    points.map(move |(tier, prompt)| model.prices.row(prompt, tier))
}

/// Where prices may change: in which tier, and from how many tokens of a prompt on.
fn points(model: &Model) -> Vec<(Option<&str>, PromptTokens)> {
    let tiers = model.prices.tiers().map(|(name, rows)| (Some(name), rows.long()));
    let all = std::iter::once((None, model.prices.long())).chain(tiers);
    all.flat_map(|(tier, long)| {
        let long = long.iter().map(|long| long.min_prompt_tokens.saturating_add(1));
        std::iter::once(0)
            .chain(long)
            .map(move |prompt| (tier, PromptTokens(prompt)))
    })
    .collect()
}

/// The prices of tokens in a row.
fn tokens(row: &PriceRow) -> Vec<(&'static str, Option<ListPrice>)> {
    let mut tokens = vec![
        ("prompt", Some(row.pricing.prompt)),
        ("completion", Some(row.pricing.completion)),
    ];
    tokens.extend(row.kinds.named());
    tokens
}

/// The prices of a row, that of a call among them.
fn own(row: &PriceRow) -> Vec<(&'static str, Option<ListPrice>)> {
    let mut own = tokens(row);
    own.push((CALL, row.kinds.request));
    own
}

/// What is paid by a row: a kind without a price of its own costs what its side costs, but for reads, which are told apart.
fn paid(row: &PriceRow) -> Vec<(&'static str, Option<ListPrice>)> {
    let mut paid = tokens(row);
    for (name, price) in &mut paid {
        if *name != CACHE_READ {
            let side = match OF_COMPLETION.contains(name) {
                true => row.pricing.completion,
                false => row.pricing.prompt,
            };
            *price = price.or(Some(side));
        }
    }
    paid.push((CALL, row.kinds.request));
    paid
}

fn shown(price: Option<ListPrice>) -> String {
    price.map_or_else(|| "0".to_owned(), |price| price.to_string())
}

/// The name of a bound of tokens, what it was, and what it is.
type Bound = (&'static str, u64, u64);

/// How many times as much, or as little, a price may become.
const MOVES_MAX: u128 = 10;
/// How many times as little as a token of the prompt one may cost that was read from a cache.
const READS_MAX: u128 = 100;
/// How many times as little a bound of tokens may become.
const FALLS_MAX: u64 = 10;
/// The least that providers say the longest answer of a model has, in tokens.
const MAXIMUM_USUAL: u64 = 1_000;
const CACHE_READ: &str = "input_cache_read";
const CALL: &str = "request";
/// Kinds of tokens that are of the completion.
pub const OF_COMPLETION: [&str; 3] = ["internal_reasoning", "audio_output", "image_output"];
