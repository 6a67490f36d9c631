//! What is known of a request while it passes: its stage says what may happen to it next.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use pingora::{Error, ErrorType};

use super::access::body_memory::BodyOwner;
use super::admission::Admission;
use super::billing::capture::Capture;
use super::billing::closed_call::{ClosedCall, Ending};
use super::billing::early_end::EarlyEnd;
use super::billing::extend::Extension;
use super::billing::meter::Meter;
use super::billing::settle::Settler;
use super::shutdown::InFlight;
use super::snapshot::Snapshot;
use super::upstream::circuit_breaker::Admitted;
use super::upstream::drain_permit::DrainPermit;
use super::upstream::targets::Candidate;
use super::upstream::verdict::Verdict;
use crate::clock::Clock;
use crate::ledger::Uncovered;
use crate::net::dns::Unreached;
use crate::pure::charge::Ceiling;
use crate::pure::error::ApiError;
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;
use crate::pure::request_body::{RequestBody, ResponseMode};
use crate::telemetry::Telemetry;
use crate::telemetry::recorder::Recorder;

/// What is known of one request: the `CTX` of [`Tollgate`](super::Tollgate), which has it in a box.
pub struct Ctx {
    /// The request's id.
    pub(super) id: RequestId,
    /// Configuration and catalogue as they were then: a reload does not touch a request that is under way.
    pub(super) snapshot: Arc<Snapshot>,
    /// Where it comes from, as far as that can be believed. None without a socket.
    pub(super) client: Option<IpAddr>,
    /// The page's origin, for CORS.
    pub(super) origin: Option<HeaderValue>,
    /// The caller's limits, once they were looked at.
    pub(super) rate: Option<RateView>,
    /// Its body's chunks are not framed as HTTP wants them.
    pub(super) is_misframed: bool,
    /// How far the request has come.
    pub(super) stage: Stage,
    /// What is noted of it, until its admission takes that over.
    recorder: Recorder,
    /// Counts the request as under way. The last field: it is dropped after the stage, whose drop settles the call.
    in_flight: InFlight,
}

/// How far a request has come.
pub(super) enum Stage {
    /// Not admitted: nothing is held, nothing can be owed.
    Arrived,
    /// Admitted: a hold is open, and whatever ends the request must settle it.
    Admitted(Box<Call>),
    /// Answered and settled, or refused.
    Ended,
}

/// An admitted call on its way. What few calls have is in boxes: a call is kept for as long as its stream runs.
pub(super) struct Call {
    pub(super) admission: Option<Box<Admission>>,
    pub(super) body: Arc<RequestBody>,
    /// Whose memory the body and its copies take.
    pub(super) body_owner: BodyOwner,
    pub(super) settler: Arc<Settler>,
    /// The client has left.
    pub(super) client_has_left: bool,
    /// The upstream is read on for a client that has left.
    pub(super) read_on: Option<DrainPermit>,
    /// The client has left, and the answer came to its end all the same.
    pub(super) is_drained: bool,
    /// When the answer's head came, of a call that reasons where nobody sees it.
    pub(super) unseen_since: Option<Instant>,
    /// Why the answer was given its end, though the upstream goes on.
    pub(super) early_end: Option<EarlyEnd>,
    /// The provider failed within its stream, as its error event or its end said.
    pub(super) failed_within: bool,
    /// The store is being asked for more than is held.
    pub(super) extension: Option<Box<Extension>>,
    /// What is kept of the answer to a call with an idempotency key.
    pub(super) capture: Option<Box<Capture>>,
    /// Targets that were tried, by position.
    pub(super) tried: Vec<usize>,
    /// The attempt under way.
    pub(super) attempt: Option<Attempt>,
    /// Why the last attempt failed, should it remain the last.
    pub(super) failure: Option<Box<ApiError>>,
    /// What an answer that is none comes to, until what follows is decided.
    pub(super) verdict: Option<Box<Verdict>>,
    /// What the answer is, once it has begun.
    pub(super) answer: Answer,
}

/// One attempt at one target.
pub(super) struct Attempt {
    pub(super) candidate: Candidate,
    /// What the target's breaker wants back with the outcome.
    pub(super) admitted: Admitted,
    /// The body as this target gets it.
    pub(super) body: Bytes,
    /// Whether its host is asked over IPv6.
    pub(super) is_ipv6: bool,
    /// The host's addresses that could not be reached.
    pub(super) unreached: Unreached,
    /// When the request was given to a connection.
    pub(super) asked_at: Option<Instant>,
    /// The target is asked once more, over a fresh connection: the first one was of no more use when the request reached it.
    pub(super) is_repeated: bool,
}

/// What is sent to the client.
pub(super) enum Answer {
    /// Nothing yet.
    None,
    /// The upstream's answer, metered.
    Metered(Box<Meter>),
    /// The upstream refused the request, or is busy: its words are collected, which say what that comes to.
    Refusal(Box<Refusal>),
}

/// What an upstream said when it refused a request.
pub(super) struct Refusal {
    /// What is said without its words.
    pub(super) error: ApiError,
    /// The upstream's status.
    pub(super) status: u16,
    /// How long the upstream wants to be left alone, in seconds.
    pub(super) retry_after_secs: Option<u64>,
    /// What it said so far.
    pub(super) words: Vec<u8>,
}

impl Ctx {
    /// That of the request of this id.
    pub(super) fn new(id: RequestId, snapshot: Arc<Snapshot>, telemetry: &Arc<Telemetry>, in_flight: InFlight) -> Ctx {
        Ctx {
            id,
            recorder: Recorder::new(telemetry, id, crate::clock::monotonic()),
            snapshot,
            client: None,
            origin: None,
            rate: None,
            is_misframed: false,
            stage: Stage::Arrived,
            in_flight,
        }
    }

    /// What is noted of the request, wherever it is kept.
    pub(super) fn recorder(&mut self) -> &mut Recorder {
        match &mut self.stage {
            Stage::Admitted(call) => match &mut call.admission {
                Some(admission) => &mut admission.recorder,
                None => &mut self.recorder,
            },
            Stage::Arrived | Stage::Ended => &mut self.recorder,
        }
    }

    /// Whether a stop no longer waits for this request.
    pub(super) fn is_cut(&self) -> bool {
        self.in_flight.is_cut()
    }

    /// Whether it came when no more requests were taken.
    pub(super) fn is_late(&self) -> bool {
        self.in_flight.is_late()
    }

    pub(super) fn admitted(&self) -> Option<&Call> {
        match &self.stage {
            Stage::Admitted(call) => Some(call),
            Stage::Arrived | Stage::Ended => None,
        }
    }

    /// The attempt under way.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        self.admitted()?.attempt.as_ref()
    }

    /// Whether the answer is asked for as a stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.admitted()
            .is_some_and(|call| call.body.mode() == ResponseMode::Stream)
    }

    /// Whether the answer was given its end, though the upstream goes on.
    pub(super) fn has_early_end(&self) -> bool {
        self.admitted().is_some_and(|call| call.early_end.is_some())
    }

    /// Whether the upstream refused it, and its words are collected.
    pub(super) fn is_refused(&self) -> bool {
        self.admitted()
            .is_some_and(|call| matches!(call.answer, Answer::Refusal(_)))
    }

    /// The meter of an answer that has begun.
    pub(super) fn meter(&self) -> Option<&Meter> {
        match &self.admitted()?.answer {
            Answer::Metered(meter) => Some(meter),
            Answer::None | Answer::Refusal(_) => None,
        }
    }

    /// The request is over: a call is billed.
    pub(super) fn close(&mut self, ending: Ending) {
        if let Stage::Admitted(mut call) = std::mem::replace(&mut self.stage, Stage::Ended) {
            call.settle(ending);
        }
    }

    /// The call, when one was admitted.
    pub(super) fn call(&mut self) -> Option<&mut Call> {
        match &mut self.stage {
            Stage::Admitted(call) => Some(call),
            Stage::Arrived | Stage::Ended => None,
        }
    }
}

impl Attempt {
    /// The target answered.
    pub(super) fn succeeded(&self, clock: &Clock) {
        self.candidate.breaker.succeeded(self.admitted, clock);
    }

    /// The target failed; it may have said for how long, in seconds.
    pub(super) fn failed(&self, clock: &Clock, retry_after_secs: Option<u64>) {
        self.candidate.breaker.failed(self.admitted, clock, retry_after_secs);
    }

    /// The outcome says nothing of whether the target works.
    pub(super) fn inconclusive(&self) {
        self.candidate.breaker.inconclusive(self.admitted);
    }
}

impl Call {
    /// What was admitted for the call.
    pub(super) fn ceiling(&self) -> Ceiling {
        self.admission
            .as_ref()
            .map_or(Ceiling::NOTHING, |admission| admission.ceiling)
    }

    /// Whether its model reasons where nobody sees it, or may do so because the request asks for reasoning.
    pub(super) fn reasons_unseen(&self) -> bool {
        let admission = self.admission.as_ref();
        self.body.asks_reasoning() || admission.is_some_and(|admission| admission.permit.model().reasoning)
    }

    fn is_streamed(&self) -> bool {
        self.body.mode() == ResponseMode::Stream
    }

    /// Whether it is ended since the ledger cannot say whether its credit is set aside: false once it was given its end for another reason.
    pub(super) fn lacks_ledger(&self) -> bool {
        match (self.early_end, &self.admission) {
            (Some(end), _) => end == EarlyEnd::NoAnswer,
            (None, Some(admission)) => admission.hold.uncovered() == Some(Uncovered::NoAnswer),
            (None, None) => false,
        }
    }

    /// What is noted of the call, until it is settled.
    pub(super) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.admission.as_mut().map(|admission| &mut admission.recorder)
    }

    /// Ends the attempt with this verdict.
    pub(super) fn end_attempt(&mut self, verdict: Verdict) -> Box<Error> {
        let error = Error::explain(ErrorType::HTTPStatus(verdict.status), "the upstream failed").into_up();
        self.verdict = Some(Box::new(verdict));
        error
    }

    /// Closes the hold by what the meter saw. A second call does nothing.
    pub(super) fn settle(&mut self, ending: Ending) {
        let Some(mut admission) = self.admission.take() else {
            return;
        };
        // Of one that ended before its target had answered or failed. After that it changes nothing.
        if let Some(attempt) = &self.attempt {
            attempt.inconclusive();
        }
        if let Some(answer) = self
            .capture
            .take()
            .and_then(|capture| capture.whole(self.is_streamed()))
        {
            admission.hold.keep_answer(answer);
        }
        let meter = match std::mem::replace(&mut self.answer, Answer::None) {
            Answer::Metered(meter) => Some(meter),
            Answer::None | Answer::Refusal(_) => None,
        };
        let closed = ClosedCall {
            admission,
            body: Arc::clone(&self.body),
            meter,
            ending,
            target: self.attempt.take().map(|attempt| attempt.candidate),
        };
        self.settler.close(closed);
    }
}

/// A call is kept for as long as its stream runs, and of the allocator's next sizes few fit in what it takes at once.
const _: () = assert!(size_of::<Call>() <= 320);

impl Drop for Call {
    /// A request whose task is dropped (a runtime that ends, a panic in a hook) never reaches `logging`: its hold is closed here.
    fn drop(&mut self) {
        self.settle(Ending::Dropped);
    }
}
