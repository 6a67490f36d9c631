//! What providers report under their own names, and what else an answer says of itself.

use super::*;
use crate::pure::usage::{Reports, TokenKinds};

fn tap(answer: &str) -> WholeTap {
    let mut tap = WholeTap::new(Encoding::O200k);
    tap.chunk(answer.as_bytes());
    tap.end();
    tap
}

fn sides(tap: &WholeTap) -> Option<(u64, u64)> {
    tap.reported().map(|usage| (usage.prompt.0, usage.completion.0))
}

#[test]
fn a_report_is_read_under_the_names_of_every_provider() {
    let none = TokenKinds::default();
    for (usage, expected, kinds) in [
        (
            r#"{"input_tokens":10,"output_tokens":5,"cache_read_input_tokens":20,"cache_creation_input_tokens":30}"#,
            Some((60, 5)),
            TokenKinds {
                cache_read: 20,
                cache_write: 30,
                ..none
            },
        ),
        (
            r#"{"input_tokens":10,"output_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":6}}"#,
            Some((20, 5)),
            TokenKinds {
                cache_write: 4,
                cache_write_1h: 6,
                ..none
            },
        ),
        (
            r#"{"input_tokens":10,"output_tokens":5,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":6}}"#,
            Some((40, 5)),
            TokenKinds {
                cache_write: 30,
                ..none
            },
        ),
        (
            r#"{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":11,"cache_write_tokens":12,"audio_tokens":13,"image_tokens":14},"completion_tokens_details":{"reasoning_tokens":15,"audio_tokens":16,"image_tokens":17}}"#,
            Some((100, 50)),
            TokenKinds {
                cache_read: 11,
                cache_write: 12,
                audio: 13,
                image: 14,
                reasoning: 15,
                audio_output: 16,
                image_output: 17,
                ..none
            },
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":5,"cached_tokens":6}"#,
            Some((9, 5)),
            TokenKinds { cache_read: 6, ..none },
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":5,"input_tokens":1,"output_tokens":4,"prompt_cache_hit_tokens":7}"#,
            Some((9, 5)),
            TokenKinds { cache_read: 7, ..none },
        ),
        // Sound and images that do not fit beside each other are not believed.
        (
            r#"{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"audio_tokens":60,"image_tokens":40}}"#,
            Some((100, 1)),
            TokenKinds {
                audio: 60,
                image: 40,
                ..none
            },
        ),
        (
            r#"{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"audio_tokens":60,"image_tokens":41}}"#,
            Some((100, 1)),
            none,
        ),
        (
            r#"{"input_tokens":4294967295,"output_tokens":1,"cache_read_input_tokens":1}"#,
            Some((4_294_967_296, 1)),
            TokenKinds { cache_read: 1, ..none },
        ),
        (
            r#"{"input_tokens":4294967296,"output_tokens":1,"cache_read_input_tokens":1}"#,
            None,
            none,
        ),
        (
            r#"{"input_tokens":0,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":4294967296,"ephemeral_1h_input_tokens":1}}"#,
            None,
            none,
        ),
        (
            r#"{"input_tokens":1,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":"x"}}"#,
            None,
            none,
        ),
        (
            r#"{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-1}}"#,
            None,
            none,
        ),
        (
            r#"{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"accepted_prediction_tokens":2}}"#,
            None,
            none,
        ),
        (
            r#"{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"rejected_prediction_tokens":2}}"#,
            None,
            none,
        ),
    ] {
        let tap = tap(&format!(r#"{{"choices":[],"usage":{usage}}}"#));
        assert_eq!(sides(&tap), expected, "{usage}");
        assert_eq!(tap.reports().rejected(), u64::from(expected.is_none()), "{usage}");
        let reported = tap.reported();
        assert_eq!(tap.reports().kinds_of(reported), kinds, "{usage}");
    }
}

#[test]
fn of_one_side_alone_the_kinds_are_known() {
    let tap = tap(
        r#"{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":7},"completion_tokens_details":{"reasoning_tokens":3}}}"#,
    );
    assert_eq!(tap.reported(), None);
    let kinds = TokenKinds {
        cache_read: 7,
        ..TokenKinds::default()
    };
    assert_eq!(tap.reports().kinds_of(None), kinds);
    assert_eq!(Reports::default().kinds_of(None), TokenKinds::default());
}

#[test]
fn a_report_counts_only_where_providers_put_it() {
    let usage = r#"{"prompt_tokens":9,"completion_tokens":5}"#;
    for (answer, expected) in [
        (format!(r#"{{"choices":[{{"usage":{usage}}}]}}"#), Some((9, 5))),
        (
            format!(r#"{{"choices":[],"x_groq":{{"usage":{usage}}}}}"#),
            Some((9, 5)),
        ),
        (format!(r#"{{"choices":[],"x_groq":{{"other":{usage}}}}}"#), None),
        // Without choices it has no completion, unless it is an error.
        (r#"{"usage":{"prompt_tokens":8}}"#.to_owned(), Some((8, 0))),
        (r#"{"choices":{},"usage":{"prompt_tokens":8}}"#.to_owned(), Some((8, 0))),
        (r#"{"choices":[],"usage":{"prompt_tokens":8}}"#.to_owned(), None),
        (
            r#"{"error":{"message":"m"},"usage":{"prompt_tokens":8}}"#.to_owned(),
            None,
        ),
    ] {
        assert_eq!(sides(&tap(&answer)), expected, "{answer}");
    }
}

#[test]
fn the_last_tier_that_an_answer_names_is_the_one_that_served_it() {
    let (longest, too_long) = ("t".repeat(32), "t".repeat(33));
    // No catalogue's name of a tier has this mark: it is one without prices.
    let cut = format!("{longest}\u{2026}");
    for (members, tier) in [
        (String::new(), None),
        (r#","service_tier":"flex""#.to_owned(), Some("flex")),
        (
            r#","service_tier":"flex","usage":{"service_tier":"priority"}"#.to_owned(),
            Some("priority"),
        ),
        (
            r#","service_tier":"flex","usage":{"service_tier":"flex"}"#.to_owned(),
            Some("flex"),
        ),
        (
            r#","service_tier":"flex","usage":{"service_tier":""}"#.to_owned(),
            Some("flex"),
        ),
        (r#","service_tier":"""#.to_owned(), None),
        (r#","service_tier":null"#.to_owned(), None),
        (format!(r#","service_tier":"{longest}""#), Some(longest.as_str())),
        (format!(r#","service_tier":"{too_long}""#), Some(cut.as_str())),
        (
            format!(r#","service_tier":"flex","usage":{{"service_tier":"{too_long}"}}"#),
            Some(cut.as_str()),
        ),
        // Longer than any text that is kept.
        (format!(r#","service_tier":"{}""#, too_long.repeat(8)), Some("\u{2026}")),
    ] {
        let answer = format!(r#"{{"choices":[]{members}}}"#);
        assert_eq!(tap(&answer).served_tier(), tier, "{answer}");
        let stream = format!("data: {answer}\n\n{DONE}");
        let (_, stream) = pass(&[stream.as_bytes()], TapOptions::default());
        assert_eq!(stream.served_tier(), tier, "{answer}");
    }
}

#[test]
fn an_answer_says_who_it_is_and_how_its_choices_ended() {
    let answer = r#"{"id":"c-1","model":"m-1","choices":[{"index":0,"finish_reason":"stop"},{"finish_reason":true},{"finish_reason":null},{"finish_reason":""}]}"#;
    let (mut whole, stream) = (tap(answer), format!("data: {answer}\n\n{DONE}"));
    let (_, mut stream) = pass(&[stream.as_bytes()], TapOptions::default());
    for said in [whole.take_said(), stream.take_said()] {
        assert_eq!((said.id.as_deref(), said.model.as_deref()), (Some("c-1"), Some("m-1")));
        assert_eq!(said.finishes.names().collect::<Vec<_>>(), ["stop", "other"]);
    }
    assert_eq!(whole.take_said().id, None, "it is said once");
}

/// What is kept of an answer has a bound: a part of an id is nobody's id.
#[test]
fn an_id_that_is_too_long_is_none() {
    for (length, is_kept) in [
        (63, true),
        (64, true),
        (65, true),
        (255, true),
        (256, true),
        (257, false),
        (5_000, false),
    ] {
        let id = "x".repeat(length);
        let answer = format!(r#"{{"id":"{id}","choices":[]}}"#);
        let stream = format!("data: {answer}\n\n{DONE}");
        let (_, mut stream) = pass(&[stream.as_bytes()], TapOptions::default());
        for said in [tap(&answer).take_said(), stream.take_said()] {
            assert_eq!(said.id, is_kept.then(|| id.clone()), "{length}");
        }
    }
}

#[test]
fn an_answer_is_an_object_once_its_last_brace_passed() {
    for (answer, is_object) in [
        ("{}", true),
        (r#" {"a":[1]} "#, true),
        (r#"{"a":[1]"#, false),
        ("[1]", false),
        ("7", false),
        ("", false),
    ] {
        assert_eq!(tap(answer).is_object(), is_object, "{answer}");
    }
}

#[test]
fn text_is_counted_wherever_a_model_can_say_it() {
    let said = "three little words";
    let tokens = tokens::count(said, Encoding::O200k);
    for (choice, counts) in [
        (r#""text":SAID"#, true),
        (r#""message":{"content":SAID}"#, true),
        (r#""message":{"refusal":SAID}"#, true),
        (r#""message":{"reasoning":SAID}"#, true),
        (r#""message":{"reasoning_content":SAID}"#, true),
        (r#""message":{"reasoning_details":[{"text":SAID}]}"#, true),
        (r#""message":{"function_call":{"arguments":SAID}}"#, true),
        (r#""message":{"tool_calls":[{"custom":{"input":SAID}}]}"#, true),
        (r#""message":{"audio":{"transcript":SAID}}"#, true),
        (r#""message":{"audio":{"data":SAID}}"#, false),
        (r#""message":{"role":SAID}"#, false),
    ] {
        let answer = format!(r#"{{"choices":[{{{choice}}}]}}"#).replace("SAID", &format!("\"{said}\""));
        let expected = if counts { tokens } else { 0 };
        assert_eq!(tap(&answer).delivered().0, expected, "{answer}");
    }
}

#[test]
fn an_escaped_text_is_counted_as_what_it_means() {
    let answer = r#"{"choices":[{"message":{"content":"a\fb\rc\n\td\b\/\u00e9\ud83d\ude00"}}]}"#;
    let expected = tokens::count("a\u{c}b\rc\n\td\u{8}/é\u{1F600}", Encoding::O200k);
    assert_eq!(tap(answer).delivered().0, expected);
}

#[test]
fn a_document_that_is_cut_anywhere_is_made_whole() {
    let document = r#"{"a":true,"b":[false,null,-1.5e3,{}],"c":"x\n\f\u00e9\ud83d\ude00\"y","\ud83d\ude00k\/":{"d":[[1],"\ud83d\ude00"]}}"#;
    let _: serde_json::Value = serde_json::from_str(document).unwrap();
    for cut in 1..=document.len() {
        let mut scanner = crate::pure::tap::scan::Scanner::new();
        let mut reading = crate::pure::tap::accumulator::Reading::new(Encoding::O200k, None, Default::default());
        scanner.feed(&document.as_bytes()[..cut], &mut reading);
        let closing = scanner.closing().unwrap();
        let whole = [&document[..cut], std::str::from_utf8(&closing).unwrap()].concat();
        let read = serde_json::from_str::<serde_json::Value>(&whole);
        assert!(read.is_ok(), "{whole}: {read:?}");
    }
}

#[test]
fn a_comment_may_stand_between_the_events_of_a_stream_that_goes_on() {
    for (stream, is_between) in [
        (String::new(), true),
        (DELTA.to_owned(), true),
        (DELTA[..20].to_owned(), false),
        (DELTA[..DELTA.len() - 1].to_owned(), false),
        ([DELTA, STOP].concat(), true),
        ([DELTA, STOP, DONE].concat(), false),
    ] {
        let (_, mut tap) = pass(&[stream.as_bytes()], TapOptions::default());
        assert_eq!(tap.is_between_events(), is_between, "{stream}");
        tap.end();
        assert!(!tap.is_between_events(), "{stream} has ended");
    }
}

#[test]
fn a_byte_order_mark_after_a_comment_is_part_of_its_line() {
    let event = "\u{FEFF}data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    for (is_commented, delivered) in [(false, 1), (true, 0)] {
        let mut tap = StreamTap::new(TapOptions::default());
        if is_commented {
            tap.commented();
        }
        tap.chunk(&Bytes::from_static(event.as_bytes()));
        assert_eq!(tap.delivered().0, delivered);
    }
}

#[test]
fn a_character_is_cut_where_its_rest_is_still_to_come() {
    for text in ["a", "é", "€", "😀", "aé", "é€", "€😀"] {
        let last = text.char_indices().last().unwrap().0;
        for cut in last..=text.len() {
            let expected = if cut == text.len() { 0 } else { cut - last };
            let head = &text.as_bytes()[..cut];
            assert_eq!(crate::pure::tap::text::cut_character(head), expected, "{head:?}");
        }
    }
    for no_lead in [&b""[..], b"\x80", b"a\x80", b"a\x80\x80\x80\x80"] {
        assert_eq!(crate::pure::tap::text::cut_character(no_lead), 0, "{no_lead:?}");
    }
}
