//! Events of which some passes before the whole of them has come.

use super::costs::{CATALOGUE, Call};
use super::*;

/// Whatever comes passes.
fn hold_nothing() -> TapOptions {
    TapOptions {
        hold_bytes_max: 0,
        ..TapOptions::default()
    }
}

#[test]
fn a_byte_of_an_event_that_passes_as_it_comes_is_not_copied() {
    let mut tap = StreamTap::new(hold_nothing());
    for byte in r#"data: {"choices":[{"delta":{"content":"Hi"#.bytes() {
        assert_eq!(tap.chunk(&Bytes::copy_from_slice(&[byte])), Forward::Unchanged);
    }
}

/// Were it sent, the event could not be closed when the stream dies there.
#[test]
fn half_a_character_waits_for_its_other_half_however_it_is_cut() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a😀é漢\"}}]}\n\n";
    for step in 1..=4 {
        let (mut tap, mut passed) = (StreamTap::new(hold_nothing()), Vec::new());
        for chunk in stream.as_bytes().chunks(step) {
            match tap.chunk(&Bytes::copy_from_slice(chunk)) {
                Forward::Unchanged => passed.extend_from_slice(chunk),
                Forward::Replace(bytes) => passed.extend_from_slice(&bytes),
            }
            assert!(std::str::from_utf8(&passed).is_ok(), "by {step}: {passed:?}");
        }
        assert_eq!(passed, stream.as_bytes(), "by {step}");
    }
}

#[test]
fn an_event_waits_for_its_blank_line_only_where_its_usage_may_be_told_otherwise() {
    let call = Call::of(CATALOGUE);
    for (event, is_told, waits) in [
        (DELTA, false, false),
        (DELTA, true, false),
        (USAGE, false, false),
        (USAGE, true, true),
    ] {
        let (line, _) = event.split_at(event.len() - 1);
        let mut tap = StreamTap::new(TapOptions::default());
        let piece = Bytes::from_static(line.as_bytes());
        let passes = tap.billed_chunk(&piece, || is_told.then(|| call.tariff()));
        let expected = if waits {
            Forward::Replace(Bytes::new())
        } else {
            Forward::Unchanged
        };
        assert_eq!(passes, expected, "is told: {is_told}, {event}");
    }
}

#[test]
fn as_much_of_an_event_waits_as_64_kib_where_nothing_else_is_said() {
    assert_eq!(TapOptions::default().hold_bytes_max, 65_536);
}

/// An event of more than what waits, such as a tool call that comes at once: its client may leave within it.
#[test]
fn what_has_passed_of_an_event_is_delivered_though_it_has_no_end() {
    let words = "word ".repeat(40_000);
    let open = format!("{DELTA}data: {{\"choices\":[{{\"delta\":{{\"content\":\"{words}");
    let mut tap = StreamTap::new(TapOptions::default());
    for piece in open.as_bytes().chunks(16 << 10) {
        tap.chunk(&Bytes::copy_from_slice(piece));
    }
    // It is held to its maximum, and stands in the journal, as it passes.
    assert!(tap.delivered().0 > 25_000, "{:?}", tap.delivered());
    assert!(tap.delivered_to_date().0 > 39_700, "{:?}", tap.delivered_to_date());
    assert!(tap.delivered_text().bytes > 199_000, "{:?}", tap.delivered_text());
    tap.stop();
    let stopped = tap.delivered().0;
    assert!((40_000..40_010).contains(&stopped), "{stopped}");
    assert_eq!(tap.delivered_to_date().0, stopped);
}

/// The upstream dies there: the event is closed, and its client has read it.
#[test]
fn the_text_of_an_event_that_is_closed_counts_to_its_last_word() {
    let mut tap = StreamTap::new(hold_nothing());
    tap.chunk(&Bytes::from_static(
        br#"data: {"choices":[{"delta":{"content":"one two three"#,
    ));
    tap.fail("it died", "upstream_error", 502);
    assert_eq!(tap.delivered().0, 3);
}

#[test]
fn what_was_counted_as_it_passed_counts_once() {
    let words = "word ".repeat(40_000);
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{words}\"}}}}]}}\n\n");
    let count = |options: TapOptions, piece: usize| {
        let mut tap = StreamTap::new(options);
        for piece in event.as_bytes().chunks(piece) {
            tap.chunk(&Bytes::copy_from_slice(piece));
        }
        (tap.delivered(), tap.delivered_to_date())
    };
    let whole = count(TapOptions::default(), event.len());
    assert_eq!(whole.0, whole.1);
    for (options, piece) in [(TapOptions::default(), 5_000), (hold_nothing(), 1_500)] {
        assert_eq!(count(options, piece), whole, "{piece}");
    }
}
