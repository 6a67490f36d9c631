//! Rows of prices: the usual one, and those of long prompts.

use serde::Serialize;

use super::asks::Asks;
use super::hold::HoldPrices;
use super::kinds::KindPrices;
use crate::pure::money::{Credits, MoneyError, Pricing};
use crate::pure::usage::{PromptTokens, TokenKinds, Usage};

/// A row of prices: those of both sides, and those of kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PriceRow {
    /// Per token of a side.
    #[serde(flatten)]
    pub pricing: Pricing,
    /// Per token of a kind that has a price of its own.
    #[serde(flatten)]
    pub kinds: KindPrices,
}

/// A row for prompts of more than so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LongPromptRow {
    /// The row holds for prompts of more tokens than this, cached and written ones among them.
    pub min_prompt_tokens: u64,
    /// Its prices: of the whole call.
    #[serde(flatten)]
    pub row: PriceRow,
}

/// A usual row, and rows for long prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriceRows {
    #[serde(flatten)]
    usual: PriceRow,
    #[serde(rename = "overrides", skip_serializing_if = "Vec::is_empty")]
    long: Vec<LongPromptRow>,
}

impl PriceRow {
    /// What a call costs at its prices.
    ///
    /// # Errors
    /// As [`Pricing::cost_by_kind`].
    pub fn cost(&self, usage: Usage, kinds: TokenKinds) -> Result<Credits, MoneyError> {
        self.pricing.cost_by_kind(usage, kinds, &self.kinds)
    }

    fn dearest(&self, asks: &Asks<'_>) -> HoldPrices {
        self.pricing.dearest(&self.kinds, asks)
    }
}

impl PriceRows {
    /// None when the rows for long prompts are not in the order of their prompts.
    pub fn new(usual: PriceRow, long: Vec<LongPromptRow>) -> Option<PriceRows> {
        let is_ordered = long.is_sorted_by(|one, next| one.min_prompt_tokens < next.min_prompt_tokens);
        is_ordered.then_some(PriceRows { usual, long })
    }

    /// The row of a call whose prompt has so many tokens.
    pub fn row(&self, prompt: PromptTokens) -> &PriceRow {
        let within = self.long.partition_point(|long| prompt.0 > long.min_prompt_tokens);
        match within.checked_sub(1).and_then(|at| self.long.get(at)) {
            Some(long) => &long.row,
            None => &self.usual,
        }
    }

    /// The row of all but long prompts.
    pub fn usual(&self) -> &PriceRow {
        &self.usual
    }

    /// The rows for long prompts, shortest first.
    pub fn long(&self) -> &[LongPromptRow] {
        &self.long
    }

    /// The dearest of all rows that a prompt of at most so many tokens can reach.
    pub(super) fn hold(&self, prompt_bound: PromptTokens, asks: &Asks<'_>) -> HoldPrices {
        let reached = self
            .long
            .iter()
            .take_while(|long| prompt_bound.0 > long.min_prompt_tokens);
        reached.fold(self.usual.dearest(asks), |dearest, long| {
            dearest.dearer(&long.row.dearest(asks))
        })
    }

    /// All its rows.
    pub(super) fn all(&self) -> impl Iterator<Item = &PriceRow> {
        std::iter::once(&self.usual).chain(self.long.iter().map(|long| &long.row))
    }
}
