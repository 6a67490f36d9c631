//! What was lost: to the operator, who pays it while no customer does, or of what should have been told.

use super::super::counters::{Figures, TargetFigures};
use super::super::exposition::Gauges;
use super::super::labels::UNKNOWN_TIER;
use super::super::payments::PaymentCounts;
use crate::pure::credit_sum::CreditSum;

/// Sums since the start. Amounts are in 10⁻¹² credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    unbilled: i128,
    discarded: i128,
    beyond: u64,
    tiers: u64,
    reports: u64,
    not_raised: u64,
    refunds_short: i128,
    payments: PaymentCounts,
    events: u64,
    log_lines: u64,
}

impl Losses {
    pub(super) fn of(figures: &Figures, gauges: &Gauges) -> Losses {
        let targets = || figures.targets.values();
        let count = |of: fn(&TargetFigures) -> u64| targets().map(of).fold(0, u64::saturating_add);
        let amount = |of: fn(&TargetFigures) -> i128| targets().map(of).fold(0, i128::saturating_add);
        let tiers = figures.faults.iter().filter(|(fault, _)| fault.kind == UNKNOWN_TIER);
        let (_written, log_lines) = gauges.lines;
        Losses {
            unbilled: amount(|target| target.lost_pico),
            discarded: amount(|target| target.discarded_pico),
            beyond: count(|target| target.beyond_sides),
            tiers: tiers.map(|(_, calls)| *calls).fold(0, u64::saturating_add),
            reports: count(|target| target.reports_rejected),
            not_raised: count(|target| {
                let [_granted, refused, failed] = target.raised;
                refused.saturating_add(failed)
            }),
            refunds_short: i128::from(gauges.refunds_short.pico()),
            payments: gauges.payments,
            // What an earlier process saw dropped is no news.
            events: gauges.deliveries.dropped.map_or(0, |(_, since)| since),
            log_lines,
        }
    }

    /// A sentence for each that there was more of than `before`.
    pub(super) fn alarms(&self, before: &Losses) -> Vec<String> {
        let amount = |of: fn(&Losses) -> i128| {
            let more = of(self).saturating_sub(of(before));
            (more > 0).then(|| CreditSum::from_pico(more))
        };
        let count = |of: fn(&Losses) -> u64| {
            let more = of(self).saturating_sub(of(before));
            (more > 0).then_some(more)
        };
        let told = [
            amount(|losses| losses.unbilled)
                .map(|sum| format!("providers went beyond what was held: {sum} credits that nobody was billed for")),
            amount(|losses| losses.discarded)
                .map(|sum| format!("answers broke off: their providers may charge {sum} credits")),
            count(|losses| losses.beyond)
                .map(|tokens| format!("tokens that only totals have, which nobody was billed for: {tokens}")),
            count(|losses| losses.tiers).map(|calls| format!("calls that a tier without prices served: {calls}")),
            count(|losses| losses.reports)
                .map(|reports| format!("reported usage that cannot be, in whose place tokens were counted: {reports}")),
            count(|losses| losses.not_raised)
                .map(|holds| format!("holds that could not be raised: {holds}; a maximum of the catalogue is too low")),
            amount(|losses| losses.refunds_short)
                .map(|sum| format!("refunds were {sum} credits more than their accounts had left")),
            count(|losses| losses.payments.unassigned)
                .map(|payments| format!("messages of payments that were credited to nobody: {payments}")),
            count(|losses| losses.payments.refunds_unassigned)
                .map(|refunds| format!("messages of refunds for which nothing was taken: {refunds}")),
            count(|losses| losses.payments.disputes)
                .map(|disputes| format!("messages of payments that are disputed: {disputes}")),
            count(|losses| losses.events)
                .map(|events| format!("events that were dropped, of which no webhook is told: {events}")),
            count(|losses| losses.log_lines).map(|lines| format!("lines of the access log that were dropped: {lines}")),
        ];
        let told = told.into_iter().flatten();
        told.map(|text| format!("in the last ten minutes, {text}")).collect()
    }
}
