//! Requests that are due at given times, and the connections that wait for them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// A request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// Since when.
    pub(crate) at_ns: u64,
    /// Whether no connection was free for it then: it waits for an answer, and not for the generator. Which connection takes it in the end
    /// says nothing of that: one that has just got its answer may come before those that still have to wake up.
    pub(crate) was_queued: bool,
}

/// Requests that are due, and how many connections wait for one.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Default)]
struct State {
    due: VecDeque<Due>,
    free: usize,
}

impl Queue {
    /// One more is due, since `at_ns`.
    pub(crate) fn push(&self, at_ns: u64) {
        {
            let mut state = self.state();
            // Each of those before it has one of the free connections.
            let was_queued = state.free <= state.due.len();
            state.due.push_back(Due { at_ns, was_queued });
        }
        self.more.notify_one();
    }

    /// The next one for a connection, which waits for it. None when `is_over` says that no more will come, and all are taken.
    pub(crate) async fn next(&self, is_over: impl Fn() -> bool) -> Option<Due> {
        let mut is_free = false;
        loop {
            let more = self.more.notified();
            let due = self.take(&mut is_free);
            if due.is_some() || is_over() {
                return due;
            }
            more.await;
        }
    }

    /// Wakes all that wait, to see that it is over.
    pub(crate) fn end(&self) {
        self.more.notify_waiters();
    }

    /// The next one; or none, and the connection is free.
    fn take(&self, is_free: &mut bool) -> Option<Due> {
        let mut state = self.state();
        if std::mem::take(is_free) {
            state.free -= 1;
        }
        let due = state.due.pop_front();
        if due.is_none() {
            state.free += 1;
            *is_free = true;
        }
        due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
