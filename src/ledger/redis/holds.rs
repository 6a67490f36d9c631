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
    /// When it was raised last, by the same clock.
    pub(super) raised_ms: Option<u64>,
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

    /// A hold was raised to this at `now_ms`.
    pub(super) fn extended(&self, id: RequestId, amount: Credits, now_ms: u64) {
        if let Some(hold) = self.lock().get_mut(&id) {
            hold.amount = amount;
            hold.raised_ms = Some(now_ms);
        }
    }

    /// Those of `ids` that were raised at `since_ms` or later, and what is known of them.
    pub(super) fn raised_since(&self, ids: &[RequestId], since_ms: u64) -> Vec<(RequestId, OpenHold)> {
        let holds = self.lock();
        let known = ids.iter().filter_map(|id| Some((*id, holds.get(id)?)));
        let raised = known.filter(|(_, hold)| hold.raised_ms.is_some_and(|raised_ms| raised_ms >= since_ms));
        raised.map(|(id, hold)| (id, hold.clone())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: u64 = 90;

    /// Two accounts, with a hold each that was renewed at 1,000 ms and lives for [`TTL_MS`].
    fn two() -> (OpenHolds, [Arc<Account>; 2], [RequestId; 2]) {
        let holds = OpenHolds::default();
        let accounts = ["acme", "other"].map(|name| Arc::new(Account::new(name.parse().unwrap())));
        let ids = [1, 2].map(|byte| RequestId::from_bytes([byte; 16]));
        for (id, account) in ids.into_iter().zip(&accounts) {
            let hold = OpenHold {
                account: Arc::clone(account),
                scope: Scope::Account,
                amount: Credits::from_pico(5),
                quota: Credits::MAX,
                ttl_ms: TTL_MS,
                renewed_ms: 1_000,
                raised_ms: None,
                cover: Arc::new(Cover::of(None)),
                spend: None,
                ends_when_stopped: false,
            };
            holds.insert(id, hold);
        }
        (holds, accounts, ids)
    }

    #[test]
    fn a_hold_is_due_for_renewal_from_a_third_of_its_life_on() {
        let (holds, [acme, _], [id, _]) = two();
        let due = |now_ms| holds.due(now_ms, |account| account.id() == acme.id());
        assert!(due(1_000 + TTL_MS / 3 - 1).is_empty());
        for later in [TTL_MS / 3, TTL_MS / 3 + 1, TTL_MS] {
            let due = due(1_000 + later);
            let [(account, ttl_ms, ids)] = &due[..] else {
                panic!("{later}: {due:?}");
            };
            assert_eq!((account.id(), *ttl_ms, &ids[..]), (acme.id(), TTL_MS, &[id][..]));
        }
        holds.renewed(&[id], 2_000);
        assert!(due(2_000 + TTL_MS / 3 - 1).is_empty());
    }

    #[test]
    fn a_call_whose_hold_is_not_renewed_ends_after_two_thirds_of_its_life() {
        let (holds, _, [id, other]) = two();
        let cover = |id| holds.known(id).map(|hold| hold.cover);
        let (first, second) = (cover(id).unwrap(), cover(other).unwrap());
        holds.renewed(&[other], 1_001);
        assert_eq!(holds.end_uncovered(1_000 + TTL_MS / 3 * 2 - 1), 0);
        assert_eq!(holds.end_uncovered(1_000 + TTL_MS / 3 * 2), 1);
        assert_eq!((first.ended(), second.ended()), (Some(Uncovered::NoAnswer), None));
        assert!(cover(id).is_none() && cover(other).is_some());
        assert_eq!(holds.sums(), (1, Credits::from_pico(5)));
    }

    #[test]
    fn a_hold_is_known_as_it_was_extended_and_the_shortest_life_is_remembered() {
        let (holds, _, [id, other]) = two();
        holds.extended(id, Credits::from_pico(8), 1_500);
        let amount = |id| holds.known(id).map(|hold| hold.amount);
        assert_eq!(amount(id), Some(Credits::from_pico(8)));
        assert_eq!(amount(other), Some(Credits::from_pico(5)));
        assert_eq!(holds.sums(), (2, Credits::from_pico(13)));
        let raised = |since_ms| holds.raised_since(&[other, id], since_ms);
        assert!(
            matches!(&raised(1_500)[..], [(raised, hold)] if *raised == id && hold.amount == Credits::from_pico(8))
        );
        assert!(raised(1_501).is_empty());
        holds.remove(id);
        holds.remove(other);
        assert_eq!(holds.shortest_ttl_ms(), TTL_MS);
        assert_eq!(OpenHolds::default().shortest_ttl_ms(), u64::MAX);
    }
}
