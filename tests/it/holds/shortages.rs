//! Refusals for want of credit (402).

use rust_decimal::Decimal;
use serde_json::json;

use super::{gated, with_max};
use crate::chat::request;
use crate::harness::catalogue::{EMBED, FREE, LARGE, SMALL, cost};
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

#[tokio::test]
async fn without_credit_paid_models_are_402_and_free_ones_work() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&upstream).credit("0").start().await;
    for (path, body) in [
        ("/llm/chat", request(SMALL)),
        ("/llm/chat", with_max(SMALL, 1)),
        ("/llm/chat/stream", request(LARGE)),
        ("/llm/embeddings", json!({ "model": EMBED, "input": "x" }).to_string()),
    ] {
        let answer = gateway.http1.post(path, body).await;
        let error = answer.error(402, "insufficient_credits");
        assert_eq!(error["metadata"]["reason"], "insufficient_credits");
        assert_eq!(answer.header("retry-after"), "");
    }
    gateway.check_untouched(&upstream).await;
    gateway.http1.post("/llm/chat", request(FREE)).await.ok();
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    gateway.check_books().await;
}

#[tokio::test]
async fn a_shortage_by_ones_own_running_calls_says_when_to_come_back() {
    let cue = Cue::new();
    let upstream = gated(&cue, Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&upstream).credit("0.001").start().await;
    let description = crate::openapi::description(&gateway).await;
    let watch = async {
        upstream.asked(1).await;
        let answer = gateway.http1.post("/llm/chat", with_max(SMALL, 1_000)).await;
        let error = answer.error(402, "insufficient_credits");
        assert_eq!(error["metadata"]["reason"], "in_flight");
        assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
        // OpenAI's clients retry no 402 without it.
        assert_eq!(answer.header("x-should-retry"), "true");
        crate::openapi::check(&description, &description["paths"]["/llm/chat"]["post"], &answer);
        let too_much = gateway.http1.post("/llm/chat", with_max(SMALL, 100_000)).await;
        assert_eq!(
            too_much.error(402, "insufficient_credits")["metadata"]["reason"],
            "insufficient_credits"
        );
        assert_eq!(
            (too_much.header("retry-after"), too_much.header("x-should-retry")),
            ("", "false")
        );
        assert_eq!(upstream.seen().len(), 1);
        cue.give_all();
    };
    tokio::join!(gateway.http1.post("/llm/chat", with_max(SMALL, 1_000)), watch)
        .0
        .ok();
    gateway.settled_balance().await;
    gateway.http1.post("/llm/chat", with_max(SMALL, 1_000)).await.ok();
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
}

#[tokio::test]
async fn a_prompt_that_is_paid_for_once_another_call_has_ended_is_told_so_however_many_bytes_it_has() {
    let cue = Cue::new();
    let upstream = gated(&cue, Reply::stream_of(&["Hi"], 9, 1)).await;
    let gateway = Setup::over(&upstream).credit("0.001").start().await;
    // Its bytes cost more than all credit, its tokens a third of it.
    let prompt = " word".repeat(2_000);
    assert!(cost(SMALL, prompt.len().try_into().unwrap(), 0) > "0.0015".parse().unwrap());
    let long = |copies| {
        json!({ "model": SMALL, "messages": [{ "role": "user", "content": prompt.repeat(copies) }], "max_tokens": 1 })
            .to_string()
    };
    let watch = async {
        upstream.asked(1).await;
        assert_eq!(
            gateway.held().await,
            "0.001".parse().unwrap(),
            "nothing is left beside it"
        );
        let answer = gateway.http1.post("/llm/chat", long(1)).await;
        assert_eq!(
            answer.error(402, "insufficient_credits")["metadata"]["reason"],
            "in_flight"
        );
        assert_eq!(answer.header("x-should-retry"), "true");
        let answer = gateway.http1.post("/llm/chat", long(4)).await;
        assert_eq!(
            answer.error(402, "insufficient_credits")["metadata"]["reason"],
            "insufficient_credits"
        );
        assert_eq!(answer.header("x-should-retry"), "false");
        cue.give_all();
    };
    tokio::join!(gateway.http1.post("/llm/chat/stream", request(SMALL)), watch)
        .0
        .ok();
    gateway.settled_balance().await;
    gateway.http1.post("/llm/chat/stream", long(1)).await.ok();
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn over_the_monthly_quota_is_402_until_the_month_ends() {
    let upstream = Upstream::always(Reply::chat("Hi", 200, 1_000)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.set_quota("0.002").await;
    gateway.http1.post("/llm/chat", with_max(SMALL, 1_000)).await.ok();
    let once = cost(SMALL, 200, 1_000);
    assert_eq!(gateway.spent().await, once);
    let answer = gateway.http1.post("/llm/chat", with_max(SMALL, 2_000)).await;
    let error = answer.error(402, "quota_exceeded");
    assert_eq!(error["metadata"]["reason"], "quota_exceeded");
    assert!(
        answer
            .text()
            .contains(&format!("\"monthly_used\":{}", once.normalize())),
        "{error}"
    );
    assert!(answer.text().contains("\"monthly_quota\":0.002"), "{error}");
    assert_eq!(
        (answer.header("retry-after"), answer.header("x-should-retry")),
        ("", "false")
    );
    assert_eq!(upstream.seen().len(), 1);
    gateway.clock.advance(11 * 86_400_000);
    gateway.http1.post("/llm/chat", with_max(SMALL, 1_000)).await.ok();
    assert_eq!(gateway.spent().await, once + once);
}
