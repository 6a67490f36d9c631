//! The part of the page that is about money: what was billed and what was not, and the state of the books.

use super::*;
use crate::telemetry::record::Raised;

impl Page {
    /// What was billed, and what was not.
    pub(super) fn money(&mut self, figures: &Figures) {
        let (mut tokens, mut credits, mut debits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut overruns, mut over) = (Vec::new(), Vec::new());
        let (mut rejected, mut beyond) = (Vec::new(), Vec::new());
        let (mut discarded, mut discarded_credits) = (Vec::new(), Vec::new());
        let (mut lost, mut lost_credits, mut cuts) = (Vec::new(), Vec::new(), Vec::new());
        let mut raised = Vec::new();
        for (name, target) in sorted(figures)
            .into_iter()
            .filter(|(name, _)| !name.provider.is_empty())
        {
            tokens.extend(by_side(name, target.prompt_tokens, target.completion_tokens));
            credits.push(counter(&of(name), amount(target.cost_pico)));
            debits.push(counter(&of(name), number(target.debits)));
            discarded.push(counter(&of(name), number(target.discarded)));
            discarded_credits.push(counter(&of(name), amount(target.discarded_pico)));
            overruns.push(counter(&of(name), number(target.overruns)));
            over.push(counter(&of(name), amount(target.overrun_pico)));
            rejected.push(counter(&of(name), number(target.reports_rejected)));
            beyond.push(counter(&of(name), number(target.beyond_sides)));
            lost.extend(by_side(name, target.lost_prompt_tokens, target.lost_completion_tokens));
            lost_credits.push(counter(&of(name), amount(target.lost_pico)));
            cuts.push(counter(&of(name), number(target.cuts)));
            raised.extend(by_result(name, &target.raised));
        }
        self.counters("tollgate_tokens_total", "Tokens that were billed.", tokens);
        self.counters("tollgate_debited_credits_total", "What was debited for them.", credits);
        self.counters("tollgate_debits_total", "Calls that were billed.", debits);
        let help = "Answers that broke off before anything of them was passed on: not billed, the operator's loss.";
        self.counters("tollgate_discarded_answers_total", help, discarded);
        let help = "Their tokens at the models' list prices, with the markup, without kinds and tiers.";
        self.counters("tollgate_discarded_credits_total", help, discarded_credits);
        self.counters(
            "tollgate_overruns_total",
            "Debits above what was held for the call.",
            overruns,
        );
        self.counters(
            "tollgate_overrun_credits_total",
            "By how much they were above it.",
            over,
        );
        let help = "Usage reports of providers that cannot be, and were not believed.";
        self.counters("tollgate_usage_reports_rejected_total", help, rejected);
        let help = "Tokens that reported totals had beyond prompt and completion: not billed.";
        self.counters("tollgate_usage_tokens_beyond_sides_total", help, beyond);
        let help =
            "Tokens that providers delivered or reported beyond what was admitted: not billed, the operator's loss.";
        self.counters("tollgate_unbilled_tokens_total", help, lost);
        let help = "What they would have cost the accounts.";
        self.counters("tollgate_unbilled_credits_total", help, lost_credits);
        let help = "Charges that were cut to what was held: a provider reported kinds, or served a tier, that were not asked for, or said (cost_from: usage) that the call cost more.";
        self.counters("tollgate_charges_cut_total", help, cuts);
        let help = "Answers above the catalogue's maximum, whose holds paid for them or were to be raised, by what became of that.";
        self.counters("tollgate_hold_extensions_total", help, raised);
    }

    /// What is held and not yet acknowledged, and whether the books balance.
    pub(super) fn books(&mut self, gauges: &Gauges) {
        let store_metrics = &gauges.store_metrics;
        self.gauge(
            "tollgate_holds_open",
            "Holds of running calls.",
            number(store_metrics.holds_open),
        );
        let held = amount(i128::from(store_metrics.held.pico()));
        self.gauge("tollgate_held_credits", "What they hold.", held);
        let help = "Debits that the ledger's store has not acknowledged, or that its disk refuses.";
        self.gauge("tollgate_unsettled_debits", help, number(store_metrics.unsettled));
        let help = "How long the oldest of them has waited.";
        self.gauge(
            "tollgate_settlement_lag_seconds",
            help,
            store_metrics.unsettled_age.as_secs_f64(),
        );
        let (depth, usable) = gauges.journal;
        let help = "Calls and debits that stand in the journal: running, or not acknowledged by the ledger's store.";
        self.gauge("tollgate_journal_depth", help, size(depth));
        let help = "How long ago the oldest of them came.";
        self.gauge("tollgate_journal_age_seconds", help, signed(gauges.journal_age_secs));
        let help =
            "1 while the journal can be written, without which paid calls are refused, and be brought to the disk.";
        self.gauge(
            "tollgate_journal_usable",
            help,
            flag(usable && gauges.journal_reaches_disk),
        );
        if let Some(accounts) = store_metrics.below_zero.or(gauges.below_zero) {
            let help = "Accounts whose balance is below zero.";
            self.gauge("tollgate_accounts_below_zero", help, number(accounts));
        }
        let help = "What could not be taken for refunds, since it was spent: the operator's loss. Not of a refund whose posting was not confirmed: the log names each.";
        let short = amount(i128::from(gauges.refunds_short.pico()));
        self.counters("tollgate_refunds_short_credits_total", help, vec![counter(&[], short)]);
        let PaymentCounts {
            unassigned,
            disputes,
            refunds_unassigned,
        } = gauges.payments;
        let help =
            "Messages of payments elsewhere that were credited to nobody: they name no account, or were refused.";
        let unassigned = vec![counter(&[], number(unassigned))];
        self.counters("tollgate_payments_unassigned_total", help, unassigned);
        let help = "Messages of refunds of payments that were not credited, or not yet: nothing was taken, and they come again.";
        let refunds = vec![counter(&[], number(refunds_unassigned))];
        self.counters("tollgate_refunds_unassigned_total", help, refunds);
        let help =
            "Messages that payments elsewhere are disputed, each time that one comes: nothing was taken for them.";
        self.counters("tollgate_disputes_total", help, vec![counter(&[], number(disputes))]);
        if let Some(audit) = gauges.audit {
            if let Some(findings) = audit.findings {
                let help = "What the last audit of the books found: 0 when they balance.";
                self.gauge("tollgate_audit_findings", help, number(findings));
            }
            let help = "Since the last audit that succeeded, or since the start where none has.";
            self.gauge("tollgate_audit_age_seconds", help, signed(audit.age_secs));
            let help = "From one audit to the next.";
            self.gauge("tollgate_audit_interval_seconds", help, signed(audit.interval_secs));
        }
    }
}

/// The tokens of both sides at a target.
fn by_side(name: &TargetName, prompt: u64, completion: u64) -> [Metric; 2] {
    let [model, provider] = of(name);
    [("prompt", prompt), ("completion", completion)]
        .map(|(side, count)| counter(&[model, provider, ("type", side)], number(count)))
}

/// The holds at a target that were to be raised.
fn by_result<'a>(name: &'a TargetName, raised: &'a [u64; Raised::COUNT]) -> impl Iterator<Item = Metric> + use<'a> {
    let [model, provider] = of(name);
    let results = Raised::NAMES.iter().zip(raised);
    results.map(move |(result, count)| counter(&[model, provider, ("result", *result)], number(*count)))
}
