//! What fuzzing checks, for any bytes at all. The fuzz targets are one line each; the unit tests run these too.

use bytes::Bytes;
use serde_json::Value;

use super::{Forward, Framing, HOLD_BYTES_MAX, StreamTap, TapOptions, WholeTap};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{Figure, TOKENS_MAX};

/// The first byte chooses the options, the second the cut, the rest is a stream: however it is cut, the same bytes pass,
/// the same is read, and what passes differs from what came only where it may.
///
/// # Panics
/// When it is not so.
pub fn fuzz_sse(input: &[u8]) {
    let [choice, step, stream @ ..] = input else {
        return;
    };
    let step = usize::from(*step) % 64 + 1;
    let stream = Bytes::copy_from_slice(stream.get(..STREAM_BYTES_MAX).unwrap_or(stream));
    let framing = match choice >> 1 & 3 {
        0 | 1 => None,
        2 => Some(Framing::Framed),
        _ => Some(Framing::UntilClosed),
    };
    let options = TapOptions {
        drop_usage_chunk: choice & 1 == 1,
        ..TapOptions::default()
    };
    match choice >> 3 & 3 {
        0 | 1 => check_cut(&stream, step, options, framing),
        2 => {
            let hold_bytes_max = usize::from(choice >> 5) * 3;
            check_release(
                &stream,
                step,
                TapOptions {
                    hold_bytes_max,
                    ..options
                },
            );
        }
        _ => check_failure(&stream, step, options),
    }
}

/// A stream that is wholly held, event by event, is the same stream however it is cut.
fn check_cut(stream: &Bytes, step: usize, options: TapOptions, framing: Option<Framing>) {
    let (whole, tap) = pass(stream, stream.len().max(1), options, framing);
    let (cut, other) = pass(stream, step, options, framing);
    assert_eq!(whole, cut, "the cut changes what passes");
    assert_eq!(tap.reports(), other.reports(), "the cut changes the reports");
    assert_eq!(tap.delivered(), other.delivered(), "the cut changes the count");
    assert_eq!(
        (tap.done(), tap.finished(), tap.died()),
        (other.done(), other.finished(), other.died()),
        "the cut changes the ending"
    );
    assert_eq!(
        (tap.error_event(), tap.error_code(), tap.has_error_behind_end()),
        (other.error_event(), other.error_code(), other.has_error_behind_end())
    );
    assert_eq!(
        tap.has_event(),
        other.has_event(),
        "the cut changes whether it has begun"
    );
    if framing.is_none() {
        check_kept(stream, &whole, &tap, options);
    }
    check_end(&whole, &tap);
}

/// Events that are too large to be held pass in parts. What was not left out counts the same.
fn check_release(stream: &Bytes, step: usize, options: TapOptions) {
    let (out, tap) = pass(stream, step, options, None);
    check_end(&out, &tap);
    check_kept(stream, &out, &tap, options);
    if !options.drop_usage_chunk && !is_masked(&tap) {
        let held = TapOptions {
            hold_bytes_max: HOLD_BYTES_MAX,
            ..options
        };
        let (_, other) = pass(stream, step, held, None);
        assert_eq!(tap.reports(), other.reports(), "the bound changes the reports");
        if !is_masked(&other) {
            assert_eq!(tap.delivered(), other.delivered(), "the bound changes the count");
        }
    }
}

/// A stream that dies has an end too.
fn check_failure(stream: &Bytes, step: usize, options: TapOptions) {
    let mut tap = StreamTap::new(options);
    let mut out = collect(&mut tap, stream, step);
    out.extend_from_slice(&tap.fail("gone", "upstream_error", 502));
    check_end(&out, &tap);
}

/// Whether an error event does not pass, nor what follows it.
fn is_masked(tap: &StreamTap) -> bool {
    tap.error_event() || tap.has_error_behind_end()
}

/// Where nothing may be left out, nothing is, and only an end is added.
fn check_kept(stream: &Bytes, out: &[u8], tap: &StreamTap, options: TapOptions) {
    if !options.drop_usage_chunk && !is_masked(tap) {
        assert!(out.starts_with(stream), "bytes are lost");
        assert!(out.len() <= stream.len() + 16, "bytes are added");
    }
}

/// A stream has its end, and the error event in it blames the request where that in whose place it stands does.
fn check_end(out: &[u8], tap: &StreamTap) {
    assert!(tap.done() || out.ends_with(b"data: [DONE]\n\n"), "a stream has no end");
    if tap.error_event() && !tap.done() {
        let (code, kind) = match tap.error_code() {
            Some(code @ (400 | 409 | 413 | 415 | 422)) => (code, "invalid_request_error"),
            Some(404) => (404, "not_found_error"),
            Some(429) => (429, "rate_limit_error"),
            _ => (502, "upstream_error"),
        };
        let (begin, end) = (
            format!("\"error\":{{\"code\":{code},"),
            format!("\"type\":\"{kind}\"}}}}\n\ndata: [DONE]\n\n"),
        );
        let at = memchr::memmem::rfind(out, b"\"error\":{").unwrap_or(out.len());
        let told = out.get(at..).unwrap_or_default();
        assert!(
            told.starts_with(begin.as_bytes()) && told.ends_with(end.as_bytes()),
            "the error event blames another"
        );
    }
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
        // A prompt of nothing alone is no report of one.
        let known = (tokens > 0).then_some(tokens);
        assert_eq!(whole.reports().prompt().map(|prompt| prompt.0), known);
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

/// Passes a stream in chunks of `step` bytes to its end, which may be that of a broken connection.
fn pass(stream: &Bytes, step: usize, options: TapOptions, framing: Option<Framing>) -> (Vec<u8>, StreamTap) {
    let mut tap = StreamTap::new(options);
    let mut out = collect(&mut tap, stream, step);
    let end = match framing {
        None => tap.end(),
        Some(framing) => tap.end_or_fail(framing, "gone", "upstream_error", 502),
    };
    out.extend_from_slice(&end);
    (out, tap)
}

fn collect(tap: &mut StreamTap, stream: &Bytes, step: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() + 512);
    let mut rest = stream.clone();
    while !rest.is_empty() {
        let chunk = rest.split_to(step.min(rest.len()));
        match tap.chunk(&chunk) {
            Forward::Unchanged => out.extend_from_slice(&chunk),
            Forward::Replace(bytes) => out.extend_from_slice(&bytes),
        }
    }
    out
}

/// A stream that is longer than what may be held can pass differently when cut, so there is none here.
const STREAM_BYTES_MAX: usize = HOLD_BYTES_MAX;
