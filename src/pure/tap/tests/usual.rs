//! Streams of usual events, which take the short way, against the oracle.

use proptest::prelude::*;

use super::oracle::{outcome, readable};
use super::streams::{both, run};
use super::*;
use crate::pure::tap::accumulator::Reading;
use crate::pure::tap::fast_path::FastPath;
use crate::pure::tap::scan::Scanner;

/// What stands around the text of an event (and of padding, at `~`).
const SHAPES: [&str; 6] = [
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}]}"#,
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}],"usage":null,"obfuscation":"~"}"#,
    r#"data:{"obfuscation":"~","choices":[{"delta":{"content":"","reasoning_content":"@"}}]}"#,
    r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]},"index":1}],"note":"\"content\":\"@"}"#,
    r#"data: {"choices":[{"delta":{"content":"@"},"finish_reason":"stop"}]}"#,
    r#"data: {"choices":[{"delta":{"content":"@"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => " ?[a-zA-Z.,]{0,6}".prop_map(String::into_bytes),
        1 => "[é漢😀a]{0,4}".prop_map(String::into_bytes),
        1 => prop::sample::select(vec![
            &b"\\n"[..], b"\\\"", b"\\u00e9", b"\\", b"\"", b"\n", b"\r", b"\n\n", b"\t", b"\xFF", b"\xE6\xBC", b"\"}],\"error\":\"x",
            b"\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6},\"z\":[{\"y\":{\"x\":\"",
        ]).prop_map(<[u8]>::to_vec),
    ]
}

fn write(shape: &str, text: &[u8], padding: &[u8], end: &str) -> Vec<u8> {
    let mut event = Vec::new();
    for byte in shape.bytes() {
        match byte {
            b'@' => event.extend(text),
            b'~' => event.extend(padding),
            _ => event.push(byte),
        }
    }
    event.extend(end.as_bytes());
    event
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let end =
        prop_oneof![5 => Just("\n\n"), 1 => Just("\r\n\r\n"), 1 => Just("\r\r"), 1 => Just("\n"), 1 => Just("\r\n\n")];
    let shape = prop_oneof![3 => 0..2usize, 1 => 0..SHAPES.len()];
    let event =
        (shape, text(), text(), end).prop_map(|(shape, text, padding, end)| write(SHAPES[shape], &text, &padding, end));
    proptest::collection::vec(event, 1..10).prop_map(|events| events.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn usual_events(stream in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let whole: Vec<_> = (0..stream.len()).filter(|at| stream[*at..].starts_with(b"data")).collect();
        let bytewise: Vec<_> = (0..stream.len()).collect();
        for options in both() {
            // The way that never meets a whole event is the long one.
            let long = run(&stream, &bytewise, options);
            prop_assert_eq!(&run(&stream, &[], options), &long);
            prop_assert_eq!(&run(&stream, &cuts, options), &long);
            prop_assert_eq!(&run(&stream, &whole, options), &long);
            if readable(&stream) {
                prop_assert_eq!(outcome(&stream, options), long);
            }
        }
    }
}

/// Before a later event than the first, a byte order mark is part of a field's name, so that no client reads the event.
#[test]
fn a_byte_order_mark_is_one_at_the_start_only() {
    let marked = format!("\u{FEFF}{DELTA}");
    let stream = [marked.as_str(), &marked, DELTA, &marked].concat();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = pass(&[head, tail], TapOptions::default());
        assert_eq!(
            (out.as_slice(), tap.delivered().0),
            (stream.as_bytes(), 2),
            "cut at {cut}"
        );
    }
}

/// To have a tariff takes time, and most pieces of a stream are usual events.
#[test]
fn a_piece_of_usual_events_asks_for_no_tariff() {
    for first in [DELTA.to_owned(), [STOP, DELTA].concat()] {
        let mut tap = StreamTap::new(TapOptions::default());
        let mut asks = |piece: &str| {
            let mut is_asked = false;
            tap.billed_chunk(&Bytes::copy_from_slice(piece.as_bytes()), || {
                is_asked = true;
                None
            });
            is_asked
        };
        assert!(asks(&first), "what is usual is not known before {first}");
        assert!(!asks(DELTA) && !asks(&[DELTA, DELTA].concat()), "after {first}");
        assert!(asks(STOP), "it is not usual");
    }
}

/// The fast path of an event of `shape`.
fn fast_path(shape: &str) -> FastPath {
    let event = write(shape, b"text", b"pad", "\n\n");
    let mut reading = Reading::new(Encoding::O200k, None, Default::default());
    let data_at = event.iter().position(|byte| *byte == b'{').unwrap();
    Scanner::new().feed(&event[data_at..event.len() - 2], &mut reading);
    let mut fast_path = FastPath::default();
    fast_path.cut(&event, data_at, &reading);
    fast_path
}

#[test]
fn a_fast_path_finds_the_like_and_nothing_else() {
    for shape in &SHAPES[..4] {
        let fast_path = fast_path(shape);
        let found = |text: &[u8], padding: &[u8]| {
            let event = [write(shape, text, padding, "\n\n"), b"data: next".to_vec()].concat();
            let plain = fast_path.find(&event).map(|(text, rest)| (text.to_vec(), rest));
            let escaped = fast_path.find_escaped(&event);
            assert!(plain.is_none() || escaped.is_none() || plain == escaped);
            plain.or(escaped).map(|(text, rest)| (text, rest.to_vec()))
        };
        let next = b"data: next".to_vec();
        let has_note = shape.contains("note");
        assert_eq!(found(b" token", b"x").is_some(), !has_note, "{shape}");
        if !has_note {
            assert_eq!(
                found("é".as_bytes(), b""),
                Some(("é".as_bytes().to_vec(), next.clone()))
            );
            assert_eq!(found(b"", b"abcdef"), Some((Vec::new(), next)));
        }
        if !has_note {
            assert_eq!(found(b"\\n\\u00e9\\\\", b"x").unwrap().0, "\né\\".as_bytes());
            assert_eq!(found(b"\\x", b""), None);
            assert_eq!(found(b"\\ud800", b""), None);
        }
        if shape.contains('~') {
            assert_eq!(found(b"text", b"\\n"), None);
        }
        for odd in [&b"\""[..], b"\n", b"\r", b"\t", b"\\", b"x\",\"error\":\"y"] {
            assert_eq!(found(odd, b"x"), None, "{odd:?}");
        }
        assert_eq!(fast_path.find(&write(shape, b"text", b"pad", "\n")), None);
        assert_eq!(fast_path.find(b""), None);
    }
    for shape in &SHAPES[4..] {
        assert_eq!(
            fast_path(shape).find(&write(shape, b"text", b"", "\n\n")),
            None,
            "{shape}"
        );
    }
}
