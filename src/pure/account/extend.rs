//! A hold is raised while its call runs.

use std::sync::Arc;

use super::AccountState;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;
use crate::pure::spend::SpendLimits;
use crate::pure::time::Timestamp;

/// What became of a wish to raise a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// The hold has this now, at least what would do. It may have had it before: the same wish twice is harmless.
    To(Credits),
    /// Credit or quota do not reach so far: nothing changed.
    Refused,
    /// There is no such hold: it has been closed or has expired.
    Gone,
}

impl AccountState {
    /// Raises what a hold has to `range.wanted`, or as near to it as credit, quota and the limits of its key and end user reach, but not to
    /// less than `range.at_least`. Both are what the hold has in all. It never lowers a hold.
    pub fn extend(&mut self, hold: RequestId, range: &HoldRange, quota: Credits, now: Timestamp) -> Extended {
        let limits = self.limits_of(hold);
        self.extend_within(hold, range, quota, limits.as_deref(), now)
    }

    /// The same within these limits: of a hold that another process asks for, this one may know only under which names it counts.
    pub fn extend_within(
        &mut self,
        hold: RequestId,
        range: &HoldRange,
        quota: Credits,
        limits: Option<&SpendLimits>,
        now: Timestamp,
    ) -> Extended {
        self.expire(now);
        let (balance, held, used) = (self.balance, self.held, self.month_used(now));
        let Some(record) = self.holds.get(&hold) else {
            return Extended::Gone;
        };
        let (has, is_counted) = (record.amount, record.spend.is_some());
        if has >= range.wanted {
            return Extended::To(has);
        }
        let counted = if is_counted { has } else { Credits::ZERO };
        let limits_leave = limits.map_or(Credits::MAX, |limits| self.limits_leave(limits, hold, counted));
        let others = held.saturating_sub(has);
        let available = balance.saturating_sub(others);
        let quota_left = quota.saturating_sub(used).saturating_sub(others);
        let amount = range.wanted.min(available).min(quota_left).min(limits_leave);
        if amount < range.at_least || amount <= has {
            return if has >= range.at_least {
                Extended::To(has)
            } else {
                Extended::Refused
            };
        }
        self.extended(hold, amount);
        Extended::To(amount)
    }

    /// Records that a hold has this now, which was granted: nothing is checked. It never lowers a hold. False when there
    /// is no such hold.
    pub fn extended(&mut self, hold: RequestId, amount: Credits) -> bool {
        let Some(record) = self.holds.get_mut(&hold) else {
            return false;
        };
        if record.amount >= amount {
            return true;
        }
        let more = amount.saturating_sub(record.amount);
        record.amount = amount;
        let spend = record.spend.clone();
        if let Some(limits) = &spend {
            self.hold_spending(limits, hold, more);
        }
        self.held = self.held.saturating_add(more);
        true
    }

    /// The limits that a hold counts under.
    pub fn limits_of(&self, hold: RequestId) -> Option<Arc<SpendLimits>> {
        self.holds.get(&hold)?.spend.clone()
    }
}
