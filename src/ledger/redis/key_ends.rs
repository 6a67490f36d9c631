//! How calls under an idempotency key ended, on the way to the ledger's thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::account::Account;
use crate::ledger::idempotency::call::{ENDS_MAX, KeyEnd, KeyedCall};

/// How calls under a key ended, which Redis has yet to hear.
#[derive(Debug, Default)]
pub(super) struct KeyEnds {
    waiting: Mutex<VecDeque<Ended>>,
    wake: Notify,
    is_closed: AtomicBool,
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

    pub(super) fn push(&self, ended: Ended) {
        let mut waiting = self.lock();
        if waiting.len() >= ENDS_MAX {
            return log::warn!(
                "request {}: its idempotency key was not told how it ended",
                ended.call.request
            );
        }
        waiting.push_back(ended);
        drop(waiting);
        self.wake.notify_one();
    }

    /// The next one; none when they are closed and all were told.
    pub(super) async fn next(&self) -> Option<Ended> {
        loop {
            if let Some(ended) = self.lock().pop_front() {
                return Some(ended);
            }
            if self.is_closed.load(Ordering::Acquire) {
                return None;
            }
            self.wake.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Ended>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands before an answer that is a stream of events, and before one that is JSON.
pub(super) const EVENTS: u8 = b'e';
pub(super) const JSON: u8 = b'j';
