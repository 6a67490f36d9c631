//! Tokens of kinds that may have a price of their own.

use super::tokens::Usage;

/// Tokens of kinds that may have a price of their own. Each token of a side is of at most one of its kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenKinds {
    /// Of the prompt: read from the provider's cache.
    pub cache_read: u64,
    /// Of the prompt: written to the provider's cache for the usual time.
    pub cache_write: u64,
    /// Of the prompt: written to the provider's cache for an hour.
    pub cache_write_1h: u64,
    /// Of the prompt: sound.
    pub audio: u64,
    /// Of the prompt: images.
    pub image: u64,
    /// Of the completion: hidden reasoning.
    pub reasoning: u64,
    /// Of the completion: sound.
    pub audio_output: u64,
    /// Of the completion: images.
    pub image_output: u64,
}

impl TokenKinds {
    /// Of each kind the more.
    pub(super) fn highest(self, other: TokenKinds) -> TokenKinds {
        TokenKinds {
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_1h: self.cache_write_1h.max(other.cache_write_1h),
            audio: self.audio.max(other.audio),
            image: self.image.max(other.image),
            reasoning: self.reasoning.max(other.reasoning),
            audio_output: self.audio_output.max(other.audio_output),
            image_output: self.image_output.max(other.image_output),
        }
    }

    /// As many of them as `usage` has room for, where it was cut to what was admitted: those that were written first, then those that were
    /// read, then what they are.
    pub fn within(self, usage: Usage) -> TokenKinds {
        let mut prompt = Room(usage.prompt.0);
        let mut completion = Room(usage.completion.0);
        TokenKinds {
            cache_write_1h: prompt.take(self.cache_write_1h),
            cache_write: prompt.take(self.cache_write),
            cache_read: prompt.take(self.cache_read),
            audio: prompt.take(self.audio),
            image: prompt.take(self.image),
            reasoning: completion.take(self.reasoning),
            audio_output: completion.take(self.audio_output),
            image_output: completion.take(self.image_output),
        }
    }
}

/// Tokens of a side that are of no kind yet.
struct Room(u64);

impl Room {
    fn take(&mut self, wanted: u64) -> u64 {
        let taken = wanted.min(self.0);
        self.0 = self.0.saturating_sub(taken);
        taken
    }
}
