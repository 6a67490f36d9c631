//! What is known of one request once it is over.

mod raised;

pub use self::raised::Raised;
use std::sync::Arc;
use std::time::Duration;

use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;

pub use super::labels::{CLIENT_GONE, CONTENT_REFUSED, IMPLAUSIBLE_USAGE, Outcome, RouteName, UNKNOWN_TIER};

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
    /// One of the few names that `gateway::recorder` and the settlement give.
    pub kind: &'static str,
}

impl UpstreamFault {
    /// Whether an attempt failed: false for an answer that succeeded, and whose report or tier is what is wrong, and for a request whose content
    /// the provider refused.
    pub fn is_failure(&self) -> bool {
        !matches!(self.kind, IMPLAUSIBLE_USAGE | UNKNOWN_TIER | CONTENT_REFUSED)
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Its tokens at the model's list prices, with the markup, without kinds and tiers.
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
    /// Tokens that the reported total has beyond both sides, which were not billed.
    pub beyond_sides: u64,
    /// The answer was that of an earlier call with the same idempotency key.
    pub is_replay: bool,
    /// From the header's arrival to the end.
    pub duration: Duration,
    /// From the header's arrival to the first piece of the answer.
    pub first_event: Option<Duration>,
    /// Time not spent waiting for the provider or for the request's body; with what the client takes for the last part of its answer.
    pub overhead: Duration,
}

impl Record {
    /// Of a request that began now.
    pub(super) fn new(id: RequestId, target: TargetName) -> Record {
        Record {
            id,
            route: RouteName::None,
            status: 0,
            outcome: Outcome::default(),
            reason: None,
            caller: None,
            target,
            upstream_model: None,
            attempts: 0,
            faults: Vec::new(),
            discarded: Vec::new(),
            billed: None,
            lost: None,
            cut: false,
            raised: [0; Raised::COUNT],
            reports_rejected: 0,
            beyond_sides: 0,
            is_replay: false,
            duration: Duration::ZERO,
            first_event: None,
            overhead: Duration::ZERO,
        }
    }

    /// When it arrived: its id is a UUIDv7, which begins with the milliseconds since 1970.
    pub fn at(&self) -> Timestamp {
        self.id.time()
    }
}
