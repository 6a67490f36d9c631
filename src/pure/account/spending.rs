//! What each key, and each end user of a key, has spent and holds in each period, as far as they have limits.

use std::collections::HashMap;
use std::sync::Arc;

use super::{AccountState, Denial, KeptSpending, ReserveRequest, Spent};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::limits::RateView;
use crate::pure::money::Credits;
use crate::pure::spend::{END_USERS_MAX, EndUser, EndUserId, SpendLimit, SpendLimits, SpendPeriod, Spender};
use crate::pure::spending::Spending;
use crate::pure::time::Day;

impl AccountState {
    /// Whether what the key spends is counted for a limit.
    pub fn tracks(&self, key: &KeyId) -> bool {
        !self.spending.keys.is_empty() && self.spending.keys.contains_key(self.counted_as(key))
    }

    /// Has a key count as another one from now on: what both spend counts together, so that a limit holds for both as for one.
    pub fn share(&mut self, key: &KeyId, with: &KeyId) {
        let with = self.counted_as(with).clone();
        self.spending.shared.insert(key.clone(), with);
    }

    /// The key that what this one spends counts under: mostly itself.
    pub fn counted_as<'a>(&'a self, key: &'a KeyId) -> &'a KeyId {
        match self.spending.shared.is_empty() {
            true => key,
            false => self.spending.shared.get(key).unwrap_or(key),
        }
    }

    /// Counts what the key spends from now on, on top of what it has spent before. A second time nothing changes.
    pub fn track(&mut self, key: &KeyId, before: &HashMap<SpendPeriod, Credits>) {
        let sums = |(period, spent): (&SpendPeriod, &Credits)| {
            let held = Credits::ZERO;
            (*period, Spent { spent: *spent, held })
        };
        let known = &mut self.spending.keys;
        known
            .entry(key.clone())
            .or_insert_with(|| before.iter().map(sums).collect());
    }

    /// Counts the exact cost of a request as spent by its key, when that is tracked, and by its end user.
    pub fn spend(&mut self, key: &KeyId, end_user: Option<EndUser>, request: RequestId, cost: Credits) {
        if end_user.is_none() && !self.tracks(key) {
            return;
        }
        let day = request.time().day();
        let key = &self.counted_as(key).clone();
        if self.tracks(key)
            && let Some(periods) = self.spending.keys.get_mut(key)
        {
            for period in SpendPeriod::all_of(day) {
                add(&mut periods.entry(period).or_default().spent, cost);
            }
        }
        // Whoever has spent nothing and holds nothing is not known: there is a most of those that are.
        if let Some(end_user) = end_user.filter(|_| cost > Credits::ZERO) {
            let of_key = self.spending.end_users.entry((key.clone(), end_user.period(request)));
            add(&mut of_key.or_default().entry(end_user.id).or_default().spent, cost);
        }
    }

    /// What the key has spent, and holds, in a period.
    pub fn spent(&self, key: &KeyId, period: SpendPeriod) -> Spent {
        let periods = self.spending.keys.get(self.counted_as(key));
        periods
            .and_then(|periods| periods.get(&period))
            .copied()
            .unwrap_or_default()
    }

    /// Replaces what the key has spent in a period, as a store counted it anew; what it holds stays. Nothing for one that is not tracked.
    pub fn set_spent(&mut self, key: &KeyId, period: SpendPeriod, spent: Credits) {
        let key = self.counted_as(key).clone();
        if let Some(periods) = self.spending.keys.get_mut(&key) {
            periods.entry(period).or_default().spent = spent;
        }
    }

    /// What an end user of the key has spent, and holds, in a period.
    pub fn spent_by(&self, key: &KeyId, end_user: EndUserId, period: SpendPeriod) -> Spent {
        let of_key = self.spending.end_users.get(&(self.counted_as(key).clone(), period));
        of_key.and_then(|all| all.get(&end_user)).copied().unwrap_or_default()
    }

    /// Everybody who has spent something, as a store keeps it.
    pub fn kept_spending(&self) -> KeptSpending {
        let keys = self.spending.keys.iter().flat_map(|(key, periods)| {
            let each = periods.iter();
            each.map(move |(period, sums)| ((key.clone(), None, *period), sums.spent))
        });
        let end_users = self.spending.end_users.iter().flat_map(|((key, period), all)| {
            let each = all.iter();
            each.map(move |(id, sums)| ((key.clone(), Some(*id), *period), sums.spent))
        });
        keys.chain(end_users).collect()
    }

    /// Makes what was spent what a store has; what is held stays.
    pub(super) fn read_spending(&mut self, kept: KeptSpending) {
        let Spending { keys, end_users, .. } = &mut self.spending;
        let all = keys.values_mut().flat_map(HashMap::values_mut);
        all.chain(end_users.values_mut().flat_map(HashMap::values_mut))
            .for_each(|sums| sums.spent = Credits::ZERO);
        for ((key, end_user, period), spent) in kept {
            let sums = match end_user {
                None => keys.entry(key).or_default().entry(period).or_default(),
                Some(id) => end_users.entry((key, period)).or_default().entry(id).or_default(),
            };
            sums.spent = spent;
        }
    }

    /// How many end users are known, once a period.
    pub fn end_users_known(&self) -> usize {
        self.spending.end_users.values().map(HashMap::len).sum()
    }

    /// Lets go of the periods that were over before `day` and hold nothing: a store has what was spent in them.
    pub fn forget_spending(&mut self, day: Day) {
        for periods in self.spending.keys.values_mut() {
            periods.retain(|period, sums| !period.is_before(day) || sums.held != Credits::ZERO);
        }
        self.spending
            .end_users
            .retain(|(_, period), all| !period.is_before(day) || all.values().any(|sums| sums.held != Credits::ZERO));
    }

    /// As much of `amount` as the limits leave.
    pub(super) fn within_limits(
        &self,
        request: &ReserveRequest,
        amount: Credits,
        rate: RateView,
    ) -> Result<Credits, Denial> {
        let Some(limits) = request.spend.as_deref() else {
            return Ok(amount);
        };
        let mut amount = amount;
        for (spender, limit, has) in self.standing(limits, request.id) {
            let left = left(limit, has, Credits::ZERO);
            if left < request.at_least {
                let Spent { spent, held } = has;
                return Err(Denial::Spent {
                    spender,
                    spent,
                    held,
                    rate,
                });
            }
            amount = amount.min(left);
        }
        if let Some((id, limit)) = limits.end_user {
            let period = limit.reset.period(request.id.time().day());
            let known = self
                .spending
                .end_users
                .get(&(self.counted_as(&limits.key).clone(), period));
            let is_full = |all: &HashMap<EndUserId, Spent>| {
                !all.contains_key(&id) && all.len() >= usize::try_from(END_USERS_MAX).unwrap_or(usize::MAX)
            };
            if known.is_some_and(is_full) {
                return Err(Denial::EndUsers(rate));
            }
        }
        Ok(amount)
    }

    /// How much the limits leave of a hold that has `has` already.
    pub(super) fn limits_leave(&self, limits: &SpendLimits, request: RequestId, has: Credits) -> Credits {
        let each = self.standing(limits, request).into_iter();
        each.map(|(_, limit, sums)| left(limit, sums, has))
            .min()
            .unwrap_or(Credits::MAX)
    }

    /// The limits that there are, with what counts under each.
    fn standing(&self, limits: &SpendLimits, request: RequestId) -> Vec<(Spender, SpendLimit, Spent)> {
        let day = request.time().day();
        let own = limits.own.map(|limit| {
            let sums = self.spent(&limits.key, limit.reset.period(day));
            (Spender::Key, limit, sums)
        });
        let end_user = limits.end_user.map(|(id, limit)| {
            let sums = self.spent_by(&limits.key, id, limit.reset.period(day));
            (Spender::EndUser, limit, sums)
        });
        own.into_iter().chain(end_user).collect()
    }

    /// A hold of the request has `more` from now on, below 0 when it has less.
    pub(super) fn hold_spending(&mut self, limits: &Arc<SpendLimits>, request: RequestId, more: Credits) {
        let key = self.counted_as(&limits.key).clone();
        let periods = self.spending.keys.entry(key.clone()).or_default();
        for period in SpendPeriod::all_of(request.time().day()) {
            add(&mut periods.entry(period).or_default().held, more);
        }
        if let Some(end_user) = limits.end_user() {
            let all = self.spending.end_users.entry((key, end_user.period(request)));
            let all = all.or_default();
            let sums = all.entry(end_user.id).or_default();
            add(&mut sums.held, more);
            if *sums == Spent::default() {
                all.remove(&end_user.id);
            }
        }
    }
}

/// What a limit leaves, when `has` of what is held is the asker's own.
fn left(limit: SpendLimit, sums: Spent, has: Credits) -> Credits {
    let others = sums.held.saturating_sub(has);
    limit.amount.saturating_sub(sums.spent).saturating_sub(others)
}

/// A sum that would leave the range is the largest amount, in every store: a limit is nothing above it.
fn add(sum: &mut Credits, more: Credits) {
    *sum = sum.saturating_add(more);
}

#[cfg(test)]
mod tests;
