//! A hold is raised while its call runs.

use super::AccountState;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;
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
    /// Raises what a hold has to `range.wanted`, or as near to it as credit, quota and the limits of its key and end user reach, but not to less than `range.at_least`. Both
    /// are what the hold has in all. It never lowers a hold.
    pub fn extend(&mut self, hold: RequestId, range: &HoldRange, quota: Credits, now: Timestamp) -> Extended {
        self.expire(now);
        let (balance, held, used) = (self.balance, self.held, self.month_used(now));
        let Some(record) = self.holds.get(&hold) else {
            return Extended::Gone;
        };
        let spend = record.spend.clone();
        let limits_leave = match &spend {
            Some(limits) => self.limits_leave(limits, hold, record.amount),
            None => Credits::MAX,
        };
        let Some(record) = self.holds.get_mut(&hold) else {
            return Extended::Gone;
        };
        if record.amount >= range.wanted {
            return Extended::To(record.amount);
        }
        let others = held.saturating_sub(record.amount);
        let available = balance.saturating_sub(others);
        let quota_left = quota.saturating_sub(used).saturating_sub(others);
        let amount = range.wanted.min(available).min(quota_left).min(limits_leave);
        if amount < range.at_least || amount <= record.amount {
            return if record.amount >= range.at_least {
                Extended::To(record.amount)
            } else {
                Extended::Refused
            };
        }
        let more = amount.saturating_sub(record.amount);
        record.amount = amount;
        if let Some(limits) = &spend {
            self.hold_spending(limits, hold, more);
        }
        self.held = others.saturating_add(amount);
        Extended::To(amount)
    }
}
