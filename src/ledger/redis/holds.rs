//! The holds that are open in this process: so that they are renewed, and so that a settlement knows what it closes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::account::Account;
use crate::ledger::cover::{Cover, Uncovered};
use crate::pure::account::Scope;
use crate::pure::error::AccountStop;
use crate::pure::hash_map::FastMap;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;
use crate::pure::spend::SpendLimits;

/// An open hold of this process.
#[derive(Clone, Debug)]
pub(super) struct OpenHold {
    pub(super) account: Arc<Account>,
    pub(super) scope: Scope,
    pub(super) amount: Credits,
    /// The account's quota of a month, as it was at the admission.
    pub(super) quota: Credits,
    /// Its life, from each renewal on.
    pub(super) ttl_ms: u64,
    /// When Redis was asked to make it, or to renew it, and did: by the ledger's monotonic clock, before the question left.
    pub(super) renewed_ms: u64,
    /// Its call's.
    pub(super) cover: Arc<Cover>,
    /// The hard limits that it counts under.
    pub(super) spend: Option<Arc<SpendLimits>>,
    /// Its call is to end when its account is stopped.
    pub(super) ends_when_stopped: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct OpenHolds {
    open: Mutex<FastMap<RequestId, OpenHold>>,
    shortest_ttl_ms: AtomicU64,
}

impl Default for OpenHolds {
    fn default() -> OpenHolds {
        OpenHolds {
            open: Mutex::default(),
            shortest_ttl_ms: AtomicU64::new(u64::MAX),
        }
    }
}

impl OpenHolds {
    pub(super) fn insert(&self, id: RequestId, hold: OpenHold) {
        self.shortest_ttl_ms.fetch_min(hold.ttl_ms, Ordering::Relaxed);
        self.lock().insert(id, hold);
    }

    /// A hold was raised to this.
    pub(super) fn extended(&self, id: RequestId, amount: Credits) {
        if let Some(hold) = self.lock().get_mut(&id) {
            hold.amount = amount;
        }
    }

    pub(super) fn remove(&self, id: RequestId) -> Option<OpenHold> {
        self.lock().remove(&id)
    }

    /// How many are open, and what they hold together.
    pub(super) fn sums(&self) -> (u64, Credits) {
        let holds = self.lock();
        let count = u64::try_from(holds.len()).unwrap_or(u64::MAX);
        let held = holds
            .values()
            .fold(Credits::ZERO, |sum, hold| sum.saturating_add(hold.amount));
        (count, held)
    }

    /// Those of some accounts that have lived a third of their life or more at `now_ms`, grouped by what one call can renew.
    pub(super) fn due(
        &self,
        now_ms: u64,
        is_meant: impl Fn(&Account) -> bool,
    ) -> Vec<(Arc<Account>, u64, Vec<RequestId>)> {
        let mut groups: Vec<(Arc<Account>, u64, Vec<RequestId>)> = Vec::new();
        let mut place: HashMap<(*const Account, u64), usize> = HashMap::new();
        for (id, hold) in &*self.lock() {
            if now_ms.saturating_sub(hold.renewed_ms) < hold.ttl_ms / 3 || !is_meant(&hold.account) {
                continue;
            }
            let at = *place
                .entry((Arc::as_ptr(&hold.account), hold.ttl_ms))
                .or_insert_with(|| {
                    groups.push((Arc::clone(&hold.account), hold.ttl_ms, Vec::new()));
                    groups.len() - 1
                });
            if let Some((_, _, ids)) = groups.get_mut(at) {
                ids.push(*id);
            }
        }
        groups
    }

    /// The shortest life that a hold has had in this process.
    pub(super) fn shortest_ttl_ms(&self) -> u64 {
        self.shortest_ttl_ms.load(Ordering::Relaxed)
    }

    /// These were renewed at `now_ms`.
    pub(super) fn renewed(&self, ids: &[RequestId], now_ms: u64) {
        let mut holds = self.lock();
        for id in ids {
            if let Some(hold) = holds.get_mut(id) {
                hold.renewed_ms = now_ms;
            }
        }
    }

    /// A copy of what is known of one.
    pub(super) fn known(&self, id: RequestId) -> Option<OpenHold> {
        self.lock().get(&id).cloned()
    }

    /// Ends the calls whose holds could not be renewed in time at `now_ms`, and says how many. Their holds live for another third of their
    /// life, in which their debits come.
    pub(super) fn end_uncovered(&self, now_ms: u64) -> usize {
        let mut holds = self.lock();
        let is_over = |hold: &OpenHold| now_ms.saturating_sub(hold.renewed_ms) >= hold.ttl_ms / 3 * 2;
        let over: Vec<RequestId> = holds
            .iter()
            .filter(|(_, hold)| is_over(hold))
            .map(|(id, _)| *id)
            .collect();
        for id in &over {
            if let Some(hold) = holds.remove(id) {
                hold.cover.end(Uncovered::NoAnswer);
            }
        }
        over.len()
    }

    /// Ends the calls of an account that are to end when it is stopped, and says how many. Their holds stay until they are settled.
    pub(super) fn end_stopped(&self, account: &Account, why: AccountStop) -> usize {
        let holds = self.lock();
        let ends = |hold: &&OpenHold| hold.ends_when_stopped && std::ptr::eq(&*hold.account, account);
        let ended = holds.values().filter(ends);
        ended.map(|hold| hold.cover.end(Uncovered::Stopped(why))).count()
    }

    /// The accounts that have calls which are to end when it is stopped.
    pub(super) fn stoppable(&self) -> Vec<Arc<Account>> {
        let holds = self.lock();
        let of = holds.values().filter(|hold| hold.ends_when_stopped);
        let accounts: HashMap<*const Account, &Arc<Account>> =
            of.map(|hold| (Arc::as_ptr(&hold.account), &hold.account)).collect();
        accounts.into_values().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<RequestId, OpenHold>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
