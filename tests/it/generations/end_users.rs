//! Usage by end user, and the end user of a call.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Fields, amount, id_of, one};
use crate::chat::request;
use crate::harness::catalogue::{LARGE, SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Gateway, KeySpec, Reply, Setup, Upstream};

/// A request with more fields.
fn with(model: &str, more: &Value) -> String {
    let mut body: Value = serde_json::from_str(&request(model)).unwrap();
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body.to_string()
}

/// The groups, of which the sum is the total, and the whole answer.
async fn groups(client: &Client, parameters: &str) -> (Vec<(Value, u64, Decimal)>, Value) {
    let path = format!("/llm/usage?group_by=end_user{parameters}");
    let answer = client.get(&path).await.ok();
    let body: Fields = serde_json::from_str(answer.text()).unwrap();
    let groups: Vec<Fields> = serde_json::from_str(body["groups"].get()).unwrap();
    let figures = groups.iter().map(|group| {
        let name = serde_json::from_str(group["end_user"].get()).unwrap();
        let calls = group["requests"].get().parse().unwrap();
        (name, calls, amount(group, "cost"))
    });
    let figures: Vec<_> = figures.collect();
    let sum: Decimal = figures.iter().map(|(_, _, cost)| cost).sum();
    assert_eq!(sum, amount(&body, "total_cost"), "{parameters}");
    (figures, answer.json())
}

async fn usage_by_end_user(setup: Setup) {
    let gateway = setup.start().await;
    let anna = json!({"user": "anna"});
    let other = "\u{e4} \"b\"";
    // No text is no name, nor is one that is too long.
    let mut last = String::new();
    for (path, model, more) in [
        ("/llm/chat", SMALL, &anna),
        ("/llm/chat/stream", LARGE, &anna),
        ("/llm/chat", SMALL, &json!({"metadata": {"user_id": other}})),
        ("/llm/chat", SMALL, &json!({"user": 7})),
        ("/llm/chat", SMALL, &json!({"user": "x".repeat(257)})),
        ("/llm/chat", SMALL, &json!({"metadata": {}})),
    ] {
        last = id_of(&gateway.http1.post(path, with(model, more)).await.ok());
    }
    let small = |calls: u64| cost(SMALL, 9 * calls, 3 * calls).normalize();
    // Each call is rounded, half to even, and not their sum.
    let large = cost(LARGE, 9, 3).round_dp(12).normalize();
    let (figures, body) = groups(&gateway.http1, "").await;
    let expected = [
        (Value::Null, 3, small(3)),
        (json!("anna"), 2, (small(1) + large).normalize()),
        (json!(other), 1, small(1)),
    ];
    assert_eq!(figures, expected);
    assert_eq!(
        body["groups"][1],
        json!({
            "end_user": "anna", "requests": 2, "tokens": 24, "prompt_tokens": 18, "completion_tokens": 6,
            "cost": body["groups"][1]["cost"],
        })
    );
    // What they sum up to was debited.
    let spent: Decimal = figures.iter().map(|(_, _, cost)| cost).sum();
    assert_eq!(gateway.paid_in - gateway.settled_balance().await, spent);
    let told = gateway.http1.get(&format!("/llm/generation?id={last}")).await.ok();
    assert_eq!(one(told.text())["external_user"].get(), "null");
    let calls = gateway.http1.get("/llm/generations?limit=6").await.ok().json();
    let names = calls["data"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|call| &call["external_user"]).skip(3).collect();
    assert_eq!(names, [&json!(other), &json!("anna"), &json!("anna")]);
    // A key that is locked to domains is told of its own calls alone.
    let spec = KeySpec {
        domains: &["app.example.com"],
        ..KeySpec::default()
    };
    let locked = gateway.http1.with_key(&gateway.new_key(spec).await);
    let call = locked.post_request("/llm/chat", with(SMALL, &anna));
    ask(call.header("origin", "https://app.example.com")).await.ok();
    let call = locked.request(reqwest::Method::GET, "/llm/usage?group_by=end_user");
    let usage = ask(call.header("origin", "https://app.example.com")).await.ok().json();
    assert_eq!(usage["total_requests"], 1);
    assert_eq!(
        usage["groups"],
        json!([{
            "end_user": "anna", "requests": 1, "tokens": 12, "prompt_tokens": 9, "completion_tokens": 3,
            "cost": usage["total_cost"],
        }])
    );
    // The next day has none of them yet.
    gateway.settled_balance().await;
    gateway.clock.advance(86_400_000);
    assert_eq!(groups(&gateway.http1, "").await.0, []);
    assert_eq!(groups(&gateway.http1, "&period=7d").await.0.len(), 3);
    let (first_day, _) = groups(&gateway.http1, "&from=2026-11-20&to=2026-11-20").await;
    assert_eq!((&first_day[1].0, first_day[1].1), (&json!("anna"), 3));
    gateway.check_books().await;
}

async fn upstream() -> Upstream {
    Upstream::by(|_, seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hel", "lo"], 9, 3),
        false => Reply::chat("Hello", 9, 3),
    })
    .await
}

#[tokio::test]
async fn usage_is_told_by_end_user_on_sqlite() {
    let upstream = upstream().await;
    usage_by_end_user(Setup::over(&upstream)).await;
}

#[tokio::test]
async fn usage_is_told_by_end_user_on_redis() {
    let server = RedisServer::start();
    let upstream = upstream().await;
    usage_by_end_user(Setup::over(&upstream).redis(&server.url())).await;
}

/// One end user more than are listed: no sums, rather than those of some.
#[tokio::test]
async fn of_too_many_end_users_nothing_is_told() {
    let upstream = upstream().await;
    let gateway = Gateway::over(&upstream).await;
    let call = async |n: usize| {
        let user = json!({"user": format!("user-{n}")});
        gateway.http1.post("/llm/chat", with(SMALL, &user)).await.ok();
        // Within the limits of a minute.
        gateway.clock.advance(2_000);
    };
    for n in 0..1_000 {
        call(n).await;
    }
    assert_eq!(groups(&gateway.http1, "").await.0.len(), 1_000);
    call(1_000).await;
    let answer = gateway.http1.get("/llm/usage?group_by=end_user").await;
    let error = answer.error(400, "invalid_request_error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("more than 1000 end users"), "{message}");
    assert!(message.contains("fewer days"), "{message}");
    // Of other groups it may be so much.
    let by_day = gateway.http1.get("/llm/usage?group_by=day").await.ok().json();
    assert_eq!(by_day["groups"][0]["requests"], 1_001);
}
