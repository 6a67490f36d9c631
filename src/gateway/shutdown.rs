//! The process's life: how many requests are under way, and the two steps of a stop.
//!
//! A stop first lets running requests finish; after its limit it cuts them: each stream gets its error event and `[DONE]`, and is
//! billed for what was delivered.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

/// Shared by every request and whoever stops the process.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    stopping: AtomicBool,
    in_flight: AtomicUsize,
    is_cut: AtomicBool,
    /// Wakes the tasks of what is to be cut.
    cut: Notify,
    /// Whether another process takes over what this one listens on.
    handed_over: watch::Sender<bool>,
    ended: (Mutex<()>, Condvar),
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Lifecycle>);

/// Wakes a task once.
#[derive(Debug)]
pub(crate) struct CutWaker<'life> {
    wakes: Option<Waker>,
    has_rung: bool,
    cut: Pin<Box<Notified<'life>>>,
}

impl CutWaker<'_> {
    /// Wakes the task that is polled here. To be called before that looks at [`Lifecycle::is_cut`], so that no cut is missed between the two.
    pub(crate) fn wake_with(&mut self, context: &mut Context<'_>) {
        let is_new = self
            .wakes
            .as_ref()
            .is_none_or(|waker| !waker.will_wake(context.waker()));
        if is_new && !self.has_rung {
            self.has_rung = self.cut.as_mut().poll(context).is_ready();
            self.wakes = Some(context.waker().clone());
        }
    }
}

impl Lifecycle {
    pub(crate) fn new() -> Arc<Lifecycle> {
        Arc::new(Lifecycle {
            stopping: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
            handed_over: watch::Sender::new(false),
            ended: Default::default(),
        })
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Lifecycle>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(Arc::clone(self))
    }

    /// Another process takes over.
    pub(crate) fn hand_over(&self) {
        self.handed_over.send_replace(true);
    }

    /// Tells when another process takes over.
    pub(crate) fn handed_over(&self) -> watch::Receiver<bool> {
        self.handed_over.subscribe()
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Whether a stop no longer waits. False again never. Whoever waits for something else besides runs in [`Lifecycle::woken_by_cut`].
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Does `work`, which is polled once more when a stop no longer waits: it looks at [`Lifecycle::is_cut`] whenever it is polled, which is
    /// cheaper than to wait for it each time.
    pub(crate) async fn woken_by_cut<W: Future>(&self, work: W) -> W::Output {
        let mut work = pin!(work);
        let mut waker = self.cut_waker();
        poll_fn(|context| {
            waker.wake_with(context);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Wakes a task when a stop no longer waits.
    pub(crate) fn cut_waker(&self) -> CutWaker<'_> {
        CutWaker {
            wakes: None,
            has_rung: false,
            cut: Box::pin(self.cut.notified()),
        }
    }

    /// Whether a stop has begun. False again never.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Begins a stop; true for the one who began it.
    pub(crate) fn begin_stop(&self) -> bool {
        !self.stopping.swap(true, Ordering::SeqCst)
    }

    /// Ends what is still running.
    pub(crate) fn cut_now(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    /// Waits until nothing is under way, at most this long; says whether that is so. Blocks.
    pub(crate) fn wait_idle(&self, at_most: Duration) -> bool {
        let (lock, condition) = &self.ended;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |_: &mut ()| self.in_flight.load(Ordering::SeqCst) > 0;
        let waited = condition.wait_timeout_while(guard, at_most, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl InFlight {
    /// See [`Lifecycle::is_cut`].
    pub(crate) fn is_cut(&self) -> bool {
        self.0.is_cut()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Lifecycle {
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
