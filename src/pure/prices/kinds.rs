//! Prices of single kinds of tokens, beside those of their sides.
//!
//! The kinds partition a side: a token that was read from a cache is none that was written to one. A kind without a price of its own costs
//! what its side costs, so a model with two prices costs what the interface's formula says, digit by digit.

use serde::Serialize;

use crate::pure::money::{Credits, ListPrice, MoneyError, Pricing, rounded};
use crate::pure::usage::{TokenKinds, Usage};

/// The list prices of a model's kinds of tokens, under OpenRouter's names. None: the kind has no price of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindPrices {
    /// Per prompt token that the provider read from its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cache_read: Option<ListPrice>,
    /// Per prompt token that the provider wrote to its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cache_write: Option<ListPrice>,
    /// Per completion token of hidden reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_reasoning: Option<ListPrice>,
}

impl KindPrices {
    /// The prices with their names, as the catalogue has them.
    pub fn named(&self) -> [(&'static str, Option<ListPrice>); 3] {
        [
            ("input_cache_read", self.input_cache_read),
            ("input_cache_write", self.input_cache_write),
            ("internal_reasoning", self.internal_reasoning),
        ]
    }
}

impl Pricing {
    /// [`Pricing::cost`] of tokens of which some have prices of their own: the sum of the tokens of each kind times its price, rounded once,
    /// half to even, at 10^-12 credit.
    ///
    /// # Errors
    /// Beyond the range of [`Credits`], or when a side has fewer tokens than its kinds ([`TokenKinds::within`] makes them fit).
    pub fn cost_by_kind(&self, usage: Usage, tokens: TokenKinds, prices: &KindPrices) -> Result<Credits, MoneyError> {
        if *prices == KindPrices::default() {
            return self.cost(usage);
        }
        let (prompt, completion) = (self.prompt, self.completion);
        let plain_prompt = usage.prompt.0.checked_sub(tokens.cache_read);
        let plain_prompt = plain_prompt.and_then(|rest| rest.checked_sub(tokens.cache_write));
        let kinds = [
            (plain_prompt, Some(prompt)),
            (Some(tokens.cache_read), prices.input_cache_read.or(Some(prompt))),
            (Some(tokens.cache_write), prices.input_cache_write.or(Some(prompt))),
            (usage.completion.0.checked_sub(tokens.reasoning), Some(completion)),
            (Some(tokens.reasoning), prices.internal_reasoning.or(Some(completion))),
        ];
        let units = kinds.into_iter().try_fold(0u128, |sum, (tokens, price)| {
            sum.checked_add(u128::from(tokens?).checked_mul(price?.units())?)
        });
        rounded(units, usage)
    }

    /// The larger of both prices of each side.
    pub(super) fn dearer(&self, other: &Pricing) -> Pricing {
        Pricing {
            prompt: larger(self.prompt, Some(other.prompt)),
            completion: larger(self.completion, Some(other.completion)),
        }
    }

    /// The dearest that a token of each side can cost: what a hold must have, whatever kinds of tokens the provider reports.
    pub fn dearest(&self, prices: &KindPrices) -> Pricing {
        Pricing {
            prompt: larger(larger(self.prompt, prices.input_cache_read), prices.input_cache_write),
            completion: larger(self.completion, prices.internal_reasoning),
        }
    }
}

fn larger(one: ListPrice, other: Option<ListPrice>) -> ListPrice {
    match other {
        Some(other) if other.units() > one.units() => other,
        _ => one,
    }
}

#[cfg(test)]
mod tests;
