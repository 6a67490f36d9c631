//! How an account's terms are written in Redis.

use crate::ledger::StoreError;
use crate::ledger::terms::AccountTerms;

/// The terms as they are kept. Their status stands in front, for scripts.
pub(super) fn text(terms: &AccountTerms) -> Result<String, StoreError> {
    let json = serde_json::to_string(terms).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(format!("{} {json}", terms.status))
}

/// Reads them; an empty text are those of an account whose terms were never changed.
pub(super) fn read(text: &str) -> Result<AccountTerms, StoreError> {
    match text.split_once(' ') {
        None if text.is_empty() => Ok(AccountTerms::default()),
        None => Err(StoreError::Corrupt("an account's terms are too short".to_owned())),
        Some((_, json)) => {
            serde_json::from_str(json).map_err(|error| StoreError::Corrupt(format!("an account's terms: {error}")))
        }
    }
}
