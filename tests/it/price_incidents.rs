//! What other gateways billed wrongly, one case each: cache writes for an hour, long contexts, tiers, reasoning, sound, images, aggregators.
//! Every cost is computed here, from decimals, without the code under test.

use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::{Value, json};
use tollgate::pure::money::ListPrice;

use crate::harness::catalogue::SMALL;
use crate::harness::told::told_cost;
use crate::harness::{Gateway, Reply, Setup, Upstream};

mod reports;
mod told;

const PROMPT: &str = "0.000003";
const COMPLETION: &str = "0.000015";
const READ: &str = "0.0000003";
const WRITE: &str = "0.00000375";
const WRITE_1H: &str = "0.000006";
const AUDIO: &str = "0.00004";
const IMAGE: &str = "0.000005";
const REASONING: &str = "0.00002";
const AUDIO_OUTPUT: &str = "0.00008";

/// The sum of tokens times base prices, with the markup.
fn cost(parts: &[(u64, &str)]) -> Decimal {
    let price = |text: &str| text.parse::<Decimal>().unwrap();
    let sum: Decimal = parts
        .iter()
        .map(|(tokens, text)| Decimal::from(*tokens) * price(text))
        .sum();
    (sum * Decimal::new(115, 2)).round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven)
}

fn pricing() -> Value {
    json!({
        "prompt": PROMPT, "completion": COMPLETION, "input_cache_read": READ, "input_cache_write": WRITE,
        "input_cache_write_1h": WRITE_1H, "audio": AUDIO, "image": IMAGE, "internal_reasoning": REASONING,
        "audio_output": AUDIO_OUTPUT,
        "tiers": { "flex": { "prompt": "0.0000015", "completion": "0.0000075" }, "priority": { "prompt": "0.000006", "completion": "0.00003" } },
    })
}

/// A gateway whose provider answers with what the request's `metadata` says: `usage`, and the tier that served it.
async fn gateway(pricing: Value, conf: impl FnOnce(&mut Value)) -> (Upstream, Gateway) {
    let upstream = Upstream::by(|_, seen| {
        let asked = seen.json();
        let said: Value = serde_json::from_str(asked["metadata"]["says"].as_str().unwrap()).unwrap();
        if asked["stream"] == true {
            let delta = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "service_tier": said["tier"],
                "choices": [{ "index": 0, "delta": { "content": "Hi" }, "finish_reason": "stop" }] });
            let usage = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "service_tier": said["tier"],
                "choices": [], "usage": said["usage"] });
            return Reply::stream().role().event(&delta.to_string()).event(&usage.to_string()).done();
        }
        let mut answer = crate::harness::reply::whole_chat("Hi", None);
        answer["usage"] = said["usage"].clone();
        answer["service_tier"] = said["tier"].clone();
        Reply::json(&answer)
    })
    .await;
    let mut setup = Setup::over(&upstream)
        .conf(|conf| conf["providers"]["main"]["allow_fields"] = json!(["metadata"]))
        .conf(conf);
    setup.catalogue["models"][1]["pricing"] = pricing;
    let gateway = setup.start().await;
    (upstream, gateway)
}

fn body(says: &Value, more: &Value) -> Value {
    let mut body = json!({
        "model": SMALL, "max_tokens": 2_000, "metadata": { "says": says.to_string() },
        "messages": [{ "role": "user", "content": "word ".repeat(2_000) }],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Makes the call whole and streamed; each tells and takes `expected`.
async fn check(gateway: &Gateway, says: Value, more: Value, expected: Decimal) {
    for stream in [false, true] {
        let mut body = body(&says, &more);
        body["stream"] = stream.into();
        body["stream_options"] = json!({ "include_usage": true });
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        assert_eq!(
            gateway.spent().await - before,
            expected,
            "{says} with {more}, stream {stream}"
        );
        assert_eq!(told_cost(answer.text()), Some(expected), "{}", answer.text());
    }
    gateway.check_books().await;
}

fn cached() -> Value {
    json!({ "messages": [{ "role": "user", "content": [
        { "type": "text", "text": "word ".repeat(2_000), "cache_control": { "type": "ephemeral", "ttl": "1h" } }] }] })
}

#[tokio::test]
async fn writes_for_an_hour_are_not_billed_as_writes_for_five_minutes() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "input_tokens": 50, "output_tokens": 20, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 500,
        "cache_creation": { "ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 400 } });
    let expected = cost(&[
        (50, PROMPT),
        (300, READ),
        (100, WRITE),
        (400, WRITE_1H),
        (20, COMPLETION),
    ]);
    check(&gateway, json!({ "usage": usage }), cached(), expected).await;
    // Parts that are not the whole say nothing of the time: the usual.
    let usage = json!({ "input_tokens": 50, "output_tokens": 20, "cache_creation_input_tokens": 500,
        "cache_creation": { "ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 401 } });
    let expected = cost(&[(50, PROMPT), (500, WRITE), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), cached(), expected).await;
    // Both spellings in one report are one report.
    let usage = json!({ "prompt_tokens": 850, "completion_tokens": 20, "input_tokens": 50, "output_tokens": 20,
        "prompt_tokens_details": { "cached_tokens": 300 }, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 500 });
    let expected = cost(&[(50, PROMPT), (300, READ), (500, WRITE_1H), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), cached(), expected).await;
}

#[tokio::test]
async fn openais_cache_writes_are_not_free() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 900 } });
    let expected = cost(&[(100, PROMPT), (900, WRITE), (10, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
}

#[tokio::test]
async fn a_long_context_is_a_price_for_the_whole_call_cached_tokens_among_its_length() {
    let long = json!({
        "prompt": PROMPT, "completion": COMPLETION, "input_cache_read": READ,
        "overrides": [{ "min_prompt_tokens": 1_000, "prompt": "0.000006", "completion": "0.0000225", "input_cache_read": "0.0000006" }],
    });
    let (_upstream, gateway) = gateway(long, |_| {}).await;
    for (prompt, prices) in [
        (1_000, [READ, PROMPT, COMPLETION]),
        (1_001, ["0.0000006", "0.000006", "0.0000225"]),
    ] {
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 900 } });
        let expected = cost(&[(900, prices[0]), (prompt - 900, prices[1]), (10, prices[2])]);
        check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
    }
}

#[tokio::test]
async fn the_tier_that_was_served_is_paid_and_not_the_one_that_was_asked_for() {
    let (upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 100 });
    let default = cost(&[(1_000, PROMPT), (100, COMPLETION)]);
    let priority = cost(&[(1_000, "0.000006"), (100, "0.00003")]);
    let flex = cost(&[(1_000, "0.0000015"), (100, "0.0000075")]);
    for (asked, served, expected) in [
        (json!("priority"), json!("default"), default),
        (json!("priority"), json!("priority"), priority),
        (json!("flex"), json!("flex"), flex),
        (json!("auto"), json!("default"), default),
        (json!("default"), Value::Null, default),
    ] {
        let says = json!({ "usage": usage, "tier": served });
        check(&gateway, says, json!({ "service_tier": asked }), expected).await;
        assert_eq!(upstream.seen().last().unwrap().json()["service_tier"], asked);
    }
    let receipt = gateway.receipts().await.swap_remove(0).billed;
    assert_eq!(receipt.call.service_tier, None, "the provider did not say");
    // A tier without prices: the dearest, and somebody is told.
    let says = json!({ "usage": usage, "tier": "scale" });
    check(&gateway, says, json!({ "service_tier": "priority" }), priority).await;
    let receipt = gateway.receipts().await.swap_remove(0).billed;
    assert_eq!(receipt.call.service_tier.as_deref(), Some("scale"));
    let told = |price: Option<ListPrice>| price.unwrap().to_string().parse::<Decimal>().unwrap();
    let [prompt, completion] = [receipt.call.prompt_price, receipt.call.completion_price].map(told);
    assert_eq!(
        Decimal::from(1_000) * prompt + Decimal::from(100) * completion,
        priority,
        "its receipt says the prices that it was billed at"
    );
    let metrics = gateway.metrics();
    assert!(metrics.sum("tollgate_upstream_errors_total", &[("kind", "unknown_service_tier")]) >= Decimal::TWO);
    let refused = gateway
        .http1
        .post(
            "/llm/chat",
            body(&json!({}), &json!({ "service_tier": "scale" })).to_string(),
        )
        .await;
    assert!(
        refused
            .error(400, "invalid_request_error")
            .to_string()
            .contains("service_tier")
    );
}

#[tokio::test]
async fn reasoning_is_within_the_completion_and_billed_once() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 500, "total_tokens": 600, "completion_tokens_details": { "reasoning_tokens": 450 } });
    let expected = cost(&[(100, PROMPT), (50, COMPLETION), (450, REASONING)]);
    check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
    // Beside it, as the total says.
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 600, "completion_tokens_details": { "reasoning_tokens": 450 } });
    check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
}

#[tokio::test]
async fn sound_and_images_have_their_prices_and_cached_sound_is_counted_once() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let sound = json!({ "modalities": ["text", "audio"], "audio": { "voice": "alloy", "format": "wav" },
        "messages": [{ "role": "user", "content": [{ "type": "input_audio", "input_audio": { "data": "AAAA", "format": "wav" } }, { "type": "text", "text": "word ".repeat(2_000) }] }] });
    let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 100,
        "prompt_tokens_details": { "audio_tokens": 600, "image_tokens": 100 }, "completion_tokens_details": { "audio_tokens": 80 } });
    let expected = cost(&[
        (300, PROMPT),
        (600, AUDIO),
        (100, IMAGE),
        (20, COMPLETION),
        (80, AUDIO_OUTPUT),
    ]);
    check(&gateway, json!({ "usage": usage }), sound.clone(), expected).await;
    let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 100, "prompt_tokens_details": { "audio_tokens": 1_000, "cached_tokens": 700 } });
    let expected = cost(&[(700, READ), (300, AUDIO), (100, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), sound.clone(), expected).await;
    let two = json!({ "prompt": PROMPT, "completion": COMPLETION });
    let (_upstream, gateway) = self::gateway(two, |_| {}).await;
    let refused = gateway
        .http1
        .post("/llm/chat", body(&json!({}), &sound).to_string())
        .await;
    assert!(
        refused
            .error(400, "invalid_request_error")
            .to_string()
            .contains("modalities")
    );
}

#[tokio::test]
async fn a_price_for_a_call_is_charged_once_and_held() {
    let priced = json!({ "prompt": "0", "completion": "0", "request": "0.005" });
    let (_upstream, gateway) = gateway(priced, |_| {}).await;
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 500 });
    check(&gateway, json!({ "usage": usage }), json!({}), cost(&[(1, "0.005")])).await;
    let receipt = gateway.receipts().await.swap_remove(0).billed;
    assert_eq!(
        receipt.call.kinds.unwrap().request_price.unwrap().to_string(),
        "0.00575"
    );
    assert!(receipt.held.unwrap() >= receipt.cost);
}

#[tokio::test]
async fn behind_an_aggregator_its_own_cost_is_billed_within_the_hold() {
    let two = json!({ "prompt": PROMPT, "completion": COMPLETION });
    let (_upstream, gateway) = gateway(two, |conf| conf["providers"]["main"]["cost_from"] = "usage".into()).await;
    let usage = |own: Value| json!({ "usage": { "prompt_tokens": 1_000, "completion_tokens": 100, "cost": own } });
    let tokens = cost(&[(1_000, PROMPT), (100, COMPLETION)]);
    check(&gateway, usage(json!(0.00517)), json!({}), cost(&[(1, "0.00517")])).await;
    let receipt = gateway.receipts().await.swap_remove(0).billed;
    assert_eq!(receipt.call.provider_cost, Some(Decimal::new(517, 5)));
    for none in [json!(-1), json!("x"), Value::Null, json!(1e12)] {
        check(&gateway, usage(none), json!({}), tokens).await;
    }
    // Never more than was held.
    let before = gateway.spent().await;
    gateway
        .http1
        .post("/llm/chat", body(&usage(json!(900)), &json!({})).to_string())
        .await
        .ok();
    let receipt = gateway.receipts().await.swap_remove(0).billed;
    assert_eq!(Some(receipt.cost), receipt.held);
    assert_eq!(
        gateway.spent().await - before,
        crate::harness::gateway::decimal(receipt.cost)
    );
}

/// Wherever `cache_control` may stand, and however its name is written.
#[tokio::test]
async fn cache_control_passes_to_a_model_with_its_price_and_is_refused_otherwise() {
    let usual = json!({ "type": "ephemeral" });
    let hour = json!({ "type": "ephemeral", "ttl": "1h" });
    let places = |control: &Value| {
        [
            json!({ "cache_control": control }),
            json!({ "messages": [{ "role": "user", "content": "Hi", "cache_control": control }] }),
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi", "cache_control": control }] }] }),
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "https://a/b.png", "cache_control": control } }] }] }),
            json!({ "tools": [{ "type": "function", "function": { "name": "f" }, "cache_control": control }] }),
        ]
    };
    let says = json!({ "usage": { "prompt_tokens": 10, "completion_tokens": 1 } });
    let with = |keys: &[&str]| {
        let mut pricing = json!({ "prompt": PROMPT, "completion": COMPLETION });
        keys.iter().for_each(|key| pricing[key] = WRITE.into());
        pricing
    };
    for (pricing, usual_passes, hour_passes) in [
        (with(&[]), false, false),
        (with(&["input_cache_write"]), true, false),
        (with(&["input_cache_write", "input_cache_write_1h"]), true, true),
    ] {
        let (_upstream, gateway) = gateway(pricing, |_| {}).await;
        for (control, passes) in [
            (&usual, usual_passes),
            (&hour, hour_passes),
            (&json!({ "ttl": "2h" }), hour_passes),
            (&Value::Null, true),
        ] {
            for more in places(control) {
                let text = body(&says, &more).to_string();
                // An escape in the name makes it no other name.
                for text in [text.replace("cache_control", "cache\\u005fcontrol"), text] {
                    let answer = gateway.http1.post("/llm/chat", text).await;
                    if passes {
                        answer.ok();
                    } else {
                        assert!(
                            answer
                                .error(400, "invalid_request_error")
                                .to_string()
                                .contains("cache_control"),
                            "{more}"
                        );
                    }
                }
            }
        }
        // What a model may write of it is no request.
        let more =
            json!({ "messages": [{ "role": "user", "content": "\"cache_control\": {\"type\": \"ephemeral\"}" }] });
        gateway
            .http1
            .post("/llm/chat", body(&says, &more).to_string())
            .await
            .ok();
    }
}
