//! The prices of a listed model, as far as the catalogue has them. What cannot be read is never left out: the model is not sold then.

use serde_json::Value;

use super::list::{Listed, ListedOverride};
use crate::pure::catalogue::OVERRIDES_MAX;
use crate::pure::money::ProviderPrice;

/// What a model is sold for.
pub(super) struct ListedPrices {
    pub(super) prompt: ProviderPrice,
    pub(super) completion: ProviderPrice,
    /// Prices of single kinds of tokens that are not those of their sides, and of a call.
    kinds: Vec<Priced>,
    /// Prices of the storage alone of what is written to a cache, which its tokens cost beside.
    storage: Vec<Priced>,
    /// Rows for long prompts: from how many tokens on, and what is priced there.
    long: Vec<(u64, Vec<Priced>)>,
    /// What a search of the web costs, which nobody is charged.
    pub(super) web_search: Option<String>,
}

/// Why a model's prices are not taken over.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not sold; the rest of the list is.
    Model(String),
    /// The list has a mistake.
    List(String),
}

type Priced = (&'static str, ProviderPrice);

enum Price {
    Missing,
    /// The list says -1: it depends on what answers.
    Depends,
    Fixed(ProviderPrice),
}

impl ListedPrices {
    /// The prices of a model that answers with `output`.
    pub(super) fn of(listed: &Listed, output: &str) -> Result<ListedPrices, Refusal> {
        let price = |key: &str| price(key, listed.price(key));
        let (prompt, completion) = match (price("prompt")?, price("completion")?) {
            (Price::Fixed(prompt), Price::Fixed(completion)) => (prompt, completion),
            (Price::Fixed(prompt), Price::Missing) if output == "embedding" => (prompt, ProviderPrice::default()),
            (Price::Missing, _) | (_, Price::Missing) => return Err(no("the list gives no price for it")),
            (Price::Depends, _) | (_, Price::Depends) => return Err(no(NOT_FIXED)),
        };
        let mut prices = ListedPrices {
            prompt,
            completion,
            kinds: Vec::new(),
            storage: Vec::new(),
            long: Vec::new(),
            web_search: web_search(listed.price("web_search")),
        };
        if let Price::Fixed(call) = fixed(price("request")?)?
            && !call.decimal().is_zero()
        {
            prices.kinds.push(("request", call));
        }
        for (key, side) in KINDS {
            match fixed(price(key)?)? {
                // "0" stands there for what has no price of its own.
                // A request may ask for writes only where they have a price, be it that of the prompt.
                Price::Fixed(own)
                    if (own != prices.side(side) || WRITES.contains(&key)) && !own.decimal().is_zero() =>
                {
                    if WRITES.contains(&key) && own < prompt {
                        prices.storage.push((key, own));
                    }
                    prices.kinds.push((key, written(key, own, prompt)?));
                }
                _ => {}
            }
        }
        let rows = listed.overrides();
        for row in rows.ok_or_else(|| no("its pricing.overrides cannot be read"))? {
            prices.add(&row)?;
        }
        prices.long.sort_by_key(|(min, _)| *min);
        let are_distinct = prices.long.is_sorted_by(|(one, _), (next, _)| one < next);
        if !are_distinct || prices.long.len() > OVERRIDES_MAX {
            return Err(no("its rows for long prompts are too many, or two are for the same"));
        }
        Ok(prices)
    }

    /// A row for long prompts. One of certain hours is left out when it is no dearer.
    fn add(&mut self, row: &ListedOverride) -> Result<(), Refusal> {
        let mut priced = Vec::new();
        for (key, side) in SIDES.into_iter().chain(KINDS) {
            match fixed(price(key, row.price(key))?)? {
                Price::Fixed(own) if key == side || !own.decimal().is_zero() => priced.push((key, own)),
                _ => {}
            }
        }
        let prompt = priced
            .iter()
            .find(|(key, _)| *key == "prompt")
            .map_or(self.prompt, |(_, own)| *own);
        for (key, own) in &mut priced {
            *own = written(key, *own, prompt)?;
        }
        let Some(min) = row.min_prompt_tokens.filter(|_| !row.is_of_hours()) else {
            return match priced.iter().any(|(key, own)| *own > self.usual(key)) {
                true => Err(no("its price depends on more than the length of the prompt")),
                false => Ok(()),
            };
        };
        let falls = |(key, own): &Priced| own.decimal().is_zero() && !self.usual(key).decimal().is_zero();
        if let Some((key, _)) = priced.iter().find(|own| falls(own)) {
            return Err(Refusal::Model(format!("its {key} would cost nothing in long prompts")));
        }
        for key in WRITES {
            if priced.iter().any(|(named, _)| *named == key) {
                continue;
            }
            match (find(&self.storage, key), find(&self.kinds, key)) {
                (Some(storage), _) => priced.push((key, written(key, storage, prompt)?)),
                (None, Some(usual)) if usual < prompt => priced.push((key, prompt)),
                (None, _) => {}
            }
        }
        self.long.push((min, priced));
        Ok(())
    }

    fn side(&self, side: &str) -> ProviderPrice {
        if side == "prompt" { self.prompt } else { self.completion }
    }

    /// What is paid for a kind, or a side, but in long prompts.
    fn usual(&self, key: &str) -> ProviderPrice {
        let side = || {
            KINDS
                .iter()
                .find(|(kind, _)| *kind == key)
                .map_or(key, |(_, side)| side)
        };
        find(&self.kinds, key).unwrap_or_else(|| match key {
            "request" => ProviderPrice::default(),
            _ => self.side(side()),
        })
    }

    /// Whether a call costs something beside its tokens, be it in long prompts alone.
    pub(super) fn is_call_priced(&self) -> bool {
        let rows = self.long.iter().map(|(_, priced)| priced);
        std::iter::once(&self.kinds)
            .chain(rows)
            .flatten()
            .any(|(key, _)| *key == "request")
    }

    /// As the catalogue has them, between the braces.
    pub(super) fn text(&self) -> String {
        let pair = |(key, price): &Priced| format!("{key}: \"{}\"", price.decimal());
        let mut parts = vec![pair(&("prompt", self.prompt)), pair(&("completion", self.completion))];
        parts.extend(self.kinds.iter().map(pair));
        if !self.long.is_empty() {
            let rows = self.long.iter().map(|(min, priced)| {
                let mut row = vec![format!("min_prompt_tokens: {min}")];
                row.extend(priced.iter().map(pair));
                format!("{{ {} }}", row.join(", "))
            });
            let rows: Vec<String> = rows.collect();
            parts.push(format!("overrides: [ {} ]", rows.join(", ")));
        }
        parts.join(", ")
    }
}

fn no(reason: &str) -> Refusal {
    Refusal::Model(reason.to_owned())
}

/// A price as the list has it: as text, for a number may have passed through a float before.
fn price(key: &str, listed: Option<&Value>) -> Result<Price, Refusal> {
    match listed {
        None => Ok(Price::Missing),
        Some(Value::String(text)) if text.starts_with('-') => Ok(Price::Depends),
        Some(Value::String(text)) => match ProviderPrice::of_list(text) {
            Ok(price) => Ok(Price::Fixed(price)),
            Err(error) => Err(Refusal::List(format!("pricing.{key}: {error}"))),
        },
        Some(_) => Err(Refusal::Model(format!("its pricing.{key} is no text"))),
    }
}

fn fixed(price: Price) -> Result<Price, Refusal> {
    match price {
        Price::Depends => Err(no(NOT_FIXED)),
        price => Ok(price),
    }
}

/// What a token costs that is written to a cache, where the list says `own`. One below the prompt's price is that of the storage alone, which
/// comes on top: so OpenRouter documents Gemini's ("Prompt caching": the input's price and five minutes of storage).
fn written(key: &str, own: ProviderPrice, prompt: ProviderPrice) -> Result<ProviderPrice, Refusal> {
    if !WRITES.contains(&key) || own >= prompt {
        return Ok(own);
    }
    let sum = own.plus(prompt, &own.decimal().to_string());
    sum.map_err(|error| Refusal::List(format!("pricing.{key}: {error}")))
}

/// What the list says of searches, unless it says that they cost nothing.
fn web_search(listed: Option<&Value>) -> Option<String> {
    match listed? {
        Value::String(text) if text.bytes().all(|b| matches!(b, b'0' | b'.')) => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn find(priced: &[Priced], key: &str) -> Option<ProviderPrice> {
    priced.iter().find(|(named, _)| *named == key).map(|(_, price)| *price)
}

const NOT_FIXED: &str = "its price is not fixed";
/// What a row for long prompts may have a price of beside kinds of tokens; "0" is one for a side alone.
const SIDES: [(&str, &str); 3] = [("prompt", "prompt"), ("completion", "completion"), ("request", "")];
/// Kinds of tokens that may have a price of their own, and the sides that they are of. The list's `image` is the price of an image, which its
/// provider counts as prompt tokens.
const KINDS: [(&str, &str); 6] = [
    ("input_cache_read", "prompt"),
    ("input_cache_write", "prompt"),
    ("input_cache_write_1h", "prompt"),
    ("audio", "prompt"),
    ("internal_reasoning", "completion"),
    ("audio_output", "completion"),
];
/// Those that are written to a cache.
const WRITES: [&str; 2] = ["input_cache_write", "input_cache_write_1h"];
