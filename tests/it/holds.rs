//! Holds.

mod shortages;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{LARGE, SMALL, cost};
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, deltas, eventually};

/// A request with a maximum.
fn with_max(model: &str, max_tokens: u64) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": max_tokens })
        .to_string()
}

/// An upstream that says nothing until the cue.
async fn gated(cue: &Cue, reply: Reply) -> Upstream {
    Upstream::always(Reply::default().wait(cue).and(reply)).await
}

#[tokio::test]
async fn the_worst_case_is_held_before_the_upstream_is_asked_and_given_back_after() {
    for (reply, body) in [
        (Reply::chat("Hi", 9, 1), with_max(LARGE, 1_000)),
        (
            Reply::stream_of(&["Hi"], 9, 1),
            with_max(LARGE, 1_000).replacen('{', "{\"stream\":true,", 1),
        ),
    ] {
        let cue = Cue::new();
        let upstream = gated(&cue, reply).await;
        let gateway = Gateway::over(&upstream).await;
        let call = gateway.http1.post("/llm/chat", body);
        let watch = async {
            upstream.asked(1).await;
            let held = gateway.held().await;
            assert!(held >= cost(LARGE, 9, 1_000), "{held}");
            assert!(held < cost(LARGE, 2_000, 1_000), "{held}");
            let answer = gateway.http1.get("/llm/balance").await.ok();
            assert_eq!(answer.number("held"), held.to_string());
            assert_eq!(answer.number("balance"), "100", "a hold is no change of the balance");
            cue.give();
        };
        let (answer, ()) = tokio::join!(call, watch);
        answer.ok();
        assert_eq!(gateway.spent().await, cost(LARGE, 9, 1).round_dp(12));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn every_choice_is_held() {
    let cue = Cue::new();
    let upstream = gated(&cue, Reply::chat("Hi", 9, 10)).await;
    let gateway = Gateway::over(&upstream).await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "x" }], "max_tokens": 1_000, "n": 8 });
    let watch = async {
        upstream.asked(1).await;
        let held = gateway.held().await;
        assert!(held >= cost(SMALL, 1, 8_000), "{held}");
        cue.give();
    };
    tokio::join!(gateway.http1.post("/llm/chat", body.to_string()), watch)
        .0
        .ok();
    gateway.check_books().await;
}

#[tokio::test]
async fn a_failed_call_gives_its_hold_back() {
    let upstream = Upstream::of([
        Reply::status(500),
        Reply::default().close(),
        Reply::refusal(400, &[], "no"),
    ])
    .await;
    let gateway = Gateway::over(&upstream).await;
    for status in [500, 502, 400] {
        assert_eq!(gateway.http1.post("/llm/chat", request(SMALL)).await.status, status);
    }
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    assert_eq!(gateway.usage().await, []);
    gateway.check_books().await;
}

#[tokio::test]
async fn a_402_says_how_many_tokens_can_be_paid_and_that_many_can() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    // About a thousand tokens' worth.
    let gateway = Setup::over(&upstream).credit("0.0007").start().await;
    for (path, body) in [
        ("/llm/chat", with_max(SMALL, 4_000)),
        ("/llm/chat/stream", with_max(SMALL, 4_000)),
        (
            "/chat/completions",
            with_max(SMALL, 4_000).replace("max_tokens", "max_completion_tokens"),
        ),
    ] {
        let answer = gateway.http1.post(path, body).await;
        let error = answer.error(402, "insufficient_credits");
        assert_eq!(error["metadata"]["reason"], "insufficient_credits");
        assert_eq!(
            (answer.header("retry-after"), answer.header("x-should-retry")),
            ("", "false")
        );
        let affordable = error["metadata"]["affordable_tokens"].as_u64().unwrap();
        assert!((900..=1_014).contains(&affordable), "{error}");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains(&format!("{affordable} completion tokens")),
            "{error}"
        );
        assert!(upstream.seen().is_empty());
    }
    gateway.check_untouched(&upstream).await;
    let error = gateway
        .http1
        .post("/llm/chat", with_max(SMALL, 4_000))
        .await
        .error(402, "insufficient_credits");
    let affordable = error["metadata"]["affordable_tokens"].as_u64().unwrap();
    gateway
        .http1
        .post("/llm/chat", with_max(SMALL, affordable + 1))
        .await
        .error(402, "insufficient_credits");
    gateway.http1.post("/llm/chat", with_max(SMALL, affordable)).await.ok();
    assert_eq!(upstream.only().json()["max_tokens"], affordable);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
}

#[tokio::test]
async fn without_a_maximum_the_upstream_is_told_what_is_affordable() {
    let upstream = Upstream::always(Reply::stream_of(&["Hi"], 9, 500)).await;
    let gateway = Setup::over(&upstream).credit("0.0007").start().await;
    gateway
        .http1
        .stream("/llm/chat/stream", request(SMALL))
        .await
        .ok()
        .rest()
        .await;
    let seen = upstream.only().json();
    let cap = seen["max_tokens"].as_u64().unwrap();
    assert!((900..=1_014).contains(&cap), "{seen}");
    assert_eq!(seen["messages"], json!([{ "role": "user", "content": "Hello" }]));
    assert!(
        cost(SMALL, PROMPT, cap) <= "0.0007".parse().unwrap(),
        "the cap's worst case is covered"
    );
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 500));
}

#[tokio::test]
async fn with_enough_credit_no_maximum_is_added_and_a_clients_own_stays() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(upstream.asked(1).await.json().get("max_tokens"), None);
    gateway.http1.post("/llm/chat", with_max(SMALL, 17)).await.ok();
    assert_eq!(upstream.asked(2).await.json()["max_tokens"], 17);
}

#[tokio::test]
async fn with_credit_for_k_calls_exactly_k_of_many_at_once_go_through() {
    const K: usize = 7;
    const N: usize = 30;
    let cue = Cue::new();
    let upstream = gated(&cue, Reply::chat("Hi", 9, 1)).await;
    let each = {
        // What one call holds, seen from outside.
        let gateway = Gateway::over(&upstream).await;
        let probe = async {
            upstream.asked(1).await;
            let held = gateway.held().await;
            cue.give();
            held
        };
        let (answer, held) = tokio::join!(gateway.http1.post("/llm/chat", with_max(SMALL, 500)), probe);
        answer.ok();
        held
    };
    let credit = each * Decimal::from(K);
    let gateway = Setup::over(&upstream).credit(&credit.to_string()).start().await;
    let refused = AtomicUsize::new(0);
    let calls = join_all((0..N).map(async |_| {
        let answer = gateway.http1.post("/llm/chat", with_max(SMALL, 500)).await;
        refused.fetch_add(usize::from(answer.status == 402), Ordering::SeqCst);
        answer
    }));
    let watch = async {
        // The winners run until all others were refused.
        eventually("the others are refused", async || {
            (refused.load(Ordering::SeqCst) == N - K).then_some(())
        })
        .await;
        upstream.asked(1 + K).await;
        assert_eq!(gateway.held().await, credit);
        cue.give_all();
    };
    let (answers, ()) = tokio::join!(calls, watch);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(
            answer.error(402, "insufficient_credits")["metadata"]["reason"],
            "in_flight"
        );
    }
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), K);
    assert_eq!(upstream.seen().len(), 1 + K);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) * Decimal::from(K));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_report_beyond_what_was_admitted_takes_no_balance_below_zero() {
    let upstream = Upstream::always(Reply::chat("Hi", 1_000_000, 1_000_000)).await;
    let gateway = Setup::over(&upstream).credit("0.001").start().await;
    gateway.http1.post("/llm/chat", with_max(SMALL, 100)).await.ok();
    assert_eq!(
        gateway.spent().await,
        cost(SMALL, PROMPT, 1),
        "what was counted is billed"
    );
    gateway.clock.advance(60_000);
    gateway.http1.post("/llm/chat", with_max(SMALL, 1)).await.ok();
    gateway.http1.post("/llm/chat", streaming(SMALL)).await;
    assert!(gateway.settled_balance().await > Decimal::ZERO);
    gateway.check_books().await;
}

#[tokio::test]
async fn a_call_dearer_than_any_account_is_a_bad_request() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream)
        .model(SMALL, |model| model["pricing"]["completion"] = "0.9".into())
        .start()
        .await;
    let body: Value =
        json!({ "model": SMALL, "messages": [{ "content": "x" }], "max_tokens": 4_294_967_295_u64, "n": 1_000 });
    gateway
        .http1
        .post("/llm/chat", body.to_string())
        .await
        .error(400, "invalid_request_error");
    gateway.check_untouched(&upstream).await;
}

/// A provider that ignores every maximum.
fn endless(words: usize) -> Reply {
    (0..words).fold(Reply::stream().role(), |reply, _| reply.text(" word"))
}

#[tokio::test]
async fn a_stream_that_passes_its_clients_own_maximum_ends_as_one_that_reached_it() {
    const WORDS: usize = 2_000;
    for over_h2 in [false, true] {
        let upstream = Upstream::always(endless(WORDS).silence()).await;
        let gateway = Gateway::over(&upstream).await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let events = client
            .stream("/llm/chat/stream", with_max(SMALL, 10))
            .await
            .ok()
            .rest()
            .await;
        upstream.hung_up().await;
        let [.., last, done] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(done, "[DONE]");
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
        assert!(events.iter().all(|event| !event.contains("\"error\"")), "{events:?}");
        assert!(events.len() < WORDS, "{} events", events.len());
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 10));
        gateway.check_books().await;
        gateway.counted(1).await;
        let lost = gateway.metrics().sum("tollgate_unbilled_tokens_total", &[]);
        assert!(lost > Decimal::from(7), "{lost}");
    }
}

#[tokio::test]
async fn a_stream_without_a_maximum_of_its_client_passes_the_catalogues_and_is_billed_whole() {
    let upstream = Upstream::always(endless(200).finish().done()).await;
    let setup = Setup::over(&upstream).model(SMALL, |model| model["max_completion_tokens"] = 10.into());
    let gateway = setup.start().await;
    let events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    assert_eq!(deltas(&events.rest().await), " word".repeat(200));
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 200));
    gateway.check_books().await;
}
