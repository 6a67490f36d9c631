//! Counts with one vocabulary: plain ASCII words are split here as its rule would split them, and are often a token each; all other text
//! goes by the rule. Both ways give the same counts: the tests compare them.

use super::merges;
use super::tables::Tables;

/// A vocabulary.
#[derive(Clone, Copy)]
pub(super) struct Vocabulary(pub(super) &'static Tables);

impl Vocabulary {
    /// Whether `text` is, on its own, one token.
    #[inline]
    pub(super) fn is_one(self, text: &[u8]) -> bool {
        self.0.is_one(text)
    }

    /// The number of tokens of `text`.
    pub(super) fn count(self, text: &str) -> u64 {
        let (words, tokens) = self.count_words(text.as_bytes());
        match text.get(words..) {
            Some(rest) => {
                tokens
                    + self
                        .pieces(rest)
                        .map(|piece| self.count_piece(piece.as_bytes()))
                        .sum::<u64>()
            }
            // Words are ASCII, so their end is the start of a character.
            None => to_u64(text.len()),
        }
    }

    /// The lengths of the tokens of `text`, in bytes and in order.
    pub(super) fn lengths(self, text: &str) -> impl Iterator<Item = usize> {
        let length = move |token| self.0.token(token).and_then(|known| usize::try_from(known.length).ok());
        let lengths = move |piece: &str| match merges::tokens(self.0, piece.as_bytes()) {
            Some(tokens) => tokens.into_iter().filter_map(length).collect(),
            None => vec![1; piece.len()],
        };
        self.pieces(text).flat_map(lengths)
    }

    fn pieces(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (piece, next) = rest.split_at_checked(self.0.piece(rest)).unwrap_or((rest, ""));
            rest = next;
            (!piece.is_empty()).then_some(piece)
        })
    }

    fn count_piece(self, piece: &[u8]) -> u64 {
        match self.0.longest(piece) {
            Some((_, length)) if length == piece.len() => 1,
            // Without tables that are in order, a token a byte is the most that it can be.
            _ => to_u64(merges::tokens(self.0, piece).map_or(piece.len(), |tokens| tokens.len())),
        }
    }

    /// Counts the plain words that `text` begins with: their length in bytes, and their tokens.
    ///
    /// A plain word is an optional space, an optional capital and small letters, or one mark of punctuation; what
    /// follows it must be the end, a space, or a mark that ends a sentence, so that no rule could join them.
    fn count_words(self, text: &[u8]) -> (usize, u64) {
        let (mut start, mut tokens) = (0, 0);
        while let Some(length) = text.get(start..).and_then(plain_word) {
            let Some(word) = text.get(start..start + length) else {
                break;
            };
            tokens += self.count_piece(word);
            start += length;
        }
        (start, tokens)
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Vocabulary").finish_non_exhaustive()
    }
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
