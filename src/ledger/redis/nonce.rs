//! What a step is known by that may be sent twice, for its connection broke and its answer may be lost: run a second time, it finds that it
//! was run, and answers as it did. For whoever asked it is done, and not what somebody else has done before.

use super::options::unavailable;
use crate::ledger::StoreError;
use crate::pure::ids::hex;

/// A text that no other step has.
///
/// # Errors
/// When the machine gives no random numbers.
pub(super) fn nonce() -> Result<String, StoreError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| unavailable(&format!("no random numbers: {error}")))?;
    Ok(hex(&random))
}
