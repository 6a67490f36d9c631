//! The short way to a count: most of what a model streams is a token that a table knows, or plain words that are.
//!
//! The table holds the vocabulary's first tokens (the merges are in order of frequency), those that on their own count
//! as one. Plain ASCII words are split as the vocabulary's own rule would split them; all other text goes to the full
//! tokenizer. Both ways give the same counts: the tests compare them.

use bpe_openai::Tokenizer;

/// A tokenizer with a table of its common tokens.
pub(super) struct CommonTokens {
    tokenizer: &'static Tokenizer,
    /// An open-addressed hash table of packed tokens; 0 is a free slot.
    slots: Box<[u128]>,
}

/// So many of a vocabulary's tokens are in the table: it stays within 2 MiB, and the rest are rare.
const COMMON_TOKENS: u32 = 65_536;
/// A power of two, at least twice the number of tokens, so that look-ups end after a step or two.
const SLOTS: usize = 1 << 17;
/// The longest text that is packed: the sixteenth byte holds its length.
const PACKED_BYTES_MAX: usize = 15;

impl CommonTokens {
    pub(super) fn new(tokenizer: &'static Tokenizer) -> Self {
        let mut table = CommonTokens {
            tokenizer,
            slots: vec![0; SLOTS].into_boxed_slice(),
        };
        let tokens = u32::try_from(tokenizer.bpe.num_tokens()).unwrap_or(COMMON_TOKENS);
        for token in 0..tokens.min(COMMON_TOKENS) {
            let Ok(text) = std::str::from_utf8(tokenizer.bpe.token_bytes(token)) else {
                continue;
            };
            // The splitting rule cuts some tokens in two, so that no text ever yields them.
            if let (Some(packed), 1) = (pack(text.as_bytes()), tokenizer.count(text)) {
                table.insert(packed);
            }
        }
        table
    }

    /// The number of tokens of `text`.
    pub(super) fn count(&self, text: &str) -> u64 {
        let (words, tokens) = self.count_words(text.as_bytes());
        match text.get(words..) {
            Some("") => tokens,
            Some(rest) => tokens + to_u64(self.tokenizer.count(rest)),
            // Words are ASCII, so their end is the start of a character.
            None => to_u64(self.tokenizer.count(text)),
        }
    }

    /// Counts the plain words that `text` begins with: their length in bytes, and their tokens.
    ///
    /// A plain word is an optional space, an optional capital and small letters, or one mark of punctuation; what
    /// follows it must be the end, a space, or a mark that ends a sentence, so that no rule could join them.
    fn count_words(&self, text: &[u8]) -> (usize, u64) {
        let (mut start, mut tokens) = (0, 0);
        while let Some(length) = text.get(start..).and_then(plain_word) {
            let Some(word) = text.get(start..start + length) else {
                break;
            };
            tokens += if self.contains(word) {
                1
            } else {
                to_u64(self.tokenizer.bpe.count(word))
            };
            start += length;
        }
        (start, tokens)
    }

    /// Whether `text` is a common token, which counts as one.
    #[inline]
    pub(super) fn contains(&self, text: &[u8]) -> bool {
        let Some(packed) = pack(text) else { return false };
        let mut slot = home(packed);
        // There are free slots, so the search ends.
        loop {
            match self.slots.get(slot % SLOTS) {
                Some(found) if *found == packed => return true,
                Some(0) | None => return false,
                Some(_) => slot += 1,
            }
        }
    }

    fn insert(&mut self, packed: u128) {
        let home = home(packed);
        for slot in home..home + SLOTS {
            if let Some(free) = self.slots.get_mut(slot % SLOTS)
                && *free == 0
            {
                *free = packed;
                return;
            }
        }
    }
}

impl std::fmt::Debug for CommonTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CommonTokens").finish_non_exhaustive()
    }
}

/// A text of 1 to 15 bytes as one number: its bytes, and its length so that trailing zero bytes count.
#[inline]
fn pack(text: &[u8]) -> Option<u128> {
    let length = text.len();
    if length == 0 || length > PACKED_BYTES_MAX {
        return None;
    }
    // The first and the last half may overlap: the overlap is shifted out of the second, and what it held is in the
    // first. Two short loads are cheaper than a loop over the bytes.
    let (first, last, half) = if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last), 8)
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        (
            u64::from(u32::from_le_bytes(*first)),
            u64::from(u32::from_le_bytes(*last)),
            4,
        )
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        (
            u64::from(u16::from_le_bytes(*first)),
            u64::from(u16::from_le_bytes(*last)),
            2,
        )
    } else {
        (u64::from(*text.first()?), 0, 1)
    };
    // The second half keeps `length - half` of its bytes, which may be none.
    let shift = 8 * (2 * half - length);
    let kept = u32::try_from(shift)
        .ok()
        .and_then(|shift| last.checked_shr(shift))
        .unwrap_or(0);
    Some(u128::from(first) | u128::from(kept) << (8 * half) | u128::from(to_u64(length)) << 120)
}

/// The slot where the search for `packed` begins.
fn home(packed: u128) -> usize {
    let [low, high] = [packed, packed >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or_default());
    let mixed = (low ^ high.rotate_left(29).wrapping_mul(MIX)).wrapping_mul(MIX);
    usize::try_from(mixed >> 47).unwrap_or_default()
}

/// The length of the plain word that `text` begins with.
fn plain_word(text: &[u8]) -> Option<usize> {
    let space = usize::from(text.first() == Some(&b' '));
    let capital = usize::from(text.get(space).is_some_and(u8::is_ascii_uppercase));
    let letters = text.get(space + capital..)?;
    let small = letters.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let length = match small {
        0 if space + capital == 0 && text.first().is_some_and(is_mark) => 1,
        0 => return None,
        _ => space + capital + small,
    };
    match text.get(length..length + 2) {
        // A mark joins what follows it, but for a space; a space joins what follows it, but for a letter.
        Some([b' ', next]) if next.is_ascii_alphabetic() => Some(length),
        Some([mark, b' ']) if small > 0 && is_mark(mark) => Some(length),
        Some(_) => None,
        None => match text.get(length) {
            None => Some(length),
            Some(mark) if small > 0 && is_mark(mark) => Some(length),
            Some(_) => None,
        },
    }
}

fn is_mark(byte: &u8) -> bool {
    matches!(byte, b'.' | b',' | b';' | b':' | b'!' | b'?')
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// An odd number with no pattern in its bits (of the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
