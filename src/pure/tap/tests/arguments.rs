//! What tools are called with, where a provider sends it as JSON and not as a string with JSON in it.

use super::*;

/// All of it is text, though some of it looks like what the taps read elsewhere.
const OBJECT: &str =
    r#"{"city":"Pa\u0072is é", "days":[1,{"usage":{"prompt_tokens":3,"completion_tokens":1}}],"say":"\"}]","text":""}"#;
const ARRAY: &str = r#"[ "Paris", {"arguments":{"name":"x"}}, null ]"#;

/// A choice whose message calls tools by this function.
fn answer(place: &str, function: &str) -> String {
    let calls = format!(r#"[{{"index":0,"function":{function}}}]"#);
    format!(r#"{{"choices":[{{"index":0,"{place}":{{"tool_calls":{calls}}}}}]}}"#)
}

fn count(text: &str) -> u64 {
    tokens::count(text, Encoding::O200k)
}

/// Members of a function, and the texts in it.
fn functions() -> Vec<(String, Vec<&'static str>)> {
    vec![
        (format!(r#"{{"name":"f","arguments":{OBJECT}}}"#), vec!["f", OBJECT]),
        (format!(r#"{{"input": {ARRAY} ,"name":"f"}}"#), vec![ARRAY, "f"]),
        (
            format!(r#"{{"arguments":{OBJECT},"input":{ARRAY}}}"#),
            vec![OBJECT, ARRAY],
        ),
        (r#"{"arguments":{}}"#.to_owned(), vec!["{}"]),
        (r#"{"arguments":"{\"a\":1}"}"#.to_owned(), vec![r#"{"a":1}"#]),
        (r#"{"arguments":null,"name":"f"}"#.to_owned(), vec!["f"]),
        (r#"{"name":"f","arguments":true}"#.to_owned(), vec!["f", "true"]),
        (r#"{"arguments":-1.50e3 ,"input":[]}"#.to_owned(), vec!["-1.50e3", "[]"]),
    ]
}

/// Tokens of a whole answer that comes in these pieces.
fn tapped(pieces: &[&[u8]]) -> u64 {
    let mut tap = WholeTap::new(Encoding::O200k);
    pieces.iter().for_each(|piece| tap.chunk(piece));
    tap.end();
    assert!(tap.complete() && tap.reported().is_none());
    tap.delivered().0
}

#[test]
fn json_is_text_as_it_stands_wherever_a_whole_answer_is_cut() {
    for (function, texts) in functions() {
        let answer = answer("message", &function);
        let expected: u64 = texts.iter().map(|text| count(text)).sum();
        for cut in 0..=answer.len() {
            let (head, tail) = answer.as_bytes().split_at(cut);
            assert_eq!(tapped(&[head, tail]), expected, "{function}, cut at {cut}");
        }
        let bytes: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
        assert_eq!(tapped(&bytes), expected, "{function}");
    }
}

#[test]
fn json_is_text_as_it_stands_wherever_a_stream_is_cut() {
    for (function, texts) in functions() {
        let event = format!("data: {}\n\n", answer("delta", &function));
        // Twice: the second may be read by the short way.
        let stream = [&*event, &event, STOP, DONE].concat();
        let expected: u64 = texts.iter().map(|text| 2 * count(text)).sum();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = pass(&[head, tail], TapOptions::default());
            assert_eq!(out, stream.as_bytes(), "{function}, cut at {cut}");
            assert_eq!(tap.delivered().0, expected, "{function}, cut at {cut}");
            assert_eq!(usage(&tap), None, "{function}, cut at {cut}");
        }
    }
}

/// The text around the one that differs counts each time.
#[test]
fn events_that_differ_in_a_name_are_each_counted_whole() {
    let event = |name: &str| {
        let function = format!(r#"{{"name":"{name}","arguments":{OBJECT}}}"#);
        format!("data: {}\n\n", answer("delta", &function))
    };
    let (_, tap) = pass(&[event("f").as_bytes(), event("g").as_bytes()], TapOptions::default());
    assert_eq!(tap.delivered().0, count("f") + count("g") + 2 * count(OBJECT));
}

#[test]
fn json_that_stops_anywhere_counts_as_far_as_it_came() {
    let answer = answer("message", &format!(r#"{{"arguments":{OBJECT}}}"#));
    let begin = answer.find(OBJECT).unwrap();
    for end in begin + 1..=begin + OBJECT.len() {
        let mut tap = WholeTap::new(Encoding::O200k);
        tap.chunk(&answer.as_bytes()[..end]);
        tap.end();
        let came = &answer.as_bytes()[begin..end];
        let expected = tokens::count_bytes(came, Encoding::O200k);
        assert_eq!(tap.delivered().0, expected, "{}", came.len());
    }
}

/// What follows is no answer, and no text.
#[test]
fn json_that_is_broken_counts_to_where_it_breaks_however_it_is_cut() {
    let answer = answer("message", r#"{"arguments":{"a" 1,"b":"c"}}"#);
    for cut in 0..=answer.len() {
        let (head, tail) = answer.as_bytes().split_at(cut);
        let mut tap = WholeTap::new(Encoding::O200k);
        tap.chunk(head);
        tap.chunk(tail);
        tap.end();
        assert_eq!(
            (tap.is_broken(), tap.delivered().0),
            (true, count(r#"{"a" 1"#)),
            "cut at {cut}"
        );
    }
}

/// A report behind it is of all of the text.
#[test]
fn what_a_report_follows_has_the_bytes_of_the_json() {
    let answer = answer("message", &format!(r#"{{"arguments":{OBJECT}}}"#));
    let (choices, _) = answer.split_at(answer.len() - 1);
    let mut tap = WholeTap::new(Encoding::O200k);
    let report = r#","usage":{"prompt_tokens":9,"completion_tokens":40}"#;
    tap.chunk([choices, report].concat().as_bytes());
    assert!(tap.reports_all_text());
    assert_eq!(tap.reported().map(|usage| usage.completion.0), Some(40));
}
