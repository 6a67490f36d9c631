//! The taps: first the promises one by one, then (in the modules) all of them for any stream cut anywhere.

mod answers;
mod arguments;
mod byok;
mod costs;
mod counter;
mod endings;
mod error_codes;
mod odd_reports;
mod open_events;
mod oracle;
mod other_usages;
mod repeated;
mod reports;
mod shapes;
mod streams;
mod told;
mod usual;
mod vectors;

use bytes::Bytes;

use super::*;
use crate::pure::tokens::{self, Encoding};

/// Passes `chunks` through a tap; what it let pass, and the tap.
fn pass(chunks: &[&[u8]], options: TapOptions) -> (Vec<u8>, StreamTap) {
    let mut tap = StreamTap::new(options);
    let mut out = Vec::new();
    for chunk in chunks {
        match tap.chunk(&Bytes::copy_from_slice(chunk)) {
            Forward::Unchanged => out.extend_from_slice(chunk),
            Forward::Replace(bytes) => out.extend_from_slice(&bytes),
        }
    }
    (out, tap)
}

fn drop_usage() -> TapOptions {
    TapOptions {
        drop_usage_chunk: true,
        ..TapOptions::default()
    }
}

fn usage(tap: &StreamTap) -> Option<(u64, u64)> {
    tap.reported().map(|usage| (usage.prompt.0, usage.completion.0))
}

const DELTA: &str = concat!(
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o","#,
    r#""choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    "\n\n"
);
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = concat!(
    r#"data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"#,
    r#""completion_tokens_details":{"reasoning_tokens":4,"prompt_tokens":7}}}"#,
    "\n\n"
);
const DONE: &str = "data: [DONE]\n\n";

#[test]
fn a_whole_event_passes_without_a_copy() {
    let mut tap = StreamTap::new(drop_usage());
    assert_eq!(tap.chunk(&Bytes::from_static(DELTA.as_bytes())), Forward::Unchanged);
    assert_eq!(tap.delivered().0, 1);
    assert!(!tap.finished());
    assert_eq!(tap.chunk(&Bytes::from_static(STOP.as_bytes())), Forward::Unchanged);
    assert!(tap.finished() && !tap.done());
    assert_eq!(tap.chunk(&Bytes::from_static(DONE.as_bytes())), Forward::Unchanged);
    assert!(tap.done());
    assert_eq!(tap.end(), Bytes::new());
    assert_eq!(tap.reported(), None);
}

#[test]
fn the_usage_chunk_is_read_and_left_out_only_when_asked() {
    let stream = [DELTA, STOP, USAGE, DONE].concat();
    let (out, tap) = pass(&[stream.as_bytes()], TapOptions::default());
    assert_eq!((out, usage(&tap)), (stream.clone().into_bytes(), Some((9, 12))));
    let kept = [DELTA, STOP, DONE].concat().into_bytes();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = pass(&[head, tail], drop_usage());
        assert_eq!((out, usage(&tap)), (kept.clone(), Some((9, 12))), "cut at {cut}");
    }
}

/// What decides whether nothing of a stream has passed that a client would read.
#[test]
fn a_stream_has_an_event_once_one_with_data_passes_or_begins_to() {
    let long = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}",
        "x".repeat(HOLD_BYTES_MAX)
    );
    let comment = format!(": {}", "x".repeat(2 * HOLD_BYTES_MAX));
    for (stream, options, has_event) in [
        (DELTA, TapOptions::default(), true),
        (DELTA.trim_end(), TapOptions::default(), false),
        (&DELTA[..DELTA.len() - 1], TapOptions::default(), true),
        (USAGE, TapOptions::default(), true),
        (USAGE, drop_usage(), false),
        (DONE, TapOptions::default(), true),
        ("data: nonsense\n\n", TapOptions::default(), true),
        (&long, TapOptions::default(), true),
        (&comment, TapOptions::default(), false),
        (
            ": a comment\n\nretry: 1\n\nid\n\ndata:\n\ndata: \n\n\n",
            TapOptions::default(),
            false,
        ),
        ("event: error\ndata: x\n\n", TapOptions::default(), false),
        ("<html>\n\n</html>\n\n", TapOptions::default(), false),
    ] {
        let (_, tap) = pass(&[stream.as_bytes()], options);
        assert_eq!(tap.has_event(), has_event, "{:.80}", stream);
    }
}

/// It is a usage chunk by the last of its `choices`, and the text is in the first.
#[test]
fn text_in_a_usage_chunk_that_is_left_out_is_not_counted() {
    let odd = concat!(
        r#"data: {"choices":[{"delta":{"content":"one two"}}],"choices":[],"#,
        r#""usage":{"prompt_tokens":9,"completion_tokens":12}}"#,
        "\n\n"
    );
    let stream = [DELTA, odd, DELTA, STOP].concat();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = pass(&[head, tail], drop_usage());
        assert_eq!(out, [DELTA, DELTA, STOP].concat().as_bytes());
        assert_eq!(tap.delivered().0, 2, "cut at {cut}");
    }
}

#[test]
fn an_upstream_error_is_replaced_by_ours_and_ends_the_stream() {
    let error = "data: {\"error\":{\"message\":\"secret words\",\"code\":429}}\n\n";
    let stream = [DELTA, error, DELTA, DONE].concat();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, mut tap) = pass(&[head, tail], TapOptions::default());
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with(DELTA) && out.ends_with("data: [DONE]\n\n") && !out.contains("secret"),
            "{out}"
        );
        assert_eq!(out.matches("\"finish_reason\":\"error\"").count(), 1);
        assert_eq!(
            (tap.error_event(), tap.error_code(), tap.delivered().0),
            (true, Some(429), 1)
        );
        assert_eq!((tap.end(), tap.fail("x", "y", 502)), (Bytes::new(), Bytes::new()));
    }
}

/// Its client has the whole answer, and its provider charges for it.
#[test]
fn an_error_behind_the_end_makes_no_failure_of_the_stream_and_does_not_pass() {
    let error = "data: {\"error\":{\"message\":\"secret words\",\"code\":429}}\n\n";
    let stream = [DELTA, DONE, error].concat();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, mut tap) = pass(&[head, tail], TapOptions::default());
        assert_eq!(String::from_utf8(out).unwrap(), [DELTA, DONE].concat(), "{cut}");
        assert!(tap.done() && !tap.error_event(), "{cut}");
        assert_eq!(tap.end(), Bytes::new(), "{cut}");
    }
}

#[test]
fn the_end_closes_an_open_event_and_adds_done() {
    let open = DELTA.trim_end();
    let (mut out, mut tap) = pass(&[open.as_bytes()], TapOptions::default());
    out.extend(tap.end());
    assert_eq!(String::from_utf8(out).unwrap(), format!("{open}\n\n{DONE}"));
    assert_eq!(tap.delivered().0, 1);
    let (mut out, mut tap) = pass(&[b"data: [DONE]\r\n"], TapOptions::default());
    assert!(tap.done());
    out.extend(tap.end());
    assert_eq!(out, b"data: [DONE]\r\n\n");
}

#[test]
fn a_failure_leaves_no_half_event_behind() {
    let stream = [DELTA, DELTA].concat();
    for cut in 0..=stream.len() {
        let (mut out, mut tap) = pass(&[&stream.as_bytes()[..cut]], TapOptions::default());
        out.extend(tap.fail("it \"died\"", "upstream_error", 502));
        let out = String::from_utf8(out).unwrap();
        let events: Vec<_> = out
            .split("\n\n")
            .filter_map(|event| event.trim().strip_prefix("data: "))
            .collect();
        assert_eq!(events.last(), Some(&"[DONE]"));
        let error: serde_json::Value = serde_json::from_str(events[events.len() - 2]).unwrap();
        assert_eq!(error["error"]["message"], "it \"died\"");
        assert_eq!(
            error["id"],
            if cut > 150 {
                "chatcmpl-1"
            } else {
                error["id"].as_str().unwrap()
            }
        );
        let delivered = events.iter().filter(|event| event.contains(" token")).count();
        assert_eq!(tap.delivered().0, u64::try_from(delivered).unwrap(), "cut at {cut}");
    }
}

#[test]
fn a_failure_after_done_only_closes_its_event() {
    for (stream, closing) in [("data: [DONE]\n", "\n"), (DONE, "")] {
        let (_, mut tap) = pass(&[DELTA.as_bytes(), stream.as_bytes()], TapOptions::default());
        assert_eq!(tap.fail("it died", "upstream_error", 502), closing.as_bytes());
    }
}

#[test]
fn done_is_the_end_whatever_its_event_is_named() {
    let named = "event: error\ndata: [DONE]\n\n";
    let named_late = "data: [DONE]\n\0\nevent: error\n\n";
    for stream in [named, named_late] {
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = pass(&[head, tail], TapOptions::default());
            assert_eq!(out, stream.as_bytes(), "cut at {cut}");
            assert!(tap.done() && !tap.error_event());
        }
    }
}

#[test]
fn a_name_that_comes_after_the_data_changes_nothing_however_it_is_cut() {
    let stream = format!("{}\nevent: error\n\n", DELTA.trim_end());
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = pass(&[head, tail], TapOptions::default());
        assert_eq!(out, stream.as_bytes(), "cut at {cut}");
        assert_eq!((tap.error_event(), tap.delivered().0), (false, 1));
    }
}

#[test]
fn a_complete_line_is_not_held_for_its_blank_line() {
    let (line, _) = DELTA.split_at(DELTA.len() - 1);
    let (out, tap) = pass(&[line.as_bytes()], drop_usage());
    assert_eq!((out, tap.delivered().0), (line.as_bytes().to_vec(), 1));
    let (out, _) = pass(&[b": keep-alive\n"], drop_usage());
    assert_eq!(out, b": keep-alive\n");
}

#[test]
fn all_text_counts_and_the_same_reasoning_once() {
    let stream = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"reasoning":"one two","reasoning_content":"one two","reasoning_details":"#,
        r#"[{"type":"reasoning.text","text":"one two"}]}},{"index":1,"delta":{"content":"a\u00e9\n\"","refusal":"no"}},"#,
        r#"{"index":2,"delta":{"tool_calls":[{"index":0,"function":{"name":"get","arguments":"{\"content\":\"x"}}]}}]}"#,
        "\n\n"
    );
    let (_, tap) = pass(&[stream.as_bytes()], TapOptions::default());
    let expected: u64 = ["one two", "aé\n\"", "no", "get", "{\"content\":\"x"]
        .iter()
        .map(|text| tokens::count(text, Encoding::O200k))
        .sum();
    assert_eq!(tap.delivered().0, expected);
}

#[test]
fn a_whole_answer() {
    let answer = concat!(
        r#"{"id":"x","choices":[{"message":{"role":"assistant","content":"hello there \"usage\": {"},"#,
        r#""finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9}}"#
    );
    let (head, tail) = answer.split_at(60);
    let mut tap = WholeTap::new(Encoding::O200k);
    tap.chunk(head.as_bytes());
    assert!(!tap.complete());
    tap.chunk(tail.as_bytes());
    assert!(tap.complete() && !tap.is_error());
    tap.end();
    assert_eq!(
        tap.reported().map(|usage| (usage.prompt.0, usage.completion.0)),
        Some((5, 4))
    );
    let mut tap = WholeTap::new(Encoding::O200k);
    tap.chunk(&answer.as_bytes()[..answer.find(",\"usage\":{\"prompt").unwrap()]);
    tap.end();
    assert_eq!(
        tap.delivered().0,
        tokens::count("hello there \"usage\": {", Encoding::O200k)
    );
}
