//! A catalogue's maximum that is too low: an answer beyond it goes on as long as it can be paid, and is billed whole.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::bounds::{billed, on_both};
use crate::chat::PROMPT;
use crate::harness::answer::deltas;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::gateway::STORE_TIME;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::Cue;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// What the catalogue says, and what the provider gives.
const TOO_LOW: u64 = 100;
const WORDS: u64 = 2_500;

fn body() -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }] }).to_string()
}

/// A gateway whose catalogue has too low a maximum.
fn setup(upstream: &Upstream) -> Setup {
    Setup::over(upstream).model(SMALL, |model| model["max_completion_tokens"] = TOO_LOW.into())
}

/// Credit for the call as it is admitted, and so many tokens more.
fn credit_for(completion: u64) -> String {
    cost(SMALL, body().len() as u64 + 256 + 16, completion)
        .round_dp(12)
        .to_string()
}

fn words(begun: Reply) -> Reply {
    (0..WORDS).fold(begun, |reply, _| reply.text(" word"))
}

fn extensions(gateway: &Gateway, result: &str) -> Decimal {
    gateway
        .metrics()
        .sum("tollgate_hold_extensions_total", &[("result", result)])
}

fn lost(gateway: &Gateway) -> Decimal {
    gateway.metrics().sum("tollgate_unbilled_tokens_total", &[])
}

#[tokio::test]
async fn an_answer_beyond_the_catalogues_maximum_goes_on_and_is_billed_whole() {
    let text = " word".repeat(WORDS as usize);
    let stream = words(Reply::stream().role()).finish();
    for (path, reply) in [
        (
            "/llm/chat/stream",
            stream.clone().at_once().and(Reply::default().done()),
        ),
        ("/llm/chat/stream", stream.usage(PROMPT, WORDS).done()),
        ("/llm/chat", Reply::chat_without_usage(&text)),
        ("/llm/chat", Reply::chat(&text, PROMPT, WORDS)),
    ] {
        let upstream = Upstream::always(reply).await;
        for (gateway, _redis) in on_both(|| setup(&upstream)).await {
            let answer = gateway.http1.post(path, body()).await.ok();
            let delivered = answer.text().matches(" word").count();
            assert!(delivered as u64 == WORDS || path == "/llm/chat", "{delivered}");
            assert!(!answer.text().contains("\"error\""), "{}", answer.text());
            billed(&gateway).await;
            assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, WORDS), "{path}");
            gateway.counted(1).await;
            assert!(extensions(&gateway, "granted") >= Decimal::ONE);
            assert_eq!(lost(&gateway), Decimal::ZERO);
            gateway.check_books().await;
        }
    }
}

/// A stream whose words come one by one, each when the client has read the one before.
async fn in_step(gateway: &Gateway, cue: &Cue) -> Vec<String> {
    let mut events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
    let mut read = Vec::new();
    while let Some(event) = events.next().await {
        cue.give();
        read.push(event);
    }
    read
}

fn one_by_one(cue: &Cue) -> Reply {
    let begun = Reply::stream().role();
    (0..WORDS)
        .fold(begun, |reply, _| reply.wait(cue).text(" word"))
        .silence()
}

fn last_error(events: &[String]) -> Value {
    let [.., error, done] = events else {
        panic!("{events:?}")
    };
    assert_eq!(done, "[DONE]");
    serde_json::from_str(error).unwrap()
}

/// How many tokens so much credit pays for, beside the prompt's own: what was admitted of the prompt is not the measure.
fn paid_by(credit: &str) -> u64 {
    let credit: Decimal = credit.parse().unwrap();
    let is_paid = |completion: &u64| cost(SMALL, PROMPT, *completion) <= credit;
    (0..WORDS).take_while(is_paid).last().unwrap()
}

#[tokio::test]
async fn a_stream_that_cannot_be_paid_any_further_is_ended_and_its_upstream_closed() {
    let credit = credit_for(300);
    let paid = paid_by(&credit);
    assert!(paid > 300, "{paid}");
    for store in 0..2 {
        let cue = Cue::new();
        let upstream = Upstream::always(one_by_one(&cue)).await;
        let (gateway, _redis) = on_both(|| setup(&upstream).credit(&credit)).await.swap_remove(store);
        let events = in_step(&gateway, &cue).await;
        let error = last_error(&events);
        assert_eq!(error["error"]["code"], 402, "{error}");
        assert_eq!(error["error"]["type"], "insufficient_credits", "{error}");
        upstream.hung_up().await;
        let delivered = deltas(&events).matches(" word").count() as u64;
        assert!((paid..WORDS).contains(&delivered), "{delivered}");
        billed(&gateway).await;
        assert!(gateway.settled_balance().await >= Decimal::ZERO);
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, paid));
        gateway.counted(1).await;
        // What another family's tokenizer explains is no loss.
        let is_explained = delivered * 10 <= paid * 17;
        let beyond = if is_explained { 0 } else { delivered - paid };
        assert_eq!(lost(&gateway), Decimal::from(beyond));
        assert!(extensions(&gateway, "granted") >= Decimal::ONE && extensions(&gateway, "refused") >= Decimal::ONE);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn credit_that_comes_while_a_stream_runs_lets_it_go_on() {
    const PAID: u64 = 150;
    for store in 0..2 {
        let cue = Cue::new();
        let upstream = Upstream::always(words(Reply::stream().role().wait(&cue)).done()).await;
        let setups = || setup(&upstream).credit(&credit_for(PAID));
        let (mut gateway, _redis) = on_both(setups).await.swap_remove(store);
        let mut events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
        events.next().await.unwrap();
        gateway.pay_in("1", "more").await;
        cue.give();
        assert_eq!(deltas(&events.rest().await).matches(" word").count() as u64, WORDS);
        billed(&gateway).await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, WORDS));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_stream_whose_ledger_cannot_say_whether_it_can_be_paid_is_ended() {
    let redis = RedisServer::start();
    let cue = Cue::new();
    let reply = words(Reply::stream().role().wait(&cue))
        .pause(STORE_TIME * 2)
        .text(" word")
        .silence();
    let upstream = Upstream::always(reply).await;
    let gateway = setup(&upstream).redis(&redis.url()).start().await;
    let mut events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
    let mut read = vec![events.next().await.unwrap()];
    redis.freeze();
    cue.give();
    while let Some(event) = events.next().await {
        read.push(event);
    }
    let error = last_error(&read);
    assert_eq!(error["error"]["code"], 503, "{error}");
    assert_eq!(error["error"]["type"], "service_unavailable", "{error}");
    upstream.hung_up().await;
    redis.thaw();
    billed(&gateway).await;
    // The closing question found the ledger there again, or not yet.
    let spent = gateway.spent().await;
    assert!(
        spent == cost(SMALL, PROMPT, TOO_LOW) || spent == cost(SMALL, PROMPT, WORDS + 1),
        "{spent}"
    );
    gateway.check_books().await;
}
