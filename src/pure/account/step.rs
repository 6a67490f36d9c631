//! What a step of an account is asked with, and what it answers: a reserve and its refusals, a settlement and what became of it.

use std::sync::Arc;

use crate::pure::error::AccountStop;
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::limits::{LimitOverrides, Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, CallNumber};
use crate::pure::spend::{SpendLimits, Spender};
use crate::pure::time::Timestamp;

/// Whose counts a call adds to: all keys without limits of their own share their account's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The account's.
    Account,
    /// A key's own, since it has limits of its own.
    Key(KeyId),
}

impl Scope {
    /// The scope of a key.
    pub fn of(key: &KeyId, overrides: &LimitOverrides) -> Scope {
        if overrides.is_empty() {
            Scope::Account
        } else {
            Scope::Key(key.clone())
        }
    }

    /// Its key, where it is one key's own.
    pub fn key(&self) -> Option<&KeyId> {
        match self {
            Scope::Account => None,
            Scope::Key(key) => Some(key),
        }
    }
}

/// What a reserve asks for.
#[derive(Clone, Debug)]
pub struct ReserveRequest {
    /// Id of the request and of its hold.
    pub id: RequestId,
    /// Whose limits count.
    pub scope: Scope,
    /// The limits.
    pub limits: Limits,
    /// The account's quota for a month.
    pub quota: Credits,
    /// What to hold; 0 for a model that costs nothing, which needs no credit.
    pub wanted: Credits,
    /// The least that will do; at most `wanted`.
    pub at_least: Credits,
    /// Tokens charged to the window until the real number is known.
    pub tokens: u64,
    /// When the hold expires unless it is renewed.
    pub expires: Timestamp,
    /// An earlier refusal has counted the request in its window ([`Denial::is_counted`]): this one is the same call, tried once more.
    pub is_counted: bool,
    /// No other try of the call follows, so that an event tells of a refusal. Where this is not the last, another follows as long as
    /// something is left to pay with, and only a refusal is told that would leave nothing even if no call held anything.
    pub is_last: bool,
    /// The hard limits of its key and its end user, where there are some.
    pub spend: Option<Arc<SpendLimits>>,
}

impl ReserveRequest {
    /// Whether an event tells of this refusal, where it is of a kind that events tell of. It tells of none that is for what open calls hold:
    /// that is back in a moment.
    pub fn tells_of(&self, denial: &Denial) -> bool {
        // What open calls hold of the credit counts as left, as it does of the quota. Until its prompt is counted, what the call needs is a
        // bound: it may fit once they have ended.
        let is_over = if let Denial::Credit { available, held, .. } = denial {
            available.saturating_add(*held) <= Credits::ZERO
        } else {
            denial.leaves_nothing(self.quota)
        };
        (self.is_last || is_over) && !self.fits_without_holds(denial)
    }

    /// Whether it was refused for what open calls hold: had all of them ended, and cost nothing, it might be granted.
    pub fn fits_without_holds(&self, denial: &Denial) -> bool {
        match *denial {
            // Of a call that runs they are an estimate.
            Denial::Tokens(_) => true,
            Denial::Concurrency(_) => self.limits.concurrency > 0,
            Denial::Credit { available, held, .. } => available.saturating_add(held) >= self.at_least,
            Denial::Quota { used, .. } => self.quota.saturating_sub(used) >= self.at_least,
            Denial::Spent { held, .. } => held > Credits::ZERO,
            Denial::Requests(_) | Denial::EndUsers(_) | Denial::Stopped(_) => false,
        }
    }
}

/// A hold that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What is held: `wanted`, or less, but never below `at_least`.
    pub amount: Credits,
    /// For the rate-limit headers.
    pub rate: RateView,
}

/// Why a reserve is refused. The first that applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Requests a minute.
    Requests(RateView),
    /// Tokens a minute.
    Tokens(RateView),
    /// Calls at once.
    Concurrency(RateView),
    /// Not enough credit.
    Credit {
        /// Balance less holds; may be below zero after an overrun.
        available: Credits,
        /// Sum of the open holds.
        held: Credits,
        /// For the rate-limit headers.
        rate: RateView,
    },
    /// The month's quota.
    Quota {
        /// Spent this month.
        used: Credits,
        /// Sum of the open holds.
        held: Credits,
        /// For the rate-limit headers.
        rate: RateView,
    },
    /// The hard limit of the key or of its end user.
    Spent {
        /// Whose.
        spender: Spender,
        /// Spent in the period.
        spent: Credits,
        /// Held by the open calls of the period.
        held: Credits,
        /// For the rate-limit headers.
        rate: RateView,
    },
    /// The key has had as many end users in the period as are counted.
    EndUsers(RateView),
    /// The account may not call. Stores look at this before all else, and count nothing.
    Stopped(AccountStop),
}

impl Denial {
    /// Whether the window has counted the refused request.
    pub fn is_counted(&self) -> bool {
        match self {
            Denial::Requests(_) | Denial::Stopped(_) => false,
            Denial::Tokens(_)
            | Denial::Concurrency(_)
            | Denial::Credit { .. }
            | Denial::Quota { .. }
            | Denial::Spent { .. }
            | Denial::EndUsers(_) => true,
        }
    }

    /// Whether the account has nothing left of its credit, or of its `quota` for the month, so that no call that costs something can be
    /// paid, however little it needs.
    pub fn leaves_nothing(&self, quota: Credits) -> bool {
        match self {
            Denial::Credit { available, .. } => *available <= Credits::ZERO,
            Denial::Quota { used, .. } => *used >= quota,
            Denial::Requests(_)
            | Denial::Tokens(_)
            | Denial::Concurrency(_)
            | Denial::Spent { .. }
            | Denial::EndUsers(_)
            | Denial::Stopped(_) => false,
        }
    }
}

/// An exact debit, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The hold that it closes; it may be gone already.
    pub hold: RequestId,
    /// The exact cost, at least 0.
    pub cost: Credits,
    /// The tokens used, for the tokens-a-minute window.
    pub tokens: u64,
    /// The call's name.
    pub number: CallNumber,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Debited now; `overrun` when the cost was above the hold or the hold was gone.
    Now {
        /// Cost beyond what was held.
        overrun: bool,
    },
    /// This settlement was debited before: nothing changed.
    Already,
    /// The account has forgotten producers of this birth, and whether this was debited before is not known: nothing changed.
    Stale {
        /// The youngest that is forgotten.
        forgotten: Birth,
    },
    /// The balance or the month would leave the range of [`Credits`]: nothing changed.
    OutOfRange,
}
