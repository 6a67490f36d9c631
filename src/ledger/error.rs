//! Why a store has no answer.

/// Why the store has no answer. At admission each of them is a refusal: never "allowed".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or written, or did not answer in time.
    #[error("the ledger's store is unavailable: {0}")]
    Unavailable(String),
    /// Another process owns it: a gateway, or a command for a moment.
    #[error("the ledger's store is unavailable: {0}")]
    Owned(String),
    /// It works, and a report did not get its turn in time: those of an account wait for one another, and a process makes few at once.
    #[error("{0}")]
    Busy(String),
    /// It answered what cannot be.
    #[error("the ledger's store holds something unreadable: {0}")]
    Corrupt(String),
}

/// What an owner that stops says of a command that it has not begun.
pub(crate) const STOPPED: &str = "the ledger has stopped";

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        StoreError::Unavailable(error.to_string())
    }
}
