//! What the gateway tells those who pay after its faults: a receipt for each call that was billed, and no more than one.

use std::collections::HashSet;

use rust_decimal::Decimal;

use super::load::{CREDIT, Load};
use super::process::{Site, view};
use crate::generations::{amount, one, page, text};
use crate::harness::gateway::decimal;

/// Holds what the endpoints say of each worker's calls against its account.
pub async fn receipts_are_told_once(site: &Site, load: &Load, workers: usize) {
    let client = reqwest::Client::new();
    let get = async |worker: usize, path: String| {
        let url = format!("{}{path}", site.base_url());
        let answer = client
            .get(url)
            .bearer_auth(load.key(worker).reveal())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    };
    for worker in 0..workers {
        let (mut ids, mut before, mut cost) = (HashSet::new(), String::new(), Decimal::ZERO);
        loop {
            let (calls, next) = page(&get(worker, format!("/llm/generations?limit=50{before}")).await);
            for call in &calls {
                assert!(ids.insert(text(call, "id")), "a call has two receipts: {call:?}");
                cost += amount(call, "total_cost");
            }
            for call in calls.iter().take(5) {
                let id = text(call, "id");
                let fields = one(&get(worker, format!("/llm/generation?id={id}")).await);
                assert_eq!(text(&fields, "status"), "done");
                assert_eq!(amount(&fields, "total_cost"), amount(call, "total_cost"));
            }
            let Some(next) = next else { break };
            before = format!("&before={next}");
        }
        let account = load.record.account(worker);
        let left = decimal(view(&site.ledger(), &account).figures.balance);
        assert_eq!(cost, CREDIT.parse::<Decimal>().unwrap() - left, "{account}");
    }
}
