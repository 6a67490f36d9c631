//! Clients that are cut off and come back.

use rust_decimal::Decimal;

use super::{OnStore, again, is_unavailable};
use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::{Answer, Cue, Events, Gateway, Raw, Reply, Setup, Upstream};

on_both_stores! {
    a_client_that_is_cut_off: cut_off_embedded, cut_off_redis;
    a_client_that_is_cut_off_for_too_long: cut_off_too_long_embedded, cut_off_too_long_redis;
    an_upstream_that_dies_once_its_client_is_cut_off: cut_off_and_died_embedded, cut_off_and_died_redis;
}

/// The upstream goes on at the cue, whole and streamed.
fn gated(cue: &Cue, is_stream: bool) -> Reply {
    let whole = whole_chat(&"word ".repeat(400), Some((50, 30))).to_string();
    let (begun, rest) = whole.split_at(whole.len() / 2);
    match is_stream {
        true => Reply::stream()
            .role()
            .text("Hello")
            .wait(cue)
            .text(" world")
            .finish()
            .usage(50, 30)
            .done(),
        false => Reply::json_head(whole.len()).bytes(begun).wait(cue).bytes(rest),
    }
}

async fn a_client_that_is_cut_off(store: OnStore<'_>) {
    let cue = Cue::new();
    let of_upstream = cue.clone();
    let upstream = Upstream::by(move |_, seen| gated(&of_upstream, seen.json()["stream"] == true)).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let stream = streaming(SMALL);
    let mut spent = Decimal::ZERO;
    for over_h2 in [false, true] {
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let key = format!("stream-{over_h2}");
        let call = client.post_request("/llm/chat", stream.clone());
        let mut events = Events::of(call.header("idempotency-key", &key)).await.ok();
        events.next().await.unwrap();
        let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
        drop(events);
        assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
        cue.give();
        let got = again(client, "/llm/chat", &stream, &key).await.ok();
        assert_eq!(got.header("x-original-request-id"), id);
        assert!(
            got.text().contains("Hello") && got.text().ends_with("data: [DONE]\n\n"),
            "{}",
            got.text()
        );
        is_same_as_an_unbroken_one(&gateway, &cue, &stream, &got).await;
        spent += cost(SMALL, 50, 30) * Decimal::TWO;
        assert_eq!(gateway.spent().await, spent);
    }
    // A whole answer, of which its client got nothing.
    let body = request(SMALL);
    let fields = "HTTP/1.1\r\nhost: x\r\nidempotency-key: whole";
    let raw = Raw::posted_as(&gateway, "/llm/chat", fields, body.len(), &body).await;
    upstream.asked(5).await;
    raw.close();
    cue.give();
    let got = again(&gateway.http1, "/llm/chat", &body, "whole").await.ok();
    is_same_as_an_unbroken_one(&gateway, &cue, &body, &got).await;
    assert_eq!(gateway.spent().await, spent + cost(SMALL, 50, 30) * Decimal::TWO);
    assert_eq!(upstream.seen().len(), 6);
    gateway.check_books().await;
}

/// Checks an answer against that of a call that nobody cut.
async fn is_same_as_an_unbroken_one(gateway: &Gateway, cue: &Cue, body: &str, got: &Answer) {
    cue.give();
    let unbroken = gateway.http1.post("/llm/chat", body.to_owned()).await.ok();
    assert_eq!(got.text(), unbroken.text());
    assert_eq!(got.header("content-type"), unbroken.header("content-type"));
}

async fn a_client_that_is_cut_off_for_too_long(store: OnStore<'_>) {
    let cue = Cue::new();
    let of_upstream = cue.clone();
    let upstream = Upstream::by(move |_, _| gated(&of_upstream, true)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["disconnect_drain_ms"] = 100.into());
    let gateway = store(setup).start().await;
    let call = gateway.http1.post_request("/llm/chat/stream", request(SMALL));
    let mut events = Events::of(call.header("idempotency-key", "a")).await.ok();
    events.next().await.unwrap();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    drop(events);
    upstream.hung_up().await;
    let second = again(&gateway.http1, "/llm/chat/stream", &request(SMALL), "a").await;
    is_unavailable(&second, Some(&id));
    assert_eq!(upstream.seen().len(), 1);
    gateway.spent().await;
    gateway.check_books().await;
}

/// By the time that these are answered, on the same thread, the gateway has seen that a client left.
async fn sees_it_leave(gateway: &Gateway) {
    for _ in 0..2 {
        gateway.http1.get("/llm/health").await.ok();
    }
}

/// A client that comes back owes and gets what it would have owed and got had it stayed: a whole answer that broke off is free, a stream
/// that did is given again with its error event, and what delivered nothing is free too.
async fn an_upstream_that_dies_once_its_client_is_cut_off(store: OnStore<'_>) {
    let cue = Cue::new();
    let of_upstream = cue.clone();
    let upstream = Upstream::by(move |number, _| match number {
        0 => Reply::json_head(500).bytes("{\"id\":").wait(&of_upstream).reset(),
        1 => Reply::chat("Hi", 9, 1),
        2 => Reply::stream().role().text("Hello").wait(&of_upstream).reset(),
        3 => Reply::stream().role().wait(&of_upstream).reset(),
        _ => Reply::stream_of(&["Hi"], 9, 1),
    })
    .await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let client = &gateway.http1;

    let body = request(SMALL);
    let fields = "HTTP/1.1\r\nhost: x\r\nidempotency-key: whole";
    let raw = Raw::posted_as(&gateway, "/llm/chat", fields, body.len(), &body).await;
    upstream.asked(1).await;
    sees_it_leave(&gateway).await;
    raw.close();
    sees_it_leave(&gateway).await;
    cue.give();
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    let retried = again(client, "/llm/chat", &body, "whole").await.ok();
    assert_eq!(retried.header("idempotency-replayed"), "");
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    assert_eq!(upstream.seen().len(), 2);

    let stream = streaming(SMALL);
    let cut_after = async |events_read: usize, key: &str| {
        let call = client.post_request("/llm/chat", stream.clone());
        let mut events = Events::of(call.header("idempotency-key", key)).await.ok();
        for _ in 0..events_read {
            events.next().await.unwrap();
        }
        let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
        drop(events);
        sees_it_leave(&gateway).await;
        cue.give();
        (id, again(client, "/llm/chat", &stream, key).await.ok())
    };
    let (id, got) = cut_after(2, "stream").await;
    assert_eq!(got.header("x-original-request-id"), id);
    let text = got.text();
    assert!(text.contains("Hello") && text.contains("\"error\""), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) + cost(SMALL, PROMPT, 1));

    let (_, got) = cut_after(1, "nothing").await;
    assert_eq!(got.header("idempotency-replayed"), "");
    assert_eq!(upstream.seen().len(), 5);
    let spent = cost(SMALL, 9, 1) * Decimal::TWO + cost(SMALL, PROMPT, 1);
    assert_eq!(gateway.spent().await, spent);
    let discarded = gateway.metrics().sum("tollgate_discarded_answers_total", &[]);
    assert_eq!(discarded, Decimal::ONE, "the whole answer");
    gateway.check_books().await;
}
