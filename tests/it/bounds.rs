//! The hold is a bound: no call costs more than was held for it, whatever a client writes and a provider does.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// A chat with these members beside the model and a short message.
fn with(members: Value) -> String {
    let mut body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }] });
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

/// A chat whose message has this part beside a short text.
fn with_part(part: Value) -> String {
    let content = json!([{ "type": "text", "text": "Hello" }, part]);
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": content }], "max_tokens": 5 }).to_string()
}

/// A provider that reads `max_tokens` alone would answer without a limit to the newer name.
#[tokio::test]
async fn a_clients_maximum_stands_in_the_field_that_the_provider_reads_and_there_alone() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    for (number, members) in [
        json!({ "max_completion_tokens": 1 }),
        json!({ "max_completion_tokens": 1, "max_tokens": 1 }),
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
    let seen = upstream.asked(4).await.json();
    assert!(seen.get("max_tokens").is_none() && seen.get("max_completion_tokens").is_none());
    gateway.check_books().await;
}

#[tokio::test]
async fn a_maximum_that_is_spelled_otherwise_or_twice_is_400() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for members in [
        json!({ "max_tokens": 1, "max_completion_tokens": 2 }),
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

/// 750 kB of base64 are no 750,000 tokens: with the dearest prompt that the model can take, it costs less than what is held here.
#[tokio::test]
async fn the_bytes_of_a_file_a_sound_or_a_film_are_not_text() {
    let upstream = Upstream::always(Reply::chat_without_usage("Hi")).await;
    let data = "QUJD".repeat(190_000);
    for part in [
        json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{data}") } }),
        json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } }),
        json!({ "type": "image_url", "image_url": { "url": format!("data:video/mp4;base64,{data}") } }),
    ] {
        let context = cost(SMALL, 128_000, 5);
        let gateway = Setup::over(&upstream).credit(&context.to_string()).start().await;
        gateway.http1.post("/llm/chat", with_part(part)).await.ok();
        let spent = gateway.spent().await;
        assert!(
            spent > Decimal::ZERO && spent < cost(SMALL, 3_000, 1),
            "what was counted is billed: {spent}"
        );
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn parts_are_held_by_the_models_figure_for_their_kind() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (key, part) in [
        (
            "image_tokens_max",
            json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }),
        ),
        (
            "audio_tokens_max",
            json!({ "type": "input_audio", "input_audio": { "data": "QUJD", "format": "wav" } }),
        ),
        ("file_tokens_max", json!({ "type": "file", "file": { "file_id": "f" } })),
    ] {
        let credit = cost(SMALL, 50_000, 5).to_string();
        for (figure, status) in [(Value::Null, 402), (40_000.into(), 200), (60_000.into(), 402)] {
            let setup = Setup::over(&upstream).credit(&credit);
            let setup = setup.model(SMALL, |model| model[key] = figure.clone());
            let gateway = setup.start().await;
            let answer = gateway.http1.post("/llm/chat", with_part(part.clone())).await;
            assert_eq!(answer.status, status, "{key} {figure}");
        }
    }
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
