//! What a call may be charged: what was admitted for it bounds every figure, whatever a provider reports or delivers.
//!
//! It decides nothing about what was used; settlement and the transport bring the figures. Nothing here rounds or knows a price.

use super::estimate::{Bound, WorstCase};
use super::money::Credits;
use super::tokens::Encoding;
use super::usage::{CompletionTokens, PromptTokens, Usage};

/// What was admitted for a call: the most that its sides can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The bound of the prompt.
    pub prompt: PromptTokens,
    /// The effective maximum of completion tokens, over all choices.
    pub completion: CompletionTokens,
    /// Who bounds the completion.
    pub bound: Bound,
}

/// A usage within what was admitted, and what of it is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// What is charged.
    pub usage: Usage,
    /// What exceeds the ceiling: the operator's loss.
    pub lost: Usage,
}

/// Text that was delivered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Its tokens, each piece counted on its own.
    pub tokens: CompletionTokens,
    /// Its length in bytes, unescaped.
    pub bytes: u64,
}

/// Where a running answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Within what was admitted, as far as can be told.
    Within,
    /// Beyond the client's own maximum: the answer is ended as one that has reached it.
    BeyondClient,
    /// Beyond what is held, where the client set no maximum: the hold is extended, or the answer is ended.
    BeyondHold,
}

impl Ceiling {
    /// Of a call that was not admitted.
    pub const NOTHING: Ceiling = Ceiling {
        prompt: PromptTokens(0),
        completion: CompletionTokens(0),
        bound: Bound::Client,
    };

    /// What a call of this worst case can use at most, when a choice may have at most `cap` tokens.
    pub fn of(worst: &WorstCase, cap: Option<u64>) -> Ceiling {
        let each = cap.map_or(worst.completion_each, |cap| cap.min(worst.completion_each));
        Ceiling {
            prompt: worst.prompt,
            completion: CompletionTokens(each.saturating_mul(worst.choices)),
            bound: worst.bound,
        }
    }

    /// The usage as far as it was admitted.
    pub fn charged(&self, usage: Usage) -> Charged {
        let within = Usage {
            prompt: usage.prompt.min(self.prompt),
            completion: usage.completion.min(self.completion),
        };
        Charged {
            usage: within,
            lost: Usage {
                prompt: PromptTokens(usage.prompt.0.saturating_sub(within.prompt.0)),
                completion: CompletionTokens(usage.completion.0.saturating_sub(within.completion.0)),
            },
        }
    }

    /// Where an answer stands of which so much was delivered.
    ///
    /// Beyond is only what no error of counting explains: another tokenizer may count 1.7 times as much, and a provider that sends its
    /// text in pieces smaller than tokens makes any count too high, but not the text longer.
    pub fn passing(&self, delivered: Delivered, encoding_is_known: bool) -> Passing {
        let max = self.completion.0;
        let (numerator, denominator) = if encoding_is_known { KNOWN_ERROR } else { FOREIGN_ERROR };
        let is_beyond = delivered.tokens.0.saturating_mul(denominator) > max.saturating_mul(numerator)
            && delivered.bytes > max.saturating_mul(LONG_TOKEN_BYTES);
        match (is_beyond, self.bound) {
            (false, _) => Passing::Within,
            (true, Bound::Client) => Passing::BeyondClient,
            (true, Bound::Model) => Passing::BeyondHold,
        }
    }

    /// The most that a provider can make of so many tokens of ours.
    pub fn counted_at_most(tokens: u64, encoding_is_known: bool) -> u64 {
        let (numerator, denominator) = if encoding_is_known { KNOWN_ERROR } else { FOREIGN_ERROR };
        tokens.saturating_mul(numerator).div_ceil(denominator)
    }

    /// Whether the counts of a model's text are its own tokenizer's.
    pub fn is_known(model_id: &str) -> bool {
        Encoding::is_known_for(model_id)
    }

    /// The completion of an answer whose hidden part was waited for and did not end: `tokens_per_second` for so long, at least what was
    /// delivered, at most what was admitted. Without a rate it is what was delivered.
    pub fn unseen(
        &self,
        delivered: CompletionTokens,
        tokens_per_second: Option<u32>,
        elapsed_ms: u64,
    ) -> CompletionTokens {
        let rate = u64::from(tokens_per_second.unwrap_or(0));
        let made = rate.saturating_mul(elapsed_ms) / 1000;
        CompletionTokens(made).max(delivered).min(self.completion)
    }
}

/// The charge of a call, never above what is held for it; what it would have been beyond that, when it was cut. That is the last line:
/// a ceiling keeps every charge within its hold already.
pub fn within_hold(cost: Credits, held: Credits) -> (Credits, Option<Credits>) {
    let held = held.max(Credits::ZERO);
    if cost <= held {
        (cost, None)
    } else {
        (held, Some(cost.saturating_sub(held)))
    }
}

/// By how much a count can exceed the provider's, as a fraction: with the model's own tokenizer, and with that of another family.
const KNOWN_ERROR: (u64, u64) = (101, 100);
const FOREIGN_ERROR: (u64, u64) = (17, 10);
/// Text has fewer bytes a token than this in every language; runs of blanks have more.
const LONG_TOKEN_BYTES: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling(completion: u64, bound: Bound) -> Ceiling {
        Ceiling {
            prompt: PromptTokens(100),
            completion: CompletionTokens(completion),
            bound,
        }
    }

    fn usage(prompt: u64, completion: u64) -> Usage {
        Usage {
            prompt: PromptTokens(prompt),
            completion: CompletionTokens(completion),
        }
    }

    fn delivered(tokens: u64, bytes: u64) -> Delivered {
        Delivered {
            tokens: CompletionTokens(tokens),
            bytes,
        }
    }

    #[test]
    fn a_charge_is_within_what_was_admitted_and_the_rest_is_lost() {
        let ceiling = ceiling(10, Bound::Client);
        for (used, charged, lost) in [
            (usage(100, 10), usage(100, 10), usage(0, 0)),
            (usage(101, 11), usage(100, 10), usage(1, 1)),
            (usage(0, u64::MAX), usage(0, 10), usage(0, u64::MAX - 10)),
        ] {
            assert_eq!(ceiling.charged(used), Charged { usage: charged, lost });
        }
    }

    #[test]
    fn a_cap_lowers_the_ceiling_and_every_choice_counts() {
        let worst = WorstCase {
            prompt: PromptTokens(5),
            completion_each: 50,
            least_each: 1,
            choices: 3,
            bound: Bound::Model,
        };
        assert_eq!(Ceiling::of(&worst, None).completion.0, 150);
        assert_eq!(Ceiling::of(&worst, Some(7)).completion.0, 21);
        assert_eq!(Ceiling::of(&worst, Some(70)).completion.0, 150);
    }

    #[test]
    fn an_answer_is_beyond_only_where_no_error_of_counting_explains_it() {
        let (client, model) = (ceiling(100, Bound::Client), ceiling(100, Bound::Model));
        for (text, known, beyond) in [
            (delivered(100, 100_000), true, false),
            (delivered(101, 100_000), true, false),
            (delivered(102, 100_000), true, true),
            (delivered(170, 100_000), false, false),
            (delivered(171, 100_000), false, true),
            // A letter at a time: 450 counted pieces are 100 tokens of the provider's.
            (delivered(450, 450), true, false),
            (delivered(800, 800), true, false),
            (delivered(801, 801), true, true),
            (delivered(u64::MAX, u64::MAX), false, true),
        ] {
            let expected = |end| if beyond { end } else { Passing::Within };
            assert_eq!(client.passing(text, known), expected(Passing::BeyondClient), "{text:?}");
            assert_eq!(model.passing(text, known), expected(Passing::BeyondHold), "{text:?}");
        }
    }

    #[test]
    fn hidden_work_is_charged_by_its_time_within_the_ceiling() {
        let ceiling = ceiling(1_000, Bound::Model);
        let unseen = |delivered, rate, ms| ceiling.unseen(CompletionTokens(delivered), rate, ms).0;
        assert_eq!(unseen(2, None, 60_000), 2);
        assert_eq!(unseen(2, Some(50), 10_500), 525);
        assert_eq!(unseen(2, Some(50), 120_000), 1_000);
        assert_eq!(unseen(600, Some(50), 1_000), 600);
        assert_eq!(unseen(0, Some(u32::MAX), u64::MAX), 1_000);
    }

    #[test]
    fn no_charge_is_above_its_hold() {
        let credits = |text: &str| text.parse::<Credits>().unwrap();
        assert_eq!(within_hold(credits("1"), credits("1")), (credits("1"), None));
        assert_eq!(
            within_hold(credits("3"), credits("1")),
            (credits("1"), Some(credits("2")))
        );
        assert_eq!(
            within_hold(credits("3"), credits("-1")),
            (Credits::ZERO, Some(credits("3")))
        );
    }

    #[test]
    fn only_the_tokenizer_of_one_family_is_known() {
        for (model, is_known) in [("openai/gpt-4o", true), ("anthropic/claude", false), ("gpt-4o", false)] {
            assert_eq!(Ceiling::is_known(model), is_known, "{model}");
        }
    }
}
