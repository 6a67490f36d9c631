//! What is noted of one request while it passes, and the one moment at which it is counted: when nothing of it is left.
//!
//! A [`Recorder`] goes with the request, and from its admission on with its hold. Dropping it counts the request and hands its line to the
//! access log, so that no way of ending is forgotten and none counts twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::labels::reason;
use super::record::{Billed, CONTENT_REFUSED, Discarded, Lost, Outcome, Raised, Record, RouteName, UpstreamFault};
use super::trace::{Parent, Times, Trace, Traced};
use super::{SpanFate, Telemetry};
use crate::clock::monotonic;
use crate::pure::error::ApiError;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// A request's notes on their way. One whose notes went on elsewhere notes nothing.
#[derive(Debug)]
pub struct Recorder(Option<Notes>);

#[derive(Debug)]
struct Notes {
    record: Box<Record>,
    /// Only there when traces are made.
    trace: Option<Box<Trace>>,
    telemetry: Arc<Telemetry>,
    started: Instant,
    body_wait: Duration,
    sent: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Counted as under way at the record's target.
    live: bool,
    over: bool,
}

impl Recorder {
    /// Notes for a request that began at `started`.
    pub fn new(telemetry: &Arc<Telemetry>, id: RequestId, started: Instant) -> Recorder {
        Recorder(Some(Notes {
            record: Box::new(Record::new(id, telemetry.no_target.clone())),
            trace: None,
            telemetry: Arc::clone(telemetry),
            started,
            body_wait: Duration::ZERO,
            sent: None,
            first: None,
            last: None,
            live: false,
            over: false,
        }))
    }

    /// Of a request whose notes are elsewhere.
    pub const fn spent() -> Recorder {
        Recorder(None)
    }

    /// What is noted goes on with the recorder that this gives; nothing more is noted here.
    pub fn take(&mut self) -> Recorder {
        Recorder(self.0.take())
    }

    /// Begins its trace, when traces are made: then `parent` reads what the client's headers say.
    pub fn begin_trace(&mut self, method: &http::Method, parent: impl FnOnce() -> Option<Parent>) {
        self.note(|notes| {
            if let Some(tracer) = notes.telemetry.tracer.get() {
                notes.trace = tracer.begin(notes.record.id, parent(), method);
            }
        });
    }

    /// Its trace, when traces are made.
    pub fn trace(&mut self) -> Option<&mut Trace> {
        self.0.as_mut()?.trace.as_deref_mut()
    }

    /// What it asks for.
    pub fn route(&mut self, route: RouteName) {
        self.note(|notes| notes.record.route = route);
    }

    /// Who calls.
    pub fn caller(&mut self, account: &AccountId, key: &KeyId) {
        self.note(|notes| notes.record.caller = Some((account.clone(), key.clone())));
    }

    /// The request's body took so long to arrive, or this part of it.
    pub fn waited_for_body(&mut self, wait: Duration) {
        self.note(|notes| notes.body_wait = notes.body_wait.saturating_add(wait));
    }

    /// The model, as the catalogue names it.
    pub fn model(&mut self, model: Arc<str>) {
        self.note(|notes| notes.record.target.model = model);
    }

    /// An error of the interface is what the client gets.
    pub fn failed(&mut self, error: &ApiError) {
        self.note(|Notes { record, .. }| {
            (record.outcome, record.reason) = match error {
                ApiError::UpstreamRefused { .. } => (Outcome::Refused, None),
                ApiError::UpstreamBusy { .. }
                | ApiError::UpstreamFailed
                | ApiError::CredentialRefused
                | ApiError::UpstreamUnreachable => (Outcome::UpstreamFailed, None),
                denial => (Outcome::Denied, record.reason.or(reason(denial))),
            };
        });
    }

    /// The provider failed within an answer, and the client was told so in it.
    pub fn died(&mut self) {
        self.fault("cut");
        self.note(|notes| notes.record.outcome = Outcome::UpstreamFailed);
    }

    /// An attempt at this target begins.
    pub fn attempt(&mut self, provider: &Arc<str>, upstream_model: &Arc<str>, number: usize) {
        self.note(|notes| notes.attempt(provider, upstream_model, number));
    }

    /// Something went wrong with the provider that is tried now.
    pub fn fault(&mut self, kind: &'static str) {
        self.note(|Notes { record, .. }| {
            let provider = Arc::clone(&record.target.provider);
            record.faults.push(UpstreamFault { provider, kind });
        });
        if let Some(trace) = self.trace() {
            trace.failed(kind);
        }
    }

    /// The provider that is tried now refused what the request says, and may charge for it: it works.
    pub fn refused_content(&mut self) {
        self.note(|Notes { record, .. }| {
            let provider = Arc::clone(&record.target.provider);
            record.faults.push(UpstreamFault {
                provider,
                kind: CONTENT_REFUSED,
            });
        });
    }

    /// The answer of the provider that is tried now is thrown away, which is likely to charge this for it.
    pub fn discarded(&mut self, cost: Credits) {
        self.note(|Notes { record, .. }| {
            let provider = Arc::clone(&record.target.provider);
            record.discarded.push(Discarded { provider, cost });
        });
    }

    /// A piece of the answer passes; `ends` with its last.
    pub fn passed(&mut self, ends: bool) {
        self.note(|notes| {
            if notes.first.is_some() && !ends {
                return;
            }
            let now = monotonic();
            notes.first.get_or_insert(now);
            if ends {
                notes.last = Some(now);
            }
        });
    }

    /// What came so far will not reach the client: another attempt follows.
    pub fn begins_again(&mut self) {
        self.note(|notes| (notes.first, notes.last) = (None, None));
    }

    /// The request is over for its connection; it is counted when its hold is closed too.
    pub fn ended(&mut self, status: u16, outcome: Outcome) {
        self.note(|notes| notes.ended(status, outcome));
    }

    /// From the request's arrival to the first piece of its answer, and to its end; None where that has not come.
    pub fn spans(&self) -> (Option<Duration>, Option<Duration>) {
        let Some(notes) = &self.0 else { return (None, None) };
        let first = notes.first.map(|at| at.saturating_duration_since(notes.started));
        (first, notes.over.then_some(notes.record.duration))
    }

    /// How the request ended, as far as an error has said so already.
    pub fn said(&self) -> Option<Outcome> {
        let outcome = self.0.as_ref()?.record.outcome;
        (outcome != Outcome::Dropped).then_some(outcome)
    }

    /// The call is billed.
    pub fn billed(&mut self, usage: Usage, cost: Credits, held: Credits) {
        self.note(|notes| notes.record.billed = Some(Billed { usage, cost, held }));
    }

    /// So much was used beyond what was admitted, and beside what was said to be.
    pub fn lost(&mut self, usage: Usage, cost: Credits) {
        self.note(|notes| {
            let before = notes.record.lost.unwrap_or_default();
            let (prompt, completion) = (before.usage.prompt.0, before.usage.completion.0);
            notes.record.lost = Some(Lost {
                usage: Usage {
                    prompt: PromptTokens(prompt.saturating_add(usage.prompt.0)),
                    completion: CompletionTokens(completion.saturating_add(usage.completion.0)),
                },
                cost: before.cost.saturating_add(cost),
            });
        });
    }

    /// The charge was cut to what was held.
    pub fn cut(&mut self) {
        self.note(|notes| notes.record.cut = true);
    }

    /// The store was asked to raise the hold while the answer ran.
    pub fn raised(&mut self, raised: Raised) {
        self.note(|notes| {
            if let Some(count) = notes.record.raised.get_mut(raised as usize) {
                *count = count.saturating_add(1);
            }
        });
    }

    /// The answer is that of an earlier call with the same idempotency key.
    pub fn replayed(&mut self) {
        self.note(|notes| notes.record.is_replay = true);
    }

    /// The reported total has so many tokens beyond both sides.
    pub fn beyond_sides(&mut self, tokens: u64) {
        self.note(|notes| notes.record.beyond_sides = tokens);
    }

    /// So many usage reports were not believed.
    pub fn reports_rejected(&mut self, reports: u64) {
        self.note(|notes| notes.record.reports_rejected = reports);
    }

    #[inline]
    fn note(&mut self, write: impl FnOnce(&mut Notes)) {
        if let Some(notes) = &mut self.0 {
            write(notes);
        }
    }
}

impl Notes {
    fn attempt(&mut self, provider: &Arc<str>, upstream_model: &Arc<str>, number: usize) {
        if self.sent.is_none() {
            self.sent = Some(monotonic());
        }
        let record = &mut self.record;
        let same = Arc::ptr_eq(&record.target.provider, provider) && self.live;
        if !same {
            self.telemetry
                .moved(self.live.then_some(&record.target), provider, &record.target.model);
            self.live = true;
        }
        record.target.provider = Arc::clone(provider);
        record.upstream_model = Some(Arc::clone(upstream_model));
        record.attempts = u32::try_from(number).unwrap_or(u32::MAX);
    }

    fn ended(&mut self, status: u16, outcome: Outcome) {
        self.over = true;
        let now = monotonic();
        let duration = now.saturating_duration_since(self.started);
        // Without an upstream all of it is ours. With one: what came before it was asked, and what came after its last byte.
        let ours = match (self.sent, self.last) {
            (None, _) => duration,
            (Some(sent), None) => sent.saturating_duration_since(self.started),
            (Some(sent), Some(last)) => {
                let before = sent.saturating_duration_since(self.started);
                before.saturating_add(now.saturating_duration_since(last))
            }
        };
        let record = &mut self.record;
        (record.status, record.outcome, record.duration) = (status, outcome, duration);
        record.overhead = ours.saturating_sub(self.body_wait);
        record.first_event = self.first.map(|at| at.saturating_duration_since(self.started));
    }

    fn hand_over(&self, trace: Box<Trace>) {
        let Some(tracer) = self.telemetry.tracer.get().filter(|_| trace.is_recorded()) else {
            return;
        };
        let spans = trace.spans();
        let traced = Traced {
            record: Record::clone(&self.record),
            trace: *trace,
            times: Times {
                started: self.started,
                first: self.first,
                last: self.last,
            },
        };
        if !tracer.hand_over(Box::new(traced)) {
            self.telemetry.count_spans(SpanFate::Dropped, spans);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let Some(mut notes) = self.0.take() else { return };
        if !notes.over {
            notes.ended(0, Outcome::Dropped);
        }
        if let Some(trace) = notes.trace.take() {
            notes.hand_over(trace);
        }
        let Notes {
            record,
            telemetry,
            live,
            ..
        } = notes;
        telemetry.count(record, live);
    }
}
