//! A mixed load with faults, and what its clients saw of each of their requests.

use std::collections::HashMap;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::figure;
use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, FREE, LARGE, SMALL, TWIN};
use crate::harness::metrics::Metrics;
use crate::harness::told::told_cost;
use crate::harness::{Answer, Gateway, Reply};

/// Answers of every kind, in turn: with and without usage, whole and streamed, refused, failed, cut.
pub(super) fn faulty(number: usize, stream: bool) -> Reply {
    match (number % 7, stream) {
        (0 | 1, false) => Reply::chat("Hello there", 9, 3),
        (0 | 1, true) => Reply::stream_of(&["Hello", " there"], 9, 2),
        (2, false) => Reply::chat_without_usage("No report of this"),
        (2, true) => Reply::stream().role().text("No").text(" report").finish().done(),
        (3, _) => Reply::status(500),
        (4, _) => Reply::refusal(422, &[], "no such parameter"),
        (5, true) => Reply::stream().role().text("It").text(" breaks").reset(),
        (5, false) => Reply::default().reset(),
        _ => Reply::status(429),
    }
}

/// What a client saw of a request.
pub(super) struct Told {
    id: String,
    route: &'static str,
    status: u16,
    /// What the answer says that it cost, where its client read it to its end.
    cost: Option<Decimal>,
    is_whole: bool,
}

impl Told {
    fn head(route: &'static str, status: u16, headers: &reqwest::header::HeaderMap) -> Told {
        let id = headers["x-request-id"].to_str().unwrap().to_owned();
        let (cost, is_whole) = (None, false);
        Told {
            id,
            route,
            status,
            cost,
            is_whole,
        }
    }

    fn whole(self, text: &str) -> Told {
        Told {
            cost: told_cost(text),
            is_whole: true,
            ..self
        }
    }

    fn answer(route: &'static str, answer: &Answer) -> Told {
        Told::head(route, answer.status, &answer.headers).whole(answer.text())
    }
}

/// Some requests of each kind; what each client saw of its own.
pub(super) async fn mixed_load(gateway: &Gateway, other_key: &str) -> Vec<Told> {
    let garbage = format!("{}x", gateway.key);
    let models = [SMALL, LARGE, TWIN, FREE];
    let one = async |worker: usize| {
        let mut told = Vec::new();
        for round in 0..14 {
            let model = models[(worker + round) % models.len()];
            let client = if worker.is_multiple_of(2) {
                &gateway.http1
            } else {
                &gateway.h2c
            };
            let client = match round {
                3 => client.with_key(&garbage),
                n if n % 2 == 1 => client.with_key(other_key),
                _ => client.clone(),
            };
            told.push(match round % 5 {
                0 => Told::answer("chat", &client.post("/llm/chat", request(model)).await),
                1 => Told::answer("balance", &client.get("/llm/balance").await),
                2 => {
                    let body = json!({ "model": EMBED, "input": ["a", "b"] }).to_string();
                    Told::answer("embeddings", &client.post("/llm/embeddings", body).await)
                }
                3 => {
                    // A client that leaves after the first event, if there is one.
                    let mut events = client.stream("/llm/chat", streaming(model)).await;
                    if events.status == 200 {
                        events.next().await;
                    }
                    Told::head("chat", events.status, &events.headers)
                }
                _ => {
                    let sent = client.post_request("/llm/chat/stream", request(model)).send();
                    let answer = sent.await.unwrap();
                    let head = Told::head("chat_stream", answer.status().as_u16(), answer.headers());
                    // Some of the streams break, which is not this client's to complain about.
                    match answer.text().await {
                        Ok(text) => head.whole(&text),
                        Err(_) => head,
                    }
                }
            });
        }
        told
    };
    let told = futures::future::join_all((0..6).map(one)).await;
    told.into_iter().flatten().collect()
}

/// What the clients saw is what the access log and the metrics say: each request once, by its id, with its route, its status and its cost.
pub(super) fn check_told(told: &[Told], lines: &[String], metrics: &Metrics) {
    let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let by_id: HashMap<String, (Value, &String)> = parsed
        .zip(lines)
        .map(|(value, line)| (value["request_id"].as_str().unwrap().to_owned(), (value, line)))
        .collect();
    assert_eq!(by_id.len(), lines.len(), "no id stands twice");
    let mut tally: HashMap<(&str, u16), u64> = HashMap::new();
    let mut costs = 0;
    for one in told {
        let (value, line) = &by_id[&one.id];
        assert_eq!(
            (&value["route"], &value["status"]),
            (&json!(one.route), &json!(one.status)),
            "{line}"
        );
        if let Some(cost) = one.cost {
            assert_eq!(figure(line, "cost"), Some(cost), "{line}");
            costs += 1;
        }
        if one.is_whole && one.status == 200 && value["outcome"] == "client_gone" {
            panic!("a client that read its answer to the end is said to have left: {line}");
        }
        *tally.entry((one.route, one.status)).or_default() += 1;
    }
    assert!(costs > 20, "too few answers said their cost: {costs}");
    for ((route, status), count) in tally {
        let labels = [("route", route), ("status", &*status.to_string())];
        assert_eq!(
            metrics.sum("tollgate_requests_total", &labels),
            count.into(),
            "{labels:?}"
        );
    }
}
