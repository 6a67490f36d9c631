//! The prices of a listed model, as far as the catalogue has them.

use super::list::{Listed, ListedOverride};
use crate::pure::money::ProviderPrice;

/// What a model is sold for.
pub(super) struct ListedPrices {
    pub(super) prompt: ProviderPrice,
    pub(super) completion: ProviderPrice,
    /// Prices of single kinds of tokens that are not those of their sides.
    kinds: Vec<(&'static str, ProviderPrice)>,
    /// Rows for long prompts: from how many tokens on, and what is priced there.
    long: Vec<(u64, Vec<(&'static str, ProviderPrice)>)>,
}

enum Price {
    Missing,
    /// The list says -1: it depends on what answers.
    Depends,
    Fixed(ProviderPrice),
}

impl ListedPrices {
    /// Errors when a price is no decimal text; the inner error is why the model is not sold.
    pub(super) fn of(listed: &Listed, output: &str) -> Result<Result<ListedPrices, String>, String> {
        let no = |reason: &str| Ok(Err(reason.to_owned()));
        let price = |key: &str| price(key, listed.price(key));
        let (prompt, completion) = match (price("prompt")?, price("completion")?) {
            (Price::Fixed(prompt), Price::Fixed(completion)) => (prompt, completion),
            (Price::Fixed(prompt), Price::Missing) if output == "embedding" => (prompt, ProviderPrice::default()),
            (Price::Missing, _) | (_, Price::Missing) => return no("the list gives no price for it"),
            (Price::Depends, _) | (_, Price::Depends) => return no("its price is not fixed"),
        };
        let mut calls = Vec::new();
        match price("request")? {
            Price::Fixed(extra) if !extra.decimal().is_zero() => calls.push(("request", extra)),
            Price::Depends => return no("its price is not fixed"),
            Price::Fixed(_) | Price::Missing => {}
        }
        let mut prices = ListedPrices {
            prompt,
            completion,
            kinds: calls,
            long: Vec::new(),
        };
        for (key, side) in KINDS {
            match price(key)? {
                Price::Depends => return no("its price is not fixed"),
                // "0" stands there for what has no price of its own.
                Price::Fixed(own) if own != prices.side(side) && !own.decimal().is_zero() => {
                    prices.kinds.push((key, own));
                }
                Price::Fixed(_) | Price::Missing => {}
            }
        }
        for row in listed.overrides() {
            if let Err(reason) = prices.add(row)? {
                return no(reason);
            }
        }
        prices.long.sort_by_key(|(min, _)| *min);
        Ok(Ok(prices))
    }

    /// A row for long prompts. One of certain hours is left out when it is no dearer.
    fn add(&mut self, row: &ListedOverride) -> Result<Result<(), &'static str>, String> {
        let mut priced = Vec::new();
        for (key, side) in [("prompt", "prompt"), ("completion", "completion")]
            .into_iter()
            .chain(KINDS)
        {
            match price(key, row.price(key))? {
                Price::Depends => return Ok(Err("its price is not fixed")),
                Price::Fixed(own) if key == side || !own.decimal().is_zero() => priced.push((key, own)),
                Price::Fixed(_) | Price::Missing => {}
            }
        }
        match row.min_prompt_tokens {
            Some(min) if !row.is_of_hours() => self.long.push((min, priced)),
            _ => {
                let usual = |key: &str| match self.kinds.iter().find(|(kind, _)| *kind == key) {
                    Some((_, price)) => *price,
                    None => self.side(
                        KINDS
                            .iter()
                            .find(|(kind, _)| *kind == key)
                            .map_or(key, |(_, side)| side),
                    ),
                };
                if priced.iter().any(|(key, price)| *price > usual(key)) {
                    return Ok(Err("its price depends on more than the length of the prompt"));
                }
            }
        }
        Ok(Ok(()))
    }

    fn side(&self, side: &str) -> ProviderPrice {
        if side == "prompt" { self.prompt } else { self.completion }
    }

    /// As the catalogue has them, between the braces.
    pub(super) fn text(&self) -> String {
        let pair = |(key, price): &(&str, ProviderPrice)| format!("{key}: \"{}\"", price.decimal());
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

fn price(key: &str, text: Option<&str>) -> Result<Price, String> {
    match text {
        None => Ok(Price::Missing),
        Some(text) if text.starts_with('-') => Ok(Price::Depends),
        Some(text) => match text.parse() {
            Ok(price) => Ok(Price::Fixed(price)),
            Err(error) => Err(format!("pricing.{key}: {error}")),
        },
    }
}

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
