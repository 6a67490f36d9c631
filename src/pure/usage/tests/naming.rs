//! Figures that stand elsewhere than usual, and those that the request says.

use super::*;

/// As SGLang reports: `reasoning_tokens` beside the sides.
#[test]
fn reasoning_beside_the_sides_is_what_the_details_would_say() {
    let kinds = |report: Report| {
        let mut reports = Reports::within(Some(100));
        reports.add(report);
        let usage = reports.usage().unwrap();
        (usage.completion.0, reports.kinds(usage).reasoning)
    };
    let report = |completion, total, beside| Report {
        reasoning: Figure::Absent,
        reasoning_beside: Figure::Tokens(beside),
        ..tokens(completion, total, 0)
    };
    assert_eq!(kinds(report(10, 19, 7)), (10, 7));
    assert_eq!(kinds(report(10, 19, 10)), (10, 10));
    assert_eq!(kinds(report(10, 49, 30)), (40, 30), "the rest of the total");
    assert_eq!(kinds(report(10, 19, 30)), (10, 0), "neither of the two");
    let named = Report {
        reasoning: Figure::Tokens(3),
        ..report(10, 19, 7)
    };
    assert_eq!(kinds(named), (10, 3));
}

/// A request may ask for writes that last an hour of a provider that says only how much was written: OpenRouter. They were billed as others.
#[test]
fn writes_of_which_no_report_says_how_long_they_last_last_as_was_asked() {
    let written = |hour_writes, reports: &[Report]| {
        let naming = Naming {
            hour_writes,
            ..Naming::default()
        };
        let mut all = Reports::within(Some(100)).naming(naming);
        for report in reports {
            all.add(*report);
        }
        let kinds = all.kinds(all.usage().unwrap());
        (kinds.cache_write, kinds.cache_write_1h)
    };
    let report = Report {
        cache_write: Figure::Tokens(8),
        ..tokens(10, 19, 0)
    };
    let parts = Report {
        buckets: Buckets {
            write_5m: Figure::Tokens(5),
            write_1h: Figure::Tokens(3),
            ..Buckets::default()
        },
        ..report
    };
    assert_eq!(written(true, &[report]), (0, 8));
    assert_eq!(written(false, &[report]), (8, 0));
    for reports in [&[parts][..], &[report, parts], &[parts, report]] {
        assert_eq!(written(true, reports), (5, 3));
    }
    assert_eq!(written(true, &[tokens(10, 19, 0)]), (0, 0));
}
