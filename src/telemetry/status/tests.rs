//! What the state says of audits, errors, losses and the journal.

use std::sync::Arc;

use super::*;
use crate::telemetry::exposition::AuditGauges;
use crate::telemetry::exposition::tests::quiet;
use crate::telemetry::record::{RouteName, UpstreamFault};

fn status(audit: Option<AuditGauges>) -> serde_json::Value {
    status_of(&Figures::default(), &quiet(audit))
}

fn status_of(figures: &Figures, gauges: &Gauges) -> serde_json::Value {
    status_after(&Series::default(), figures, gauges)
}

fn status_after(series: &Series, figures: &Figures, gauges: &Gauges) -> serde_json::Value {
    let process = Process {
        at_ms: 0,
        uptime_ms: 0,
        listen: String::new(),
        currency: "USD".to_owned(),
    };
    let status = Status::of(figures, gauges, process, series);
    serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap()
}

/// The bound of the alert `TollgateBooksNotAudited`.
#[test]
fn audits_that_do_not_succeed_are_an_alarm_after_three_intervals_and_a_quarter_of_an_hour() {
    for (interval_secs, last_quiet_secs) in [(300, 1_800), (86_400, 260_100)] {
        for (findings, says) in [
            (None, "no audit of the books has succeeded since the start, "),
            (Some(0), "the books were audited "),
        ] {
            let alarms = |age_secs| {
                let audit = AuditGauges {
                    age_secs,
                    interval_secs,
                    findings,
                    unchecked: findings,
                };
                status(Some(audit))["alarms"].clone()
            };
            assert_eq!(alarms(last_quiet_secs), serde_json::json!([]), "{interval_secs}");
            let alarm = alarms(last_quiet_secs + 1)[0].as_str().unwrap().to_owned();
            let minutes = format!("{says}{} min ago", last_quiet_secs / 60);
            assert!(alarm.starts_with(&minutes), "{alarm}");
        }
    }
}

#[test]
fn findings_are_an_alarm_beside_that_of_an_audit_that_is_late() {
    let audit = AuditGauges {
        age_secs: 1_801,
        interval_secs: 300,
        findings: Some(2),
        unchecked: Some(0),
    };
    let alarms = status(Some(audit))["alarms"].clone();
    assert_eq!(alarms.as_array().unwrap().len(), 2, "{alarms}");
    assert_eq!(alarms[0], "the books do not balance: 2 findings of the last audit");
}

#[test]
fn a_disk_that_refuses_the_journal_is_an_alarm_and_refuses_no_calls() {
    let gauges = Gauges {
        journal_reaches_disk: false,
        ..quiet(None)
    };
    let told = "the journal cannot be brought to the disk: a machine that dies now loses calls";
    assert_eq!(alarms(&Figures::default(), &gauges, &Losses::default()), [told]);
}

/// The bound of the alert `TollgateCertificateExpires`.
#[test]
fn a_certificate_is_an_alarm_for_its_last_14_days_and_once_it_has_expired() {
    let alarms_at = |secs| {
        let gauges = Gauges {
            certificates: vec![("listen", 365 * 86_400), ("operator_listen", secs)],
            ..quiet(None)
        };
        alarms(&Figures::default(), &gauges, &Losses::default())
    };
    assert_eq!(alarms_at(14 * 86_400), [""; 0]);
    for (secs, says) in [
        (14 * 86_400 - 1, "expires within 14 d: renew it"),
        (0, "expires within 1 d: renew it"),
        (-1, "has expired: clients refuse it"),
    ] {
        assert_eq!(alarms_at(secs), [format!("the certificate of operator_listen {says}")]);
    }
}

/// The bounds of the alerts `TollgateUnsettledDebits`, `TollgateNothingOnSale`, `TollgateCatalogueOld` and `TollgateWebhooksBehind`.
#[test]
fn what_waits_what_is_old_and_what_is_not_on_sale_are_alarms_beyond_the_bounds_of_their_alerts() {
    type Change = fn(&mut Gauges);
    let cases: [(Change, Option<&str>); 8] = [
        (|gauges| gauges.store_metrics.unsettled = 5_000, None),
        (
            |gauges| gauges.store_metrics.unsettled = 5_001,
            Some("5001 debits wait for the ledger's store, the oldest for 0 s"),
        ),
        (|gauges| gauges.models = 1, None),
        (
            |gauges| gauges.models = 0,
            Some("no model is on sale: every call gets 404"),
        ),
        (|gauges| gauges.catalogue_age_secs = Some(45 * 86_400), None),
        (
            |gauges| gauges.catalogue_age_secs = Some(45 * 86_400 + 1),
            Some("the catalogue's prices are 45 d old"),
        ),
        (|gauges| gauges.deliveries.oldest_age_secs = 3_600, None),
        (
            |gauges| gauges.deliveries.oldest_age_secs = 3_601,
            Some("an event has waited for a webhook for 1 h: the log says why"),
        ),
    ];
    for (change, says) in cases {
        let mut gauges = quiet(None);
        change(&mut gauges);
        let told = alarms(&Figures::default(), &gauges, &Losses::default());
        assert_eq!(told, says.into_iter().collect::<Vec<&str>>());
    }
}

#[test]
fn an_answer_that_is_only_doubted_is_no_attempt_that_failed() {
    let mut figures = Figures::default();
    let name = TargetName {
        model: "a/b".into(),
        provider: "p".into(),
    };
    figures.targets.entry(name).or_default();
    for (kind, calls) in [("unknown_service_tier", 3), ("implausible_usage", 5), ("status", 9)] {
        let provider = Arc::from("p");
        figures.faults.insert(UpstreamFault { provider, kind }, calls);
    }
    assert_eq!(status_of(&figures, &quiet(None))["providers"][0]["faults"], 9);
}

/// What the alert `TollgateErrors` counts.
#[test]
fn an_error_is_a_status_from_500_or_none_or_an_answer_that_the_ledger_or_a_provider_that_was_not_busy_ended() {
    for (status, outcome, is_error) in [
        (200, Outcome::Complete, false),
        (200, Outcome::UpstreamFailed, true),
        // The client left before the head, and then the stream died.
        (499, Outcome::UpstreamFailed, true),
        (499, Outcome::ClientGone, false),
        (429, Outcome::UpstreamFailed, false),
        (429, Outcome::Denied, false),
        (502, Outcome::UpstreamFailed, true),
        (503, Outcome::Denied, true),
        (200, Outcome::LedgerFailed, true),
        (499, Outcome::LedgerFailed, true),
        // A panic.
        (0, Outcome::Dropped, true),
        // A stop, no credit, an account that was stopped.
        (200, Outcome::Dropped, false),
    ] {
        let mut figures = Figures::default();
        let name = TargetName {
            model: "a/b".into(),
            provider: "p".into(),
        };
        let target = figures.targets.entry(name).or_default();
        target.requests.push(((RouteName::Chat, status, outcome), 3));
        let told = status_of(&figures, &quiet(None));
        let errors = if is_error { 3 } else { 0 };
        assert_eq!(told["totals"]["errors"], errors, "{status} {outcome:?}");
        assert_eq!(told["targets"][0]["errors"], errors, "{status} {outcome:?}");
    }
}

#[test]
fn the_state_tells_an_audit_that_has_not_succeeded_yet_from_one_that_found_nothing() {
    let ledger = |audit| {
        let ledger = status(audit)["ledger"].clone();
        let of = |name: &str| ledger[name].as_i64();
        ["audit_age_secs", "audit_findings", "audit_unchecked"].map(of)
    };
    let audit = AuditGauges {
        age_secs: 7,
        interval_secs: 300,
        findings: None,
        unchecked: None,
    };
    assert_eq!(ledger(None), [None; 3]);
    assert_eq!(ledger(Some(audit)), [Some(7), None, None]);
    for unchecked in [0, 3] {
        let succeeded = AuditGauges {
            findings: Some(0),
            unchecked: Some(unchecked),
            ..audit
        };
        assert_eq!(
            ledger(Some(succeeded)),
            [Some(7), Some(0), i64::try_from(unchecked).ok()]
        );
    }
}

/// The page took it for a stop.
#[test]
fn the_state_tells_a_ledger_that_changes_hands_from_a_stop() {
    for ledger_away in [false, true] {
        let gauges = Gauges {
            ready: false,
            ledger_away,
            ..quiet(None)
        };
        let told = status_of(&Figures::default(), &gauges);
        assert_eq!(
            (&told["ready"], &told["ledger"]["away"]),
            (&false.into(), &ledger_away.into())
        );
    }
}

/// A loss had a metric, and no alarm.
#[test]
fn each_loss_is_an_alarm() {
    type Lose = fn(&mut TargetFigures);
    let losing = |lose: Lose| {
        let mut figures = Figures::default();
        for model in ["a/b", "a/c"] {
            let name = TargetName {
                model: model.into(),
                provider: "p".into(),
            };
            lose(figures.targets.entry(name).or_default());
        }
        status_of(&figures, &quiet(None))["alarms"].clone()
    };
    let losses: [(Lose, &str); 5] = [
        (
            |target| target.lost_pico = 1,
            "0.000000000002 credits that nobody was billed for",
        ),
        (
            |target| target.discarded_pico = 250_000_000_000,
            "may charge 0.5 credits",
        ),
        (|target| target.beyond_sides = 93, "which nobody was billed for: 186"),
        (|target| target.reports_rejected = 2, "tokens were counted: 4"),
        (|target| target.raised = [7, 1, 2], "could not be raised: 6;"),
    ];
    for (lose, says) in losses {
        let alarms = losing(lose);
        assert_eq!(alarms.as_array().unwrap().len(), 1, "{alarms}");
        assert!(alarms[0].as_str().unwrap().contains(says), "{alarms}");
    }
    assert_eq!(losing(|target| target.raised = [7, 0, 0]), serde_json::json!([]));

    let mut figures = Figures::default();
    for (kind, calls) in [("unknown_service_tier", 3), ("status", 9)] {
        let provider = Arc::from("p");
        figures.faults.insert(UpstreamFault { provider, kind }, calls);
    }
    let mut gauges = quiet(None);
    gauges.deliveries.dropped = Some((4, 4));
    assert_eq!(
        status_of(&figures, &gauges)["alarms"],
        serde_json::json!([
            "in the last ten minutes, calls that a tier without prices served: 3",
            "in the last ten minutes, events that were dropped, of which no webhook is told: 4",
        ])
    );
}

/// The page said that there was no alarm.
#[test]
fn what_is_lost_of_payments_and_of_the_access_log_is_an_alarm_too() {
    type Lose = fn(&mut Gauges);
    let losses: [(Lose, &str); 5] = [
        (
            |gauges| gauges.refunds_short = Credits::from_pico(250_000_000_000),
            "refunds were 0.25 credits more than their accounts had left",
        ),
        (
            |gauges| gauges.payments.unassigned = 2,
            "messages of payments that were credited to nobody: 2",
        ),
        (
            |gauges| gauges.payments.refunds_unassigned = 3,
            "messages of refunds for which nothing was taken: 3",
        ),
        (
            |gauges| gauges.payments.disputes = 1,
            "messages of payments that are disputed: 1",
        ),
        (
            |gauges| gauges.lines = (9, 4),
            "lines of the access log that were dropped: 4",
        ),
    ];
    let figures = Figures::default();
    for (lose, says) in losses {
        let mut gauges = quiet(None);
        lose(&mut gauges);
        let mut series = Series::default();
        for _ in 0..SAMPLES_MAX {
            let told = status_after(&series, &figures, &gauges)["alarms"].clone();
            assert_eq!(told, serde_json::json!([format!("in the last ten minutes, {says}")]));
            series.push(Sample::of(&figures, &gauges, 0));
        }
        assert_eq!(
            status_after(&series, &figures, &gauges)["alarms"],
            serde_json::json!([]),
            "{says}"
        );
    }
}

#[test]
fn a_loss_is_told_for_ten_minutes() {
    let (mut gauges, figures) = (quiet(None), Figures::default());
    let mut series = Series::default();
    gauges.deliveries.dropped = Some((3, 0));
    let is_told =
        |series: &Series, gauges: &Gauges| status_after(series, &figures, gauges)["alarms"] != serde_json::json!([]);
    assert!(
        !is_told(&series, &gauges),
        "they were dropped before this process began"
    );
    gauges.deliveries.dropped = Some((4, 1));
    for _ in 0..SAMPLES_MAX {
        assert!(is_told(&series, &gauges));
        series.push(Sample::of(&figures, &gauges, 0));
    }
    assert!(!is_told(&series, &gauges));
    gauges.deliveries.dropped = Some((5, 2));
    assert!(is_told(&series, &gauges));
}
