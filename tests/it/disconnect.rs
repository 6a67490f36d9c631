//! Clients that leave before the end.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream};

/// A stream that stops after two words and goes on at the cue.
fn gated(cue: &Cue) -> Reply {
    Reply::stream()
        .role()
        .text("Hello")
        .text(" world")
        .wait(cue)
        .text(" and more")
        .finish()
        .usage(50, 30)
        .done()
}

/// Drains instead of cancelling.
fn draining(upstream: &Upstream) -> Setup {
    Setup::over(upstream).conf(|conf| conf["providers"]["main"]["on_disconnect"] = json!("drain"))
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_upstream_and_pays_prompt_and_delivered() {
    let cue = Cue::new();
    for over_h2 in [false, true] {
        let upstream = Upstream::always(gated(&cue)).await;
        let gateway = Gateway::over(&upstream).await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        for _ in 0..3 {
            events.next().await.unwrap();
        }
        assert!(gateway.held().await > Decimal::ZERO);
        drop(events);
        upstream.hung_up().await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_an_upstream_that_never_answers_pays_nothing() {
    for (name, reply) in [("whole", request(SMALL)), ("stream", streaming(SMALL))] {
        let upstream = Upstream::always(Reply::default().silence()).await;
        let gateway = Setup::over(&upstream)
            .conf(|conf| conf["timeouts"]["first_byte_ms"] = 1_000.into())
            .start()
            .await;
        let mut raw = Raw::connect(gateway.address).await;
        let (key, length) = (&gateway.key, reply.len());
        raw.send(format!(
            "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n{reply}"
        ))
        .await;
        upstream.asked(1).await;
        assert!(gateway.held().await > Decimal::ZERO, "{name}");
        raw.close();
        upstream.hung_up().await;
        assert_eq!(gateway.spent().await, Decimal::ZERO, "{name}");
        assert_eq!(gateway.usage().await, []);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_provider_that_is_drained_is_read_to_its_end_and_billed_as_it_reports() {
    for over_h2 in [false, true] {
        let cue = Cue::new();
        let upstream = Upstream::always(gated(&cue)).await;
        let gateway = draining(&upstream).start().await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        for _ in 0..3 {
            events.next().await.unwrap();
        }
        drop(events);
        assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
        cue.give();
        assert_eq!(gateway.spent().await, cost(SMALL, 50, 30));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_drained_upstream_that_falls_silent_is_billed_by_what_was_delivered() {
    let cue = Cue::new();
    let upstream = Upstream::always(gated(&cue)).await;
    let gateway = draining(&upstream)
        .conf(|conf| conf["timeouts"]["idle_ms"] = 200.into())
        .start()
        .await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    drop(events);
    upstream.hung_up().await;
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_client_that_closes_right_after_done_pays_what_was_reported() {
    let cue = Cue::new();
    let reply = Reply::stream()
        .role()
        .text("Hi")
        .finish()
        .usage(50, 30)
        .event("[DONE]")
        .wait(&cue)
        .end();
    for over_h2 in [false, true] {
        let upstream = Upstream::always(reply.clone()).await;
        let gateway = Gateway::over(&upstream).await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        while events.next().await.unwrap() != "[DONE]" {}
        drop(events);
        assert_eq!(gateway.spent().await, cost(SMALL, 50, 30));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_within_a_whole_answer_pays_for_it() {
    let cue = Cue::new();
    let body = crate::harness::reply::whole_chat(&"word ".repeat(400), Some((50, 400))).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let upstream = Upstream::always(Reply::json_head(body.len()).bytes(first).wait(&cue).bytes(second)).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::posted(&gateway, "/llm/chat", &request(SMALL)).await;
    raw.head().await.ok();
    raw.take(first.len()).await;
    raw.close();
    upstream.hung_up().await;
    gateway.settled_balance().await;
    let rows = gateway.usage().await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].prompt_tokens, PROMPT);
    assert!(
        (150..=210).contains(&rows[0].completion_tokens),
        "half of the words were passed on: {rows:?}"
    );
    gateway.check_books().await;
}

#[tokio::test]
async fn a_request_that_is_dropped_where_it_stands_pays_prompt_and_delivered() {
    let cue = Cue::new();
    for (reply, events_read, owed) in [
        (gated(&cue), 3, cost(SMALL, PROMPT, 2)),
        (Reply::stream().role().wait(&cue), 1, cost(SMALL, PROMPT, 0)),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
        for _ in 0..events_read {
            events.next().await.unwrap();
        }
        gateway.drop_requests();
        upstream.hung_up().await;
        assert_eq!(gateway.spent().await, owed);
        gateway.check_books().await;
    }
    let upstream = Upstream::always(Reply::default().silence()).await;
    let gateway = Gateway::over(&upstream).await;
    let call = gateway.http1.post_request("/llm/chat", request(SMALL)).send();
    let drop_it = async {
        upstream.asked(1).await;
        gateway.drop_requests();
    };
    let (answer, ()) = tokio::join!(call, drop_it);
    assert!(answer.is_err());
    assert_eq!(gateway.spent().await, Decimal::ZERO, "the upstream had not answered");
    gateway.check_books().await;
}

#[tokio::test]
async fn a_client_that_has_gone_gets_no_end_of_an_answer_that_it_did_not_get() {
    let cue = Cue::new();
    let failing = Reply::stream().role().text("Hello").wait(&cue).close();
    for (reply, billed) in [(gated(&cue), (50, 30)), (failing, (PROMPT, 1))] {
        let upstream = Upstream::always(reply).await;
        let gateway = draining(&upstream).start().await;
        let mut raw = Raw::posted(&gateway, "/llm/chat/stream", &request(SMALL)).await;
        raw.head().await.ok();
        while !String::from_utf8_lossy(&raw.chunk().await).contains("Hello") {}
        // It hears no more, but could: whatever came after would look like the end of the answer.
        raw.end().await;
        // By the time that this is answered, on the same thread, it has seen that.
        gateway.http1.get("/llm/health").await.ok();
        cue.give();
        assert_eq!(gateway.spent().await, cost(SMALL, billed.0, billed.1));
        raw.closed().await;
    }
}

/// A chat whose message has these parts, with these members beside the model and the message.
fn with(parts: Value, members: Value) -> String {
    let mut body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": parts }] });
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

fn text() -> Value {
    json!({ "type": "text", "text": "Hello" })
}

fn file() -> Value {
    json!({ "type": "file", "file": { "file_data": "QUJD" } })
}

/// Leaves a stream after its first text, and waits until the gateway knows of it.
async fn leave_after_first_text(client: &Client, body: String) {
    let mut events = client.stream("/llm/chat/stream", body).await.ok();
    for _ in 0..2 {
        events.next().await.unwrap();
    }
    drop(events);
    // By the time that these are answered, on the same thread, the gateway has seen that the client left.
    for _ in 0..2 {
        client.get("/llm/health").await.ok();
    }
}

/// A stream that stops after its first text, and at the cue goes on to this report.
fn reporting(cue: &Cue, usage: Value) -> Reply {
    let last = json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [], "usage": usage,
    });
    Reply::stream()
        .role()
        .text("Hello")
        .wait(cue)
        .text(" and more")
        .finish()
        .event(&last.to_string())
        .done()
}

#[tokio::test]
async fn what_a_report_alone_can_tell_is_read_on_for_though_the_provider_cancels() {
    let picture = json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } });
    let sound = json!({ "type": "input_audio", "input_audio": { "data": "QUJD", "format": "wav" } });
    let film = json!({ "type": "video_url", "video_url": { "url": "https://example.com/a.mp4" } });
    let has = |part: Value| with(json!([text(), part]), json!({}));
    let asks = |members: Value| with(json!("Hello"), members);
    let cue = Cue::new();
    for (body, (prompt, completion)) in [
        (has(file()), (50_000, 30)),
        (has(picture), (50_000, 30)),
        (has(sound), (50_000, 30)),
        (has(film), (50_000, 30)),
        (asks(json!({ "thinking": { "budget_tokens": 1_000 } })), (9, 1_040)),
        (asks(json!({ "reasoning": { "max_tokens": 1_000 } })), (9, 1_040)),
        (asks(json!({ "reasoning_effort": "high" })), (9, 1_040)),
    ] {
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion });
        let upstream = Upstream::always(reporting(&cue, usage)).await;
        for over_h2 in [false, true] {
            let gateway = Gateway::over(&upstream).await;
            let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
            leave_after_first_text(client, body.clone()).await;
            assert!(gateway.held().await > Decimal::ZERO, "the call goes on: {body}");
            cue.give();
            assert_eq!(gateway.spent().await, cost(SMALL, prompt, completion), "{body}");
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn reasoning_that_is_switched_off_is_no_reason_to_read_on() {
    let cue = Cue::new();
    let off = json!({ "reasoning_effort": "none", "thinking": { "type": "disabled", "budget_tokens": 0 } });
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 30 });
    let upstream = Upstream::always(reporting(&cue, usage)).await;
    let gateway = Gateway::over(&upstream).await;
    leave_after_first_text(&gateway.http1, with(json!("Hello"), off)).await;
    upstream.hung_up().await;
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 1));
    gateway.check_books().await;
}

/// The base prices of the model whose cache writes have prices: prompt, completion, write, write for an hour.
const WITH_WRITES: [&str; 4] = ["0.000003", "0.000015", "0.00000375", "0.000006"];

/// So many tokens of each of those prices, with the markup.
fn cost_with_writes(tokens: [u64; 4]) -> Decimal {
    let sum: Decimal = tokens
        .iter()
        .zip(WITH_WRITES)
        .map(|(tokens, price)| Decimal::from(*tokens) * price.parse::<Decimal>().unwrap())
        .sum();
    sum * Decimal::new(115, 2)
}

fn with_writes(upstream: &Upstream) -> Setup {
    let [prompt, completion, write, write_1h] = WITH_WRITES;
    Setup::over(upstream).model(SMALL, |model| {
        model["pricing"] = json!({
            "prompt": prompt, "completion": completion, "input_cache_write": write, "input_cache_write_1h": write_1h,
        });
    })
}

/// A chat that asks for its text to be kept in the cache.
fn written(control: Value) -> String {
    let mut kept = text();
    kept["cache_control"] = control;
    with(json!([kept]), json!({}))
}

#[tokio::test]
async fn writes_to_a_cache_are_read_on_for_and_cost_what_is_reported() {
    let cue = Cue::new();
    let usage = json!({
        "input_tokens": 50, "output_tokens": 20, "cache_creation_input_tokens": 200,
        "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 200 },
    });
    let upstream = Upstream::always(reporting(&cue, usage)).await;
    let gateway = with_writes(&upstream).start().await;
    let body = written(json!({ "type": "ephemeral", "ttl": "1h" }));
    leave_after_first_text(&gateway.http1, body).await;
    assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
    cue.give();
    assert_eq!(gateway.spent().await, cost_with_writes([50, 20, 0, 200]));
    gateway.check_books().await;
}

/// How long an upstream that says nothing more is read on for, or is waited for.
const WAIT_MS: u64 = 200;

#[tokio::test]
async fn what_was_not_read_on_to_its_report_is_billed_as_it_was_held_unless_the_provider_failed() {
    let upstream = Upstream::always(Reply::stream().role().text("Hello").silence()).await;
    for (limit, of_file) in [("disconnect_drain_ms", 40_000), ("idle_ms", 0)] {
        let setup = Setup::over(&upstream).model(SMALL, |model| model["file_tokens_max"] = 40_000.into());
        let gateway = setup
            .conf(|conf| conf["timeouts"][limit] = WAIT_MS.into())
            .start()
            .await;
        leave_after_first_text(&gateway.http1, with(json!([text(), file()]), json!({}))).await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT + of_file, 1), "{limit}");
        gateway.check_books().await;
    }
    let usual = json!({ "type": "ephemeral" });
    let hour = json!({ "type": "ephemeral", "ttl": "1h" });
    for (limit, control, expected) in [
        ("disconnect_drain_ms", usual, [0, 1, PROMPT, 0]),
        ("disconnect_drain_ms", hour.clone(), [0, 1, 0, PROMPT]),
        ("idle_ms", hour, [PROMPT, 1, 0, 0]),
    ] {
        let setup = with_writes(&upstream).conf(|conf| conf["timeouts"][limit] = WAIT_MS.into());
        let gateway = setup.start().await;
        leave_after_first_text(&gateway.http1, written(control)).await;
        assert_eq!(gateway.spent().await, cost_with_writes(expected), "{limit}");
        gateway.check_books().await;
    }
}

/// A provider that ends its answer without a report is why there is none, whoever has left.
#[tokio::test]
async fn a_provider_that_reports_nothing_is_not_made_up_for_by_a_client_that_left() {
    let cue = Cue::new();
    let begun = Reply::stream().role().text("Hello").wait(&cue);
    let upstream = Upstream::always(begun.text(" world").finish().done()).await;
    let setup = Setup::over(&upstream).model(SMALL, |model| model["file_tokens_max"] = 40_000.into());
    let gateway = setup.start().await;
    leave_after_first_text(&gateway.http1, with(json!([text(), file()]), json!({}))).await;
    cue.give();
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2));
    gateway.check_books().await;
}
