//! What was admitted for a call, from the admission to its settlement.

use std::num::NonZeroU64;

use crate::ledger::{Caller, Hold};
use crate::pure::bill::Tariff;
use crate::pure::charge::Ceiling;
use crate::pure::money::Credits;
use crate::pure::policy::Permit;
use crate::pure::receipt::CallDetails;
use crate::pure::request_body::RequestBody;
use crate::pure::usage::{TokenKinds, Usage};
use crate::telemetry::recorder::Recorder;

/// Permit and hold: what `admit` gives, and what nothing is forwarded without.
pub(super) struct Admission {
    pub(super) permit: Permit,
    pub(super) caller: Caller,
    pub(super) hold: Hold,
    /// The account's quota of a month, as it was at the admission.
    pub(super) quota: Credits,
    /// The most completion tokens of a choice, where the gateway writes it into the request.
    pub(super) cap: Option<NonZeroU64>,
    /// The most that was admitted: no charge exceeds it.
    pub(super) ceiling: Ceiling,
    /// What is noted of the call: counted when it is dropped, with the hold.
    pub(super) recorder: Recorder,
    /// What kinds of tokens it used, where its provider reported some that have prices of their own.
    pub(super) kinds: Option<Box<TokenKinds>>,
    /// What its receipt says of it, once it is over.
    pub(super) details: Option<Box<CallDetails>>,
}

impl Admission {
    /// By what the call will be billed.
    pub(super) fn tariff<'a>(&'a self, body: &'a RequestBody) -> Tariff<'a> {
        Tariff {
            model: self.permit.model(),
            body,
            ceiling: self.ceiling,
            held: self.hold.amount(),
        }
    }

    /// Notes that a debit is taken.
    pub(super) fn billed(&mut self, usage: Usage, cost: Credits) {
        self.recorder.billed(usage, cost, self.hold.amount());
    }
}
