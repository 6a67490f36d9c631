//! What an operator sees of the gateway: metrics, the access log, traces, and the series of the status page.
//!
//! It counts and tells, and decides nothing: no call waits for it, and no request fails because of it. [`recorder`] is what a request notes
//! on its way, [`counters`] the counts, [`access_log`] the lines, [`exposition`] the text that Prometheus reads; [`trace`] is what a request
//! notes beside, `spans` makes spans of it, and [`otlp`] sends them to a collector.

pub mod access_log;
mod collector;
pub mod counters;
pub mod deliveries;
pub mod exposition;
mod labels;
mod log_format;
pub mod otlp;
pub mod payments;
pub mod record;
pub mod recorder;
pub mod refunds;
mod spans;
pub mod status;
pub mod trace;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use self::counters::Figures;
use self::deliveries::Deliveries;
use self::payments::Payments;
use self::record::{Record, TargetName};
use self::refunds::Refunds;
use self::trace::Tracer;
use crate::clock::Clock;
use crate::pure::time::Timestamp;

/// The counts of a process, and the lines that wait to be written.
#[derive(Debug)]
pub struct Telemetry {
    shards: Box<[Shard; SHARDS]>,
    /// The name of the target of requests that have none.
    no_target: TargetName,
    /// Whether somebody writes the access log.
    logs: AtomicBool,
    /// Lines that were written.
    lines: AtomicU64,
    /// Reloads that took effect, and that were refused.
    reloads: [AtomicU64; 2],
    /// Whether the last one was refused.
    reload_refused: AtomicBool,
    /// Refreshes of the catalogue that came to their end, and that failed.
    refreshes: [AtomicU64; 2],
    /// Whether the last one failed.
    refresh_failed: AtomicBool,
    /// When the last one came to its end that looked at every model, in milliseconds since 1970; 0 before the first.
    refreshed_at: AtomicI64,
    /// Makes traces; not there when none are sent.
    tracer: OnceLock<Tracer>,
    /// Spans that were sent, that the collector did not take, and that were dropped because too many waited.
    spans: [AtomicU64; 3],
    /// What became of events for webhooks.
    pub deliveries: Deliveries,
    /// What could not be taken for refunds.
    pub refunds: Refunds,
    /// Messages about payments that somebody has to look at.
    pub payments: Payments,
}

/// One thread's counts, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    figures: Figures,
    /// Requests whose lines are not written yet.
    waiting: Waiting,
    /// Requests whose lines never will be.
    dropped: u64,
}

/// What became of a refresh of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// It failed.
    Failed,
    /// The catalogue follows the list, and has models beside that are not of it.
    Part,
    /// Every model of the catalogue is the list's.
    Whole,
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanFate {
    /// The collector took it.
    Exported,
    /// The collector refused it, or could not be reached to the end.
    Failed,
    /// Too many waited.
    Dropped,
}

/// Requests as they are handed over: a pointer each, so that none is copied under the lock.
type Waiting = Vec<Box<Record>>;

impl Default for Telemetry {
    fn default() -> Telemetry {
        let nothing: Arc<str> = Arc::from("");
        Telemetry {
            shards: Box::new(std::array::from_fn(|_| Shard::default())),
            no_target: TargetName {
                model: Arc::clone(&nothing),
                provider: nothing,
            },
            logs: AtomicBool::new(false),
            lines: AtomicU64::new(0),
            reloads: Default::default(),
            reload_refused: AtomicBool::new(false),
            refreshes: Default::default(),
            refresh_failed: AtomicBool::new(false),
            refreshed_at: AtomicI64::new(0),
            tracer: OnceLock::new(),
            spans: Default::default(),
            deliveries: Deliveries::default(),
            refunds: Refunds::default(),
            payments: Payments::default(),
        }
    }
}

impl Telemetry {
    /// All counts so far.
    pub fn figures(&self) -> Figures {
        let mut sum = Figures::default();
        for shard in self.shards.iter() {
            sum.add(&shard.lock().figures);
        }
        sum
    }

    /// Lines of the access log: written, and dropped because the writer could not keep up.
    pub fn lines(&self) -> (u64, u64) {
        let dropped = self.shards.iter().map(|shard| shard.lock().dropped);
        (self.lines.load(Ordering::Relaxed), dropped.sum())
    }

    /// A reload of configuration and catalogue took effect, or was refused.
    pub fn reloaded(&self, refused: bool) {
        let [changed, refusals] = &self.reloads;
        let count = if refused { refusals } else { changed };
        count.fetch_add(1, Ordering::Relaxed);
        self.reload_refused.store(refused, Ordering::Relaxed);
    }

    /// Reloads that took effect, and that were refused.
    pub fn reloads(&self) -> (u64, u64) {
        let [changed, refused] = &self.reloads;
        (changed.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
    }

    /// Whether the last reload was refused: the files have a mistake, and an older state is in force.
    pub fn reload_is_refused(&self) -> bool {
        self.reload_refused.load(Ordering::Relaxed)
    }

    /// A refresh of the catalogue came to its end, or failed.
    pub fn refreshed(&self, refreshed: Refreshed) {
        let [done, failed] = &self.refreshes;
        let has_failed = refreshed == Refreshed::Failed;
        let count = if has_failed { failed } else { done };
        count.fetch_add(1, Ordering::Relaxed);
        self.refresh_failed.store(has_failed, Ordering::Relaxed);
        if refreshed == Refreshed::Whole {
            self.refreshed_at.store(Clock::System.now().0, Ordering::Relaxed);
        }
    }

    /// Whether the last refresh of the catalogue failed.
    pub fn refresh_has_failed(&self) -> bool {
        self.refresh_failed.load(Ordering::Relaxed)
    }

    /// Refreshes of the catalogue: done, failed, and when the last one was done that looked at every model.
    pub fn refreshes(&self) -> (u64, u64, Option<Timestamp>) {
        let [done, failed] = &self.refreshes;
        let at = Some(self.refreshed_at.load(Ordering::Relaxed)).filter(|at| *at > 0);
        (
            done.load(Ordering::Relaxed),
            failed.load(Ordering::Relaxed),
            at.map(Timestamp),
        )
    }

    /// Spans: exported, not taken by the collector, and dropped because too many waited.
    pub fn spans(&self) -> [u64; 3] {
        self.spans.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// What became of so many spans.
    fn count_spans(&self, fate: SpanFate, spans: usize) {
        let [exported, failed, dropped] = &self.spans;
        let count = match fate {
            SpanFate::Exported => exported,
            SpanFate::Failed => failed,
            SpanFate::Dropped => dropped,
        };
        count.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The writer could not write so many lines.
    fn lines_lost(&self, lines: u64) {
        let mut counts = self.own().lock();
        counts.dropped = counts.dropped.saturating_add(lines);
    }

    /// Counts a request that is over.
    fn count(&self, record: Box<Record>, live: bool) {
        let mut counts = self.own().lock();
        counts.figures.count(&record, live);
        if !self.logs.load(Ordering::Relaxed) {
            return;
        }
        if counts.waiting.len() < WAITING_MAX {
            counts.waiting.push(record);
        } else {
            counts.dropped = counts.dropped.saturating_add(1);
        }
    }

    /// A call begins at a provider, perhaps after it has left another.
    fn moved(&self, left: Option<&TargetName>, provider: &Arc<str>, model: &Arc<str>) {
        let entered = TargetName {
            model: Arc::clone(model),
            provider: Arc::clone(provider),
        };
        let mut counts = self.own().lock();
        if let Some(left) = left {
            counts.figures.moved(left, -1);
        }
        counts.figures.moved(&entered, 1);
    }

    /// Takes the requests whose lines are to be written.
    fn take_waiting(&self, mut each: impl FnMut(Waiting)) {
        for shard in self.shards.iter() {
            let taken = {
                let mut counts = shard.lock();
                let room = Vec::with_capacity(counts.waiting.len());
                std::mem::replace(&mut counts.waiting, room)
            };
            if !taken.is_empty() {
                each(taken);
            }
        }
    }

    /// The shard of this thread.
    fn own(&self) -> &Shard {
        let number = NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        });
        &self.shards[number % SHARDS]
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Counting never leaves anything half done that matters: a panic in the middle costs a count, not the gateway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// This thread's number among those that have counted something.
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Threads beyond this number share shards.
const SHARDS: usize = 32;
/// Most requests of a thread whose lines wait: what it serves in a quarter of a second, and more.
const WAITING_MAX: usize = 40_960;

impl Telemetry {
    /// From now on requests make traces by this. False when they do so already by another, which stays.
    pub(crate) fn trace_by(&self, tracer: Tracer) -> bool {
        self.tracer.set(tracer).is_ok()
    }

    /// Whether traces are made.
    pub fn is_traced(&self) -> bool {
        self.tracer.get().is_some()
    }
}
