//! The real binary on both stores, one process or three: exact winners, exact limits, a Redis that stops, a Redis that must not be used.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::fleet::Fleet;
use crate::harness::redis_group::RedisCluster;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Reply, Upstream, eventually};

/// A call whose worst case is 500 tokens.
fn call() -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 500 }).to_string()
}

/// Limits that are never reached, for the tier Pro.
pub fn unlimited() -> Value {
    json!({ "pro": { "rpm": 1_000_000, "tpm": 1_000_000_000_000_u64, "concurrency": 100_000, "monthly_quota": "1000000" } })
}

/// An upstream that waits for the cue, and then says half of what it might.
async fn gated(cue: &Cue) -> Upstream {
    Upstream::always(Reply::default().wait(cue).and(Reply::chat("Hi", 9, 250))).await
}

/// What such a call holds.
async fn held_by_one(fleet: &Fleet, upstream: &Upstream, cue: &Cue) -> Decimal {
    let key = fleet.account("probe", "pro", Decimal::ONE).await;
    let client = fleet.http1(0, &key);
    let probe = async {
        upstream.asked(1).await;
        let held = fleet.figure("probe", "held").await;
        cue.give();
        held
    };
    let (answer, held) = tokio::join!(client.post("/llm/chat", call()), probe);
    answer.ok();
    held
}

/// 2,000 callers at once, and credit for 100 of their calls: exactly 100 go through. Then callers come back until there really is too
/// little: not one call less is paid for than the credit covers, and the balance never falls below zero.
async fn exactly_as_many_pay_as_there_is_credit_for(gateways: usize, store: &str) {
    const CALLERS: usize = 2000;
    const PAID_FOR: usize = 100;
    let cue = Cue::new();
    let upstream = gated(&cue).await;
    let fleet = Fleet::start(gateways, store, unlimited(), &upstream).await;
    let each = held_by_one(&fleet, &upstream, &cue).await;
    let credit = each * Decimal::from(PAID_FOR);
    let key = fleet.account("acme", "pro", credit).await;

    // A connection carries at most 100 calls at once.
    let clients = fleet.h2c(24 / gateways, &key);
    let refused = AtomicUsize::new(0);
    let calls = join_all((0..CALLERS).map(async |n| {
        let answer = clients[n % clients.len()].post("/llm/chat", call()).await;
        refused.fetch_add(usize::from(answer.status == 402), Ordering::SeqCst);
        answer
    }));
    let watch = async {
        // The winners run until all others were refused.
        eventually("the others are refused", async || {
            (refused.load(Ordering::SeqCst) == CALLERS - PAID_FOR).then_some(())
        })
        .await;
        upstream.asked(1 + PAID_FOR).await;
        assert_eq!(fleet.figure("acme", "held").await, credit);
        cue.give_all();
    };
    let (answers, ()) = tokio::join!(calls, watch);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), PAID_FOR);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        let error = answer.error(402, "insufficient_credits");
        assert_eq!(error["metadata"]["reason"], "in_flight");
    }
    assert_eq!(upstream.seen().len(), 1 + PAID_FOR, "a refused call was forwarded");

    let paid = cost(SMALL, 9, 250);
    let left = credit - paid * Decimal::from(PAID_FOR);
    assert_eq!(fleet.settled_balance("acme").await, left);
    let more = clients.iter().map(pay_until_there_is_too_little);
    let more: usize = join_all(more).await.into_iter().sum();
    let balance = fleet.settled_balance("acme").await;
    assert_eq!(balance, left - paid * Decimal::from(more));
    assert!(balance < each, "{balance} would have paid for another call");
    assert!(balance + paid >= each, "a call was let through without credit");
    assert!(balance >= Decimal::ZERO);
}

/// Calls until there is too little credit, even with nothing held. How many calls were paid for.
async fn pay_until_there_is_too_little(client: &Client) -> usize {
    let mut paid = 0;
    loop {
        let answer = client.post("/llm/chat", call()).await;
        if answer.status == 200 {
            paid += 1;
            continue;
        }
        let error = answer.error(402, "insufficient_credits");
        if error["metadata"]["reason"] == "insufficient_credits" {
            return paid;
        }
    }
}

#[tokio::test]
async fn of_2000_callers_exactly_those_with_credit_pay_on_sqlite() {
    exactly_as_many_pay_as_there_is_credit_for(1, "sqlite://{dir}/ledger.db").await;
}

#[tokio::test]
async fn of_2000_callers_exactly_those_with_credit_pay_on_redis() {
    let redis = RedisServer::start();
    exactly_as_many_pay_as_there_is_credit_for(1, &redis.url()).await;
}

#[tokio::test]
async fn of_2000_callers_exactly_those_with_credit_pay_on_redis_with_three_gateways() {
    let redis = RedisServer::start();
    exactly_as_many_pay_as_there_is_credit_for(3, &redis.url()).await;
}

/// The limits of a tier hold over all gateways together.
#[tokio::test]
async fn limits_are_exact_over_three_gateways() {
    let redis = RedisServer::start();
    let cue = Cue::new();
    let upstream = gated(&cue).await;
    let tiers = json!({
        "lite": { "rpm": 100_000, "tpm": 1_000_000_000, "concurrency": 4 },
        "pro": { "rpm": 60, "tpm": 1_000_000_000, "concurrency": 1_000 },
    });
    let fleet = Fleet::start(3, &redis.url(), tiers, &upstream).await;
    let at_once = fleet.account("at-once", "lite", Decimal::TEN).await;
    let a_minute = fleet.account("a-minute", "pro", Decimal::TEN).await;

    // The four run until all others were refused.
    let clients = fleet.h2c(2, &at_once);
    let refused = AtomicUsize::new(0);
    let calls = join_all((0..180).map(async |n| {
        let answer = clients[n % clients.len()].post("/llm/chat", call()).await;
        refused.fetch_add(usize::from(answer.status == 429), Ordering::SeqCst);
        answer
    }));
    let watch = async {
        eventually("the others are refused", async || {
            (refused.load(Ordering::SeqCst) == 176).then_some(())
        })
        .await;
        assert_eq!(fleet.figure("at-once", "open_calls").await, Decimal::from(4));
        cue.give_all();
    };
    let (answers, ()) = tokio::join!(calls, watch);
    check_limited(&answers, 4, "concurrent_requests");
    assert_eq!(upstream.seen().len(), 4);

    let clients = fleet.h2c(2, &a_minute);
    let calls = (0..180).map(|n| clients[n % clients.len()].post("/llm/chat", call()));
    check_limited(&join_all(calls).await, 60, "requests_per_minute");
    assert_eq!(upstream.seen().len(), 64);
    let paid = cost(SMALL, 9, 250);
    for (name, calls) in [("at-once", 4), ("a-minute", 60)] {
        let left = Decimal::TEN - paid * Decimal::from(calls);
        assert_eq!(fleet.settled_balance(name).await, left, "a refused call costs nothing");
    }
}

/// So many answers are 200, all others 429 for this limit.
fn check_limited(answers: &[crate::harness::Answer], let_through: usize, limit: &str) {
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(served, let_through);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        let error = answer.error(429, "rate_limit_error");
        assert_eq!(error["metadata"]["limit"], limit);
    }
}

/// Redis freezes, thaws, is killed and started again under a running gateway: calls are refused in time and nothing is forwarded for
/// them; the call that was running ends, and is paid for; service is back within two seconds.
#[tokio::test]
async fn a_redis_that_stops_is_503_in_time_and_comes_back() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let cue = Cue::new();
    let running = Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done();
    let upstream = Upstream::by(move |_, seen| match seen.json()["stream"].as_bool() {
        Some(true) => running.clone(),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let fleet = Fleet::start(1, &redis.url(), unlimited(), &upstream).await;
    let key = fleet.account("acme", "pro", Decimal::ONE).await;
    let client = fleet.http1(0, &key);
    client.post("/llm/chat", call()).await.ok();
    let mut calls = 1;
    for outage in ["frozen", "killed"] {
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        events.next().await.unwrap();
        let forwarded = upstream.seen().len();
        match outage {
            "frozen" => redis.freeze(),
            _ => redis.kill(),
        }
        // One after the other, then many at once.
        for _ in 0..8 {
            check_refused_in_time(&client).await;
        }
        join_all((0..100).map(|_| check_refused_in_time(&client))).await;
        for path in ["/llm/balance", "/llm/usage"] {
            client.get(path).await.error(503, "service_unavailable");
        }
        cue.give();
        assert_eq!(
            events.rest().await.last().unwrap(),
            "[DONE]",
            "a running call ends as ever"
        );
        assert_eq!(
            upstream.seen().len(),
            forwarded,
            "{outage}: forwarded, and nobody can pay"
        );

        match outage {
            "frozen" => redis.thaw(),
            _ => redis.restart(),
        }
        let back = Instant::now();
        eventually("calls are served again", async || {
            (client.post("/llm/chat", call()).await.status == 200).then_some(())
        })
        .await;
        assert!(
            back.elapsed() < Duration::from_secs(2),
            "{outage}: {:?}",
            back.elapsed()
        );
        calls += 2;
        let spent = cost(SMALL, 9, 1) * Decimal::from(calls);
        assert_eq!(fleet.settled_balance("acme").await, Decimal::ONE - spent, "{outage}");
    }
}

/// One of a cluster's three masters is silent: the accounts of the others are served as ever, on every gateway, and their debits arrive; its
/// own are refused, and what they owe is there once it is back.
#[tokio::test]
async fn a_silent_master_of_a_cluster_concerns_its_own_accounts_only() {
    const SILENT: usize = 1;
    let cluster = RedisCluster::start();
    cluster.serve_what_is_left();
    let cue = Cue::new();
    let running = Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done();
    let upstream = Upstream::by(move |_, seen| match seen.json()["stream"].as_bool() {
        Some(true) => running.clone(),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let fleet = Fleet::start(2, &cluster.url(), unlimited(), &upstream).await;
    let names = || (0..).map(|n| format!("shop-{n}"));
    let own = names().find(|name| cluster.master_of(name) == SILENT).unwrap();
    let others: Vec<String> = names()
        .filter(|name| cluster.master_of(name) != SILENT)
        .take(4)
        .collect();
    let own_key = fleet.account(&own, "pro", Decimal::ONE).await;
    let mut clients = Vec::new();
    for name in &others {
        let key = fleet.account(name, "pro", Decimal::ONE).await;
        clients.push([0, 1].map(|node| fleet.http1(node, &key)));
    }
    let client = fleet.http1(0, &own_key);
    client.post("/llm/chat", call()).await.ok();
    for [first, second] in &clients {
        first.post("/llm/chat", call()).await.ok();
        second.get("/llm/balance").await.ok();
    }
    let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();

    cluster.master(SILENT).freeze();
    cue.give();
    assert_eq!(
        events.rest().await.last().unwrap(),
        "[DONE]",
        "a running call ends as ever"
    );
    let began = Instant::now();
    let paid = cost(SMALL, 9, 1);
    let (mut rounds, mut slowest) = (1, Duration::ZERO);
    let served = async {
        while began.elapsed() < silence() {
            rounds += 1;
            for [first, second] in &clients {
                let asked = Instant::now();
                first.post("/llm/chat", call()).await.ok();
                slowest = slowest.max(asked.elapsed());
                let left = (Decimal::ONE - paid * Decimal::from(rounds)).normalize().to_string();
                eventually("the other gateway sees the debit", async || {
                    let balance = second.get("/llm/balance").await.ok();
                    (balance.number("balance") == left).then_some(())
                })
                .await;
                assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
            }
        }
    };
    let refused = async {
        while began.elapsed() < silence() {
            check_refused_in_time(&client).await;
        }
    };
    tokio::join!(served, refused);
    assert!(slowest < Duration::from_millis(400), "a call waited for {slowest:?}");

    cluster.master(SILENT).thaw();
    eventually("its calls are served again", async || {
        (client.post("/llm/chat", call()).await.status == 200).then_some(())
    })
    .await;
    // Before the silence, in its midst, and after it.
    let spent = paid * Decimal::from(3);
    assert_eq!(fleet.settled_balance(&own).await, Decimal::ONE - spent);
    for name in &others {
        let spent = paid * Decimal::from(rounds);
        assert_eq!(fleet.settled_balance(name).await, Decimal::ONE - spent);
    }
}

/// How long a master is silent.
fn silence() -> Duration {
    let long = std::env::var_os("TOLLGATE_LONG").is_some();
    Duration::from_secs(if long { 120 } else { 4 })
}

async fn check_refused_in_time(client: &Client) {
    let asked = Instant::now();
    let answer = client.post("/llm/chat", call()).await;
    answer.error(503, "service_unavailable");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    // Half a second is the store's; the rest is for a busy machine.
    assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
}

/// On Redis too, a call without a maximum is served up to what a nearly empty account can pay.
#[tokio::test]
async fn without_a_maximum_the_upstream_is_told_what_is_affordable_on_redis() {
    let redis = RedisServer::start();
    let upstream = Upstream::always(Reply::chat("Hi", 9, 500)).await;
    let fleet = Fleet::start(1, &redis.url(), unlimited(), &upstream).await;
    let credit: Decimal = "0.0007".parse().unwrap();
    let key = fleet.account("acme", "pro", credit).await;
    fleet.http1(0, &key).post("/llm/chat", request(SMALL)).await.ok();
    let cap = upstream.only().json()["max_tokens"].as_u64().unwrap();
    assert!((900..=1_014).contains(&cap), "{cap}");
    assert_eq!(fleet.settled_balance("acme").await, credit - cost(SMALL, 9, 500));
}

/// A Redis that may throw keys away, and with them money, is refused; one that forgets its last moments in a crash is warned of.
#[tokio::test]
async fn a_redis_that_evicts_is_refused_and_one_without_aof_is_warned_of() {
    let evicting = [
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
        "--save",
        "",
    ];
    let redis = RedisServer::start_with(&evicting);
    let upstream = Upstream::unused().await;
    let fleet = Fleet::prepared(&redis.url(), unlimited(), &upstream);
    for command in [&["serve"][..], &["account", "list"]] {
        let ended = fleet.run(command).await;
        assert!(!ended.succeeded);
        assert!(ended.stderr.contains("maxmemory-policy noeviction"), "{}", ended.stderr);
    }
    redis.ask("CONFIG SET maxmemory-policy noeviction");
    let fleet = Fleet::start(1, &redis.url(), unlimited(), &upstream).await;
    assert!(fleet.log(0).contains("has no AOF"), "{}", fleet.log(0));
    redis.ask("CONFIG SET appendonly yes");
    let fleet = Fleet::start(1, &redis.url(), unlimited(), &upstream).await;
    assert!(!fleet.log(0).contains("AOF"), "{}", fleet.log(0));
}
