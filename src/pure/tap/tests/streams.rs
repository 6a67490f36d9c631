//! Any stream, cut anywhere, against the oracle.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::oracle::{self, Outcome, outcome};
use super::*;

/// One event or line of a stream, before it is written down.
#[derive(Clone, Debug)]
enum Line {
    Json { value: Value, pretty: bool, ascii: bool },
    Raw(&'static str),
    Bytes(Vec<u8>),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => " ?[a-zA-Z]{1,8}",
        1 => "\\PC{0,10}",
        1 => "[\"\\\\\n\t\u{8}/{}\\[\\]:,é漢😀]{0,6}",
        1 => Just("\"usage\":{\"prompt_tokens\":1}".to_owned()),
    ]
}

fn figure() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => (0u64..100_000).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => prop_oneof![Just(json!(-1)), Just(json!(1.5)), Just(json!("5")), Just(json!(1u64 << 41)), Just(json!({}))],
    ]
}

fn usage_object() -> impl Strategy<Value = Value> {
    (figure(), figure(), figure()).prop_map(|(prompt, completion, total)| {
        json!({"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": 3, "completion_tokens": 99},
            "completion_tokens": completion, "total_tokens": total})
    })
}

/// What a tool is called with: a string with JSON in it, or that JSON itself.
fn arguments() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => text().prop_map(Value::from),
        3 => (text(), text()).prop_map(|(key, text)| {
            json!({"arguments": {"content": text}, "usage": {"prompt_tokens": 1}, key: [text, 1.5, true, [], null]})
        }),
        1 => text().prop_map(|text| json!([text, {}])),
        1 => prop_oneof![Just(json!({})), Just(json!(-12.5)), Just(json!(true)), Just(Value::Null)],
    ]
}

fn message() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => text().prop_map(|text| json!({"content": text})),
        1 => text().prop_map(|text| json!({"role": "assistant", "content": "", "reasoning": text, "reasoning_content": text})),
        1 => text().prop_map(|text| json!({"content": null, "refusal": text, "audio": {"id": "a", "transcript": text}})),
        2 => (text(), arguments()).prop_map(|(name, arguments)| json!({"tool_calls": [
            {"index": 0, "id": "call", "type": "function", "function": {"name": name, "arguments": arguments}}]})),
        1 => (text(), text()).prop_map(|(text, thought)| json!({"content": [
            {"type": "text", "text": text}, {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}],
            "reasoning_details": [{"type": "reasoning.text", "text": thought}]})),
        1 => Just(json!({})),
    ]
}

fn chunk() -> impl Strategy<Value = Value> {
    let finish = prop_oneof![5 => Just(Value::Null), 1 => Just(json!("stop")), 1 => Just(json!(""))];
    let usage = prop_oneof![3 => Just(Value::Null), 1 => usage_object()];
    (
        proptest::collection::vec((message(), finish), 1..3),
        usage,
        any::<bool>(),
    )
        .prop_map(|(choices, usage, groq)| {
            let choices: Vec<_> = choices
                .into_iter()
                .enumerate()
                .map(|(index, (delta, finish))| json!({"index": index, "delta": delta, "finish_reason": finish}))
                .collect();
            let mut chunk = json!({"id": "chatcmpl-\u{e9}", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": "a/b", "choices": choices});
            if groq {
                chunk["x_groq"] = json!({"id": "req", "usage": usage});
            } else {
                chunk["usage"] = usage;
            }
            chunk
        })
}

fn error() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"error": {"message": SECRET, "code": 429}})),
        Just(json!({"error": {"message": SECRET, "code": "503"}, "choices": [{"delta": {"content": "x"}}]})),
        Just(json!({"error": {"message": SECRET, "code": "context_length_exceeded"}})),
        Just(json!({"error": SECRET})),
        Just(json!({"object": "error", "message": SECRET})),
    ]
}

const SECRET: &str = "our account key sk-upstream is overdue";

fn harmless() -> impl Strategy<Value = Line> {
    let json = |value: BoxedStrategy<Value>| {
        (value, any::<bool>(), any::<bool>()).prop_map(|(value, pretty, ascii)| Line::Json { value, pretty, ascii })
    };
    prop_oneof![
        8 => json(chunk().boxed()),
        2 => json(usage_object().prop_map(|usage| json!({"choices": [], "usage": usage})).boxed()),
        1 => json(Just(json!({"choices": [], "usage": null, "error": null})).boxed()),
        1 => Just(Line::Raw(": OPENROUTER PROCESSING")),
        1 => Just(Line::Raw("event: message")),
        1 => Just(Line::Raw("id: 7")),
        1 => Just(Line::Raw("data: {\"choices\": oops")),
        1 => Just(Line::Raw("data:")),
        1 => Just(Line::Raw("")),
        1 => proptest::collection::vec(any::<u8>(), 0..8).prop_map(Line::Bytes),
    ]
}

fn any_line() -> impl Strategy<Value = Line> {
    prop_oneof![
        30 => harmless(),
        1 => error().prop_map(|value| Line::Json { value, pretty: false, ascii: false }),
        1 => Just(Line::Raw("event: error")),
        1 => Just(Line::Raw("data: [DONE]")),
    ]
}

fn write(lines: &[(Line, &'static str, bool)], mark: bool, last_end: usize) -> Vec<u8> {
    let mut stream = if mark { b"\xEF\xBB\xBF".to_vec() } else { Vec::new() };
    for (line, end, space) in lines {
        match line {
            Line::Json { value, pretty, ascii } => {
                let json = if *pretty {
                    serde_json::to_string_pretty(value)
                } else {
                    serde_json::to_string(value)
                };
                let json = if *ascii { escaped(&json.unwrap()) } else { json.unwrap() };
                for line in json.lines() {
                    stream.extend(if *space { &b"data: "[..] } else { b"data:" });
                    stream.extend(line.as_bytes());
                    stream.extend(end.as_bytes());
                }
            }
            Line::Raw(line) => {
                stream.extend(line.as_bytes());
                stream.extend(end.as_bytes());
            }
            Line::Bytes(bytes) => {
                stream.extend(bytes);
                stream.extend(end.as_bytes());
            }
        }
        stream.extend(end.as_bytes());
    }
    // The last event may lack its blank line, or its line end too.
    let kept = stream.len()
        - stream
            .iter()
            .rev()
            .take_while(|byte| matches!(byte, b'\n' | b'\r'))
            .count();
    stream.truncate(kept + last_end);
    stream
}

/// The same JSON in ASCII.
fn escaped(json: &str) -> String {
    let mut out = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

fn stream(line: impl Strategy<Value = Line>) -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![4 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\r")];
    (
        proptest::collection::vec((line, end, any::<bool>()), 0..8),
        any::<bool>(),
        0usize..5,
    )
        .prop_map(|(lines, mark, last_end)| write(&lines, mark, last_end))
}

pub(super) fn run(stream: &[u8], cuts: &[usize], options: TapOptions) -> Outcome {
    let mut chunks = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        chunks.push(&stream[start..end]);
        start = end;
    }
    let (mut out, mut tap) = pass(&chunks, options);
    out.extend(tap.end());
    Outcome {
        out,
        reports: *tap.reports(),
        delivered: tap.delivered().0,
        done: tap.done(),
        finished: tap.finished(),
        error: tap.error_event().then(|| tap.error_code()),
    }
}

pub(super) fn both() -> [TapOptions; 2] {
    [TapOptions::default(), drop_usage()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_at_random(stream in stream(any_line()), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        for options in both() {
            prop_assert_eq!(run(&stream, &cuts, options), outcome(&stream, options));
        }
    }

    #[test]
    fn byte_by_byte(stream in stream(any_line())) {
        let cuts: Vec<_> = (0..stream.len()).collect();
        for options in both() {
            prop_assert_eq!(run(&stream, &cuts, options), outcome(&stream, options));
        }
    }

    #[test]
    fn a_failure_at_any_byte_ends_in_one_error_and_done(stream in stream(harmless()), cut in any::<prop::sample::Index>()) {
        let (head, _) = stream.split_at(cut.index(stream.len() + 1));
        let cuts: Vec<_> = (0..head.len()).step_by(7).collect();
        let before = run(head, &cuts, drop_usage());
        let (mut out, mut tap) = pass(&[head], drop_usage());
        out.extend(tap.fail("gone", "upstream_error", 502));
        prop_assert!(tap.delivered().0 <= before.delivered);
        let seen = outcome(&out, TapOptions::default());
        prop_assert_eq!(seen.error, Some(Some(502)));
        prop_assert!(out.ends_with(error_event::DONE_EVENT));
        prop_assert_eq!(memchr::memmem::find_iter(&out, b"\"finish_reason\":\"error\"").count(), 1);
    }

    #[test]
    fn what_is_held_is_bounded_and_whatever_comes_passes(
        bytes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
        hold_bytes_max in 0usize..60,
    ) {
        let options = TapOptions { hold_bytes_max, ..TapOptions::default() };
        let mut tap = StreamTap::new(options);
        let (mut came, mut passed) = (Vec::new(), Vec::new());
        for chunk in &bytes {
            came.extend(chunk);
            match tap.chunk(&Bytes::copy_from_slice(chunk)) {
                Forward::Unchanged => passed.extend(chunk),
                Forward::Replace(bytes) => passed.extend(&bytes),
            }
            prop_assert!(came.starts_with(&passed));
            prop_assert!(came.len() - passed.len() <= hold_bytes_max.max(3));
        }
        passed.extend(tap.end());
        prop_assert!(passed.starts_with(&came));
    }

    #[test]
    fn an_event_that_is_too_large_to_hold_is_closed_where_it_dies(value in chunk(), named in any::<bool>(),
        ascii in any::<bool>(), cut in any::<prop::sample::Index>(), step in 1usize..9) {
        let stream = write(&[(Line::Json { value, pretty: false, ascii }, "\n", true)], false, 0);
let stream = if named { [b"event: message\n".to_vec(), stream].concat() } else { stream };
        let head = &stream[..cut.index(stream.len() + 1)];
        let options = TapOptions { hold_bytes_max: 0, ..TapOptions::default() };
        let (mut out, mut tap) = pass(&head.chunks(step).collect::<Vec<_>>(), options);
        out.extend(tap.fail("gone", "upstream_error", 502));
        let out = String::from_utf8(out).expect("whole characters");
        let data: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
        let (done, events) = data.split_last().unwrap();
        prop_assert_eq!(*done, "[DONE]");
        for event in events {
            prop_assert!(event.is_empty() || serde_json::from_str::<Value>(event).is_ok(), "{}", event);
        }
        prop_assert!(events.last().unwrap().contains("upstream_error"));
    }

    #[test]
    fn an_upstreams_words_never_pass(lines in proptest::collection::vec(harmless(), 0..3), error in error(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6), dies in any::<bool>()) {
        let mut lines: Vec<_> = lines.into_iter().map(|line| (line, "\n", true)).collect();
        lines.push((Line::Json { value: error, pretty: false, ascii: false }, "\n", true));
        let stream = write(&lines, false, 2);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let stream = if dies { &stream[..cuts.last().copied().unwrap_or(stream.len())] } else { &stream };
        let chunks: Vec<_> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let (mut out, mut tap) = pass(&[&[&stream[..cuts.first().copied().unwrap_or(0)]], &chunks[..]].concat(), drop_usage());
        out.extend(tap.fail("gone", "upstream_error", 502));
        prop_assert!(memchr::memmem::find(&out, b"sk-upstream").is_none());
    }
}

#[test]
fn the_oracle_reads_what_it_should() {
    let value = json!({"choices": [{"delta": {"content": "one two"}}]});
    assert_eq!(oracle::text_tokens(&value, Encoding::O200k), 2);
    let json = "{ \"a\":[1.50, \"\\u00e9\"] }";
    let function = format!("{{\"name\":\"f\",\"arguments\": {json} }}");
    let called = format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"function\":{function}}}]}}}}]}}\n\n");
    let expected = tokens::count("f", Encoding::O200k) + tokens::count(json, Encoding::O200k);
    assert_eq!(outcome(called.as_bytes(), drop_usage()).delivered, expected);
    let stream = format!(": x\r\n\r\n{DELTA}{USAGE}");
    let outcome = outcome(stream.as_bytes(), drop_usage());
    assert_eq!(outcome.out, format!(": x\r\n\r\n{DELTA}{DONE}").into_bytes());
    assert_eq!((outcome.delivered, outcome.finished), (1, false));
}
