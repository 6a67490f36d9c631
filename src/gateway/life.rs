//! The process's life: how many requests are under way, and the two steps of a stop.
//!
//! A stop first lets running requests finish; after its limit it cuts them: each stream gets its error event and `[DONE]`, and is
//! billed for what was delivered.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Shared by every request and whoever stops the process.
#[derive(Debug)]
pub(super) struct Life {
    stopping: AtomicBool,
    in_flight: AtomicUsize,
    cut: watch::Sender<bool>,
    /// Whether another process takes over what this one listens on.
    handed_over: watch::Sender<bool>,
    ended: (Mutex<()>, Condvar),
}

/// A request under way.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Life>);

/// A request's view of the second step of a stop.
pub(super) type Cut = watch::Receiver<bool>;

impl Life {
    pub(super) fn new() -> Arc<Life> {
        let (cut, _) = watch::channel(false);
        Arc::new(Life {
            stopping: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            cut,
            handed_over: watch::Sender::new(false),
            ended: Default::default(),
        })
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn enter(self: &Arc<Life>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(Arc::clone(self))
    }

    /// Another process takes over.
    pub(super) fn hand_over(&self) {
        self.handed_over.send_replace(true);
    }

    /// Tells when another process takes over.
    pub(super) fn handed_over(&self) -> watch::Receiver<bool> {
        self.handed_over.subscribe()
    }

    /// How many requests are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Tells when a stop no longer waits.
    pub(super) fn cut(&self) -> Cut {
        self.cut.subscribe()
    }

    /// Whether a stop has begun. False again never.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Begins a stop; true for the one who began it.
    pub(super) fn begin_stop(&self) -> bool {
        !self.stopping.swap(true, Ordering::SeqCst)
    }

    /// Ends what is still running.
    pub(super) fn cut_now(&self) {
        self.cut.send_replace(true);
    }

    /// Waits until nothing is under way, at most this long; says whether that is so. Blocks.
    pub(super) fn wait_idle(&self, at_most: Duration) -> bool {
        let (lock, condition) = &self.ended;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |_: &mut ()| self.in_flight.load(Ordering::SeqCst) > 0;
        let waited = condition.wait_timeout_while(guard, at_most, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Life {
            in_flight,
            ended: (lock, condition),
            ..
        } = &*self.0;
        if in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_stopping() {
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
            condition.notify_all();
        }
    }
}
