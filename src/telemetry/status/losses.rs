//! What was lost: to the operator, who pays it while no customer does, or of what should have been told.

use super::super::counters::{Figures, TargetFigures};
use super::super::exposition::Gauges;
use super::super::labels::UNKNOWN_TIER;
use crate::pure::credit_sum::CreditSum;

/// Sums since the start. Amounts are in 10⁻¹² credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    unbilled: i128,
    discarded: i128,
    beyond: u64,
    tiers: u64,
    not_raised: u64,
    dropped: u64,
}

impl Losses {
    pub(super) fn of(figures: &Figures, gauges: &Gauges) -> Losses {
        let targets = || figures.targets.values();
        let count = |of: fn(&TargetFigures) -> u64| targets().map(of).fold(0, u64::saturating_add);
        let amount = |of: fn(&TargetFigures) -> i128| targets().map(of).fold(0, i128::saturating_add);
        let tiers = figures.faults.iter().filter(|(fault, _)| fault.kind == UNKNOWN_TIER);
        Losses {
            unbilled: amount(|target| target.lost_pico),
            discarded: amount(|target| target.discarded_pico),
            beyond: count(|target| target.beyond_sides),
            tiers: tiers.map(|(_, calls)| *calls).fold(0, u64::saturating_add),
            not_raised: count(|target| {
                let [_granted, refused, failed] = target.raised;
                refused.saturating_add(failed)
            }),
            // What an earlier process saw dropped is no news.
            dropped: gauges.deliveries.dropped.map_or(0, |(_, since)| since),
        }
    }

    /// A sentence for each that there was more of than `before`.
    pub(super) fn alarms(&self, before: &Losses) -> Vec<String> {
        let unbilled = self.unbilled.saturating_sub(before.unbilled);
        let discarded = self.discarded.saturating_sub(before.discarded);
        let beyond = self.beyond.saturating_sub(before.beyond);
        let tiers = self.tiers.saturating_sub(before.tiers);
        let not_raised = self.not_raised.saturating_sub(before.not_raised);
        let dropped = self.dropped.saturating_sub(before.dropped);
        let told = [
            (
                unbilled > 0,
                format!(
                    "providers went beyond what was held: {} credits that nobody was billed for",
                    CreditSum::from_pico(unbilled)
                ),
            ),
            (
                discarded > 0,
                format!(
                    "answers broke off: their providers may charge {} credits",
                    CreditSum::from_pico(discarded)
                ),
            ),
            (
                beyond > 0,
                format!("tokens that only totals have, which nobody was billed for: {beyond}"),
            ),
            (tiers > 0, format!("calls that a tier without prices served: {tiers}")),
            (
                not_raised > 0,
                format!("holds that could not be raised: {not_raised}; a maximum of the catalogue is too low"),
            ),
            (
                dropped > 0,
                format!("events that were dropped, of which no webhook is told: {dropped}"),
            ),
        ];
        told.into_iter()
            .filter_map(|(is_so, text)| is_so.then(|| format!("in the last ten minutes, {text}")))
            .collect()
    }
}
