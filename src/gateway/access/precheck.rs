//! What is looked at before a long body is taken: a caller who would be refused whatever it says is refused before.
//!
//! It looks only at what this process knows. A short body has come by then, and is looked at first.

use std::net::IpAddr;

use super::admit::{self, Refused};
use super::idempotency;
use super::refusal::refused;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Caller;
use crate::pure::account::Look;
use crate::pure::catalogue::{Model, ModelKind};
use crate::pure::error::ApiError;
use crate::pure::ids::{RequestId, Tier};
use crate::pure::limits::RateView;
use crate::pure::request_body::Endpoint;

/// A caller with a body to come.
pub(in crate::gateway) struct Precheck<'a> {
    pub(in crate::gateway) snapshot: &'a Snapshot,
    pub(in crate::gateway) caller: &'a Caller,
    pub(in crate::gateway) id: RequestId,
    pub(in crate::gateway) endpoint: Endpoint,
    /// Whether the key's domain lock lets the request in.
    pub(in crate::gateway) is_domain_allowed: bool,
    /// The client's address.
    pub(in crate::gateway) client: Option<IpAddr>,
    /// Whether it brings an idempotency key. The answer that it may come back for costs nothing, and counts for the limit of requests alone.
    pub(in crate::gateway) is_keyed: bool,
    /// The caller's limits, once it was refused for one.
    pub(in crate::gateway) rate: Option<RateView>,
}

impl Precheck<'_> {
    /// Tier, domain lock, limits and credit, as far as they are known without the body; in the order in which they are checked with it.
    ///
    /// # Errors
    /// 403, 429 or 402.
    pub(in crate::gateway) fn check(&mut self) -> Result<(), ApiError> {
        admit::address_allows(self.caller, self.client)?;
        let tier = self.caller.tier();
        let mut models = self.snapshot.catalogue.models().iter();
        let mut open = models
            .by_ref()
            .filter(|model| is_open(model, self.endpoint, tier))
            .filter(|model| self.caller.key.settings.allows_model(&model.id))
            .peekable();
        if open.peek().is_none() && !self.is_keyed {
            if !self.caller.key.settings.models.is_empty() {
                return Err(ApiError::Forbidden(
                    "This key may use no model of this path.".to_owned(),
                ));
            }
            let tier = tier.title();
            return Err(ApiError::Forbidden(format!(
                "The tier {tier} has no model for this path."
            )));
        }
        if !self.is_domain_allowed {
            return Err(ApiError::Forbidden(admit::DOMAIN_REFUSED.to_owned()));
        }
        let (scope, limits) = admit::limits(self.snapshot, self.caller);
        let look = Look {
            scope,
            limits,
            quota: admit::monthly_quota(self.snapshot, self.caller),
            is_paid: open.all(|model| !model.prices.usual().pricing.prompt.is_zero()),
        };
        let looked = match self.is_keyed {
            true => idempotency::requests_left(self.caller, self.snapshot),
            false => self.caller.look(&look),
        };
        let Err(denial) = looked else { return Ok(()) };
        // What it needs is not known without its body.
        let asked = (self.snapshot, self.caller, self.id);
        let Refused { error, rate } = refused(asked, None, (denial, None), |_| None);
        self.rate = rate;
        Err(error)
    }
}

/// Whether the model answers at this path, and is open to the tier.
fn is_open(model: &Model, endpoint: Endpoint, tier: Tier) -> bool {
    let kind = match endpoint {
        Endpoint::Chat | Endpoint::ChatStream => ModelKind::Chat,
        Endpoint::Embeddings => ModelKind::Embedding,
    };
    model.kind() == kind && model.tier <= tier
}
