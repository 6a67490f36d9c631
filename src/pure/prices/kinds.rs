//! Prices of single kinds of tokens, beside those of their sides.
//!
//! The kinds partition a side: a token that was read from a cache is none that was written to one. A kind without a price of its own costs
//! what its side costs, so a model with two prices costs what the interface's formula says, digit by digit.

use serde::Serialize;

use super::asks::{Asks, CacheWrites};
use super::hold::{HoldPrices, larger};
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
    /// Per prompt token that it wrote for an hour; without it, as any that it wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cache_write_1h: Option<ListPrice>,
    /// Per prompt token of sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<ListPrice>,
    /// Per prompt token of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ListPrice>,
    /// Per completion token of hidden reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_reasoning: Option<ListPrice>,
    /// Per completion token of sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_output: Option<ListPrice>,
    /// Per completion token of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_output: Option<ListPrice>,
    /// Per call that used any token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ListPrice>,
}

impl KindPrices {
    /// The prices of tokens with their names, as the catalogue has them.
    pub fn named(&self) -> [(&'static str, Option<ListPrice>); 8] {
        [
            ("input_cache_read", self.input_cache_read),
            ("input_cache_write", self.input_cache_write),
            ("input_cache_write_1h", self.input_cache_write_1h),
            ("audio", self.audio),
            ("image", self.image),
            ("internal_reasoning", self.internal_reasoning),
            ("audio_output", self.audio_output),
            ("image_output", self.image_output),
        ]
    }

    /// Each kind's tokens and price: those of the prompt, then those of the completion.
    fn of(&self, tokens: TokenKinds) -> [[(u64, Option<ListPrice>); 5]; 2] {
        let write_1h = self.input_cache_write_1h.or(self.input_cache_write);
        [
            [
                (tokens.cache_read, self.input_cache_read),
                (tokens.cache_write, self.input_cache_write),
                (tokens.cache_write_1h, write_1h),
                (tokens.audio, self.audio),
                (tokens.image, self.image),
            ],
            [
                (tokens.reasoning, self.internal_reasoning),
                (tokens.audio_output, self.audio_output),
                (tokens.image_output, self.image_output),
                (0, None),
                (0, None),
            ],
        ]
    }
}

impl Pricing {
    /// [`Pricing::cost`] of tokens of which some have prices of their own: the sum of the tokens of each kind times its price, and the price
    /// of the call, rounded once, half to even, at 10^-12 credit.
    ///
    /// # Errors
    /// Beyond the range of [`Credits`], or when a side has fewer tokens than its kinds ([`TokenKinds::within`] makes them fit).
    pub fn cost_by_kind(&self, usage: Usage, tokens: TokenKinds, prices: &KindPrices) -> Result<Credits, MoneyError> {
        if *prices == KindPrices::default() {
            return self.cost(usage);
        }
        let [of_prompt, of_completion] = prices.of(tokens);
        let sides = [
            (usage.prompt.0, self.prompt, of_prompt),
            (usage.completion.0, self.completion, of_completion),
        ];
        let is_unused = usage == Usage::default();
        let request = prices.request.filter(|_| !is_unused).map_or(0, ListPrice::units);
        let units = sides.into_iter().try_fold(request, |sum, (all, price, kinds)| {
            let (mut sum, mut plain) = (sum, all);
            for (tokens, own) in kinds {
                plain = plain.checked_sub(tokens)?;
                sum = sum.checked_add(u128::from(tokens).checked_mul(own.unwrap_or(price).units())?)?;
            }
            sum.checked_add(u128::from(plain).checked_mul(price.units())?)
        });
        rounded(units, usage)
    }

    /// The dearest that a call can come to that asks so: what a hold must have, whatever kinds of tokens the provider reports.
    pub fn dearest(&self, prices: &KindPrices, asks: &Asks<'_>) -> HoldPrices {
        let asked = |price: Option<ListPrice>, is_asked: bool| price.filter(|_| is_asked);
        let prompt = [
            prices.input_cache_read,
            prices.input_cache_write,
            asked(prices.input_cache_write_1h, asks.writes == CacheWrites::Hour),
            asked(prices.audio, asks.has_media),
            asked(prices.image, asks.has_media),
        ];
        let completion = [
            prices.internal_reasoning,
            asked(prices.audio_output, asks.wants_media),
            asked(prices.image_output, asks.wants_media),
        ];
        HoldPrices {
            pricing: Pricing {
                prompt: prompt.into_iter().fold(self.prompt, larger),
                completion: completion.into_iter().fold(self.completion, larger),
            },
            request: prices.request,
        }
    }
}

#[cfg(test)]
mod tests;
