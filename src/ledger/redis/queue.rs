//! What Redis has to hear without anybody waiting for it: settlements and releases, in the order in which they happened.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::account::Account;
use super::admission_breaker::millis;
use super::holds::OpenHold;
use super::slots::slot_of;
use crate::ledger::journal::Entry;
use crate::ledger::{Debit, StoreError};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::numbers::CallNumber;

/// A settlement on its way. It is sent until Redis acknowledges it; sending it twice is harmless.
#[derive(Debug)]
pub(super) struct QueuedDebit {
    pub(super) account: Arc<Account>,
    pub(super) hold: RequestId,
    /// What this process knows of the hold; it only saves Redis work.
    pub(super) known: Option<OpenHold>,
    pub(super) debit: Debit,
    /// The name under which it counts once.
    pub(super) number: CallNumber,
    pub(super) origin: Origin,
    /// Redis may have taken it: that is looked up before it is sent.
    pub(super) is_doubted: bool,
    /// Its receipt was handed to the files: what Redis loses is sent again, and written once.
    pub(super) is_written_out: bool,
    /// How often it was sent, without the times that Redis says it did not run it.
    pub(super) sent: u32,
    /// When it was queued, by the ledger's monotonic clock.
    pub(super) queued_ms: u64,
    /// Kept once Redis has acknowledged it, and closed when Redis cannot lose it any more.
    pub(super) entry: Entry,
}

/// Whose settlement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A call of this process.
    Own,
    /// Of a process that has died, and may have sent it.
    Adopted,
}

/// One thing to tell Redis.
#[derive(Debug)]
pub(super) enum Work {
    /// A settlement.
    Settle(QueuedDebit),
    /// A hold to give back.
    Release {
        account: Arc<Account>,
        hold: RequestId,
        /// Closed with it.
        number: Option<CallNumber>,
        kind: ReleaseKind,
        /// Closed once Redis has acknowledged it.
        entry: Entry,
    },
    /// Somebody waits until everything of this account that stands before is acknowledged.
    Barrier {
        account: AccountId,
        reached: oneshot::Sender<()>,
    },
}

/// Why a hold is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseKind {
    /// Its call is over.
    Sure,
    /// Nobody knows whether it was made; its reserve may even reach Redis after this.
    Doubtful,
    /// For the second time, when a late reserve must have arrived.
    Again,
}

/// The queue: filled by every worker, emptied by the settler.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    /// Wakes when what is queued should not wait for more.
    hurry: Notify,
    closed: AtomicBool,
    /// Settlements not acknowledged, those that the settler has taken included.
    unsettled: AtomicUsize,
    /// When the oldest of them was queued, in milliseconds of the ledger's monotonic clock; 0 when there is none. Not one whose account's
    /// slot moves.
    oldest_ms: AtomicU64,
    /// The same of those whose account's slot moves: they hold up no other account's calls.
    apart_ms: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    work: Vec<Work>,
}

impl Work {
    /// Whether this has to be acknowledged before a barrier of the account.
    pub(super) fn is_of(&self, id: &AccountId) -> bool {
        match self {
            Work::Settle(debit) => debit.account.id() == id,
            Work::Release { account, .. } => account.id() == id,
            Work::Barrier { .. } => false,
        }
    }

    /// The number that is closed with it.
    pub(super) fn number(&self) -> Option<CallNumber> {
        match self {
            Work::Settle(debit) => Some(debit.number),
            Work::Release { number, .. } => *number,
            Work::Barrier { .. } => None,
        }
    }

    /// Whether it is a settlement that Redis may have taken.
    pub(super) fn is_doubted(&self) -> bool {
        matches!(self, Work::Settle(debit) if debit.is_doubted)
    }

    /// Whether it is a barrier that nobody waits for any more.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self, Work::Barrier { reached, .. } if reached.is_closed())
    }

    /// The slot of its account in a cluster.
    pub(super) fn slot(&self) -> u16 {
        match self {
            Work::Settle(debit) => debit.account.slot(),
            Work::Release { account, .. } => account.slot(),
            Work::Barrier { account, .. } => slot_of(account.as_str().as_bytes()),
        }
    }
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            inner: Mutex::new(Inner { work: Vec::new() }),
            wake: Notify::new(),
            hurry: Notify::new(),
            closed: AtomicBool::new(false),
            unsettled: AtomicUsize::new(0),
            oldest_ms: AtomicU64::new(0),
            apart_ms: AtomicU64::new(0),
        }
    }

    /// Queues a settlement.
    pub(super) fn settle(&self, debit: QueuedDebit) {
        self.count(&debit.account, debit.queued_ms);
        let mut inner = self.lock();
        inner.work.push(Work::Settle(debit));
        self.wake_for(inner);
    }

    /// Counts a settlement that is about to be queued.
    fn count(&self, account: &Account, now_ms: u64) {
        account.begin();
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        if self.oldest_ms.load(Ordering::Relaxed) == 0 {
            self.oldest_ms.store(now_ms.max(1), Ordering::Release);
        }
    }

    /// Queues a release.
    pub(super) fn release(
        &self,
        account: &Arc<Account>,
        hold: RequestId,
        number: Option<CallNumber>,
        kind: ReleaseKind,
        entry: Entry,
    ) {
        account.begin();
        let mut inner = self.lock();
        inner.work.push(Work::Release {
            account: Arc::clone(account),
            hold,
            number,
            kind,
            entry,
        });
        self.wake_for(inner);
    }

    /// Takes over what another shard's queue had: its account is this one's now.
    pub(super) fn put(&self, work: Work, now_ms: u64) {
        if let Work::Settle(_) = &work {
            self.unsettled_again();
            if self.oldest_ms.load(Ordering::Relaxed) == 0 {
                self.oldest_ms.store(now_ms.max(1), Ordering::Release);
            }
        }
        let mut inner = self.lock();
        inner.work.push(work);
        self.wake_for(inner);
    }

    /// Waits until all that was queued for the account before is acknowledged.
    ///
    /// # Errors
    /// When that takes longer than `within`.
    pub(super) async fn barrier(&self, account: &Account, within: Duration) -> Result<(), StoreError> {
        if !account.is_under_way() {
            return Ok(());
        }
        let (reached, wait) = oneshot::channel();
        {
            let mut inner = self.lock();
            inner.work.push(Work::Barrier {
                account: account.id().clone(),
                reached,
            });
            self.wake_for(inner);
            self.hurry.notify_one();
        }
        match tokio::time::timeout(within, wait).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StoreError::Unavailable(
                "settlements wait for Redis longer than a call may".to_owned(),
            )),
        }
    }

    /// # Errors
    /// When so many settlements wait, or for so long, that no more calls may be admitted.
    pub(super) fn check(&self, now_ms: u64, count_max: usize, age_max: Duration) -> Result<(), StoreError> {
        let (count, age) = (self.unsettled.load(Ordering::Relaxed), self.oldest_age_ms(now_ms));
        if self.closed.load(Ordering::Relaxed) || count >= count_max || age > millis(age_max) {
            return Err(StoreError::Unavailable(format!(
                "{count} settlements wait for Redis, the oldest for {age} ms"
            )));
        }
        Ok(())
    }

    /// For how long the oldest settlement has waited that holds up calls; 0 when none does.
    pub(super) fn oldest_age_ms(&self, now_ms: u64) -> u64 {
        age_ms(&self.oldest_ms, now_ms)
    }

    /// For how long the oldest settlement has waited, whatever it waits for; 0 when none does.
    pub(super) fn oldest_age_of_all_ms(&self, now_ms: u64) -> u64 {
        self.oldest_age_ms(now_ms).max(age_ms(&self.apart_ms, now_ms))
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Takes everything that was queued.
    pub(super) fn take(&self) -> Vec<Work> {
        std::mem::take(&mut self.lock().work)
    }

    /// A settlement was acknowledged.
    pub(super) fn settled(&self) {
        self.unsettled.fetch_sub(1, Ordering::AcqRel);
    }

    /// A settlement that was acknowledged is sent again.
    pub(super) fn unsettled_again(&self) {
        self.unsettled.fetch_add(1, Ordering::AcqRel);
    }

    /// Since when the oldest settlement waits, and the oldest of those whose account's slot moves; 0 when none does.
    pub(super) fn set_oldest(&self, oldest_ms: u64, apart_ms: u64) {
        self.oldest_ms.store(oldest_ms, Ordering::Release);
        self.apart_ms.store(apart_ms, Ordering::Release);
    }

    /// Settlements that are not acknowledged.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Waits until something is queued.
    pub(super) async fn filled(&self) {
        self.wake.notified().await;
    }

    /// Waits until what is queued should not wait for more: somebody waits for it, or it is enough for a batch.
    pub(super) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// No more calls are admitted; what comes all the same is still taken.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
        self.hurry.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn wake_for(&self, inner: MutexGuard<'_, Inner>) {
        let queued = inner.work.len();
        drop(inner);
        if queued == 1 {
            self.wake.notify_one();
        } else if queued == ENOUGH {
            self.hurry.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn age_ms(since_ms: &AtomicU64, now_ms: u64) -> u64 {
    match since_ms.load(Ordering::Relaxed) {
        0 => 0,
        since_ms => now_ms.saturating_sub(since_ms),
    }
}

/// So much in the queue is sent without a wait for more.
const ENOUGH: usize = 128;

#[cfg(test)]
mod tests;
