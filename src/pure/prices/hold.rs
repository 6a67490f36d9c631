//! What a call is held by: the dearest that it can come to.

use crate::pure::money::{Credits, ListPrice, MoneyError, Pricing};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// The dearest that a token of each side can cost, and what the call costs beside its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldPrices {
    /// Per token of a side.
    pub pricing: Pricing,
    /// Per call. None where it has no price of its own.
    pub request: Option<ListPrice>,
}

impl HoldPrices {
    /// What so much costs at most, rounded up: what a hold must have so that it covers the exact cost.
    ///
    /// # Errors
    /// Beyond the range of [`Credits`].
    pub fn cost_at_most(&self, usage: Usage) -> Result<Credits, MoneyError> {
        self.pricing.cost_at_most(usage, self.request)
    }

    /// How many completion tokens `amount` pays for beside the call and `prompt` tokens: see [`Pricing::affordable_completion`].
    pub fn affordable_completion(&self, amount: Credits, prompt: PromptTokens) -> Option<u64> {
        self.pricing.affordable_completion(amount, prompt, self.request)
    }

    /// How many prompt tokens `amount` pays for beside the call and `completion` tokens: see [`Pricing::affordable_prompt`].
    pub fn affordable_prompt(&self, amount: Credits, completion: CompletionTokens) -> Option<u64> {
        self.pricing.affordable_prompt(amount, completion, self.request)
    }

    /// Whether no call costs anything.
    pub fn is_free(&self) -> bool {
        self.pricing.is_free() && self.request.is_none_or(ListPrice::is_zero)
    }

    /// The larger of both prices of each.
    pub(super) fn dearer(&self, other: &HoldPrices) -> HoldPrices {
        HoldPrices {
            pricing: Pricing {
                prompt: larger(self.pricing.prompt, Some(other.pricing.prompt)),
                completion: larger(self.pricing.completion, Some(other.pricing.completion)),
            },
            request: match (self.request, other.request) {
                (Some(one), other) => Some(larger(one, other)),
                (None, other) => other,
            },
        }
    }
}

impl From<Pricing> for HoldPrices {
    fn from(pricing: Pricing) -> HoldPrices {
        HoldPrices { pricing, request: None }
    }
}

pub(super) fn larger(one: ListPrice, other: Option<ListPrice>) -> ListPrice {
    match other {
        Some(other) if other.units() > one.units() => other,
        _ => one,
    }
}
