//! Receipts that are read from another gateway than the one that billed the call.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::json;

use super::{amount, id_of, page, text, told};
use crate::harness::catalogue::{LARGE, SMALL, cost};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::told::told_cost;
use crate::harness::{Reply, Upstream};
use crate::nodes::unlimited;

/// How many calls' receipts are read. `TOLLGATE_RECEIPTS` says another number.
fn receipts() -> usize {
    std::env::var("TOLLGATE_RECEIPTS").map_or(1_000, |text| text.parse().unwrap())
}

/// The n-th call: its model, and the tokens that its provider reports.
fn tokens(n: usize) -> (&'static str, u64, u64) {
    let n = u64::try_from(n).unwrap();
    ([SMALL, LARGE][usize::from(n.is_multiple_of(3))], 1 + n % 97, 1 + n % 89)
}

/// A request for it, whole or streamed; its words are the tokens that its provider is to report.
fn request(n: usize, stream: bool) -> String {
    let (model, prompt, completion) = tokens(n);
    let messages = json!([{ "role": "user", "content": format!("{prompt} {completion}") }]);
    let mut body = json!({ "model": model, "messages": messages, "max_tokens": 100, "stream": stream });
    if stream {
        body["stream_options"] = json!({ "include_usage": true });
    }
    body.to_string()
}

/// Reports the tokens that the request says.
async fn reporter() -> Upstream {
    Upstream::by(|_, seen| {
        let body = seen.json();
        let words = body["messages"][0]["content"].as_str().unwrap();
        let (prompt, completion) = words.split_once(' ').unwrap();
        let (prompt, completion) = (prompt.parse().unwrap(), completion.parse().unwrap());
        match body["stream"] == true {
            true => Reply::stream_of(&["Hel", "lo"], prompt, completion),
            false => Reply::chat("Hello", prompt, completion),
        }
    })
    .await
}

/// Read right after the last byte from another gateway than the one that billed the call: none is unknown, and each says what the answer
/// told, which is what was debited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_is_read_with_the_last_byte_from_another_gateway_on_redis() {
    const CLIENTS: usize = 4;
    let server = RedisServer::start();
    let upstream = reporter().await;
    let fleet = Fleet::start(2, &server.url(), unlimited(), &upstream).await;
    let credit = Decimal::from(1_000);
    let key = fleet.account("acme", "pro", credit).await;
    let began = Instant::now();
    let worker = async |worker: usize| {
        let (one_of, other) = (fleet.http1(worker % 2, &key), fleet.http1((worker + 1) % 2, &key));
        let (mut sum, mut running, mut slowest) = (Decimal::ZERO, 0, Duration::ZERO);
        for n in 0..receipts() / CLIENTS {
            let call = n * CLIENTS + worker;
            let answer = one_of.post("/llm/chat", request(call, n % 2 == 1)).await.ok();
            let asked = Instant::now();
            let (model, prompt, completion) = tokens(call);
            let owed = cost(model, prompt, completion).round_dp(12);
            assert_eq!(told_cost(answer.text()), Some(owed), "call {call}: {}", answer.text());
            loop {
                let fields = told(&other, &id_of(&answer)).await;
                if text(&fields, "status") == "done" {
                    assert_eq!(amount(&fields, "total_cost"), owed, "call {call}");
                    sum += owed;
                    break;
                }
                // A machine that was held up for longer than a reader waits. It is said how often.
                running += 1;
            }
            slowest = slowest.max(asked.elapsed());
        }
        (sum, running, slowest)
    };
    let ended = join_all((0..CLIENTS).map(worker)).await;
    let slowest = ended.iter().map(|(_, _, slowest)| *slowest).max().unwrap();
    let running: usize = ended.iter().map(|(_, running, _)| running).sum();
    println!(
        "{} receipts in {:?}, the slowest {slowest:?}; {running} answers said running",
        receipts(),
        began.elapsed()
    );
    let sum: Decimal = ended.iter().map(|(sum, ..)| *sum).sum();
    assert_eq!(sum, credit - fleet.settled_balance("acme").await);
    // And together they are all there are.
    let client = fleet.http1(0, &key);
    let (mut ids, mut before) = (HashSet::new(), String::new());
    loop {
        let (calls, next) = page(
            client
                .get(&format!("/llm/generations?limit=1000{before}"))
                .await
                .ok()
                .text(),
        );
        ids.extend(calls.iter().map(|call| text(call, "id")));
        let Some(next) = next else { break };
        before = format!("&before={next}");
    }
    assert_eq!(ids.len(), receipts() / CLIENTS * CLIENTS);
    // By the answer's own id too: the upstream gives all the same, of which the newest counts.
    let fields = told(&client, "chatcmpl-1").await;
    assert_eq!(text(&fields, "upstream_id"), "chatcmpl-1");
    // One of the first, among all of them.
    let first = ids.iter().min().unwrap();
    let asked = Instant::now();
    assert_eq!(&text(&told(&client, first).await, "id"), first);
    println!("the first of them in {:?}", asked.elapsed());
    let asked = Instant::now();
    let never = client.get("/llm/generation?id=gen-none").await;
    never.error(404, "not_found_error");
    println!("one that never was in {:?}", asked.elapsed());
}
