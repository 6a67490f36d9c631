//! What a client is told of an answer's length is the gateway's own word, never the upstream's.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use rust_decimal::Decimal;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Answer, Gateway, Raw, Reply, Setup, Upstream};

/// What an upstream says of its answer's length, and whether that is an answer.
struct Framing {
    headers: String,
    /// How the body is sent.
    body: Sent,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Sent {
    AsItIs,
    InChunks,
    /// Until the connection's end.
    UntilClosed,
}

impl Sent {
    fn send(self, head: String, body: &str) -> Reply {
        match self {
            Sent::AsItIs => Reply::default().bytes(head + body),
            Sent::InChunks => Reply::default().bytes(head).chunk(body).end(),
            Sent::UntilClosed => Reply::default().bytes(head + body).close(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// The client gets it.
    Passes,
    /// It is no usable answer.
    Fails,
    /// Either, but in whole.
    Either,
}

fn table(length: usize) -> Vec<Framing> {
    let case = |headers: &str, body, expected| Framing {
        headers: headers.replace("{}", &length.to_string()),
        body,
        expected,
    };
    use Expected::{Either, Fails, Passes};
    use Sent::{AsItIs, InChunks, UntilClosed};
    vec![
        case("content-length: {}\r\n", AsItIs, Passes),
        case("transfer-encoding: chunked\r\n", InChunks, Passes),
        case("Transfer-Encoding: CHUNKED\r\n", InChunks, Passes),
        case("connection: close\r\n", UntilClosed, Passes),
        case("content-length: {}, {}\r\n", AsItIs, Either),
        case("content-length: {}\r\ncontent-length: {}\r\n", AsItIs, Either),
        case("content-length: 0{}\r\n", AsItIs, Either),
        case("content-length: {}\r\ntransfer-encoding: chunked\r\n", InChunks, Either),
        case("transfer-encoding: chunked\r\ncontent-length: 3\r\n", InChunks, Either),
        case("content-length: {}, 3\r\n", AsItIs, Fails),
        case("content-length: {}\r\ncontent-length: 3\r\n", AsItIs, Fails),
        case("content-length: +{}\r\n", AsItIs, Fails),
        case("content-length: -1\r\n", UntilClosed, Fails),
        case("transfer-encoding: identity\r\n", UntilClosed, Fails),
        case("transfer-encoding: identity\r\ncontent-length: {}\r\n", AsItIs, Fails),
        case("transfer-encoding: gzip, chunked\r\n", InChunks, Fails),
        case(
            "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
            InChunks,
            Fails,
        ),
        case("transfer-encoding: gzip\r\n", UntilClosed, Fails),
        case("transfer-encoding: chunked, gzip\r\n", UntilClosed, Fails),
        case("transfer-encoding: chunked, chunked\r\n", InChunks, Fails),
        case("transfer-encoding: xchunked\r\n", InChunks, Fails),
        case("transfer-encoding: \r\n", UntilClosed, Fails),
    ]
}

fn reply(framing: &Framing, content_type: &str, body: &str) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{}\r\n",
        framing.headers
    );
    let reply = framing.body.send(head, body);
    match framing.expected {
        // Whoever takes it for an answer after all is not left waiting.
        Expected::Fails => reply.close(),
        _ => reply,
    }
}

/// The head says how long the body is in one way, and rightly.
fn check_framing(answer: &Answer) {
    let lengths: Vec<_> = answer.headers.get_all("content-length").iter().collect();
    let codings: Vec<_> = answer.headers.get_all("transfer-encoding").iter().collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([length], []) => assert_eq!(*length, &answer.body.len().to_string()),
        ([], [coding]) => assert_eq!(*coding, "chunked"),
        other => panic!("{other:?}"),
    }
}

async fn check(framing: &Framing, streams: bool, body: &str) {
    let content_type = if streams {
        "text/event-stream"
    } else {
        "application/json"
    };
    let main = Upstream::always(reply(framing, content_type, body)).await;
    let spare = Upstream::by(|_, seen| match seen.json()["stream"].as_bool() {
        Some(true) => Reply::stream_of(&["Hi"], 9, 1),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let asks = |model| if streams { streaming(model) } else { request(model) };
    let mut raw = Raw::posted(&gateway, "/llm/chat", &asks(SMALL)).await;
    let answer = raw.answer().await;
    check_framing(&answer);
    let spent = gateway.spent().await;
    match framing.expected {
        Expected::Passes => assert_eq!(answer.status, 200, "{}", answer.text()),
        Expected::Fails => drop(answer.error(502, "upstream_error")),
        Expected::Either => {}
    }
    if answer.status == 200 {
        check_body(&answer, streams, body);
        assert_eq!(spent, cost(SMALL, 9, 1));
    } else {
        answer.error(502, "upstream_error");
        assert_eq!(spent, Decimal::ZERO);
    }
    let over_http2 = gateway.h2c.post("/llm/chat", asks(SMALL)).await;
    assert_eq!(over_http2.status, answer.status);
    assert_eq!(over_http2.header("transfer-encoding"), "");
    let lengths: Vec<_> = over_http2.headers.get_all("content-length").iter().collect();
    assert!(
        lengths
            .iter()
            .all(|length| *length == &over_http2.body.len().to_string())
            && lengths.len() <= 1
    );
    let spent = gateway.spent().await;
    let answer = gateway.http1.post("/llm/chat", asks(TWIN)).await.ok();
    assert_eq!(spare.seen().is_empty(), over_http2.status == 200);
    assert_eq!(gateway.spent().await - spent, cost(TWIN, 9, 1));
    assert!(!answer.body.is_empty());
    gateway.check_books().await;
}

fn check_body(answer: &Answer, streams: bool, body: &str) {
    if streams {
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    } else {
        assert_eq!(crate::harness::told::without_cost(answer.text()), body);
    }
}

/// Runs all rows, and fails with all that went wrong.
async fn check_all(streams: bool, body: String) {
    let mut wrong = Vec::new();
    for framing in table(body.len()) {
        let checked = AssertUnwindSafe(check(&framing, streams, &body)).catch_unwind();
        if let Err(said) = checked.await {
            let said = said.downcast_ref::<String>().map_or("", String::as_str);
            wrong.push(format!("{:?}: {said}", framing.headers));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_whole_answers_length_is_the_gateways_own_word() {
    check_all(false, whole_chat("Hi", Some((9, 1))).to_string()).await;
}

#[tokio::test]
async fn a_streams_end_is_the_gateways_own_word() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let body = format!(
        "data: {}\n\ndata: {}\n\ndata: {usage}\n\ndata: [DONE]\n\n",
        r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    );
    check_all(true, body).await;
}

/// A refusal's words are the upstream's, its length is not.
#[tokio::test]
async fn a_refusals_length_is_the_gateways_own_word() {
    let words = r#"{"error":{"message":"not like this"}}"#;
    for framing in table(words.len()) {
        println!("{:?}", framing.headers);
        if framing.expected == Expected::Fails {
            continue;
        }
        let head = format!(
            "HTTP/1.1 422 No\r\ncontent-type: application/json\r\n{}\r\n",
            framing.headers
        );
        let main = Upstream::always(framing.body.send(head, words)).await;
        let gateway = Gateway::over(&main).await;
        let answer = Raw::posted(&gateway, "/llm/chat", &request(SMALL)).await.answer().await;
        check_framing(&answer);
        if answer.status == 422 {
            assert_eq!(answer.error(422, "invalid_request_error")["message"], "not like this");
        } else {
            answer.error(502, "upstream_error");
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
    }
}
