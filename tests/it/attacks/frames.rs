//! HTTP/2 frame by frame, in clear text.

use std::net::SocketAddr;

use crate::harness::client::Client;
use crate::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, field, fields, frame, string,
};
use crate::harness::{Gateway, Raw, Setup, Upstream};

/// The fields of a request, and these.
fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = fields(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
    ]);
    [pseudo, fields(more)].concat()
}

fn health(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let head = request("GET", "/api/v1/llm/health", more);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
}

/// Names, what comes of each, and its bytes. What comes is how each stream ends, a status or the code of RST_STREAM, and how the connection
/// does, if it does: the code of GOAWAY.
fn table(key: &str) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let bearer = format!("Bearer {key}");
    let post = |stream, more: &[(&str, &str)]| {
        let head = request(
            "POST",
            "/api/v1/llm/chat",
            &[&[("authorization", bearer.as_str())], more].concat(),
        );
        frame(HEADERS, END_HEADERS, stream, &head)
    };
    let odd = |number: u32| number * 2 + 1;
    let rapid = |number| {
        [
            post(odd(number), &[]),
            frame(RST_STREAM, 0, odd(number), &8u32.to_be_bytes()),
        ]
        .concat()
    };
    let bomb = {
        // One field of 4,000 bytes goes into the table, and is then named 10,000 times by one byte each.
        let stored = [vec![0x40], string(b"x-bomb"), string(&[b'a'; 4_000])].concat();
        [request("GET", "/", &[]), stored, vec![0xbe; 10_000]].concat()
    };
    let with_pseudo = |pseudo: &[(&str, &str)]| frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields(pseudo));
    let whole = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", "/api/v1/llm/health"),
    ];
    vec![
        ("a plain request", "200", health(1, &[])),
        ("rapid reset", "goaway 11", (0..5_000).flat_map(rapid).collect()),
        (
            "a header bomb",
            "goaway 11",
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb),
        ),
        ("a header list of 100 KB", "goaway 11", {
            let long = "a".repeat(9_000);
            let head = request("GET", "/api/v1/llm/health", &[]);
            let mut bytes = frame(HEADERS, END_STREAM, 1, &head);
            for _ in 0..11 {
                bytes.extend(frame(CONTINUATION, 0, 1, &field("x-a", &long)));
            }
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            bytes
        }),
        ("continuations without end", "goaway 11", {
            let mut bytes = frame(HEADERS, END_STREAM, 1, &request("GET", "/", &[]));
            bytes.extend(frame(CONTINUATION, 0, 1, &field("x-a", &"a".repeat(16_000))).repeat(500));
            bytes
        }),
        ("empty continuations without end", "goaway 11", {
            let mut bytes = frame(HEADERS, END_STREAM, 1, &request("GET", "/", &[]));
            bytes.extend(frame(CONTINUATION, 0, 1, &[]).repeat(50_000));
            bytes
        }),
        (
            "a flood of pings",
            "200",
            [frame(PING, 0, 0, &[0; 8]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of settings",
            "200",
            [frame(SETTINGS, 0, 0, &[]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of priorities",
            "200",
            [frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of unknown frames",
            "200",
            [frame(99, 0, 0, &[0; 8]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of empty data",
            "goaway 11",
            [post(1, &[]), frame(DATA, 0, 1, &[]).repeat(50_000)].concat(),
        ),
        (
            "a body that never ends",
            "408, reset 0",
            [post(1, &[]), frame(DATA, 0, 1, b"{\"model\"")].concat(),
        ),
        (
            "streams beyond the limit",
            "50 x reset 7, goaway 11",
            (0..1_000).flat_map(|number| post(odd(number), &[])).collect(),
        ),
        ("a window of nothing", "reset 8", {
            let no_window = [&4u16.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
            [frame(SETTINGS, 0, 0, &no_window), health(1, &[])].concat()
        }),
        (
            "a frame of 16 MB",
            "goaway 6",
            [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 1_000]].concat(),
        ),
        ("headers on stream 0", "goaway 1", health(0, &[])),
        ("headers on an even stream", "goaway 1", health(2, &[])),
        ("data on an idle stream", "goaway 1", frame(DATA, 0, 5, b"x")),
        (
            "a reset of an idle stream",
            "goaway 1",
            frame(RST_STREAM, 0, 5, &[0; 4]),
        ),
        (
            "a push from the client",
            "goaway 1",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        ),
        (
            "a window beyond its limit",
            "goaway 3",
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        ),
        ("a window of zero more", "goaway 1", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("settings of a wrong length", "goaway 1", frame(SETTINGS, 0, 0, &[0; 5])),
        ("a ping of a wrong length", "goaway 1", frame(PING, 0, 0, &[0; 5])),
        (
            "an index that is not there",
            "goaway 1",
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff, 0x7f]),
        ),
        (
            "a string beyond its frame",
            "goaway 1",
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0, 0x7f, 0x7f]),
        ),
        (
            "padding beyond its frame",
            "goaway 1",
            frame(HEADERS, END_STREAM | END_HEADERS | 8, 1, &[200, 0x82]),
        ),
        ("a name in capitals", "goaway 1", health(1, &[("X-A", "b")])),
        (
            "a header of the connection",
            "reset 1",
            health(1, &[("connection", "close")]),
        ),
        ("a coding", "reset 1", health(1, &[("transfer-encoding", "chunked")])),
        (
            "a line feed in a value",
            "goaway 1",
            health(1, &[("x-a", "b\r\nhost: y")]),
        ),
        ("two hosts", "400", health(1, &[("host", "y")])),
        ("no path", "reset 1", with_pseudo(&whole[..3])),
        ("two paths", "reset 1", with_pseudo(&[&whole[..], &whole[3..]].concat())),
        (
            "a path behind a field",
            "reset 1",
            with_pseudo(&[&whole[..3], &[("x-a", "b")], &whole[3..]].concat()),
        ),
        (
            "an unknown pseudo-field",
            "goaway 1",
            with_pseudo(&[&whole[..], &[(":a", "b")]].concat()),
        ),
        (
            "a status in a request",
            "reset 1",
            with_pseudo(&[&whole[..], &[(":status", "200")]].concat()),
        ),
        (
            "a path that is an address",
            "reset 1",
            with_pseudo(&[&whole[..3], &[(":path", "http://y/")]].concat()),
        ),
        (
            "an empty path",
            "reset 1",
            with_pseudo(&[&whole[..3], &[(":path", "")]].concat()),
        ),
        (
            "CONNECT",
            "405",
            with_pseudo(&[(":method", "CONNECT"), (":authority", "example.com:443")]),
        ),
        (
            "a body longer than its length",
            "reset 1",
            [
                post(1, &[("content-length", "3")]),
                frame(DATA, END_STREAM, 1, b"{\"model\":1}"),
            ]
            .concat(),
        ),
        (
            "a body shorter than its length",
            "reset 1",
            [
                post(1, &[("content-length", "300")]),
                frame(DATA, END_STREAM, 1, b"{\"model\":1}"),
            ]
            .concat(),
        ),
        (
            "two lengths",
            "reset 1",
            [
                post(1, &[("content-length", "3"), ("content-length", "4")]),
                frame(DATA, END_STREAM, 1, b"{}}"),
            ]
            .concat(),
        ),
        (
            "data after the end",
            "goaway 1",
            [health(1, &[]), frame(DATA, 0, 1, b"x")].concat(),
        ),
    ]
}

/// The status of an answer's head, whose fields stand in no table.
fn status(mut block: &[u8]) -> u16 {
    // The size of the table comes first: nothing.
    while block[0] & 0xe0 == 0x20 {
        block = &block[1..];
    }
    match block {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        [0x08 | 0x18 | 0x48, length, rest @ ..] if *length & 0x80 == 0 => {
            let text = std::str::from_utf8(&rest[..usize::from(*length)]);
            text.unwrap().parse().unwrap()
        }
        [0x08 | 0x18 | 0x48, length, rest @ ..] => digits(&rest[..usize::from(length & 0x7f)]),
        other => panic!("no status: {other:x?}"),
    }
}

/// Digits in Huffman's code of HPACK: those up to 2 have five bits, the others six.
fn digits(coded: &[u8]) -> u16 {
    let bits: Vec<u16> = coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1)))
        .collect();
    let take = |bits: &[u16], count: usize| bits.iter().take(count).fold(0, |value, bit| value * 2 + bit);
    let (mut number, mut left) = (0, bits.as_slice());
    while left.len() >= 5 && number < 100 {
        let short = take(left, 5);
        let (digit, length) = if short <= 2 {
            (short, 5)
        } else {
            (take(left, 6) - 0b01_1001 + 3, 6)
        };
        number = number * 10 + digit;
        left = &left[length..];
    }
    number
}

/// What came of a connection: how each stream ended, in order, with how many of the same in a row, and how the connection did.
async fn outcome(raw: &mut Raw, streams: usize) -> String {
    let (mut ends, mut head) = (Vec::new(), 0);
    let closed = loop {
        if ends.len() == streams {
            break None;
        }
        let Some(frame) = raw.try_take(9).await else {
            break Some("closed".to_owned());
        };
        let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
        let Some(payload) = raw.try_take(length).await else {
            break Some("closed".to_owned());
        };
        let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match frame[3] {
            GOAWAY => break Some(format!("goaway {}", code(4))),
            RST_STREAM => ends.push(format!("reset {}", code(0))),
            HEADERS => head = status(&payload),
            _ => {}
        }
        if matches!(frame[3], HEADERS | DATA) && frame[4] & END_STREAM != 0 {
            ends.push(head.to_string());
        }
    };
    let counted = ends.chunk_by(|a, b| a == b).map(|same| match same.len() {
        1 => same[0].clone(),
        count => format!("{count} x {}", same[0]),
    });
    counted.chain(closed).collect::<Vec<_>>().join(", ")
}

/// How many streams end in what is expected.
fn streams(expected: &str) -> usize {
    let ends = expected.split(", ").filter(|end| !end.starts_with("goaway"));
    ends.map(|end| end.split_once(" x ").map_or(1, |(count, _)| count.parse().unwrap()))
        .sum()
}

/// Every attack on connections of its own; after each the gateway serves others, and the connection itself, if that is still there.
pub(super) async fn run_all(address: SocketAddr, key: &str) -> usize {
    let others = Client::h2c(address);
    let (table, mut wrong) = (table(key), Vec::new());
    for (name, expected, bytes) in &table {
        println!("h2: {name}");
        let mut raw = Raw::connect(address).await;
        raw.try_send([PREFACE, &frame(SETTINGS, 0, 0, &NO_TABLE), bytes].concat())
            .await
            .ok();
        let lives = !expected.contains("goaway");
        let wanted = if lives { streams(expected) } else { usize::MAX };
        let mut found = outcome(&mut raw, wanted).await;
        if lives && found == *expected {
            // One attack takes the window of every stream away.
            let window = [&4u16.to_be_bytes()[..], &65_535u32.to_be_bytes()].concat();
            let next = [frame(SETTINGS, 0, 0, &window), health(99_999, &[])].concat();
            raw.try_send(next).await.ok();
            match outcome(&mut raw, 1).await.as_str() {
                "200" => {}
                other => found += &format!(", then {other}"),
            }
        }
        if found != *expected {
            wrong.push(format!("{name}: {found} in place of {expected}"));
        }
        others.get("/llm/health").await.ok();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    table.len()
}

/// SETTINGS_HEADER_TABLE_SIZE is 0: each head is written out.
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

#[tokio::test]
async fn frames_of_http2_that_are_wrong_end_their_stream_or_their_connection() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| {
        conf["timeouts"] = serde_json::json!({ "head_ms": 500, "body_ms": 300, "write_ms": 300 });
    });
    let gateway: Gateway = setup.start().await;
    let cases = run_all(gateway.address, &gateway.key).await;
    println!("{cases} cases");
    gateway.check_untouched(&upstream).await;
}
