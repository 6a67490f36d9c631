//! What of a receipt's price depends on more than how many tokens its sides have.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::pure::money::ListPrice;
use crate::pure::prices::KindPrices;
use crate::pure::usage::TokenKinds;

/// What a call's price depended on beside the tokens of its sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PricedBy {
    /// The kinds of tokens that were billed.
    pub kinds: TokenKinds,
    /// Their list prices.
    pub kind_prices: KindPrices,
    /// The tier by which its provider served it, as that says.
    pub service_tier: Option<Box<str>>,
    /// What the provider said that the call cost, where that is what was billed.
    pub provider_cost: Option<Decimal>,
}

/// Tokens of kinds that may have prices of their own, and those prices. A kind without a price costs what its side costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BilledKinds {
    /// Prompt tokens that the provider read from its cache.
    pub cache_read_tokens: u64,
    /// Prompt tokens that the provider wrote to its cache for the usual time.
    pub cache_write_tokens: u64,
    /// Completion tokens of hidden reasoning.
    pub reasoning_tokens: u64,
    /// The list price of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_price: Option<ListPrice>,
    /// The list price of the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_price: Option<ListPrice>,
    /// The list price of the third.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_price: Option<ListPrice>,
    /// Prompt tokens that the provider wrote to its cache for an hour.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_1h_tokens: u64,
    /// Prompt tokens of sound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub audio_tokens: u64,
    /// Prompt tokens of images.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub image_tokens: u64,
    /// Completion tokens of sound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub audio_output_tokens: u64,
    /// Completion tokens of images.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub image_output_tokens: u64,
    /// The list price of a prompt token that was written for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_1h_price: Option<ListPrice>,
    /// The list price of a prompt token of sound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_price: Option<ListPrice>,
    /// The list price of a prompt token of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_price: Option<ListPrice>,
    /// The list price of a completion token of sound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_output_price: Option<ListPrice>,
    /// The list price of a completion token of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_output_price: Option<ListPrice>,
    /// The list price of the call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_price: Option<ListPrice>,
}

/// The later part of [`BilledKinds`] as a store keeps it, in the order of its fields; prices are in 10^-24 credit.
pub(super) type MoreKinds = ([u64; 5], [Option<u128>; 6]);

impl PricedBy {
    /// As a receipt says it: the tokens also where the row by which they were billed has no prices of kinds.
    pub(super) fn kinds(&self) -> BilledKinds {
        let (tokens, prices) = (&self.kinds, &self.kind_prices);
        BilledKinds {
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            reasoning_tokens: tokens.reasoning,
            cache_read_price: prices.input_cache_read,
            cache_write_price: prices.input_cache_write,
            reasoning_price: prices.internal_reasoning,
            cache_write_1h_tokens: tokens.cache_write_1h,
            audio_tokens: tokens.audio,
            image_tokens: tokens.image,
            audio_output_tokens: tokens.audio_output,
            image_output_tokens: tokens.image_output,
            cache_write_1h_price: prices.input_cache_write_1h,
            audio_price: prices.audio,
            image_price: prices.image,
            audio_output_price: prices.audio_output,
            image_output_price: prices.image_output,
            request_price: prices.request,
        }
    }
}

impl BilledKinds {
    /// What earlier versions had no room for. None where there is nothing of it.
    pub(super) fn more(&self) -> Option<MoreKinds> {
        let units = |price: Option<ListPrice>| price.map(ListPrice::units);
        let more = (
            [
                self.cache_write_1h_tokens,
                self.audio_tokens,
                self.image_tokens,
                self.audio_output_tokens,
                self.image_output_tokens,
            ],
            [
                units(self.cache_write_1h_price),
                units(self.audio_price),
                units(self.image_price),
                units(self.audio_output_price),
                units(self.image_output_price),
                units(self.request_price),
            ],
        );
        (more != MoreKinds::default()).then_some(more)
    }

    /// With that part.
    pub(super) fn with(self, (tokens, prices): MoreKinds) -> BilledKinds {
        let [
            cache_write_1h_tokens,
            audio_tokens,
            image_tokens,
            audio_output_tokens,
            image_output_tokens,
        ] = tokens;
        let price = |units: Option<u128>| units.and_then(ListPrice::from_units);
        let [write_1h, audio, image, audio_output, image_output, request] = prices.map(price);
        BilledKinds {
            cache_write_1h_tokens,
            audio_tokens,
            image_tokens,
            audio_output_tokens,
            image_output_tokens,
            cache_write_1h_price: write_1h,
            audio_price: audio,
            image_price: image,
            audio_output_price: audio_output,
            image_output_price: image_output,
            request_price: request,
            ..self
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}
