//! Where a body ends: lengths, chunks, and what comes after.

use super::{Case, case, case_that_closes, case_that_ends};
use crate::chat::request;
use crate::harness::catalogue::SMALL;

/// A request that follows the first in the same bytes, as a smuggler wants it to be taken.
const SMUGGLED: &str = "GET /api/v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";

pub(super) fn table(key: &str) -> Vec<Case> {
    let mut table = lengths(key);
    table.extend(codings(key));
    table.extend(chunks(key));
    table.extend(chunks_after_other_heads(key));
    table.extend(after_the_body(key));
    table
}

/// A POST with these header lines, each with its end, and this after the head.
fn post(key: &str, lines: &str, body: &str) -> String {
    let head = "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    format!("{head}authorization: Bearer {key}\r\n{lines}\r\n{body}")
}

/// A call.
pub(super) fn whole(key: &str) -> String {
    let body = request(SMALL);
    post(key, &format!("content-length: {}\r\n", body.len()), &body)
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

fn lengths(key: &str) -> Vec<Case> {
    let body = request(SMALL);
    let length = body.len();
    let with = |lines: &str| post(key, lines, &body);
    let says = |value: &str| post(key, &format!("content-length: {value}\r\n"), &body);
    vec![
        case("a plain request", &[200], says(&length.to_string())),
        case(
            "the same length twice",
            &[200],
            with(&format!("content-length: {length}\r\ncontent-length: {length}\r\n")),
        ),
        case(
            "two lengths",
            &[400],
            with(&format!("content-length: {length}\r\ncontent-length: 3\r\n")),
        ),
        case(
            "two lengths, the right one last",
            &[400],
            with(&format!("content-length: 3\r\ncontent-length: {length}\r\n")),
        ),
        case("two lengths in one line", &[400], says(&format!("{length}, 3"))),
        case("a length with a sign", &[400], says(&format!("+{length}"))),
        case("a negative length", &[400], says("-1")),
        case("a hexadecimal length", &[400], says("0x10")),
        case("a length with a space in it", &[400], says("1 0")),
        case("a length with a fraction", &[400], says("10.0")),
        case("an empty length", &[400], says("")),
        case("a length beyond 64 bits", &[400], says("99999999999999999999999")),
        case("a length at the end of 64 bits", &[413], says("18446744073709551615")),
        case("a length above the limit", &[413], says("1000000000")),
        case("a length behind a vertical tab", &[400], says(&format!("\x0b{length}"))),
        case(
            "a length before its colon's space",
            &[400],
            with(&format!("content-length : {length}\r\n")),
        ),
        case_that_closes("no length", &[400], with("")),
        case_that_ends(
            "a body that is cut",
            &[],
            post(key, &format!("content-length: {length}\r\n"), "{\"model\""),
        ),
        case_that_ends(
            "a chunked body that is cut",
            &[],
            post(key, "transfer-encoding: chunked\r\n", "5\r\n{\"mod"),
        ),
    ]
}

fn codings(key: &str) -> Vec<Case> {
    let body = request(SMALL);
    let length = body.len();
    let with = |lines: &str| post(key, lines, &chunked(&body));
    let says = |value: &str| with(&format!("transfer-encoding: {value}\r\n"));
    vec![
        case("chunks", &[200], says("chunked")),
        case("chunks in capitals", &[200], says("CHUNKED")),
        case("chunks behind a tab", &[200], with("transfer-encoding:\tchunked\r\n")),
        // RFC 9112 section 6.1: the coding counts, and the connection ends with the answer.
        case(
            "chunks and a length",
            &[200],
            with(&format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n")),
        ),
        case(
            "a length and chunks",
            &[200],
            with(&format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n")),
        ),
        case(
            "chunks and two lengths",
            &[200],
            with("content-length: 4\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n"),
        ),
        case(
            "CL.TE",
            &[400],
            post(
                key,
                "content-length: 50\r\ntransfer-encoding: chunked\r\n",
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
        ),
        case(
            "TE.CL",
            &[400],
            post(
                key,
                "content-length: 4\r\ntransfer-encoding: chunked\r\n",
                &chunked(SMUGGLED),
            ),
        ),
        case("chunks twice", &[400], says("chunked, chunked")),
        case(
            "chunks in two lines",
            &[400],
            with("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        ),
        case("an unknown coding", &[400], says("xchunked")),
        case("an unknown coding before chunks", &[400], says("x, chunked")),
        case(
            "an unknown coding before chunks in two lines",
            &[400],
            with("transfer-encoding: x\r\ntransfer-encoding: chunked\r\n"),
        ),
        case("an unknown coding after chunks", &[400], says("chunked, x")),
        case(
            "an unknown coding after chunks in two lines",
            &[400],
            with("transfer-encoding: chunked\r\ntransfer-encoding: x\r\n"),
        ),
        case("compressed chunks", &[400], says("gzip, chunked")),
        case("identity and chunks", &[400], says("identity, chunked")),
        case("identity", &[400], says("identity")),
        case("chunks in quotes", &[400], says("\"chunked\"")),
        case("chunks with a parameter", &[400], says("chunked;q=1")),
        case("chunks behind a vertical tab", &[400], says("\x0bchunked")),
        case("chunks before a NUL", &[400], says("chunked\0")),
        case(
            "a space before the coding's colon",
            &[400],
            with("transfer-encoding : chunked\r\n"),
        ),
        case(
            "a coding that is folded",
            &[400],
            with("transfer-encoding:\r\n chunked\r\n"),
        ),
        case(
            "a coding behind a folded line",
            &[400],
            with("x-a: 1\r\n transfer-encoding: chunked\r\n"),
        ),
        case("an empty coding", &[400], says("")),
        case(
            "a coding in HTTP/1.0",
            &[400],
            says("chunked").replace("HTTP/1.1", "HTTP/1.0"),
        ),
        case(
            "an encoded body",
            &[400],
            post(
                key,
                &format!("content-encoding: gzip\r\ncontent-length: {length}\r\n"),
                &body,
            ),
        ),
    ]
}

fn chunks(key: &str) -> Vec<Case> {
    let body = request(SMALL);
    let size = format!("{:x}", body.len());
    let says = |text: &str| post(key, "transfer-encoding: chunked\r\n", text);
    let one_by_one: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    let long_name = "a".repeat(100_000);
    vec![
        case("a chunk of each byte", &[200], says(&format!("{one_by_one}0\r\n\r\n"))),
        case(
            "a size with leading zeros",
            &[200],
            says(&format!("000{size}\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "an extension",
            &[200],
            says(&format!("{size};a=b\r\n{body}\r\n0;c\r\n\r\n")),
        ),
        case(
            "an extension in quotes",
            &[200],
            says(&format!("{size};a=\"b;c\"\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "an extension with a line feed",
            &[400],
            says(&format!("{size};a=\n{body}\r\n0\r\n\r\n")),
        ),
        case("an extension without end", &[400], says(&format!("{size};{long_name}"))),
        case(
            "a size beyond 64 bits",
            &[400],
            says(&format!("fffffffffffffffff\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size at the end of 64 bits",
            &[400],
            says(&format!("ffffffffffffffff\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size of 2^63 bytes",
            &[400],
            says(&format!("8000000000000000\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a negative size",
            &[400],
            says(&format!("-{size}\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size with a sign",
            &[400],
            says(&format!("+{size}\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size that says 0x",
            &[400],
            says(&format!("0x{size}\r\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size behind a space",
            &[400],
            says(&format!(" {size}\r\n{body}\r\n0\r\n\r\n")),
        ),
        case("no size", &[400], says(&format!("\r\n{body}\r\n0\r\n\r\n"))),
        case("no digits", &[400], says(&format!("zz\r\n{body}\r\n0\r\n\r\n"))),
        case(
            "a size that ends in a line feed",
            &[400],
            says(&format!("{size}\n{body}\r\n0\r\n\r\n")),
        ),
        case(
            "a size that ends in a carriage return",
            &[400],
            says(&format!("{size}\r{body}\r\n0\r\n\r\n")),
        ),
        case(
            "data that ends in a line feed",
            &[400],
            says(&format!("{size}\r\n{body}\n0\r\n\r\n")),
        ),
        case(
            "data longer than its size",
            &[400],
            says(&format!("{size}\r\n{body}XX\r\n0\r\n\r\n")),
        ),
        case(
            "a trailer",
            &[200],
            says(&format!("{size}\r\n{body}\r\n0\r\nx-a: b\r\n\r\n")),
        ),
        case(
            "a trailer that names a key",
            &[200],
            says(&format!(
                "{size}\r\n{body}\r\n0\r\nauthorization: Bearer smuggled\r\n\r\n"
            )),
        ),
        case(
            "trailers without end",
            &[400],
            says(&format!("{size}\r\n{body}\r\n0\r\n{}", "x-a: b\r\n".repeat(20_000))),
        ),
    ]
}

/// Heads that end otherwise than in CR LF CR LF, or behind something that looks like that end.
fn chunks_after_other_heads(key: &str) -> Vec<Case> {
    let body = request(SMALL);
    let size = format!("{:x}", body.len());
    let head = post(key, "transfer-encoding: chunked\r\n", "");
    let in_line_feeds = head.replace("\r\n", "\n");
    let (right, bare) = (
        format!("{size};a=b\r\n{body}\r\n0\r\n\r\n"),
        format!("{size};a=\nb\r\n{body}\r\n0\r\n\r\n"),
    );
    vec![
        case(
            "an extension after a head in line feeds",
            &[200],
            format!("{in_line_feeds}{right}"),
        ),
        case(
            "an extension with a line feed after a head in line feeds",
            &[400],
            format!("{in_line_feeds}{bare}"),
        ),
        case(
            "an extension with a line feed after empty lines and a head",
            &[400],
            format!("\r\n\r\n{head}{bare}"),
        ),
    ]
}

fn after_the_body(key: &str) -> Vec<Case> {
    let whole = whole(key);
    let health = "GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n";
    vec![
        // Pipelining is not offered: the first is answered, the others are for a new connection (RFC 9112 section 9.3.2).
        case_that_closes("two requests at once", &[200], format!("{health}\r\n{health}\r\n")),
        case_that_closes("twenty requests at once", &[200], format!("{health}\r\n").repeat(20)),
        case_that_closes("a call and a request at once", &[200], format!("{whole}{health}\r\n")),
        case(
            "a body where none is read",
            &[200],
            format!("{health}content-length: 5\r\n\r\nhello"),
        ),
        case(
            "a body with a request in it",
            &[200],
            format!("{health}content-length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len()),
        ),
        case(
            "a chunked body where none is read",
            &[200],
            format!("{health}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ),
        case_that_closes(
            "a request after a refused one",
            &[401],
            format!("{}{health}\r\n", whole.replace("Bearer tg_", "Bearer tg_0")),
        ),
    ]
}
