//! What fuzzing checks, for any bytes at all. The fuzz targets are one line each; the unit tests run these too.

use bytes::Bytes;
use serde_json::Value;

use super::{Forward, HOLD_BYTES_MAX, StreamTap, TapOptions, WholeTap};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{Figure, TOKENS_MAX};

/// The first byte chooses the cut and the options, the rest is a stream: however it is cut, the same bytes pass, the
/// same is read, and what passes differs from what came only where it may.
///
/// # Panics
/// When it is not so.
pub fn fuzz_sse(input: &[u8]) {
    let Some((&choice, stream)) = input.split_first() else {
        return;
    };
    let options = TapOptions {
        drop_usage_chunk: choice & 1 == 1,
        ..TapOptions::default()
    };
    let step = usize::from(choice >> 1) % 64 + 1;
    let (whole, tap) = pass(stream, stream.len().max(1), options);
    let (cut, other) = pass(stream, step, options);
    assert_eq!(whole, cut, "the cut changes what passes");
    assert_eq!(tap.reports(), other.reports(), "the cut changes the reports");
    assert_eq!(tap.delivered(), other.delivered(), "the cut changes the count");
    assert_eq!(
        (tap.done(), tap.finished()),
        (other.done(), other.finished()),
        "the cut changes the ending"
    );
    assert_eq!(
        (tap.error_event(), tap.error_code()),
        (other.error_event(), other.error_code())
    );
    if !options.drop_usage_chunk && !tap.error_event() {
        assert!(
            whole.starts_with(stream.get(..HOLD_BYTES_MAX).unwrap_or(stream)),
            "bytes are lost"
        );
        assert!(whole.len() <= stream.len() + 16, "bytes are added");
    }
    let mut failing = StreamTap::new(options);
    let mut out = collect(&mut failing, stream, step);
    out.extend(failing.fail("gone", "upstream_error", 502));
    assert!(
        failing.done() || out.ends_with(b"data: [DONE]\n\n"),
        "a stream has no end"
    );
}

/// The first byte chooses the cut, the rest is a whole answer: the scanner agrees with `serde_json` about its usage,
/// and takes whatever `serde_json` takes.
///
/// # Panics
/// When it is not so.
pub fn fuzz_usage(input: &[u8]) {
    let Some((&choice, answer)) = input.split_first() else {
        return;
    };
    let mut whole = WholeTap::new(Encoding::O200k);
    whole.chunk(answer);
    whole.end();
    let mut cut = WholeTap::new(Encoding::O200k);
    answer
        .chunks(usize::from(choice) % 64 + 1)
        .for_each(|chunk| cut.chunk(chunk));
    cut.end();
    assert_eq!(whole.reports(), cut.reports(), "the cut changes the reports");
    assert_eq!((whole.is_error(), whole.complete()), (cut.is_error(), cut.complete()));
    assert_eq!(whole.delivered(), cut.delivered(), "the cut changes the count");
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(answer) else {
        return;
    };
    assert!(whole.complete(), "a valid document is not taken");
    // A tree keeps the last of a key's values, the scanner sees each.
    let once = |name: &str| memchr::memmem::find_iter(answer, name).count() <= 1;
    if answer.contains(&b'\\') || !["usage", "_tokens\"", "choices"].iter().all(|name| once(name)) {
        return;
    }
    let figure = |key: &str| match &value["usage"][key] {
        Value::Null => Figure::Absent,
        Value::Number(number) => match number.as_u64() {
            Some(tokens) if tokens <= TOKENS_MAX => Figure::Tokens(tokens),
            _ => Figure::Unbelievable,
        },
        _ => Figure::Unbelievable,
    };
    // Only one of the figures stands in the answer, so it is reported as it is.
    if let Figure::Tokens(tokens) = figure("prompt_tokens") {
        assert_eq!(whole.reports().prompt().map(|prompt| prompt.0), Some(tokens));
    }
    if let Figure::Tokens(tokens) = figure("completion_tokens") {
        assert_eq!(
            whole.reports().completion().map(|completion| completion.0),
            Some(tokens)
        );
    }
    if figure("prompt_tokens") == Figure::Unbelievable {
        assert_eq!((whole.reports().prompt(), whole.reports().rejected()), (None, 1));
    }
}

/// Passes a stream in chunks of `step` bytes to its clean end.
fn pass(stream: &[u8], step: usize, options: TapOptions) -> (Vec<u8>, StreamTap) {
    let mut tap = StreamTap::new(options);
    let mut out = collect(&mut tap, stream, step);
    out.extend(tap.end());
    (out, tap)
}

fn collect(tap: &mut StreamTap, stream: &[u8], step: usize) -> Vec<u8> {
    let mut out = Vec::new();
    // A stream that is longer than what may be held can pass differently when cut, so there is none here.
    for chunk in stream.get(..HOLD_BYTES_MAX).unwrap_or(stream).chunks(step) {
        match tap.chunk(&Bytes::copy_from_slice(chunk)) {
            Forward::Unchanged => out.extend_from_slice(chunk),
            Forward::Replace(bytes) => out.extend_from_slice(&bytes),
        }
    }
    out
}
