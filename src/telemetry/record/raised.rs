//! Counters of what a call asked of its hold while it ran.

use super::super::labels::reason;
use super::super::labels::{CLIENT_GONE, MAINTENANCE, Outcome, RouteName, STORE};
use super::super::trace::{Parent, Times, Trace, Traced};
use super::super::{SpanFate, Telemetry};
use super::*;
use crate::clock::monotonic;
use crate::pure::error::ApiError;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the store said when it was asked to raise a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// More is held.
    Granted,
    /// The credit or the quota does not reach so far.
    Refused,
    /// It could not say, or the hold was gone.
    Failed,
}

impl Raised {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// Their names in metrics.
    pub const NAMES: [&'static str; Raised::COUNT] = ["granted", "refused", "failed"];
}
