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
    /// `total_tokens`; it only serves to find a side that is missing.
    pub total: Figure,
}

/// All reports of one answer. Reports are cumulative, so the highest of each side stands, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    rejected: u64,
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

    fn tokens(self) -> Option<u64> {
        match self {
            Figure::Tokens(tokens) => Some(tokens),
            Figure::Absent | Figure::Unbelievable => None,
        }
    }
}

impl Report {
    /// The two sides and the total; `None` when a side cannot be believed. A missing side is what the total leaves.
    fn believed(self) -> Option<(Option<u64>, Option<u64>, Option<u64>)> {
        if self.prompt == Figure::Unbelievable || self.completion == Figure::Unbelievable {
            return None;
        }
        let total = self.total.tokens();
        match (self.prompt.tokens(), self.completion.tokens()) {
            (Some(prompt), None) => Some((Some(prompt), total.and_then(|total| total.checked_sub(prompt)), total)),
            (None, Some(completion)) => Some((
                total.and_then(|total| total.checked_sub(completion)),
                Some(completion),
                total,
            )),
            (None, None) if self.total == Figure::Unbelievable => None,
            (prompt, completion) => Some((prompt, completion, total)),
        }
    }
}

impl Reports {
    /// Takes one more report. What cannot be believed changes nothing but [`Reports::rejected`].
    pub fn add(&mut self, report: Report) {
        let Some((prompt, completion, total)) = report.believed() else {
            self.rejected = self.rejected.saturating_add(1);
            return;
        };
        // `None` is less than any `Some`, so a report without a side never lowers it.
        self.prompt = self.prompt.max(prompt);
        self.completion = self.completion.max(completion);
        self.total = self.total.max(total);
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

    /// How many reports were not believed.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }
}

/// Digits of the longest number that is looked at; more can only be beyond [`TOKENS_MAX`].
const TOKENS_DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests;
