//! What the page says of audits, and of the journal.

use super::*;
use crate::ledger::tests::rig::Rig;

/// Of a gateway to which nothing happens.
pub(in crate::telemetry) fn quiet(audit: Option<AuditGauges>) -> Gauges {
    Gauges {
        ready: true,
        ledger_away: false,
        maintenance: false,
        in_flight: 0,
        body_memory_bytes: 0,
        store_metrics: Rig::embedded().ledger.store_metrics(),
        journal: (0, true),
        journal_reaches_disk: true,
        journal_age_secs: 0,
        breakers: Vec::new(),
        credentials_refused: BTreeMap::new(),
        certificates: Vec::new(),
        models: 1,
        catalogue_age_secs: None,
        reloads: (0, 0),
        refreshes: (0, 0),
        refresh_failed: false,
        reload_refused: false,
        audit,
        below_zero: None,
        lines: (0, 0),
        spans: [0; 3],
        deliveries: DeliveryFigures::default(),
        refunds_short: Credits::ZERO,
        payments: PaymentCounts::default(),
    }
}

/// The samples of the page that are about audits.
fn audits(audit: Option<AuditGauges>) -> Vec<String> {
    let page = page(&Figures::default(), &quiet(audit)).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("tollgate_audit_"));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_age_of_the_last_audit_and_the_time_between_two_are_told_before_one_has_succeeded() {
    let audit = AuditGauges {
        age_secs: 7,
        interval_secs: 300,
        findings: None,
        unchecked: None,
    };
    let before = ["tollgate_audit_age_seconds 7", "tollgate_audit_interval_seconds 300"];
    assert_eq!(audits(Some(audit)), before);
    let findings = Some(2);
    let after = ["tollgate_audit_findings 2"].into_iter().chain(before);
    assert_eq!(
        audits(Some(AuditGauges { findings, ..audit })),
        after.collect::<Vec<&str>>()
    );
    assert_eq!(audits(None), [""; 0], "the books are not audited");
}

#[test]
fn a_journal_is_usable_when_it_can_be_written_and_the_disk_takes_it() {
    for (can_be_written, journal_reaches_disk, usable) in [(true, true, 1), (true, false, 0), (false, true, 0)] {
        let gauges = Gauges {
            journal: (0, can_be_written),
            journal_reaches_disk,
            ..quiet(None)
        };
        let page = page(&Figures::default(), &gauges).unwrap();
        assert!(
            page.contains(&format!("\ntollgate_journal_usable {usable}\n")),
            "{page}"
        );
    }
}
