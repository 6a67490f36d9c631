//! Token counts, as types that cannot be mixed up, and the reader of a provider's usage report.

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
