//! What one call is billed: where its usage, its prices, what was admitted and what is held come together.
//!
//! Settlement debits by [`bill`], and an answer that tells its cost tells that of the same function before its last byte leaves: what a
//! customer reads is what the ledger takes.

use rust_decimal::Decimal;

use super::catalogue::Model;
use super::charge::{Ceiling, Charged, within_hold};
use super::estimate::Bound;
use super::money::{Credits, Markup, MoneyError};
use super::prices::PriceTable;
use super::prompt_count::counted_prompt;
use super::request_body::{PromptBounds, PromptLimits, RequestBody};
use super::usage::{CompletionTokens, PromptTokens, Reports, TokenKinds, Usage};

/// What an answer was used for, as far as that decides what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used<'a> {
    /// The tokens of its sides.
    pub usage: Usage,
    /// What kinds of tokens they are.
    pub kinds: TokenKinds,
    /// The tier by which its provider served it, as that says.
    pub tier: Option<&'a str>,
    /// What it cost at the provider, where that is what is billed: with the markup.
    pub cost: Option<(Decimal, Markup)>,
}

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
    pub ceiling: &'a Ceiling,
    /// What is held.
    pub held: Credits,
    /// The markup on what the provider says that the call cost it, where that is what is billed.
    pub cost_markup: Option<&'a Markup>,
}

/// Bills what was `used` as far as it was admitted, and at most what is held.
///
/// # Errors
/// When the cost is beyond the range of [`Credits`].
pub fn bill(prices: &PriceTable, ceiling: &Ceiling, held: Credits, used: &Used<'_>) -> Result<Bill, MoneyError> {
    let Charged { usage, lost } = ceiling.charged(used.usage);
    let kinds = used.kinds.within(usage);
    let cost = match used.cost {
        Some((cost, markup)) => markup.on(cost)?,
        None => prices.cost(usage, kinds, used.tier)?,
    };
    // What the provider says that the call cost it is all of it: no token of that is unpaid.
    let lost = if used.cost.is_some() { Usage::default() } else { lost };
    let (cost, cut) = within_hold(cost, held);
    Ok(Bill {
        usage,
        kinds,
        cost,
        lost,
        cut,
    })
}

/// Bills all of a completion that is longer than the catalogue said that there can be, where what is held pays for it. None where it does
/// not, or where the client itself set the maximum.
pub fn bill_beyond(prices: &PriceTable, ceiling: &Ceiling, held: Credits, used: &Used<'_>) -> Option<Bill> {
    let all = Ceiling {
        completion: ceiling.completion.max(used.usage.completion),
        ..*ceiling
    };
    let bill = bill(prices, &all, held, used).ok();
    bill.filter(|bill| bill.cut.is_none() && ceiling.bound == Bound::Model)
}

impl Tariff<'_> {
    /// What the call is billed when it used so much and ends now. None where that is not known yet: the hold may be raised first, for more
    /// was used than the catalogue said there can be; and where it cannot be told.
    pub fn bill(&self, used: &Used<'_>) -> Option<Bill> {
        if self.ceiling.bound == Bound::Model && used.usage.completion > self.ceiling.completion {
            return None;
        }
        // Where the provider's own cost is billed, its receipt says of what kinds the tokens are.
        let used = if self.model.prices.is_simple() && used.cost.is_none() {
            Used {
                kinds: TokenKinds::default(),
                tier: None,
                ..*used
            }
        } else {
            *used
        };
        bill(&self.model.prices, self.ceiling, self.held, &used).ok()
    }

    /// What of a bill's cost its prompt makes; the rest is the completion's. None where the provider's own cost is billed.
    pub(super) fn prompt_cost(&self, bill: &Bill, used: &Used<'_>) -> Option<Credits> {
        let usage = Usage {
            completion: CompletionTokens(0),
            ..bill.usage
        };
        let row = self.model.prices.billed_row(bill.usage, bill.kinds, used.tier);
        let cost = row.cost(usage, bill.kinds.within(usage)).ok()?;
        used.cost.is_none().then(|| cost.min(bill.cost))
    }

    /// The prompt's tokens, counted as settlement counts them. None for a prompt that takes too long to count while its answer waits.
    pub fn counted_prompt(&self) -> Option<PromptTokens> {
        let is_short = self.body.visited_bytes() <= COUNTED_INLINE_BYTES_MAX;
        is_short.then(|| counted_prompt(self.body, &self.model.id, &prompt_limits(self.model)))
    }

    /// What is billed where the provider's own cost of it is.
    pub(super) fn provider_cost(&self, reports: &Reports, usage: Usage) -> Option<(Decimal, Markup)> {
        let markup = *self.cost_markup?;
        reports.cost_of(usage).map(|cost| (cost, markup))
    }
}

/// What the count of a prompt of the model is bounded by.
pub fn prompt_limits(model: &Model) -> PromptLimits {
    PromptLimits {
        image_tokens_each: model.image_tokens_max.unwrap_or(model.context_length),
        context_length: model.context_length,
    }
}

/// What a prompt of the model is bounded by, but for what its provider adds to it.
pub fn prompt_bounds(model: &Model) -> PromptBounds {
    PromptBounds {
        image_tokens_each: model.image_tokens_max,
        audio_tokens_each: model.audio_tokens_max,
        file_tokens_each: model.file_tokens_max,
        overhead_tokens: 0,
        context_length: model.context_length,
    }
}

/// Prompts for which no more bytes than this are read are counted where the call ends (about 1 ms); others on a thread of their own.
pub const COUNTED_INLINE_BYTES_MAX: u64 = 64 << 10;
