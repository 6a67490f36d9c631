//! The hold is a bound: no call costs more than was held for it, whatever a client writes and a provider does.

mod maximum_field;
mod parts;
mod targets;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use futures::future::join_all;

use crate::chat::PROMPT;
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::gateway::KeySpec;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::{Gateway, Reply, Setup, Upstream, eventually};
use tollgate::pure::ids::Tier;

/// A chat with these members beside the model and a short message.
fn with(members: Value) -> String {
    let mut body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }] });
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

/// A provider that reads `max_tokens` alone would answer without a limit to the newer name.
#[tokio::test]
async fn a_clients_maximum_stands_in_the_field_that_the_provider_reads_and_there_alone() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    for (number, members) in [
        json!({ "max_completion_tokens": 1 }),
        json!({ "max_completion_tokens": 1, "max_tokens": 1 }),
        json!({ "max_completion_tokens": 1, "max_tokens": 7 }),
        json!({ "max_completion_tokens": 7, "max_tokens": 1 }),
        json!({ "max_completion_tokens": 1, "max_tokens": null }),
    ]
    .into_iter()
    .enumerate()
    {
        gateway.http1.post("/llm/chat", with(members)).await.ok();
        let seen = upstream.asked(number + 1).await.json();
        assert_eq!(seen["max_tokens"], 1, "{seen}");
        assert_eq!(seen.get("max_completion_tokens"), None, "{seen}");
    }
    gateway.http1.post("/llm/chat", with(json!({}))).await.ok();
    let seen = upstream.asked(6).await.json();
    assert!(seen.get("max_tokens").is_none() && seen.get("max_completion_tokens").is_none());
    gateway.check_books().await;
}

#[tokio::test]
async fn a_maximum_that_is_spelled_otherwise_is_400() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for members in [
        json!({ "n_predict": -1 }),
        json!({ "maxOutputTokens": 9 }),
        json!({ "max_tokens": 1, "max_gen_len": 9 }),
        json!({ "options": { "num_predict": -1 } }),
        json!({ "generation_config": { "nested": [{ "max_new_tokens": 9 }] } }),
    ] {
        let answer = gateway.http1.post("/llm/chat", with(members)).await;
        answer.error(400, "invalid_request_error");
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_key_that_a_careless_reader_takes_for_another_is_400() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for members in [
        json!({ "Model": "paid" }),
        json!({ "MAX_TOKENS": 9 }),
        json!({ "N": 9 }),
        json!({ "TOOLS": [{ "type": "web_search" }] }),
        json!({ "\u{17f}tream": true }),
        json!({ "max_to\u{212a}ens": 9 }),
        json!({ "stream_options": { "INCLUDE_USAGE": false } }),
        json!({ "messages": [{ "role": "user", "content": "a", "Content": [{ "type": "file" }] }] }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "Type": "file" }] }] }),
    ] {
        let answer = gateway.http1.post("/llm/chat", with(members)).await;
        answer.error(400, "invalid_request_error");
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_maximum_that_can_be_paid_but_not_served_is_402() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    // About a thousand tokens' worth.
    let gateway = Setup::over(&upstream).credit("0.0007").start().await;
    for members in [
        json!({ "thinking": { "type": "enabled", "budget_tokens": 2_000 } }),
        json!({ "reasoning": { "max_tokens": 2_000 } }),
    ] {
        let answer = gateway.http1.post("/llm/chat", with(members)).await;
        answer.error(402, "insufficient_credits");
    }
    assert!(upstream.seen().is_empty());
    let body = with(json!({ "thinking": { "type": "enabled", "budget_tokens": 500 } }));
    gateway.http1.post("/llm/chat", body).await.ok();
    let seen = upstream.only().json();
    assert!(seen["max_tokens"].as_u64().unwrap() > 500, "{seen}");
    assert_eq!(seen["thinking"]["budget_tokens"], 500);
    let picky = Setup::over(&upstream)
        .credit("0.0007")
        .model(SMALL, |model| model["min_completion_tokens"] = 2_000.into());
    let gateway = picky.start().await;
    gateway
        .http1
        .post("/llm/chat", with(json!({})))
        .await
        .error(402, "insufficient_credits");
}

#[tokio::test]
async fn what_a_provider_adds_to_a_prompt_is_held() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let credit = cost(SMALL, 50_000, 5).to_string();
    for (overhead, status) in [(0, 200), (40_000, 200), (60_000, 402)] {
        let setup = Setup::over(&upstream).credit(&credit);
        let setup = setup.conf(|conf| conf["providers"]["main"]["prompt_overhead_tokens"] = overhead.into());
        let gateway = setup.start().await;
        let answer = gateway.http1.post("/llm/chat", with(json!({ "max_tokens": 5 }))).await;
        assert_eq!(answer.status, status, "{overhead}");
    }
}

/// The gateways of a test, one on each store; the second with the server that its store needs.
pub async fn on_both(setup: impl Fn() -> Setup) -> Vec<(Gateway, Option<RedisServer>)> {
    let redis = RedisServer::start();
    let url = redis.url();
    vec![
        (setup().start().await, None),
        (setup().redis(&url).start().await, Some(redis)),
    ]
}

/// Waits until something was billed. (On Redis, whose time is not the test's, a hold may have expired before its call has ended.)
pub async fn billed(gateway: &Gateway) {
    eventually("a call is billed", async || {
        (!gateway.usage().await.is_empty()).then_some(())
    })
    .await;
}

/// A whole answer with this usage.
fn reporting(text: &str, usage: Value) -> Reply {
    let mut body = whole_chat(text, None);
    body["usage"] = usage;
    Reply::json(&body)
}

/// A stream of so many words that reports this usage, a prompt and a completion, before the first of them.
fn report_first(prompt: u64, completion: u64, words: usize) -> Reply {
    (0..words)
        .fold(Reply::stream().role().usage(prompt, completion), |reply, _| {
            reply.text(" word")
        })
        .finish()
}

#[tokio::test]
async fn a_completion_beyond_the_maximum_is_not_believed_on_either_store() {
    const ABSURD: u64 = 4_000_000_000;
    let setup = |upstream: &Upstream| Setup::over(upstream).credit("10");
    for (path, reply) in [
        ("/llm/chat", Reply::chat("Hi there", 9, ABSURD)),
        ("/llm/chat/stream", Reply::stream_of(&["Hi", " there"], 9, ABSURD)),
        ("/llm/chat", Reply::chat("Hi there", 9, 11)),
    ] {
        let upstream = Upstream::always(reply).await;
        for (gateway, _redis) in on_both(|| setup(&upstream)).await {
            gateway.http1.post(path, with(json!({ "max_tokens": 10 }))).await.ok();
            assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2));
            gateway.counted(1).await;
            let rejected = gateway.metrics().sum("tollgate_usage_reports_rejected_total", &[]);
            assert_eq!(rejected, Decimal::ONE);
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn every_choice_has_the_maximum() {
    let upstream = Upstream::always(Reply::chat("Hi there", 9, 30)).await;
    let gateway = Gateway::over(&upstream).await;
    let call = with(json!({ "max_tokens": 10, "n": 3 }));
    gateway.http1.post("/llm/chat", call).await.ok();
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 30));
}

#[tokio::test]
async fn without_a_maximum_a_report_is_believed_up_to_the_models() {
    for (completion, billed) in [(4_096, cost(SMALL, 9, 4_096)), (4_097, cost(SMALL, PROMPT, 1))] {
        let upstream = Upstream::always(Reply::chat("Hi", 9, completion)).await;
        let gateway = Gateway::over(&upstream).await;
        gateway.http1.post("/llm/chat", with(json!({}))).await.ok();
        assert_eq!(gateway.spent().await, billed);
    }
}

/// The first chunk's usage says nothing of what follows it.
#[tokio::test]
async fn text_that_follows_the_report_is_counted_however_the_stream_ends() {
    for end in [Reply::default().event("[DONE]").end(), Reply::default().silence()] {
        let upstream = Upstream::always(report_first(9, 0, 503).and(end)).await;
        for (gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
            let mut events = gateway.http1.stream("/llm/chat/stream", with(json!({}))).await.ok();
            // It leaves at the finish reason.
            while !events.next().await.unwrap().contains("\"stop\"") {}
            drop(events);
            billed(&gateway).await;
            assert_eq!(gateway.spent().await, cost(SMALL, 9, 503));
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn a_prompt_above_its_bound_is_billed_at_the_bound_and_the_rest_is_counted_as_lost() {
    let upstream = Upstream::always(Reply::chat("Hi", 100_000, 1)).await;
    let body = with(json!({ "max_tokens": 10 }));
    // A byte a token, and what the chat format adds to one message.
    let bound = body.len() as u64 + 256 + 16;
    let least = cost(SMALL, bound, 10).round_dp(12);
    for (gateway, _redis) in on_both(|| Setup::over(&upstream).credit(&least.to_string())).await {
        gateway.http1.post("/llm/chat", body.clone()).await.ok();
        assert_eq!(gateway.spent().await, cost(SMALL, bound, 1));
        gateway.counted(1).await;
        let metrics = gateway.metrics();
        let lost = metrics.sum("tollgate_unbilled_tokens_total", &[("type", "prompt")]);
        assert_eq!(lost, Decimal::from(100_000 - bound));
        let credits = metrics.sum("tollgate_unbilled_credits_total", &[]);
        assert_eq!(credits, cost(SMALL, 100_000 - bound, 0).normalize());
        assert_eq!(metrics.sum("tollgate_charges_cut_total", &[]), Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn details_that_do_not_fit_in_their_totals_are_not_believed() {
    for (usage, billed) in [
        // Reasoning beside the completion, as xAI reports it, and within it.
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 10, "total_tokens": 49, "completion_tokens_details": { "reasoning_tokens": 30 } }),
            (9, 40),
        ),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49, "completion_tokens_details": { "reasoning_tokens": 30 } }),
            (9, 40),
        ),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 10, "total_tokens": 19, "completion_tokens_details": { "reasoning_tokens": 30 } }),
            (PROMPT, 2),
        ),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 10 } }),
            (PROMPT, 2),
        ),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 9, "audio_tokens": null } }),
            (9, 10),
        ),
    ] {
        println!("{usage}");
        let upstream = Upstream::always(reporting("Hi there", usage)).await;
        let gateway = Gateway::over(&upstream).await;
        gateway
            .http1
            .post("/llm/chat", with(json!({ "max_tokens": 50 })))
            .await
            .ok();
        assert_eq!(gateway.spent().await, cost(SMALL, billed.0, billed.1));
    }
}

/// As Google's OpenAI-compatible address reports, with each event: what the total has beyond both sides is hidden reasoning.
#[tokio::test]
async fn reasoning_that_only_the_total_has_is_billed_where_the_provider_reports_so() {
    let usage = |completion: u64, total: u64| json!({ "prompt_tokens": 9, "completion_tokens": completion, "total_tokens": total });
    let event = |text: &str, usage: Value| {
        json!({ "choices": [{ "index": 0, "delta": { "content": text } }], "usage": usage }).to_string()
    };
    let stream = Reply::stream()
        .event(&event("Hi", usage(1, 35)))
        .event(&event(" there", usage(2, 36)))
        .finish()
        .done();
    for (path, reply) in [
        ("/llm/chat/stream", stream),
        ("/llm/chat", reporting("Hi there", usage(2, 36))),
    ] {
        for (said, billed) in [(None, 2), (Some("report"), 2), (Some("total"), 27)] {
            let upstream = Upstream::always(reply.clone()).await;
            let conf = |conf: &mut Value| {
                if let Some(said) = said {
                    conf["providers"]["main"]["completion_from"] = said.into();
                }
            };
            let gateway = Setup::over(&upstream).conf(conf).start().await;
            let call = with(json!({ "max_tokens": 50 }));
            gateway.http1.post(path, call).await.ok();
            assert_eq!(gateway.spent().await, cost(SMALL, 9, billed), "{path} {said:?}");
            let metrics = gateway.metrics();
            let seen = metrics.sum("tollgate_usage_tokens_beyond_sides_total", &[]);
            assert_eq!(seen, Decimal::from(27 - billed), "{path} {said:?}");
            assert_eq!(metrics.sum("tollgate_upstream_errors_total", &[]), Decimal::ZERO);
            let receipt = gateway.receipts().await.swap_remove(0).billed;
            assert_eq!(receipt.call.reported_completion_tokens, Some(billed));
        }
    }
}

/// Twenty calls at once at a provider that answers 2,000 tokens to a maximum of one.
#[tokio::test]
async fn a_provider_that_ignores_the_maximum_takes_no_balance_below_zero() {
    let long = " word".repeat(2_000);
    let stream = Reply::stream().role().text(&long).finish();
    for (path, reply) in [
        ("/llm/chat", Reply::chat_without_usage(&long)),
        ("/llm/chat", Reply::chat(&long, 9, 2_000)),
        ("/llm/chat/stream", stream.clone().done()),
        ("/llm/chat/stream", stream.usage(9, 2_000).done()),
    ] {
        let upstream = Upstream::always(reply).await;
        for (gateway, _redis) in on_both(|| Setup::over(&upstream).credit("0.0002")).await {
            let call = with(json!({ "max_completion_tokens": 1 }));
            join_all((0..20).map(|_| gateway.http1.post(path, call.clone()))).await;
            let balance = gateway.settled_balance().await;
            assert!(balance >= Decimal::ZERO, "{balance}");
            let rows = gateway.usage().await;
            assert!(!rows.is_empty());
            let served = Decimal::from(upstream.seen().len());
            gateway.counted(20).await;
            let metrics = gateway.metrics();
            assert_eq!(metrics.sum("tollgate_charges_cut_total", &[]), Decimal::ZERO);
            let lost = metrics.sum("tollgate_unbilled_tokens_total", &[("type", "completion")]);
            assert!(lost > Decimal::ZERO && lost <= served * Decimal::from(1_999), "{lost}");
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn a_target_whose_completions_three_accounts_could_not_believe_is_passed_over() {
    let liar = Upstream::always(Reply::chat("Hi", 9, 1_000_000)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&liar).spare(&spare).start().await;
    let body = with(json!({ "model": TWIN, "max_tokens": 10 }));
    let mut clients = vec![gateway.http1.clone()];
    for name in ["second", "third"] {
        gateway.create_account(name, Tier::Pro).await;
        gateway.pay_in_to(name, "10").await;
        let key = gateway.new_key_of(name, KeySpec::default()).await;
        clients.push(gateway.http1.with_key(&key));
    }
    for _ in 0..5 {
        clients[0].post("/llm/chat", body.clone()).await.ok();
    }
    clients[1].post("/llm/chat", body.clone()).await.ok();
    gateway.settled_balance().await;
    assert_eq!(
        (liar.seen().len(), spare.seen().len()),
        (6, 0),
        "two accounts are not enough"
    );
    clients[2].post("/llm/chat", body.clone()).await.ok();
    gateway.counted(7).await;
    let metrics = gateway.metrics();
    let faults = metrics.sum("tollgate_upstream_errors_total", &[("kind", "implausible_usage")]);
    assert_eq!(faults, Decimal::from(7));
    clients[1].post("/llm/chat", body.clone()).await.ok();
    assert_eq!((liar.seen().len(), spare.seen().len()), (7, 1));
}
