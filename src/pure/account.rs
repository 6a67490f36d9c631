//! An account as a value: balance, holds, month, rate windows and the settlements already seen. One step is one method.
//!
//! The embedded store keeps these in memory; the tests use them as the reference that every store must agree with.
//! What a step asks for and answers is in `step`.

mod look;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use self::id_hash::IdHasher;
use super::hash_map::FastMap;
use super::ids::RequestId;
use super::limits::{Limits, RateView, Window};
use super::money::Credits;
use super::numbers::{Birth, CallNumber, Numbers, ProducerId, RULES};
use super::spend::SpendLimits;
use super::spending::Spending;
pub use super::spending::{KeptSpending, Spent};
use super::time::{Month, Timestamp};
pub use look::Look;

mod extend;
mod id_hash;
pub mod post;
mod spending;
mod step;

pub use self::extend::Extended;
pub use self::step::{Denial, Granted, ReserveRequest, Scope, Settled, Settlement};

/// The account's figures.
#[derive(Clone, Debug, Default)]
pub struct AccountState {
    balance: Credits,
    held: Credits,
    /// What each month's usage adds up to.
    months: BTreeMap<Month, Credits>,
    holds: HashMap<RequestId, HoldRecord, BuildHasherDefault<IdHasher>>,
    earliest_expiry: Option<Timestamp>,
    scopes: Vec<(Scope, ScopeCounts)>,
    producers: FastMap<ProducerId, Numbers>,
    forgotten: Option<Birth>,
    spending: Spending,
}

/// What a store keeps of an account: no holds, no windows.
#[derive(Clone, Debug, Default)]
pub struct KeptState {
    /// Paid in less spent.
    pub balance: Credits,
    /// What each month's usage adds up to.
    pub months: BTreeMap<Month, Credits>,
    /// Which numbers each producer has resolved.
    pub producers: HashMap<ProducerId, Numbers>,
    /// The youngest producer that was forgotten.
    pub forgotten: Option<Birth>,
    /// What keys with limits and their end users have spent.
    pub spending: KeptSpending,
}

#[derive(Clone, Debug)]
struct HoldRecord {
    amount: Credits,
    expires: Timestamp,
    scope: usize,
    admitted: Timestamp,
    tokens: u64,
    /// The limits that it counts under.
    spend: Option<Arc<SpendLimits>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ScopeCounts {
    window: Window,
    open: u64,
}

impl AccountState {
    /// An account as a store kept it.
    pub fn restored(kept: KeptState) -> Self {
        let mut state = AccountState::default();
        state.read_anew(kept);
        state
    }

    /// What was paid in less what was spent.
    pub fn balance(&self) -> Credits {
        self.balance
    }

    /// Sum of the open holds.
    pub fn held(&self) -> Credits {
        self.held
    }

    /// Number of open holds.
    pub fn open_holds(&self) -> usize {
        self.holds.len()
    }

    /// Sum of the open holds, counted one by one: equals [`AccountState::held`] or the books do not balance.
    pub fn held_counted(&self) -> Credits {
        self.holds
            .values()
            .fold(Credits::ZERO, |sum, hold| sum.saturating_add(hold.amount))
    }

    /// Spent in the UTC month of `now`: what the usage of its days adds up to, whatever the clock did in between.
    pub fn month_used(&self, now: Timestamp) -> Credits {
        self.months.get(&now.month()).copied().unwrap_or_default()
    }

    /// Replaces what each month's usage adds up to, as it was counted from the usage itself.
    pub fn set_months(&mut self, months: BTreeMap<Month, Credits>) {
        self.months = months;
    }

    /// What each month's usage adds up to.
    pub fn months(&self) -> &BTreeMap<Month, Credits> {
        &self.months
    }

    /// The producer's numbers, as far as they are known.
    pub fn numbers(&self, producer: ProducerId) -> Numbers {
        self.producers.get(&producer).cloned().unwrap_or_default()
    }

    /// The youngest producer that was forgotten, when this number's may be one of those.
    pub fn is_stale(&self, number: CallNumber) -> Option<Birth> {
        let is_unknown = !self.producers.contains_key(&number.producer);
        self.forgotten
            .filter(|_| is_unknown && (RULES.is_stale)(number.born, self.forgotten))
    }

    /// Forgets a producer.
    pub fn forget(&mut self, producer: ProducerId, born: Birth) {
        if self.producers.remove(&producer).is_some() {
            self.forgotten = (RULES.forget)(self.forgotten, born);
        }
    }

    /// The scope's counts for the headers of answers that admit nothing.
    pub fn rate(&self, scope: &Scope, limits: Limits, now: Timestamp) -> RateView {
        let counts = self
            .scopes
            .iter()
            .find(|(s, _)| s == scope)
            .map(|(_, counts)| *counts)
            .unwrap_or_default();
        counts.window.at(now).view(limits, now)
    }

    /// Checks limits, credit and quota and records the hold: all or nothing. A refusal costs nothing, and counts as a request of its
    /// window unless the limit of requests is what refused it.
    ///
    /// A second reserve with the id of an open hold answers with that hold, so a lost reply is harmless.
    pub fn reserve(&mut self, request: &ReserveRequest, now: Timestamp) -> Result<Granted, Denial> {
        self.expire(now);
        let scope = self.scope_index(&request.scope);
        let (window, open) = match self.scopes.get(scope) {
            Some((_, counts)) => (counts.window.at(now), counts.open),
            None => (Window::default().at(now), 0),
        };
        let view = window.view(request.limits, now);
        if let Some(hold) = self.holds.get(&request.id) {
            return Ok(Granted {
                amount: hold.amount,
                rate: view,
            });
        }
        let window = window.with_requests(u64::from(!request.is_counted));
        if window.requests() > request.limits.rpm {
            return Err(Denial::Requests(view));
        }
        let tokens = request.tokens.min(request.limits.tpm);
        match self.fits(request, window, open, now) {
            Ok(amount) => {
                let window = window.with_tokens(tokens);
                self.open(request, scope, (window, tokens), amount, now);
                Ok(Granted {
                    amount,
                    rate: window.view(request.limits, now),
                })
            }
            Err(denial) => {
                if let Some((_, counts)) = self.scopes.get_mut(scope) {
                    *counts = ScopeCounts { window, open };
                }
                Err(denial)
            }
        }
    }

    /// Records a hold that was granted elsewhere: nothing is checked.
    pub fn hold(&mut self, request: &ReserveRequest, amount: Credits, now: Timestamp) {
        let scope = self.scope_index(&request.scope);
        let tokens = request.tokens.min(request.limits.tpm);
        let window = self.scopes.get(scope).map(|(_, counts)| counts.window);
        let window = window.unwrap_or_default().at(now).with_requests(1).with_tokens(tokens);
        self.open(request, scope, (window, tokens), amount, now);
    }

    fn open(
        &mut self,
        request: &ReserveRequest,
        scope: usize,
        (window, tokens): (Window, u64),
        amount: Credits,
        now: Timestamp,
    ) {
        if let Some((_, counts)) = self.scopes.get_mut(scope) {
            *counts = ScopeCounts {
                window,
                open: counts.open.saturating_add(1),
            };
        }
        self.held = self.held.saturating_add(amount);
        let spend = request.spend.as_ref().filter(|_| request.wanted > Credits::ZERO);
        if let Some(limits) = spend {
            self.hold_spending(limits, request.id, amount);
        }
        let hold = HoldRecord {
            amount,
            expires: request.expires,
            scope,
            admitted: now,
            tokens,
            spend: spend.cloned(),
        };
        self.holds.insert(request.id, hold);
        self.earliest_expiry = Some(self.earliest_expiry.map_or(request.expires, |t| t.min(request.expires)));
    }

    /// Replaces what a store keeps by what it has now; holds and windows stay.
    pub fn read_anew(&mut self, kept: KeptState) {
        self.balance = kept.balance;
        self.months = kept.months;
        self.producers = kept.producers.into_iter().collect();
        self.forgotten = kept.forgotten;
        self.read_spending(kept.spending);
    }

    /// Closes a number with its cost, without a look at holds. What the account refuses, and how much was spent in the month with it.
    pub fn resolve(&mut self, number: CallNumber, cost: Credits, month: Month) -> Result<Credits, Settled> {
        let (balance, used) = (self.balance.checked_sub(cost), self.months.get(&month).copied());
        let used = used.unwrap_or_default().checked_add(cost);
        let numbers = match self.producers.entry(number.producer) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if (RULES.is_stale)(number.born, self.forgotten) => {
                let forgotten = self.forgotten.unwrap_or_default();
                return Err(Settled::Stale { forgotten });
            }
            Entry::Vacant(unknown) => unknown.insert(Numbers::default()),
        };
        if numbers.is_closed(number.number) {
            return Err(Settled::Already);
        }
        let (Some(balance), Some(used)) = (balance, used) else {
            return Err(Settled::OutOfRange);
        };
        (RULES.resolve)(numbers, number.number);
        self.balance = balance;
        self.months.insert(month, used);
        Ok(used)
    }

    /// Takes the exact cost once, whatever became of the hold, and closes it. An overrun may take the balance below zero.
    pub fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        if let Err(refused) = self.resolve(settlement.number, settlement.cost, now.month()) {
            return refused;
        }
        let held = self.close(settlement.hold, Some(settlement.tokens));
        Settled::Now {
            overrun: held.is_none_or(|held| settlement.cost > held),
        }
    }

    /// Gives a hold back. What it held, or nothing when it was gone.
    pub fn release(&mut self, hold: RequestId) -> Option<Credits> {
        self.close(hold, Some(0))
    }

    /// Whether a hold is open.
    pub fn is_held(&self, hold: RequestId) -> bool {
        self.holds.contains_key(&hold)
    }

    /// What a hold holds, and in which scope it counts.
    pub fn held_by(&self, hold: RequestId) -> Option<(Credits, &Scope)> {
        let record = self.holds.get(&hold)?;
        let (scope, _) = self.scopes.get(record.scope)?;
        Some((record.amount, scope))
    }

    /// Moves a live hold's expiry. False when it is gone.
    pub fn renew(&mut self, hold: RequestId, expires: Timestamp) -> bool {
        match self.holds.get_mut(&hold) {
            Some(record) => {
                record.expires = expires;
                true
            }
            None => false,
        }
    }

    /// Frees the holds whose time is over, and says how many.
    pub fn expire(&mut self, now: Timestamp) -> usize {
        if self.earliest_expiry.is_none_or(|earliest| now < earliest) {
            return 0;
        }
        let over: Vec<RequestId> = self
            .holds
            .iter()
            .filter(|(_, h)| h.expires <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in &over {
            self.close(*id, None);
        }
        self.earliest_expiry = self.holds.values().map(|hold| hold.expires).min();
        over.len()
    }

    /// Adds credit. False, and nothing changed, beyond the range.
    pub fn top_up(&mut self, amount: Credits) -> bool {
        match self.balance.checked_add(amount) {
            Some(balance) => {
                self.balance = balance;
                true
            }
            None => false,
        }
    }

    /// How much is held for a request that its window has counted.
    fn fits(&self, request: &ReserveRequest, window: Window, open: u64, now: Timestamp) -> Result<Credits, Denial> {
        let rate = window.view(request.limits, now);
        let tokens = request.tokens.min(request.limits.tpm);
        if window.tokens().saturating_add(tokens) > request.limits.tpm {
            return Err(Denial::Tokens(rate));
        }
        if open >= request.limits.concurrency {
            return Err(Denial::Concurrency(rate));
        }
        self.coverable(request, rate, now)
    }

    fn coverable(&self, request: &ReserveRequest, rate: RateView, now: Timestamp) -> Result<Credits, Denial> {
        if request.wanted <= Credits::ZERO {
            return Ok(Credits::ZERO);
        }
        let (held, used) = (self.held, self.month_used(now));
        let available = self.balance.saturating_sub(held);
        if available < request.at_least {
            return Err(Denial::Credit { available, held, rate });
        }
        let quota_left = request.quota.saturating_sub(used).saturating_sub(held);
        if quota_left < request.at_least {
            return Err(Denial::Quota { used, held, rate });
        }
        self.within_limits(request, request.wanted.min(available).min(quota_left), rate)
    }

    fn close(&mut self, id: RequestId, actual_tokens: Option<u64>) -> Option<Credits> {
        let hold = self.holds.remove(&id)?;
        self.held = self.held.saturating_sub(hold.amount);
        if let Some((_, counts)) = self.scopes.get_mut(hold.scope) {
            counts.open = counts.open.saturating_sub(1);
            if let Some(actual) = actual_tokens {
                counts.window = counts.window.corrected(hold.admitted, hold.tokens, actual);
            }
        }
        if let Some(limits) = &hold.spend {
            self.hold_spending(limits, id, Credits::ZERO.saturating_sub(hold.amount));
        }
        Some(hold.amount)
    }

    fn scope_index(&mut self, scope: &Scope) -> usize {
        if let Some(index) = self.scopes.iter().position(|(s, _)| s == scope) {
            return index;
        }
        self.scopes.push((scope.clone(), ScopeCounts::default()));
        self.scopes.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests;
