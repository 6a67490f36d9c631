//! Request lines and header fields.

use super::{Case, case};
use crate::chat::request;
use crate::harness::catalogue::SMALL;

pub(super) fn table(key: &str) -> Vec<Case> {
    let mut table = lines(key);
    table.extend(fields(key));
    table.extend(sizes(key));
    table.extend(authority(key));
    table
}

/// A GET of the health path with these header lines.
fn health(lines: &str) -> String {
    format!("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n{lines}\r\n")
}

fn lines(key: &str) -> Vec<Case> {
    let line = |line: &str| format!("{line}\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    let body = request(SMALL);
    let length = body.len();
    let old = |head: &str| format!("POST /api/v1/llm/chat HTTP/1.0\r\nauthorization: Bearer {key}\r\n{head}\r\n{body}");
    vec![
        case("a short request", &[404], "GET / HTTP/1.0\r\n\r\n"),
        case("no version", &[400], line("GET /api/v1/llm/health")),
        case("an unknown version", &[400], line("GET /api/v1/llm/health HTTP/9.9")),
        case(
            "HTTP/2 in the line of HTTP/1",
            &[400],
            line("GET /api/v1/llm/health HTTP/2.0"),
        ),
        case("a preface that is none", &[400], "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
        case(
            "no HTTP at all",
            &[400],
            "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03 client hello, more or less\r\n\r\n",
        ),
        case(
            "a space in the path",
            &[400],
            line("GET /api/v1/llm/health HTTP/1.1 HTTP/1.1"),
        ),
        case("two spaces", &[400], line("GET  /api/v1/llm/health  HTTP/1.1")),
        case("a NUL in the path", &[400], line("GET /api/v1/llm/health\0 HTTP/1.1")),
        case(
            "a method in lower case",
            &[405],
            line("get /api/v1/llm/health HTTP/1.1"),
        ),
        case(
            "a method of 10,000 letters",
            &[405],
            line(&format!("{} /api/v1/llm/health HTTP/1.1", "A".repeat(10_000))),
        ),
        case(
            "a method with a line feed",
            &[400],
            line("GE\nT /api/v1/llm/health HTTP/1.1"),
        ),
        case("TRACE", &[405], line("TRACE /api/v1/llm/health HTTP/1.1")),
        case("CONNECT", &[405], "CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n"),
        case(
            "CONNECT to another host",
            &[400],
            line("CONNECT example.com:443 HTTP/1.1"),
        ),
        case(
            "a path with dots",
            &[404],
            line("GET /api/v1/llm/../llm/health HTTP/1.1"),
        ),
        case("an encoded slash", &[404], line("GET /api/v1/llm%2fhealth HTTP/1.1")),
        case("two slashes", &[404], line("GET //api/v1/llm/health HTTP/1.1")),
        case(
            "a path behind a backslash",
            &[404],
            line("GET /\\api/v1/llm/health HTTP/1.1"),
        ),
        case("the asterisk", &[404], line("GET * HTTP/1.1")),
        case(
            "empty lines before the request",
            &[200],
            format!("\r\n\r\n{}", health("")),
        ),
        case(
            "HTTP/1.0 with a body",
            &[200],
            old(&format!("content-length: {length}\r\n")),
        ),
        case("HTTP/1.0 with a body and no length", &[400], old("")),
        case(
            "HTTP/1.0 that wants to be kept",
            &[200],
            "GET /api/v1/llm/health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
        ),
    ]
}

fn fields(key: &str) -> Vec<Case> {
    let body = request(SMALL);
    let length = body.len();
    let post = |lines: &str| {
        let head = format!("POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n");
        format!("{head}authorization: Bearer {key}\r\n{lines}\r\n{body}")
    };
    vec![
        case(
            "lines that end in line feeds",
            &[200],
            health("x-a: b\r\n").replace("\r\n", "\n"),
        ),
        case("a carriage return in a value", &[400], health("x-a: b\rc: d\r\n")),
        case("a NUL in a value", &[400], health("x-a: b\0c\r\n")),
        case("a folded line", &[400], health("x-a: b\r\n c\r\n")),
        case("a line folded by a tab", &[400], health("x-a: b\r\n\tc\r\n")),
        case(
            "a space before the first name",
            &[400],
            "GET /api/v1/llm/health HTTP/1.1\r\n host: x\r\n\r\n",
        ),
        case("a space before a colon", &[400], health("x-a : b\r\n")),
        case("a space in a name", &[400], health("x a: b\r\n")),
        case("a line without a colon", &[400], health("x-a\r\n")),
        case("no name", &[400], health(": b\r\n")),
        case("a name that is not ASCII", &[400], health("x-\u{e9}: b\r\n")),
        case("a value that is not ASCII", &[200], health("x-a: \u{e9}\r\n")),
        case(
            "a key that is named hop by hop",
            &[200],
            post("connection: authorization\r\n"),
        ),
        case(
            "a length that is named hop by hop",
            &[200],
            post("connection: content-length, host\r\n"),
        ),
        case(
            "headers that claim to be a proxy's",
            &[200],
            post(
                "x-forwarded-for: 1.2.3.4\r\nx-original-url: /smuggled\r\nx-http-method-override: DELETE\r\nforwarded: for=smuggled\r\n",
            ),
        ),
        case("two keys", &[401], post("authorization: Bearer x\r\n")),
        case(
            "an upgrade to another protocol",
            &[200],
            post("connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\n"),
        ),
        case(
            "an upgrade to HTTP/2",
            &[200],
            post("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"),
        ),
        case(
            "trailers and an upgrade",
            &[200],
            post("te: trailers\r\nconnection: te\r\n"),
        ),
        case("a range", &[200], health("range: bytes=0-1\r\n")),
    ]
}

fn sizes(key: &str) -> Vec<Case> {
    let line = "a".repeat(1_000);
    vec![
        case(
            "a path of 60,000 letters",
            &[404],
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(60_000)),
        ),
        case(
            "a path of 70,000 letters",
            &[400],
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(70_000)),
        ),
        case(
            "headers of 60 KB",
            &[200],
            health(&format!("x-a: {line}\r\n").repeat(59)),
        ),
        case(
            "headers of 80 KB",
            &[431],
            health(&format!("x-a: {line}\r\n").repeat(80)),
        ),
        case(
            "a key of 80 KB",
            &[431],
            health(&format!("authorization: Bearer {key}{}\r\n", "0".repeat(80_000))),
        ),
        case("300 headers", &[400], health(&"x-a: b\r\n".repeat(300))),
        case(
            "a header without end",
            &[],
            format!("GET / HTTP/1.1\r\nx-a: {}", "a".repeat(3 << 20)),
        ),
        case("a line without end", &[], format!("GET /{}", "a".repeat(3 << 20))),
    ]
}

fn authority(key: &str) -> Vec<Case> {
    let get =
        |target: &str, lines: &str| format!("GET {target} HTTP/1.1\r\n{lines}authorization: Bearer {key}\r\n\r\n");
    let path = "/api/v1/llm/health";
    vec![
        case("no host", &[400], get(path, "")),
        case("two hosts", &[400], get(path, "host: x\r\nhost: y\r\n")),
        case("the same host twice", &[400], get(path, "host: x\r\nhost: x\r\n")),
        case("a host with a user", &[400], get(path, "host: a@x\r\n")),
        case(
            "the whole address",
            &[200],
            get("http://x/api/v1/llm/health", "host: x\r\n"),
        ),
        case(
            "the whole address and another host",
            &[400],
            get("http://y/api/v1/llm/health", "host: x\r\n"),
        ),
        case(
            "the whole address with a user",
            &[400],
            get("http://a@x/api/v1/llm/health", "host: x\r\n"),
        ),
        case(
            "the whole address of another scheme",
            &[400],
            get("file:///api/v1/llm/health", "host: x\r\n"),
        ),
    ]
}
