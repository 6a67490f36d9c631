//! Token counts, as types that cannot be mixed up, and what is believed of a provider's usage reports.
//!
//! It never guesses: a side that no report named stays unknown, and a number that cannot be a count of tokens is
//! refused, not repaired. The taps feed it; settlement reads it.

/// Tokens of the prompt, as the provider counts them (`usage.prompt_tokens`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptTokens(pub u64);

/// Tokens of the completion, as the provider counts them (`usage.completion_tokens`; reasoning tokens are among them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionTokens(pub u64);

/// What one call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Prompt side.
    pub prompt: PromptTokens,
    /// Completion side.
    pub completion: CompletionTokens,
}

/// Tokens of kinds that may have a price of their own. Each token of a side is of at most one of its kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenKinds {
    /// Of the prompt: read from the provider's cache.
    pub cache_read: u64,
    /// Of the prompt: written to the provider's cache.
    pub cache_write: u64,
    /// Of the completion: hidden reasoning.
    pub reasoning: u64,
}

/// One number of a usage report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// The key is missing or null.
    #[default]
    Absent,
    /// A whole number of tokens within [`TOKENS_MAX`]; an explicit zero is one.
    Tokens(u64),
    /// Anything else: negative, fractional, in exponent notation, absurdly large, or no number at all.
    Unbelievable,
}

/// One `usage` object as it was read, before it is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `prompt_tokens`.
    pub prompt: Figure,
    /// `completion_tokens`.
    pub completion: Figure,
    /// `total_tokens`; it serves to find a side that is missing, and to tell whether reasoning stands beside the completion.
    pub total: Figure,
    /// The largest of the other details of the prompt, such as `prompt_tokens_details.audio_tokens`.
    pub prompt_detail: Figure,
    /// The largest of the details of the completion, but for the reasoning.
    pub completion_detail: Figure,
    /// Prompt tokens that were read from a cache, as a kind; one of the details of the prompt.
    pub cache_read: Figure,
    /// Prompt tokens that were written to a cache, as a kind; one of the details of the prompt.
    pub cache_write: Figure,
    /// `completion_tokens_details.reasoning_tokens`. Part of the completion, unless the total says that it stands beside it.
    pub reasoning: Figure,
}

/// All reports of one answer. Reports are cumulative, so the highest of each side stands, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// The most completion tokens that the answer can have.
    completion_max: Option<u64>,
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    kinds: TokenKinds,
    rejected: u64,
    implausible: bool,
}

/// Why a report is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disbelief {
    /// A figure is no count of tokens, or a detail of the prompt exceeds it.
    NoReport,
    /// The completion is beyond what was admitted, or its details do not fit in it.
    Completion,
}

/// The sides of a report and its total, as far as they are known.
#[derive(Clone, Copy)]
struct Sides {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
}

/// More tokens than this in one call are a provider's mistake, not a report: about four thousand times the largest
/// context there is, and small enough that no product with a price overflows.
pub const TOKENS_MAX: u64 = 1 << 32;

impl Figure {
    /// Reads the text of a JSON number or literal, without surrounding space.
    pub fn from_json(text: &[u8]) -> Figure {
        if text == b"null" {
            return Figure::Absent;
        }
        let leading_zero = text.len() > 1 && text.first() == Some(&b'0');
        if text.is_empty() || text.len() > TOKENS_DIGITS_MAX || leading_zero {
            return Figure::Unbelievable;
        }
        let mut tokens = 0u64;
        for byte in text {
            let Some(digit) = byte.checked_sub(b'0').filter(|digit| *digit <= 9) else {
                return Figure::Unbelievable;
            };
            tokens = tokens * 10 + u64::from(digit);
        }
        if tokens > TOKENS_MAX {
            Figure::Unbelievable
        } else {
            Figure::Tokens(tokens)
        }
    }

    /// The larger of two; what is no count of tokens is never forgotten.
    pub fn larger(self, other: Figure) -> Figure {
        match (self, other) {
            (Figure::Unbelievable, _) | (_, Figure::Unbelievable) => Figure::Unbelievable,
            (Figure::Tokens(one), Figure::Tokens(two)) => Figure::Tokens(one.max(two)),
            (Figure::Absent, known) | (known, Figure::Absent) => known,
        }
    }

    fn tokens(self) -> Option<u64> {
        match self {
            Figure::Tokens(tokens) => Some(tokens),
            Figure::Absent | Figure::Unbelievable => None,
        }
    }

    /// Whether it can be a part of `whole`; a part of an unknown whole can be any.
    fn fits(self, whole: Option<u64>) -> bool {
        match self {
            Figure::Absent => true,
            Figure::Tokens(tokens) => whole.is_none_or(|whole| tokens <= whole),
            Figure::Unbelievable => false,
        }
    }
}

impl TokenKinds {
    /// As many of them as `usage` has room for, where it was cut to what was admitted: those that were written first, then those that were
    /// read.
    pub fn within(self, usage: Usage) -> TokenKinds {
        let cache_write = self.cache_write.min(usage.prompt.0);
        TokenKinds {
            cache_write,
            cache_read: self.cache_read.min(usage.prompt.0.saturating_sub(cache_write)),
            reasoning: self.reasoning.min(usage.completion.0),
        }
    }
}

impl Report {
    /// The sides, when the report could be true of an answer of at most `completion_max` tokens.
    fn believed(self, completion_max: Option<u64>) -> Result<Sides, Disbelief> {
        let sides = self.sides().ok_or(Disbelief::NoReport)?;
        let details = self.prompt_detail.larger(self.cache_read).larger(self.cache_write);
        if !details.fits(sides.prompt) {
            return Err(Disbelief::NoReport);
        }
        let fits = self.completion_detail.fits(sides.completion) && self.reasoning.fits(sides.completion);
        let within = sides
            .completion
            .is_none_or(|completion| completion_max.is_none_or(|max| completion <= max));
        if fits && within {
            Ok(sides)
        } else {
            Err(Disbelief::Completion)
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

impl Reports {
    /// Reports of an answer that can have at most so many completion tokens, over all its choices.
    pub fn within(completion_max: Option<u64>) -> Reports {
        Reports {
            completion_max,
            ..Reports::default()
        }
    }

    /// The answer may have so many completion tokens now; reports that were not believed before stay so.
    pub fn extend(&mut self, completion_max: u64) {
        self.completion_max = self.completion_max.map(|max| max.max(completion_max));
    }

    /// Takes one more report; whether it named a completion that is believed. What cannot be believed changes nothing but
    /// [`Reports::rejected`] and [`Reports::is_implausible`].
    pub fn add(&mut self, report: Report) -> bool {
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
        let highest = |kind: &mut u64, figure: Figure| *kind = (*kind).max(figure.tokens().unwrap_or(0));
        highest(&mut self.kinds.cache_read, report.cache_read);
        highest(&mut self.kinds.cache_write, report.cache_write);
        highest(&mut self.kinds.reasoning, report.reasoning);
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

    /// The prompt side, when a report named it.
    pub fn prompt(&self) -> Option<PromptTokens> {
        self.prompt.map(PromptTokens)
    }

    /// The completion side, when a report named it.
    pub fn completion(&self) -> Option<CompletionTokens> {
        self.completion.map(CompletionTokens)
    }

    /// Both sides, when reports named both.
    pub fn usage(&self) -> Option<Usage> {
        Some(Usage {
            prompt: self.prompt()?,
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

    /// What kinds of tokens the reports say that `usage` consists of. Kinds that together do not fit in their side are not believed: then
    /// it is all of no kind.
    pub fn kinds(&self, usage: Usage) -> TokenKinds {
        let TokenKinds {
            cache_read,
            cache_write,
            reasoning,
        } = self.kinds;
        let fit = cache_read.saturating_add(cache_write) <= usage.prompt.0;
        TokenKinds {
            cache_read: if fit { cache_read } else { 0 },
            cache_write: if fit { cache_write } else { 0 },
            reasoning: if reasoning <= usage.completion.0 { reasoning } else { 0 },
        }
    }

    /// The same of an answer of which `reported` is believed: a side that has to be counted is of no kind.
    pub fn kinds_of(&self, reported: Option<Usage>) -> TokenKinds {
        self.kinds(reported.unwrap_or_else(|| Usage {
            prompt: self.prompt().unwrap_or_default(),
            completion: CompletionTokens(0),
        }))
    }

    /// How many reports were not believed.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }
}

/// Digits of the longest number that is looked at; more can only be beyond [`TOKENS_MAX`].
const TOKENS_DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests;
