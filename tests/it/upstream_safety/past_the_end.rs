//! An upstream that writes past the end of an answer and stays open: nobody is given what it wrote, on this connection or another.

use rust_decimal::Decimal;
use serde_json::json;

use super::over_frames;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::frames::FrameReply;
use crate::harness::reply::whole_chat;
use crate::harness::told::without_cost;
use crate::harness::{Answer, Cue, Gateway, Reply, Upstream};

const CALLS: u64 = 6;

fn own(number: u64) -> String {
    format!("call {number} alone")
}

fn asks(number: u64, streams: bool) -> String {
    json!({ "model": SMALL, "stream": streams, "messages": [{ "role": "user", "content": own(number) }] }).to_string()
}

/// An answer to somebody else.
fn foreign() -> String {
    let body = whole_chat("a foreign answer", Some((9, 1))).to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// What may follow an answer's end: a whole answer, the head of one that would swallow the next, one without an end, and nonsense.
fn more() -> Vec<String> {
    let swallows =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{\"a foreign answer\":";
    let endless = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        foreign(),
        foreign().repeat(3),
        swallows.to_owned(),
        endless.to_owned(),
        "\r\n".to_owned(),
        "a foreign answer".to_owned(),
    ]
}

/// The call's own answer, to its end.
fn answer(seen: &crate::harness::upstream::Seen, chunked: bool) -> Reply {
    let asked = seen.json();
    let said = asked["messages"][0]["content"].as_str().unwrap();
    let body = whole_chat(said, Some((9, 1))).to_string();
    match (asked["stream"] == true, chunked) {
        (true, _) => Reply::stream_of(&[said], 9, 1),
        (false, true) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            Reply::default().bytes(head).chunk(body).end()
        }
        (false, false) => Reply::json_head(body.len()).bytes(body),
    }
}

#[track_caller]
fn check_own(answer: Answer, number: u64, streams: bool) {
    let answer = answer.ok();
    let text = answer.text();
    assert!(!text.contains("foreign"), "call {number} got {text}");
    assert!(text.contains(&own(number)), "call {number} got {text}");
    if !streams {
        assert_eq!(without_cost(text), whole_chat(&own(number), Some((9, 1))).to_string());
    }
}

async fn check_all(gateway: &Gateway, between: impl AsyncFn()) {
    for number in 0..CALLS {
        let (client, streams) = ([&gateway.http1, &gateway.h2c][number as usize % 2], number % 3 == 2);
        let answer = client.post("/llm/chat", asks(number, streams)).await;
        check_own(answer, number, streams);
        between().await;
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) * Decimal::from(CALLS));
    assert_eq!(gateway.usage().await[0].requests, CALLS);
    gateway.check_books().await;
}

#[tokio::test]
async fn what_follows_an_answer_in_the_same_write_is_nobodys() {
    for more in more() {
        for chunked in [false, true] {
            println!("{chunked} {more:?}");
            let upstream = Upstream::by({
                let more = more.clone();
                move |_, seen| answer(seen, chunked).bytes(&more).at_once()
            })
            .await;
            let gateway = Gateway::over(&upstream).await;
            check_all(&gateway, async || ()).await;
        }
    }
}

/// The connection waits for its next request by then.
#[tokio::test]
async fn what_follows_an_answer_later_is_nobodys() {
    for more in more() {
        println!("{more:?}");
        let cue = Cue::new();
        let upstream = Upstream::by({
            let (more, cue) = (more.clone(), cue.clone());
            move |_, seen| answer(seen, false).bytes("").wait(&cue).bytes(&more)
        })
        .await;
        let gateway = Gateway::over(&upstream).await;
        check_all(&gateway, async || {
            cue.give();
            // All of a test is one thread: by the time that these are answered the upstream has written, and the gateway's end has it.
            for _ in 0..5 {
                gateway.http1.get("/llm/balance").await.ok();
            }
        })
        .await;
        assert!(
            upstream.connections() > 1,
            "a connection that said something more was used again"
        );
    }
}

/// A client leaves in the middle, and the upstream writes the rest to whoever is there.
#[tokio::test]
async fn the_rest_of_an_answer_whose_client_has_left_is_nobodys() {
    let cue = Cue::new();
    let upstream = Upstream::by({
        let cue = cue.clone();
        move |number, seen| match number {
            0 => Reply::stream()
                .role()
                .text("a foreign")
                .wait(&cue)
                .text(" answer")
                .finish()
                .done(),
            _ => answer(seen, false),
        }
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    let mut events = gateway.http1.stream("/llm/chat", asks(0, true)).await.ok();
    for _ in 0..2 {
        events.next().await.unwrap();
    }
    drop(events);
    gateway.settled_balance().await;
    cue.give();
    for number in 1..CALLS {
        let answer = gateway.http1.post("/llm/chat", asks(number, false)).await;
        check_own(answer, number, false);
    }
    gateway.check_books().await;
}

/// Over HTTP/2 the connection is shared: one stream's bytes beyond its length or its end fail that stream at most.
#[tokio::test]
async fn over_http2_what_follows_an_answer_is_nobodys() {
    let body = |number| whole_chat(&own(number), Some((9, 1))).to_string();
    let json = ("content-type", "application/json");
    let right = |number| FrameReply::head(200, &[json]).last(body(number));
    let length = body(0).len().to_string();
    let too_long = FrameReply::head(200, &[json, ("content-length", &length)])
        .data(body(0))
        .last(foreign());
    let after_end = FrameReply::head(200, &[json]).last(body(0)).data(foreign());
    for (wrong, is_answered) in [(too_long, false), (after_end, true)] {
        let replies = [wrong].into_iter().chain((1..CALLS).map(right)).collect();
        let spare = Upstream::unused().await;
        let (_upstream, gateway) = over_frames(replies, &spare).await;
        let first = gateway.http1.post("/llm/chat", asks(0, false)).await;
        if is_answered {
            check_own(first, 0, false);
        } else {
            first.error(502, "upstream_error");
        }
        for number in 1..CALLS {
            let answer = gateway.h2c.post("/llm/chat", asks(number, false)).await;
            check_own(answer, number, false);
        }
        let billed = CALLS - u64::from(!is_answered);
        assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) * Decimal::from(billed));
        gateway.check_books().await;
    }
}
