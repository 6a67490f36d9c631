//! Whole answers, cut anywhere, against a tree parser.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::costs::{CATALOGUE, Call};
use super::oracle;
use super::*;
use crate::pure::usage::Reports;

/// Taps `answer` in pieces that end at `cuts`.
fn tap(answer: &[u8], cuts: &[usize]) -> WholeTap {
    let mut tap = WholeTap::new(Encoding::O200k);
    let mut start = 0;
    for end in cuts.iter().copied().chain([answer.len()]) {
        tap.chunk(&answer[start..end]);
        start = end;
    }
    tap.end();
    tap
}

/// What a tap of the whole of `value` must say: usage, text, error.
fn expected(value: &Value) -> (Option<(u64, u64)>, u64, bool) {
    let mut reports = Reports::default();
    let choices = value["choices"].as_array();
    let usages = [&value["usage"], &value["x_groq"]["usage"]];
    for usage in usages
        .into_iter()
        .chain(choices.into_iter().flatten().map(|choice| &choice["usage"]))
    {
        if usage.is_object() {
            reports.add(oracle::report(usage));
        }
    }
    let error = oracle::is_error(value);
    let usage = if choices.is_none() && !error {
        reports.usage_without_completion()
    } else {
        reports.usage()
    };
    let text = oracle::text_tokens(value, Encoding::O200k);
    // Nothing at all is no report of an answer that has text.
    let usage = usage.filter(|usage| text == 0 || (usage.prompt.0, usage.completion.0) != (0, 0));
    let text = if usage.is_some() { 0 } else { text };
    (usage.map(|usage| (usage.prompt.0, usage.completion.0)), text, error)
}

fn said(tap: &WholeTap) -> (Option<(u64, u64)>, u64, bool) {
    let usage = tap.reported().map(|usage| (usage.prompt.0, usage.completion.0));
    (usage, tap.delivered().0, tap.is_error())
}

#[track_caller]
fn check_every_cut(answer: &str) {
    let value: Value = serde_json::from_str(answer).unwrap();
    for cut in 0..=answer.len() {
        let tap = tap(answer.as_bytes(), &[cut]);
        assert_eq!((said(&tap), tap.complete()), (expected(&value), true), "cut at {cut}");
    }
    let cuts: Vec<_> = (0..answer.len()).collect();
    assert_eq!(said(&tap(answer.as_bytes(), &cuts)), expected(&value), "byte by byte");
}

#[test]
fn answers_of_every_kind_cut_at_every_byte() {
    for answer in [
        r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \u00e9\ud83d\ude00 \"}]"}}],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9}}"#,
        r#"{"usage":{"completion_tokens_details":{"completion_tokens":1},"completion_tokens":0,"prompt_tokens":0},"choices":[]}"#,
        r#" { "choices" : [ { "message" : { "content" : "no usage here" , "tool_calls" : [ { "function" : { "name" : "f" , "arguments" : "{\"usage\":{\"prompt_tokens\":3}}" } } ] } } ] , "usage" : null } "#,
        r#"{"object":"list","data":[{"embedding":[0.1,-2e-5,3],"index":0,"usage":{"prompt_tokens":999}}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#,
        r#"{"error":{"message":"m","type":"t","code":429,"usage":{"prompt_tokens":1}}}"#,
        r#"{"error":null,"choices":[{"text":"legacy"}],"us\u0061ge":{"prompt\u005ftokens":1,"completion_tokens":2}}"#,
        r#"{"choices":[{"message":{"content":[{"type":"text","text":"parts"},"loose",{"type":"image_url","image_url":{"url":"u"}}]}}]}"#,
        r#"{"choices":[{"message":{"content":"said"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
        r#"{"choices":[{"message":{"content":"said for nothing"}}],"usage":{"prompt_tokens":0,"completion_tokens":1}}"#,
        r#"{"choices":[{"error":{"code":502,"message":"m"},"finish_reason":"error","message":{"content":""}}],"usage":{"prompt_tokens":9}}"#,
        r#"{"choices":[{"error":null,"message":{"content":"said"},"delta":{"content":""},"text":"said"}]}"#,
        r#"{"choices":[{"error":"","text":"one two three","delta":{"content":"one","reasoning":"why"},"message":{"content":"one two"}}]}"#,
    ] {
        check_every_cut(answer);
    }
}

#[test]
fn an_error_in_an_array_is_an_error() {
    let tap = tap(br#"[{"error":{"code":400,"message":"wrapped"}}]"#, &[]);
    assert!(tap.is_error() && tap.complete());
    assert_eq!(tap.error_code(), Some(400));
}

/// Five of them in a row would have the target passed over for everybody.
#[test]
fn an_error_that_the_request_is_to_blame_for_says_so_by_a_word_too() {
    for (error, code) in [
        (
            r#"{"type":"invalid_request_error","code":"invalid_api_key"}"#,
            Some(403),
        ),
        (r#"{"type":"invalid_request_error","code":null}"#, None),
        (r#"{"code":"context_length_exceeded","message":"too long"}"#, Some(400)),
        (r#"{"code":"content_filter","type":"server_error"}"#, Some(400)),
        (r#"{"type":"invalid_request_error","code":429}"#, Some(429)),
        (r#"{"code":"413","type":"invalid_request_error"}"#, Some(413)),
        (r#"{"type":"server_error","code":"overloaded"}"#, None),
        (r#"{"message":"invalid_request_error"}"#, None),
    ] {
        let tap = tap(format!(r#"{{"error":{error}}}"#).as_bytes(), &[]);
        assert_eq!((tap.is_error(), tap.error_code()), (true, code), "{error}");
    }
}

/// The shape of vLLM: the document is the error, and `code` stands in its root.
#[test]
fn the_code_of_an_error_that_is_all_of_the_document_is_read() {
    for (document, is_error, code) in [
        (
            r#"{"object":"error","message":"no","type":"BadRequestError","code":400}"#,
            true,
            Some(400),
        ),
        (r#"{"code":404,"object":"error"}"#, true, Some(404)),
        (r#"{"error":"Model not found","code":404}"#, true, Some(404)),
        (r#"{"error":{"code":429},"code":500}"#, true, Some(429)),
        (r#"{"choices":[],"code":400}"#, false, None),
        (r#"{"code":"400"}"#, false, None),
    ] {
        let tap = tap(document.as_bytes(), &[]);
        assert_eq!((tap.is_error(), tap.error_code()), (is_error, code), "{document}");
    }
}

/// Python writes these where a probability is none; its own parser reads them.
#[test]
fn figures_that_are_no_json_do_not_stop_the_count() {
    for figure in ["NaN", "Infinity", "-Infinity"] {
        let answer = format!(
            r#"{{"choices":[{{"logprobs":{{"content":[{{"logprob":{figure}}}]}},"message":{{"content":"one two three"}}}}]}}"#
        );
        let tap = tap(answer.as_bytes(), &[]);
        assert!(tap.complete() && !tap.is_broken(), "{figure}");
        assert_eq!(tap.delivered().0, 3, "{figure}");
    }
}

#[test]
fn lone_surrogates_read_as_the_replacement_character() {
    let answer = r#"{"choices":[{"message":{"content":"a \ud83d lone \udc00 half\ud83d\ud83d\ude00"}}]}"#;
    let expected = tokens::count("a \u{FFFD} lone \u{FFFD} half\u{FFFD}\u{1F600}", Encoding::O200k);
    for cut in 0..=answer.len() {
        assert_eq!(tap(answer.as_bytes(), &[cut]).delivered().0, expected);
    }
}

#[test]
fn an_answer_that_stops_within_a_text_is_counted_up_to_there() {
    let (head, said) = (
        r#"{"choices":[{"message":{"role":"assistant","content":""#,
        "One two three, four.",
    );
    for length in 0..=said.len() {
        let stopped = format!("{head}{}", &said[..length]);
        let counted = tap(stopped.as_bytes(), &[]).delivered().0;
        assert_eq!(counted, tokens::count(&said[..length], Encoding::O200k), "{stopped}");
    }
}

#[test]
fn an_answer_that_stops_after_its_report_is_counted_too() {
    let answer = r#"{"choices":[{"message":{"content":"One two"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}"#;
    let stopped = tap(answer.as_bytes(), &[]);
    assert!(stopped.is_cut() && stopped.is_answer() && stopped.reported().is_some());
    assert_eq!(stopped.delivered().0, tokens::count("One two", Encoding::O200k));
}

#[test]
fn what_is_no_whole_document_is_not_complete() {
    for answer in [
        "",
        "{",
        "{}x",
        "{}{}",
        "{\"a\":}",
        "{\"a\" 1}",
        "[1,]",
        "{,}",
        "[}",
        "[1}",
        "{\"a\":1]",
        "\"\\x\"",
        "<html>",
        "\u{1f}\u{8b}",
    ] {
        assert!(!tap(answer.as_bytes(), &[]).complete(), "{answer}");
    }
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    assert!(tap(deep.as_bytes(), &[]).complete());
    let too_deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert!(!tap(too_deep.as_bytes(), &[]).complete());
}

#[test]
fn megabytes_need_no_memory() {
    let mut tap = WholeTap::new(Encoding::O200k);
    tap.chunk(br#"{"choices":[{"message":{"content":""#);
    for _ in 0..64 {
        tap.chunk(&b"the quick brown fox ".repeat(1000));
        assert!(tap.waiting() <= super::super::text::WAITING_BYTES_MAX);
    }
    tap.chunk(br#""}}],"data":[["#);
    for _ in 0..64 {
        tap.chunk(&b"0.0123,".repeat(3000));
    }
    tap.chunk(br#"0]]}"#);
    tap.end();
    assert!(tap.complete());
    let exact = 64 * 4000;
    assert!(
        tap.delivered().0.abs_diff(exact) < exact / 1000,
        "{} instead of {exact}",
        tap.delivered().0
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        3 => prop::sample::select(vec![
            "choices", "message", "delta", "content", "usage", "prompt_tokens", "completion_tokens", "total_tokens",
            "error", "object", "tool_calls", "function", "arguments", "x_groq", "reasoning", "text", "index",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..5000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "[\"\\\\\n{}:]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The mark counts for the places at which the answer is told its cost.
#[test]
fn a_byte_order_mark_before_an_answer_is_white_space_however_it_is_cut() {
    let call = Call::of(CATALOGUE);
    let chat = r#"{"choices":[{"message":{"content":"Hi"}}]"#;
    for plain in [
        format!(r#"{chat},"usage":{{"prompt_tokens":9,"completion_tokens":12}}}}"#),
        format!("{chat}}}"),
        format!(
            r#"{{"x_groq":{{"usage":{{"prompt_tokens":9,"cost":7}}}},{}"#,
            &chat[1..]
        ) + "}",
    ] {
        let marked = format!("\u{FEFF}{plain}");
        let expected = format!("\u{FEFF}{}", call.whole(&[plain.as_bytes()]));
        assert!(
            expected.contains("\"cost\":") && !expected.contains("\"cost\":7"),
            "{expected}"
        );
        for cut in 0..=marked.len() {
            let (head, tail) = marked.as_bytes().split_at(cut);
            assert_eq!(call.whole(&[head, tail]), expected, "cut at {cut}");
            let (marked, plain) = (tap(marked.as_bytes(), &[cut]), tap(plain.as_bytes(), &[]));
            assert_eq!(said(&marked), said(&plain), "cut at {cut}");
        }
    }
    for broken in [
        &b"\xEF{}"[..],
        b"\xEF\xBB{}",
        b" \xEF\xBB\xBF{}",
        b"\xEF\xBB\xBF\xEF\xBB\xBF{}",
        b"{\xEF\xBB\xBF}",
    ] {
        for cut in 0..=broken.len() {
            let tap = tap(broken, &[cut]);
            assert!(tap.is_broken() && !tap.complete() && !tap.is_cut(), "{broken:?}");
        }
    }
    let error = "\u{FEFF}{\"message\":\"Your credit balance is too low to access the API.\"}";
    for cut in 0..=error.len() {
        assert!(tap(error.as_bytes(), &[cut]).about_operator().is_some(), "cut at {cut}");
    }
    let blank = tap("\u{FEFF}\n".as_bytes(), &[2]);
    assert!(blank.is_blank() && blank.is_cut());
}

fn answer() -> impl Strategy<Value = Value> {
    let part = || proptest::option::weighted(0.8, any_value());
    (part(), part(), any_value()).prop_map(|(message, usage, other)| {
        let mut answer = json!({"z": other.clone()});
        if let Some(message) = message {
            answer["choices"] = json!([{"message": message, "finish_reason": "stop"}, {"message": {"content": other}}]);
        }
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_cut_anywhere(
        value in prop_oneof![answer(), any_value().prop_filter("an object", Value::is_object)],
        pretty in any::<bool>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let answer = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(answer.len() + 1)).collect();
        cuts.sort_unstable();
        let tap = tap(answer.as_bytes(), &cuts);
        prop_assert_eq!(said(&tap), expected(&value));
        prop_assert!(tap.complete());
    }
}
