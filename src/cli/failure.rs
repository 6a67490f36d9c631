//! Why a command failed, in a sentence that says what to do.

use crate::config::ConfigError;
use crate::ledger::StoreError;
use crate::ledger::admin::AdminError;

/// A sentence for the operator. Nothing branches on it.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(super) struct Failure {
    sentence: String,
    /// The exit status.
    pub(super) status: u8,
}

impl Failure {
    pub(super) fn new(sentence: impl Into<String>) -> Failure {
        Failure {
            sentence: sentence.into(),
            status: 1,
        }
    }

    /// What was typed cannot be meant, whatever the ledger has.
    pub(super) fn wrong_usage(sentence: impl Into<String>) -> Failure {
        Failure {
            status: 2,
            ..Failure::new(sentence)
        }
    }

    /// The store answered one command with the reply of another.
    pub(super) fn wrong_reply() -> Failure {
        Failure::new(
            "the gateway that owns the ledger answers in another form: run the tollgate of its version, or restart it",
        )
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let hint = match &error {
            StoreError::Owned(_) => " and does not answer commands: if it is on its way up or down, try again",
            StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Corrupt(_) => "",
        };
        Failure::new(format!("{error}{hint}"))
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        let hint = match &error {
            AdminError::NoAccount(_) => "; `tollgate account list` shows all accounts",
            AdminError::AccountExists(_) => "; `tollgate account set` changes it",
            AdminError::NoKey => "; `tollgate key list NAME` shows the ids of an account's keys",
            AdminError::NoOperator(_) => "; `tollgate operator list` shows all operators",
            AdminError::ReferenceConflict(_) => "; each payment needs a reference of its own",
            AdminError::Busy(_) => "; try again in a moment",
            AdminError::Conflict(_) | AdminError::Invalid(_) | AdminError::NotConfirmed(_) | AdminError::Store(_) => "",
        };
        Failure::new(format!("{error}{hint}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::new(format!("the answer cannot be written as JSON: {error}"))
    }
}

/// The text with every word blotted out that may be a key, whole or cut off: what was typed in the wrong place is quoted in errors.
pub(super) fn without_keys(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !in_word(c)).unwrap_or(from.len()));
        clean.push_str(before);
        let is_file = word.len() == JOURNAL_DIGITS && JOURNAL_FILES.iter().any(|ending| after.starts_with(ending));
        clean.push_str(if may_be_key(word) && !is_file { "<key>" } else { word });
        rest = after;
    }
    clean.push_str(rest);
    clean
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn may_be_key(word: &str) -> bool {
    word.split(|c: char| !c.is_ascii_hexdigit())
        .any(|run| run.len() >= HEX_RUN_MIN)
}

/// A key has 72 hexadecimal digits in a row, its id 16.
const HEX_RUN_MIN: usize = 24;
/// A journal is named by so many of them, and these files lie beside one another: whoever is to move one must know its name.
const JOURNAL_DIGITS: usize = 32;
const JOURNAL_FILES: [&str; 4] = [".journal", ".acknowledged", ".refused", ".prompts"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_journal_is_named_and_no_key_is() {
        let digits = "0123456789abcdef0123456789abcdef";
        for (text, expected) in [
            (
                format!("data/{digits}.journal: calls"),
                format!("data/{digits}.journal: calls"),
            ),
            (format!("data/{digits}.yaml"), "data/<key>.yaml".to_owned()),
            (format!("{digits}."), "<key>.".to_owned()),
            (format!("tg_{digits}.journal"), "<key>.journal".to_owned()),
            (format!("{digits}0.journal"), "<key>.journal".to_owned()),
        ] {
            assert_eq!(without_keys(&text), expected);
        }
    }
}
