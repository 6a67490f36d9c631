//! The framer against a parser that sees the whole stream at once, however the stream is cut.

use proptest::prelude::*;

use super::*;

/// An event as the framer reports it: its data, the number of its data lines, whether it is named `error`.
type Event = (Vec<u8>, u32, bool);

/// Frames `stream`, given in pieces that end at `cuts`.
fn frame(stream: &[u8], cuts: &[usize]) -> (Vec<Event>, Position) {
    let mut framer = Framer::new();
    let (mut events, mut data) = (Vec::new(), Vec::new());
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        let mut input = &stream[start..end];
        start = end;
        while let Some(piece) = framer.take(&mut input) {
            match piece {
                Piece::Data(more) => data.extend_from_slice(more),
                Piece::DataLineEnd | Piece::Comment => {}
                Piece::EventEnd => {
                    events.push((std::mem::take(&mut data), framer.data_lines(), framer.name_is_error()));
                }
            }
        }
    }
    (events, framer.position())
}

/// The same by the standard's own steps: decode the line ends, split, interpret.
fn frame_whole(stream: &[u8]) -> Vec<Event> {
    let stream = stream.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(stream);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => lines.push(Vec::new()),
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                lines.push(Vec::new());
            }
            _ => lines.last_mut().unwrap().push(byte),
        }
    }
    lines.pop();
    let (mut events, mut data, mut error) = (Vec::new(), Vec::<Vec<u8>>::new(), false);
    for line in lines {
        if line.is_empty() {
            let count = u32::try_from(data.len()).unwrap();
            events.push((
                std::mem::take(&mut data).join(&b'\n'),
                count,
                std::mem::take(&mut error),
            ));
            continue;
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => data.push(value.to_vec()),
            b"event" => error = value == b"error",
            _ => {}
        }
    }
    events
}

#[track_caller]
fn check_every_cut(stream: &[u8]) {
    let expected = frame_whole(stream);
    for first in 0..=stream.len() {
        assert_eq!(frame(stream, &[first]).0, expected, "cut at {first}");
        assert_eq!(
            frame(stream, &[first, (first + 1).min(stream.len())]).0,
            expected,
            "cut at {first} and after"
        );
    }
    let every: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(frame(stream, &every).0, expected, "byte by byte");
}

#[test]
fn lines_end_in_lf_crlf_and_cr() {
    for end in ["\n", "\r\n", "\r"] {
        let stream =
            format!("data: a{end}{end}data:b{end}data: c{end}{end}: x{end}{end}data{end}{end}data: d{end}{end}");
        check_every_cut(stream.as_bytes());
        let data: Vec<_> = frame(stream.as_bytes(), &[])
            .0
            .into_iter()
            .map(|event| event.0)
            .collect();
        assert_eq!(data, [&b"a"[..], b"b\nc", b"", b"", b"d"]);
    }
}

#[test]
fn odd_streams() {
    for stream in [
        &b"\xEF\xBB\xBFdata: a\n\n"[..],
        b"\xEF\xBBdata: a\n\ndata: b\n\n",
        b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n",
        b"\xEF\n\ndata: b\n\n",
        b"\xEFxydata: a\n\n",
        b"\xEF\xBBxdata: a\n\n",
        b"\n\n\r\r\n\r\ndata: a\n\r\ndata: b\r\n\r",
        b"data\ndata\n\ndata:\ndata: \ndata:  \n\n",
        b"dat: a\ndatab: c\n data: d\ndata : e\nDATA: f\n\n",
        b"dada: a\nevert: error\n\n",
        b"event:xrror\n\nevent:eerror\n\n",
        b"event: error\ndata: x\n\nevent:error\n\nevent: errors\n\nevent: erro\n\nevent\nevent:\n\n",
        b"event: error\nevent: other\n\nevent: other\nevent: error\n\nevent: eerror\n\nevent:  error\n\n",
        b"id: 1\nretry: 5\n:\n::\n:data: x\ndata: \xE2\x82\xAC\xFF\x00\n\n",
    ] {
        check_every_cut(stream);
    }
}

#[test]
fn what_goes_before_more_data() {
    for (stream, before) in [
        (&b"data: x"[..], &b""[..]),
        (b"data: x\n", b"data:"),
        (b"data: x\r\n", b"data:"),
        // Its line feed may still come, and another would end the event.
        (b"data: x\r", b"\ndata:"),
        (b"id: 3", b"\ndata:"),
        (b": comment", b"\ndata:"),
        (b"dat", b"\ndata:"),
    ] {
        let (mut framer, mut input) = (Framer::new(), stream);
        while framer.take(&mut input).is_some() {}
        assert_eq!(framer.before_data(), before, "{stream:?}");
    }
}

#[test]
fn what_closes_an_open_event() {
    for (stream, closing) in [
        ("", ""),
        ("data: a\n\n", ""),
        ("data: a\r\r", ""),
        ("data: a\n", "\n"),
        ("data: a\r\n", "\n"),
        ("data: a\r", "\n\n"),
        ("data: a", "\n\n"),
        (": a", "\n\n"),
        (": a\n", ""),
        ("id: 1\n: a\n", "\n"),
    ] {
        let mut framer = Framer::new();
        let mut input = stream.as_bytes();
        while framer.take(&mut input).is_some() {}
        assert_eq!(framer.closing(), closing.as_bytes(), "{stream:?}");
        let closed = [stream.as_bytes(), framer.closing(), b"data: z\n\n"].concat();
        assert_eq!(frame(&closed, &[]).0.last().unwrap().0, b"z", "{stream:?}");
    }
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "data: ?[a-zé{}\":]{0,8}".prop_map(String::into_bytes),
        "(data|event|event: error|event: ?[a-z]{0,6}|:[a-z]{0,4}|id: 1)".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>().prop_filter("no line end", |byte| !is_line_end(*byte)), 0..6),
        Just(Vec::new()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_cut_anywhere(
        mark in any::<bool>(),
        lines in proptest::collection::vec((line(), prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]), 0..12),
        tail in line(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let mut stream = if mark { MARK.to_vec() } else { Vec::new() };
        for (line, end) in lines {
            stream.extend(line);
            stream.extend(end.as_bytes());
        }
        stream.extend(tail);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(frame(&stream, &cuts).0, frame_whole(&stream));
    }
}
