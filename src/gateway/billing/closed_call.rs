//! A call that is over, as its settlement gets it.

use std::sync::Arc;

use super::meter::Meter;
use crate::gateway::admission::Admission;
use crate::gateway::upstream::targets::Candidate;
use crate::pure::request_body::RequestBody;

/// How a call ended, as far as its connections tell. The tap knows better whether the answer was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Ending {
    /// The answer was passed on to its end.
    Complete,
    /// The client had gone, and the answer was read on for it to its end.
    Drained,
    /// The client went away before, and the upstream was not read on for it, or not for long enough.
    ClientGone,
    /// The upstream failed before.
    UpstreamFailed,
    /// The process stopped before, and no longer waited; or the gateway ended the answer, a stream with an error event, for want of credit, or of the
    /// ledger, or as its account was stopped. Nobody owes more than had the upstream failed.
    Stopped,
    /// As [`Ending::ClientGone`], of a call that reasons where nobody sees it: so long after its head the answer had not come to its end.
    DrainEnded {
        /// Milliseconds from the answer's head to the end of the drain, or to the finish of all its choices where that came before and no
        /// text followed it.
        elapsed_ms: u64,
    },
    /// The client had gone, and the upstream failed while it was read on, or a stop or the ledger ended the call: the client is not why
    /// the answer did not come to its end.
    DrainFailed,
    /// The request was dropped by its runtime: a shutdown, or a panic.
    Dropped,
}

/// A call to be closed.
pub(in crate::gateway) struct ClosedCall {
    pub(in crate::gateway) admission: Box<Admission>,
    pub(in crate::gateway) body: Arc<RequestBody>,
    /// None when no upstream answered.
    pub(in crate::gateway) meter: Option<Box<Meter>>,
    pub(in crate::gateway) ending: Ending,
    /// The target that was asked last.
    pub(in crate::gateway) target: Option<Candidate>,
}
