//! The prices of a model as the catalogue's file has them.

use serde::Deserialize;

use crate::pure::money::{Markup, Pricing, ProviderPrice};

use crate::pure::prices::{KindPrices, LongPromptRow, PriceRow, PriceTable};

/// What stands under `pricing`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrices {
    prompt: ProviderPrice,
    #[serde(default)]
    completion: Option<ProviderPrice>,
    #[serde(default)]
    input_cache_read: Option<ProviderPrice>,
    #[serde(default)]
    input_cache_write: Option<ProviderPrice>,
    #[serde(default)]
    internal_reasoning: Option<ProviderPrice>,
    #[serde(default)]
    overrides: Vec<RawOverride>,
}

/// The prices of long prompts; what is left out is as for others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    min_prompt_tokens: u64,
    #[serde(default)]
    prompt: Option<ProviderPrice>,
    #[serde(default)]
    completion: Option<ProviderPrice>,
    #[serde(default)]
    input_cache_read: Option<ProviderPrice>,
    #[serde(default)]
    input_cache_write: Option<ProviderPrice>,
    #[serde(default)]
    internal_reasoning: Option<ProviderPrice>,
}

impl RawPrices {
    /// The list prices. Errors with what makes no sense.
    pub(super) fn checked(&self, embedding: bool, markup: Markup) -> Result<PriceTable, &'static str> {
        // A model that answers with vectors has no completion. Of any other, missing is never zero.
        let completion = match self.completion {
            None if !embedding => return Err("pricing has no price for completion; \"0\" is free"),
            price => price.unwrap_or_default(),
        };
        if self.overrides.len() > OVERRIDES_MAX {
            return Err("pricing.overrides has more than 8 rows");
        }
        let list = |price: Option<ProviderPrice>| price.map(|price| price.with_markup(markup));
        let usual = PriceRow {
            pricing: Pricing {
                prompt: self.prompt.with_markup(markup),
                completion: completion.with_markup(markup),
            },
            kinds: KindPrices {
                input_cache_read: list(self.input_cache_read),
                input_cache_write: list(self.input_cache_write),
                internal_reasoning: list(self.internal_reasoning),
            },
        };
        let long = self.overrides.iter().map(|raw| LongPromptRow {
            min_prompt_tokens: raw.min_prompt_tokens,
            row: PriceRow {
                pricing: Pricing {
                    prompt: list(raw.prompt).unwrap_or(usual.pricing.prompt),
                    completion: list(raw.completion).unwrap_or(usual.pricing.completion),
                },
                kinds: KindPrices {
                    input_cache_read: list(raw.input_cache_read).or(usual.kinds.input_cache_read),
                    input_cache_write: list(raw.input_cache_write).or(usual.kinds.input_cache_write),
                    internal_reasoning: list(raw.internal_reasoning).or(usual.kinds.internal_reasoning),
                },
            },
        });
        PriceTable::new(usual, long.collect())
            .ok_or("pricing.overrides must begin with the smallest min_prompt_tokens, and have each but once")
    }
}

/// Rows for long prompts of one model, at most.
const OVERRIDES_MAX: usize = 8;
