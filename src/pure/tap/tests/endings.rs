//! Ends that may be those of an upstream that died.

use super::*;

/// What follows `stream` at its end, and whether it died.
#[track_caller]
fn end(stream: &str, framing: Framing) -> (String, bool) {
    let (_, mut tap) = pass(&[stream.as_bytes()], TapOptions::default());
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
