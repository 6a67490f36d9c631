//! What waits for a slot that a cluster moves: a script is run at neither master while not all of its keys are at one of them, also where some
//! were never made (TRYAGAIN). How long that lasts is up to whoever moves the slot. So it is a matter of the slot's accounts alone: nothing of
//! another account stands behind what waits here, and of its own account only who waits for all that happened before.
//!
//! Of each account one settlement or release is tried every [`AGAIN`]. Once Redis has answered that one, the others follow. Until then the holds
//! of the settlements are renewed, so that their credit is nobody else's before they are taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::redis::account::Account;
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::queue::{QueuedDebit, Work};
use crate::pure::ids::{AccountId, RequestId};

/// What waits, by account.
#[derive(Debug)]
pub(super) struct Moving {
    accounts: BTreeMap<AccountId, Waiting>,
    /// When one of each is tried again, by the ledger's monotonic clock.
    due_ms: u64,
    /// The life of a hold of which this process does not know it.
    hold_ttl_ms: u64,
}

/// What waits of an account.
#[derive(Debug)]
struct Waiting {
    account: Arc<Account>,
    works: VecDeque<Work>,
    /// The one of them that was sent again.
    tried: Option<Tried>,
    /// When their holds are to be renewed.
    renew_ms: u64,
    /// Since when something waits.
    since_ms: u64,
    is_told: bool,
}

/// A settlement or release that was sent again, and has no answer yet.
#[derive(Debug)]
struct Tried {
    hold: RequestId,
    /// The life of a settlement's hold.
    ttl_ms: Option<u64>,
}

impl Moving {
    /// `hold_ttl`: the life of holds, where it is not known of one.
    pub(super) fn new(hold_ttl: Duration) -> Moving {
        Moving {
            accounts: BTreeMap::new(),
            due_ms: 0,
            hold_ttl_ms: millis(hold_ttl),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether something of the account waits.
    pub(super) fn has(&self, account: &AccountId) -> bool {
        self.accounts.contains_key(account)
    }

    /// What waits of an account, but for the one that was sent again.
    pub(super) fn works_of(&self, account: &AccountId) -> impl Iterator<Item = &Work> {
        let waiting = self.accounts.get(account);
        waiting.into_iter().flat_map(|waiting| waiting.works.iter())
    }

    /// When the oldest settlement was queued that waits, by the ledger's monotonic clock.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        let since = |waiting: &Waiting| waiting.account.waits_since_ms();
        self.accounts.values().filter_map(since).min()
    }

    /// Takes what Redis could not run, or a barrier of an account of which something waits ([`Moving::has`]).
    pub(super) fn put(&mut self, work: Work, now_ms: u64) {
        let account = match &work {
            Work::Settle(debit) => Arc::clone(&debit.account),
            Work::Release { account, .. } => Arc::clone(account),
            Work::Barrier { account, .. } => {
                let account = account.clone();
                if let Some(waiting) = self.accounts.get_mut(&account) {
                    waiting.works.push_back(work);
                }
                return;
            }
        };
        if self.accounts.is_empty() {
            self.due_ms = now_ms.saturating_add(millis(AGAIN));
        }
        let new = || Waiting::of(&account, now_ms);
        let waiting = self.accounts.entry(account.id().clone()).or_insert_with(new);
        if let Work::Settle(debit) = &work {
            account.waits(debit.queued_ms);
        }
        if waiting.tried.as_ref().map(|tried| tried.hold) == hold_of(&work) {
            waiting.tried = None;
            waiting.works.push_front(work);
            return;
        }
        if let Work::Settle(debit) = &work {
            waiting.renew_ms = waiting.renew_ms.min(renewal_ms(debit, self.hold_ttl_ms));
        }
        waiting.works.push_back(work);
    }

    /// How long it is until one of each account is tried again; none when nothing waits.
    pub(super) fn due_in(&self, now_ms: u64) -> Option<Duration> {
        let left_ms = self.due_ms.saturating_sub(now_ms);
        (!self.accounts.is_empty()).then_some(Duration::from_millis(left_ms))
    }

    /// One of each account, when it is time.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<Work> {
        if self.accounts.is_empty() || now_ms < self.due_ms {
            return Vec::new();
        }
        self.due_ms = now_ms.saturating_add(millis(AGAIN));
        let ttl_ms = self.hold_ttl_ms;
        let one = |waiting: &mut Waiting| waiting.take_one(ttl_ms, now_ms);
        self.accounts.values_mut().filter_map(one).collect()
    }

    /// The others of an account, when Redis has answered the one that was tried: this hold's.
    pub(super) fn take_rest(&mut self, account: &Account, hold: RequestId, now_ms: u64) -> Vec<Work> {
        let tried = self
            .accounts
            .get(account.id())
            .and_then(|waiting| waiting.tried.as_ref());
        if tried.is_none_or(|tried| tried.hold != hold) {
            return Vec::new();
        }
        let waiting = self.accounts.remove(account.id());
        waiting.map_or_else(Vec::new, |waiting| waiting.let_go(now_ms))
    }

    /// All of the accounts that are another shard's by now.
    pub(super) fn take_those(&mut self, is_others: impl Fn(&Account) -> bool, now_ms: u64) -> Vec<Work> {
        let others = self.accounts.iter().filter(|(_, waiting)| is_others(&waiting.account));
        let others: Vec<AccountId> = others.map(|(id, _)| id.clone()).collect();
        let taken = others.iter().filter_map(|id| self.accounts.remove(id));
        taken.flat_map(|waiting| waiting.let_go(now_ms)).collect()
    }

    /// The holds of settlements that are to be renewed.
    pub(super) fn to_renew(&self, now_ms: u64) -> Vec<Due> {
        let mut due = Vec::new();
        for waiting in self.accounts.values().filter(|waiting| waiting.renew_ms <= now_ms) {
            let mut by_life: BTreeMap<u64, Vec<RequestId>> = BTreeMap::new();
            for (hold, ttl_ms) in waiting.holds(self.hold_ttl_ms) {
                by_life.entry(ttl_ms).or_default().push(hold);
            }
            let of_life = |(ttl_ms, holds)| (Arc::clone(&waiting.account), ttl_ms, holds);
            due.extend(by_life.into_iter().map(of_life));
        }
        due
    }

    /// These were renewed at `now_ms`, of those that were due then. One that was not, for Redis was not asked or has not got it, has its
    /// account's holds renewed again soon.
    pub(super) fn renewed(&mut self, holds: &[RequestId], now_ms: u64) {
        if self.accounts.is_empty() {
            return;
        }
        let renewed: BTreeSet<RequestId> = holds.iter().copied().collect();
        let hold_ttl_ms = self.hold_ttl_ms;
        for waiting in self.accounts.values_mut().filter(|waiting| waiting.renew_ms <= now_ms) {
            if waiting.holds(hold_ttl_ms).all(|(hold, _)| renewed.contains(&hold)) {
                let shortest = waiting.holds(hold_ttl_ms).map(|(_, ttl_ms)| ttl_ms).min();
                waiting.renew_ms = shortest.map_or(u64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms / 3));
            }
        }
    }
}

impl Waiting {
    fn of(account: &Arc<Account>, now_ms: u64) -> Waiting {
        log::debug!("what Redis has to hear of {} waits: its slot moves", account.id());
        Waiting {
            account: Arc::clone(account),
            works: VecDeque::new(),
            tried: None,
            renew_ms: u64::MAX,
            since_ms: now_ms,
            is_told: false,
        }
    }

    fn take_one(&mut self, hold_ttl_ms: u64, now_ms: u64) -> Option<Work> {
        let waited_ms = now_ms.saturating_sub(self.since_ms);
        if waited_ms >= TOLD_AFTER_MS && !self.is_told {
            self.is_told = true;
            let (id, slot) = (self.account.id(), self.account.slot());
            log::warn!(
                "debits of {id} have waited for {waited_ms} ms for slot {slot}, which moves: its keys are not all at one master"
            );
        }
        // Who waited for the others may have gone.
        self.works.retain(|work| !work.is_abandoned());
        if self.tried.is_some() {
            return None;
        }
        let place = self.works.iter().position(|work| hold_of(work).is_some())?;
        let work = self.works.remove(place)?;
        self.tried = hold_of(&work).map(|hold| Tried {
            hold,
            ttl_ms: life_of(&work, hold_ttl_ms).map(|(_, ttl_ms)| ttl_ms),
        });
        Some(work)
    }

    /// The holds of its settlements, with the life that each gets.
    fn holds(&self, hold_ttl_ms: u64) -> impl Iterator<Item = (RequestId, u64)> {
        let tried = self.tried.as_ref();
        let tried = tried.and_then(|tried| Some((tried.hold, tried.ttl_ms?)));
        let waiting = self.works.iter().filter_map(move |work| life_of(work, hold_ttl_ms));
        tried.into_iter().chain(waiting)
    }

    /// What waited stands in a queue again from now on.
    fn let_go(self, now_ms: u64) -> Vec<Work> {
        self.account.waits_no_more();
        let mut works = Vec::from(self.works);
        for work in &mut works {
            if let Work::Settle(debit) = work {
                debit.queued_ms = now_ms.max(1);
            }
        }
        works
    }
}

/// Holds of an account that are to be renewed, and the life that they get, in milliseconds.
pub(super) type Due = (Arc<Account>, u64, Vec<RequestId>);

fn hold_of(work: &Work) -> Option<RequestId> {
    match work {
        Work::Settle(debit) => Some(debit.hold),
        Work::Release { hold, .. } => Some(*hold),
        Work::Barrier { .. } => None,
    }
}

/// A settlement's hold, and its life.
fn life_of(work: &Work, hold_ttl_ms: u64) -> Option<(RequestId, u64)> {
    match work {
        Work::Settle(debit) => Some((debit.hold, ttl_ms(debit, hold_ttl_ms))),
        Work::Release { .. } | Work::Barrier { .. } => None,
    }
}

fn ttl_ms(debit: &QueuedDebit, hold_ttl_ms: u64) -> u64 {
    debit.known.as_ref().map_or(hold_ttl_ms, |hold| hold.ttl_ms)
}

/// When a settlement's hold is to be renewed: when it has lived a third of its life, or at once where that is not known.
fn renewal_ms(debit: &QueuedDebit, hold_ttl_ms: u64) -> u64 {
    let renewed_ms = debit.known.as_ref().map(|hold| hold.renewed_ms);
    renewed_ms.map_or(0, |at_ms| at_ms.saturating_add(ttl_ms(debit, hold_ttl_ms) / 3))
}

/// How often one of each account is tried.
const AGAIN: Duration = Duration::from_millis(100);
/// After how long it is told that an account's debits wait, in milliseconds.
const TOLD_AFTER_MS: u64 = 10_000;

#[cfg(test)]
mod tests;
