//! Token counts as OpenAI's o200k models count them, and text cut into its tokens.

/// How many tokens `text` has.
pub(super) fn count(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u64::MAX)
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
        Fragments::take(&bpe_openai::o200k_base().encode(text), tokens_max)
    }

    /// Exactly `tokens` tokens (less with a lower limit), of `text` over and over. It should begin with a space, so that its tokens do.
    pub(super) fn repeated(text: &str, tokens: usize, tokens_max: Option<u64>) -> Self {
        let ids: Vec<u32> = bpe_openai::o200k_base()
            .encode(text)
            .into_iter()
            .cycle()
            .take(tokens)
            .collect();
        Fragments::take(&ids, tokens_max)
    }

    fn take(ids: &[u32], tokens_max: Option<u64>) -> Self {
        let limit = tokens_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let mut fragments = Fragments {
            cut: ids.len() > limit,
            ..Fragments::default()
        };
        let mut bytes = Vec::new();
        for id in ids.iter().take(limit) {
            fragments.tokens += 1;
            bytes.extend_from_slice(bpe_openai::o200k_base().bpe.token_bytes(*id));
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
