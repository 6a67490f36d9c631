//! How much a call has to hold: its worst case, so that overspending is impossible.

use super::money::{Credits, MoneyError};
use super::prices::HoldPrices;
use super::usage::{CompletionTokens, PromptTokens, Usage};

/// Who bounds the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The request's own `max_completion_tokens` or `max_tokens`.
    Client,
    /// The model's maximum, since the request sets none: the gateway may lower it to what is affordable.
    Model,
}

/// The most that a call can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstCase {
    /// Upper bound of the prompt.
    pub prompt: PromptTokens,
    /// Most completion tokens of one choice.
    pub completion_each: u64,
    /// The fewest with which the call makes sense: fewer are not worth sending, or the provider refuses them.
    pub least_each: u64,
    /// Number of choices (`n`), at least 1.
    pub choices: u64,
    /// Who set the completion's bound.
    pub bound: Bound,
}

/// What to ask the ledger for: `wanted`, or as much as there is as long as it is not below `at_least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRange {
    /// The worst case's cost.
    pub wanted: Credits,
    /// The least with which the call makes sense: the same, or the prompt and the fewest tokens of each choice where the gateway may
    /// lower the maximum.
    pub at_least: Credits,
}

impl WorstCase {
    /// The amounts to hold.
    ///
    /// # Errors
    /// When the worst case costs more than any account can have.
    pub fn hold(&self, pricing: &HoldPrices) -> Result<HoldRange, MoneyError> {
        let wanted = self.cost(pricing, self.completion_each)?;
        let at_least = match self.bound {
            Bound::Client => wanted,
            Bound::Model => self.cost(pricing, self.completion_each.min(self.least_each.max(1)))?,
        };
        Ok(HoldRange { wanted, at_least })
    }

    /// How many completion tokens a choice may have so that the call costs at most `granted`; never above the bound, and
    /// nothing when not even one is covered.
    pub fn affordable_each(&self, granted: Credits, pricing: &HoldPrices) -> Option<u64> {
        let all = pricing.affordable_completion(granted, self.prompt)?;
        let each = all.checked_div(self.choices.max(1))?.min(self.completion_each);
        (each > 0 || self.completion_each == 0).then_some(each)
    }

    /// The longest prompt, in tokens, beside which `amount` pays for one completion token of each choice, where the call has completions;
    /// 0 when it does for none. With a longer one [`WorstCase::affordable_each`] is nothing.
    pub fn affordable_prompt(&self, amount: Credits, pricing: &HoldPrices) -> u64 {
        let completion = CompletionTokens(self.completion_each.min(1).saturating_mul(self.choices));
        pricing.affordable_prompt(amount, completion).unwrap_or(0)
    }

    /// Tokens that the tokens-a-minute limit is charged with until the real number is known.
    pub fn estimated_tokens(&self, prompt_estimate: u64) -> u64 {
        let completion = match self.bound {
            Bound::Client => self.completion_each.saturating_mul(self.choices),
            Bound::Model => 0,
        };
        prompt_estimate.saturating_add(completion)
    }

    fn cost(&self, pricing: &HoldPrices, completion_each: u64) -> Result<Credits, MoneyError> {
        let completion = CompletionTokens(completion_each.saturating_mul(self.choices));
        pricing.cost_at_most(Usage {
            prompt: self.prompt,
            completion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::money::{Markup, Pricing};

    fn pricing() -> HoldPrices {
        let price = |text: &str| {
            text.parse::<crate::pure::money::ProviderPrice>()
                .unwrap()
                .with_markup(Markup::default())
        };
        HoldPrices::from(Pricing {
            prompt: price("0.000001"),
            completion: price("0.000002"),
        })
    }

    fn worst(completion_each: u64, choices: u64, bound: Bound) -> WorstCase {
        WorstCase {
            prompt: PromptTokens(1000),
            completion_each,
            least_each: 1,
            choices,
            bound,
        }
    }

    #[test]
    fn a_client_bound_is_all_or_nothing_and_a_model_bound_may_shrink() {
        let range = worst(500, 2, Bound::Client).hold(&pricing()).unwrap();
        assert_eq!(range.wanted.to_string(), "0.00345");
        assert_eq!(range.at_least, range.wanted);
        let range = worst(500, 2, Bound::Model).hold(&pricing()).unwrap();
        assert_eq!(range.at_least.to_string(), "0.0011546");
        let demanding = WorstCase {
            least_each: 100,
            ..worst(500, 2, Bound::Model)
        };
        assert_eq!(demanding.hold(&pricing()).unwrap().at_least.to_string(), "0.00161");
    }

    #[test]
    fn what_is_affordable_costs_no_more_than_what_was_granted() {
        let worst = worst(500, 2, Bound::Model);
        let granted: Credits = "0.0015".parse().unwrap();
        let each = worst.affordable_each(granted, &pricing()).unwrap();
        assert_eq!(each, 76);
        assert!(worst.cost(&pricing(), each).unwrap() <= granted);
        assert!(worst.cost(&pricing(), each + 1).unwrap() > granted);
        assert_eq!(worst.affordable_each("0.00115".parse().unwrap(), &pricing()), None);
        assert_eq!(worst.affordable_each(Credits::MAX, &pricing()), Some(500));
    }

    #[test]
    fn the_longest_prompt_that_can_be_paid_leaves_a_token_of_each_choice() {
        for (completion_each, bound, amount, longest) in [
            (500_u64, Bound::Client, "0.0011546", 1_000_u64),
            (500, Bound::Model, "0.0011546", 1_000),
            (500, Bound::Client, "0.001154599999", 999),
            (500, Bound::Client, "0.0000045", 0),
            (500, Bound::Client, "-1", 0),
            (0, Bound::Client, "0.00115", 1_000),
        ] {
            let amount: Credits = amount.parse().unwrap();
            let of = |prompt| WorstCase {
                prompt: PromptTokens(prompt),
                ..worst(completion_each, 2, bound)
            };
            assert_eq!(of(1).affordable_prompt(amount, &pricing()), longest, "{amount}");
            if longest > 0 {
                let each = [longest, longest + 1].map(|prompt| of(prompt).affordable_each(amount, &pricing()));
                assert_eq!(each, [Some(completion_each.min(1)), None], "{amount}");
            }
        }
    }

    #[test]
    fn an_estimate_has_the_completion_that_the_client_bounds() {
        for (bound, tokens) in [(Bound::Client, 7 + 150), (Bound::Model, 7)] {
            let worst = WorstCase {
                prompt: PromptTokens(5),
                completion_each: 50,
                least_each: 1,
                choices: 3,
                bound,
            };
            assert_eq!(worst.estimated_tokens(7), tokens, "{bound:?}");
        }
    }
}
