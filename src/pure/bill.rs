//! What one call is billed: where its usage, its prices, what was admitted and what is held come together.
//!
//! Settlement debits by [`bill`], and an answer that tells its cost tells that of the same function before its last byte leaves: what a
//! customer reads is what the ledger takes.

use super::catalogue::Model;
use super::charge::{Ceiling, Charged, within_hold};
use super::estimate::Bound;
use super::money::{Credits, MoneyError};
use super::prices::PriceTable;
use super::prompt_count::counted_prompt;
use super::request_body::{PromptLimits, RequestBody};
use super::usage::{CompletionTokens, PromptTokens, TokenKinds, Usage};

/// What a call is billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bill {
    /// The tokens that are charged.
    pub usage: Usage,
    /// What kinds of tokens they are.
    pub kinds: TokenKinds,
    /// What they cost, at most what is held.
    pub cost: Credits,
    /// What was used beyond what was admitted, and is not charged.
    pub lost: Usage,
    /// By how much the cost would have been above the hold.
    pub cut: Option<Credits>,
}

/// By what a running call will be billed.
#[derive(Clone, Copy, Debug)]
pub struct Tariff<'a> {
    /// The model.
    pub model: &'a Model,
    /// The request.
    pub body: &'a RequestBody,
    /// The most that was admitted.
    pub ceiling: Ceiling,
    /// What is held.
    pub held: Credits,
}

/// Bills `usage` as far as it was admitted, and at most what is held.
///
/// # Errors
/// When the cost is beyond the range of [`Credits`].
pub fn bill(
    prices: &PriceTable,
    ceiling: &Ceiling,
    held: Credits,
    usage: Usage,
    kinds: TokenKinds,
) -> Result<Bill, MoneyError> {
    let Charged { usage, lost } = ceiling.charged(usage);
    let kinds = kinds.within(usage);
    let (cost, cut) = within_hold(prices.cost(usage, kinds)?, held);
    Ok(Bill {
        usage,
        kinds,
        cost,
        lost,
        cut,
    })
}

impl Bill {
    /// What of the cost is the prompt's; the rest is the completion's.
    pub fn prompt_cost(&self, prices: &PriceTable) -> Credits {
        let prompt = Usage {
            completion: CompletionTokens(0),
            ..self.usage
        };
        let kinds = TokenKinds {
            reasoning: 0,
            ..self.kinds
        };
        prices.cost(prompt, kinds).map_or(self.cost, |cost| cost.min(self.cost))
    }
}

impl Tariff<'_> {
    /// What the call is billed when it used so much and ends now. None where that is not known yet: the hold may be raised first, for more
    /// was used than the catalogue said there can be; and where it cannot be told.
    pub fn bill(&self, usage: Usage, kinds: TokenKinds) -> Option<Bill> {
        if self.ceiling.bound == Bound::Model && usage.completion > self.ceiling.completion {
            return None;
        }
        let kinds = if self.model.prices.has_kinds() {
            kinds
        } else {
            TokenKinds::default()
        };
        bill(&self.model.prices, &self.ceiling, self.held, usage, kinds).ok()
    }

    /// The prompt's tokens, counted as settlement counts them. None for a prompt that takes too long to count while its answer waits.
    pub fn counted_prompt(&self) -> Option<PromptTokens> {
        let is_short = self.body.prompt_bytes() <= COUNTED_INLINE_BYTES_MAX;
        is_short.then(|| counted_prompt(self.body, &self.model.id, &prompt_limits(self.model)))
    }
}

/// What the count of a prompt of the model is bounded by.
pub fn prompt_limits(model: &Model) -> PromptLimits {
    PromptLimits {
        image_tokens_each: model.image_tokens_max.unwrap_or(model.context_length),
        context_length: model.context_length,
    }
}

/// Prompts up to this many bytes are counted where the call ends (about 1 ms); longer ones on a thread of their own.
pub const COUNTED_INLINE_BYTES_MAX: u64 = 64 << 10;
