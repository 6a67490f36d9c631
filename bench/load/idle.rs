//! Open streams that are idle most of the time: the memory and the files that each costs.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::{
    client::{Arrived, Connection, Failure, Listener, Shot},
    common::{Result, say},
    fleet::{Fleet, Subject},
    http2::{self, Http2},
    measured::OpenStreams,
    report::Report,
    request::Shape,
    script::Script,
    subjects,
};

/// Opens streams in steps on a fresh process of each subject. `files_max` is the limit of open files.
pub(crate) fn run(fleet: &Fleet, files_max: u64, report: &mut Report) -> Result<()> {
    let files_max = usize::try_from(files_max)?;
    for variant in fleet.options.variants() {
        let Some(subject) = subjects::launch(fleet, variant, report) else {
            continue;
        };
        measure(fleet, &subject, files_max, report)?;
    }
    if let Some(url) = &fleet.options.against {
        let subject = fleet.deployed(url)?;
        measure(fleet, &subject, files_max, report)?;
    }
    Ok(())
}

/// Of so many streams asked for, how many can be open, and how many of those share their clients' connections: each has two files, the
/// client's connection and the upstream's, and the last of a gateway's may share the former over HTTP/2.
fn possible(asked: usize, files_max: usize, is_gateway: bool) -> (usize, usize) {
    let shared = (2 * asked + FILES_SPARE).saturating_sub(files_max);
    if shared == 0 || is_gateway && shared <= asked / SHARED_PART {
        (asked, shared)
    } else {
        (files_max.saturating_sub(FILES_SPARE) / 2, 0)
    }
}

fn measure(fleet: &Fleet, subject: &Subject, files_max: usize, report: &mut Report) -> Result<()> {
    if subject.pids.is_empty() {
        return Ok(());
    }
    let before = subject.memory_kib().unwrap_or_default();
    let crowd = Crowd::new()?;
    let shots = Shape::Stream(Script {
        pace_ms: if fleet.options.quick { PACE_QUICK_MS } else { PACE_MS },
        ..Script::stream(EVENTS)
    })
    .shots(subject);
    for asked in fleet.options.idle_streams() {
        let (wanted, shared) = possible(asked, files_max, subject.is_gateway());
        let name = &subject.name;
        if wanted < asked {
            report.note(format!(
                "open: {wanted} streams of {name} and not {asked}, by the limit of open files"
            ));
        } else if shared > 0 {
            report.note(format!(
                "open: {shared} of the {wanted} streams of {name} share connections of HTTP/2, by the limit of open files"
            ));
        }
        if let Err(error) = crowd.grow(subject.address, &shots, wanted, shared) {
            report.fail(format!("open {wanted} of {} given up: {error}", subject.name));
            break;
        }
        let held = subject.memory_kib().unwrap_or_default();
        let failed = crowd.failed();
        let open = OpenStreams {
            subject: subject.name.clone(),
            streams: wanted,
            memory_kib: held,
            memory_before_kib: before,
            kib_a_stream: held.saturating_sub(before) as f64 / wanted as f64,
            open_files: subject.open_files(),
            memory_at_start_kib: subject.memory_at_start_kib,
            errors: failed.len() as u64,
            first_error: failed.into_iter().next(),
        };
        let note = open.first_error.as_ref().map_or_else(String::new, |error| {
            format!("  {} ERRORS, such as: {error}", open.errors)
        });
        say(&format!(
            "open {wanted}  {:<18} {:.1} KiB a stream, {} KiB in all{note}",
            subject.name, open.kib_a_stream, held
        ));
        report.open.push(open);
    }
    Ok(())
}

/// Streams that stay open until this is dropped.
struct Crowd {
    runtime: tokio::runtime::Runtime,
    seen: Arc<Seen>,
    asked: std::cell::Cell<usize>,
}

#[derive(Default)]
struct Seen {
    /// Streams that had their second event, or failed.
    settled: AtomicU64,
    failed: std::sync::Mutex<Vec<String>>,
}

impl Crowd {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        Ok(Self {
            runtime,
            seen: Arc::default(),
            asked: std::cell::Cell::new(0),
        })
    }

    /// Opens streams until there are `wanted`, the last of them `shared` over HTTP/2, and waits until each has had two events.
    fn grow(&self, address: SocketAddr, shots: &[Shot], wanted: usize, shared: usize) -> Result<()> {
        let opening = Arc::new(Semaphore::new(OPENING_MAX));
        let mut connection = None;
        for index in self.asked.replace(wanted)..wanted {
            let over_http2 = (index + shared).checked_sub(wanted);
            if over_http2.is_some_and(|index| index % http2::STREAMS_MAX == 0) {
                connection = Some(self.runtime.block_on(Http2::open(address))?);
            }
            let connection = over_http2.and_then(|_| connection.clone());
            let (seen, shot, opening) = (
                Arc::clone(&self.seen),
                shots[index % shots.len()].clone(),
                Arc::clone(&opening),
            );
            self.runtime.spawn(async move {
                let Ok(permit) = opening.acquire_owned().await else {
                    return;
                };
                let mut pulse = Pulse {
                    seen: Arc::clone(&seen),
                    events: 0,
                    permit: Some(permit),
                };
                let result = match connection {
                    Some(connection) => connection.stream(&shot, &mut pulse).await,
                    None => async { Connection::open(address).await?.exchange(&shot, &mut pulse).await }
                        .await
                        .map(|_| ()),
                };
                let failure = result.err().unwrap_or(Failure::Closed).to_string();
                seen.failed
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push(failure);
                if pulse.events < EVENTS_SETTLED {
                    seen.settled.fetch_add(1, Relaxed);
                }
            });
        }
        let begun = Instant::now();
        while self.seen.settled.load(Relaxed) < wanted as u64 {
            if begun.elapsed() > SETTLE_TIMEOUT {
                return Err(format!(
                    "only {} of {wanted} streams have begun",
                    self.seen.settled.load(Relaxed)
                )
                .into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Why streams ended that should be open.
    fn failed(&self) -> Vec<String> {
        self.seen
            .failed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}

/// Waits for the second event of a stream.
struct Pulse {
    seen: Arc<Seen>,
    events: u64,
    /// Held until the first event, so that not all connect at once.
    permit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Listener for Pulse {
    fn events(&mut self, arrived: &Arrived<'_>) -> ControlFlow<()> {
        self.permit = None;
        let before = self.events;
        self.events += arrived.events;
        if before < EVENTS_SETTLED && self.events >= EVENTS_SETTLED {
            self.seen.settled.fetch_add(1, Relaxed);
        }
        ControlFlow::Continue(())
    }
}

/// Between events of an idle stream.
const PACE_MS: u32 = 3000;
const PACE_QUICK_MS: u32 = 200;
/// Longer than a run lasts.
const EVENTS: u32 = 10_000;
/// A stream's buffers have been used when it has had so many events.
const EVENTS_SETTLED: u64 = 2;
const OPENING_MAX: usize = 200;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Open files that are not streams.
const FILES_SPARE: usize = 100;
/// The part of the streams that may share their connections: few enough not to change what a stream costs.
const SHARED_PART: usize = 50;
