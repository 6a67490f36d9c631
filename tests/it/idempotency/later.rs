//! Answers that are given again though the call itself could not be made any more.

use reqwest::RequestBuilder;
use serde_json::json;

use super::{CONFLICT, OnStore, again, is_replay, keyed};
use crate::chat::request;
use crate::harness::catalogue::{SMALL, catalogue};
use crate::harness::client::{Client, ask};
use crate::harness::redis_server::RedisServer;
use crate::harness::{KeySpec, Reply, Setup, Upstream};
use tollgate::ledger::key_settings::KeySettings;
use tollgate::pure::limits::LimitOverrides;

on_both_stores! {
    a_model_that_left_the_catalogue: left_embedded, left_redis;
    a_model_by_its_alias_that_left_the_catalogue: alias_left_embedded, alias_left_redis;
    a_long_body_without_credit: poor_embedded, poor_redis;
}

fn from_page(client: &Client, key: &str) -> RequestBuilder {
    let request = client.post_request("/llm/chat", request(SMALL));
    request
        .header("idempotency-key", key)
        .header("origin", "https://a.example")
}

async fn a_model_that_left_the_catalogue(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = store(Setup::over(&upstream)).start().await;
    let locked = KeySpec {
        domains: &["a.example"],
        ..KeySpec::default()
    };
    let locked = gateway.http1.with_key(&gateway.new_key(locked).await);
    let first = keyed(&gateway.http1, "/llm/chat", request(SMALL), "a").await.ok();
    is_replay(&again(&gateway.http1, "/llm/chat", &request(SMALL), "a").await, &first);
    let of_page = ask(from_page(&locked, "page")).await.ok();
    let spent = gateway.spent().await;
    gateway.write_catalogue(&catalogue().to_string().replace(SMALL, "acme/another"));
    assert!(matches!(
        gateway.check_files(),
        tollgate::server::reload::Reloaded::Changed
    ));

    is_replay(&again(&gateway.http1, "/llm/chat", &request(SMALL), "a").await, &first);
    is_replay(&ask(from_page(&locked, "page")).await, &of_page);
    let other_body = format!("{} ", request(SMALL));
    keyed(&gateway.http1, "/llm/chat", other_body, "a")
        .await
        .error(409, CONFLICT);
    // From nowhere, the locked key gets nothing.
    keyed(&locked, "/llm/chat", request(SMALL), "page")
        .await
        .error(404, "not_found_error");
    // A key that is not known is not taken either, not for a moment: its call may be tried again at once, and be made once its model is there.
    for _ in 0..5 {
        keyed(&gateway.http1, "/llm/chat", request(SMALL), "b")
            .await
            .error(404, "not_found_error");
    }
    gateway.write_catalogue(&catalogue().to_string());
    gateway.check_files();
    assert_eq!(gateway.spent().await, spent);
    keyed(&gateway.http1, "/llm/chat", request(SMALL), "b").await.ok();
    assert_eq!(upstream.seen().len(), 3);
    gateway.check_books().await;
}

/// A key's list is of ids, and nobody can tell any more of which model the name was.
async fn a_model_by_its_alias_that_left_the_catalogue(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).model(SMALL, |model| model["aliases"] = json!(["gpt-4o-mini"]));
    let mut gateway = store(setup).start().await;
    let spec = KeySpec {
        settings: KeySettings {
            models: vec!["acme/*".parse().unwrap()],
            ..KeySettings::default()
        },
        ..KeySpec::default()
    };
    let client = gateway.http1.with_key(&gateway.new_key(spec).await);
    let call = request("gpt-4o-mini");
    let first = keyed(&client, "/llm/chat", call.clone(), "a").await.ok();
    is_replay(&again(&client, "/llm/chat", &call, "a").await, &first);
    gateway.write_catalogue(&catalogue().to_string().replace(SMALL, "acme/another"));
    gateway.check_files();
    is_replay(&again(&client, "/llm/chat", &call, "a").await, &first);
    keyed(&client, "/llm/chat", call, "b")
        .await
        .error(404, "not_found_error");
    assert_eq!(upstream.seen().len(), 1);
    gateway.check_books().await;
}

async fn a_long_body_without_credit(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let text = "word ".repeat(40_000);
    let long = json!({ "model": SMALL, "messages": [{ "role": "user", "content": text }] }).to_string();
    let first = keyed(&gateway.http1, "/llm/chat", long.clone(), "a").await.ok();
    gateway.spent().await;
    gateway.set_quota("0.000000000001").await;
    is_replay(&again(&gateway.http1, "/llm/chat", &long, "a").await, &first);
    for key in ["a", "b"] {
        let path = "/llm/chat/stream";
        let answer = keyed(&gateway.http1, path, long.clone(), key).await;
        match key {
            "a" => answer.error(409, CONFLICT),
            _ => answer.error(402, "quota_exceeded"),
        };
    }
    gateway
        .http1
        .post("/llm/chat", long.clone())
        .await
        .error(402, "quota_exceeded");
    assert_eq!(upstream.seen().len(), 1);

    // It counts once for the limit of requests: a key with two gets both.
    gateway.set_quota("1000").await;
    let twice = KeySpec {
        limits: LimitOverrides {
            rpm: Some(2),
            ..LimitOverrides::default()
        },
        ..KeySpec::default()
    };
    let client = gateway.http1.with_key(&gateway.new_key(twice).await);
    let first = keyed(&client, "/llm/chat", long.clone(), "c").await.ok();
    gateway.spent().await;
    gateway.set_quota("0.000000000001").await;
    is_replay(&keyed(&client, "/llm/chat", long.clone(), "c").await, &first);
    // And a model that is not there is refused by it, too.
    for body in [long, request("acme/none")] {
        let answer = keyed(&client, "/llm/chat", body, "d").await;
        answer.error(429, "rate_limit_error");
    }
    gateway.check_books().await;
}
