//! What a request notes for its trace, beside its record: who asked, and every try at a provider. `spans` makes spans of it, off the path.
//!
//! With no collector configured there is no `Tracer` and no [`Trace`]: all of this costs a request one look at an `Option`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use super::record::Record;
use crate::clock::{monotonic, wall};
use crate::config::Sample;
use crate::pure::ids::RequestId;
use crate::pure::tap::Said;
use crate::pure::trace_context::{SpanId, TraceContext, TraceId};

/// Begins traces, and hands over those that are done.
#[derive(Debug)]
pub(crate) struct Tracer {
    sample: Sample,
    queue: SyncSender<Box<Traced>>,
}

/// A trace whose request is over.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) record: Record,
    pub(super) trace: Trace,
    pub(super) times: Times,
}

/// When what happened to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Its header came.
    pub(super) started: Instant,
    /// The first piece of the answer that was passed on.
    pub(super) first: Option<Instant>,
    /// The last.
    pub(super) last: Option<Instant>,
}

/// The trace of a request that is under way.
#[derive(Debug)]
pub struct Trace {
    /// What the client's headers said.
    pub(super) parent: Option<Parent>,
    /// The gateway's own span.
    pub(super) own: TraceContext,
    /// One moment on both clocks.
    pub(super) at: (SystemTime, Instant),
    pub(super) method: &'static str,
    /// The path, where it is one of the interface: a template where it has an id in it.
    pub(super) path: Option<String>,
    pub(super) request_params: Option<RequestParams>,
    pub(super) tries: Vec<Try>,
    /// What the answer said of itself.
    pub(super) said: Option<Said>,
    request: RequestId,
    /// Tries so far: the last of them asks as this span.
    tried: u32,
}

/// The trace that a client's request belongs to already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The client's span.
    pub context: TraceContext,
    /// Its `tracestate`, as one list.
    pub state: Option<String>,
}

/// What a call asks a model for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestParams {
    /// Whether the answer is streamed.
    pub stream: bool,
    /// How many answers.
    pub choices: u64,
    /// The client's own limit of tokens.
    pub max_tokens: Option<u64>,
}

/// Where a provider is asked.
#[derive(Debug, PartialEq, Eq)]
pub struct Server {
    /// The provider's name in the configuration.
    pub provider: Arc<str>,
    /// Host name or address.
    pub address: String,
    /// Port.
    pub port: u16,
}

/// One try at a provider.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) span: SpanId,
    pub(super) server: Arc<Server>,
    /// The provider's name of the model.
    pub(super) model: Arc<str>,
    pub(super) began: Instant,
    /// When it failed.
    pub(super) ended: Option<Instant>,
    pub(super) status: Option<u16>,
    pub(super) fault: Option<&'static str>,
}

impl Tracer {
    /// A tracer, and the end at which done traces come out.
    pub(super) fn new(sample: Sample) -> (Tracer, Receiver<Box<Traced>>) {
        let (queue, done) = sync_channel(QUEUE_MAX);
        (Tracer { sample, queue }, done)
    }

    /// The trace of a request. What the client's header says decides whether it is recorded; without one, the sample does.
    pub(super) fn begin(
        &self,
        request: RequestId,
        parent: Option<Parent>,
        method: &http::Method,
    ) -> Option<Box<Trace>> {
        let id = *request.as_bytes();
        let [.., a, b, c, d] = id;
        let (trace, sampled) = match &parent {
            Some(Parent { context, .. }) => (context.trace, context.sampled),
            // Without a trace of the client's the request's id is the trace's too: who has one has the other. Its end is random.
            None => (TraceId::new(id)?, self.sample.has(u32::from_be_bytes([a, b, c, d]))),
        };
        let span = SpanId::of_request(id, OWN_SPAN);
        Some(Box::new(Trace {
            parent,
            own: TraceContext { trace, span, sampled },
            at: (wall(), monotonic()),
            method: known(method),
            path: None,
            request_params: None,
            tries: Vec::new(),
            said: None,
            request,
            tried: 0,
        }))
    }

    /// Hands over a trace that is done; false when too many wait. Never waits.
    pub(super) fn hand_over(&self, traced: Box<Traced>) -> bool {
        self.queue.try_send(traced).is_ok()
    }
}

impl Trace {
    /// Whether it is recorded; if not, it is only passed on.
    pub fn is_recorded(&self) -> bool {
        self.own.sampled
    }

    /// How many spans it comes to.
    pub(super) fn spans(&self) -> usize {
        self.tries.len().saturating_add(1)
    }

    /// The path, for a request that asks for something the interface has; a template where it has an id in it.
    pub fn path(&mut self, path: &str) {
        if self.is_recorded() {
            self.path = Some(path.to_owned());
        }
    }

    /// What the call asks for.
    pub fn request_params(&mut self, request_params: RequestParams) {
        self.request_params = Some(request_params);
    }

    /// A try begins.
    pub fn tries(&mut self, server: &Arc<Server>, model: &Arc<str>) {
        self.tried = self.tried.saturating_add(1);
        if self.is_recorded() {
            self.tries.push(Try {
                span: self.span_of_try(),
                server: Arc::clone(server),
                model: Arc::clone(model),
                began: monotonic(),
                ended: None,
                status: None,
                fault: None,
            });
        }
    }

    /// The provider that is tried now answered with this status.
    pub fn answered(&mut self, status: u16) {
        if let Some(now) = self.tries.last_mut() {
            now.status = Some(status);
        }
    }

    /// The try that is under way failed in this way.
    pub fn failed(&mut self, kind: &'static str) {
        if let Some(now) = self.tries.last_mut() {
            now.fault = Some(kind);
            now.ended = Some(monotonic());
        }
    }

    /// What the answer said of itself.
    pub fn said(&mut self, said: Said) {
        if self.is_recorded() {
            self.said = Some(said);
        }
    }

    /// What the provider that is tried now is told: the try is its parent.
    pub fn passed_on(&self) -> (TraceContext, Option<&str>) {
        let context = TraceContext {
            span: self.span_of_try(),
            ..self.own
        };
        let state = self.parent.as_ref().and_then(|parent| parent.state.as_deref());
        (context, state)
    }

    /// A moment, by the wall's clock.
    pub(super) fn wall(&self, moment: Instant) -> SystemTime {
        let (wall, at) = self.at;
        let since = |a: Instant, b: Instant| a.saturating_duration_since(b);
        let shifted = match since(at, moment) {
            Duration::ZERO => wall.checked_add(since(moment, at)),
            before => wall.checked_sub(before),
        };
        shifted.unwrap_or(wall)
    }

    fn span_of_try(&self) -> SpanId {
        SpanId::of_request(*self.request.as_bytes(), self.tried)
    }
}

/// The methods that may stand in a span; what else a client writes may not.
fn known(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        "CONNECT" => "CONNECT",
        "TRACE" => "TRACE",
        _ => "_OTHER",
    }
}

/// The number of the gateway's own span among those of a request; tries count from 1.
const OWN_SPAN: u32 = 0;
/// Most traces that wait to be sent, of a few hundred bytes each; more are dropped and counted.
const QUEUE_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::super::Telemetry;
    use super::super::recorder::Recorder;
    use super::*;

    #[test]
    fn traces_that_find_no_room_are_dropped_and_counted() {
        let telemetry: Arc<Telemetry> = Arc::default();
        let (tracer, done) = Tracer::new(Sample::of_ratio(1.0).unwrap());
        assert!(telemetry.trace_by(tracer));
        for _ in 0..QUEUE_MAX + 3 {
            let id = RequestId::from_bytes(*uuid::Uuid::now_v7().as_bytes());
            let mut recorder = Recorder::new(&telemetry, id, monotonic());
            recorder.begin_trace(&http::Method::POST, || None);
        }
        assert_eq!(telemetry.spans(), [0, 0, 3]);
        assert_eq!(done.try_iter().count(), QUEUE_MAX);
    }

    #[test]
    fn no_trace_is_begun_when_none_are_sent() {
        let telemetry: Arc<Telemetry> = Arc::default();
        let id = RequestId::from_bytes(*uuid::Uuid::now_v7().as_bytes());
        let mut recorder = Recorder::new(&telemetry, id, monotonic());
        recorder.begin_trace(&http::Method::POST, || panic!("the headers are read"));
        assert!(recorder.trace().is_none());
    }
}
