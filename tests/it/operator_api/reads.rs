//! What operators read at full speed, over a large embedded ledger, holds up neither what others do nor what calls owe, nor refunds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate::ledger::admin::{AdminOp, ReceiptQuery};
use tollgate::pure::operator::Role;

use super::stripe::{listens, with_hook};
use super::stripe_refunds::{event, refund};
use super::{GROUNDS, of};
use crate::chat::{request, streaming};
use crate::harness::catalogue::SMALL;
use crate::harness::gateway::account;
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::redis_server::free_port;
use crate::harness::{Cue, Reply, Upstream, eventually};

const ACCOUNTS: u32 = 1_500;
/// Rows of usage of each.
const ROWS: u32 = 400;

/// Fills the file that a gateway is to open: accounts whose books balance, each with as many debits as a year has of one model, and one with
/// as many entries of credit as a statement may have.
fn fill(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    let day: i64 = file
        .query_row(
            "SELECT CAST(julianday('now') - julianday('1970-01-01') AS INTEGER)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let sql = format!(
        "BEGIN;
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ACCOUNTS})
         INSERT INTO accounts (id, tier, quota, balance, month, month_used, created, forgotten, terms)
             SELECT 'many-' || n, 'pro', NULL, 1000000, 0, 0, 0, NULL, terms FROM n, accounts WHERE id = 'acme';
         INSERT INTO topups (account, reference, amount, at)
             SELECT id, 'first', 1000000 + {ROWS}, 1 FROM accounts WHERE id LIKE 'many-%';
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= {ROWS})
         INSERT INTO usage (account, day, model, requests, prompt, completion, cost)
             SELECT id, {day} - 800 + n, 'a/b', 1, 1, 1, 1 FROM accounts, n WHERE id LIKE 'many-%' AND n <= {ROWS};
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 19000)
         INSERT INTO topups (account, reference, amount, at, kind, note, balance)
             SELECT 'acme', 'many-' || n, 1, ({day} - 100) * 86400000 + n, 'bonus', 'one of many', NULL FROM n;
         UPDATE accounts SET balance = balance + 19000 WHERE id = 'acme';
         COMMIT;"
    );
    file.execute_batch(&sql).unwrap();
}

struct Desk {
    http: reqwest::Client,
    base: String,
    admin: String,
    read: String,
}

impl Desk {
    async fn asked(&self, token: &str, method: Method, path: &str, body: Value) -> (u16, Duration, String) {
        let began = Instant::now();
        let request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(token);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        (status, began.elapsed(), text)
    }

    async fn reads(&self, path: &str) -> Duration {
        let (status, took, text) = self.asked(&self.read, Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {text:.300}");
        took
    }

    /// One after the other, until told to stop. The quickest.
    async fn reads_on(&self, path: &str, stop: &AtomicBool) -> Duration {
        let mut quickest = Duration::MAX;
        while !stop.load(Ordering::SeqCst) {
            quickest = quickest.min(self.reads(path).await);
        }
        quickest
    }

    async fn acts(&self, number: u32) -> Duration {
        let post = json!({ "amount": "0.01", "reference": format!("act {number}") });
        let (status, took, text) = self
            .asked(&self.admin, Method::POST, "/v1/accounts/acme/credits", post)
            .await;
        assert_eq!(status, 201, "{text}");
        took
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_holds_up_neither_acts_nor_debits() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let port = free_port();
    let mut process = Process::prepare(&upstream, |conf| {
        conf["operator_listen"] = json!(format!("127.0.0.1:{port}"));
        conf["audit_seconds"] = json!(0);
    });
    let token = |name: &str, role: &str| {
        let made = process.command(&["operator", "create", name, "--role", role, "--json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["token"].as_str().unwrap().to_owned()
    };
    let (admin, read) = (token("anna", "admin"), token("ben", "read"));
    fill(&process.path("data").join("ledger.db"));
    let conf = process.path("tollgate.yaml").to_str().unwrap().to_owned();
    let words = [env!("CARGO_BIN_EXE_tollgate"), "serve", "--conf", &conf].map(str::to_owned);
    process.start_with(&words).await;
    listens(port).await;
    let desk = Desk {
        http: reqwest::Client::new(),
        base: format!("http://127.0.0.1:{port}"),
        admin,
        read,
    };
    let alone = desk.reads("/v1/audit").await;
    let stop = AtomicBool::new(false);
    let heavy = [
        "/v1/audit",
        "/v1/accounts/acme/statement",
        "/v1/accounts/acme/credits?limit=1000",
        "/v1/accounts?limit=200&search=9",
        "/v1/usage?account=many-7&period=all",
    ];
    // More audits than there are places for reads.
    let readers = (0..40).map(|n| desk.reads_on(if n < 20 { heavy[0] } else { heavy[n % heavy.len()] }, &stop));
    let others = async {
        let (mut acts, mut lag, mut calls) = (Vec::new(), 0.0_f64, 0_u32);
        let began = Instant::now();
        while acts.len() < 30 || began.elapsed() < alone.saturating_mul(3) {
            let number = u32::try_from(acts.len()).unwrap();
            acts.push(desk.acts(number).await);
            let answer = process.client.post("/llm/chat", request(SMALL)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            calls += 1;
            let page = process.admin.get("//metrics").await;
            let waits = Metrics::read(page.text()).sum("tollgate_settlement_lag_seconds", &[]);
            lag = lag.max(waits.to_string().parse().unwrap());
        }
        stop.store(true, Ordering::SeqCst);
        (acts, lag, calls)
    };
    let (quickest, (acts, lag, calls)) = futures::join!(join_all(readers), others);
    let (audit, longest) = (quickest[0].max(alone), *acts.iter().max().unwrap());
    println!(
        "audit {audit:?}, {} acts, the longest {longest:?}, {calls} calls, lag {lag} s",
        acts.len()
    );
    assert!(
        alone > Duration::from_millis(400),
        "the ledger is not large enough to tell: {alone:?}"
    );
    assert!(
        longest < audit / 2,
        "an act waited {longest:?} for reads; an audit takes {audit:?}"
    );
    assert!(
        lag < audit.as_secs_f64() / 2.0,
        "debits waited {lag} s for reads; an audit takes {audit:?}"
    );
    let (_, _, audit) = desk.asked(&desk.read, Method::GET, "/v1/audit", Value::Null).await;
    assert_eq!(
        serde_json::from_str::<Value>(&audit).unwrap()["balanced"],
        true,
        "{audit}"
    );
}

/// Six times as many as there are places for reads. Each waits for a quarter of a second: a call runs that may be the one that is asked for.
const SLOW_READS: usize = 48;

#[tokio::test]
async fn what_is_read_holds_up_no_refund() {
    for ground in GROUNDS {
        let cue = Cue::new();
        let stream = Reply::stream().role().text("Hi").wait(&cue);
        let upstream = Upstream::always(stream.finish().usage(9, 1).done()).await;
        let desk = super::Desk::before(&upstream, ground, with_hook).await;
        desk.shop().await;
        desk.paid("pi_1", 1050).await;
        let mut call = desk.gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
        call.next().await.unwrap();

        let unknown = AdminOp::Receipts(ReceiptQuery::named(&account(), "unknown"));
        let (body, ended) = (serde_json::to_string(&unknown).unwrap(), AtomicUsize::new(0));
        let reads = (0..SLOW_READS).map(async |_| {
            let read = desk.ask(&of(Role::Read), "POST", "/v1/commands", &body).await;
            assert!(read.done(200)["Ok"].is_object(), "{read:?}");
            ended.fetch_add(1, Ordering::SeqCst);
        });
        let refund = async {
            let so_far = || ended.load(Ordering::SeqCst);
            eventually("the first reads end", async || (so_far() > 0).then_some(())).await;
            let created = event("refund.created", refund("re_1", "pi_1", 400, "succeeded"));
            let (taken, _) = desk.takes(&created).await;
            assert_eq!(taken, "4");
            so_far()
        };
        let (_, before) = futures::join!(join_all(reads), refund);
        // All others waited before it came: had it waited behind them, all but the last eight would have ended.
        assert!(before < SLOW_READS - 8, "{ground:?}: {before} reads ended before it");
        cue.give();
        call.rest().await;
    }
}
