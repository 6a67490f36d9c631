//! What a call cost, made again by who pays from what `GET /llm/generation` says of it, and from nothing else.

use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::{Value, json};

use super::{amount, id_of, told};
use crate::bounds::on_both;
use crate::harness::catalogue::SMALL;
use crate::harness::reply::whole_chat;
use crate::harness::{Reply, Setup, Upstream};

/// The kinds of each side's tokens: the field of how many there are, and the price of one.
const OF_PROMPT: [(&str, &str); 5] = [
    ("native_tokens_cached", "input_cache_read"),
    ("native_tokens_cache_write", "input_cache_write"),
    ("native_tokens_cache_write_1h", "input_cache_write_1h"),
    ("native_tokens_prompt_audio", "audio"),
    ("native_tokens_prompt_images", "image"),
];
const OF_COMPLETION: [(&str, &str); 3] = [
    ("native_tokens_reasoning", "internal_reasoning"),
    ("native_tokens_completion_audio", "audio_output"),
    ("native_tokens_completion_images", "image_output"),
];

/// What [`usage`] reports, as it is told.
const TOKENS: [(&str, u64); 10] = [
    ("tokens_prompt", 1_000),
    ("native_tokens_cached", 100),
    ("native_tokens_cache_write", 70),
    ("native_tokens_cache_write_1h", 50),
    ("native_tokens_prompt_audio", 60),
    ("native_tokens_prompt_images", 40),
    ("tokens_completion", 300),
    ("native_tokens_reasoning", 90),
    ("native_tokens_completion_audio", 80),
    ("native_tokens_completion_images", 30),
];

fn usage() -> Value {
    json!({
        "prompt_tokens": 1_000, "completion_tokens": 300, "total_tokens": 1_300,
        "prompt_tokens_details": {
            "cached_tokens": 100, "cache_write_tokens": 120, "audio_tokens": 60, "image_tokens": 40,
            "cache_creation": { "ephemeral_5m_input_tokens": 70, "ephemeral_1h_input_tokens": 50 },
        },
        "completion_tokens_details": { "reasoning_tokens": 90, "audio_tokens": 80, "image_tokens": 30 },
    })
}

async fn provider() -> Upstream {
    Upstream::by(|_, seen| {
        if seen.json()["stream"] == true {
            let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [], "usage": usage() });
            return Reply::stream().role().text("Hi").finish().event(&chunk.to_string()).done();
        }
        let mut answer = whole_chat("Hi", None);
        answer["usage"] = usage();
        Reply::json(&answer)
    })
    .await
}

/// A model that has a price for each kind.
fn setup(upstream: &Upstream) -> Setup {
    Setup::over(upstream).model(SMALL, |model| {
        model["pricing"] = json!({
            "prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "input_cache_write": "0.00000375",
            "input_cache_write_1h": "0.000006", "audio": "0.00004", "image": "0.000005", "internal_reasoning": "0.00002",
            "audio_output": "0.00008", "image_output": "0.00003", "request": "0.005",
        });
    })
}

/// A request that may come to each kind.
fn asking(stream: bool) -> String {
    json!({
        "model": SMALL, "max_tokens": 2_000, "stream": stream, "modalities": ["text", "audio", "image"],
        "audio": { "voice": "alloy", "format": "wav" },
        "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "word ".repeat(2_000), "cache_control": { "type": "ephemeral", "ttl": "1h" } },
            { "type": "image_url", "image_url": { "url": "https://a/b.png" } },
            { "type": "input_audio", "input_audio": { "data": "AAAA", "format": "wav" } },
        ] }],
    })
    .to_string()
}

/// Each kind's tokens at their own price, all others at that of their side, and the price of the call.
fn made_again(data: &Value) -> Decimal {
    let price = |name: &str| data["prices"][name].as_str().unwrap().parse::<Decimal>().unwrap();
    let tokens = |name: &str| Decimal::from(data[name].as_u64().unwrap_or_else(|| panic!("{name} in {data}")));
    let side = |all: &str, plain: &str, kinds: &[(&str, &str)]| {
        kinds.iter().fold(tokens(all) * price(plain), |sum, (of_kind, own)| {
            sum + tokens(of_kind) * (price(own) - price(plain))
        })
    };
    let sum = side("tokens_prompt", "prompt", &OF_PROMPT)
        + side("tokens_completion", "completion", &OF_COMPLETION)
        + price("request");
    sum.round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven)
}

/// Prices of five kinds were told without their tokens.
#[tokio::test]
async fn who_pays_can_make_the_debit_again_from_what_is_told_of_a_call_of_all_kinds() {
    let upstream = provider().await;
    for (gateway, _redis) in on_both(|| setup(&upstream)).await {
        for stream in [false, true] {
            let before = gateway.spent().await;
            let answer = gateway.http1.post("/llm/chat", asking(stream)).await.ok();
            let debit = gateway.spent().await - before;
            let id = id_of(&answer);
            let one = gateway.http1.get(&format!("/llm/generation?id={id}")).await.ok().json();
            let data = &one["data"];
            for (name, tokens) in TOKENS {
                assert_eq!(data[name], tokens, "{name}, stream {stream}");
            }
            assert_eq!(made_again(data), debit, "stream {stream}: {data}");
            assert_eq!(amount(&told(&gateway.http1, &id).await, "total_cost"), debit);
            let page = gateway.http1.get("/llm/generations?limit=1").await.ok().json();
            assert_eq!(&page["data"][0], data, "both tell the same");
        }
        gateway.check_books().await;
    }
}
