//! A stream is over with its last event. An upstream that keeps its connection open behind that holds up nobody, and has not failed, nor
//! has one whose connection breaks off there.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rust_decimal::Decimal;
use tollgate::pure::receipt::CallEnding;

use super::over_frames;
use crate::chat::{PROMPT, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::frames::FrameReply;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, eventually};

/// Far more than the second for which the end of a stream is waited for, and far less than `idle_ms`.
const ENDS_MAX: Duration = Duration::from_secs(10);
/// More failures at once than open a breaker.
const CALLS: usize = 6;
/// A stream up to its last event.
const EVENTS: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
    "data: [DONE]\n\n"
);

fn begun() -> Reply {
    Reply::stream().role().text("Hi")
}

/// A stream up to its last event.
fn complete() -> Reply {
    begun().finish().usage(9, 1).event("[DONE]")
}

/// One that its upstream breaks off by an error event.
fn failed() -> Reply {
    begun().event(r#"{"error":{"message":"out of order","code":500}}"#)
}

/// And then comments, for longer than the client may wait for its end.
fn comments(reply: Reply) -> Reply {
    let comment = |reply: Reply, _| reply.chunk(": still here\n\n").pause(Duration::from_millis(50));
    (0..400).fold(reply, comment)
}

/// A client reads to the end of a stream that its upstream leaves open, over either protocol, and the next call is answered.
async fn check_ends(name: &str, open: Reply, billed: Decimal) {
    let upstream = Upstream::of([open.clone(), open, Reply::stream_of(&["Hi"], 9, 1)]).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let started = Instant::now();
        let answer = client.post("/llm/chat", streaming(SMALL)).await.ok();
        assert!(started.elapsed() < ENDS_MAX, "{name}: {:?}", started.elapsed());
        let text = answer.text();
        assert_eq!(text.matches("data: [DONE]\n\n").count(), 1, "{name}: {text}");
    }
    assert_eq!(gateway.spent().await, billed * Decimal::TWO, "{name}");
    gateway.counted(2).await;
    let metrics = gateway.metrics();
    let errors = |kind| metrics.sum("tollgate_upstream_errors_total", &[("kind", kind)]);
    assert_eq!(
        (errors("silent"), errors("broken")),
        (Decimal::ZERO, Decimal::ZERO),
        "{name}"
    );
    gateway.http1.post("/llm/chat", streaming(SMALL)).await.ok();
    assert_eq!(
        upstream.connections(),
        3,
        "{name}: one that was left open is not used again"
    );
    assert_eq!(
        gateway.spent().await,
        billed * Decimal::TWO + cost(SMALL, 9, 1),
        "{name}"
    );
    gateway.check_books().await;
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_last_event_whatever_its_upstream_does_then() {
    let (whole, counted) = (cost(SMALL, 9, 1), cost(SMALL, PROMPT, 1));
    let late = begun().finish().event("[DONE]").usage(9, 5);
    let without_blank_line = begun().finish().usage(9, 1).chunk("data: [DONE]\n");
    join_all([
        check_ends("nothing more", complete().silence(), whole),
        check_ends("comments", comments(complete()), whole),
        check_ends("a usage that comes late", late.silence(), cost(SMALL, 9, 5)),
        check_ends("half an event", complete().chunk("data: {\"id\"").silence(), whole),
        check_ends("no blank line", without_blank_line.silence(), whole),
        check_ends("nothing after an error event", failed().silence(), counted),
        check_ends("comments after an error event", comments(failed()), counted),
    ])
    .await;
}

#[tokio::test]
async fn streams_that_their_upstream_leaves_open_open_no_breaker() {
    let main = Upstream::always(complete().silence()).await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let calls = (0..CALLS).map(|_| gateway.http1.post("/llm/chat", streaming(TWIN)));
    for answer in join_all(calls).await {
        answer.ok();
    }
    gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    assert_eq!((main.seen().len(), spare.seen().len()), (CALLS + 1, 0));
    gateway.counted(CALLS as u64 + 1).await;
    let errors = gateway.metrics().sum("tollgate_upstream_errors_total", &[]);
    assert_eq!(errors, Decimal::ZERO);
    assert_eq!(gateway.spent().await, cost(TWIN, 9, 1) * Decimal::from(CALLS + 1));
    gateway.check_books().await;
}

/// Reads as many streams at once as would open a breaker to their last event, has the upstream break them off there, and makes one more
/// call: none of them failed.
async fn check_broken_off(name: &str, gateway: &Gateway, cue: &Cue) {
    let mut streams = Vec::new();
    for _ in 0..CALLS {
        let mut events = gateway.http1.stream("/llm/chat", streaming(TWIN)).await.ok();
        while events.next().await.unwrap() != "[DONE]" {}
        streams.push(events);
    }
    cue.give_all();
    for events in streams {
        assert!(events.rest().await.is_empty(), "{name}");
    }
    gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    gateway.counted(CALLS as u64 + 1).await;
    let errors = gateway.metrics().sum("tollgate_upstream_errors_total", &[]);
    assert_eq!(errors, Decimal::ZERO, "{name}");
    let spent = cost(TWIN, 9, 1) * Decimal::from(CALLS + 1);
    assert_eq!(gateway.spent().await, spent, "{name}");
    let receipts = gateway.receipts().await;
    assert_eq!(receipts.len(), CALLS + 1, "{name}");
    for receipt in receipts {
        assert_eq!(receipt.billed.call.ending, Some(CallEnding::Complete), "{name}");
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn streams_whose_connection_breaks_off_behind_their_last_event_open_no_breaker() {
    for name in ["closed", "reset"] {
        let cue = Cue::new();
        let waits = complete().wait(&cue);
        let broken = if name == "closed" { waits.close() } else { waits.reset() };
        let replies = std::iter::repeat_n(broken, CALLS).chain([complete().end()]);
        let main = Upstream::of(replies).await;
        let spare = Upstream::unused().await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        check_broken_off(name, &gateway, &cue).await;
        assert_eq!((main.seen().len(), spare.seen().len()), (CALLS + 1, 0), "{name}");
        assert_eq!(main.connections(), CALLS + 1, "{name}: none of them is used again");
    }
}

#[tokio::test]
async fn streams_that_are_reset_over_http2_behind_their_last_event_open_no_breaker() {
    let cue = Cue::new();
    let whole = || FrameReply::head(200, &[("content-type", "text/event-stream")]).data(EVENTS);
    let mut replies = vec![whole().wait(&cue).reset_stream(h2::Reason::INTERNAL_ERROR); CALLS];
    replies.push(whole().last(""));
    let spare = Upstream::unused().await;
    let (main, gateway) = over_frames(replies, &spare).await;
    check_broken_off("reset over HTTP/2", &gateway, &cue).await;
    assert_eq!((main.seen().len(), spare.seen().len()), (CALLS + 1, 0));
}

#[tokio::test]
async fn a_connection_is_used_again_whose_upstream_ends_its_stream() {
    let upstream = Upstream::always(complete().end()).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c, &gateway.http1] {
        client.post("/llm/chat", streaming(SMALL)).await.ok();
    }
    assert_eq!(upstream.connections(), 1);
}

/// Over HTTP/2 other calls share the connection, so the stream alone is reset.
#[tokio::test]
async fn over_http2_the_stream_that_is_left_open_is_reset_and_its_connection_used_again() {
    let open = FrameReply::head(200, &[("content-type", "text/event-stream")]).data(EVENTS);
    let spare = Upstream::unused().await;
    let (upstream, gateway) = over_frames(vec![open], &spare).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let answer = client.post("/llm/chat", streaming(SMALL)).await.ok();
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    }
    let seen = eventually("both streams are reset", async || {
        let seen = upstream.seen();
        seen.iter().all(|seen| seen.reset.is_some()).then_some(seen)
    })
    .await;
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.connection == 0), "{seen:?}");
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) * Decimal::TWO);
    gateway.check_books().await;
}
