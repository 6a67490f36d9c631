//! The reader of usage figures, case by case.

use super::*;

mod naming;

fn report(prompt: &str, completion: &str, total: &str) -> Reports {
    let mut reports = Reports::default();
    reports.add(Report {
        prompt: Figure::from_json(prompt.as_bytes()),
        completion: Figure::from_json(completion.as_bytes()),
        total: Figure::from_json(total.as_bytes()),
        ..Report::default()
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

/// Where the text of its answer is counted, the prompt has to be too.
#[test]
fn a_prompt_of_zero_beside_a_completion_of_zero_is_not_known() {
    for (prompt, completion, is_nothing, known) in [
        ("0", "0", true, None),
        ("0", "5", false, Some(0)),
        ("0", "null", true, None),
        ("9", "0", false, Some(9)),
        ("null", "0", false, None),
    ] {
        let reports = report(prompt, completion, "null");
        assert_eq!(reports.is_nothing(), is_nothing, "{prompt}/{completion}");
        assert_eq!(reports.prompt().map(|prompt| prompt.0), known, "{prompt}/{completion}");
    }
    let costs = |cost| {
        let mut reports = report("0", "0", "0");
        reports.add(Report {
            cost: Some(cost),
            ..Report::default()
        });
        !reports.is_nothing()
    };
    assert!(costs(Decimal::ONE) && !costs(Decimal::ZERO));
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
            ..Report::default()
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
        ..Report::default()
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

fn tokens(completion: u64, total: u64, reasoning: u64) -> Report {
    Report {
        prompt: Figure::Tokens(9),
        completion: Figure::Tokens(completion),
        total: Figure::Tokens(total),
        reasoning: Figure::Tokens(reasoning),
        ..Report::default()
    }
}

#[track_caller]
fn check_within(max: u64, report: Report, completion: Option<u64>) {
    let mut reports = Reports::within(Some(max));
    assert_eq!(reports.add(report), completion.is_some());
    assert_eq!(reports.completion().map(|tokens| tokens.0), completion);
    assert_eq!(reports.is_implausible(), completion.is_none());
    assert_eq!(reports.rejected(), u64::from(completion.is_none()));
}

#[test]
fn a_completion_beyond_the_maximum_is_not_believed() {
    check_within(10, tokens(10, 19, 0), Some(10));
    check_within(10, tokens(11, 20, 0), None);
    check_within(10, tokens(4_000_000_000, 4_000_000_009, 0), None);
    // The total alone names the completion.
    check_within(
        10,
        Report {
            prompt: Figure::Tokens(9),
            total: Figure::Tokens(5_000),
            ..Report::default()
        },
        None,
    );
    let mut reports = Reports::within(Some(10));
    reports.add(tokens(11, 20, 0));
    reports.add(tokens(7, 16, 0));
    assert_eq!(
        reports.completion(),
        Some(CompletionTokens(7)),
        "one that is not believed hides no other"
    );
    reports.extend(20);
    reports.add(tokens(11, 20, 0));
    assert_eq!(reports.completion(), Some(CompletionTokens(11)));
}

#[test]
fn reasoning_that_stands_beside_the_completion_joins_it() {
    check_within(100, tokens(10, 49, 30), Some(40));
    check_within(100, tokens(40, 49, 30), Some(40));
    check_within(39, tokens(10, 49, 30), None);
    check_within(100, tokens(10, 19, 30), None);
}

/// As Google's OpenAI-compatible address reports: with each event, and without a figure of reasoning.
#[test]
fn reasoning_that_only_the_total_has_joins_the_completion_where_the_provider_reports_so() {
    let report = |completion, total| Report {
        reasoning: Figure::Absent,
        ..tokens(completion, total, 0)
    };
    let read = |from, max, all: &[Report]| {
        let mut reports = Reports::within(Some(max)).naming(Naming {
            completion_from: from,
            ..Naming::default()
        });
        for report in all {
            reports.add(*report);
        }
        let usage = reports.usage().map(|usage| (usage.prompt.0, usage.completion.0));
        let reasoning = reports.usage().map_or(0, |usage| reports.kinds(usage).reasoning);
        (usage, reasoning, reports.beyond_sides(), reports.rejected())
    };
    let stream = [report(1, 103), report(3, 105), report(3, 109)];
    let by_total = |max, all: &[Report]| read(CompletionFrom::Total, max, all);
    assert_eq!(by_total(100, &stream), (Some((9, 100)), 97, 0, 0));
    assert_eq!(
        by_total(99, &stream),
        (Some((9, 96)), 93, 0, 1),
        "beyond what was admitted"
    );
    assert_eq!(by_total(100, &[report(10, 19)]), (Some((9, 10)), 0, 0, 0));
    assert_eq!(
        by_total(100, &[report(10, 12)]),
        (Some((9, 10)), 0, 0, 0),
        "a total below its sides"
    );
    // Reasoning that has a figure is where that says.
    assert_eq!(by_total(100, &[tokens(10, 49, 30)]), (Some((9, 40)), 30, 0, 0));
    assert_eq!(by_total(100, &[tokens(40, 49, 30)]), (Some((9, 40)), 30, 0, 0));
    assert_eq!(by_total(100, &[tokens(10, 49, 5)]), (Some((9, 10)), 5, 30, 0));
    assert_eq!(by_total(100, &[tokens(10, 49, 0)]), (Some((9, 40)), 30, 0, 0));
    let unbelievable = Report {
        reasoning: Figure::Unbelievable,
        ..tokens(10, 49, 0)
    };
    assert_eq!(by_total(100, &[unbelievable]), (None, 0, 0, 1));
    // Elsewhere nobody is charged for it, and that can be seen.
    let usual = |all: &[Report]| read(CompletionFrom::Report, 100, all);
    assert_eq!(usual(&stream), (Some((9, 3)), 0, 97, 0));
    assert_eq!(usual(&[tokens(10, 49, 30)]), (Some((9, 40)), 30, 0, 0));
    assert_eq!(usual(&[report(10, 19)]), (Some((9, 10)), 0, 0, 0));
}

#[test]
fn details_fit_in_their_totals_or_the_report_is_not_believed() {
    let completion = Report {
        completion_detail: Figure::Tokens(11),
        ..tokens(10, 19, 0)
    };
    check_within(100, completion, None);
    for audio in [Figure::Tokens(10), Figure::Unbelievable] {
        let mut reports = Reports::within(Some(100));
        assert!(!reports.add(Report {
            audio,
            ..tokens(10, 19, 0)
        }));
        assert_eq!((reports.usage(), reports.rejected()), (None, 1));
        assert!(!reports.is_implausible(), "the completion is none of it");
    }
    let mut reports = Reports::within(Some(100));
    assert!(reports.add(Report {
        audio: Figure::Tokens(9),
        completion_detail: Figure::Tokens(10),
        ..tokens(10, 19, 10)
    }));
}

#[test]
fn a_report_that_text_followed_is_believed_as_far_as_it_can_be() {
    let behind = |completion, delivered, after| {
        let mut reports = Reports::default();
        reports.add(tokens(completion, completion + 9, 0));
        let usage = reports.usage_behind(CompletionTokens(delivered), after);
        usage.map(|usage| usage.completion.0)
    };
    assert_eq!(behind(0, 5, 0), Some(0), "an explicit zero at the end is a report");
    assert_eq!(behind(0, 503, 503), None);
    assert_eq!(behind(1, 504, 503), None);
    assert_eq!(behind(6, 7, 1), Some(7));
    assert_eq!(behind(500, 60, 20), Some(500), "hidden reasoning");
}

#[test]
fn the_kinds_of_a_report_are_those_that_fit_in_its_sides() {
    let report = |cache_read: u64, cache_write: u64, reasoning: u64| Report {
        prompt: Figure::Tokens(100),
        completion: Figure::Tokens(50),
        cache_read: Figure::Tokens(cache_read),
        cache_write: Figure::Tokens(cache_write),
        reasoning: Figure::Tokens(reasoning),
        ..Report::default()
    };
    let kinds = |reports: &[Report]| {
        let mut all = Reports::default();
        for report in reports {
            all.add(*report);
        }
        let kinds = all.kinds(all.usage().unwrap_or_default());
        (kinds.cache_read, kinds.cache_write, kinds.reasoning)
    };
    assert_eq!(kinds(&[report(60, 40, 50)]), (60, 40, 50));
    assert_eq!(
        kinds(&[report(60, 41, 50)]),
        (0, 0, 50),
        "more kinds than tokens: of no kind"
    );
    assert_eq!(
        kinds(&[report(101, 0, 0)]),
        (0, 0, 0),
        "the report is not believed at all"
    );
    assert_eq!(
        kinds(&[report(5, 1, 2), report(60, 0, 1)]),
        (60, 1, 2),
        "the highest of each, as of the sides"
    );
    let cut = TokenKinds {
        cache_read: 60,
        cache_write: 30,
        reasoning: 50,
        ..TokenKinds::default()
    };
    let room = Usage {
        prompt: PromptTokens(70),
        completion: CompletionTokens(20),
    };
    let within = cut.within(room);
    assert_eq!((within.cache_read, within.cache_write, within.reasoning), (40, 30, 20));
}

/// Embeddings have no completion, and their providers report none.
#[test]
fn a_cost_is_that_of_the_usage_that_is_reported_with_it() {
    let cost = "0.0004".parse().ok();
    let of = |prompt: &str, completion: &str, total: &str| {
        let mut reports = Reports::default();
        reports.add(Report {
            prompt: Figure::from_json(prompt.as_bytes()),
            completion: Figure::from_json(completion.as_bytes()),
            total: Figure::from_json(total.as_bytes()),
            cost,
            ..Report::default()
        });
        reports
    };
    let usage = |prompt, completion| Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    };
    for (reports, is_of, is_not_of) in [
        (of("8", "2", "10"), usage(8, 2), usage(8, 3)),
        (of("8", "null", "8"), usage(8, 0), usage(8, 1)),
        (of("null", "null", "8"), usage(8, 0), usage(7, 0)),
    ] {
        assert_eq!((reports.cost_of(is_of), reports.cost_of(is_not_of)), (cost, None));
    }
}
