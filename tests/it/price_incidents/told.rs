//! What a provider says around the end of an answer, and what a request says beside its prices: who was told a cost owes that, and who did
//! not ask for it owes no less.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{COMPLETION, PROMPT, READ, body, cost, gateway, pricing};
use crate::harness::catalogue::{SMALL, cost as catalogue_cost};
use crate::harness::client::ask;
use crate::harness::reply::whole_chat;
use crate::harness::told::told_cost;
use crate::harness::{Gateway, Reply, Setup, Upstream};

fn event(choices: Value, usage: Value) -> String {
    let mut event =
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": choices });
    if !usage.is_null() {
        event["usage"] = usage;
    }
    event.to_string()
}

fn finish(usage: Value) -> String {
    event(
        json!([{ "index": 0, "delta": { "content": " there" }, "finish_reason": "stop" }]),
        usage,
    )
}

fn usage(prompt: u64, completion: u64) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": completion })
}

/// A gateway whose provider always answers so.
async fn always(reply: Reply) -> (Upstream, Gateway) {
    let upstream = Upstream::always(reply).await;
    let gateway = Setup::over(&upstream).start().await;
    (upstream, gateway)
}

/// A streamed call: its answer, and what was taken for it.
async fn streamed(gateway: &Gateway, asks: bool) -> (String, Decimal) {
    let mut body = json!({ "model": SMALL, "max_tokens": 2_000, "stream": true,
        "messages": [{ "role": "user", "content": "word ".repeat(50) }] });
    if asks {
        body["stream_options"] = json!({ "include_usage": true });
    }
    let before = gateway.spent().await;
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    let text = answer.text().to_owned();
    (text, gateway.spent().await - before)
}

#[tokio::test]
async fn who_does_not_ask_for_the_usage_owes_what_its_last_report_says() {
    let reply = Reply::stream()
        .role()
        .text("Hi")
        .event(&finish(usage(9, 2)))
        .event(&event(json!([]), usage(9, 400)))
        .done();
    let (_upstream, gateway) = always(reply).await;
    for asks in [true, false] {
        let (answer, spent) = streamed(&gateway, asks).await;
        assert_eq!(spent, catalogue_cost(SMALL, 9, 400), "{asks}: {answer}");
        let told = asks.then_some(spent);
        assert_eq!(told_cost(&answer), told, "{answer}");
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn a_second_end_tells_nothing_and_changes_no_bill() {
    let reply = Reply::stream()
        .role()
        .text("Hi")
        .event(&finish(usage(9, 2)))
        .event("[DONE]")
        .text(&" word".repeat(200))
        .done();
    let (_upstream, gateway) = always(reply).await;
    let (answer, spent) = streamed(&gateway, true).await;
    assert_eq!(spent, catalogue_cost(SMALL, 9, 2), "{answer}");
    assert_eq!(answer.matches("\"cost\":").count(), 1, "{answer}");
    assert_eq!(told_cost(&answer), Some(spent));
}

#[tokio::test]
async fn a_usage_that_cannot_be_is_followed_by_what_is_billed() {
    let unbelievable = event(json!([]), usage(9, 4_000_000_000));
    let reply = Reply::stream()
        .role()
        .text("Hi")
        .event(&finish(usage(9, 2)))
        .event(&unbelievable)
        .done();
    let (_upstream, gateway) = always(reply).await;
    let (answer, spent) = streamed(&gateway, true).await;
    let last = answer.rsplit_once("\"usage\":").unwrap().1;
    assert_eq!(told_cost(last), Some(spent), "{answer}");
    assert_eq!(spent, catalogue_cost(SMALL, 9, 2));
}

#[tokio::test]
async fn an_end_without_a_word_before_it_is_told_as_it_is_debited() {
    let (_upstream, gateway) = always(Reply::stream().role().done()).await;
    let (answer, spent) = streamed(&gateway, true).await;
    assert!(spent > Decimal::ZERO, "{answer}");
    assert_eq!(told_cost(&answer), Some(spent), "{answer}");
}

#[tokio::test]
async fn a_stream_with_its_end_is_owed_though_its_connection_is_cut() {
    let reply = Reply::stream().role().finish().event("[DONE]").close();
    let (upstream, gateway) = always(reply).await;
    for asks in [true, false] {
        let (answer, spent) = streamed(&gateway, asks).await;
        assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
        assert!(spent > Decimal::ZERO, "{asks}: {answer}");
        assert_eq!(told_cost(&answer), asks.then_some(spent), "{answer}");
    }
    let body = json!({ "model": SMALL, "stream": true, "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let before = upstream.seen().len();
    for _ in 0..2 {
        let call = gateway.http1.post_request("/llm/chat", body.clone());
        ask(call.header("idempotency-key", "cut-at-its-end")).await;
    }
    assert_eq!(upstream.seen().len() - before, 1, "its provider is asked once");
}

fn choice(index: u64, content: &str, finish: Value) -> String {
    event(
        json!([{ "index": index, "delta": { "content": content }, "finish_reason": finish }]),
        Value::Null,
    )
}

/// Text after the last usage, an error, a connection that is cut: none of it comes with another cost.
#[tokio::test]
async fn a_cost_that_was_told_is_what_a_stream_owes_that_fails_after_it() {
    let said = |text: &str| choice(0, text, Value::Null);
    let (stop, late) = (
        choice(0, "", json!("stop")),
        said(" and much more text than was reported"),
    );
    let last = event(json!([]), usage(9, 1));
    let other = choice(1, "the second choice says more than that", Value::Null);
    let error = json!({ "error": { "message": "x", "code": 500 } }).to_string();
    // How many choices are asked for, the events, and whether a cost is told before the provider fails.
    let cases: [(u64, &[&str], bool); 8] = [
        (1, &[&said("Hi"), &stop, &last], true),
        (1, &[&said("Hi"), &stop, &last, &late], true),
        (1, &[&said("Hi"), &finish(usage(9, 1)), &late], true),
        (1, &[&said("Hi"), &stop, &last, &late, &error], true),
        (1, &[&stop, &last, &error], true),
        (2, &[&said("Hi"), &stop, &last, &other], false),
        (2, &[&said("Hi"), &stop, &last, &other, &error], false),
        (2, &[&stop, &last], false),
    ];
    for (choices, events, is_told) in cases {
        let reply = events
            .iter()
            .fold(Reply::stream().role(), |reply, event| reply.event(event));
        let (_upstream, gateway) = always(reply.close()).await;
        let body = json!({ "model": SMALL, "max_tokens": 2_000, "stream": true, "n": choices,
            "stream_options": { "include_usage": true }, "messages": [{ "role": "user", "content": "word ".repeat(50) }] });
        let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        let (answer, spent) = (answer.text(), gateway.spent().await);
        assert!(answer.contains("\"error\":") || choices == 1, "{answer}");
        assert_eq!(
            told_cost(answer),
            is_told.then_some(spent),
            "{choices} {events:?}: {answer}"
        );
        gateway.check_books().await;
    }
}

/// Such as after tools that the provider runs itself: what each step ends with is no end of the answer.
#[tokio::test]
async fn a_stream_that_goes_on_after_its_last_usage_is_told_before_its_failure_what_that_costs() {
    let reply = Reply::stream()
        .role()
        .text("Hi")
        .event(&finish(usage(9, 2)))
        .text(&" word".repeat(200))
        .close();
    let (_upstream, gateway) = always(reply).await;
    let (answer, spent) = streamed(&gateway, true).await;
    assert!(spent > catalogue_cost(SMALL, 9, 190), "{answer}");
    assert_eq!(told_cost(&answer), Some(spent), "{answer}");
    gateway.check_books().await;
}

#[tokio::test]
async fn what_follows_a_whole_answer_changes_no_bill() {
    let answer = whole_chat(&"word ".repeat(300), Some((9, 2))).to_string();
    let whole = format!("{answer} x");
    let pause = std::time::Duration::from_millis(400);
    let reply = Reply::json_head(whole.len())
        .bytes(&answer)
        .pause(pause)
        .bytes(&whole[answer.len()..]);
    let upstream = Upstream::always(reply).await;
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["timeouts"]["whole_gather_ms"] = 50.into())
        .start()
        .await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "word ".repeat(50) }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await;
    let spent = gateway.spent().await;
    assert_eq!(spent, catalogue_cost(SMALL, 9, 2), "{}", answer.text());
    assert_eq!(told_cost(answer.text()), Some(spent), "{}", answer.text());
}

#[tokio::test]
async fn a_list_is_no_answer() {
    let list = json!([whole_chat("Hi", Some((9, 2)))]);
    let (_upstream, gateway) = always(Reply::json(&list)).await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(gateway.spent().await, Decimal::ZERO);
}

#[tokio::test]
async fn a_usage_beside_the_answers_own_does_not_hide_what_is_billed() {
    let mut answer = whole_chat("Hi", Some((9, 2)));
    answer["x_groq"] = json!({ "usage": usage(9, 30) });
    let (_upstream, gateway) = always(Reply::json(&answer)).await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "word ".repeat(50) }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    let spent = gateway.spent().await;
    assert_eq!(answer.json()["usage"]["completion_tokens"], 30, "{}", answer.text());
    assert_eq!(spent, catalogue_cost(SMALL, 9, 30));
}

#[tokio::test]
async fn sound_and_images_that_do_not_fit_in_the_prompt_are_none() {
    let (_upstream, gateway) = gateway(pricing(), |_| {}).await;
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10,
        "prompt_tokens_details": { "audio_tokens": 60, "image_tokens": 60 } });
    let expected = cost(&[(100, PROMPT), (10, COMPLETION)]);
    super::check(&gateway, json!({ "usage": usage }), json!({}), expected).await;
}

/// Requests with a `cache_control` at a place that only some upstreams read.
fn controlled(control: &Value) -> Vec<Value> {
    let call = |extra: Value| {
        let mut call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
        if let Some(inner) = extra.get("function") {
            call["function"]["cache_control"] = inner.clone();
        } else {
            call["cache_control"] = extra;
        }
        json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "tool_calls": [call] }])
    };
    let part =
        json!([{ "type": "tool_result", "content": [{ "type": "text", "text": "Hi", "cache_control": control }] }]);
    vec![
        json!({ "tools": [{ "type": "function", "function": { "name": "f", "cache_control": control } }] }),
        json!({ "functions": [{ "name": "f", "cache_control": control }] }),
        json!({ "messages": call(control.clone()) }),
        json!({ "messages": call(json!({ "function": control })) }),
        json!({ "messages": [{ "role": "user", "content": part }] }),
        json!({ "system": [{ "type": "text", "text": "Hi", "cache_control": control }] }),
    ]
}

#[tokio::test]
async fn a_cache_control_wherever_it_stands_needs_a_price() {
    let plain = json!({ "prompt": PROMPT, "completion": COMPLETION, "input_cache_read": READ });
    let (upstream, unpriced) = gateway(plain, |_| {}).await;
    let hour = json!({ "type": "ephemeral", "ttl": "1h" });
    let usual = json!({ "type": "ephemeral" });
    let mut five_minutes = pricing();
    five_minutes.as_object_mut().unwrap().remove("input_cache_write_1h");
    let (_, without_hour) = gateway(five_minutes, |_| {}).await;
    for more in controlled(&hour).into_iter().chain(controlled(&usual)) {
        let answer = unpriced
            .http1
            .post("/llm/chat", body(&json!({}), &more).to_string())
            .await;
        assert_eq!(answer.status, 400, "{more}: {}", answer.text());
        assert!(answer.text().contains("cache_control"), "{}", answer.text());
    }
    assert_eq!(upstream.seen().len(), 0);
    for (more, status) in controlled(&hour)
        .into_iter()
        .map(|more| (more, 400))
        .chain(controlled(&usual).into_iter().map(|more| (more, 200)))
    {
        let says = json!({ "usage": usage(9, 2) });
        let answer = without_hour
            .http1
            .post("/llm/chat", body(&says, &more).to_string())
            .await;
        assert_eq!(answer.status, status, "{more}: {}", answer.text());
    }
    // In a schema or arguments the name is the client's, and one that only folds to it is refused.
    for (more, status) in [
        (
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "cache_control": usual } } }] }),
            200,
        ),
        (
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "Cache_Control": usual } }] }),
            400,
        ),
        (
            json!({ "metadata": { "says": json!({ "usage": usage(9, 2) }).to_string(), "cache_control": usual } }),
            200,
        ),
    ] {
        let says = json!({ "usage": usage(9, 2) });
        let answer = unpriced.http1.post("/llm/chat", body(&says, &more).to_string()).await;
        assert_eq!(answer.status, status, "{more}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_hold_that_is_raised_after_the_cost_was_told_raises_no_bill() {
    // The catalogue's maximum is too low, so the hold is raised beside the stream; what is told is cut to the hold as it was.
    let mut last = usage(9, 3);
    last["cost"] = json!(0.5);
    let end = format!("data: {}\n\ndata: [DONE]\n\n", finish(last));
    let pause = std::time::Duration::from_millis(300);
    let reply = Reply::stream()
        .role()
        .text(&" word".repeat(40))
        .chunk(end)
        .pause(pause)
        .chunk("\n")
        .end();
    let upstream = Upstream::always(reply).await;
    let mut setup = Setup::over(&upstream).conf(|conf| conf["providers"]["main"]["cost_from"] = "usage".into());
    setup.catalogue["models"][1]["max_completion_tokens"] = 3.into();
    let gateway = setup.start().await;
    let body = json!({ "model": SMALL, "stream": true, "stream_options": { "include_usage": true },
        "messages": [{ "role": "user", "content": "word ".repeat(50) }] });
    let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    let spent = gateway.spent().await;
    assert!(spent > Decimal::ZERO);
    assert_eq!(told_cost(answer.text()), Some(spent), "{}", answer.text());
    gateway.check_books().await;
}
