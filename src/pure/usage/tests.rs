//! The reader of usage figures, case by case.

use super::*;

fn report(prompt: &str, completion: &str, total: &str) -> Reports {
    let mut reports = Reports::default();
    reports.add(Report {
        prompt: Figure::from_json(prompt.as_bytes()),
        completion: Figure::from_json(completion.as_bytes()),
        total: Figure::from_json(total.as_bytes()),
    });
    reports
}

#[track_caller]
fn check(prompt: &str, completion: &str, total: &str, expected: Option<(u64, u64)>, rejected: u64) {
    let reports = report(prompt, completion, total);
    assert_eq!(
        reports.usage().map(|usage| (usage.prompt.0, usage.completion.0)),
        expected
    );
    assert_eq!(reports.rejected(), rejected);
}

#[test]
fn both_sides() {
    check("9", "12", "21", Some((9, 12)), 0);
    check("9", "12", "null", Some((9, 12)), 0);
}

#[test]
fn an_explicit_zero_is_a_report() {
    check("0", "0", "0", Some((0, 0)), 0);
    check("9", "0", "9", Some((9, 0)), 0);
}

#[test]
fn the_total_yields_a_missing_side_and_nothing_else() {
    check("9", "null", "21", Some((9, 12)), 0);
    check("null", "12", "21", Some((9, 12)), 0);
    check("9", "null", "null", None, 0);
    check("null", "null", "21", None, 0);
    check("9", "null", "8", None, 0);
    check("9", "12", "999", Some((9, 12)), 0);
}

#[test]
fn what_is_no_count_of_tokens_is_rejected() {
    for bad in [
        "-1",
        "1.5",
        "1.0",
        "1e3",
        "007",
        "99999999999999999999999",
        "4294967297",
        "true",
        "",
        "\"5\"",
        "+5",
    ] {
        check(bad, "12", "21", None, 1);
        check("9", bad, "21", None, 1);
        check("null", "null", bad, None, 1);
    }
    check("4294967296", "12", "-1", Some((4_294_967_296, 12)), 0);
}

#[test]
fn reports_are_cumulative_so_the_highest_of_each_side_stands() {
    let mut reports = Reports::default();
    for (prompt, completion) in [(9, 1), (9, 7), (8, 3), (9, 0)] {
        reports.add(Report {
            prompt: Figure::Tokens(prompt),
            completion: Figure::Tokens(completion),
            total: Figure::Absent,
        });
    }
    assert_eq!(
        reports.usage(),
        Some(Usage {
            prompt: PromptTokens(9),
            completion: CompletionTokens(7)
        })
    );
    reports.add(Report {
        prompt: Figure::Tokens(100),
        completion: Figure::Unbelievable,
        total: Figure::Absent,
    });
    assert_eq!(
        reports.prompt(),
        Some(PromptTokens(9)),
        "half of a rejected report is not believed either"
    );
    assert_eq!(reports.rejected(), 1);
}

#[test]
fn an_embedding_has_no_completion() {
    assert_eq!(
        report("8", "null", "null")
            .usage_without_completion()
            .map(|u| (u.prompt.0, u.completion.0)),
        Some((8, 0))
    );
    assert_eq!(
        report("null", "null", "8")
            .usage_without_completion()
            .map(|u| (u.prompt.0, u.completion.0)),
        Some((8, 0))
    );
    assert_eq!(report("null", "null", "null").usage_without_completion(), None);
}
