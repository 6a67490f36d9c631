//! The prices of a model as the catalogue's file has them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::prices::{KindPrices, LongPromptRow, PriceRow, PriceRows, PriceTable};

/// A row of the file, with members of its own beside the prices: what is left out is as in the row that it stands in.
macro_rules! raw_row {
    ($(#[$about:meta])* $name:ident { $($own:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(#[serde(default)] $own: $kind,)*
            #[serde(default)]
            prompt: Option<ProviderPrice>,
            #[serde(default)]
            completion: Option<ProviderPrice>,
            #[serde(default)]
            input_cache_read: Option<ProviderPrice>,
            #[serde(default)]
            input_cache_write: Option<ProviderPrice>,
            #[serde(default)]
            input_cache_write_1h: Option<ProviderPrice>,
            #[serde(default)]
            audio: Option<ProviderPrice>,
            #[serde(default)]
            image: Option<ProviderPrice>,
            #[serde(default)]
            internal_reasoning: Option<ProviderPrice>,
            #[serde(default)]
            audio_output: Option<ProviderPrice>,
            #[serde(default)]
            image_output: Option<ProviderPrice>,
            #[serde(default)]
            request: Option<ProviderPrice>,
        }

        impl $name {
            /// The list prices, with those of `usual` where the row has none.
            fn over(&self, usual: &PriceRow, markup: Markup) -> PriceRow {
                let list = |own: Option<ProviderPrice>| own.map(|price| price.with_markup(markup));
                let kind = |own: Option<ProviderPrice>, usual: Option<ListPrice>| list(own).or(usual);
                let kinds = &usual.kinds;
                PriceRow {
                    pricing: Pricing {
                        prompt: list(self.prompt).unwrap_or(usual.pricing.prompt),
                        completion: list(self.completion).unwrap_or(usual.pricing.completion),
                    },
                    kinds: KindPrices {
                        input_cache_read: kind(self.input_cache_read, kinds.input_cache_read),
                        input_cache_write: kind(self.input_cache_write, kinds.input_cache_write),
                        input_cache_write_1h: kind(self.input_cache_write_1h, kinds.input_cache_write_1h),
                        audio: kind(self.audio, kinds.audio),
                        image: kind(self.image, kinds.image),
                        internal_reasoning: kind(self.internal_reasoning, kinds.internal_reasoning),
                        audio_output: kind(self.audio_output, kinds.audio_output),
                        image_output: kind(self.image_output, kinds.image_output),
                        request: kind(self.request, kinds.request),
                    },
                }
            }
        }
    };
}

raw_row! {
    /// What stands under `pricing`.
    RawPrices {
        overrides: Vec<RawOverride>,
        tiers: BTreeMap<String, RawTier>,
    }
}

raw_row! {
    /// What stands under `pricing.tiers.NAME`.
    RawTier {
        overrides: Vec<RawOverride>,
    }
}

raw_row! {
    /// What stands under `overrides`.
    RawOverride {
        min_prompt_tokens: Option<u64>,
    }
}

impl RawPrices {
    /// The list prices. Errors with what makes no sense.
    pub(super) fn checked(&self, embedding: bool, markup: Markup) -> Result<PriceTable, String> {
        // Missing is never zero; but a model that answers with vectors has no completion.
        let Some(prompt) = self.prompt else {
            return Err("pricing has no price for prompt; \"0\" is free".to_owned());
        };
        let completion = match self.completion {
            None if !embedding => return Err("pricing has no price for completion; \"0\" is free".to_owned()),
            price => price.unwrap_or_default(),
        };
        let sides = PriceRow {
            pricing: Pricing {
                prompt: prompt.with_markup(markup),
                completion: completion.with_markup(markup),
            },
            kinds: KindPrices::default(),
        };
        let usual = self.over(&sides, markup);
        let rows = rows("pricing", usual, &self.overrides, markup)?;
        if self.tiers.len() > TIERS_MAX {
            return Err(format!("pricing.tiers has more than {TIERS_MAX}"));
        }
        let tiers = self.tiers.iter().map(|(name, raw)| {
            let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
            if name.is_empty() || name.len() > TIER_NAME_MAX || !name.bytes().all(is_name) {
                return Err(format!(
                    "pricing.tiers: {name:?} is no tier's name: lower case letters, digits, _ and -"
                ));
            }
            let rows = self::rows(
                &format!("pricing.tiers.{name}"),
                raw.over(&usual, markup),
                &raw.overrides,
                markup,
            )?;
            Ok((Box::from(name.as_str()), rows))
        });
        Ok(PriceTable::of(rows, tiers.collect::<Result<_, String>>()?))
    }
}

fn rows(at: &str, usual: PriceRow, long: &[RawOverride], markup: Markup) -> Result<PriceRows, String> {
    if long.len() > OVERRIDES_MAX {
        return Err(format!("{at}.overrides has more than {OVERRIDES_MAX} rows"));
    }
    let long = long.iter().map(|raw| {
        let min_prompt_tokens = raw
            .min_prompt_tokens
            .ok_or_else(|| format!("{at}.overrides: a row has no min_prompt_tokens"))?;
        let row = raw.over(&usual, markup);
        Ok(LongPromptRow { min_prompt_tokens, row })
    });
    PriceRows::new(usual, long.collect::<Result<_, String>>()?)
        .ok_or_else(|| format!("{at}.overrides must begin with the smallest min_prompt_tokens, and have each but once"))
}

/// Rows for long prompts of one model or tier, at most.
pub(in crate::pure) const OVERRIDES_MAX: usize = 8;
/// Tiers of one model, at most.
const TIERS_MAX: usize = 8;
/// Longest name of a tier, as answers are read.
const TIER_NAME_MAX: usize = 32;
