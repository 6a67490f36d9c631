//! Reports that cannot be, that come late, or that are more than was admitted: what is told of them is what is debited.

use rust_decimal::Decimal;
use serde_json::json;

use super::{COMPLETION, PROMPT, READ, WRITE, WRITE_1H, body, cached, check, cost, gateway, pricing};
use crate::harness::catalogue::{SMALL, cost as catalogue_cost};
use crate::harness::told::told_cost;
use crate::harness::{Reply, Setup, Upstream};

#[tokio::test]
async fn a_report_above_its_bound_is_told_as_it_is_debited() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 100_000, "completion_tokens": 50, "prompt_tokens_details": { "cached_tokens": 90_000 } });
    let mut costs = Vec::new();
    for stream in [false, true] {
        let mut body = body(&json!({ "usage": usage }), &json!({}));
        body["stream"] = stream.into();
        body["stream_options"] = json!({ "include_usage": true });
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        let cost = gateway.spent().await - before;
        assert_eq!(told_cost(answer.text()), Some(cost), "{}", answer.text());
        costs.push(cost);
    }
    // All of the prompt that is billed was read from the cache.
    assert!(costs[0] < cost(&[(10_000, PROMPT)]), "{costs:?}");
    // The streamed request is the longer one by what it says of streaming.
    assert!((costs[1] - costs[0]).abs() < cost(&[(200, READ)]), "{costs:?}");
}

#[tokio::test]
async fn kinds_that_together_exceed_their_side_are_none() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 900, "completion_tokens": 50,
        "completion_tokens_details": { "reasoning_tokens": 40, "audio_tokens": 20 } });
    let expected = cost(&[(900, PROMPT), (50, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
}

#[tokio::test]
async fn parts_of_what_was_written_are_its_sum_where_none_is_named() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "input_tokens": 100, "output_tokens": 20,
        "cache_creation": { "ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50 } });
    let expected = cost(&[(100, PROMPT), (150, WRITE), (50, WRITE_1H), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), cached(), expected).await;
}

/// Anthropic's answers say where and how fast a call was served, though nothing in the request asked for it, and some charge more for that.
/// The catalogue has no price for it: the call is neither refused nor billed more.
#[tokio::test]
async fn a_place_and_a_speed_without_a_price_cost_the_usual() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let expected = cost(&[(50, PROMPT), (300, READ), (500, WRITE), (20, COMPLETION)]);
    for (place, speed) in [("us", "fast"), ("eu", "standard"), ("not_available", "")] {
        let usage = json!({ "input_tokens": 50, "output_tokens": 20, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 500,
            "inference_geo": place, "speed": speed, "service_tier": "standard" });
        check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
    }
    // As numbers they are no tokens, and no price.
    let usage = json!({ "input_tokens": 850, "output_tokens": 20, "inference_geo": 1.1, "speed": 6 });
    let expected = cost(&[(850, PROMPT), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
}

/// What tools of the provider's did is counted in uses, not in tokens.
#[tokio::test]
async fn uses_of_a_providers_tools_are_no_tokens() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let uses = json!({ "web_search_requests": 7, "web_fetch_requests": 3, "web_search_input_tokens": 5_000 });
    let expected = cost(&[(600, PROMPT), (300, READ), (40, COMPLETION)]);
    for usage in [
        json!({ "input_tokens": 600, "output_tokens": 40, "cache_read_input_tokens": 300, "server_tool_use": uses }),
        json!({ "prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940, "prompt_tokens_details": { "cached_tokens": 300 },
            "server_tool_use": uses, "server_side_tool_usage_details": { "web_search_calls": 7 } }),
    ] {
        check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
    }
}

#[tokio::test]
async fn the_price_of_a_call_is_not_taken_for_one_that_used_nothing() {
    let mut prices = pricing();
    prices["request"] = "0.001".into();
    let upstream = Upstream::always(Reply::chat("", 0, 0)).await;
    let mut setup = Setup::over(&upstream);
    setup.catalogue["models"][1]["pricing"] = prices;
    let gateway = setup.start().await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    assert_eq!(gateway.spent().await, Decimal::ZERO, "{}", answer.text());
}

/// Alibaba names what was written among the details of the prompt, as LiteLLM does under another name.
#[tokio::test]
async fn writes_that_the_details_of_the_prompt_name_cost_what_writes_cost() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = |details| json!({ "prompt_tokens": 850, "completion_tokens": 20, "prompt_tokens_details": details });
    for (details, write) in [
        (
            json!({ "cached_tokens": 300, "cache_creation_input_tokens": 500, "cache_type": "ephemeral",
                "cache_creation": { "ephemeral_5m_input_tokens": 500 } }),
            WRITE,
        ),
        (
            json!({ "cached_tokens": 300, "cache_creation": { "ephemeral_5m_input_tokens": 500 } }),
            WRITE,
        ),
        // How long they last is not said: as was asked.
        (json!({ "cached_tokens": 300, "cache_creation_tokens": 500 }), WRITE_1H),
        (
            json!({ "cached_tokens": 300, "cache_write_tokens": 500, "cache_creation_input_tokens": 400 }),
            WRITE_1H,
        ),
    ] {
        let expected = cost(&[(50, PROMPT), (300, READ), (500, write), (20, COMPLETION)]);
        check(&gateway, json!({ "usage": usage(details) }), cached(), expected).await;
    }
    let hour = json!({ "cache_creation_input_tokens": 500,
        "cache_creation": { "ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 400 } });
    let expected = cost(&[(350, PROMPT), (100, WRITE), (400, WRITE_1H), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": usage(hour) }), cached(), expected).await;
}

/// OpenRouter says only how much was written, and LiteLLM has another name for how long it lasts.
#[tokio::test]
async fn writes_that_were_asked_for_an_hour_cost_that_unless_the_report_says_otherwise() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let for_an_hour = json!({ "cache_control": { "type": "ephemeral", "ttl": "1h" } });
    let usage = |details| json!({ "prompt_tokens": 850, "completion_tokens": 20, "prompt_tokens_details": details });
    let unsaid = usage(json!({ "cache_write_tokens": 500 }));
    let hour = cost(&[(350, PROMPT), (500, WRITE_1H), (20, COMPLETION)]);
    check(&gateway, json!({ "usage": unsaid }), for_an_hour.clone(), hour).await;
    for parts in ["cache_creation", "cache_creation_token_details"] {
        let said = usage(json!({ "cache_creation_tokens": 500,
            parts: { "ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 100 } }));
        let expected = cost(&[(350, PROMPT), (400, WRITE), (100, WRITE_1H), (20, COMPLETION)]);
        check(&gateway, json!({ "usage": said }), for_an_hour.clone(), expected).await;
    }
}

/// Moonshot names what was read from its cache beside the sides.
#[tokio::test]
async fn what_was_read_from_a_cache_is_read_beside_the_sides_where_no_details_name_it() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    for (more, read) in [
        (json!({ "cached_tokens": 800 }), 800),
        (
            json!({ "cached_tokens": 800, "prompt_tokens_details": { "cached_tokens": 300 } }),
            300,
        ),
        (json!({ "cached_tokens": 800, "prompt_tokens_details": null }), 800),
        // It is some other figure then.
        (json!({ "cached_tokens": 901 }), 0),
        (json!({ "cached_tokens": "many" }), 0),
    ] {
        let mut usage = json!({ "prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940 });
        for (name, value) in more.as_object().unwrap() {
            usage[name] = value.clone();
        }
        let expected = cost(&[(900 - read, PROMPT), (read, READ), (40, COMPLETION)]);
        check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
    }
}

#[tokio::test]
async fn what_comes_after_the_end_changes_no_bill() {
    let late = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [],
        "usage": { "prompt_tokens": 300, "completion_tokens": 900, "cost": 99 } });
    let stream = Reply::stream()
        .role()
        .text("Hi")
        .finish()
        .event("[DONE]")
        .event(&late.to_string())
        .end();
    let upstream = Upstream::always(stream).await;
    let gateway = Setup::over(&upstream).start().await;
    let body = json!({ "model": SMALL, "max_tokens": 2_000, "stream": true, "stream_options": { "include_usage": true },
        "messages": [{ "role": "user", "content": "word ".repeat(2_000) }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    let told: Vec<&str> = answer.text().split("\"cost\":").skip(1).collect();
    assert_eq!(told.len(), 1, "{}", answer.text());
    assert_eq!(
        told_cost(answer.text().split("[DONE]").next().unwrap()),
        Some(gateway.spent().await)
    );
    gateway.check_books().await;
}

#[tokio::test]
async fn a_stream_without_its_end_is_told_as_it_is_debited() {
    // Its report is behind the text of 52 tokens, and the upstream ends it as if it were whole, without a word of its end.
    let report = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [],
        "usage": { "prompt_tokens": 47, "completion_tokens": 47, "total_tokens": 34 } });
    let stream = (0..52).fold(Reply::stream().role(), |stream, _| stream.text(" word"));
    let upstream = Upstream::always(stream.event(&report.to_string()).end()).await;
    let gateway = Setup::over(&upstream).start().await;
    let body = json!({ "model": SMALL, "stream": true, "stream_options": { "include_usage": true },
        "messages": [{ "role": "user", "content": "word ".repeat(100) }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    let spent = gateway.spent().await;
    assert_eq!(told_cost(answer.text()), Some(spent), "{}", answer.text());
    assert_eq!(spent, catalogue_cost(SMALL, 47, 52));
    gateway.check_books().await;
}
