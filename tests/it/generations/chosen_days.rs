//! Usage of chosen days, by model, key or day.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Fields, amount, text};
use crate::chat::request;
use crate::harness::catalogue::{LARGE, SMALL, cost};
use crate::harness::{Gateway, KeySpec, Reply, Upstream};

#[tokio::test]
async fn usage_is_of_chosen_days_by_model_key_or_day() {
    let upstream = Upstream::always(Reply::chat("Hi", 100, 10)).await;
    let gateway = Gateway::over(&upstream).await;
    let second = gateway.http1.with_key(&gateway.new_key(KeySpec::default()).await);
    // On 20, 21 and 22 November.
    for day in 0..3 {
        for _ in 0..=day {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
        second.post("/llm/chat", request(LARGE)).await.ok();
        gateway.settled_balance().await;
        gateway.clock.advance(86_400_000);
    }
    let groups = async |parameters: &str| {
        let answer = gateway.http1.get(&format!("/llm/usage?{parameters}")).await.ok();
        let body: Fields = serde_json::from_str(answer.text()).unwrap();
        let groups: Vec<Fields> = serde_json::from_str(body["groups"].get()).unwrap();
        let sum: Decimal = groups.iter().map(|group| amount(group, "cost")).sum();
        assert_eq!(sum, amount(&body, "total_cost"), "{parameters}");
        (answer.json(), groups)
    };
    let small = |calls: u64| cost(SMALL, 100 * calls, 10 * calls).normalize();
    let large = |calls: u64| cost(LARGE, 100 * calls, 10 * calls).normalize();
    let (body, by_model) = groups("from=2026-11-21&to=2026-11-22").await;
    assert_eq!(body["total_requests"], 7);
    assert_eq!(
        (&body["period"], &body["from"], &body["to"]),
        (&Value::Null, &json!("2026-11-21"), &json!("2026-11-22"))
    );
    let rows: Vec<_> = by_model
        .iter()
        .map(|group| (text(group, "model"), amount(group, "cost")))
        .collect();
    assert_eq!(rows, [(LARGE.to_owned(), large(2)), (SMALL.to_owned(), small(5))]);
    assert_eq!(
        body["groups"][1],
        json!({
            "model": SMALL, "requests": 5, "tokens": 550, "prompt_tokens": 500, "completion_tokens": 50, "cost": body["groups"][1]["cost"],
        })
    );
    let (_, by_day) = groups("from=2026-11-20&to=2026-11-22&group_by=day").await;
    let rows: Vec<_> = by_day
        .iter()
        .map(|group| (text(group, "day"), amount(group, "cost")))
        .collect();
    let days = ["2026-11-20", "2026-11-21", "2026-11-22"].map(str::to_owned);
    let expected = days
        .into_iter()
        .zip([small(1), small(2), small(3)].map(|small| (small + large(1)).normalize()));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    let (_, by_key) = groups("period=all&group_by=key").await;
    let mut costs: Vec<_> = by_key.iter().map(|group| amount(group, "cost")).collect();
    costs.sort();
    let mut expected = [small(6), large(3)];
    expected.sort();
    assert_eq!(costs, expected);
    assert!(by_key.iter().all(|group| text(group, "key").starts_with("key_")));
    // `to` is today where it is not said, and the first day is the first there is.
    assert_eq!(groups("from=2026-11-22").await.0["to"], "2026-11-23");
    assert_eq!(groups("to=2026-11-20").await.0["total_requests"], 2);
    for bad in [
        "from=2026-11-31",
        "to=x",
        "from=2026-11-22&to=2026-11-21",
        "from=2026-11-21&period=7d",
        "group_by=",
        "group_by=user",
    ] {
        let answer = gateway.http1.get(&format!("/llm/usage?{bad}")).await;
        answer.error(400, "invalid_request_error");
    }
    gateway.check_books().await;
}
