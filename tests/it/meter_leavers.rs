//! Clients that leave after k events, for every k of a short stream, under both policies and over both protocols.

use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

const EVENTS_MAX: u64 = 20;
/// How soon the upstream must be told, usually. The slowest of many says more of a busy machine than of the gateway.
const CANCEL_MAX: Duration = Duration::from_millis(100);

/// A stream that stops after so many tokens of one event each, and goes on at the cue.
fn stopping_after(events: u64, cue: &Cue) -> Reply {
    let begun = (0..events).fold(Reply::stream(), |reply, _| reply.text(" word"));
    begun.wait(cue).text(" more").finish().usage(50, 30).done()
}

/// Reads so many events of a stream, and leaves.
async fn leave_after(client: &Client, events: u64) -> Instant {
    let mut stream = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
    for _ in 0..events {
        let chunk = stream.next_json().await;
        assert_eq!(chunk["choices"][0]["delta"]["content"], " word");
    }
    drop(stream);
    Instant::now()
}

#[tokio::test]
async fn cancel_a_client_gone_after_k_events_pays_the_prompt_and_k_events() {
    for over_h2 in [false, true] {
        let mut delays = Vec::new();
        for events in 0..=EVENTS_MAX {
            let upstream = Upstream::always(stopping_after(events, &Cue::new())).await;
            let gateway = Gateway::over(&upstream).await;
            let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
            let left = leave_after(client, events).await;
            upstream.hung_up().await;
            delays.push(left.elapsed());
            assert_eq!(
                gateway.spent().await,
                cost(SMALL, PROMPT, events),
                "after {events} events"
            );
            gateway.check_books().await;
        }
        delays.sort();
        let (median, slowest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        println!("over HTTP/2: {over_h2}; the upstream was closed after {median:?}, at the slowest {slowest:?}");
        assert!(median < CANCEL_MAX, "{delays:?}");
    }
}

#[tokio::test]
async fn drain_a_client_gone_after_k_events_pays_what_is_reported() {
    for over_h2 in [false, true] {
        for events in 0..=EVENTS_MAX {
            let cue = Cue::new();
            let upstream = Upstream::always(stopping_after(events, &cue)).await;
            let drains = |conf: &mut serde_json::Value| conf["providers"]["main"]["on_disconnect"] = json!("drain");
            let gateway = Setup::over(&upstream).conf(drains).start().await;
            let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
            leave_after(client, events).await;
            assert!(
                gateway.held().await > Decimal::ZERO,
                "after {events} events the call goes on"
            );
            cue.give();
            assert_eq!(gateway.spent().await, cost(SMALL, 50, 30), "after {events} events");
            gateway.check_books().await;
            // It was read to its end, so that its connection can be used again.
            cue.give();
            client
                .stream("/llm/chat/stream", request(SMALL))
                .await
                .ok()
                .rest()
                .await;
            assert_eq!(upstream.connections(), 1, "after {events} events");
        }
    }
}
