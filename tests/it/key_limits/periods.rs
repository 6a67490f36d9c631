//! What a key is told that it has used: today, since Monday, since the first of the month, and in all.

use rust_decimal::Decimal;

use super::number;
use crate::bounds::on_both;
use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Reply, Setup, Upstream};

/// Calls: how many days after the one before, and their completion tokens. The first is on the Friday on which a test's clock begins, 40
/// days before the last; those between are on the last day of that month, on the first of the next, on a Sunday and on the Monday after it.
const CALLS: [(i64, u64); 6] = [(0, 1), (10, 10), (1, 100), (26, 1_000), (1, 2_000), (2, 3_000)];
/// Each period, by the first of the calls in it.
const PERIODS: [(&str, usize); 4] = [
    ("usage", 0),
    ("usage_monthly", 2),
    ("usage_weekly", 4),
    ("usage_daily", 5),
];

#[tokio::test]
async fn a_key_is_told_what_it_used_today_in_this_week_in_this_month_and_in_all() {
    let upstream = Upstream::by(|number, _| Reply::chat("Hi", 9, CALLS[number % CALLS.len()].1)).await;
    for (gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        for (days, _) in CALLS {
            gateway.clock.advance(days * 86_400_000);
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
            gateway.settled_balance().await;
        }
        let answer = gateway.http1.get("/key").await.ok();
        for (name, first) in PERIODS {
            let told: Decimal = number(answer.text(), name).parse().unwrap();
            let calls = &CALLS[first..];
            let completion: u64 = calls.iter().map(|(_, tokens)| tokens).sum();
            let spent = cost(SMALL, 9 * calls.len() as u64, completion);
            assert_eq!(told, spent, "{name}: {}", answer.text());
        }
        gateway.check_books().await;
    }
}
