//! HTTP/2 frame by frame, in clear text.

use std::net::SocketAddr;

use crate::harness::client::Client;
use crate::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, field, fields, frame, string,
};
use crate::harness::{Gateway, Raw, Setup, Upstream};

/// How a connection may go on after an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It ends: GOAWAY, or it is closed.
    Connection,
    /// The stream ends: RST_STREAM, or it is answered.
    Stream,
    /// Either.
    Any,
}

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

fn table(key: &str) -> Vec<(&'static str, End, Vec<u8>)> {
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
        ("a plain request", End::Stream, health(1, &[])),
        ("rapid reset", End::Connection, (0..5_000).flat_map(rapid).collect()),
        (
            "a header bomb",
            End::Any,
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb),
        ),
        ("a header list of 100 KB", End::Any, {
            let long = "a".repeat(9_000);
            let head = request("GET", "/api/v1/llm/health", &[]);
            let mut bytes = frame(HEADERS, END_STREAM, 1, &head);
            for _ in 0..11 {
                bytes.extend(frame(CONTINUATION, 0, 1, &field("x-a", &long)));
            }
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            bytes
        }),
        ("continuations without end", End::Connection, {
            let mut bytes = frame(HEADERS, END_STREAM, 1, &request("GET", "/", &[]));
            bytes.extend(frame(CONTINUATION, 0, 1, &field("x-a", &"a".repeat(16_000))).repeat(500));
            bytes
        }),
        ("empty continuations without end", End::Connection, {
            let mut bytes = frame(HEADERS, END_STREAM, 1, &request("GET", "/", &[]));
            bytes.extend(frame(CONTINUATION, 0, 1, &[]).repeat(50_000));
            bytes
        }),
        (
            "a flood of pings",
            End::Stream,
            [frame(PING, 0, 0, &[0; 8]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of settings",
            End::Any,
            [frame(SETTINGS, 0, 0, &[]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of priorities",
            End::Stream,
            [frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of unknown frames",
            End::Stream,
            [frame(99, 0, 0, &[0; 8]).repeat(20_000), health(1, &[])].concat(),
        ),
        (
            "a flood of empty data",
            End::Any,
            [post(1, &[]), frame(DATA, 0, 1, &[]).repeat(50_000)].concat(),
        ),
        (
            "a body that never ends",
            End::Stream,
            [post(1, &[]), frame(DATA, 0, 1, b"{\"model\"")].concat(),
        ),
        (
            "streams beyond the limit",
            End::Any,
            (0..1_000).flat_map(|number| post(odd(number), &[])).collect(),
        ),
        ("a window of nothing", End::Any, {
            let no_window = [&4u16.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
            [frame(SETTINGS, 0, 0, &no_window), health(1, &[])].concat()
        }),
        (
            "a frame of 16 MB",
            End::Connection,
            [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 1_000]].concat(),
        ),
        ("headers on stream 0", End::Connection, health(0, &[])),
        ("headers on an even stream", End::Connection, health(2, &[])),
        ("data on an idle stream", End::Connection, frame(DATA, 0, 5, b"x")),
        (
            "a reset of an idle stream",
            End::Connection,
            frame(RST_STREAM, 0, 5, &[0; 4]),
        ),
        (
            "a push from the client",
            End::Connection,
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        ),
        (
            "a window beyond its limit",
            End::Connection,
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        ),
        (
            "a window of zero more",
            End::Connection,
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        ),
        (
            "settings of a wrong length",
            End::Connection,
            frame(SETTINGS, 0, 0, &[0; 5]),
        ),
        ("a ping of a wrong length", End::Connection, frame(PING, 0, 0, &[0; 5])),
        (
            "an index that is not there",
            End::Connection,
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff, 0x7f]),
        ),
        (
            "a string beyond its frame",
            End::Connection,
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0, 0x7f, 0x7f]),
        ),
        (
            "padding beyond its frame",
            End::Connection,
            frame(HEADERS, END_STREAM | END_HEADERS | 8, 1, &[200, 0x82]),
        ),
        ("a name in capitals", End::Any, health(1, &[("X-A", "b")])),
        (
            "a header of the connection",
            End::Any,
            health(1, &[("connection", "close")]),
        ),
        ("a coding", End::Any, health(1, &[("transfer-encoding", "chunked")])),
        (
            "a line feed in a value",
            End::Any,
            health(1, &[("x-a", "b\r\nhost: y")]),
        ),
        ("two hosts", End::Any, health(1, &[("host", "y")])),
        ("no path", End::Any, with_pseudo(&whole[..3])),
        ("two paths", End::Any, with_pseudo(&[&whole[..], &whole[3..]].concat())),
        (
            "a path behind a field",
            End::Any,
            with_pseudo(&[&whole[..3], &[("x-a", "b")], &whole[3..]].concat()),
        ),
        (
            "an unknown pseudo-field",
            End::Any,
            with_pseudo(&[&whole[..], &[(":a", "b")]].concat()),
        ),
        (
            "a status in a request",
            End::Any,
            with_pseudo(&[&whole[..], &[(":status", "200")]].concat()),
        ),
        (
            "a path that is an address",
            End::Any,
            with_pseudo(&[&whole[..3], &[(":path", "http://y/")]].concat()),
        ),
        (
            "an empty path",
            End::Any,
            with_pseudo(&[&whole[..3], &[(":path", "")]].concat()),
        ),
        (
            "CONNECT",
            End::Any,
            with_pseudo(&[(":method", "CONNECT"), (":authority", "example.com:443")]),
        ),
        (
            "a body longer than its length",
            End::Any,
            [
                post(1, &[("content-length", "3")]),
                frame(DATA, END_STREAM, 1, b"{\"model\":1}"),
            ]
            .concat(),
        ),
        (
            "a body shorter than its length",
            End::Any,
            [
                post(1, &[("content-length", "300")]),
                frame(DATA, END_STREAM, 1, b"{\"model\":1}"),
            ]
            .concat(),
        ),
        (
            "two lengths",
            End::Any,
            [
                post(1, &[("content-length", "3"), ("content-length", "4")]),
                frame(DATA, END_STREAM, 1, b"{}}"),
            ]
            .concat(),
        ),
        (
            "data after the end",
            End::Any,
            [health(1, &[]), frame(DATA, 0, 1, b"x")].concat(),
        ),
    ]
}

/// Reads frames until the stream or the connection ends.
async fn ends(raw: &mut Raw) -> End {
    loop {
        let Some(head) = raw.try_take(9).await else {
            return End::Connection;
        };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if raw.try_take(length).await.is_none() || head[3] == GOAWAY {
            return End::Connection;
        }
        let ended = head[3] == RST_STREAM || (matches!(head[3], HEADERS | DATA) && head[4] & END_STREAM != 0);
        if ended && stream > 0 {
            return End::Stream;
        }
    }
}

/// Every attack on connections of its own; after each the gateway serves others.
pub(super) async fn run_all(address: SocketAddr, key: &str) -> usize {
    let others = Client::h2c(address);
    let table = table(key);
    for (name, expected, bytes) in &table {
        println!("h2: {name}");
        let mut raw = Raw::connect(address).await;
        raw.try_send([PREFACE, &frame(SETTINGS, 0, 0, &[]), bytes].concat())
            .await
            .ok();
        let end = ends(&mut raw).await;
        assert!(*expected == End::Any || end == *expected, "{name}: {end:?}");
        others.get("/llm/health").await.ok();
    }
    table.len()
}

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
