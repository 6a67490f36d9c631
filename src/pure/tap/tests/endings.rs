//! Ends that may be those of an upstream that died.

use super::*;

/// What follows `stream` at its end, and whether it died.
#[track_caller]
fn end(stream: &str, framing: Framing) -> (String, bool) {
    end_of(stream, framing, TapOptions::default())
}

/// The same of one that is tapped so.
#[track_caller]
fn end_of(stream: &str, framing: Framing, options: TapOptions) -> (String, bool) {
    let (_, mut tap) = pass(&[stream.as_bytes()], options);
    let tail = String::from_utf8(tap.end_or_fail(framing, "it died", "upstream_error", 502).to_vec()).unwrap();
    assert_eq!((tap.end(), tap.fail("x", "y", 502)), (Bytes::new(), Bytes::new()));
    let failed = tail.contains("it died");
    assert_eq!(failed, tap.died(), "{tail}");
    assert!(tail.is_empty() || tail.ends_with(DONE) || tail == "\n", "{tail}");
    (tail, failed)
}

#[test]
fn a_finish_reason_or_done_is_an_end_in_every_framing() {
    for framing in [Framing::Framed, Framing::UntilClosed] {
        assert_eq!(end(&[DELTA, STOP].concat(), framing), (DONE.to_owned(), false));
        assert_eq!(end(&[DELTA, STOP, DONE].concat(), framing), (String::new(), false));
        assert_eq!(end(&[DELTA, DONE].concat(), framing), (String::new(), false));
        assert_eq!(
            end(&[DELTA, DONE.trim_end()].concat(), framing),
            ("data: [DONE]\n\n".to_owned(), false)
        );
        let open = [DELTA, STOP.trim_end()].concat();
        assert_eq!(end(&open, framing), (format!("{}\n\n{DONE}", STOP.trim_end()), false));
    }
}

#[test]
fn an_event_that_was_cut_off_after_the_finish_is_left_out() {
    for framing in [Framing::Framed, Framing::UntilClosed] {
        let stream = [DELTA, STOP, &USAGE[..40]].concat();
        assert_eq!(end(&stream, framing), (DONE.to_owned(), false));
    }
}

#[test]
fn without_either_the_framing_tells_whether_it_was_all() {
    assert_eq!(end(DELTA, Framing::Framed), (DONE.to_owned(), false));
    assert!(end(DELTA, Framing::UntilClosed).1);
    assert_eq!(end(USAGE, Framing::Framed), (DONE.to_owned(), false));
    assert!(end(USAGE, Framing::UntilClosed).1);
}

/// More are not told apart: the first index beyond those is no other choice.
#[test]
fn the_choice_of_an_index_that_no_answer_has_ends_nothing() {
    let stop = |index: u64| {
        format!("data: {{\"choices\":[{{\"index\":{index},\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n")
    };
    let two = TapOptions {
        choices: 2,
        ..TapOptions::default()
    };
    for (index, is_finished) in [(1, true), (127, true), (128, false), (u64::MAX, false)] {
        let (_, tap) = pass(&[stop(0).as_bytes(), stop(index).as_bytes()], two);
        assert_eq!(tap.finished(), is_finished, "{index}");
    }
}

#[test]
fn an_answer_of_two_choices_is_complete_once_both_have_ended() {
    const SECOND_DELTA: &str = "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\" token\"}}]}\n\n";
    const SECOND_STOP: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\",\"delta\":{},\"index\":1}]}\n\n";
    let both = concat!(
        r#"data: {"choices":[{"index":1,"delta":{},"finish_reason":"stop"},"#,
        r#"{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "\n\n"
    );
    let two = TapOptions {
        choices: 2,
        ..TapOptions::default()
    };
    let cut_off = &SECOND_STOP[..SECOND_STOP.len() - "}\n\n".len()];
    for (events, died) in [
        ([DELTA, STOP, SECOND_DELTA, ""], true),
        ([DELTA, STOP, SECOND_DELTA, STOP], true),
        ([DELTA, STOP, SECOND_DELTA, cut_off], true),
        ([DELTA, STOP, SECOND_DELTA, SECOND_STOP], false),
        ([DELTA, SECOND_STOP, DELTA, STOP], false),
        ([DELTA, SECOND_DELTA, both, ""], false),
        // Fewer than were asked for.
        ([DELTA, STOP, DONE, ""], false),
    ] {
        assert_eq!(
            end_of(&events.concat(), Framing::UntilClosed, two).1,
            died,
            "{events:?}"
        );
    }
    for events in [[DELTA, STOP, SECOND_DELTA], [DELTA, STOP, STOP]] {
        assert_eq!(end_of(&events.concat(), Framing::Framed, two), (DONE.to_owned(), false));
    }
    // Of one choice the first finish is the end, whatever its index.
    assert!(!end(&[DELTA, SECOND_STOP].concat(), Framing::UntilClosed).1);
}

#[test]
fn a_stream_that_stops_within_an_event_has_died() {
    for framing in [Framing::Framed, Framing::UntilClosed] {
        for cut in DELTA.find('{').unwrap() + 1..DELTA.trim_end().len() {
            let (tail, died) = end(&[DELTA, &DELTA[..cut]].concat(), framing);
            assert!(died && tail.starts_with("data: {\"id\""), "cut at {cut}: {tail}");
        }
    }
}

#[test]
fn a_stream_that_said_nothing_has_died() {
    for stream in [
        "",
        ": hello\n\n",
        "<html>\n<body>\n",
        "{\"error\":{\"message\":\"x\"}}\n",
    ] {
        for framing in [Framing::Framed, Framing::UntilClosed] {
            assert!(end(stream, framing).1, "{stream:?}");
        }
    }
}

/// A chunk that ended with the first line had let it pass, so one that ends later must.
#[test]
fn an_event_whose_second_line_is_cut_off_passes_however_it_is_cut() {
    let stream = format!("{}\ndata: x", DELTA.trim_end());
    for framing in [Framing::Framed, Framing::UntilClosed] {
        let ended = |chunks: &[&[u8]]| {
            let (mut out, mut tap) = pass(chunks, TapOptions::default());
            out.extend(tap.end_or_fail(framing, "it died", "upstream_error", 502));
            (String::from_utf8(out).unwrap(), tap.delivered().0, tap.died())
        };
        let whole = ended(&[stream.as_bytes()]);
        assert!(whole.0.starts_with(&stream));
        assert_eq!((whole.1, whole.2), (1, framing == Framing::UntilClosed));
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            assert_eq!(ended(&[head, tail]), whole, "cut at {cut}, {framing:?}");
        }
    }
}

#[test]
fn only_done_itself_is_the_end_and_spaces_before_it_are_nothing() {
    for (data, is_end) in [
        ("[DONE]", true),
        ("  [DONE]", true),
        ("x[DONE]", false),
        ("[DO NE]", false),
        (r#"{"choices":[{"delta":{"content":"[DONE]"}}]}"#, false),
    ] {
        let stream = format!("data: {data}\n\n");
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = pass(&[head, tail], TapOptions::default());
            assert_eq!(out, stream.as_bytes(), "{data} cut at {cut}");
            assert_eq!(tap.done(), is_end, "{data} cut at {cut}");
        }
    }
}

#[test]
fn a_failure_after_a_whole_line_adds_no_more_than_its_blank_line() {
    let (line, _) = DELTA.split_at(DELTA.len() - 1);
    let (mut out, mut tap) = pass(&[line.as_bytes()], TapOptions::default());
    out.extend(tap.fail("it died", "upstream_error", 502));
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with(&[DELTA, "data: {"].concat()), "{out}");
}

/// A stream of so many deltas, with the tap after it.
fn deltas(count: usize, options: TapOptions) -> StreamTap {
    let chunks = vec![DELTA.as_bytes(); count];
    pass(&chunks, options).1
}

#[test]
fn a_stream_that_passed_its_clients_maximum_ends_for_the_reason_length() {
    let mut tap = deltas(3, TapOptions::default());
    let tail = String::from_utf8(tap.end_as_length(2, None).to_vec()).unwrap();
    let (event, done) = tail.split_once("\n\n").unwrap();
    assert_eq!(done, "data: [DONE]\n\n");
    let event: serde_json::Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    let delta: serde_json::Value = serde_json::from_str(DELTA.trim_end().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&event["id"], &event["model"]), (&delta["id"], &delta["model"]));
    assert_eq!(
        event["choices"],
        serde_json::json!([
            { "index": 0, "delta": {}, "finish_reason": "length" },
            { "index": 1, "delta": {}, "finish_reason": "length" },
        ])
    );
    assert!(tap.finished() && !tap.error_event() && !tap.died());
    assert_eq!(
        tap.chunk(&Bytes::from_static(DELTA.as_bytes())),
        Forward::Replace(Bytes::new())
    );
    assert_eq!(
        (tap.end(), tap.end_as_length(1, None), tap.delivered().0),
        (Bytes::new(), Bytes::new(), 3)
    );
}

#[test]
fn a_stream_whose_credit_is_used_up_ends_with_one_error_event() {
    let mut tap = deltas(2, TapOptions::default());
    let tail = String::from_utf8(tap.end_without_credit(None).to_vec()).unwrap();
    assert!(
        tail.contains("\"code\":402") && tail.contains("\"type\":\"insufficient_credits\""),
        "{tail}"
    );
    assert!(
        tail.ends_with("\n\ndata: [DONE]\n\n") && tail.matches("data: ").count() == 2,
        "{tail}"
    );
    assert_eq!(
        (tap.end_without_credit(None), tap.end(), tap.delivered().0),
        (Bytes::new(), Bytes::new(), 2)
    );
}

#[test]
fn an_ending_closes_an_event_that_has_partly_passed() {
    let long = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}", "a".repeat(100));
    let options = TapOptions {
        hold_bytes_max: 10,
        ..TapOptions::default()
    };
    for end in [
        |tap: &mut StreamTap| tap.end_as_length(1, None),
        |tap: &mut StreamTap| tap.end_without_credit(None),
    ] {
        let (mut out, mut tap) = pass(&[long.as_bytes()], options);
        out.extend(end(&mut tap));
        let out = String::from_utf8(out).unwrap();
        let events: Vec<&str> = out.trim_end().split("\n\n").collect();
        assert_eq!(events.len(), 3, "{out}");
        for event in &events[..2] {
            serde_json::from_str::<serde_json::Value>(event.strip_prefix("data: ").unwrap()).unwrap();
        }
    }
}

#[test]
fn the_length_of_the_delivered_text_is_known_while_it_runs() {
    let text = deltas(3, TapOptions::default()).delivered_text();
    assert_eq!(text.tokens.0, 3);
    let tap = deltas(1, TapOptions::default());
    assert_eq!(text.bytes, 3 * tap.delivered_text().bytes);
    let escaped = r#"data: {"choices":[{"delta":{"content":"\u00e9\n"}}]}"#.to_owned() + "\n\n";
    for cut in 0..=escaped.len() {
        let (head, tail) = escaped.as_bytes().split_at(cut);
        assert_eq!(
            pass(&[head, tail], TapOptions::default()).1.delivered_text().bytes,
            3,
            "cut at {cut}"
        );
    }
}

#[test]
fn a_report_before_the_text_is_not_what_the_answer_used() {
    let reported = |stream: &[&str], max: Option<u64>| {
        let options = TapOptions {
            completion_max: max,
            ..TapOptions::default()
        };
        let chunks: Vec<&[u8]> = stream.iter().map(|event| event.as_bytes()).collect();
        let tap = pass(&chunks, options).1;
        (tap.reported().map(|usage| usage.completion.0), tap.is_implausible())
    };
    let usage = |completion: u64| {
        format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{completion}}}}}\n\n")
    };
    assert_eq!(
        reported(&[&usage(0), DELTA, DELTA, DELTA, STOP, DONE], None),
        (None, true)
    );
    // Its client left before the last report came.
    assert_eq!(reported(&[&usage(0), DELTA, DELTA, STOP], None), (None, false));
    assert_eq!(reported(&[DELTA, DELTA, STOP, &usage(0), DONE], None), (Some(0), false));
    assert_eq!(
        reported(&[DELTA, DELTA, &usage(2), DELTA, STOP, DONE], None),
        (Some(3), false)
    );
    assert_eq!(reported(&[DELTA, STOP, &usage(10), DONE], Some(10)), (Some(10), false));
    assert_eq!(reported(&[DELTA, STOP, &usage(11), DONE], Some(10)), (None, true));
    assert_eq!(
        reported(&[&usage(11), DELTA, STOP, &usage(1), DONE], Some(10)),
        (Some(1), true)
    );
}

#[test]
fn a_report_may_be_behind_the_text_of_an_answer_without_its_end() {
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    for (end, completion) in [("", 3), (STOP, 1), (DONE, 1)] {
        let stream = [DELTA, DELTA, DELTA, report, end].concat();
        let (_, tap) = pass(&[stream.as_bytes()], TapOptions::default());
        assert_eq!(
            tap.reported_at_end().map(|usage| usage.completion.0),
            Some(completion),
            "ends with {end:?}"
        );
    }
}

#[test]
fn a_report_is_believed_up_to_a_maximum_that_was_raised() {
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":15}}\n\n";
    for (raised_to, believed) in [(None, None), (Some(14), None), (Some(15), Some(15))] {
        let mut tap = StreamTap::new(TapOptions {
            completion_max: Some(10),
            ..TapOptions::default()
        });
        if let Some(completion_max) = raised_to {
            tap.extend(completion_max);
        }
        tap.chunk(&Bytes::from_static(report.as_bytes()));
        let reported = tap.reported().map(|usage| usage.completion.0);
        assert_eq!(
            (reported, tap.is_implausible()),
            (believed, believed.is_none()),
            "{raised_to:?}"
        );
    }
}

#[test]
fn a_whole_answer_whose_report_cannot_be_is_counted() {
    let answer =
        r#"{"choices":[{"message":{"content":"Hi there"}}],"usage":{"prompt_tokens":9,"completion_tokens":11}}"#;
    for (max, reported, delivered) in [(Some(11), Some(11), 0), (Some(10), None, 2)] {
        let mut tap = WholeTap::within(Encoding::O200k, max, Default::default());
        tap.chunk(answer.as_bytes());
        tap.end();
        assert_eq!(tap.reported().map(|usage| usage.completion.0), reported);
        assert_eq!(
            (tap.delivered().0, tap.is_implausible()),
            (delivered, reported.is_none())
        );
    }
}
