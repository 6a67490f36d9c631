//! Clients that leave before the head of their answer: the gateway waits for it on their behalf, for a provider that works on is paid.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::bounds::{billed, on_both};
use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::client::Client;
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

/// How long a head is waited for where none comes.
const FIRST_BYTE_MS: u64 = 500;

/// A client of either protocol.
fn client(gateway: &Gateway, over_h2: bool) -> &Client {
    if over_h2 { &gateway.h2c } else { &gateway.http1 }
}

/// Makes a call that leaves once its upstream was asked so often, and waits until the gateway knows of it.
pub async fn leave(client: &Client, path: &str, body: String, upstream: &Upstream, asked: usize) {
    let call = client.post_request(path, body).send();
    tokio::select! {
        answer = call => panic!("an answer came: {answer:?}"),
        _ = upstream.asked(asked) => {}
    }
    // By the time that these are answered, on the same thread, the gateway has seen that the client left.
    for _ in 0..2 {
        client.get("/llm/health").await.ok();
    }
}

/// A whole answer, or a stream, whose head comes at the cue and which then says no more.
fn heads(cue: &Cue) -> [(&'static str, Reply); 2] {
    let waits = || Reply::default().wait(cue);
    [
        ("/llm/chat", waits().and(Reply::json_head(500)).silence()),
        ("/llm/chat/stream", waits().and(Reply::stream()).silence()),
    ]
}

#[tokio::test]
async fn a_client_that_leaves_a_working_provider_before_its_head_pays_the_prompt() {
    for over_h2 in [false, true] {
        let cue = Cue::new();
        for (path, reply) in heads(&cue) {
            let upstream = Upstream::always(reply).await;
            for (gateway, redis) in on_both(|| Setup::over(&upstream)).await {
                let asked = upstream.seen().len() + 1;
                leave(client(&gateway, over_h2), path, request(SMALL), &upstream, asked).await;
                if redis.is_none() {
                    assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
                }
                cue.give();
                billed(&gateway).await;
                upstream.hung_up().await;
                assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 0), "{path}");
                gateway.check_books().await;
            }
        }
    }
}

#[tokio::test]
async fn many_clients_that_leave_a_long_prompt_before_the_head_pay_each_prompt() {
    const CALLS: usize = 19;
    const WORDS: u64 = 9_000;
    let content = " word".repeat(usize::try_from(WORDS).unwrap());
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": content }] }).to_string();
    let cue = Cue::new();
    let [_, (path, reply)] = heads(&cue);
    let upstream = Upstream::always(reply).await;
    let gateway = Gateway::over(&upstream).await;
    for asked in 1..=CALLS {
        leave(client(&gateway, asked % 2 == 0), path, body.clone(), &upstream, asked).await;
        cue.give();
    }
    let each = cost(SMALL, WORDS + PROMPT - 1, 0);
    assert_eq!(gateway.spent().await, each * Decimal::from(CALLS));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_black_hole_and_three_tries_cost_nothing() {
    for over_h2 in [false, true] {
        for path in ["/llm/chat", "/llm/chat/stream"] {
            let upstream = Upstream::always(Reply::default().silence()).await;
            let spare = Upstream::unused().await;
            let setup = || {
                Setup::over(&upstream)
                    .spare(&spare)
                    .conf(|conf| conf["timeouts"] = json!({ "first_byte_ms": FIRST_BYTE_MS }))
            };
            for (gateway, _redis) in on_both(setup).await {
                for _ in 0..3 {
                    let asked = upstream.seen().len() + 1;
                    leave(client(&gateway, over_h2), path, request(TWIN), &upstream, asked).await;
                }
                upstream.hung_up().await;
                assert_eq!(gateway.spent().await, Decimal::ZERO);
                assert_eq!(gateway.usage().await, []);
                assert!(spare.seen().is_empty(), "another target was asked");
                gateway.check_books().await;
            }
        }
    }
}

#[tokio::test]
async fn an_error_that_comes_for_a_client_that_has_left_costs_nothing_and_asks_no_other_target() {
    for over_h2 in [false, true] {
        let cue = Cue::new();
        for reply in [
            Reply::status(500),
            Reply::refusal(400, &[], "no"),
            Reply::default().close(),
        ] {
            let upstream = Upstream::always(Reply::default().wait(&cue).and(reply)).await;
            let spare = Upstream::unused().await;
            for (gateway, _redis) in on_both(|| Setup::over(&upstream).spare(&spare)).await {
                let asked = upstream.seen().len() + 1;
                leave(client(&gateway, over_h2), "/llm/chat", request(TWIN), &upstream, asked).await;
                cue.give();
                assert_eq!(gateway.spent().await, Decimal::ZERO);
                assert_eq!(gateway.usage().await, []);
                assert!(spare.seen().is_empty(), "another target was asked");
                gateway.check_books().await;
            }
        }
    }
}

#[tokio::test]
async fn a_call_whose_client_left_keeps_its_tokens_of_the_minute_until_the_head_tells_what_is_owed() {
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 4_000 });
    let cue = Cue::new();
    let upstream = Upstream::by({
        let cue = cue.clone();
        move |number, _| match number {
            0 => Reply::default().wait(&cue).and(Reply::status(500)),
            _ => Reply::chat("Hi", 9, 1),
        }
    })
    .await;
    let limits = json!({ "rpm": 100, "tpm": 6_000, "concurrency": 10 });
    let setup = Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits);
    let gateway = setup.start().await;
    leave(&gateway.http1, "/llm/chat", body.to_string(), &upstream, 1).await;
    let refused = gateway.http1.post("/llm/chat", body.to_string()).await;
    let error = refused.error(429, "rate_limit_error");
    assert_eq!(error["metadata"]["limit"], "tokens_per_minute");
    cue.give();
    gateway.settled_balance().await;
    gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
}

/// Drains instead of cancelling.
fn draining(conf: &mut Value) {
    conf["providers"]["main"]["on_disconnect"] = json!("drain");
}

#[tokio::test]
async fn a_provider_that_is_drained_is_billed_as_it_reports_also_when_the_client_left_before_the_head() {
    for over_h2 in [false, true] {
        let cue = Cue::new();
        let whole = Reply::json(&whole_chat("Hi", Some((50, 30))));
        for (path, reply) in [
            ("/llm/chat", whole),
            ("/llm/chat/stream", Reply::stream_of(&["Hi"], 50, 30)),
        ] {
            let upstream = Upstream::always(Reply::default().wait(&cue).and(reply)).await;
            let gateway = Setup::over(&upstream).conf(draining).start().await;
            leave(client(&gateway, over_h2), path, request(SMALL), &upstream, 1).await;
            cue.give();
            assert_eq!(gateway.spent().await, cost(SMALL, 50, 30), "{path}");
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn a_receipt_says_that_the_client_left_though_its_answer_was_read_to_the_end() {
    let cue = Cue::new();
    let whole = Reply::json(&whole_chat("Hi", Some((50, 30))));
    for (path, reply) in [
        ("/llm/chat", whole),
        ("/llm/chat/stream", Reply::stream_of(&["Hi"], 50, 30)),
    ] {
        let upstream = Upstream::always(Reply::default().wait(&cue).and(reply)).await;
        for (gateway, _redis) in on_both(|| Setup::over(&upstream).conf(draining)).await {
            let asked = upstream.seen().len() + 1;
            leave(&gateway.http1, path, request(SMALL), &upstream, asked).await;
            cue.give();
            billed(&gateway).await;
            cue.give();
            gateway.http1.post(path, request(SMALL)).await.ok();
            let calls = gateway.http1.get("/llm/generations").await.ok().json();
            let calls = calls["data"].as_array().unwrap().iter();
            let told: Vec<Value> = calls
                .map(|call| json!([call["cancelled"], call["ending"], call["tokens_completion"]]))
                .collect();
            let expected = [json!([false, "complete", 30]), json!([true, "complete", 30])];
            assert_eq!(told, expected, "{path}");
        }
    }
}

/// The model works where nobody sees it.
fn reasoning(upstream: &Upstream, tokens_per_second: u64) -> Setup {
    Setup::over(upstream).model(SMALL, |model| {
        model["reasoning"] = true.into();
        model["tokens_per_second"] = tokens_per_second.into();
    })
}

/// Reads the first events of a stream, and leaves.
async fn leave_within(client: &Client, body: String) {
    let mut events = client.stream("/llm/chat/stream", body).await.ok();
    for _ in 0..2 {
        events.next().await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_reasoning_model_two_tokens_before_the_end_pays_what_is_reported() {
    for over_h2 in [false, true] {
        let cue = Cue::new();
        let reply = Reply::stream().role().text("The").wait(&cue).text(" answer").text(".");
        let upstream = Upstream::always(reply.finish().usage(50, 3_000).done()).await;
        let gateway = reasoning(&upstream, 100).start().await;
        leave_within(client(&gateway, over_h2), request(SMALL)).await;
        assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
        cue.give();
        assert_eq!(gateway.spent().await, cost(SMALL, 50, 3_000));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_reasoning_model_that_is_not_waited_for_to_the_end_is_billed_by_its_rate_and_time() {
    const DRAIN_MS: u64 = 300;
    const MODEL_MAX: u64 = 4_096;
    let upstream = Upstream::always(Reply::stream().role().text("The").silence()).await;
    let setup = || reasoning(&upstream, 1_000).conf(|conf| conf["timeouts"]["disconnect_drain_ms"] = DRAIN_MS.into());
    for (gateway, _redis) in on_both(setup).await {
        leave_within(&gateway.http1, request(SMALL)).await;
        billed(&gateway).await;
        let rows = gateway.usage().await;
        assert_eq!(rows[0].prompt_tokens, PROMPT);
        assert!((DRAIN_MS..=MODEL_MAX).contains(&rows[0].completion_tokens), "{rows:?}");
        gateway.check_books().await;
    }
    // Far more than may be charged.
    let setup = reasoning(&upstream, 100_000).conf(|conf| conf["timeouts"]["disconnect_drain_ms"] = DRAIN_MS.into());
    let gateway = setup.start().await;
    let mut body: Value = serde_json::from_str(&request(SMALL)).unwrap();
    body["max_tokens"] = 40.into();
    leave_within(&gateway.h2c, body.to_string()).await;
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 40));
    gateway.check_books().await;
}
