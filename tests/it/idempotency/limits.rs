//! What is kept of answers and keys, and what a call with a known key counts for.

use futures::future::join_all;
use serde_json::{Value, json};
use tollgate::ledger::Ledger;

use super::{CONFLICT, OnStore, again, is_replay, is_unavailable, keyed};
use crate::chat::request;
use crate::harness::catalogue::{LARGE, SMALL};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Answer, Gateway, KeySpec, Reply, Setup, Upstream};

on_both_stores! {
    an_answer_that_is_not_kept: not_kept_embedded, not_kept_redis;
    answers_make_room_for_later_ones: room_embedded, room_redis;
    what_is_given_again_counts: counts_embedded, counts_redis;
    keys_are_limited: limited_embedded, limited_redis;
}

async fn an_answer_that_is_not_kept(store: OnStore<'_>) {
    let long = "word ".repeat(1_000);
    let upstream = Upstream::always(Reply::chat(&long, 9, 1_000)).await;
    for setting in [json!({ "answer_bytes_max": 2_000 }), json!({ "store_answers": false })] {
        let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = setting.clone()));
        let gateway = gateway.start().await;
        let client = &gateway.http1;
        let before = upstream.seen().len();
        let first = keyed(client, "/llm/chat", request(SMALL), "a").await.ok();
        let second = again(client, "/llm/chat", &request(SMALL), "a").await;
        is_unavailable(&second, Some(first.header("x-request-id")));
        assert_eq!(upstream.seen().len(), before + 1, "{setting}");
        // The id is that of the receipt.
        gateway.spent().await;
        let receipts = gateway.receipts().await;
        assert_eq!(receipts[0].billed.id.to_string(), first.header("x-request-id"));
        if store_is_shared(&gateway) {
            return; // Its account is there already.
        }
    }
}

fn store_is_shared(gateway: &Gateway) -> bool {
    matches!(gateway.ledger, Ledger::Redis(_))
}

async fn answers_make_room_for_later_ones(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat(&"word ".repeat(300), 9, 300)).await;
    let limits = json!({ "answer_bytes_max": 2_000, "bytes_per_key_max": 4_000, "bytes_max": 4_000 });
    let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = limits))
        .start()
        .await;
    let client = &gateway.http1;
    let mut answers = Vec::new();
    for n in 0..3 {
        let key = n.to_string();
        let first = keyed(client, "/llm/chat", request(SMALL), &key).await.ok();
        is_replay(&again(client, "/llm/chat", &request(SMALL), &key).await, &first);
        answers.push(first);
        gateway.clock.advance(1);
    }
    let oldest = again(client, "/llm/chat", &request(SMALL), "0").await;
    is_unavailable(&oldest, Some(answers[0].header("x-request-id")));
    for (n, first) in answers.iter().enumerate().skip(1) {
        is_replay(
            &again(client, "/llm/chat", &request(SMALL), &n.to_string()).await,
            first,
        );
    }
    assert_eq!(upstream.seen().len(), 3);
}

async fn what_is_given_again_counts(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = json!({ "rpm": 100 }));
    let gateway = store(setup).start().await;
    let client = &gateway.http1;
    let left = |answer: &Answer| answer.header("x-ratelimit-remaining-requests").parse::<i64>().unwrap();
    let first = keyed(client, "/llm/chat", request(SMALL), "a").await.ok();
    let second = again(client, "/llm/chat", &request(SMALL), "a").await;
    is_replay(&second, &first);
    let third = keyed(client, "/llm/chat", request(SMALL), "a").await;
    is_replay(&third, &first);
    assert!(left(&second) < left(&first));
    assert_eq!(left(&third), left(&second) - 1);
    let conflict = keyed(client, "/llm/chat", request(LARGE), "a").await;
    conflict.error(409, CONFLICT);
    assert_eq!(left(&conflict), left(&third) - 1);
    for n in 1..=left(&conflict) {
        is_replay(&keyed(client, "/llm/chat", request(SMALL), "a").await, &first);
        assert!(n <= 100);
    }
    let limited = keyed(client, "/llm/chat", request(SMALL), "a").await;
    let error = limited.error(429, "rate_limit_error");
    assert_eq!(error["metadata"]["limit"], "requests_per_minute");
    assert_eq!(upstream.seen().len(), 1);
}

async fn keys_are_limited(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let limits = json!({ "keys_per_key_max": 3 });
    let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = limits))
        .start()
        .await;
    let client = &gateway.http1;
    for n in 0..3 {
        let first = keyed(client, "/llm/chat", request(SMALL), &n.to_string()).await.ok();
        is_replay(
            &again(client, "/llm/chat", &request(SMALL), &n.to_string()).await,
            &first,
        );
    }
    let full = keyed(client, "/llm/chat", request(SMALL), "3").await;
    let error = full.error(429, "rate_limit_error");
    assert_eq!(error["metadata"]["limit"], "idempotency_keys_per_key");
    assert_eq!(full.header("retry-after"), "60");
    // It counts for the limit of requests, as those before it.
    let left = |answer: &Answer| answer.header("x-ratelimit-remaining-requests").parse::<u64>().unwrap();
    let next = keyed(client, "/llm/chat", request(SMALL), "3").await;
    assert_eq!(left(&next), left(&full) - 1);
    // Nor are there more when they come at once.
    let together = client.with_key(&gateway.new_key(KeySpec::default()).await);
    let calls = (0..40).map(async |n| {
        keyed(&together, "/llm/chat", request(SMALL), &n.to_string())
            .await
            .status
    });
    let ends = join_all(calls).await;
    assert_eq!(ends.iter().filter(|status| **status == 200).count(), 3, "{ends:?}");
    assert_eq!(ends.iter().filter(|status| **status == 429).count(), 37, "{ends:?}");
    // Others are not limited by it, and a day later nor is this one.
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let colleague = client.with_key(&gateway.new_key(KeySpec::default()).await);
    keyed(&colleague, "/llm/chat", request(SMALL), "3").await.ok();
    gateway.clock.advance(24 * 3_600_000);
    keyed(client, "/llm/chat", request(SMALL), "3").await.ok();
    gateway.spent().await;
    gateway.check_books().await;
}

#[test]
fn the_settings_are_checked() {
    let check = |idempotency: Value| {
        let conf = json!({ "idempotency": idempotency }).to_string();
        tollgate::config::Config::parse("tollgate.yaml".as_ref(), &conf, &|_| None)
    };
    let config = check(json!({ "answer_bytes_max": 4_000_000 })).unwrap().idempotency;
    assert_eq!(
        (config.answer_bytes_max, config.bytes_per_key_max),
        (4_000_000, 16 << 20)
    );
    for (wrong, words) in [
        (json!({ "answer_bytes_max": 1 }), "idempotency.answer_bytes_max"),
        (json!({ "bytes_per_key_max": 5_000 }), "idempotency.bytes_per_key_max"),
        (json!({ "bytes_max": 5_000 }), "idempotency.bytes_max"),
        (json!({ "keys_per_key_max": 0 }), "idempotency.keys_per_key_max"),
    ] {
        let error = check(wrong).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
