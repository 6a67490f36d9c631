//! The workload: workers with an account each, one call at a time, streams and whole answers, until they are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use rust_decimal::Decimal;
use serde_json::json;
use tokio::task::JoinSet;
use tollgate::pure::ids::ApiKey;

use super::process::{Site, new_account, view};
use super::record::{Call, Outcome, Record};
use super::upstream::{MODEL, Provider, answer_id, message, prompt_tokens};
use crate::harness::gateway::decimal;

/// How far apart the numbers of the calls of loads that follow each other are.
pub const CALLS_MAX: u64 = 10_000_000;

/// Workers and what they have seen.
pub struct Load {
    keys: Vec<Arc<ApiKey>>,
    pub record: Record,
    next_call: Arc<AtomicU64>,
    client: reqwest::Client,
    /// Every other worker keeps its connection from call to call.
    pub keeps_connections: bool,
}

/// A load that runs.
pub struct Running {
    workers: JoinSet<(usize, Vec<Call>)>,
    stop: Arc<AtomicBool>,
}

pub const CREDIT: &str = "100";
/// Far above what it takes, so that a slow machine fails no test.
const BILLED_WITHIN: Duration = Duration::from_secs(20);

impl Load {
    /// Makes the accounts.
    pub fn new(site: &Site, workers: usize) -> Load {
        Load::of(site, "worker", workers)
    }

    /// The same with accounts whose names begin with this.
    pub fn of(site: &Site, name: &str, workers: usize) -> Load {
        let (ledger, record) = (site.ledger(), Record::new(name, workers));
        let keys = (0..workers).map(|worker| Arc::new(new_account(&ledger, &record.account(worker), CREDIT)));
        Load {
            keys: keys.collect(),
            record,
            next_call: Arc::new(AtomicU64::new(1)),
            client: reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap(),
            keeps_connections: false,
        }
    }

    /// A worker's key.
    pub fn key(&self, worker: usize) -> &Arc<ApiKey> {
        &self.keys[worker]
    }

    /// Sets every worker going.
    pub fn start(&self, site: &Site) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for (worker, key) in self.keys.iter().enumerate() {
            let (key, stop, next) = (Arc::clone(key), Arc::clone(&stop), Arc::clone(&self.next_call));
            let keeps = self.keeps_connections && worker.is_multiple_of(2);
            let client = if keeps {
                reqwest::Client::new()
            } else {
                self.client.clone()
            };
            let url = site.base_url();
            workers.spawn(async move {
                let mut calls = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let call = one_call(&client, &url, &key, number).await;
                    if call.outcome == Outcome::Unanswered {
                        // Sleeps: the pace of a client whose gateway is away. It waits for nothing, for it may be told to stop.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    calls.push(call);
                }
                (worker, calls)
            });
        }
        Running { workers, stop }
    }

    /// Waits until every worker has ended its call, and keeps what they saw.
    pub async fn finish(&mut self, mut running: Running) {
        running.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = running.workers.join_next().await {
            let (worker, calls) = ended.unwrap();
            self.record.keep(worker, calls);
        }
    }

    /// What each account has, by name.
    pub fn balances(&self, site: &Site) -> Vec<(String, Decimal)> {
        let ledger = site.ledger();
        let names = (0..self.keys.len()).map(|worker| self.record.account(worker));
        names
            .map(|name| {
                let balance = decimal(view(&ledger, &name).figures.balance);
                (name, balance)
            })
            .collect()
    }

    /// The numbers of its calls begin there.
    pub fn begin_at(&mut self, number: u64) {
        self.next_call.store(number, Ordering::Relaxed);
    }

    /// One more call of the first worker, which is at rest.
    pub async fn one_more(&mut self, site: &Site) -> Outcome {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        let call = one_call(&self.client, &site.base_url(), &self.keys[0], number).await;
        let outcome = call.outcome;
        self.record.keep(0, vec![call]);
        outcome
    }

    /// Waits until the books say what every client got, and sees that they still do once one more call of each worker is billed: what is
    /// written of an account is written in its order, so whatever was still on its way is in them by then.
    pub async fn reconciled(&mut self, site: &Site, provider: &Provider) {
        self.agrees(site, provider).await;
        let (client, url) = (reqwest::Client::new(), site.base_url());
        // Some tests make calls of their own, whose numbers are small.
        self.next_call.fetch_max(1_000_000, Ordering::Relaxed);
        let more = self.keys.iter().map(async |key| {
            let (started, mut calls) = (Instant::now(), Vec::new());
            loop {
                let number = self.next_call.fetch_add(1, Ordering::Relaxed);
                let call = one_call(&client, &url, key, number).await;
                let outcome = call.outcome;
                calls.push(call);
                // A gateway whose store was away looks once a second whether it is back.
                if outcome != Outcome::Refused(503) || started.elapsed() > BILLED_WITHIN {
                    return calls;
                }
            }
        });
        for (worker, calls) in futures::future::join_all(more).await.into_iter().enumerate() {
            let last = calls.last().map(|call| call.outcome);
            assert!(
                matches!(last, Some(Outcome::Whole { .. })),
                "{last:?} of {}: {}",
                calls.len(),
                site.log()
            );
            self.record.keep(worker, calls);
        }
        self.agrees(site, provider).await;
    }

    async fn agrees(&self, site: &Site, provider: &Provider) {
        let (ledger, started) = (site.ledger(), Instant::now());
        while let Err(difference) = self.record.check(&ledger, provider) {
            assert!(started.elapsed() < BILLED_WITHIN, "{difference}");
            // Sleeps: between two looks, each of which reads all books.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Running {
    /// The workers begin no more calls.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One call; every other one is a stream.
pub async fn one_call(client: &reqwest::Client, url: &str, key: &ApiKey, number: u64) -> Call {
    let streams = number.is_multiple_of(2);
    let body = json!({
        "model": MODEL, "stream": streams, "max_tokens": 500,
        "messages": [{ "role": "user", "content": message(number) }],
    });
    let body = body.to_string();
    let prompt = prompt_tokens(body.as_bytes());
    let mut call = Call {
        number,
        prompt,
        outcome: Outcome::Unanswered,
    };
    let asked = client
        .post(format!("{url}/llm/chat"))
        .bearer_auth(key.reveal())
        .header("content-type", "application/json")
        .body(body)
        .send();
    let Ok(answer) = asked.await else { return call };
    if answer.status() != 200 {
        call.outcome = Outcome::Refused(answer.status().as_u16());
        return call;
    }
    let mut pieces = answer.bytes_stream();
    let mut text = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => text.extend_from_slice(&piece),
            Err(_) => {
                check_own(&text, number);
                call.outcome = Outcome::Cut {
                    received: received(&text),
                };
                return call;
            }
        }
    }
    check_own(&text, number);
    let whole = if streams {
        text.ends_with(b"data: [DONE]\n\n")
    } else {
        text.ends_with(b"}")
    };
    let failed = text.windows(7).any(|window| window == b"\"error\"");
    let received = received(&text);
    call.outcome = match (whole, failed) {
        (true, false) => Outcome::Whole { received },
        (true, true) => Outcome::Failed { received },
        (false, _) => Outcome::Cut { received },
    };
    call
}

/// All of an answer, as far as it came, is the answer to this call.
fn check_own(text: &[u8], number: u64) {
    let (text, own) = (String::from_utf8_lossy(text), answer_id(number));
    for rest in text.split("\"id\":\"").skip(1) {
        // An answer that was cut may end within its id.
        let Some((id, _)) = rest.split_once('"') else { continue };
        assert_eq!(id, own, "call {number} was given another call's answer: {text}");
    }
}

/// Tokens of the answer's text as far as it came.
fn received(text: &[u8]) -> u64 {
    let events = text.windows(6).filter(|window| window == b" apple").count();
    let begins = text.windows(6).filter(|window| window == b"\"apple").count();
    u64::try_from(events + begins).unwrap()
}
