//! Streams that last: comments while the upstream is silent, hours between two events.

use rust_decimal::Decimal;
use serde_json::Value;

use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Cue, Events, Gateway, Reply, Setup, Upstream};

const COMMENT: &str = ": waiting";
const HOUR_MS: i64 = 3_600_000;

/// The next event that is no comment, and how many comments came before it.
async fn after_comments(events: &mut Events) -> (usize, String) {
    let mut comments = 0;
    loop {
        match events.next().await.unwrap() {
            event if event == COMMENT => comments += 1,
            event => return (comments, event),
        }
    }
}

/// Comments come often enough for a test, or never.
fn commenting(upstream: &Upstream, every_ms: u64) -> Setup {
    Setup::over(upstream).conf(|conf| conf["timeouts"]["comment_ms"] = every_ms.into())
}

#[tokio::test]
async fn a_silent_upstreams_stream_is_commented_on_between_events_and_nowhere_else() {
    let cue = Cue::new();
    let event = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let (first, second) = event.split_at(30);
    let reply = Reply::stream().wait(&cue).chunk(first).wait(&cue).chunk(second);
    let upstream = Upstream::always(reply.wait(&cue).finish().usage(9, 1).done()).await;
    let gateway = commenting(&upstream, 20).start().await;
    for client in [&gateway.http1, &gateway.h2c] {
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        for _ in 0..3 {
            assert_eq!(
                events.next().await.unwrap(),
                COMMENT,
                "the answer has begun, without an event"
            );
        }
        cue.give();
        // Half an event has come: a comment would break it.
        // Sleeps: the time is what is tried. The upstream is silent for longer than a comment takes to be due.
        tokio::time::sleep(std::time::Duration::from_millis(80)).await;
        cue.give();
        let (_, event) = after_comments(&mut events).await;
        assert!(event.contains("\"Hi\""), "{event}");
        assert_eq!(events.next().await.unwrap(), COMMENT);
        cue.give();
        let (_, finish) = after_comments(&mut events).await;
        let finish: Value = serde_json::from_str(&finish).unwrap();
        assert_eq!(finish["choices"][0]["finish_reason"], "stop");
        assert_eq!(events.rest().await, ["[DONE]"]);
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
    gateway.check_books().await;
}

#[tokio::test]
async fn comments_do_not_make_a_silent_upstream_live_longer() {
    let upstream = Upstream::always(Reply::stream().role().text("Hi").silence()).await;
    let setup = commenting(&upstream, 100).conf(|conf| conf["timeouts"]["idle_ms"] = 1_000.into());
    let gateway = setup.start().await;
    for client in [&gateway.http1, &gateway.h2c] {
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        assert_eq!(after_comments(&mut events).await.0, 0);
        assert_eq!(after_comments(&mut events).await.0, 0);
        let (comments, error) = after_comments(&mut events).await;
        assert!((1..=10).contains(&comments), "{comments}");
        assert!(error.contains("upstream_error"), "{error}");
        assert_eq!(events.rest().await, ["[DONE]"]);
    }
}

#[tokio::test]
async fn without_comments_or_in_a_whole_answer_there_are_none() {
    let cue = Cue::new();
    let stream = Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done();
    let body = crate::harness::reply::whole_chat("Hi", Some((9, 1))).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let whole = Reply::json_head(body.len()).bytes(first).wait(&cue).bytes(second);
    for (reply, path, every_ms, expected) in [
        (stream, "/llm/chat/stream", 0, None),
        (whole, "/llm/chat", 5, Some(&body)),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = commenting(&upstream, every_ms).start().await;
        let answer = async {
            let answer = gateway.http1.post(path, request(SMALL)).await.ok();
            assert!(!answer.text().contains(COMMENT));
            assert!(expected.is_none_or(|body| *body == crate::harness::told::without_cost(answer.text())));
        };
        let silence = async {
            upstream.asked(1).await;
            // Sleeps: the time is what is tried. No comment comes, however long the upstream is silent.
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
            cue.give();
        };
        tokio::join!(answer, silence);
    }
}

#[tokio::test]
async fn a_stream_of_ten_hours_keeps_its_hold() {
    let cue = Cue::new();
    let begun = (0..10).fold(Reply::stream().role(), |reply, _| reply.wait(&cue).text(" word"));
    let upstream = Upstream::always(begun.finish().usage(50, 10).done()).await;
    let gateway = Gateway::over(&upstream).await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();
    let held = gateway.held().await;
    assert!(held > Decimal::ZERO);
    for hour in 0..10 {
        for _ in 0..60 {
            gateway.clock.advance(HOUR_MS / 60);
            assert_eq!(gateway.held().await, held, "in hour {hour}");
        }
        // Another call makes the store look for holds that have expired.
        gateway.http1.get("/llm/balance").await.ok();
        cue.give();
        assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], " word");
    }
    assert_eq!(events.rest().await.len(), 2);
    assert_eq!(gateway.spent().await, cost(SMALL, 50, 10));
    gateway.check_books().await;
}
