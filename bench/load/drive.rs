//! Puts load on one address for a while, in a closed loop (each connection sends its next request when it has its
//! answer) or an open one (requests are due at random times, and latency counts from when they were due, so that a
//! stalled gateway cannot hide behind requests that were never sent), and measures between two marks.

use std::{
    io,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    client::{Arrived, Connection, Failure, Listener, Shot},
    common::Result,
    due::{Due, Queue},
    pacer::Pacer,
    process::monotonic_ns,
    random::Random,
    tally::Tally,
    waiting::Waiting,
};

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// When a connection has its answer.
    Closed,
    /// So many a second on average, as callers come that know nothing of each other: a Poisson process. The same seed gives the same times.
    Poisson { rate: u32, seed: u64 },
}

/// A load.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    /// Sent in turn by each connection; each begins at a place of its own.
    pub(crate) shots: Vec<Shot>,
    pub(crate) arrivals: Arrivals,
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    pub(crate) waiting: Waiting,
    /// The connections send their first request one after the other over this time, so that they are not in step.
    pub(crate) spread: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) length: Duration,
    /// Ends the measure early when so many requests have been answered.
    pub(crate) requests_max: Option<u64>,
}

/// What was seen between the marks.
pub(crate) struct Outcome<M> {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) events: u64,
    /// What the caller read at both marks.
    pub(crate) marks: (M, M),
    pub(crate) tally: Tally,
}

/// Runs a plan. `mark` is called when the measure begins and when it ends; `watch` about ten times a second between, and may end it early.
pub(crate) fn run<M>(
    plan: Plan,
    mark: impl Fn() -> M,
    mut watch: impl FnMut() -> ControlFlow<()>,
) -> Result<Outcome<M>> {
    let plan = Arc::new(plan);
    let workers: Vec<Arc<Worker>> = (0..plan.workers).map(|_| Arc::new(Worker::new())).collect();
    let threads = workers.iter().enumerate().map(|(index, worker)| {
        let (plan, worker) = (Arc::clone(&plan), Arc::clone(worker));
        let runtime = plan.waiting.runtime()?;
        Ok(thread::spawn(move || runtime.block_on(work(&plan, &worker, index))))
    });
    let threads = threads.collect::<Result<Vec<_>>>()?;
    let enter = |phase| workers.iter().for_each(|worker| worker.phase.store(phase, Relaxed));
    let count = || {
        let sum = |counter: fn(&Worker) -> &AtomicU64| workers.iter().map(|w| counter(w).load(Relaxed)).sum::<u64>();
        (sum(|w| &w.requests), sum(|w| &w.events))
    };

    thread::sleep(plan.warm_up);
    let (first, begun, before) = (mark(), monotonic_ns(), count());
    workers.iter().for_each(|worker| worker.begun.store(begun, Relaxed));
    enter(MEASURE);
    loop {
        let elapsed = Duration::from_nanos(monotonic_ns() - begun);
        let requests = count().0 - before.0;
        let hopeless = requests == 0
            && workers
                .iter()
                .all(|worker| worker.failures.load(Relaxed) > FAILURES_MAX);
        if elapsed >= plan.length || hopeless || plan.requests_max.is_some_and(|max| requests >= max) {
            break;
        }
        if watch().is_break() {
            break;
        }
        thread::sleep((plan.length - elapsed).min(WATCH_EVERY));
    }
    let (after, ended) = (count(), monotonic_ns());
    workers.iter().for_each(|worker| worker.ended.store(ended, Relaxed));
    let last = mark();
    enter(STOP);

    for thread in threads {
        thread.join().map_err(|_| "a thread of the load generator panicked")??;
    }
    let mut tally = Tally::new();
    for worker in workers {
        tally.add(&worker.tally());
    }
    Ok(Outcome {
        seconds: Duration::from_nanos(ended - begun).as_secs_f64(),
        requests: after.0 - before.0,
        events: after.1 - before.1,
        marks: (first, last),
        tally,
    })
}

/// For a measure that nothing ends early.
pub(crate) fn to_the_end() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A thread's share of a run, and what it tells of it.
struct Worker {
    phase: AtomicU8,
    /// When the measure began and ended, by the monotonic clock; the end of time before that.
    begun: AtomicU64,
    ended: AtomicU64,
    requests: AtomicU64,
    events: AtomicU64,
    failures: AtomicU64,
    tally: Mutex<Tally>,
}

impl Worker {
    fn new() -> Self {
        Self {
            phase: AtomicU8::new(WARM_UP),
            begun: AtomicU64::new(u64::MAX),
            ended: AtomicU64::new(u64::MAX),
            requests: AtomicU64::new(0),
            events: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            tally: Mutex::new(Tally::new()),
        }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, failure: &Failure) {
        self.failures.fetch_add(1, Relaxed);
        let mut tally = self.tally();
        let mut kind = failure.to_string();
        if tally.errors.len() >= ERROR_KINDS_MAX && !tally.errors.contains_key(&kind) {
            "other errors".clone_into(&mut kind);
        }
        *tally.errors.entry(kind).or_default() += 1;
    }

    /// Whether a request that was due at this time is one of the measure, whenever its answer comes: without those that are answered behind
    /// the end, a gateway that stalls would seem quick.
    fn measures(&self, due_ns: u64) -> bool {
        (self.begun.load(Relaxed)..=self.ended.load(Relaxed)).contains(&due_ns)
    }

    fn stopped(&self) -> bool {
        self.phase.load(Relaxed) == STOP
    }
}

async fn work(plan: &Arc<Plan>, worker: &Arc<Worker>, index: usize) -> io::Result<()> {
    let mine = (plan.connections / plan.workers + usize::from(index < plan.connections % plan.workers)).max(1);
    let queue = Arc::new(Queue::default());
    let mut tasks = JoinSet::new();
    plan.waiting.begin();
    for number in 0..mine {
        let client = Client {
            plan: Arc::clone(plan),
            worker: Arc::clone(worker),
            connection: None,
            next: plan.shots.len() * (index + number * plan.workers) / plan.connections.max(1),
        };
        match plan.arrivals {
            Arrivals::Closed => {
                let place = u32::try_from(index + number * plan.workers).map_err(io::Error::other)?;
                let of = u32::try_from(plan.connections.max(1)).map_err(io::Error::other)?;
                let begins_in = plan.spread * place / of;
                tasks.spawn(async move {
                    if !begins_in.is_zero() {
                        tokio::time::sleep(begins_in).await;
                    }
                    client.closed().await;
                })
            }
            Arrivals::Poisson { .. } => tasks.spawn(client.open(Arc::clone(&queue))),
        };
    }
    if let Arrivals::Poisson { rate, seed } = plan.arrivals {
        // What several such processes bring together is one again.
        let (rate, seed) = (f64::from(rate) / plan.workers as f64, seed * SEEDS + index as u64);
        pace(rate, Random::new(seed), worker, &queue).await?;
    } else {
        while !worker.stopped() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    queue.end();
    let stuck = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, stuck).await.is_err() {
        let stuck = u64::try_from(tasks.len()).unwrap_or_default();
        *worker
            .tally()
            .errors
            .entry("no end of the answer".to_owned())
            .or_default() += stuck;
    }
    Ok(())
}

/// Puts this worker's arrivals into the queue when they are due.
async fn pace(rate: f64, mut random: Random, worker: &Worker, queue: &Queue) -> io::Result<()> {
    let pacer = Pacer::new()?;
    let begun = monotonic_ns();
    let mut after_ns = 0.0;
    while !worker.stopped() {
        after_ns += random.gap() * 1e9 / rate;
        let at = begun + after_ns as u64;
        pacer.until(at).await?;
        queue.push(at);
        // When late, many are due at once: let the connections take them.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// One connection and what it sends.
struct Client {
    plan: Arc<Plan>,
    worker: Arc<Worker>,
    connection: Option<Connection>,
    next: usize,
}

impl Client {
    async fn closed(mut self) {
        while !self.worker.stopped() {
            let due = Due {
                at_ns: monotonic_ns(),
                was_queued: false,
            };
            self.exchange(due).await;
        }
    }

    async fn open(mut self, queue: Arc<Queue>) {
        let worker = Arc::clone(&self.worker);
        // What was due before the end is still sent: leaving it out would flatter a stalled gateway.
        while let Some(due) = queue.next(|| worker.stopped()).await {
            self.exchange(due).await;
        }
    }

    /// One exchange, and its record.
    async fn exchange(&mut self, due: Due) {
        let Err(failure) = self.attempt(due).await else {
            return;
        };
        self.connection = None;
        if !matches!(failure, Failure::Stopped) {
            self.worker.failed(&failure);
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
    }

    async fn attempt(&mut self, due: Due) -> std::result::Result<(), Failure> {
        let connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => self.connection.insert(connection),
            None => {
                self.worker.tally().reconnects += 1;
                self.connection.insert(Connection::open(self.plan.address).await?)
            }
        };
        let shot = &self.plan.shots[self.next % self.plan.shots.len()];
        self.next += 1;
        let sent = monotonic_ns();
        let mut hearing = Hearing {
            worker: &self.worker,
            due_ns: due.at_ns,
            is_first: true,
        };
        let result = connection.exchange(shot, &mut hearing).await;
        let worker = &self.worker;
        worker.requests.fetch_add(u64::from(result.is_ok()), Relaxed);
        if worker.measures(due.at_ns) {
            let mut tally = worker.tally();
            if due.was_queued {
                tally.queued += 1;
            } else {
                tally.lag.saturating_record(sent.saturating_sub(due.at_ns));
            }
            if let Ok(reply) = &result {
                let latency = monotonic_ns().saturating_sub(due.at_ns);
                tally.latency.saturating_record(latency);
                *tally.statuses.entry(reply.status).or_default() += 1;
            }
        }
        result.map(|_| ())
    }
}

/// Counts a stream's events as they arrive.
struct Hearing<'a> {
    worker: &'a Worker,
    due_ns: u64,
    is_first: bool,
}

impl Listener for Hearing<'_> {
    fn events(&mut self, arrived: &Arrived<'_>) -> ControlFlow<()> {
        self.worker.events.fetch_add(arrived.events, Relaxed);
        // The first event of what was due in the measure counts even behind its end, which then cuts the stream.
        if std::mem::take(&mut self.is_first) && self.worker.measures(self.due_ns) {
            let after = arrived.at_ns.saturating_sub(self.due_ns);
            self.worker.tally().first_event.saturating_record(after);
        }
        if !arrived.delays_ns.is_empty() && self.worker.phase.load(Relaxed) == MEASURE {
            let mut tally = self.worker.tally();
            for delay in arrived.delays_ns {
                tally.event_delay.saturating_record(*delay);
            }
        }
        if self.worker.stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// More than there are workers: each has a seed of its own.
const SEEDS: u64 = 1_000;
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;
const WATCH_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long an answer may take to end after the measure has.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause of a connection after a failure, so that a refusing gateway is not flooded.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);
/// Failures of each worker without any success after which a run is given up.
const FAILURES_MAX: u64 = 200;
const ERROR_KINDS_MAX: usize = 20;
