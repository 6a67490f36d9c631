//! What is noted of one request while it passes, and the one moment at which it is counted: when nothing of it is left.
//!
//! A [`Recorder`] goes with the request, and from its admission on with its hold. Dropping it counts the request and hands its line to the
//! access log, so that no way of ending is forgotten and none counts twice.

mod raised;

pub use self::raised::Raised;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::monotonic;
use crate::pure::error::ApiError;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;

use super::labels::reason;
pub use super::labels::{CLIENT_GONE, MAINTENANCE, Outcome, RouteName, STORE};
use super::trace::{Parent, Times, Trace, Traced};
use super::{SpanFate, Telemetry};

/// Where a call ran. Both are empty for a request that reached no provider; the model alone is known of one that was denied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName {
    /// The model's id in the catalogue: never what a caller wrote.
    pub model: Arc<str>,
    /// The provider's name in the configuration.
    pub provider: Arc<str>,
}

/// What went wrong with a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpstreamFault {
    /// The provider's name in the configuration.
    pub provider: Arc<str>,
    /// One of the few names that this module gives.
    pub kind: &'static str,
}

/// What a call was billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Billed {
    /// Tokens.
    pub usage: Usage,
    /// Their exact cost.
    pub cost: Credits,
    /// What was held for it.
    pub held: Credits,
}

/// What a provider delivered or reported beyond what was admitted for the call: it is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Tokens.
    pub usage: Usage,
    /// What they would have cost the account.
    pub cost: Credits,
}

/// An answer that broke off before anything of it was passed on: nobody is billed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The provider's name in the configuration.
    pub provider: Arc<str>,
    /// What the provider is likely to charge for it, at the account's prices.
    pub cost: Credits,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its id, which `x-request-id` told the client.
    pub id: RequestId,
    /// What it asked for.
    pub route: RouteName,
    /// The status that the client got, or 499 when it left before; 0 when there was none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was denied.
    pub reason: Option<&'static str>,
    /// Who called.
    pub caller: Option<(AccountId, KeyId)>,
    /// Where it ran last.
    pub target: TargetName,
    /// The upstream's name of the model.
    pub upstream_model: Option<Arc<str>>,
    /// Targets that were tried.
    pub attempts: u32,
    /// What went wrong with providers on the way.
    pub faults: Vec<UpstreamFault>,
    /// Answers that broke off before anything of them was passed on.
    pub discarded: Vec<Discarded>,
    /// What it was billed: nothing for a call that was free of charge because nothing was delivered.
    pub billed: Option<Billed>,
    /// What was used beyond what was admitted, and not billed.
    pub lost: Option<Lost>,
    /// The charge had to be cut to what was held.
    pub cut: bool,
    /// The store was asked to raise the hold: what it said each time, as a number for each of [`Raised`].
    pub raised: [u64; Raised::COUNT],
    /// Usage reports that were not believed.
    pub reports_rejected: u64,
    /// From the header's arrival to the end.
    pub duration: Duration,
    /// From the header's arrival to the first piece of the answer.
    pub first_event: Option<Duration>,
    /// Time not spent waiting for the provider or for the request's body.
    pub overhead: Duration,
}

/// A request's notes on their way.
#[derive(Debug)]
pub struct Recorder {
    record: Option<Box<Record>>,
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
        let record = Record {
            id,
            route: RouteName::None,
            status: 0,
            outcome: Outcome::default(),
            reason: None,
            caller: None,
            target: telemetry.no_target.clone(),
            upstream_model: None,
            attempts: 0,
            faults: Vec::new(),
            discarded: Vec::new(),
            billed: None,
            lost: None,
            cut: false,
            raised: [0; Raised::COUNT],
            reports_rejected: 0,
            duration: Duration::ZERO,
            first_event: None,
            overhead: Duration::ZERO,
        };
        Recorder {
            record: Some(Box::new(record)),
            trace: None,
            telemetry: Arc::clone(telemetry),
            started,
            body_wait: Duration::ZERO,
            sent: None,
            first: None,
            last: None,
            live: false,
            over: false,
        }
    }

    /// Begins its trace, when traces are made: then `parent` reads what the client's headers say.
    pub fn begin_trace(&mut self, method: &http::Method, parent: impl FnOnce() -> Option<Parent>) {
        if let (Some(tracer), Some(record)) = (self.telemetry.tracer.get(), &self.record) {
            self.trace = tracer.begin(record.id, parent(), method);
        }
    }

    /// Its trace, when traces are made.
    pub fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_deref_mut()
    }

    /// What it asks for.
    pub fn route(&mut self, route: RouteName) {
        self.note(|record| record.route = route);
    }

    /// Who calls.
    pub fn caller(&mut self, account: &AccountId, key: &KeyId) {
        self.note(|record| record.caller = Some((account.clone(), key.clone())));
    }

    /// The request's body took so long to arrive, or this part of it.
    pub fn waited_for_body(&mut self, wait: Duration) {
        self.body_wait = self.body_wait.saturating_add(wait);
    }

    /// The model, as the catalogue names it.
    pub fn model(&mut self, model: &Arc<str>) {
        self.note(|record| record.target.model = Arc::clone(model));
    }

    /// An error of the interface is what the client gets.
    pub fn failed(&mut self, error: &ApiError) {
        self.note(|record| {
            (record.outcome, record.reason) = match error {
                ApiError::UpstreamRefused { .. } => (Outcome::Refused, None),
                ApiError::UpstreamBusy { .. } | ApiError::UpstreamFailed | ApiError::UpstreamUnreachable => {
                    (Outcome::UpstreamFailed, None)
                }
                denial => (Outcome::Denied, record.reason.or(reason(denial))),
            };
        });
    }

    /// The provider failed within an answer, and the client was told so in it.
    pub fn died(&mut self) {
        self.fault("cut");
        self.note(|record| record.outcome = Outcome::UpstreamFailed);
    }

    /// Why it will be denied, where the error does not say.
    pub fn because(&mut self, reason: &'static str) {
        self.note(|record| record.reason = Some(reason));
    }

    /// An attempt at this target begins.
    pub fn attempt(&mut self, provider: &Arc<str>, upstream_model: &Arc<str>, number: usize) {
        if self.sent.is_none() {
            self.sent = Some(monotonic());
        }
        let Some(record) = self.record.as_mut() else { return };
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

    /// Something went wrong with the provider that is tried now.
    pub fn fault(&mut self, kind: &'static str) {
        self.note(|record| {
            let provider = Arc::clone(&record.target.provider);
            record.faults.push(UpstreamFault { provider, kind });
        });
        if let Some(trace) = self.trace() {
            trace.failed(kind);
        }
    }

    /// The answer of the provider that is tried now is thrown away, which is likely to charge this for it.
    pub fn discarded(&mut self, cost: Credits) {
        self.note(|record| {
            let provider = Arc::clone(&record.target.provider);
            record.discarded.push(Discarded { provider, cost });
        });
    }

    /// A piece of the answer passes; `ends` with its last.
    pub fn passed(&mut self, ends: bool) {
        if self.first.is_some() && !ends {
            return;
        }
        let now = monotonic();
        self.first.get_or_insert(now);
        if ends {
            self.last = Some(now);
        }
    }

    /// What came so far will not reach the client: another attempt follows.
    pub fn begins_again(&mut self) {
        (self.first, self.last) = (None, None);
    }

    /// The request is over for its connection; it is counted when its hold is closed too.
    pub fn ended(&mut self, status: u16, outcome: Outcome) {
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
        let overhead = ours.saturating_sub(self.body_wait);
        let first_event = self.first.map(|at| at.saturating_duration_since(self.started));
        self.note(|record| {
            (record.status, record.outcome) = (status, outcome);
            (record.duration, record.overhead, record.first_event) = (duration, overhead, first_event);
        });
    }

    /// From the request's arrival to the first piece of its answer, and to its end; None where that has not come.
    pub fn spans(&self) -> (Option<Duration>, Option<Duration>) {
        let first = self.first.map(|at| at.saturating_duration_since(self.started));
        let whole = self.record.as_ref().filter(|_| self.over).map(|record| record.duration);
        (first, whole)
    }

    /// How the request ended, as far as an error has said so already.
    pub fn said(&self) -> Option<Outcome> {
        let outcome = self.record.as_ref()?.outcome;
        (outcome != Outcome::Dropped).then_some(outcome)
    }

    /// The call is billed.
    pub fn billed(&mut self, usage: Usage, cost: Credits, held: Credits) {
        self.note(|record| record.billed = Some(Billed { usage, cost, held }));
    }

    /// So much was used beyond what was admitted.
    pub fn lost(&mut self, usage: Usage, cost: Credits) {
        self.note(|record| record.lost = Some(Lost { usage, cost }));
    }

    /// The charge was cut to what was held.
    pub fn cut(&mut self) {
        self.note(|record| record.cut = true);
    }

    /// The store was asked to raise the hold while the answer ran.
    pub fn raised(&mut self, raised: Raised) {
        self.note(|record| {
            if let Some(count) = record.raised.get_mut(raised as usize) {
                *count = count.saturating_add(1);
            }
        });
    }

    /// So many usage reports were not believed.
    pub fn reports_rejected(&mut self, reports: u64) {
        self.note(|record| record.reports_rejected = reports);
    }

    fn hand_over(&self, record: &Record, trace: Box<Trace>) {
        let Some(tracer) = self.telemetry.tracer.get().filter(|_| trace.is_recorded()) else {
            return;
        };
        let spans = trace.spans();
        let traced = Traced {
            record: record.clone(),
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

    fn note(&mut self, write: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            write(record);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.over {
            self.ended(0, Outcome::Dropped);
        }
        if let Some(record) = self.record.take() {
            if let Some(trace) = self.trace.take() {
                self.hand_over(&record, trace);
            }
            self.telemetry.count(record, self.live);
        }
    }
}

impl Record {
    /// When it arrived: its id is a UUIDv7, which begins with the milliseconds since 1970.
    pub fn at(&self) -> Timestamp {
        let [a, b, c, d, e, f, ..] = *self.id.as_bytes();
        Timestamp(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}
