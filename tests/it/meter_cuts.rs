//! Upstreams that break off after k bytes, for every k of a short answer, however the answer is framed: what the client reads is whole
//! events and a clean end, or an error, and it pays for what it got.

use rust_decimal::Decimal;
use serde_json::Value;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// How an answer says where it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framed {
    /// As one chunk.
    Chunk,
    /// By a length.
    Length,
    /// Not at all.
    UntilClosed,
}

const FRAMINGS: [Framed; 3] = [Framed::Chunk, Framed::Length, Framed::UntilClosed];

/// The head of an answer of so many bytes, and the first bytes of that answer.
fn begun(framed: Framed, content_type: &str, body: &[u8], bytes: usize) -> Reply {
    let framing = match framed {
        Framed::Chunk => format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len()),
        Framed::Length => format!("content-length: {}\r\n\r\n", body.len()),
        Framed::UntilClosed => "connection: close\r\n\r\n".to_owned(),
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{framing}");
    Reply::default().bytes([head.as_bytes(), &body[..bytes]].concat())
}

const TEXTS: [&str; 2] = ["Hello", " world"];
const USAGE: (u64, u64) = (50, 30);

/// A short stream.
fn stream() -> String {
    let mut events: Vec<String> = TEXTS
        .iter()
        .map(|text| {
            format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#)
        })
        .collect();
    events.push(FINISH.to_owned());
    events.push(REPORT.to_owned());
    events.push("[DONE]".to_owned());
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

const FINISH: &str = r#"{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const REPORT: &str = r#"{"id":"x","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":30}}"#;

/// What a client must have got of the first bytes of [`stream`], and owe for it.
struct Expected {
    texts: usize,
    whole: bool,
    bill: Decimal,
}

impl Expected {
    fn of(cut: &str, framed: Framed) -> Expected {
        // An event passes with the end of its line, or with the end of the answer.
        let ends =
            |data: &str| cut.contains(&format!("{data}\n")) || (framed == Framed::UntilClosed && cut.ends_with(data));
        let texts = TEXTS
            .iter()
            .filter(|text| ends(&format!("\"{text}\"}},\"finish_reason\":null}}]}}")))
            .count();
        let finished = ends(FINISH);
        let whole = ends("data: [DONE]") || (framed == Framed::UntilClosed && finished);
        let bill = if cut.contains("\"completion_tokens\":30}") {
            cost(SMALL, USAGE.0, USAGE.1)
        } else if texts > 0 {
            cost(SMALL, PROMPT, u64::try_from(texts).unwrap())
        } else {
            Decimal::ZERO
        };
        Expected { texts, whole, bill }
    }
}

/// Checks a stream that came to its end; how many texts it had.
#[track_caller]
fn check_events(events: &[String], whole: bool) -> usize {
    let (last, events) = events.split_last().unwrap();
    assert_eq!(last, "[DONE]", "{events:?}");
    let events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let failures = events.iter().filter(|event| event["error"]["code"] == 502).count();
    assert_eq!(failures, usize::from(!whole), "{events:?}");
    if !whole {
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "error");
    }
    let text = |event: &Value| {
        event["choices"][0]["delta"]["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    };
    events.iter().filter(|event| text(event)).count()
}

#[tokio::test]
async fn a_stream_that_breaks_off_after_k_bytes() {
    let stream = stream();
    for framed in FRAMINGS {
        let replies =
            (0..=stream.len()).map(|bytes| begun(framed, "text/event-stream", stream.as_bytes(), bytes).close());
        let upstream = Upstream::of(replies).await;
        let gateway = Gateway::over(&upstream).await;
        let mut before = Decimal::ZERO;
        for bytes in 0..=stream.len() {
            let client = [&gateway.http1, &gateway.h2c][bytes % 2];
            let events = client
                .stream("/llm/chat/stream", request(SMALL))
                .await
                .ok()
                .rest()
                .await;
            let expected = Expected::of(&stream[..bytes], framed);
            println!("{framed:?}, {bytes} bytes: {events:?}");
            // With the length of its answer reached, it has not broken off.
            let complete = expected.whole || (framed == Framed::Length && bytes == stream.len());
            assert_eq!(check_events(&events, complete), expected.texts);
            let spent = gateway.spent().await;
            assert_eq!(spent - before, expected.bill);
            before = spent;
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_after_k_bytes() {
    let stream = stream();
    let until_report = stream.find(REPORT).unwrap();
    for framed in FRAMINGS {
        let replies =
            (0..until_report).map(|bytes| begun(framed, "text/event-stream", stream.as_bytes(), bytes).reset());
        let upstream = Upstream::of(replies).await;
        let gateway = Gateway::over(&upstream).await;
        let mut before = Decimal::ZERO;
        for bytes in 0..until_report {
            println!("{framed:?}, {bytes} bytes");
            let client = [&gateway.http1, &gateway.h2c][bytes % 2];
            let answer = client.stream("/llm/chat/stream", request(SMALL)).await;
            // A reset throws away what was not read yet, so it may come before the head.
            let texts = if answer.status == 200 {
                check_events(&answer.ok().rest().await, false)
            } else {
                assert_eq!(answer.status, 502);
                0
            };
            let bill = match u64::try_from(texts).unwrap() {
                0 => Decimal::ZERO,
                texts => cost(SMALL, PROMPT, texts),
            };
            let spent = gateway.spent().await;
            assert_eq!(spent - before, bill);
            before = spent;
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_stream_that_stalls_after_k_bytes() {
    let stream = stream();
    let cuts: Vec<usize> = (0..stream.len()).step_by(29).collect();
    for framed in FRAMINGS {
        let replies: Vec<Reply> = cuts
            .iter()
            .map(|bytes| begun(framed, "text/event-stream", stream.as_bytes(), *bytes).silence())
            .collect();
        let upstream = Upstream::of(replies).await;
        let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["idle_ms"] = 60.into());
        let gateway = setup.start().await;
        let mut before = Decimal::ZERO;
        for bytes in &cuts {
            println!("{framed:?}, {bytes} bytes");
            let client = [&gateway.http1, &gateway.h2c][bytes % 2];
            let events = client
                .stream("/llm/chat/stream", request(SMALL))
                .await
                .ok()
                .rest()
                .await;
            // It did not end, so an event counts from the end of its line in every framing.
            let expected = Expected::of(&stream[..*bytes], Framed::Chunk);
            assert_eq!(check_events(&events, expected.whole), expected.texts);
            let spent = gateway.spent().await;
            assert_eq!(spent - before, expected.bill);
            before = spent;
        }
        gateway.check_books().await;
    }
}

/// The first choice has ended by then, which is no end of the second.
#[tokio::test]
async fn a_stream_of_two_choices_that_breaks_off_within_the_second() {
    let events = [
        r#"{"id":"x","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}"#,
        FINISH,
        r#"{"id":"x","choices":[{"index":1,"delta":{"content":" world"},"finish_reason":null}]}"#,
    ];
    let stream = events.map(|event| format!("data: {event}\n\n")).concat();
    let reply = begun(
        Framed::UntilClosed,
        "text/event-stream",
        stream.as_bytes(),
        stream.len(),
    );
    let upstream = Upstream::always(reply.close()).await;
    let gateway = Gateway::over(&upstream).await;
    let mut body: Value = serde_json::from_str(&request(SMALL)).unwrap();
    body["n"] = 2.into();
    for client in [&gateway.http1, &gateway.h2c] {
        let stream = client.stream("/llm/chat/stream", body.to_string()).await.ok();
        assert_eq!(check_events(&stream.rest().await, false), 2);
    }
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2) * Decimal::TWO);
    gateway.check_books().await;
}
