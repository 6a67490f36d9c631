//! Many at once against a provider that ignores every maximum, through three gateways on one Redis.

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::PROMPT;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream};

const MAX: u64 = 50;
/// What the provider gives, whatever it is asked for.
const WORDS: u64 = 200;
const CALLERS: usize = 2_000;
const PAID_FOR: u64 = 100;

fn call() -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": MAX }).to_string()
}

/// An answer beyond the maximum: reported or not, whole or streamed.
fn beyond(number: usize, is_stream: bool) -> Reply {
    let text = " word".repeat(WORDS as usize);
    let stream = || {
        (0..WORDS)
            .fold(Reply::stream().role(), |reply, _| reply.text(" word"))
            .finish()
    };
    match (is_stream, number % 3) {
        (false, 0) => Reply::chat_without_usage(&text),
        (false, 1) => Reply::chat(&text, 9, WORDS),
        (false, _) => Reply::chat(&text, 4_000_000_000, 4_000_000_000),
        (true, 0) => stream().done(),
        (true, 1) => stream().usage(PROMPT, WORDS).done(),
        (true, _) => stream().usage(PROMPT, 4_000_000_000).done(),
    }
}

#[tokio::test]
async fn of_2000_racers_on_credit_for_100_calls_none_overdraws_by_a_provider_that_ignores_every_maximum() {
    let redis = RedisServer::start();
    let upstream = Upstream::by(|number, seen| beyond(number, seen.json()["stream"].as_bool() == Some(true))).await;
    let tiers = json!({ "pro": { "rpm": 1_000_000, "tpm": 1_000_000_000_000_u64, "concurrency": 100_000, "monthly_quota": "1000000" } });
    let fleet = Fleet::start(3, &redis.url(), tiers, &upstream).await;
    let held = cost(SMALL, call().len() as u64 + 256 + 16, MAX);
    let credit = (held * Decimal::from(PAID_FOR)).round_dp(12);
    let key = fleet.account("acme", "pro", credit).await;
    // A connection carries at most 100 calls at once.
    let clients = fleet.h2c(8, &key);
    let calls = (0..CALLERS).map(async |n| {
        let client = &clients[n % clients.len()];
        let path = if n % 2 == 0 { "/llm/chat" } else { "/llm/chat/stream" };
        client.post(path, call()).await.status
    });
    let answers = join_all(calls).await;
    let served = answers.iter().filter(|status| **status == 200).count() as u64;
    assert!(served >= PAID_FOR, "{served}");
    // A Redis that is asked 2,000 times at once by a busy machine may be late for some.
    assert!(
        answers.iter().all(|status| [200, 402, 503].contains(status)),
        "{answers:?}"
    );
    let balance = fleet.settled_balance("acme").await;
    assert!(balance >= Decimal::ZERO, "{balance}");
    // What was not believed is counted; what was counted or reported is billed up to the maximum, and nothing beyond.
    let each = cost(SMALL, PROMPT, MAX);
    assert_eq!(credit - balance, each * Decimal::from(served));
    let lost = fleet
        .sum("tollgate_unbilled_tokens_total", &[("type", "completion")])
        .await;
    let most = Decimal::from(served * (WORDS - MAX));
    assert!(lost > Decimal::from(served) && lost <= most, "{lost} of {most}");
}
