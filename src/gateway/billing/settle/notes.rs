//! What a call's charge tells the operator: tiers without prices, and totals beyond both sides.

use crate::gateway::admission::Admission;
use crate::gateway::billing::closed_call::ClosedCall;
use crate::gateway::billing::metered::Metered;
use crate::pure::bill::Used;
use crate::pure::prices::Served;
use crate::telemetry::record::UNKNOWN_TIER;

/// A tier that the catalogue has no prices for: the dearest are charged. Where its provider's own cost is, no price of the catalogue is.
pub(super) fn note_unknown_tier(admission: &mut Admission, used: &Used<'_>) {
    let model = admission.permit.model();
    if used.cost.is_some() || model.prices.served(used.tier) != Served::Unknown {
        return;
    }
    log::error!(
        "MONEY: request {}: {} was served by the tier {:?}, which the catalogue has no prices for; the dearest are charged",
        admission.hold.id(),
        model.id,
        used.tier.unwrap_or_default()
    );
    admission.recorder.fault(UNKNOWN_TIER);
}

/// What a reported total has beyond both sides. A call that costs nothing, or what its provider says that it cost, loses nothing by it.
pub(super) fn note_beyond_sides(closed: &mut ClosedCall, metered: &Metered) {
    let model = closed.admission.permit.model();
    let upstream = closed.target.as_ref().map(|target| &target.upstream);
    let has_cost = metered.cost.is_some() && upstream.is_some_and(|upstream| upstream.cost_markup.is_some());
    if metered.beyond_sides == 0 || has_cost || model.prices.is_free() {
        return;
    }
    log::warn!(
        "MONEY: request {}: {} reported a total of {} tokens more than its prompt and completion, which are not charged; if {} charges you \
         for them, give it `completion_from: total`",
        closed.admission.hold.id(),
        model.id,
        metered.beyond_sides,
        upstream.map_or("its provider", |upstream| &*upstream.name)
    );
    closed.admission.recorder.beyond_sides(metered.beyond_sides);
}
