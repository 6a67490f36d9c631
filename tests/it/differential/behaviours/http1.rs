//! What an upstream does over HTTP/1.
//!
//! Longer than 400 lines: a list of behaviours, one after another.

use super::{Behaviour, Does};
use crate::differential::upstream::Script;

/// What a row holds over HTTP/1: a name, the request's bytes, what the upstream does.
type Row = (&'static str, usize, Script);

/// Over HTTP/1, each on a fresh connection and on one that was used before.
pub fn http1() -> Vec<Behaviour> {
    let rows = [
        framings(),
        interims(),
        heads(),
        pieces(),
        ends(),
        early(),
        connections(),
    ]
    .concat();
    let on = |is_pooled| {
        rows.iter().map(move |(name, body, script)| Behaviour {
            name,
            does: Does::Http1(script.clone()),
            is_pooled,
            body: *body,
        })
    };
    on(false).chain(on(true)).collect()
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const FIVE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// A 200 with these header lines and this after it.
fn ok(lines: &str, body: &str) -> Script {
    Script::sends(format!("{OK}{lines}\r\n{body}"))
}

fn framings() -> Vec<Row> {
    vec![
        ("a length", 10, ok("content-length: 5\r\n", "hello")),
        ("a length of 0", 10, ok("content-length: 0\r\n", "")),
        (
            "chunks",
            10,
            ok("transfer-encoding: chunked\r\n", "5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n"),
        ),
        ("no chunk", 10, ok("transfer-encoding: chunked\r\n", "0\r\n\r\n")),
        ("until the end", 10, ok("", "hello").close()),
        ("nothing until the end", 10, ok("", "").close()),
        ("204", 10, Script::sends("HTTP/1.1 204 No Content\r\n\r\n")),
        (
            "204 with a length",
            10,
            Script::sends("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"),
        ),
        (
            "304",
            10,
            Script::sends("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n"),
        ),
        (
            "304 with a length",
            10,
            Script::sends("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
        ),
        (
            "500 with a length",
            10,
            Script::sends("HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nsorry"),
        ),
        (
            "an extension",
            10,
            ok(
                "transfer-encoding: chunked\r\n",
                "5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n",
            ),
        ),
        (
            "a size with zeros",
            10,
            ok("transfer-encoding: chunked\r\n", "0005\r\nhello\r\n000\r\n\r\n"),
        ),
        (
            "a size in upper case",
            10,
            ok("transfer-encoding: chunked\r\n", "A\r\n0123456789\r\n0\r\n\r\n"),
        ),
        (
            "a size in lower case",
            10,
            ok("transfer-encoding: chunked\r\n", "a\r\n0123456789\r\n0\r\n\r\n"),
        ),
        (
            "trailers",
            10,
            ok(
                "trailer: x-a\r\ntransfer-encoding: chunked\r\n",
                "5\r\nhello\r\n0\r\nx-a: b\r\n\r\n",
            ),
        ),
        (
            "the same length twice",
            10,
            ok("content-length: 5\r\ncontent-length: 5\r\n", "hello"),
        ),
        (
            "the same length twice in one line",
            10,
            ok("content-length: 5, 5\r\n", "hello"),
        ),
        (
            "two lengths",
            10,
            ok("content-length: 5\r\ncontent-length: 3\r\n", "hello").close(),
        ),
        ("a negative length", 10, ok("content-length: -5\r\n", "hello").close()),
        (
            "a length with a sign",
            10,
            ok("content-length: +5\r\n", "hello").close(),
        ),
        (
            "a length that is none",
            10,
            ok("content-length: five\r\n", "hello").close(),
        ),
        (
            "a length beyond 64 bits",
            10,
            ok("content-length: 99999999999999999999\r\n", "hello").close(),
        ),
        (
            "a length and chunks",
            10,
            ok(
                "content-length: 3\r\ntransfer-encoding: chunked\r\n",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
        ),
        (
            "CHUNKED",
            10,
            ok("Transfer-Encoding: CHUNKED\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ),
        ("identity", 10, ok("transfer-encoding: identity\r\n", "hello").close()),
        (
            "gzip and chunked",
            10,
            ok("transfer-encoding: gzip, chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ),
        (
            "chunked and gzip",
            10,
            ok("transfer-encoding: chunked, gzip\r\n", "hello").close(),
        ),
        ("an unknown coding", 10, ok("transfer-encoding: x\r\n", "hello").close()),
        ("a long request", 300_000, ok("content-length: 5\r\n", "hello")),
    ]
}

fn interims() -> Vec<Row> {
    let after = |interim: &str| Script::sends(format!("{interim}{FIVE}hello"));
    vec![
        ("100", 10, after("HTTP/1.1 100 Continue\r\n\r\n")),
        ("103", 10, after("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")),
        (
            "102 and 103 twice",
            10,
            after("HTTP/1.1 102 A\r\n\r\nHTTP/1.1 103 B\r\n\r\nHTTP/1.1 103 C\r\n\r\n"),
        ),
        (
            "101 that was not asked for",
            10,
            Script::sends("HTTP/1.1 101 Other\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n").close(),
        ),
        (
            "100 and nothing",
            10,
            Script::sends("HTTP/1.1 100 Continue\r\n\r\n").close(),
        ),
    ]
}

fn heads() -> Vec<Row> {
    let many = "x-a: b\r\n".repeat(200) + "content-length: 5\r\n";
    let too_many = "x-a: b\r\n".repeat(300) + "content-length: 5\r\n";
    let long = format!("x-a: {}\r\ncontent-length: 5\r\n", "b".repeat(60_000));
    let huge = format!("x-a: {}\r\ncontent-length: 5\r\n", "b".repeat(2 << 20));
    vec![
        (
            "HTTP/1.0",
            10,
            Script::sends("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        ),
        (
            "HTTP/1.0 that keeps the connection",
            10,
            Script::sends("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello"),
        ),
        (
            "HTTP/1.0 until the end",
            10,
            Script::sends("HTTP/1.0 200 OK\r\n\r\nhello").close(),
        ),
        (
            "HTTP/1.0 with chunks",
            10,
            Script::sends("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").close(),
        ),
        (
            "a folded line",
            10,
            ok("x-a: b\r\n c\r\ncontent-length: 5\r\n", "hello").close(),
        ),
        (
            "a space before a colon",
            10,
            ok("x-a : b\r\ncontent-length: 5\r\n", "hello").close(),
        ),
        ("200 header lines", 10, ok(&many, "hello")),
        ("300 header lines", 10, ok(&too_many, "hello").close()),
        ("a head of 60 KB", 10, ok(&long, "hello")),
        ("a head of 2 MB", 10, ok(&huge, "hello").close()),
        (
            "no reason",
            10,
            Script::sends("HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello"),
        ),
        (
            "a status of four digits",
            10,
            Script::sends("HTTP/1.1 2000 OK\r\ncontent-length: 5\r\n\r\nhello").close(),
        ),
        (
            "a status of 99",
            10,
            Script::sends("HTTP/1.1 099 OK\r\ncontent-length: 5\r\n\r\nhello").close(),
        ),
        (
            "a status of 999",
            10,
            Script::sends("HTTP/1.1 999 OK\r\ncontent-length: 5\r\n\r\nhello"),
        ),
        (
            "no version",
            10,
            Script::sends("200 OK\r\ncontent-length: 5\r\n\r\nhello").close(),
        ),
        (
            "HTTP/2.0 in a line",
            10,
            Script::sends("HTTP/2.0 200 OK\r\ncontent-length: 5\r\n\r\nhello").close(),
        ),
        ("no HTTP", 10, Script::sends("SSH-2.0-OpenSSH\r\n").close()),
        (
            "line feeds alone",
            10,
            Script::sends("HTTP/1.1 200 OK\ncontent-length: 5\n\nhello"),
        ),
        (
            "a NUL in a value",
            10,
            ok("x-a: b\0c\r\ncontent-length: 5\r\n", "hello").close(),
        ),
    ]
}

fn pieces() -> Vec<Row> {
    let long = "0123456789abcdef".repeat(4_096) + "x";
    let length = format!("content-length: {}\r\n", long.len());
    let one_chunk = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    vec![
        ("a length, byte by byte", 10, Script::bytewise(format!("{FIVE}hello"))),
        (
            "chunks, byte by byte",
            10,
            Script::bytewise(format!("{CHUNKED}5\r\nhello\r\n3;a\r\nyou\r\n0\r\n\r\n")),
        ),
        ("64 KiB and one byte", 10, ok(&length, &long)),
        (
            "64 KiB and one byte in a chunk",
            10,
            ok("transfer-encoding: chunked\r\n", &one_chunk),
        ),
        (
            "each piece when the client has the one before",
            10,
            Script::sends(CHUNKED)
                .send("5\r\nhello\r\n")
                .until_client_has(5)
                .send("3\r\nyou\r\n")
                .until_client_has(8)
                .send("0\r\n\r\n"),
        ),
        (
            "a length, each piece when the client has the one before",
            10,
            Script::sends(FIVE).send("he").until_client_has(2).send("llo"),
        ),
        ("bytes after the body", 10, Script::sends(format!("{FIVE}hello there"))),
        (
            "bytes after the last chunk",
            10,
            Script::sends(format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\nthere")),
        ),
        (
            "an answer after the answer",
            10,
            Script::sends(format!("{FIVE}hello{FIVE}again")),
        ),
        (
            "a body after a 204",
            10,
            Script::sends("HTTP/1.1 204 No Content\r\n\r\nhello"),
        ),
    ]
}

fn ends() -> Vec<Row> {
    let seen = |head: &str, part: &str, has| Script::sends(format!("{head}{part}")).until_client_has(has);
    vec![
        ("closed before the head", 10, Script::default().close()),
        ("reset before the head", 10, Script::default().reset()),
        (
            "closed within the head",
            10,
            Script::sends("HTTP/1.1 200 OK\r\ncont").close(),
        ),
        (
            "reset within the head",
            10,
            Script::sends("HTTP/1.1 200 OK\r\ncont").reset(),
        ),
        ("closed after the head", 10, Script::sends(FIVE).close()),
        ("closed after the head of chunks", 10, Script::sends(CHUNKED).close()),
        ("closed within the body", 10, seen(FIVE, "he", 2).close()),
        ("reset within the body", 10, seen(FIVE, "he", 2).reset()),
        ("closed within a chunk", 10, seen(CHUNKED, "5\r\nhe", 2).close()),
        ("closed after a chunk", 10, seen(CHUNKED, "2\r\nhe\r\n", 2).close()),
        ("reset after a chunk", 10, seen(CHUNKED, "2\r\nhe\r\n", 2).reset()),
        ("closed within a size", 10, seen(CHUNKED, "2\r\nhe\r\n1", 2).close()),
        (
            "closed after the last chunk",
            10,
            seen(CHUNKED, "2\r\nhe\r\n0\r\n", 2).close(),
        ),
        ("reset until the end", 10, seen(&format!("{OK}\r\n"), "he", 2).reset()),
        (
            "a size that is none",
            10,
            seen(CHUNKED, "2\r\nhe\r\n", 2).send("zz\r\n").close(),
        ),
        (
            "a chunk longer than its size",
            10,
            seen(CHUNKED, "2\r\nhe\r\n", 2).send("1\r\nhello\r\n0\r\n\r\n").close(),
        ),
        (
            "a line feed in an extension",
            10,
            seen(CHUNKED, "2\r\nhe\r\n", 2)
                .send("3;a\nb\r\nllo\r\n0\r\n\r\n")
                .close(),
        ),
    ]
}

fn early() -> Vec<Row> {
    let refused = "HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge";
    let closing = "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 5\r\n\r\nlarge";
    vec![
        (
            "an answer before the body",
            10,
            Script::sends(refused).until_client_has(5).early(),
        ),
        (
            "an answer before the body, then closed",
            10,
            Script::sends(closing).until_client_has(5).close().early(),
        ),
        (
            "an answer before a body that is never read",
            16 << 20,
            Script::sends(closing).until_client_has(5).close().early(),
        ),
    ]
}

fn connections() -> Vec<Row> {
    vec![
        (
            "connection: close",
            10,
            ok("connection: close\r\ncontent-length: 5\r\n", "hello").close(),
        ),
        (
            "connection: close that stays open",
            10,
            ok("connection: close\r\ncontent-length: 5\r\n", "hello"),
        ),
        (
            "closed after the answer",
            10,
            ok("content-length: 5\r\n", "hello").close(),
        ),
        (
            "closed after the last chunk's end",
            10,
            ok("transfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n").close(),
        ),
        (
            "keep-alive",
            10,
            ok(
                "connection: keep-alive\r\nkeep-alive: timeout=5\r\ncontent-length: 5\r\n",
                "hello",
            ),
        ),
        (
            "a nominated header",
            10,
            ok("connection: x-a\r\nx-a: b\r\ncontent-length: 5\r\n", "hello"),
        ),
    ]
}
