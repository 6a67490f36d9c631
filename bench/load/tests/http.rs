//! Heads, the chunked coding, and the events of streams, in whatever pieces they arrive.

use crate::{
    events::Events,
    wire::{self, Chunked, Framing},
};

const STREAM: &[u8] = b"data: {\"a\":1,\"obfuscation\":\"00000000000000000007\"}\n\n\
    : a comment\n\nevent: x\r\ndata: {\"b\":2,\"obfuscation\":\"00000000000000000009\"}\r\n\r\n\
    data: {\"usage\":{},\"obfuscation\":\"00000000000000000000\"}\n\ndata: [DONE]\n\n";

#[test]
fn each_event_has_the_time_that_was_written_into_it() {
    for piece in 1..=STREAM.len() {
        let (mut events, mut stamps) = (Events::default(), Vec::new());
        for bytes in STREAM.chunks(piece) {
            events.feed(bytes, |stamp| stamps.push(stamp));
        }
        // The comment is no event, and what ends a stream has no time.
        assert_eq!(
            (events.count, events.done, events.failed),
            (4, true, false),
            "pieces of {piece}"
        );
        assert_eq!(stamps, [7, 9], "pieces of {piece}");
    }
}

#[test]
fn an_event_counts_when_its_empty_line_is_there() {
    let (mut events, mut stamps) = (Events::default(), Vec::new());
    let end = STREAM.windows(2).position(|two| two == b"\n\n").unwrap() + 1;
    events.feed(&STREAM[..end], |stamp| stamps.push(stamp));
    assert_eq!((events.count, stamps.len()), (0, 0));
    events.feed(&STREAM[end..=end], |stamp| stamps.push(stamp));
    assert_eq!((events.count, stamps), (1, vec![7]));
}

#[test]
fn an_error_within_a_stream_is_seen() {
    for (text, failed) in [
        ("data: {\"choices\":[],\"error\":{\"code\":502}}\n\n", true),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"error\"}}]}\n\n", false),
        ("data: {\"error\":{}\n", true),
        (": \"error\":{\n\n", false),
    ] {
        let mut events = Events::default();
        events.feed(text.as_bytes(), |_| {});
        assert_eq!(events.failed, failed, "{text}");
    }
}

#[test]
fn done_is_a_line_and_no_text() {
    let mut events = Events::default();
    events.feed(b"data: {\"content\":\"data: [DONE]\"}\n\ndata: [DONE] \n\n", |_| {});
    assert_eq!((events.count, events.done), (2, false));
    events.feed(b"data:[DONE]\n\n", |_| {});
    assert!(events.done);
}

#[test]
fn the_chunked_coding_comes_off_in_any_pieces() {
    let coded = b"5;name=value\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
    for piece in 1..=coded.len() {
        let (mut coding, mut body, mut used) = (Chunked::default(), Vec::new(), 0);
        for bytes in coded.chunks(piece) {
            used += coding.feed(bytes, |piece| body.extend_from_slice(piece)).unwrap();
        }
        assert_eq!(body, b"hello 0123456789", "pieces of {piece}");
        assert!(coding.is_done());
        assert_eq!(used, coded.len() - b"NEXT".len(), "pieces of {piece}");
    }
}

#[test]
fn what_is_no_chunk_is_refused() {
    for bad in ["x\r\n", "\r\n", "5\r\nhelloX", "ffffffffffffffffff\r\n"] {
        let mut coding = Chunked::default();
        assert!(coding.feed(bad.as_bytes(), |_| {}).is_err(), "{bad:?}");
    }
    let mut coding = Chunked::default();
    coding.feed(b"5\r\nhel", |_| {}).unwrap();
    assert!(!coding.is_done());
}

#[test]
fn what_is_written_as_a_chunk_is_read_as_one() {
    let mut out = Vec::new();
    wire::push_chunk(&mut out, b"seventeen bytes!!");
    assert_eq!(out, b"11\r\nseventeen bytes!!\r\n");
}

#[test]
fn a_response_says_how_it_ends() {
    for (head, status, framing, keep_alive) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
            200,
            Framing::Length(12),
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            200,
            Framing::Chunked,
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, Framing::Length(0), true),
        (
            "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n",
            502,
            Framing::UntilClose,
            false,
        ),
    ] {
        let read = wire::response_head(head.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (read.status, read.framing, read.keep_alive),
            (status, framing, keep_alive),
            "{head}"
        );
        assert_eq!(read.bytes, head.len());
        for end in 0..head.len() {
            assert!(
                wire::response_head(&head.as_bytes()[..end]).unwrap().is_none(),
                "{end} of {head}"
            );
        }
    }
    assert!(wire::response_head(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err());
    assert!(wire::response_head(b"no head\r\n\r\n").is_err());
}

#[test]
fn a_request_says_where_it_goes() {
    let bytes = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n{}x";
    let head = wire::request_head(bytes).unwrap().unwrap();
    assert_eq!(&bytes[head.target.clone()], b"/v1/embeddings");
    assert_eq!((head.framing, head.bytes), (Framing::Length(3), bytes.len() - 3));
}
