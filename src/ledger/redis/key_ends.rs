//! How calls under an idempotency key ended, on the way to the ledger's thread: by shard, so that one that does not answer holds up nobody
//! else's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::account::Account;
use super::shards::Shards;
use crate::ledger::idempotency::call::{ENDS_MAX, KeyEnd, KeyedCall};

/// How calls under a key ended, which Redis has yet to hear.
#[derive(Debug, Default)]
pub(super) struct KeyEnds {
    waiting: Mutex<Waiting>,
    wake: Notify,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By the number of the shard that their account had when they came. One without any is not there.
    shards: BTreeMap<usize, OfShard>,
    /// Those of all shards.
    count: usize,
}

#[derive(Debug, Default)]
struct OfShard {
    ends: VecDeque<Ended>,
    /// Somebody tells them, until there is none any more.
    is_told: bool,
}

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) account: Arc<Account>,
    pub(super) call: KeyedCall,
    pub(super) end: KeyEnd,
    /// By the ledger's monotonic clock.
    pub(super) queued_ms: u64,
}

impl KeyEnds {
    /// No more come: what waits is told for a moment yet.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Queues one for the shard of its account. Each shard has its part of [`ENDS_MAX`].
    pub(super) fn push(&self, shards: &Shards, ended: Ended) {
        let (shard, most) = (shards.of(&ended.account).number, shards.share(ENDS_MAX));
        let mut waiting = self.lock();
        let queued = waiting.shards.get(&shard).map_or(0, |of_shard| of_shard.ends.len());
        if queued >= most || waiting.count >= ENDS_MAX {
            drop(waiting);
            return log::warn!(
                "request {}: its idempotency key was not told how it ended",
                ended.call.request
            );
        }
        waiting.count = waiting.count.saturating_add(1);
        waiting.shards.entry(shard).or_default().ends.push_back(ended);
        drop(waiting);
        self.wake.notify_one();
    }

    /// A shard whose ends nobody tells yet: whoever asked tells them, until [`KeyEnds::next`] has none. None when they are closed and all
    /// were told.
    pub(super) async fn shard(&self) -> Option<usize> {
        loop {
            if let Some(shard) = self.untold() {
                return Some(shard);
            }
            if self.is_closed.load(Ordering::Acquire) && self.lock().shards.is_empty() {
                return None;
            }
            self.wake.notified().await;
        }
    }

    fn untold(&self) -> Option<usize> {
        let mut waiting = self.lock();
        let (shard, ends) = waiting.shards.iter_mut().find(|(_, ends)| !ends.is_told)?;
        ends.is_told = true;
        Some(*shard)
    }

    /// The next one of a shard.
    pub(super) fn next(&self, shard: usize) -> Option<Ended> {
        let mut waiting = self.lock();
        let next = waiting.shards.get_mut(&shard).and_then(|ends| ends.ends.pop_front());
        if next.is_some() {
            waiting.count = waiting.count.saturating_sub(1);
        } else {
            waiting.shards.remove(&shard);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands before an answer that is a stream of events, and before one that is JSON.
pub(super) const EVENTS: u8 = b'e';
pub(super) const JSON: u8 = b'j';
