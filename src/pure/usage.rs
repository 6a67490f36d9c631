//! Token counts, as types that cannot be mixed up, and what is believed of a provider's usage reports.
//!
//! It never guesses: a side that no report named stays unknown, and a number that cannot be a count of tokens is
//! refused, not repaired. The taps feed it; settlement reads it.

mod kinds;
mod report;
mod tokens;

use rust_decimal::Decimal;

pub use self::kinds::TokenKinds;
use self::report::Disbelief;
pub use self::report::{Buckets, CompletionFrom, Naming, Report};
pub use self::tokens::{CompletionTokens, Figure, PromptTokens, TOKENS_MAX, Usage};

/// All reports of one answer. Reports are cumulative, so the highest of each side stands, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// The most completion tokens that the answer can have.
    completion_max: Option<u64>,
    naming: Naming,
    /// A report said how long what was written to a cache lasts.
    names_parts: bool,
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    /// As [`Report`] has them.
    kinds: TokenKinds,
    cost: Option<Decimal>,
    rejected: u64,
    implausible: bool,
}

impl Reports {
    /// Reports of an answer that can have at most so many completion tokens, over all its choices.
    pub fn within(completion_max: Option<u64>) -> Reports {
        Reports {
            completion_max,
            ..Reports::default()
        }
    }

    /// The same, read so.
    pub fn naming(self, naming: Naming) -> Reports {
        Reports { naming, ..self }
    }

    /// The answer may have so many completion tokens now; reports that were not believed before stay so.
    pub fn extend(&mut self, completion_max: u64) {
        self.completion_max = self.completion_max.map(|max| max.max(completion_max));
    }

    /// Takes one more report; whether it named a completion that is believed. What cannot be believed changes nothing but
    /// [`Reports::rejected`] and [`Reports::is_implausible`].
    pub fn add(&mut self, report: Report) -> bool {
        let mut report = report.by_usual_names();
        if self.naming.completion_from == CompletionFrom::Total {
            report = report.with_unnamed_reasoning();
        }
        let sides = match report.believed(self.completion_max) {
            Ok(sides) => sides,
            Err(disbelief) => {
                self.rejected = self.rejected.saturating_add(1);
                self.implausible |= disbelief == Disbelief::Completion;
                return false;
            }
        };
        // `None` is less than any `Some`, so a report without a side never lowers it.
        self.prompt = self.prompt.max(sides.prompt);
        self.completion = self.completion.max(sides.completion);
        self.total = self.total.max(sides.total);
        self.kinds = self.kinds.highest(report.kinds());
        self.names_parts |= report.buckets.names_parts();
        self.cost = match report.whole_cost() {
            // What an earlier report named was the fee alone.
            None if report.is_byok => None,
            cost => self.cost.max(cost),
        };
        sides.completion.is_some()
    }

    /// Whether a report gave a completion that the answer cannot have.
    pub fn is_implausible(&self) -> bool {
        self.implausible
    }

    /// What the reports say of an answer in which text followed the last of them: `delivered` tokens were counted in all, `after` of
    /// them after it. None when that report cannot be of this answer, for less is in it than came after it. A report that is behind
    /// says no less than what was counted.
    pub fn usage_behind(&self, delivered: CompletionTokens, after: u64) -> Option<Usage> {
        let usage = self.usage()?;
        if after == 0 {
            return Some(usage);
        }
        (usage.completion.0 >= after).then(|| Usage {
            completion: usage.completion.max(delivered),
            ..usage
        })
    }

    /// Whether the reports say that the prompt, or else the total, is 0, and the completion no more, and name no cost. That is true of no answer that has text
    /// or vectors.
    pub fn is_nothing(&self) -> bool {
        self.prompt.or(self.total) == Some(0)
            && self.completion.is_none_or(|completion| completion == 0)
            && self.cost.is_none_or(|cost| cost.is_zero())
    }

    /// The prompt side, when a report named it. One of 0 beside a completion of 0 is none: where the completion has to be counted, the
    /// prompt has to be too.
    pub fn prompt(&self) -> Option<PromptTokens> {
        self.prompt.filter(|_| !self.is_nothing()).map(PromptTokens)
    }

    /// The completion side, when a report named it.
    pub fn completion(&self) -> Option<CompletionTokens> {
        self.completion.map(CompletionTokens)
    }

    /// Both sides, when reports named both.
    pub fn usage(&self) -> Option<Usage> {
        Some(Usage {
            prompt: PromptTokens(self.prompt?),
            completion: self.completion()?,
        })
    }

    /// The same for an answer that has no completion by its nature (embeddings): a completion that no report names
    /// is 0, and a total alone is the prompt.
    pub fn usage_without_completion(&self) -> Option<Usage> {
        let prompt = self.prompt.or(self.total)?;
        Some(Usage {
            prompt: PromptTokens(prompt),
            completion: CompletionTokens(self.completion.unwrap_or(0)),
        })
    }

    /// What kinds of tokens the reports say that `usage` consists of. Reads and writes of a cache that together do not fit in the prompt, sound
    /// and images that do not, and reasoning, sound and images that do not fit in the completion, are not believed: then those tokens are of no such
    /// kind. [`Naming::hour_writes`] says for how long writes last of which no report does. Of sound and images of a prompt there are as many as its reads and writes leave: what was read from a cache is counted there.
    pub fn kinds(&self, usage: Usage) -> TokenKinds {
        let mut kinds = self.kinds;
        let written = kinds.cache_write.max(kinds.cache_write_1h);
        if self.naming.hour_writes && !self.names_parts {
            kinds.cache_write_1h = written;
        }
        kinds.cache_write = written.saturating_sub(kinds.cache_write_1h);
        if kinds.cache_read.saturating_add(written) > usage.prompt.0 {
            (kinds.cache_read, kinds.cache_write, kinds.cache_write_1h) = (0, 0, 0);
        }
        if kinds.audio.saturating_add(kinds.image) > usage.prompt.0 {
            (kinds.audio, kinds.image) = (0, 0);
        }
        let of_completion = [kinds.reasoning, kinds.audio_output, kinds.image_output];
        if of_completion.into_iter().fold(0, u64::saturating_add) > usage.completion.0 {
            (kinds.reasoning, kinds.audio_output, kinds.image_output) = (0, 0, 0);
        }
        kinds.within(usage)
    }

    /// The provider's own cost of the call, in its currency, where its reports name one and are of `usage`: more was delivered otherwise
    /// than it knows of. Embeddings have no completion, and report none.
    pub fn cost_of(&self, usage: Usage) -> Option<Decimal> {
        let of_prompt = || self.completion.is_none() && self.usage_without_completion() == Some(usage);
        self.cost.filter(|_| self.usage() == Some(usage) || of_prompt())
    }

    /// The same of an answer of which `reported` is believed: a side that has to be counted is of no kind.
    pub fn kinds_of(&self, reported: Option<Usage>) -> TokenKinds {
        self.kinds(reported.unwrap_or_else(|| Usage {
            prompt: self.prompt().unwrap_or_default(),
            completion: CompletionTokens(0),
        }))
    }

    /// Tokens that the provider's total has beyond its two sides: nobody is charged for them. 0 where nobody can tell.
    pub fn beyond_sides(&self) -> u64 {
        let beyond = |total: u64, usage: Usage| total.saturating_sub(usage.prompt.0.saturating_add(usage.completion.0));
        let known = self.total.zip(self.usage());
        known.map_or(0, |(total, usage)| beyond(total, usage))
    }

    /// How many reports were not believed.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }
}

#[cfg(test)]
mod tests;
