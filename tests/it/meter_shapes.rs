//! The table of stream shapes through the running gateway, whether the client asked for its usage, did not, or declined it: the exact
//! bytes that reach the client, and the bill.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::pure::tokens::{self, Encoding};

use crate::chat::PROMPT;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::told::{reported, told_cost};
use crate::harness::{Gateway, Reply, Upstream};
use crate::stream_shapes::{Ending, Shape, shapes};

const DONE: &str = "data: [DONE]\n\n";

/// What the client says of `include_usage`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asks {
    Yes,
    Nothing,
    No,
}

impl Asks {
    fn request(self) -> String {
        let mut body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }] });
        match self {
            Asks::Yes => body["stream_options"] = json!({ "include_usage": true }),
            Asks::Nothing => {}
            Asks::No => body["stream_options"] = json!({ "include_usage": false }),
        }
        body.to_string()
    }
}

/// The upstream's own bytes that pass.
fn passed(shape: &Shape, asks: Asks) -> String {
    let masked = matches!(shape.ending, Ending::Error(_)).then(|| shape.events.len() - 1);
    let left_out = shape.usage_chunk.filter(|_| asks != Asks::Yes);
    let events = shape.events.iter().enumerate();
    events
        .filter(|(index, _)| left_out != Some(*index) && masked != Some(*index))
        .map(|(_, event)| format!("{event}{}", shape.end))
        .collect()
}

/// The stream in so many pieces, each a chunk.
fn reply(shape: &Shape, pieces: usize) -> Reply {
    let bytes = shape.bytes();
    let size = bytes.len().div_ceil(pieces);
    bytes
        .chunks(size)
        .fold(Reply::stream(), |reply, piece| reply.chunk(piece))
        .end()
}

fn bill(shape: &Shape) -> Decimal {
    let texts = shape.texts.iter();
    let delivered = texts.map(|text| tokens::count(text, Encoding::O200k)).sum();
    match (shape.usage, shape.ending) {
        (_, Ending::Error(_)) if delivered == 0 => Decimal::ZERO,
        (Some((prompt, completion)), Ending::Error(_)) => cost(SMALL, prompt, completion.max(delivered)),
        (Some((prompt, completion)), _) => cost(SMALL, prompt, completion),
        (None, _) => cost(SMALL, PROMPT, delivered),
    }
}

#[track_caller]
fn check_bytes(shape: &Shape, asks: Asks, got: &str) {
    if asks == Asks::Yes && !matches!(shape.ending, Ending::Error(_)) {
        assert_eq!(told_cost(got), Some(bill(shape)), "{got}");
    }
    let (passed, got) = (reported(&passed(shape, asks)), reported(got));
    let Some(end) = got.strip_prefix(&passed) else {
        panic!("{got:?}\nmust begin with\n{passed:?}");
    };
    match shape.ending {
        Ending::Done => assert_eq!(end, ""),
        Ending::Finished | Ending::Open => assert_eq!(end, DONE),
        Ending::Error(code) => {
            let event = end.strip_suffix(DONE).and_then(|end| end.strip_suffix("\n\n"));
            let event = event.and_then(|event| event.strip_prefix("data: ")).unwrap();
            let event: Value = serde_json::from_str(event).unwrap();
            assert_eq!(event["object"], "chat.completion.chunk");
            let choices = json!([{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }]);
            assert_eq!(event["choices"], choices);
            let (status, kind) = match code {
                Some(400) => (400, "invalid_request_error"),
                Some(429) => (429, "rate_limit_error"),
                _ => (502, "upstream_error"),
            };
            assert_eq!(
                (&event["error"]["code"], &event["error"]["type"]),
                (&json!(status), &json!(kind))
            );
            assert!(!end.contains("SECRET"), "{end}");
        }
    }
}

async fn check(asks: Asks) {
    let cases: Vec<(&'static Shape, usize)> = shapes().flat_map(|shape| (1..=3).map(move |n| (shape, n))).collect();
    assert!(cases.len() >= 3 * 40);
    let replies: Vec<Reply> = cases.iter().map(|(shape, pieces)| reply(shape, *pieces)).collect();
    let upstream = Upstream::of(replies).await;
    let gateway = Gateway::over(&upstream).await;
    let mut before = Decimal::ZERO;
    for (number, (shape, pieces)) in cases.into_iter().enumerate() {
        println!("{} in {pieces} pieces, usage asked: {asks:?}", shape.name);
        let client = [&gateway.http1, &gateway.h2c][number % 2];
        let answer = client.post("/llm/chat/stream", asks.request()).await.ok();
        check_bytes(shape, asks, answer.text());
        let spent = gateway.spent().await;
        assert_eq!(spent - before, bill(shape));
        before = spent;
    }
    for seen in upstream.seen() {
        assert_eq!(seen.json()["stream_options"], json!({ "include_usage": true }));
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn every_shape_for_a_client_that_asks_for_usage() {
    check(Asks::Yes).await;
}

#[tokio::test]
async fn every_shape_for_a_client_that_says_nothing_of_usage() {
    check(Asks::Nothing).await;
}

#[tokio::test]
async fn every_shape_for_a_client_that_declines_usage() {
    check(Asks::No).await;
}
