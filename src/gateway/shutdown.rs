//! The process's life: how many requests are under way, and the two steps of a stop.
//!
//! A stop first lets running requests finish; after its limit it cuts them: each stream gets its error event and `[DONE]`, and is
//! billed for what was delivered.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use crate::clock::monotonic;

/// Shared by every request and whoever stops the process.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    stopping: AtomicBool,
    /// Requests under way, operators' acts in [`ACT`]s, and [`CLOSED`].
    in_flight: AtomicU64,
    /// Connections that requests may come on.
    connections: AtomicUsize,
    is_cut: AtomicBool,
    /// Wakes the tasks of what is to be cut.
    cut: Notify,
    /// Whether another process takes over what this one listens on.
    handed_over: watch::Sender<bool>,
    /// Whether this process serves operators no longer than it takes to answer who has asked.
    operators_end: watch::Sender<bool>,
    /// Whether this process accepts no connection of a client any more.
    accepts_none: watch::Sender<bool>,
    /// How often nothing was left under way since a stop began; whoever waits for that is told.
    ended: (Mutex<u64>, Condvar),
}

/// A request under way, or an operator's act.
#[derive(Debug)]
pub(crate) struct InFlight {
    life: Arc<Lifecycle>,
    /// What it adds to the count.
    weight: u64,
    is_late: bool,
}

/// A connection that requests may come on.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Lifecycle>);

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
            in_flight: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
            handed_over: watch::Sender::new(false),
            operators_end: watch::Sender::new(false),
            accepts_none: watch::Sender::new(false),
            ended: Default::default(),
        })
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Lifecycle>) -> InFlight {
        self.enter_as(REQUEST)
    }

    /// The same for an operator's act, which is no request of a client.
    pub(crate) fn enter_act(self: &Arc<Lifecycle>) -> InFlight {
        self.enter_as(ACT)
    }

    fn enter_as(self: &Arc<Lifecycle>, weight: u64) -> InFlight {
        let before = self.in_flight.fetch_add(weight, Ordering::SeqCst);
        InFlight {
            life: Arc::clone(self),
            weight,
            is_late: before & CLOSED != 0,
        }
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connect(self: &Arc<Lifecycle>) -> Connected {
        self.connections.fetch_add(1, Ordering::SeqCst);
        Connected(Arc::clone(self))
    }

    /// Another process takes over.
    pub(crate) fn hand_over(&self) {
        self.handed_over.send_replace(true);
        self.operators_end.send_replace(true);
    }

    /// Tells when another process takes over.
    pub(crate) fn handed_over(&self) -> watch::Receiver<bool> {
        self.handed_over.subscribe()
    }

    /// Tells when operators are served no longer than it takes to answer who has asked.
    pub(crate) fn operators_end(&self) -> watch::Receiver<bool> {
        self.operators_end.subscribe()
    }

    /// Whether that is so.
    pub(crate) fn is_end_for_operators(&self) -> bool {
        *self.operators_end.borrow()
    }

    /// The process is about to end: blocks until operators who have asked are answered, or for so long.
    pub(crate) fn end_operators(&self, at_most: Duration) {
        self.operators_end.send_replace(true);
        let began = monotonic();
        while !self.operators_end.is_closed() && began.elapsed() < at_most {
            std::thread::sleep(ENDED_EVERY);
        }
    }

    /// From now on no connection of a client is accepted. Those that are there are answered, and end with their next answer.
    pub(crate) fn accept_none(&self) {
        self.accepts_none.send_replace(true);
    }

    /// Tells when no connection of a client is accepted any more.
    pub(crate) fn accepts_none(&self) -> watch::Receiver<bool> {
        self.accepts_none.subscribe()
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> usize {
        let requests = self.in_flight.load(Ordering::SeqCst) & (ACT - 1);
        usize::try_from(requests).unwrap_or(usize::MAX)
    }

    fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) & !CLOSED == 0
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

    /// Ends what is still running; what comes from now on is late.
    pub(crate) fn cut_now(&self) {
        self.in_flight.fetch_or(CLOSED, Ordering::SeqCst);
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    /// Waits until nothing is under way, and no connection is left that a request may come on, at most this long; says whether that is
    /// so. Connections without a request are waited for no longer than [`SILENT_MAX`] after the last one. A request that comes after it has
    /// said so is late ([`InFlight::is_late`]). Blocks.
    pub(crate) fn wait_idle(&self, at_most: Duration) -> bool {
        let (lock, condition) = &self.ended;
        let began = monotonic();
        let mut ends = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut idle, mut seen) = (began, *ends);
        loop {
            let left = at_most.saturating_sub(began.elapsed());
            if *ends != seen {
                (idle, seen) = (monotonic(), *ends);
            }
            let wait = if !self.is_idle() {
                if left.is_zero() {
                    return false;
                }
                left
            } else {
                let patience = SILENT_MAX.saturating_sub(idle.elapsed()).min(left);
                if (patience.is_zero() || !self.may_bring_more()) && self.close_if_idle() {
                    return true;
                }
                patience
            };
            let waited = condition.wait_timeout(ends, wait);
            ends = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a request may come that is not late.
    fn may_bring_more(&self) -> bool {
        self.connections.load(Ordering::SeqCst) > 0 && self.in_flight.load(Ordering::SeqCst) & CLOSED == 0
    }

    /// From now on every request is late, unless one is under way.
    fn close_if_idle(&self) -> bool {
        let exchanged = self
            .in_flight
            .compare_exchange(0, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
        matches!(exchanged, Ok(_) | Err(CLOSED))
    }

    /// Wakes whoever waits for the end.
    fn tell_waiting(&self) {
        if self.is_stopping() {
            let (lock, condition) = &self.ended;
            let mut ends = lock.lock().unwrap_or_else(PoisonError::into_inner);
            *ends = ends.wrapping_add(1);
            condition.notify_all();
        }
    }
}

impl InFlight {
    /// See [`Lifecycle::is_cut`].
    pub(crate) fn is_cut(&self) -> bool {
        self.life.is_cut()
    }

    /// Whether it came when the process had closed its books, or was about to: it is answered, and nothing else is done for it.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.life.in_flight.fetch_sub(self.weight, Ordering::SeqCst) & !CLOSED == self.weight {
            self.life.tell_waiting();
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.tell_waiting();
        }
    }
}

const ENDED_EVERY: Duration = Duration::from_millis(5);
/// What a request adds to the count.
const REQUEST: u64 = 1;
/// What an operator's act adds to it.
const ACT: u64 = 1 << 32;
/// Stands in the count once nothing more is taken.
const CLOSED: u64 = 1 << 63;
/// How long a connection without a request keeps a stopping process from its end. The listener ends one of HTTP/1 after half of that,
/// unless a head has come in part; one of HTTP/2 may bring more until its client has read that it is to go elsewhere.
const SILENT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
