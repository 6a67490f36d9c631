//! Streams that report in an odd order or place: which of their usages is told with its cost, and what of it counts.

use serde_json::json;

use super::costs::{CATALOGUE, Call, usages};
use super::*;

/// The end of a choice and its usage, in one event.
const LAST: &str = concat!(
    r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":9,"completion_tokens":12}}"#,
    "\n\n"
);
/// The same usage in an event of its own.
const TRAILING: &str = concat!(
    r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12}}"#,
    "\n\n"
);

/// What a client gets of a stream that comes at once.
fn told(events: &[&str]) -> String {
    let (call, stream) = (Call::of(CATALOGUE), events.concat());
    let (out, _) = call.stream(&[stream.as_bytes()], TapOptions::default());
    out
}

/// Which of the stream's usages have a cost.
fn have_costs(stream: &str) -> Vec<bool> {
    let usages = usages(stream);
    usages.iter().map(|usage| usage.get("cost").is_some()).collect()
}

#[test]
fn what_was_counted_is_told_before_done_however_the_stream_is_cut() {
    let (call, stream) = (Call::of(CATALOGUE), [DELTA, STOP, DONE].concat());
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = call.stream(&[head, tail], TapOptions::default());
        assert_eq!(have_costs(&out), [true], "cut at {cut}: {out}");
        assert!(
            out.starts_with(&[DELTA, STOP].concat()) && out.ends_with(&["}\n\n", DONE].concat()),
            "cut at {cut}: {out}"
        );
        assert!(tap.told_bill().is_some(), "cut at {cut}");
    }
}

#[test]
fn what_was_counted_is_told_where_nothing_says_that_the_answer_is_complete() {
    let out = told(&[DELTA]);
    assert_eq!(have_costs(&out), [true], "{out}");
    assert_eq!(usages(&out)[0]["completion_tokens"], 1);
    assert!(out.ends_with(DONE), "{out}");
}

#[test]
fn a_usage_that_passed_before_its_event_ended_is_told_again_with_its_cost() {
    let options = TapOptions {
        hold_bytes_max: 10,
        ..TapOptions::default()
    };
    let (head, tail) = TRAILING.split_at(30);
    let pieces = [[DELTA, LAST].concat(), head.to_owned(), [tail, DONE].concat()];
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
    let (out, _) = Call::of(CATALOGUE).stream(&pieces, options);
    assert_eq!(have_costs(&out), [true, false, true], "{out}");
}

#[test]
fn a_usage_that_does_not_stand_in_the_root_is_none_that_a_client_reads() {
    let groq = "data: {\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}}\n\n";
    let out = told(&[DELTA, LAST, groq, DONE]);
    assert_eq!(have_costs(&out), [true], "{out}");
    assert!(out.ends_with(&[groq, DONE].concat()), "{out}");
}

#[test]
fn a_usage_before_the_end_of_the_answer_has_no_cost() {
    let early = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    let out = told(&[DELTA, early, DELTA, STOP, DONE]);
    assert_eq!(have_costs(&out), [false, true], "{out}");
    assert_eq!(usages(&out)[1]["completion_tokens"], 2);
}

#[test]
fn a_usage_that_names_no_completion_stays_as_it_came() {
    let prompt = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\n\n";
    let out = told(&[DELTA, STOP, TRAILING, prompt, DONE]);
    assert_eq!(have_costs(&out), [true, false, true], "{out}");
    assert_eq!(usages(&out)[1], json!({ "prompt_tokens": 9 }));
}

#[test]
fn a_provider_that_reports_before_its_end_reports_after_it_too() {
    let early = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"content":" a b"}}],"#,
        r#""usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
        "\n\n"
    );
    let out = told(&[early, LAST, TRAILING, DONE]);
    assert_eq!(have_costs(&out), [false, false, true], "{out}");
}

#[test]
fn what_was_told_counts_with_done_or_where_the_stream_is_over() {
    let call = Call::of(CATALOGUE);
    for (after, is_over, counts) in [
        ("", false, false),
        ("", true, true),
        (DELTA, false, false),
        (DELTA, true, true),
        (DONE, false, true),
        (DONE, true, true),
    ] {
        let mut tap = StreamTap::new(TapOptions::default());
        let stream = [DELTA, LAST, after].concat();
        tap.billed_chunk(&Bytes::from(stream), || Some(call.tariff()));
        if is_over {
            tap.fail("it died", "upstream_error", 502);
        }
        assert_eq!(tap.told_use().is_some(), counts, "{after:?}, is over: {is_over}");
    }
}

/// Moonshot reports at the end of each choice, and does not say whether that is of the choice alone.
#[test]
fn what_is_reported_in_choices_alone_counts_no_less_than_what_all_of_them_have_said() {
    let text = |index: u64| {
        let choice = json!({ "index": index, "delta": { "content": " one two three" } });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let end = |index: u64, completion: u64| {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": completion });
        let choice = json!({ "index": index, "delta": {}, "finish_reason": "stop", "usage": usage });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let of_all = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\n".to_owned();
    let groq =
        "data: {\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}}\n\n".to_owned();
    // Of what had come by then.
    let early = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n".to_owned();
    let usage = r#""usage":{"prompt_tokens":9,"completion_tokens":5}"#;
    let ending = concat!(
        r#""choices":[{"index":1,"delta":{},"finish_reason":"stop","#,
        r#""usage":{"prompt_tokens":9,"completion_tokens":3}}]"#
    );
    let usage_behind = format!("data: {{{ending},{usage}}}\n\n");
    let usage_before = format!("data: {{{usage},{ending}}}\n\n");
    let of_last = of_all.clone();
    let broken = "data: {\"choices\":[{\"index\":1,\n\n".to_owned();
    let both = || vec![text(0), text(1), end(0, 3), end(1, 3)];
    let call = Call::of(CATALOGUE);
    for (choices, events, completion) in [
        (2, both(), 6),
        (2, vec![text(0), end(0, 3), text(1), end(1, 3)], 6),
        (2, vec![text(0), text(1), end(0, 3), end(1, 50)], 50),
        // What is of the only choice is of all.
        (1, vec![text(0), end(0, 2)], 2),
        (2, [both(), vec![of_all.clone()]].concat(), 5),
        (2, [both(), vec![groq]].concat(), 5),
        (2, vec![text(0), text(1), end(0, 3), broken, of_all], 5),
        (2, [vec![early.clone()], both()].concat(), 6),
        (2, vec![text(0), text(1), of_last, end(0, 3), end(1, 3)], 5),
        (2, vec![text(0), early, text(1), end(0, 3), end(1, 3)], 6),
        (2, vec![text(0), text(1), end(0, 3), usage_behind], 5),
        (2, vec![text(0), text(1), end(0, 3), usage_before], 5),
    ] {
        let stream = [events.concat(), DONE.to_owned()].concat();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let options = TapOptions {
                choices,
                ..TapOptions::default()
            };
            let (out, tap) = call.stream(&[head, tail], options);
            let reported = tap.reported_at_end().unwrap();
            assert_eq!((reported.prompt.0, reported.completion.0), (9, completion), "{stream}");
            let told = usages(&out).pop().unwrap();
            assert_eq!(told["completion_tokens"], completion, "cut at {cut}: {out}");
            assert_eq!(tap.told_bill().unwrap().cost, call.cost(9, completion), "cut at {cut}");
        }
    }
}

/// No client reads it. One that is told what the answer costs was told before: it pays for nothing of it, and no other does.
#[test]
fn text_behind_done_passes_and_is_not_counted_however_the_stream_is_cut() {
    let report = TRAILING.replace(":12}", ":2}");
    // Usual events, one with an escape, and one that is none.
    let behind = [
        DELTA,
        DELTA,
        &DELTA.replace(" token", "\\n"),
        STOP,
        &DELTA.replace("\"id\"", "\"ID\""),
    ]
    .concat();
    for (before, reported) in [
        ([DELTA, DELTA, STOP, &report].concat(), Some((9, 2))),
        ([DELTA, DELTA, STOP].concat(), None),
    ] {
        let stream = [before.as_str(), DONE, &behind].concat();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = pass(&[head, tail], TapOptions::default());
            assert_eq!(out, stream.as_bytes(), "cut at {cut}");
            assert_eq!(
                (usage(&tap), tap.delivered().0, tap.delivered_text().bytes),
                (reported, 2, 12),
                "cut at {cut}"
            );
            assert!(!tap.is_implausible() && tap.is_at_finish(), "cut at {cut}");
        }
    }
}

#[test]
fn a_report_behind_done_is_read_and_is_of_the_text_before_it() {
    let (_, tap) = pass(
        &[[DELTA, STOP, DONE, DELTA, TRAILING].concat().as_bytes()],
        TapOptions::default(),
    );
    assert_eq!((usage(&tap), tap.delivered().0), (Some((9, 12)), 1));
}

/// It passes as it comes, and what has come of it would count.
#[test]
fn an_event_behind_done_that_is_too_long_to_be_held_is_not_counted() {
    let open = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}",
        " token".repeat(HOLD_BYTES_MAX / 4)
    );
    let (out, mut tap) = pass(
        &[[DELTA, DONE].concat().as_bytes(), open.as_bytes()],
        TapOptions::default(),
    );
    assert_eq!(out, [DELTA, DONE, &open].concat().as_bytes());
    let counted = |tap: &StreamTap| (tap.delivered().0, tap.delivered_to_date().0, tap.delivered_text().bytes);
    assert_eq!(counted(&tap), (1, 1, 6));
    tap.stop();
    assert_eq!(counted(&tap), (1, 1, 6));
}
