//! Sends traces to an OTLP collector, on a thread of its own.
//!
//! No request waits for it: traces that are done lie in a queue of bounded length, which is looked into twice a second. A collector that is
//! down, slow, or does not answer costs the traces that find no room, which are counted, and nothing else; what it said it may take later is
//! sent again.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::runtime::Runtime;

use super::collector::{Fate, Wire};
use super::spans::spans;
use super::trace::{Traced, Tracer};
use super::{SpanFate, Telemetry};
use crate::clock::monotonic;
use crate::config::{Collector, Traces};

/// The exporter, for whoever stops the process.
#[derive(Debug, Default)]
pub struct Exporter {
    closing: Arc<Closing>,
    thread: Option<JoinHandle<()>>,
    /// Makes what it sends; none once it was taken.
    tracer: Option<Tracer>,
}

/// When the end has begun, if it has.
#[derive(Debug, Default)]
struct Closing {
    since: Mutex<Option<Instant>>,
    told: Condvar,
}

/// What the thread works with.
struct Sender {
    telemetry: Weak<Telemetry>,
    done: Receiver<Box<Traced>>,
    closing: Arc<Closing>,
    wire: Wire,
    exporter: opentelemetry_otlp::SpanExporter,
    runtime: Runtime,
    scope: InstrumentationScope,
    failing: bool,
}

impl Exporter {
    /// Starts sending, and has traces made. Nothing is started, and no trace is made, without a collector.
    ///
    /// # Errors
    /// When the exporter cannot be made, its thread not be started, or traces are sent already.
    pub fn start(telemetry: &Arc<Telemetry>, traces: &Traces) -> std::io::Result<Exporter> {
        let mut exporter = Exporter::prepare(telemetry, traces)?;
        if exporter.take_tracer().is_some_and(|tracer| !telemetry.trace_by(tracer)) {
            return Err(std::io::Error::other("traces are sent already"));
        }
        Ok(exporter)
    }

    /// Starts sending what [`Exporter::take_tracer`] makes. It may be dropped, and another one started, as long as no requests have that.
    ///
    /// # Errors
    /// When the exporter cannot be made, or its thread not be started.
    pub(crate) fn prepare(telemetry: &Arc<Telemetry>, traces: &Traces) -> std::io::Result<Exporter> {
        let Traces::To(collector) = traces else {
            return Ok(Exporter::default());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wire = {
            let _entered = runtime.enter();
            Wire::to(collector)
        };
        let exporter = exporter(collector, &wire).map_err(std::io::Error::other)?;
        let (tracer, done) = Tracer::new(collector.sample);
        let closing = Arc::<Closing>::default();
        let mut sender = Sender {
            telemetry: Arc::downgrade(telemetry),
            done,
            closing: Arc::clone(&closing),
            wire,
            exporter,
            runtime,
            scope: InstrumentationScope::builder("tollgate")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            failing: false,
        };
        let thread = std::thread::Builder::new().name("traces".to_owned());
        Ok(Exporter {
            closing,
            thread: Some(thread.spawn(move || sender.run())?),
            tracer: Some(tracer),
        })
    }

    /// What makes the traces, for [`Telemetry::trace_by`].
    pub(crate) fn take_tracer(&mut self) -> Option<Tracer> {
        self.tracer.take()
    }

    /// Sends what is left, as far as the collector takes it within two seconds: one that hangs does not hold up a stop. Blocks; called once,
    /// after the last request.
    pub fn close(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.closing.begin();
        let started = monotonic();
        while !thread.is_finished() {
            if started.elapsed() > CLOSE_MAX {
                return log::error!("the collector does not take the last traces");
            }
            std::thread::sleep(CLOSE_PAUSE);
        }
        if thread.join().is_err() {
            log::error!("the thread that sends traces panicked");
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

impl Closing {
    fn begin(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(monotonic());
        self.told.notify_all();
    }

    /// Waits so long, or until the end begins. Whether it has.
    fn wait(&self, at_most: Duration) -> bool {
        let guard = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(guard, at_most, |since| since.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// How long the next batch may take.
    fn time_left(&self) -> Duration {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(BATCH_MAX, |since| CLOSE_MAX.saturating_sub(since.elapsed()))
    }
}

impl Sender {
    fn run(&mut self) {
        loop {
            let closes = self.closing.wait(SEND_EVERY);
            while let Some(batch) = self.next_batch() {
                self.send(batch);
            }
            if closes || self.telemetry.strong_count() == 0 {
                return;
            }
        }
    }

    /// The spans of the traces that wait, as many as go into one batch.
    fn next_batch(&self) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_SPANS
            && let Ok(traced) = self.done.try_recv()
        {
            batch.extend(spans(&traced, &self.scope));
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Sends a batch until the collector has it, or refuses it, or there is no more time. Meanwhile the queue fills, and no further.
    fn send(&mut self, batch: Vec<SpanData>) {
        let mut pause = PAUSE_MIN;
        loop {
            self.wire.begin();
            let left = self.closing.time_left();
            let send = self.exporter.export(batch.clone());
            // What comes of it, the wire knows better: the exporter's errors do not tell what may be sent again.
            drop(self.runtime.block_on(async { tokio::time::timeout(left, send).await }));
            let fate = self.wire.fate();
            self.tell(fate);
            match fate {
                Fate::Taken => {
                    let rejected = self.wire.rejected().min(batch.len());
                    self.count(SpanFate::Failed, rejected);
                    return self.count(SpanFate::Exported, batch.len().saturating_sub(rejected));
                }
                Fate::Refused => return self.count(SpanFate::Failed, batch.len()),
                // At the end there is no other time.
                Fate::Later if self.closing.wait(pause) => return self.count(SpanFate::Failed, batch.len()),
                Fate::Later if self.telemetry.strong_count() == 0 => return,
                Fate::Later => pause = pause.saturating_mul(2).min(PAUSE_MAX),
            }
        }
    }

    /// Once when it begins to fail, and once when it works again.
    fn tell(&mut self, fate: Fate) {
        let fails = fate != Fate::Taken;
        match (std::mem::replace(&mut self.failing, fails), fails) {
            (false, true) => log::warn!(
                "the collector {} does not take traces: {}",
                self.wire,
                self.wire.error()
            ),
            (true, false) => log::info!("the collector takes traces again"),
            (true, true) | (false, false) => {}
        }
    }

    fn count(&self, fate: SpanFate, spans: usize) {
        if let Some(telemetry) = self.telemetry.upgrade() {
            telemetry.count_spans(fate, spans);
        }
    }
}

fn exporter(
    collector: &Collector,
    wire: &Wire,
) -> Result<opentelemetry_otlp::SpanExporter, opentelemetry_otlp::ExporterBuildError> {
    let scheme = if collector.endpoint.tls { "https" } else { "http" };
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(wire.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!(
            "{scheme}://{}{}",
            collector.endpoint.authority, collector.endpoint.path
        ))
        .with_timeout(BATCH_MAX)
        .build()?;
    let instance = crate::clock::unique().to_string();
    let resource = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", collector.service_name.clone()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance),
    ]);
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

/// How often the queue is looked into.
const SEND_EVERY: Duration = Duration::from_millis(500);
/// Spans in one request to the collector, and a few more.
const BATCH_SPANS: usize = 512;
/// The longest that one request to the collector takes.
const BATCH_MAX: Duration = Duration::from_secs(5);
/// Between two tries to send a batch.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How long the end waits for the collector.
const CLOSE_MAX: Duration = Duration::from_secs(2);
const CLOSE_PAUSE: Duration = Duration::from_millis(5);
