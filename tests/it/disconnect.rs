//! Clients that leave before the end.

use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{SMALL, cost};
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
