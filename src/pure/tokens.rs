//! Token counts of text, for calls whose provider reports none.
//!
//! The counts are those of OpenAI's own vocabularies, exactly; for other families they are the nearest there is. The
//! worst case is linear in the length of the text. It never keeps or shows the text.

mod layout;
mod merges;
mod splitter;
mod tables;
mod vocabulary;

use vocabulary::Vocabulary;

/// A vocabulary and the rule that splits text before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `o200k_base`: GPT-4o and everything newer, and the nearest vocabulary for families whose own is not public.
    #[default]
    O200k,
    /// `cl100k_base`: GPT-4, GPT-4 Turbo, GPT-3.5 and the text-embedding models.
    Cl100k,
}

impl Encoding {
    /// Whether the counts are those of the model's own tokenizer, by its id's provider.
    pub fn is_known_for(model_id: &str) -> bool {
        model_id.starts_with("openai/")
    }

    fn vocabulary(self) -> Vocabulary {
        Vocabulary(match self {
            Encoding::O200k => &tables::O200K,
            Encoding::Cl100k => &tables::CL100K,
        })
    }

    /// The encoding of a model's family, by its id, with or without `<provider>/` before it.
    pub fn for_model(model_id: &str) -> Encoding {
        let name = model_id.rsplit('/').next().unwrap_or(model_id);
        let name = name.strip_prefix("ft:").unwrap_or(name);
        if NOT_CL100K_MODELS.iter().any(|prefix| name.starts_with(prefix)) {
            return Encoding::O200k;
        }
        if CL100K_MODELS.iter().any(|prefix| name.starts_with(prefix)) {
            Encoding::Cl100k
        } else {
            Encoding::O200k
        }
    }
}

/// The number of tokens that `text` has on its own. Special tokens are counted as the text they are written in.
pub fn count(text: &str, encoding: Encoding) -> u64 {
    count_bytes(text.as_bytes(), encoding)
}

/// The same of bytes, whose faults of UTF-8 count as the replacement characters that a client shows for them.
pub fn count_bytes(text: &[u8], encoding: Encoding) -> u64 {
    let vocabulary = encoding.vocabulary();
    if vocabulary.is_one(text) {
        return 1;
    }
    match std::str::from_utf8(text) {
        Ok(text) => vocabulary.count(text),
        Err(_) => vocabulary.count(&String::from_utf8_lossy(text)),
    }
}

/// The lengths in bytes of the tokens of `text`, in order.
pub fn lengths(text: &str, encoding: Encoding) -> impl Iterator<Item = usize> {
    encoding.vocabulary().lengths(text)
}

/// The tables that a count reads. They lie in the file of the program, which it is good to have read before.
pub fn tables(encoding: Encoding) -> [&'static [u8]; 3] {
    encoding.vocabulary().0.bytes()
}

/// What the chat format adds to the texts of a prompt: so much a message, a token for each `name`, and the priming of
/// the reply. (The role is part of the figure for a message.)
pub fn chat_overhead(messages: u64, names: u64) -> u64 {
    messages
        .saturating_mul(TOKENS_PER_MESSAGE)
        .saturating_add(names)
        .saturating_add(TOKENS_PER_REPLY)
}

/// Tokens that frame one chat message, its role included.
pub const TOKENS_PER_MESSAGE: u64 = 3;
/// Tokens that prime the reply.
pub const TOKENS_PER_REPLY: u64 = 3;

const CL100K_MODELS: [&str; 6] = [
    "gpt-4",
    "gpt-3.5",
    "gpt-35",
    "text-embedding-",
    "davinci-002",
    "babbage-002",
];
/// Those that begin like an older family, yet are of the newer.
const NOT_CL100K_MODELS: [&str; 3] = ["gpt-4o", "gpt-4.1", "gpt-4.5"];

#[cfg(test)]
mod tests;
