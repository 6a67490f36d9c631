//! What the report keeps, and when a run has not ended well.

use std::fs;

use clap::Parser;
use serde_json::Value;

use crate::{
    cli::Options,
    disturbance::{Repeats, Turn},
    machine::{Cores, Machine},
    report::Report,
};

fn report() -> Report {
    let options = Options::try_parse_from(["load"]).unwrap();
    Report::new(&options, Machine::look(&Cores::default()))
}

/// What it writes: the text, and the figures.
fn written(report: &mut Report) -> (String, Value) {
    let place = tempfile::tempdir().unwrap();
    let text = report.write(place.path()).unwrap();
    let json = fs::read(place.path().join("load.json")).unwrap();
    (text, serde_json::from_slice(&json).unwrap())
}

#[test]
fn what_failed_is_told_and_the_run_does_not_end_well() {
    let mut report = report();
    report.note("a limit of the machine".to_owned());
    assert!(report.faults(true).is_empty());
    report.fail("the audit of embedded: one account".to_owned());
    assert_eq!(report.faults(false).len(), 1);
    let (text, json) = written(&mut report);
    let line = "FAILED: the audit of embedded: one account";
    assert!(text.lines().any(|told| told == line), "{text}");
    assert_eq!(json["failures"][0], line);
    assert_eq!(json["notes"][0], "a limit of the machine");
}

#[test]
fn a_program_that_is_missing_fails_all_but_a_quick_run() {
    let mut report = report();
    report.not_tried(true, "system calls", "strace");
    assert!(report.faults(true).is_empty());
    let (text, _) = written(&mut report);
    // tests/run looks for the beginning.
    assert!(text.contains("\nnot tried on this machine: system calls: strace is not installed\n"));
    report.not_tried(false, "system calls", "strace");
    assert_eq!(report.faults(true).len(), 1);
}

#[test]
fn a_subject_that_was_named_must_have_been_measured() {
    let mut report = report();
    report.left_out.push("redis left out: it is not there".to_owned());
    assert!(report.faults(false).is_empty());
    let faults = report.faults(true);
    assert!(
        faults.len() == 1 && faults[0].ends_with(": redis left out: it is not there"),
        "{faults:?}"
    );
    assert_eq!(report.rows(), 0);
}

#[test]
fn rounds_that_were_measured_again_leave_a_trace() {
    let mut report = report();
    let mut repeats = Repeats::default();
    let turn = |subject: &str, reasons: &[&'static str]| Turn {
        subject: subject.to_owned(),
        reasons: reasons.to_vec(),
    };
    let disturbed = [turn("embedded", &[]), turn("redis", &["steal"])];
    assert!(repeats.again(&disturbed, 1, 30));
    assert!(!repeats.again(&[turn("embedded", &[]), turn("redis", &[])], 2, 30));
    let of = |text: &str| text.to_owned();
    report.repeats.push((of("whole"), of("saturated"), repeats));
    let (_, json) = written(&mut report);
    let kept = &json["repeats"][0][2];
    assert_eq!((kept["rounds"].as_u64(), kept["repeated"].as_u64()), (Some(1), Some(1)));
    assert_eq!(kept["by_subject"], serde_json::json!({"redis": {"steal": 1}}));
}
