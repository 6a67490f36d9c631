//! Clients that are cut off and come back.

use rust_decimal::Decimal;

use super::{OnStore, again, is_unavailable};
use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::{Answer, Cue, Events, Gateway, Raw, Reply, Setup, Upstream};

on_both_stores! {
    a_client_that_is_cut_off: cut_off_embedded, cut_off_redis;
    a_client_that_is_cut_off_for_too_long: cut_off_too_long_embedded, cut_off_too_long_redis;
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
