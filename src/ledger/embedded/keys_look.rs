//! What is known of a look at keys that expire while it goes on.

use std::collections::BTreeSet;

use crate::pure::ids::{AccountId, KeyDigest};

/// A look at keys that expire, which the ledger's thread makes in parts, and which ends with it.
#[derive(Debug)]
pub(super) struct KeysLook {
    /// Those that are still to be looked at: each is seen as it is by then.
    pub(super) left: Vec<KeyDigest>,
    /// Accounts that have a key which waits for room.
    pub(super) waiting: BTreeSet<AccountId>,
    /// When the last part was asked for, by [`crate::clock::Clock::passed_ms`].
    pub(super) asked_ms: i64,
}
