//! Counts of tokens, as types that cannot be mixed up, and the figures that providers report.

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

    pub(super) fn tokens(self) -> Option<u64> {
        match self {
            Figure::Tokens(tokens) => Some(tokens),
            Figure::Absent | Figure::Unbelievable => None,
        }
    }

    /// Whether it can be a part of `whole`; a part of an unknown whole can be any.
    pub(super) fn fits(self, whole: Option<u64>) -> bool {
        match self {
            Figure::Absent => true,
            Figure::Tokens(tokens) => whole.is_none_or(|whole| tokens <= whole),
            Figure::Unbelievable => false,
        }
    }
}

/// Digits of the longest number that is looked at; more can only be beyond [`TOKENS_MAX`].
const TOKENS_DIGITS_MAX: usize = 18;
