//! What a meter says of an answer: as it passes, when it stops anywhere, and once it is over.
//!
//! Longer than 400 lines: streams and whole answers stand side by side, and share what they are compared by.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::gateway::billing::keep_within::owed_now;
use crate::gateway::billing::tests::rig::{
    Asked, Books, STREAM, UNBOUNDED, WHOLE, call_of, event, pass, reported, tariff, text, whole,
};
use crate::gateway::context::{Answer, Ctx};
use crate::pure::bill::prompt_limits;
use crate::pure::error::AccountStop;
use crate::pure::prompt_count::counted_prompt;
use crate::pure::usage::Usage;

mod blanks;
mod passing;
mod starts;

/// A token each, of more bytes than a token has in any language.
fn words(count: usize) -> String {
    " international".repeat(count)
}

fn meter(ctx: &mut Ctx) -> &mut Meter {
    match &mut call_of(ctx).answer {
        Answer::Metered(meter) => meter,
        Answer::None | Answer::Refusal(_) => panic!("no answer has begun"),
    }
}

fn taken(ctx: &mut Ctx) -> Box<Meter> {
    match std::mem::replace(&mut call_of(ctx).answer, Answer::None) {
        Answer::Metered(meter) => meter,
        Answer::None | Answer::Refusal(_) => panic!("no answer has begun"),
    }
}

/// The call of which these pieces came, the last of which may be the answer's end.
fn after(books: &Books, asked: &Asked<'_>, pieces: &[&str], ends: bool) -> Ctx {
    let mut ctx = books.call(1, asked);
    for (at, piece) in pieces.iter().enumerate() {
        pass(&mut ctx, piece, ends && at + 1 == pieces.len());
    }
    ctx
}

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

const ERROR: &str = "data: {\"error\":{\"code\":502,\"message\":\"no\"}}\n\n";

#[test]
fn a_stream_passes_unchanged_and_is_counted() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    assert!(meter(&mut ctx).is_stream());
    assert!(!meter(&mut ctx).is_gathered());
    assert!(!meter(&mut ctx).has_begun());
    let piece = event(" one two three");
    assert_eq!(pass(&mut ctx, "", false), (Passed::On, String::new()));
    assert!(!meter(&mut ctx).has_begun());
    assert_eq!(pass(&mut ctx, &piece, false), (Passed::On, piece.clone()));
    assert!(meter(&mut ctx).has_begun());
    assert!(meter(&mut ctx).is_between_events());
    assert_eq!(meter(&mut ctx).delivered().0, 3);
    let (head, tail) = piece.split_at(9);
    pass(&mut ctx, head, false);
    assert!(
        !meter(&mut ctx).is_between_events(),
        "a comment here would be read as a part of the event"
    );
    pass(&mut ctx, tail, false);
    assert_eq!(meter(&mut ctx).delivered().0, 6);
    assert_eq!(meter(&mut ctx).take_said().id.as_deref(), Some("theirs-1"));
}

#[test]
fn a_whole_answer_is_gathered_until_it_is_one_and_its_text_is_counted_at_its_end() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    let answer = whole("one two three", &Value::Null);
    let (head, tail) = answer.split_at(40);
    assert!(!meter(&mut ctx).is_stream());
    assert!(!meter(&mut ctx).is_between_events());
    pass(&mut ctx, head, false);
    assert!(meter(&mut ctx).has_begun());
    assert!(meter(&mut ctx).is_gathered());
    assert_eq!(pass(&mut ctx, tail, true).0, Passed::On);
    assert!(!meter(&mut ctx).is_gathered());
    assert_eq!(meter(&mut ctx).passing("openai/m"), Passing::Within);
    assert_eq!(meter(&mut ctx).take_said().id.as_deref(), Some("theirs-1"));
}

#[test]
fn what_is_no_answer_is_not_passed_on_unless_its_beginning_was() {
    let books = Books::with("100");
    let error = r#"{"error":{"code":429,"message":"no"}}"#;
    for (n, (came, passed)) in [
        (whole("one", &Value::Null), Passed::On),
        (r#"{"choices":[{"index":0"#.to_owned(), Passed::Cut),
        ("<html>no</html>".to_owned(), Passed::NoAnswer { code: None }),
        ("[1]".to_owned(), Passed::NoAnswer { code: None }),
        (r#"[{"choices":[]}]"#.to_owned(), Passed::NoAnswer { code: None }),
        (error.to_owned(), Passed::NoAnswer { code: Some(429) }),
        // It speaks of the operator's account, and not of the request.
        (
            r#"{"error":{"code":429,"type":"insufficient_quota","message":"no"}}"#.to_owned(),
            Passed::NoAnswer { code: Some(403) },
        ),
        (
            r#"{"choices":[],"error":{"code":400,"message":"Your credit balance is too low to access it"}}"#.to_owned(),
            Passed::NoAnswer { code: Some(403) },
        ),
        // An object without choices is an error in words of its own.
        ("{}".to_owned(), Passed::NoAnswer { code: None }),
        (
            r#"{"choices":null,"base_resp":{"status_code":1008}}"#.to_owned(),
            Passed::NoAnswer { code: None },
        ),
        (
            r#"{"object":"list","data":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#.to_owned(),
            Passed::NoAnswer { code: None },
        ),
        (
            r#"{"choices":[{"error":{"code":502,"message":"no"},"message":{"content":""}}]}"#.to_owned(),
            Passed::NoAnswer { code: Some(502) },
        ),
        (r#"{"choices":[]}"#.to_owned(), Passed::On),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, &WHOLE);
        assert_eq!(pass(&mut ctx, &came, true).0, passed, "{came}");
        assert_eq!(meter(&mut ctx).is_gathered(), passed != Passed::On, "{came}");
    }
    let mut ctx = books.call(100, &WHOLE);
    let (begun, rest) = error.split_at(3);
    assert_eq!(pass(&mut ctx, begun, false), (Passed::On, begun.to_owned()));
    meter(&mut ctx).stop_gathering();
    assert!(!meter(&mut ctx).is_gathered());
    assert_eq!(pass(&mut ctx, rest, true).0, Passed::On);
}

#[test]
fn an_answer_ends_once() {
    let books = Books::with("10");
    let mut ctx = after(&books, &STREAM, &[&event(" one")], false);
    let (passed, end) = pass(&mut ctx, "", true);
    assert_eq!(passed, Passed::On);
    assert!(end.ends_with("data: [DONE]\n\n"), "{end}");
    assert_eq!(pass(&mut ctx, "", true), (Passed::On, String::new()));
}

#[test]
fn a_stream_that_dies_within_an_event_tells_its_client() {
    let books = Books::with("10");
    let mut ctx = after(&books, &STREAM, &[&event(" one")], false);
    let (passed, end) = pass(&mut ctx, "data: {\"choices\":[{", true);
    assert_eq!(passed, Passed::Died);
    assert!(end.contains(STREAM_FAILED.0) && end.contains("502"), "{end}");
    let metered = taken(&mut ctx).finish();
    assert!(metered.is_error && !metered.is_complete && metered.began);
    assert_eq!(metered.delivered.0, 1);
}

/// It passed for an answer that had come to its end.
#[test]
fn an_error_event_of_the_provider_is_told_once_and_with_its_code() {
    let books = Books::with("10");
    let failed = Passed::Failed { code: Some(502) };
    for (n, (first, last, passed)) in [
        (ERROR, "", [failed, Passed::On]),
        (ERROR, ": more\n\n", [failed, Passed::On]),
        ("", ERROR, [Passed::On, failed]),
        // Its blank line does not come.
        (ERROR.trim_end(), "", [Passed::On, failed]),
        // Behind the last event nobody reads it.
        ("data: [DONE]\n\n", ERROR, [Passed::On, Passed::On]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, &STREAM);
        let told = [pass(&mut ctx, first, false).0, pass(&mut ctx, last, true).0];
        assert_eq!(told, passed, "{first:?} and then {last:?}");
    }
}

#[test]
fn a_target_has_answered_with_the_end_of_its_answer_or_a_streams_last_event() {
    let books = Books::with("10");
    let begun = event(" one");
    for (n, (asked, piece, ends, has_answered)) in [
        (&STREAM, &*begun, false, false),
        (&STREAM, &*begun, true, true),
        (&STREAM, "data: [DONE]\n\n", false, true),
        (&STREAM, ERROR, true, false),
        (&WHOLE, r#"{"choices":["#, false, false),
        (&WHOLE, r#"{"choices":[]}"#, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, asked);
        pass(&mut ctx, piece, ends);
        assert_eq!(
            meter(&mut ctx).has_answered(ends),
            has_answered,
            "{piece}, ends: {ends}"
        );
        let is_over = meter(&mut ctx).is_stream() && (ends || piece.contains("[DONE]"));
        assert_eq!(meter(&mut ctx).has_last_event(), is_over, "{piece}");
    }
}

/// A stop between events is the end where the upstream frames its stream.
#[test]
fn an_upstream_that_dies_between_events_is_told_by_the_gateway() {
    let books = Books::with("10");
    let mut ctx = after(&books, &STREAM, &[&event(" one")], false);
    let told = meter(&mut ctx).fail(STREAM_FAILED, None).unwrap();
    assert!(text(Some(&told)).contains(STREAM_FAILED.0));
    let mut ctx = books.call(2, &WHOLE);
    assert_eq!(meter(&mut ctx).fail(STREAM_FAILED, None), None);
}

#[test]
fn an_early_end_says_why_and_only_a_stream_has_one() {
    let books = Books::with("10");
    for (n, (end, says)) in [
        (EarlyEnd::Maximum, "\"finish_reason\":\"length\""),
        (EarlyEnd::NoCredit, "402"),
        (EarlyEnd::NoAnswer, STREAM_WITHOUT_LEDGER.0),
        (EarlyEnd::Stopped(AccountStop::Closed), AccountStop::Closed.message()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, &STREAM);
        pass(&mut ctx, &event(" one"), false);
        let mut meter = taken(&mut ctx);
        let last = meter.end_early(end, &tariff(call_of(&mut ctx))).unwrap();
        assert!(text(Some(&last)).contains(says), "{end:?}: {last:?}");
        assert!(last.ends_with(b"data: [DONE]\n\n"), "{end:?}: {last:?}");
    }
    let mut ctx = books.call(10, &WHOLE);
    let mut meter = taken(&mut ctx);
    assert_eq!(meter.end_early(EarlyEnd::NoCredit, &tariff(call_of(&mut ctx))), None);
}

#[test]
fn a_stream_is_within_what_was_admitted_until_no_error_of_counting_explains_it() {
    let books = Books::with("100");
    for (n, (asked, tokens, passing)) in [
        (&STREAM, 10, Passing::Within),
        (&STREAM, 11, Passing::BeyondClient),
        (&UNBOUNDED, 11, Passing::BeyondHold),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, asked);
        pass(&mut ctx, &event(&words(tokens)), false);
        assert_eq!(meter(&mut ctx).delivered().0, tokens as u64);
        assert_eq!(meter(&mut ctx).passing("openai/m"), passing);
        // Another family's tokenizer may count 1.7 times as many.
        assert_eq!(meter(&mut ctx).passing("a/m"), Passing::Within);
    }
    let mut ctx = books.call(10, &WHOLE);
    pass(&mut ctx, &whole(&words(50), &Value::Null), true);
    assert_eq!(meter(&mut ctx).passing("openai/m"), Passing::Within);
}

#[test]
fn a_raised_hold_raises_what_is_within_and_what_is_believed() {
    let books = Books::with("100");
    let extended = Ceiling {
        completion: CompletionTokens(100),
        ..UNBOUNDED.ceiling
    };
    for (n, is_extended) in [false, true].into_iter().enumerate() {
        let mut ctx = books.call(n as u64, &UNBOUNDED);
        pass(&mut ctx, &event(&words(20)), false);
        if is_extended {
            meter(&mut ctx).extend(extended);
            assert_eq!(meter(&mut ctx).passing("openai/m"), Passing::Within);
        }
        pass(&mut ctx, &reported(9, 50, Value::Null), true);
        let metered = taken(&mut ctx).finish();
        assert_eq!(metered.reported, is_extended.then_some(usage(9, 50)));
        assert_eq!(metered.is_implausible, !is_extended);
        assert_eq!(metered.rejected_reports, u64::from(!is_extended));
    }
}

#[test]
fn a_client_is_told_the_cost_once_nothing_can_follow() {
    let books = Books::with("10");
    let mut ctx = after(&books, &STREAM, &[&event(" one")], false);
    assert!(!meter(&mut ctx).has_told());
    pass(&mut ctx, &reported(9, 2, Value::Null), false);
    assert!(meter(&mut ctx).has_told());
    let mut ctx = books.call(2, &WHOLE);
    pass(
        &mut ctx,
        &whole("one", &json!({ "prompt_tokens": 9, "completion_tokens": 2 })),
        true,
    );
    assert!(
        !meter(&mut ctx).has_told(),
        "only of a stream is it told before the end"
    );
}

/// Tokens of the completion, and of the prompt where it was reported.
type Owed = Option<(u64, Option<u64>)>;

/// What the journal says that a call owes, should the process die now.
#[test]
fn what_is_owed_now_is_never_below_what_was_delivered_nor_above_what_was_admitted() {
    let books = Books::with("100");
    let early = |prompt, completion| {
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion });
        let choice = json!({ "index": 0, "delta": { "content": " a b c" } });
        format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage }))
    };
    let prompt_only = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\n\n".to_owned();
    let whole_of = |usage: Value| vec![whole("one two three", &usage)];
    let error = r#"{"error":{"code":429,"message":"no"}}"#.to_owned();
    let cases: Vec<(&Asked<'_>, Vec<String>, bool, Owed)> = vec![
        (&STREAM, vec![], false, Some((0, None))),
        (&STREAM, vec![event(" a b c")], false, Some((3, None))),
        (&STREAM, vec![ERROR.to_owned()], false, None),
        (&STREAM, vec!["data: {\"choices\":[{".to_owned()], true, None),
        (&STREAM, vec![event(" a b c"), ERROR.to_owned()], false, Some((3, None))),
        (&STREAM, vec![prompt_only, event(" a b c")], false, Some((3, Some(9)))),
        // A report with each event is behind what was delivered; the last one is not.
        (&STREAM, vec![early(9, 1)], false, Some((3, Some(9)))),
        (
            &STREAM,
            vec![event(" a b c"), reported(9, 2, Value::Null)],
            false,
            Some((2, Some(9))),
        ),
        (
            &STREAM,
            vec![event(" a b c"), reported(500, 2, Value::Null)],
            false,
            Some((2, Some(100))),
        ),
        (&STREAM, vec![event(&words(20))], false, Some((10, None))),
        (&WHOLE, vec![], false, Some((0, None))),
        (&WHOLE, vec![error], true, None),
        (
            &WHOLE,
            whole_of(json!({ "prompt_tokens": 9, "completion_tokens": 2 })),
            true,
            Some((2, Some(9))),
        ),
        (
            &WHOLE,
            whole_of(json!({ "prompt_tokens": 9 })),
            true,
            Some((3, Some(9))),
        ),
    ];
    for (n, (asked, pieces, ends, owed)) in cases.into_iter().enumerate() {
        let mut ctx = books.call(n as u64, asked);
        for (at, piece) in pieces.iter().enumerate() {
            pass(&mut ctx, piece, ends && at + 1 == pieces.len());
        }
        let owed = owed.map(|(completion, prompt)| (CompletionTokens(completion), prompt.map(PromptTokens)));
        assert_eq!(owed_now(call_of(&mut ctx)), owed, "{pieces:?}");
    }
}

#[test]
fn a_provider_is_likely_to_charge_for_what_came_unless_it_was_an_error() {
    let books = Books::with("100");
    let likely = |n, asked, piece: &str| {
        let mut ctx = books.call(n, asked);
        pass(&mut ctx, piece, false);
        let used = taken(&mut ctx).likely_use();
        used.map(|(prompt, completion)| (prompt.map(|prompt| prompt.0), completion.0))
    };
    assert_eq!(likely(1, &STREAM, &event(" a b c")), Some((None, 3)));
    assert_eq!(likely(2, &STREAM, &reported(9, 2, Value::Null)), Some((Some(9), 2)));
    assert_eq!(likely(3, &STREAM, ERROR), None);
    assert_eq!(
        likely(4, &WHOLE, r#"{"choices":[{"message":{"content":"one two three"#),
        Some((None, 3))
    );
    let error = r#"{"error":{"code":429,"message":"no"}}"#;
    assert_eq!(likely(5, &WHOLE, error), None);
}

#[test]
fn a_stream_that_is_over_has_what_was_told() {
    let books = Books::with("10");
    let last = reported(9, 2, json!({ "service_tier": "flex" }));
    let mut ctx = after(&books, &STREAM, &[&event(" a b c"), &last, ""], true);
    let metered = taken(&mut ctx).finish();
    assert_eq!(
        (metered.reported, metered.prompt),
        (Some(usage(9, 2)), Some(PromptTokens(9)))
    );
    assert_eq!((metered.delivered.0, metered.tier.as_deref()), (3, Some("flex")));
    assert!(metered.is_complete && metered.is_over && metered.began && !metered.is_error && !metered.is_implausible);
    assert_eq!(metered.told.unwrap().cost.to_string(), "0.013");
    // Nothing of it came.
    assert!(!taken(&mut books.call(2, &STREAM)).finish().began);
}

#[test]
fn a_stream_that_is_not_over_has_what_came() {
    let books = Books::with("10");
    let early = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a b c\"}}],\"service_tier\":\"flex\"}\n\n";
    let metered = taken(&mut after(&books, &STREAM, &[early], false)).finish();
    assert_eq!((metered.delivered.0, metered.tier.as_deref()), (3, Some("flex")));
    assert_eq!((metered.reported, metered.prompt, metered.told), (None, None, None));
    assert!(metered.began && !metered.is_complete && !metered.is_error);
    let mut ctx = books.call(2, &STREAM);
    pass(&mut ctx, ERROR, false);
    assert!(taken(&mut ctx).finish().is_error);
}

/// Both the cost that a client is told and the debit need it, and it is counted once.
#[test]
fn a_prompt_that_was_counted_to_tell_the_cost_is_not_counted_again() {
    let books = Books::with("10");
    let stop = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let mut ctx = after(&books, &STREAM, &[&event(" a b c"), stop, ""], true);
    let call = call_of(&mut ctx);
    let model = call.admission.as_ref().unwrap().permit.model();
    let counted = counted_prompt(&call.body, &model.id, &prompt_limits(model));
    let metered = taken(&mut ctx).finish();
    assert_eq!((metered.prompt, metered.counted_prompt), (None, Some(counted)));

    let mut ctx = books.call(2, &WHOLE);
    pass(&mut ctx, &whole("one two three", &Value::Null), true);
    let metered = taken(&mut ctx).finish();
    assert_eq!((metered.prompt, metered.counted_prompt), (None, Some(counted)));
}

#[test]
fn a_whole_answer_that_is_over_has_what_was_told() {
    let books = Books::with("100");
    let with_tier = |text: &str, usage: &Value| {
        let mut answer: Value = serde_json::from_str(&whole(text, usage)).unwrap();
        answer["service_tier"] = "flex".into();
        answer.to_string()
    };
    let mut ctx = books.call(1, &WHOLE);
    pass(
        &mut ctx,
        &with_tier("one two three", &json!({ "prompt_tokens": 9, "completion_tokens": 2 })),
        true,
    );
    let metered = taken(&mut ctx).finish();
    assert_eq!(
        (metered.reported, metered.prompt),
        (Some(usage(9, 2)), Some(PromptTokens(9)))
    );
    assert_eq!(metered.tier.as_deref(), Some("flex"));
    assert!(metered.is_complete && metered.is_over && metered.began && !metered.is_error && !metered.is_implausible);
    assert_eq!(metered.told.unwrap().cost.to_string(), "0.013");

    // Without a report its text is counted.
    let mut ctx = books.call(2, &WHOLE);
    pass(&mut ctx, &whole("one two three", &Value::Null), true);
    assert_eq!(taken(&mut ctx).finish().delivered.0, 3);

    // A report that cannot be.
    let mut ctx = books.call(3, &WHOLE);
    pass(
        &mut ctx,
        &whole(
            "one",
            &json!({ "prompt_tokens": 9, "completion_tokens": 4_000_000_000_u64 }),
        ),
        true,
    );
    let metered = taken(&mut ctx).finish();
    assert_eq!((metered.reported, metered.is_implausible), (None, true));
}

/// Its client got nothing: at most its prompt is owed.
#[test]
fn an_answer_of_which_nothing_was_passed_on_has_no_completion() {
    let books = Books::with("100");
    let cut = r#"{"usage":{"prompt_tokens":9,"completion_tokens":2},"choices":[{"message":{"content":"one two three"#;
    let mut ctx = books.call(1, &WHOLE);
    pass(&mut ctx, cut, false);
    let metered = taken(&mut ctx).finish();
    assert_eq!((metered.reported, metered.prompt), (None, Some(PromptTokens(9))));
    assert_eq!(
        (
            metered.delivered.0,
            metered.is_complete,
            metered.began,
            metered.is_error
        ),
        (0, false, false, false)
    );

    let mut ctx = books.call(2, &WHOLE);
    pass(&mut ctx, r#"{"error":{"code":429,"message":"no"}}"#, true);
    assert!(taken(&mut ctx).finish().is_error);

    // Once its beginning was passed on, what of it came is an answer that broke off.
    let mut ctx = books.call(3, &WHOLE);
    pass(&mut ctx, cut, false);
    meter(&mut ctx).stop_gathering();
    let metered = taken(&mut ctx).finish();
    // What stands behind a usage waits for the answer's end: it has not left.
    assert_eq!((metered.delivered.0, metered.began), (0, true));
    assert!(metered.is_part_passed && !metered.is_over);
    let mut ctx = books.call(4, &WHOLE);
    pass(&mut ctx, "{", false);
    meter(&mut ctx).stop_gathering();
    pass(&mut ctx, r#""error":{"code":429,"message":"no"}}"#, true);
    assert!(taken(&mut ctx).finish().is_error);

    // Blank lines alone are nothing of an answer.
    let mut ctx = books.call(5, &WHOLE);
    meter(&mut ctx).stop_gathering();
    pass(&mut ctx, "\n\n", false);
    assert!(!taken(&mut ctx).finish().is_part_passed);
}

#[test]
fn a_tail_comes_after_what_passes() {
    let appended = |head: Option<&'static str>, tail: &'static str| {
        let mut body = head.map(|head| Bytes::from_static(head.as_bytes()));
        append(&mut body, Bytes::from_static(tail.as_bytes()));
        body
    };
    assert_eq!(appended(None, ""), None);
    assert_eq!(appended(Some("a"), ""), Some(Bytes::from_static(b"a")));
    assert_eq!(appended(None, "b"), Some(Bytes::from_static(b"b")));
    assert_eq!(appended(Some("a"), "b"), Some(Bytes::from_static(b"ab")));
}

#[test]
fn text_is_counted_by_the_models_own_encoding() {
    let books = Books::with("10");
    let japanese = "お誕生日おめでとう";
    for (encoding, tokens) in [(Encoding::Cl100k, 9), (Encoding::O200k, 8)] {
        for asked in [&STREAM, &WHOLE] {
            let mut ctx = books.call(1, asked);
            let body = Arc::clone(&call_of(&mut ctx).body);
            let meter_of = Meter::new(&body, (encoding, Default::default()), Framing::Framed, asked.ceiling);
            call_of(&mut ctx).answer = Answer::Metered(Box::new(meter_of));
            let answer = if meter(&mut ctx).is_stream() {
                event(japanese)
            } else {
                whole(japanese, &Value::Null)
            };
            pass(&mut ctx, &answer, true);
            assert_eq!(taken(&mut ctx).finish().delivered.0, tokens, "{encoding:?}");
        }
    }
}

#[test]
fn a_client_that_did_not_ask_for_usage_is_not_sent_its_event() {
    let books = Books::with("10");
    let silent = Asked {
        more: r#""stream":true"#,
        ..STREAM
    };
    for (asked, is_sent) in [(silent, false), (STREAM, true)] {
        let mut ctx = books.call(1, &asked);
        pass(&mut ctx, &event(" a b"), false);
        let (passed, sent) = pass(&mut ctx, &reported(9, 2, Value::Null), true);
        assert_eq!((passed, sent.contains("\"usage\"")), (Passed::On, is_sent), "{sent}");
        assert!(sent.ends_with("data: [DONE]\n\n"), "{sent}");
    }
}

/// What follows a comment of ours is not the stream's beginning, where alone a byte order mark is none of a line.
#[test]
fn a_byte_order_mark_behind_a_comment_is_a_part_of_its_line() {
    let books = Books::with("10");
    for (is_commented, delivered) in [(false, 3), (true, 0)] {
        let mut ctx = books.call(1, &STREAM);
        if is_commented {
            meter(&mut ctx).commented();
        }
        pass(&mut ctx, &format!("\u{FEFF}{}", event(" a b c")), false);
        assert_eq!(meter(&mut ctx).delivered().0, delivered);
    }
}
