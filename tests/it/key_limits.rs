//! What a key may do and spend: its limits, its end users', its models and addresses, and what it is told of them.

mod end_users;
mod midnight;
mod periods;
mod rotated;

use futures::future::join_all;
use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::ledger::key_settings::KeySettings;
use tollgate::pure::money::Credits;
use tollgate::pure::spend::{Reset, SpendLimit};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{EMBED, LARGE, SMALL, cost};
use crate::harness::client::ask;
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::Cue;
use crate::harness::{Gateway, KeySpec, Reply, Setup, Upstream};

/// A number of an answer, however deep, exactly as it is written there.
fn number(text: &str, name: &str) -> String {
    let (_, rest) = text
        .split_once(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

fn limit(amount: &str, reset: Reset) -> Option<SpendLimit> {
    let amount: Credits = amount.parse().unwrap();
    Some(SpendLimit { amount, reset })
}

async fn key_with(gateway: &Gateway, settings: KeySettings) -> String {
    let spec = KeySpec {
        settings,
        ..KeySpec::default()
    };
    gateway.new_key(spec).await
}

fn bounded(model: &str, max: u64, user: &str) -> String {
    let messages = json!([{ "role": "user", "content": "Hello" }]);
    json!({ "model": model, "messages": messages, "max_tokens": max, "user": user }).to_string()
}

#[tokio::test]
async fn a_key_reads_what_it_may_and_what_it_used_in_exact_numbers() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let plain = gateway.http1.get("/key").await.ok().json();
    assert_eq!(
        (&plain["data"]["limit"], &plain["data"]["usage"]),
        (&Value::Null, &json!(0))
    );
    let settings = KeySettings {
        label: Some("ci".to_owned()),
        limit: limit("0.500000000001", Reset::Weekly),
        models: vec!["acme/*".parse().unwrap()],
        ..KeySettings::default()
    };
    let key = key_with(&gateway, settings).await;
    let client = gateway.http1.with_key(&key);
    client.post("/llm/chat", request(SMALL)).await.ok();
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    gateway.settled_balance().await;
    let answer = client.get("/key").await.ok();
    let (text, spent) = (answer.text(), cost(SMALL, 9, 1));
    for name in ["usage", "usage_daily", "usage_weekly", "usage_monthly"] {
        assert_eq!(number(text, name).parse::<Decimal>().unwrap(), spent, "{name}: {text}");
    }
    assert_eq!(number(text, "limit"), "0.500000000001");
    let remaining: Decimal = number(text, "limit_remaining").parse().unwrap();
    assert_eq!(remaining, "0.500000000001".parse::<Decimal>().unwrap() - spent);
    let data = &answer.json()["data"];
    assert_eq!((&data["label"], &data["limit_reset"]), (&json!("ci"), &json!("weekly")));
    assert_eq!(
        (&data["models"], &data["expires_at"]),
        (&json!(["acme/*"]), &Value::Null)
    );
    assert!(data["rate_limit"]["requests"].as_u64().unwrap() > 0, "{data}");
}

#[tokio::test]
async fn a_spent_limit_is_402_and_says_whose_and_until_when() {
    for redis in [None, Some(RedisServer::start())] {
        let upstream = Upstream::always(Reply::chat("Hi", PROMPT, 50)).await;
        let setup = Setup::over(&upstream);
        let setup = match &redis {
            Some(redis) => setup.redis(&redis.url()),
            None => setup,
        };
        let gateway = setup.start().await;
        let settings = KeySettings {
            limit: limit("0.012", Reset::None),
            end_user_limit: limit("0.005", Reset::Monthly),
            ..KeySettings::default()
        };
        let key = key_with(&gateway, settings).await;
        let client = gateway.http1.with_key(&key);
        let mut refusals = Vec::new();
        for user in ["anna", "bob", "carla"] {
            for _ in 0..1_000 {
                let answer = client.post("/llm/chat", bounded(LARGE, 50, user)).await;
                if answer.status != 200 {
                    refusals.push(answer);
                    break;
                }
                gateway.settled_balance().await;
            }
        }
        let spent = cost(LARGE, PROMPT, 50);
        for (refusal, scope) in refusals.iter().zip(["end_user", "end_user", "key"]) {
            refusal.error(402, "insufficient_credits");
            let metadata = &refusal.json()["error"]["metadata"];
            assert_eq!(metadata["scope"], scope, "{metadata}");
            assert_eq!(metadata["reason"], "limit_spent");
            assert_eq!(metadata["resets_at"].is_null(), scope == "key", "{metadata}");
            let whole: Decimal = if scope == "key" { "0.012" } else { "0.005" }.parse().unwrap();
            assert_eq!(number(refusal.text(), "limit").parse::<Decimal>().unwrap(), whole);
            let remaining: Decimal = number(refusal.text(), "remaining").parse().unwrap();
            assert!(
                ((whole - remaining) % spent).is_zero() && remaining < whole,
                "{remaining}"
            );
        }
        // A key without limits of the same account goes on.
        gateway.http1.post("/llm/chat", bounded(LARGE, 50, "anna")).await.ok();
        gateway.settled_balance().await;
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_call_is_refused_while_running_ones_hold_what_is_left() {
    let upstream = Upstream::always(Reply::stream().role().text("Hi").silence()).await;
    let gateway = Gateway::over(&upstream).await;
    let held = cost(SMALL, bounded(SMALL, 50, "a").len() as u64 + 256 + 16, 50);
    let amount = (held * Decimal::from(3) / Decimal::from(2)).round_dp(12).to_string();
    let settings = KeySettings {
        limit: limit(&amount, Reset::Daily),
        ..KeySettings::default()
    };
    let key = key_with(&gateway, settings).await;
    let client = gateway.http1.with_key(&key);
    let mut stream = client.stream("/llm/chat/stream", bounded(SMALL, 50, "a")).await;
    stream.next().await;
    let large = client.post("/llm/chat", bounded(LARGE, 2_000, "a")).await;
    let metadata = &large.json()["error"]["metadata"];
    assert_eq!(
        (large.status, &metadata["scope"]),
        (402, &json!("key")),
        "{}",
        large.text()
    );
    assert!(metadata["held"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn a_key_that_is_locked_to_domains_is_not_told_its_accounts_credit() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream).credit("0.000001").start().await;
    let spec = KeySpec {
        domains: &["app.example.com"],
        ..KeySpec::default()
    };
    let key = gateway.new_key(spec).await;
    let call = gateway
        .http1
        .with_key(&key)
        .post_request("/llm/chat", bounded(LARGE, 500, "a"));
    let refused = ask(call.header("origin", "https://app.example.com")).await;
    refused.error(402, "insufficient_credits");
    let error = &refused.json()["error"];
    assert_eq!(error["metadata"]["scope"], "account");
    assert_eq!(error["metadata"]["available"], Value::Null);
    assert!(!refused.text().contains("0.000001"), "{}", refused.text());
    let open = gateway.http1.post("/llm/chat", bounded(LARGE, 500, "a")).await;
    assert_eq!(open.json()["error"]["metadata"]["scope"], "account");
    assert_eq!(number(open.text(), "available"), "0.000001");
}

#[tokio::test]
async fn a_key_uses_only_its_models_from_its_addresses() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let settings = |models: &[&str], addresses: &[&str]| KeySettings {
        models: models.iter().map(|model| model.parse().unwrap()).collect(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..KeySettings::default()
    };
    let key = key_with(&gateway, settings(&[SMALL], &["127.0.0.0/8"])).await;
    let client = gateway.http1.with_key(&key);
    client.post("/llm/chat", request(SMALL)).await.ok();
    client
        .post("/llm/chat", request(LARGE))
        .await
        .error(403, "permission_error");
    let long = json!({ "model": EMBED, "input": "x".repeat(200_000) }).to_string();
    client
        .post("/llm/embeddings", long)
        .await
        .error(403, "permission_error");
    let listed = client.get("/llm/models").await.ok().json();
    assert_eq!(
        (&listed["total"], &listed["models"][0]["id"]),
        (&json!(1), &json!(SMALL))
    );
    let purposes = client.get("/llm/models/purposes").await.ok().json();
    assert_eq!(
        (&purposes["chat"], &purposes["code"]),
        (&json!(SMALL), &Value::Null),
        "a purpose whose model the key may not use"
    );
    let listed = client.get("/models").await.ok().json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    client.get(&format!("/models/{SMALL}")).await.ok();
    client
        .get(&format!("/models/{LARGE}"))
        .await
        .error(404, "not_found_error");
    let elsewhere = key_with(&gateway, settings(&[], &["10.0.0.0/8", "2001:db8::/32"])).await;
    let client = gateway.http1.with_key(&elsewhere);
    client
        .post("/llm/chat", request(SMALL))
        .await
        .error(403, "permission_error");
    // Whatever else is wrong.
    for (name, value) in [("content-encoding", "gzip"), ("idempotency-key", "")] {
        let asked = client.request(Method::POST, "/llm/chat").header(name, value);
        ask(asked.body("{")).await.error(403, "permission_error");
    }
    client.get("/key").await.error(403, "permission_error");
    assert!(ask(client.request(Method::GET, "/llm/models")).await.status == 403);
}

#[tokio::test]
async fn an_end_user_that_is_none_is_400() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let settings = KeySettings {
        end_user_limit: limit("1", Reset::Daily),
        ..KeySettings::default()
    };
    let key = key_with(&gateway, settings).await;
    let client = gateway.http1.with_key(&key);
    let long = "x".repeat(257);
    client
        .post("/llm/chat", bounded(SMALL, 5, &long))
        .await
        .error(400, "invalid_request_error");
    // A key without such a limit does not look.
    gateway.http1.post("/llm/chat", bounded(SMALL, 5, &long)).await.ok();
    client.post("/llm/chat", bounded(SMALL, 5, &long[1..])).await.ok();
    client.post("/llm/chat", request(SMALL)).await.ok();
}

#[tokio::test]
async fn of_2000_racers_over_three_gateways_none_gets_beyond_the_keys_limit() {
    let redis = RedisServer::start();
    let upstream = Upstream::always(Reply::chat("Hi", PROMPT, 50)).await;
    let tiers = json!({ "pro": { "rpm": 1_000_000, "tpm": 1_000_000_000_000_u64, "concurrency": 100_000, "monthly_quota": "1000000" } });
    let fleet = Fleet::start(3, &redis.url(), tiers, &upstream).await;
    fleet.account("acme", "pro", Decimal::from(100)).await;
    let each = cost(SMALL, PROMPT, 50);
    let limit = (each * Decimal::from(100)).round_dp(12);
    let most = limit.to_string();
    let settings = [
        "--limit",
        most.as_str(),
        "--limit-reset",
        "daily",
        "--end-user-limit",
        "50",
    ];
    let words = [["key", "create", "--account", "acme"].as_slice(), &settings].concat();
    let made: Value = serde_json::from_str(&fleet.command(&words).await).unwrap();
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let clients = fleet.h2c(8, key);
    let calls = (0..2_000).map(async |n| {
        let user = format!("user-{}", n % 7);
        clients[n % clients.len()]
            .post("/llm/chat", bounded(SMALL, 50, &user))
            .await
            .status
    });
    let answers = join_all(calls).await;
    let served = answers.iter().filter(|status| **status == 200).count() as u64;
    // A Redis that is asked 2,000 times at once by a busy machine may be late for some.
    assert!(
        answers.iter().all(|status| [200, 402, 503].contains(status)),
        "{answers:?}"
    );
    assert!((1..=100).contains(&served), "{served}");
    let balance = fleet.settled_balance("acme").await;
    assert_eq!(Decimal::from(100) - balance, each * Decimal::from(served));
    let told = clients[0].get("/key").await.ok();
    let remaining: Decimal = number(told.text(), "limit_remaining").parse().unwrap();
    assert_eq!(remaining, limit - each * Decimal::from(served));
    fleet.command(&["key", "set", id, "--limit", "none"]).await;
    println!("{served} of 2000 were served within a limit for 100");
}

#[tokio::test]
async fn a_stream_that_is_open_at_midnight_counts_on_the_day_before() {
    for redis in [None, Some(RedisServer::start())] {
        let cue = Cue::new();
        let stream = Reply::stream().role().text("Hi").wait(&cue);
        let upstream = Upstream::of([
            stream.text("!").finish().usage(PROMPT, 2).done(),
            Reply::chat("Hi", PROMPT, 50),
        ])
        .await;
        let setup = Setup::over(&upstream);
        let setup = match &redis {
            Some(redis) => setup.redis(&redis.url()),
            None => setup,
        };
        let gateway = setup.start().await;
        let held = cost(SMALL, bounded(SMALL, 50, "a").len() as u64 + 256 + 16, 50);
        let whole = (held * Decimal::new(11, 1)).round_dp(12);
        let settings = KeySettings {
            limit: limit(&whole.to_string(), Reset::Daily),
            ..KeySettings::default()
        };
        let key = key_with(&gateway, settings).await;
        let client = gateway.http1.with_key(&key);
        // One millisecond before the next day.
        let now = gateway.clock.now();
        gateway.clock.advance(now.day().next().start().since(now) - 1);
        let mut events = client.stream("/llm/chat/stream", bounded(SMALL, 50, "a")).await;
        events.next().await;
        let refused = client.post("/llm/chat", bounded(SMALL, 50, "a")).await;
        refused.error(402, "insufficient_credits");
        let metadata = &refused.json()["error"]["metadata"];
        assert_eq!(
            (&metadata["scope"], &metadata["reason"]),
            (&json!("key"), &json!("in_flight"))
        );
        assert_eq!(metadata["resets_at"], now.day().next().start().to_string());
        assert_ne!(refused.header("retry-after"), "");
        gateway.clock.advance(1);
        client.post("/llm/chat", bounded(SMALL, 50, "a")).await.ok();
        cue.give_all();
        while events.next().await.is_some() {}
        gateway.settled_balance().await;
        let told = client.get("/key").await.ok();
        let remaining: Decimal = number(told.text(), "limit_remaining").parse().unwrap();
        assert_eq!(
            remaining,
            whole - cost(SMALL, PROMPT, 50),
            "the stream's cost is the day before's"
        );
        let usage: Decimal = number(told.text(), "usage").parse().unwrap();
        assert_eq!(usage, cost(SMALL, PROMPT, 50) + cost(SMALL, PROMPT, 2));
        gateway.check_books().await;
    }
}
