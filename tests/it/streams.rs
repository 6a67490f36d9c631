//! Streams: never delayed, metered, and always ended.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::reply::UPSTREAM_SECRET;
use crate::harness::{Cue, Events, Gateway, Reply, Setup, Upstream, deltas};

/// Starts the stream that every test here asks for.
async fn open(client: &Client) -> Events {
    client.stream("/llm/chat/stream", request(SMALL)).await.ok()
}

/// Checks the two events that end a stream whose upstream failed.
fn check_failed(events: &[String]) {
    let [.., error, done] = events else {
        panic!("{events:?}")
    };
    assert_eq!(done, "[DONE]", "{events:?}");
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["object"], "chat.completion.chunk");
    let choice = json!([{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }]);
    assert_eq!(error["choices"], choice);
    assert_eq!(error["error"]["code"], 502);
    assert_eq!(error["error"]["type"], "upstream_error");
    assert!(error["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(
        events
            .iter()
            .filter(|event| event.contains("finish_reason\":\"error"))
            .count(),
        1
    );
    assert!(!events.concat().contains(UPSTREAM_SECRET), "{events:?}");
}

/// Runs a stream that fails over both protocols; gives what each cost.
async fn failed(reply: Reply, delivered: &str, change: impl FnOnce(&mut Value)) -> Decimal {
    let upstream = Upstream::always(reply).await;
    let gateway = Setup::over(&upstream).conf(change).start().await;
    for client in [&gateway.http1, &gateway.h2c] {
        let events = open(client).await.rest().await;
        check_failed(&events);
        assert_eq!(deltas(&events), delivered);
    }
    gateway.check_books().await;
    gateway.spent().await / Decimal::TWO
}

#[tokio::test]
async fn each_event_reaches_the_client_when_the_upstream_sends_it() {
    let cue = Cue::new();
    let gated = ["one ", "two ", "three"]
        .iter()
        .fold(Reply::stream().role(), |reply, text| reply.wait(&cue).text(text));
    let upstream = Upstream::always(gated.wait(&cue).finish().usage(9, 3).done()).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let mut events = open(client).await;
        // The upstream has sent this one event and is waiting: were anything held back, this would wait too.
        assert_eq!(events.next_json().await["choices"][0]["delta"]["role"], "assistant");
        for text in ["one ", "two ", "three"] {
            cue.give();
            assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], text);
        }
        cue.give();
        assert_eq!(events.rest().await.len(), 2);
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 6));
}

#[tokio::test]
async fn an_event_in_pieces_is_passed_when_it_is_complete() {
    let cue = Cue::new();
    let event = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let (first, second) = event.split_at(30);
    let reply = Reply::stream()
        .chunk(first)
        .wait(&cue)
        .chunk(second)
        .wait(&cue)
        .usage(9, 1)
        .done();
    let upstream = Upstream::always(reply).await;
    let gateway = Gateway::over(&upstream).await;
    let mut events = open(&gateway.http1).await;
    cue.give();
    assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], "Hi");
    cue.give();
    assert_eq!(events.rest().await, ["[DONE]"]);
}

#[tokio::test]
async fn a_stream_that_the_upstream_ends_without_done_gets_it() {
    let chunked = Reply::stream().role().text("Hi").finish().usage(9, 1).end();
    let open_event = Reply::stream()
        .role()
        .text("Hi")
        .finish()
        .usage(9, 1)
        .chunk("data: {\"choices\":[]}")
        .end();
    for (reply, count) in [(chunked, 4), (open_event, 5)] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let events = open(client).await.rest().await;
            assert_eq!(events.len(), count, "{events:?}");
            assert_eq!(events.last().unwrap(), "[DONE]");
        }
        assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
    }
}

#[tokio::test]
async fn an_upstream_that_dies_mid_stream_becomes_an_error_event_and_a_clean_end() {
    let begun = || Reply::stream().role().text("Hello").text(" world");
    let expected = cost(SMALL, PROMPT, 2);
    let none = |_: &mut Value| {};
    assert_eq!(failed(begun().close(), "Hello world", none).await, expected, "closed");
    assert_eq!(failed(begun().reset(), "Hello world", none).await, expected, "reset");
    let half = begun().chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"cont");
    assert_eq!(
        failed(half.close(), "Hello world", none).await,
        expected,
        "within an event"
    );
    let within_chunk = begun().bytes("fff\r\ndata: {\"choices\":[");
    assert_eq!(
        failed(within_chunk.close(), "Hello world", none).await,
        expected,
        "within a chunk"
    );
    let nonsense = begun().bytes("this is no chunk\r\n");
    assert_eq!(
        failed(nonsense.silence(), "Hello world", none).await,
        expected,
        "broken framing"
    );
}

#[tokio::test]
async fn an_upstream_that_falls_silent_is_cut_after_the_idle_time() {
    let reply = Reply::stream().role().text("Hello").text(" world").silence();
    let spent = failed(reply, "Hello world", |conf| conf["timeouts"]["idle_ms"] = 100.into()).await;
    assert_eq!(spent, cost(SMALL, PROMPT, 2));
}

#[tokio::test]
async fn an_upstream_that_dies_with_nothing_delivered_is_free() {
    let none = |_: &mut Value| {};
    assert_eq!(failed(Reply::stream().close(), "", none).await, Decimal::ZERO);
    assert_eq!(failed(Reply::stream().role().close(), "", none).await, Decimal::ZERO);
    assert_eq!(failed(Reply::stream().role().reset(), "", none).await, Decimal::ZERO);
}

#[tokio::test]
async fn an_upstream_that_dies_after_its_usage_report_is_billed_as_reported() {
    let reply = Reply::stream().role().text("Hello").finish().usage(50, 30).close();
    let upstream = Upstream::always(reply).await;
    let gateway = Gateway::over(&upstream).await;
    let events = open(&gateway.http1).await.rest().await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert_eq!(gateway.spent().await, cost(SMALL, 50, 30));
}

#[tokio::test]
async fn an_error_event_of_the_upstream_is_put_in_our_words() {
    let said = format!(r#"{{"error":{{"message":"{UPSTREAM_SECRET}","code":500}}}}"#);
    let none = |_: &mut Value| {};
    let reply = Reply::stream().role().text("Hello").text(" world").event(&said).end();
    assert_eq!(failed(reply, "Hello world", none).await, cost(SMALL, PROMPT, 2));
    assert_eq!(
        failed(Reply::stream().event(&said).end(), "", none).await,
        Decimal::ZERO
    );
}

#[tokio::test]
async fn comments_and_unknown_lines_pass_unharmed() {
    let reply = Reply::stream()
        .chunk(": ping\n\n")
        .role()
        .chunk(": OPENROUTER PROCESSING\n\n")
        .text("Hi")
        .chunk("event: x\ndata: {not json\n\n");
    let upstream = Upstream::always(reply.finish().usage(9, 1).done()).await;
    let gateway = Gateway::over(&upstream).await;
    let answer = gateway.http1.post("/llm/chat/stream", request(SMALL)).await.ok();
    for piece in [
        ": ping\n\n",
        ": OPENROUTER PROCESSING\n\n",
        "event: x\ndata: {not json\n\n",
    ] {
        assert!(answer.text().contains(piece), "{piece:?} in {:?}", answer.text());
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
}

#[tokio::test]
async fn without_a_usage_report_prompt_and_delivered_text_are_counted() {
    let stream = Reply::stream().role().text("Hello").text(" world").finish().done();
    let upstream = Upstream::of([stream, Reply::chat_without_usage("Hello world")]).await;
    let gateway = Gateway::over(&upstream).await;
    open(&gateway.http1).await.rest().await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let rows = gateway.usage().await;
    assert_eq!(gateway.spent().await, cost(SMALL, 2 * PROMPT, 4), "{rows:?}");
}

#[tokio::test]
async fn a_report_that_cannot_be_is_not_believed() {
    for usage in [
        r#"{"prompt_tokens":-1,"completion_tokens":2}"#,
        r#"{"prompt_tokens":7,"completion_tokens":1.5}"#,
        r#"{"prompt_tokens":7,"completion_tokens":99999999999999}"#,
        r#"{"prompt_tokens":"7","completion_tokens":2}"#,
    ] {
        let reported = format!(r#"{{"id":"x","choices":[],"usage":{usage}}}"#);
        let reply = Reply::stream()
            .role()
            .text("Hello")
            .text(" world")
            .finish()
            .event(&reported)
            .done();
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        open(&gateway.http1).await.rest().await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2), "{usage}");
    }
}

#[tokio::test]
async fn the_highest_report_stands_and_a_completion_of_zero_is_one() {
    let upstream = Upstream::of([
        Reply::stream()
            .role()
            .usage(9, 1)
            .text("Hello")
            .usage(9, 5)
            .usage(9, 4)
            .done(),
        Reply::stream().role().text("Hello").usage(9, 0).done(),
        Reply::stream().role().text("Hello").usage(0, 0).done(),
    ])
    .await;
    let gateway = Gateway::over(&upstream).await;
    open(&gateway.http1).await.rest().await;
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 5));
    open(&gateway.http1).await.rest().await;
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 5));
    // That there was nothing at all is not true of an answer with text, so all of it is counted.
    open(&gateway.http1).await.rest().await;
    assert_eq!(gateway.spent().await, cost(SMALL, 18 + PROMPT, 6));
}

#[tokio::test]
async fn a_stream_with_a_length_or_with_trailers_is_a_stream_too() {
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
                  data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    let with_length = Reply::new(
        200,
        &[("content-type", "text/event-stream")],
        format!("{events}data: [DONE]\n\n"),
    );
    let without_done = Reply::new(200, &[("content-type", "text/event-stream")], events);
    let trailers = Reply::stream()
        .chunk(events)
        .event("[DONE]")
        .bytes("0\r\nx-checksum: 1\r\n\r\n");
    for reply in [with_length, without_done, trailers] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let events = open(client).await.rest().await;
            assert_eq!((events.len(), events[1].as_str()), (2, "[DONE]"), "{events:?}");
        }
        assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
    }
}

#[tokio::test]
async fn an_error_with_status_200_is_free() {
    let said = json!({ "error": { "message": "overloaded", "code": 529 } });
    let upstream = Upstream::always(Reply::json(&said)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await;
    assert_eq!(gateway.spent().await, Decimal::ZERO);
}

/// Whoever reads a stream skips the mark, however it comes.
#[tokio::test]
async fn a_stream_behind_a_byte_order_mark_is_metered_and_passes_with_it() {
    let rest = Reply::default().role().text("Hi").finish().usage(9, 1).done();
    let marked = Reply::stream().chunk([0xEF_u8]).chunk([0xBB_u8, 0xBF]).and(rest);
    let upstream = Upstream::always(marked).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let answer = client.post("/llm/chat/stream", request(SMALL)).await.ok();
        let events = answer.text().strip_prefix("\u{feff}data: ").unwrap();
        assert!(
            events.contains("\"content\":\"Hi\"") && events.ends_with("data: [DONE]\n\n"),
            "{events}"
        );
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
    gateway.check_books().await;
}

/// Each says what itself was used for, as Moonshot's do.
#[tokio::test]
async fn of_two_choices_that_report_by_themselves_both_are_billed() {
    let choice = |index: u64, delta: Value, finish_reason: Value, usage: Value| {
        let choice = json!({ "index": index, "delta": delta, "finish_reason": finish_reason, "usage": usage });
        json!({ "id": "chatcmpl-1", "choices": [choice] }).to_string()
    };
    let text = |index| choice(index, json!({ "content": " one two three" }), Value::Null, Value::Null);
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12 });
    let end = |index| choice(index, json!({}), json!("stop"), usage.clone());
    let begun = Reply::stream().event(&text(0)).event(&text(1));
    let upstream = Upstream::always(begun.event(&end(0)).event(&end(1)).done()).await;
    let gateway = Gateway::over(&upstream).await;
    let messages = json!([{ "role": "user", "content": "Hello" }]);
    let asked = json!({ "model": SMALL, "messages": messages, "n": 2 }).to_string();
    for client in [&gateway.http1, &gateway.h2c] {
        client.post("/llm/chat/stream", asked.clone()).await.ok();
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 12));
    gateway.check_books().await;
}
