//! How an account's terms are written in Redis.

use crate::ledger::StoreError;
use crate::ledger::terms::AccountTerms;

/// What scripts are given to keep: the terms, whose status stands in front, and `low_balance` (or an empty text).
pub(super) fn arguments(terms: &AccountTerms) -> Result<[String; 2], StoreError> {
    let json = serde_json::to_string(terms).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let low = terms.low_balance.map(|low| low.pico().to_string());
    Ok([format!("{} {json}", terms.status), low.unwrap_or_default()])
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
