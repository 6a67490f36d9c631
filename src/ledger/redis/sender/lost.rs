//! Settlements that Redis had acknowledged and does not know any more: those that are here are sent again, and the others are told.
//!
//! In a cluster a slot may have come to this shard a moment ago: those that its master before acknowledged are in the hands of that one's
//! settler, and are handed over. So whether the others are lost is asked a while later, at whoever has the slot then. Nothing of this shard
//! waits for the answer: it is another master's.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Settler;
use crate::ledger::StoreError;
use crate::ledger::redis::account::{Account, producer_field};
use crate::ledger::redis::link::Link;
use crate::ledger::redis::queue::Work;
use crate::ledger::redis::replay::Released;
use crate::ledger::redis::reply;
use crate::ledger::redis::shared::Shared;
use crate::pure::ids::AccountId;
use crate::pure::numbers::{CallNumber, ProducerId};

/// What Redis has lost and nobody here has, until it is told: the next one that is due first.
#[derive(Debug, Default)]
pub(super) struct MissingSettlements {
    waiting: Mutex<VecDeque<Missing>>,
    /// Wakes when there is one more.
    added: Notify,
}

/// Numbers of an account that Redis had acknowledged and did not know, and that are not here.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    /// When it is asked whether it knows them by then, by the ledger's monotonic clock.
    pub(super) due_ms: u64,
    pub(super) account: Arc<Account>,
    pub(super) producer: ProducerId,
    pub(super) numbers: Vec<u64>,
}

impl Settler {
    /// Redis has lost numbers that it had acknowledged: settlements, or that calls gave their holds back. No settlement is missing with these.
    pub(super) fn send_lost(&mut self, account: &Arc<Account>, producer: ProducerId, numbers: &[u64]) {
        let is_lost = |released: &Released| {
            let number = released.number;
            released.account.id() == account.id() && number.producer == producer && numbers.contains(&number.number)
        };
        let released = self.ring.take_released(is_lost);
        self.release_again(released);
        let numbers = account.settlements_among(producer, numbers);
        if numbers.is_empty() {
            return;
        }
        let again = self.ring.take(account, producer, &numbers);
        let count = numbers.len();
        log::warn!(
            "Redis has lost {count} settlements of {}; they are sent again",
            account.id()
        );
        let mut missing: BTreeSet<u64> = numbers.into_iter().collect();
        for debit in &again {
            missing.remove(&debit.number.number);
        }
        // No further than it has to: the backlog may be long, and this happens for each account of which something is lost.
        if !missing.is_empty() {
            for number in self.waiting(account, producer) {
                missing.remove(&number);
                if missing.is_empty() {
                    break;
                }
            }
        }
        if !missing.is_empty() {
            self.tell_later(account, producer, missing.into_iter().collect());
        }
        self.send_again(again);
    }

    /// Tells Redis once more that these calls gave their holds back. What is sent again of settlements goes before it: else the
    /// answer to a release says that these are missing, and they are sent twice.
    pub(super) fn release_again(&mut self, released: Vec<Released>) {
        self.put_in_front(released.into_iter().map(Released::again).collect());
    }

    /// The producer's numbers of what is still to be sent of an account: when all is sent again, some of it is in a later batch, and what waits
    /// for a slot that moves is in none.
    fn waiting(&self, account: &Account, producer: ProducerId) -> impl Iterator<Item = u64> {
        let later = self.later.iter().map(|(_, work)| work);
        let works = self.backlog.iter().chain(later);
        let numbers = works
            .filter(move |work| work.is_of(account.id()))
            .chain(self.moving.works_of(account.id()))
            .filter_map(Work::number);
        numbers
            .filter(move |number| number.producer == producer)
            .map(|number| number.number)
    }

    /// Tells what nobody here has, once it is not handed over either; at once where nobody else can have it.
    fn tell_later(&self, account: &Arc<Account>, producer: ProducerId, numbers: Vec<u64>) {
        let count = numbers.len();
        let missing = Missing {
            due_ms: self.shared.now_ms().saturating_add(HANDED_OVER_WITHIN_MS),
            account: Arc::clone(account),
            producer,
            numbers,
        };
        if !self.shared.shards.is_cluster() || !self.missing.put(missing) {
            tell(account.id(), count, "");
        }
    }
}

impl MissingSettlements {
    /// Has one asked for when it is due. False when so many wait already that it is to be told now.
    pub(super) fn put(&self, missing: Missing) -> bool {
        let mut waiting = self.lock();
        if waiting.len() >= MISSING_MAX {
            return false;
        }
        waiting.push_back(missing);
        drop(waiting);
        self.added.notify_one();
        true
    }

    /// Tells each when it is due. Never returns, and may be dropped at any time: what was not told then is there still.
    pub(super) async fn tell_when_due(&self, shared: &Shared, link: &Link) {
        loop {
            let due_ms = self.lock().front().map(|missing| missing.due_ms);
            let Some(due_ms) = due_ms else {
                self.added.notified().await;
                continue;
            };
            let now_ms = shared.now_ms();
            if due_ms > now_ms {
                tokio::time::sleep(Duration::from_millis(due_ms.saturating_sub(now_ms))).await;
            } else {
                self.tell_due(shared, link, now_ms).await;
            }
        }
    }

    /// Asks for those that are due at `now_ms`, one after the other, and tells what Redis does not know by then. Returns early where it does not
    /// answer: what was asked for is then due later than all others.
    pub(super) async fn tell_due(&self, shared: &Shared, link: &Link, now_ms: u64) {
        while let Some(missing) = self.due(now_ms) {
            let open = missing.still_open(shared, link).await;
            // Only now, and told in the same turn: whoever drops this while it waits loses none, and none is told twice.
            drop(self.lock().pop_front());
            match open {
                Ok(0) => {}
                Ok(open) => tell(missing.account.id(), open, ""),
                Err(error) => {
                    log::debug!(
                        "what Redis has lost of {} is asked for later: {error}",
                        missing.account.id()
                    );
                    let due_ms = shared.now_ms().saturating_add(HANDED_OVER_WITHIN_MS);
                    self.lock().push_back(Missing { due_ms, ..missing });
                    return;
                }
            }
        }
    }

    /// At the end, when Redis cannot be asked any more.
    pub(super) fn tell_unasked(&self) {
        let left = std::mem::take(&mut *self.lock());
        for missing in left {
            let unless = ", unless they were handed over by the slot's master before";
            tell(missing.account.id(), missing.numbers.len(), unless);
        }
    }

    /// The first one, when it is due at `now_ms`.
    pub(super) fn due(&self, now_ms: u64) -> Option<Missing> {
        let waiting = self.lock();
        waiting.front().filter(|missing| missing.due_ms <= now_ms).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Missing>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Missing {
    /// How many of them Redis does not know now, wherever the account's slot is.
    async fn still_open(&self, shared: &Shared, link: &Link) -> Result<usize, StoreError> {
        let first = self.numbers.first().copied().unwrap_or_default();
        let [name, _] = self.account.keys();
        let mut command = redis::cmd("HGET");
        command
            .arg(name)
            .arg(producer_field(CallNumber::new(self.producer, first)));
        let answer = shared.command(link, command).await?;
        let known = reply::numbers(&answer);
        let is_open = |number: &&u64| known.as_ref().is_none_or(|known| !known.is_closed(**number));
        Ok(self.numbers.iter().filter(is_open).count())
    }
}

fn tell(account: &AccountId, count: usize, unless: &str) {
    log::error!("MONEY: Redis has lost {count} settlements of {account} for good{unless}");
}

/// How long another shard's settler has to hand over what it has of an account.
const HANDED_OVER_WITHIN_MS: u64 = 2_000;
/// Accounts that wait for that at most: what others have lost is told at once.
const MISSING_MAX: usize = 1024;
