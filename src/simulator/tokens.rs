//! Token counts as OpenAI's o200k models count them, and text cut into its tokens.

use crate::pure::tokens::{self, Encoding};

/// How many tokens `text` has.
pub(super) fn count(text: &str) -> u64 {
    tokens::count(text, Encoding::O200k)
}

/// A text as a stream of fragments, each the next token. Where a token ends inside a character, it comes with the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragments {
    pub(super) texts: Vec<String>,
    pub(super) tokens: u64,
    /// Whether the text was longer than its limit.
    pub(super) cut: bool,
}

impl Fragments {
    /// The first `tokens_max` tokens of `text`.
    pub(super) fn of(text: &str, tokens_max: Option<u64>) -> Self {
        Fragments::take(&texts(text), tokens_max)
    }

    /// Exactly `tokens` tokens (less with a lower limit), of `text` over and over. It should begin with a space, so that its tokens do.
    pub(super) fn repeated(text: &str, tokens: usize, tokens_max: Option<u64>) -> Self {
        let repeated: Vec<&[u8]> = texts(text).into_iter().cycle().take(tokens).collect();
        Fragments::take(&repeated, tokens_max)
    }

    fn take(tokens: &[&[u8]], tokens_max: Option<u64>) -> Self {
        let limit = tokens_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let mut fragments = Fragments {
            cut: tokens.len() > limit,
            ..Fragments::default()
        };
        let mut bytes = Vec::new();
        for token in tokens.iter().take(limit) {
            fragments.tokens += 1;
            bytes.extend_from_slice(token);
            if let Ok(text) = std::str::from_utf8(&bytes) {
                fragments.texts.push(text.to_owned());
                bytes.clear();
            }
        }
        if !bytes.is_empty() {
            fragments.texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        fragments
    }

    pub(super) fn text(&self) -> String {
        self.texts.concat()
    }
}

/// The texts of its tokens, some of which may be parts of characters.
fn texts(text: &str) -> Vec<&[u8]> {
    let mut rest = text.as_bytes();
    let next = |length| rest.split_off(..length);
    tokens::lengths(text, Encoding::O200k).map_while(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_the_text() {
        for text in ["", "Hello, world!", "नमस्ते 👩‍👩‍👧 né", "a\r\n\tb"] {
            let fragments = Fragments::of(text, None);
            assert_eq!(fragments.text(), text);
            assert_eq!(fragments.tokens, count(text));
            assert!(!fragments.cut);
        }
    }

    #[test]
    fn a_limit_cuts() {
        let fragments = Fragments::of("one two three four", Some(2));
        assert_eq!(
            (fragments.text().as_str(), fragments.tokens, fragments.cut),
            ("one two", 2, true)
        );
        assert_eq!(Fragments::repeated(" one two.", 1000, None).tokens, 1000);
        assert_eq!(count(&Fragments::repeated(" one two.", 1000, None).text()), 1000);
    }
}
