//! All prices of a model: its usual row, and rows for long prompts.

use serde::Serialize;

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

/// A model's prices as its listing shows them, and what is held for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriceTable {
    #[serde(flatten)]
    usual: PriceRow,
    #[serde(rename = "overrides", skip_serializing_if = "Vec::is_empty")]
    long: Vec<LongPromptRow>,
    /// The dearest that a token can cost with the usual row, and with each row for long prompts or one before it.
    #[serde(skip)]
    hold: Vec<Pricing>,
}

impl PriceTable {
    /// The prices of a model. None when the rows for long prompts are not in the order of their prompts.
    pub fn new(usual: PriceRow, long: Vec<LongPromptRow>) -> Option<PriceTable> {
        let is_ordered = long.is_sorted_by(|one, next| one.min_prompt_tokens < next.min_prompt_tokens);
        let mut hold = vec![usual.pricing.dearest(&usual.kinds)];
        for LongPromptRow { row, .. } in &long {
            let dearest = row.pricing.dearest(&row.kinds);
            let before = hold.last().copied().unwrap_or(dearest);
            hold.push(before.dearer(&dearest));
        }
        is_ordered.then_some(PriceTable { usual, long, hold })
    }

    /// The row of a call whose prompt has so many tokens.
    pub fn row(&self, prompt: PromptTokens) -> &PriceRow {
        match self.rows_within(prompt).checked_sub(1).and_then(|at| self.long.get(at)) {
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

    /// The dearest that a token of each side can cost in a call whose prompt has at most so many tokens: what its hold is made of.
    pub fn hold(&self, prompt_bound: PromptTokens) -> &Pricing {
        let at = self.rows_within(prompt_bound);
        self.hold.get(at).unwrap_or(&self.usual.pricing)
    }

    /// What a call costs: its row is that of its prompt.
    ///
    /// # Errors
    /// As [`Pricing::cost_by_kind`].
    pub fn cost(&self, usage: Usage, kinds: TokenKinds) -> Result<Credits, MoneyError> {
        let row = self.row(usage.prompt);
        row.pricing.cost_by_kind(usage, kinds, &row.kinds)
    }

    /// Whether a kind of token has a price of its own, in any row.
    pub fn has_kinds(&self) -> bool {
        let mut rows = std::iter::once(&self.usual).chain(self.long.iter().map(|long| &long.row));
        rows.any(|row| row.kinds != KindPrices::default())
    }

    /// Whether no call costs anything.
    pub fn is_free(&self) -> bool {
        self.hold.last().is_some_and(Pricing::is_free)
    }

    /// How many of the rows for long prompts begin below so many tokens.
    fn rows_within(&self, prompt: PromptTokens) -> usize {
        self.long.partition_point(|long| prompt.0 > long.min_prompt_tokens)
    }
}

#[cfg(test)]
mod tests;
