//! What keys with limits, and their end users, have spent, as values.

use std::collections::HashMap;

use super::ids::KeyId;
use super::money::Credits;
use super::spend::{EndUserId, SpendPeriod};

/// What was spent in a period, and what the open calls of the period hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Debited.
    pub spent: Credits,
    /// Held.
    pub held: Credits,
}

impl Spent {
    /// What it leaves of a limit: nothing where it is more.
    pub fn left_of(self, limit: Credits) -> Credits {
        let left = limit.saturating_sub(self.spent).saturating_sub(self.held);
        left.max(Credits::ZERO)
    }
}

/// What an account's keys and their end users have spent. A key is in it from when it first has a limit on, for ever.
#[derive(Clone, Debug, Default)]
pub(in crate::pure) struct Spending {
    pub(in crate::pure) keys: HashMap<KeyId, HashMap<SpendPeriod, Spent>>,
    pub(in crate::pure) end_users: HashMap<(KeyId, SpendPeriod), HashMap<EndUserId, Spent>>,
    /// Keys that count as another one, which they came in place of: what both spend counts together.
    pub(in crate::pure) shared: HashMap<KeyId, KeyId>,
}

/// What a store keeps of it: who, in which period, how much.
pub type KeptSpending = HashMap<(KeyId, Option<EndUserId>, SpendPeriod), Credits>;
