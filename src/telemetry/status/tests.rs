//! What the state says of audits.

use super::*;
use crate::telemetry::exposition::AuditGauges;
use crate::telemetry::exposition::tests::quiet;

fn status(audit: Option<AuditGauges>) -> serde_json::Value {
    let process = Process {
        at_ms: 0,
        uptime_ms: 0,
        listen: String::new(),
        currency: "USD".to_owned(),
    };
    let status = Status::of(&Figures::default(), &quiet(audit), process, &Series::default());
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
    };
    let alarms = status(Some(audit))["alarms"].clone();
    assert_eq!(alarms.as_array().unwrap().len(), 2, "{alarms}");
    assert_eq!(alarms[0], "the books do not balance: 2 findings of the last audit");
}

#[test]
fn the_state_tells_an_audit_that_has_not_succeeded_yet_from_one_that_found_nothing() {
    let ledger = |audit| {
        let ledger = status(audit)["ledger"].clone();
        [ledger["audit_age_secs"].clone(), ledger["audit_findings"].clone()]
    };
    let audit = AuditGauges {
        age_secs: 7,
        interval_secs: 300,
        findings: None,
    };
    let findings = Some(0);
    assert_eq!(ledger(None), [serde_json::json!(null), serde_json::json!(null)]);
    assert_eq!(ledger(Some(audit)), [serde_json::json!(7), serde_json::json!(null)]);
    assert_eq!(
        ledger(Some(AuditGauges { findings, ..audit })),
        [serde_json::json!(7), serde_json::json!(0)]
    );
}
