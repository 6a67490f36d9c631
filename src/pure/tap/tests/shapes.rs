//! The recorded shapes of providers' streams, cut at every byte.

use super::super::fuzz::{fuzz_sse, fuzz_usage};
use super::*;

#[path = "../../../../tests/it/stream_shapes/mod.rs"]
mod stream_shapes;

use stream_shapes::{Ending, Shape, shapes};

/// What a client that did not ask for usage is sent, of what the tap passes of `shape`.
fn expected(shape: &Shape, options: TapOptions) -> String {
    let is_error = matches!(shape.ending, Ending::Error(_));
    let mut expected = String::new();
    for (index, event) in shape.events.iter().enumerate() {
        let left_out = options.drop_usage_chunk && shape.usage_chunk == Some(index);
        let masked = is_error && index + 1 == shape.events.len();
        if !left_out && !masked {
            expected.push_str(event);
            expected.push_str(shape.end);
        }
    }
    expected
}

fn check(shape: &Shape, options: TapOptions, cuts: [usize; 2]) {
    let stream = shape.bytes();
    let (head, tail) = stream.split_at(cuts[1]);
    let (first, second) = head.split_at(cuts[0]);
    let (mut out, mut tap) = pass(&[first, second, tail], options);
    let name = shape.name;
    let ended = [Ending::Done, Ending::Finished].contains(&shape.ending);
    assert_eq!(
        (tap.done(), tap.finished()),
        (shape.ending == Ending::Done, ended),
        "{name}"
    );
    out.extend(tap.end());
    let mut expected = expected(shape, options);
    match shape.ending {
        Ending::Done => {}
        Ending::Finished | Ending::Open => expected.push_str(DONE),
        Ending::Error(code) => {
            assert_eq!((tap.error_event(), tap.error_code()), (true, code), "{name}");
            let told = code.filter(|code| [400, 429].contains(code)).unwrap_or(502);
            let out = String::from_utf8(out.clone()).unwrap();
            let masked = out.strip_prefix(&expected).unwrap();
            assert!(
                masked.starts_with("data: {") && masked.ends_with(DONE) && !masked.contains("SECRET"),
                "{name}"
            );
            assert!(
                masked.contains(&format!("\"error\":{{\"code\":{told},")),
                "{name}: {masked}"
            );
            expected.push_str(masked);
        }
    }
    assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}, cut at {cuts:?}");
    assert_eq!(usage(&tap), shape.usage, "{name}");
    let delivered: u64 = shape
        .texts
        .iter()
        .map(|text| tokens::count(text, options.encoding))
        .sum();
    assert_eq!(tap.delivered().0, delivered, "{name}, cut at {cuts:?}");
}

#[test]
fn every_shape_cut_at_every_byte() {
    assert!(shapes().count() >= 40);
    for shape in shapes() {
        let length = shape.bytes().len();
        for options in [TapOptions::default(), drop_usage()] {
            check(shape, options, [0, length]);
            for cut in 0..length {
                check(shape, options, [cut, (cut + 1).min(length)]);
            }
        }
    }
}

#[test]
fn the_fuzz_targets_take_every_prefix_of_every_shape() {
    for (index, shape) in shapes().enumerate() {
        let byte = |number: usize| u8::try_from(number % 251).unwrap();
        let mut input = vec![byte(index * 7), byte(index)];
        input.extend(shape.bytes());
        for end in (0..=input.len()).step_by(3) {
            fuzz_sse(&input[..end]);
        }
        for event in shape.events {
            let answer = event.strip_prefix("data: ").unwrap_or(event);
            fuzz_usage(&[&[3], answer.as_bytes()].concat());
        }
    }
}
