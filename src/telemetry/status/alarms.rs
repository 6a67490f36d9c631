//! What somebody should look at now.

use super::super::counters::Figures;
use super::super::exposition::{AuditGauges, Gauges};
use super::losses::Losses;
use super::{
    AUDIT_GRACE_SECS, AUDIT_INTERVALS_MAX, CATALOGUE_SECS_MAX, CERTIFICATE_SECS_MIN, EVENT_SECS_MAX, JOURNAL_SECS_MAX,
    LAG_SECS_MAX, UNSETTLED_MAX,
};

/// What somebody should look at: the same rules as the alerts in conf/prometheus/alerts.yaml, as far as one moment shows them, and what was
/// lost since `before`.
pub(super) fn alarms(figures: &Figures, gauges: &Gauges, before: &Losses) -> Vec<String> {
    let mut alarms = Vec::new();
    let store_metrics = &gauges.store_metrics;
    if !gauges.journal.1 {
        alarms.push("the journal cannot be written: paid calls are refused".to_owned());
    }
    if !gauges.journal_reaches_disk {
        alarms.push("the journal cannot be brought to the disk: a machine that dies now loses calls".to_owned());
    }
    if gauges.journal_age_secs > JOURNAL_SECS_MAX {
        let hours = gauges.journal_age_secs / 3_600;
        alarms.push(format!(
            "a call has stood in the journal for {hours} h: it is stuck, or nobody takes its debit"
        ));
    }
    if let Some(audit) = &gauges.audit {
        alarms.extend(of_audits(audit));
    }
    let (count, secs) = (store_metrics.unsettled, store_metrics.unsettled_age.as_secs());
    if secs >= LAG_SECS_MAX || count > UNSETTLED_MAX {
        alarms.push(format!(
            "{count} debits wait for the ledger's store, the oldest for {secs} s"
        ));
    }
    if let Some(accounts) = store_metrics
        .below_zero
        .or(gauges.below_zero)
        .filter(|accounts| *accounts > 0)
    {
        alarms.push(format!("accounts below zero: {accounts}"));
    }
    let overruns = figures
        .targets
        .values()
        .fold(0u64, |sum, target| sum.saturating_add(target.overruns));
    if overruns > 0 {
        alarms.push(format!("debits above what was held since the start: {overruns}"));
    }
    alarms.extend(of_catalogue(gauges));
    if gauges.reload_refused {
        alarms.push("the files on disk have a mistake; an older state is in force".to_owned());
    }
    let certificates = gauges.certificates.iter();
    alarms.extend(certificates.filter_map(|(listener, secs)| of_certificate(listener, *secs)));
    if gauges.maintenance {
        alarms.push("maintenance: calls are refused".to_owned());
    }
    for ((provider, model), _) in gauges.credentials_refused.iter().filter(|(_, refused)| **refused) {
        alarms.push(format!("{provider} refuses the gateway's own credential for {model}"));
    }
    for (provider, model, _) in gauges.breakers.iter().filter(|(_, _, open)| *open) {
        alarms.push(format!("{provider} fails: {model} is passed over"));
    }
    if gauges.deliveries.oldest_age_secs > EVENT_SECS_MAX {
        let hours = gauges.deliveries.oldest_age_secs / 3_600;
        alarms.push(format!(
            "an event has waited for a webhook for {hours} h: the log says why"
        ));
    }
    alarms.extend(Losses::of(figures, gauges).alarms(before));
    alarms
}

/// What is on sale, and how old its prices are.
fn of_catalogue(gauges: &Gauges) -> Vec<String> {
    let mut alarms = Vec::new();
    if gauges.models == 0 {
        alarms.push("no model is on sale: every call gets 404".to_owned());
    }
    if let Some(secs) = gauges.catalogue_age_secs.filter(|secs| *secs > CATALOGUE_SECS_MAX) {
        alarms.push(format!("the catalogue's prices are {} d old", secs / 86_400));
    }
    if gauges.refresh_failed {
        alarms.push("the last refresh of the catalogue failed; the old prices stay".to_owned());
    }
    alarms
}

/// That the certificate of a listener has expired, or will in so many seconds.
fn of_certificate(listener: &str, secs: i64) -> Option<String> {
    if secs < 0 {
        return Some(format!("the certificate of {listener} has expired: clients refuse it"));
    }
    let days = (secs / 86_400).saturating_add(1);
    (secs < CERTIFICATE_SECS_MIN).then(|| format!("the certificate of {listener} expires within {days} d: renew it"))
}

/// What the last audit found, and that it is too long ago.
fn of_audits(audit: &AuditGauges) -> Vec<String> {
    let mut alarms = Vec::new();
    if let Some(findings) = audit.findings.filter(|findings| *findings > 0) {
        alarms.push(format!(
            "the books do not balance: {findings} findings of the last audit"
        ));
    }
    let intervals = audit.interval_secs.saturating_mul(AUDIT_INTERVALS_MAX);
    if audit.age_secs > intervals.saturating_add(AUDIT_GRACE_SECS) {
        let minutes = audit.age_secs / 60;
        alarms.push(match audit.findings {
            Some(_) => format!("the books were audited {minutes} min ago, and not since: the log says why"),
            None => format!("no audit of the books has succeeded since the start, {minutes} min ago: the log says why"),
        });
    }
    alarms
}
