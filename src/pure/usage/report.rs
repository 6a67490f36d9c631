//! One `usage` object of a provider, under whatever names it reports, and whether it can be true.

use rust_decimal::Decimal;
use serde::Deserialize;

use super::kinds::TokenKinds;
use super::tokens::{Figure, TOKENS_MAX};

/// One `usage` object as it was read, before it is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `prompt_tokens`.
    pub prompt: Figure,
    /// `completion_tokens`.
    pub completion: Figure,
    /// `total_tokens`; it serves to find a side that is missing, and to tell whether reasoning stands beside the completion.
    pub total: Figure,
    /// The largest of the details of the completion that have no price of their own.
    pub completion_detail: Figure,
    /// Prompt tokens that were read from a cache; one of the details of the prompt.
    pub cache_read: Figure,
    /// `cached_tokens` beside the sides (Moonshot reports so): the same, where the details name none.
    pub cached: Figure,
    /// Prompt tokens that were written to a cache; one of the details of the prompt.
    pub cache_write: Figure,
    /// `prompt_tokens_details.audio_tokens`. Sound that was read from the cache is in both.
    pub audio: Figure,
    /// `prompt_tokens_details.image_tokens`.
    pub image: Figure,
    /// `completion_tokens_details.reasoning_tokens`. Part of the completion, unless the total says that it stands beside it.
    pub reasoning: Figure,
    /// `reasoning_tokens` beside the sides (SGLang reports so): the same, where the details name none.
    pub reasoning_beside: Figure,
    /// `completion_tokens_details.audio_tokens`.
    pub audio_output: Figure,
    /// `completion_tokens_details.image_tokens`.
    pub image_output: Figure,
    /// What Anthropic reports.
    pub buckets: Buckets,
    /// The provider's own cost of the call, in its currency: 0 or more. None where it names none, or one that cannot be.
    pub cost: Option<Decimal>,
    /// `estimated_cost` (DeepInfra reports so): the same, where there is no other.
    pub estimated_cost: Option<Decimal>,
    /// `is_byok`: the provider is an aggregator that called the model's own provider with the operator's key. Then its cost is its fee alone.
    pub is_byok: bool,
    /// `cost_details.upstream_inference_cost`: what the model's own provider charges then. As [`Report::cost`].
    pub upstream_cost: Option<Decimal>,
}

/// Where a provider's reports name the completion that it charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompletionFrom {
    /// As the completion, or beside it as a figure of reasoning.
    #[default]
    Report,
    /// In the total alone: what it has beyond prompt and completion is reasoning that nothing else names. Google's OpenAI-compatible
    /// address reports so: `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":105}`.
    Total,
}

/// How the reports of an answer are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// Where the provider names the completion.
    pub completion_from: CompletionFrom,
    /// The request asks for writes to a cache that last an hour. Where no report says which of its writes were for how long, all were: those
    /// of OpenRouter do not.
    pub hour_writes: bool,
}

/// Anthropic's buckets of a usage report. Those of the prompt are disjoint: it is their sum. A report that names its prompt by
/// [`Report::prompt`] has them as details of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// `input_tokens`: the prompt without what was read from the cache or written to it.
    pub input: Figure,
    /// `output_tokens`.
    pub output: Figure,
    /// `cache_read_input_tokens`.
    pub read: Figure,
    /// `cache_creation_input_tokens`.
    pub write: Figure,
    /// `cache_creation.ephemeral_5m_input_tokens`: part of those that were written.
    pub write_5m: Figure,
    /// `cache_creation.ephemeral_1h_input_tokens`: the rest of those.
    pub write_1h: Figure,
}

/// Why a report is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disbelief {
    /// A figure is no count of tokens, or a detail of the prompt exceeds it.
    NoReport,
    /// The completion is beyond what was admitted, or its details do not fit in it.
    Completion,
}

/// The sides of a report and its total, as far as they are known.
#[derive(Clone, Copy)]
pub(super) struct Sides {
    pub(super) prompt: Option<u64>,
    pub(super) completion: Option<u64>,
    pub(super) total: Option<u64>,
}

impl Buckets {
    /// The prompt that they add up to. None where they name none, or what cannot be.
    fn prompt(self) -> Option<Figure> {
        let all = [self.input, self.read, self.write];
        if self.input == Figure::Absent {
            return None;
        }
        let sum = all.into_iter().try_fold(0u64, |sum, figure| match figure {
            Figure::Unbelievable => None,
            figure => Some(sum.saturating_add(figure.tokens().unwrap_or(0))),
        });
        Some(match sum {
            Some(sum) if sum <= TOKENS_MAX => Figure::Tokens(sum),
            _ => Figure::Unbelievable,
        })
    }

    /// Whether it says how long what was written lasts.
    pub(super) fn names_parts(self) -> bool {
        (self.write_5m, self.write_1h) != (Figure::Absent, Figure::Absent)
    }

    /// What was written, where only its parts are named.
    fn parts_written(self) -> Figure {
        match (self.write_5m, self.write_1h) {
            (Figure::Absent, Figure::Absent) => Figure::Absent,
            (Figure::Unbelievable, _) | (_, Figure::Unbelievable) => Figure::Unbelievable,
            (usual, hour) => {
                let sum = usual.tokens().unwrap_or(0).saturating_add(hour.tokens().unwrap_or(0));
                if sum <= TOKENS_MAX {
                    Figure::Tokens(sum)
                } else {
                    Figure::Unbelievable
                }
            }
        }
    }

    /// How many of `written` tokens were written for an hour: none where the parts are not all of them.
    fn written_for_an_hour(self, written: u64) -> u64 {
        let (usual, hour) = (self.write_5m.tokens().unwrap_or(0), self.write_1h.tokens().unwrap_or(0));
        if usual.saturating_add(hour) == written { hour } else { 0 }
    }
}

impl Report {
    /// The report with its sides under the usual names.
    pub(super) fn by_usual_names(mut self) -> Report {
        if self.buckets.write == Figure::Absent {
            self.buckets.write = self.buckets.parts_written();
        }
        if self.prompt == Figure::Absent
            && let Some(prompt) = self.buckets.prompt()
        {
            self.prompt = prompt;
        }
        if self.completion == Figure::Absent {
            self.completion = self.buckets.output;
        }
        // One that does not fit in the prompt is some other figure.
        if self.cache_read == Figure::Absent && self.cached.fits(self.prompt.tokens()) {
            self.cache_read = self.cached;
        }
        if self.reasoning == Figure::Absent && self.is_of_completion(self.reasoning_beside) {
            self.reasoning = self.reasoning_beside;
        }
        self
    }

    /// Whether so much reasoning is part of the completion, or beside it the rest of the total.
    fn is_of_completion(self, reasoning: Figure) -> bool {
        let (prompt, completion) = (self.prompt.tokens().unwrap_or(0), self.completion.tokens().unwrap_or(0));
        let sides = prompt.saturating_add(completion);
        reasoning.tokens().is_some_and(|reasoning| {
            reasoning <= completion || self.total.tokens() == Some(sides.saturating_add(reasoning))
        })
    }

    /// The report with the reasoning that only its total has, as a part of the completion.
    pub(super) fn with_unnamed_reasoning(mut self) -> Report {
        if let Some(unnamed) = self.unnamed()
            && let Some(completion) = self.completion.tokens()
        {
            self.completion = Figure::Tokens(completion.saturating_add(unnamed));
            self.reasoning = Figure::Tokens(unnamed);
        }
        self
    }

    /// Tokens that its total has beyond its two sides, where no reasoning is named; none where there are none.
    fn unnamed(self) -> Option<u64> {
        if !matches!(self.reasoning, Figure::Absent | Figure::Tokens(0)) {
            return None;
        }
        let (prompt, completion) = (self.prompt.tokens()?, self.completion.tokens()?);
        let unnamed = self.total.tokens()?.checked_sub(prompt.saturating_add(completion))?;
        (unnamed > 0).then_some(unnamed)
    }

    /// The sides, when the report could be true of an answer of at most `completion_max` tokens.
    pub(super) fn believed(self, completion_max: Option<u64>) -> Result<Sides, Disbelief> {
        let sides = self.sides().ok_or(Disbelief::NoReport)?;
        let of_prompt = [
            self.cache_read,
            self.cache_write,
            self.audio,
            self.image,
            self.buckets.read,
            self.buckets.write,
        ];
        if !of_prompt.into_iter().all(|detail| detail.fits(sides.prompt)) {
            return Err(Disbelief::NoReport);
        }
        let of_completion = [
            self.completion_detail,
            self.reasoning,
            self.audio_output,
            self.image_output,
        ];
        let fits = of_completion.into_iter().all(|detail| detail.fits(sides.completion));
        let within = sides
            .completion
            .is_none_or(|completion| completion_max.is_none_or(|max| completion <= max));
        if fits && within {
            Ok(sides)
        } else {
            Err(Disbelief::Completion)
        }
    }

    /// What the call cost the operator in all. None where that is not known: a fee alone is not the cost.
    pub(super) fn whole_cost(self) -> Option<Decimal> {
        match self.is_byok {
            true => self.cost?.checked_add(self.upstream_cost?),
            false => self.cost.or(self.estimated_cost),
        }
    }

    /// What kinds of tokens it names: all that were written to a cache, and beside it those of them that were for an hour.
    pub(super) fn kinds(self) -> TokenKinds {
        let tokens = |figure: Figure| figure.tokens().unwrap_or(0);
        let written = tokens(self.cache_write.larger(self.buckets.write));
        let cache_write_1h = self.buckets.written_for_an_hour(written);
        TokenKinds {
            cache_read: tokens(self.cache_read.larger(self.buckets.read)),
            cache_write: written,
            cache_write_1h,
            audio: tokens(self.audio),
            image: tokens(self.image),
            reasoning: tokens(self.reasoning),
            audio_output: tokens(self.audio_output),
            image_output: tokens(self.image_output),
        }
    }

    /// The two sides and the total. A missing side is what the total leaves, and reasoning that stands beside the completion joins it.
    fn sides(self) -> Option<Sides> {
        if self.prompt == Figure::Unbelievable || self.completion == Figure::Unbelievable {
            return None;
        }
        let total = self.total.tokens();
        let less = |side: u64| total.and_then(|total| total.checked_sub(side));
        let (prompt, completion) = match (self.prompt.tokens(), self.completion.tokens()) {
            (Some(prompt), None) => (Some(prompt), less(prompt)),
            (None, Some(completion)) => (less(completion), Some(completion)),
            (None, None) if self.total == Figure::Unbelievable => return None,
            (Some(prompt), Some(completion)) => (Some(prompt), Some(self.with_reasoning(prompt, completion))),
            (None, None) => (None, None),
        };
        Some(Sides {
            prompt,
            completion,
            total,
        })
    }

    /// The completion with its reasoning, where the total is the sum of prompt, completion and reasoning (xAI reports so).
    fn with_reasoning(self, prompt: u64, completion: u64) -> u64 {
        let all = self
            .reasoning
            .tokens()
            .map(|reasoning| completion.saturating_add(reasoning));
        match (all, self.total.tokens()) {
            (Some(all), Some(total)) if total == prompt.saturating_add(all) => all,
            _ => completion,
        }
    }
}
