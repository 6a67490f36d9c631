//! Wrong keys in great numbers: limited by address, unseen by the ledger's store, and hardly felt by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tollgate::pure::ids::ApiKey;

use crate::bounds::on_both;
use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::client::{Client, ask};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Gateway, KeySpec, Reply, Setup, Upstream};

/// A key of the right form that no one made.
fn unknown_key(number: u64) -> String {
    let mut random = [7; 32];
    random[..8].copy_from_slice(&number.to_be_bytes());
    ApiKey::from_random("tg_", random).reveal().to_owned()
}

/// A key whose checksum is wrong.
fn malformed_key(number: u64) -> String {
    let key = unknown_key(number);
    let last = if key.ends_with('0') { "1" } else { "0" };
    format!("{}{last}", &key[..key.len() - 1])
}

async fn forgiving(failures: u64) -> Gateway {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| {
        conf["auth_failures_per_minute"] = failures.into();
        conf["trusted_proxies"] = json!(["127.0.0.0/8"]);
    });
    setup.start().await
}

/// The status of a request with this key that a proxy forwards for an address.
async fn status_from(client: &Client, key: &str, address: &str) -> u16 {
    let request = client.with_key(key).request(Method::GET, "/llm/balance");
    ask(request.header("x-forwarded-for", address)).await.status
}

#[tokio::test]
async fn an_address_that_fails_too_often_gets_429() {
    let gateway = forgiving(5).await;
    for (key, address) in [(malformed_key(1), "203.0.113.1"), (unknown_key(1), "203.0.113.2")] {
        for _ in 0..5 {
            assert_eq!(status_from(&gateway.http1, &key, address).await, 401);
        }
        let request = gateway.http1.with_key(&key).request(Method::GET, "/llm/balance");
        let answer = ask(request
            .header("x-forwarded-for", address)
            .header("origin", "https://a.example"))
        .await;
        let error = answer.error(429, "rate_limit_error");
        assert_eq!(
            error["metadata"],
            json!({ "limit": "failed_authentications", "value": 5 })
        );
        let wait = answer.header("retry-after").parse::<u64>();
        assert!(
            wait.is_ok_and(|secs| (1..=60).contains(&secs)),
            "what is left of the minute"
        );
        assert_eq!(answer.header("access-control-allow-origin"), "https://a.example");
        assert_eq!(
            answer.header("x-ratelimit-limit-requests"),
            "",
            "nothing is said to a stranger"
        );
    }
    assert_eq!(
        status_from(&gateway.http1, &unknown_key(2), "203.0.113.3").await,
        401,
        "another address"
    );
    assert_eq!(
        status_from(&gateway.http1, "", "203.0.113.1").await,
        401,
        "no key is no guess"
    );
}

#[tokio::test]
async fn who_shares_an_address_with_a_guesser_goes_on_working() {
    let gateway = forgiving(3).await;
    let (address, good) = ("203.0.113.1", gateway.key.clone());
    let other = gateway.new_key(KeySpec::default()).await;
    let revoked = gateway.new_key(KeySpec::default()).await;
    assert_eq!(status_from(&gateway.http1, &good, address).await, 200);
    assert_eq!(status_from(&gateway.http1, &revoked, address).await, 200);
    for number in 0..10 {
        status_from(&gateway.http1, &unknown_key(number), address).await;
    }
    assert_eq!(status_from(&gateway.http1, &good, address).await, 200);
    assert_eq!(
        status_from(&gateway.http1, &other, address).await,
        429,
        "it has not opened before"
    );
    assert_eq!(status_from(&gateway.http1, &other, "203.0.113.2").await, 200);
    assert_eq!(status_from(&gateway.http1, &other, address).await, 200, "now it has");
    gateway.revoke(&revoked).await;
    assert_eq!(
        status_from(&gateway.http1, &revoked, address).await,
        429,
        "a revoked key is a wrong one"
    );
    assert_eq!(status_from(&gateway.http1, &revoked, "203.0.113.2").await, 401);
}

/// A machine that goes on with a key that was revoked, or that is of another gateway or cut off, guesses nothing: it kept every key of its
/// address out that had not opened since the gateway's start.
#[tokio::test]
async fn who_goes_on_with_a_dead_key_keeps_no_good_key_of_its_address_out() {
    let upstream = Upstream::unused().await;
    let setup = || {
        Setup::over(&upstream).conf(|conf| {
            conf["auth_failures_per_minute"] = 3.into();
            conf["trusted_proxies"] = json!(["127.0.0.0/8"]);
        })
    };
    for (gateway, _redis) in on_both(setup).await {
        let address = "203.0.113.1";
        let revoked = gateway.new_key(KeySpec::default()).await;
        gateway.revoke(&revoked).await;
        let dead = [revoked, unknown_key(1), malformed_key(1)];
        for key in &dead {
            for _ in 0..10 {
                let status = status_from(&gateway.http1, key, address).await;
                assert!([401, 429].contains(&status), "{status}");
            }
        }
        for _ in 0..3 {
            let good = gateway.new_key(KeySpec::default()).await;
            assert_eq!(status_from(&gateway.http1, &good, address).await, 200);
        }
        for key in &dead {
            // The minute may have turned meanwhile.
            let mut status = 0;
            for _ in 0..4 {
                status = status_from(&gateway.http1, key, address).await;
            }
            assert_eq!(status, 429);
        }
        // Guesses keep a key out that has not opened, until the minute ends.
        for number in 2..12 {
            status_from(&gateway.http1, &unknown_key(number), address).await;
        }
        let good = gateway.new_key(KeySpec::default()).await;
        assert_eq!(status_from(&gateway.http1, &good, address).await, 429);
    }
}

#[tokio::test]
async fn an_address_is_only_believed_from_a_trusted_proxy() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["auth_failures_per_minute"] = 3.into());
    let gateway = setup.start().await;
    let mut statuses = Vec::new();
    for number in 0..5 {
        let claimed = format!("203.0.113.{number}");
        statuses.push(status_from(&gateway.h2c, &unknown_key(number), &claimed).await);
    }
    assert_eq!(
        statuses,
        [401, 401, 401, 429, 429],
        "it is the connection's address that counts"
    );
}

/// How many commands the server has run that look something up or change something.
fn commands(redis: &RedisServer) -> u64 {
    let own = ["info", "ping", "quit", "command", "hello", "client"];
    let stats = redis.ask("INFO commandstats");
    let lines = stats.iter().filter_map(|line| line.strip_prefix("cmdstat_"));
    let calls = lines.filter_map(|line| {
        let (name, rest) = line.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        (!own.contains(&name.split('|').next()?)).then_some(calls)
    });
    calls.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_sees_none_of_the_wrong_keys() {
    const FORGIVEN: u64 = 20;
    let redis = RedisServer::start();
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).redis(&redis.url());
    let gateway = setup
        .conf(|conf| conf["auth_failures_per_minute"] = FORGIVEN.into())
        .start()
        .await;
    gateway.http1.get("/llm/balance").await.ok();

    // Keys whose checksum is wrong are never looked up.
    let gateway = Arc::new(gateway);
    let before = commands(&redis);
    assert!(before > 0, "a good key is looked up");
    let wrong_keys = if std::env::var_os("TOLLGATE_TEST_LONG").is_some() {
        100_000
    } else {
        20_000
    };
    let started = Instant::now();
    flood(&gateway, wrong_keys, malformed_key).await;
    let idle = background(&redis, started.elapsed()).await;
    let seen = commands(&redis) - before;
    println!(
        "{seen} commands during {wrong_keys} malformed keys in {:?}, {idle} in as long without any",
        started.elapsed()
    );
    assert!(seen <= 2 * idle + 20, "{seen} commands, {idle} without the keys");

    // Of those that are well-formed, as many as are forgiven, and those that were asked for at the same moment.
    flood(&gateway, 100, unknown_key).await;
    let before = commands(&redis);
    flood(&gateway, 2_000, unknown_key).await;
    let seen = commands(&redis) - before;
    assert!(
        seen <= 2 * idle + 20,
        "{seen} commands during 2,000 unknown keys, {idle} without"
    );
    gateway.http1.get("/llm/balance").await.ok();
}

/// How many commands the ledger sends by itself in so much time.
async fn background(redis: &RedisServer, time: Duration) -> u64 {
    let before = commands(redis);
    // Sleeps: the time is what is measured.
    tokio::time::sleep(time.min(Duration::from_secs(3))).await;
    let seen = commands(redis) - before;
    seen * (1 + time.as_millis() as u64 / 3_000)
}

/// So many requests with wrong keys, some at once; each is refused.
async fn flood(gateway: &Arc<Gateway>, requests: usize, key: fn(u64) -> String) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut attackers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (gateway, next) = (Arc::clone(gateway), Arc::clone(&next));
        attackers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return;
                }
                let status = gateway
                    .http1
                    .with_key(&key(number as u64))
                    .get("/llm/balance")
                    .await
                    .status;
                assert!([401, 429].contains(&status), "{status}");
            }
        });
    }
    attackers.join_all().await;
}

/// Latencies of a caller that calls again and again, at a fixed pace, for so long.
async fn latencies(gateway: &Gateway, time: Duration) -> Vec<Duration> {
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let started = Instant::now();
    let mut took = Vec::new();
    while started.elapsed() < time {
        pace.tick().await;
        let asked = Instant::now();
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        took.push(asked.elapsed());
    }
    took.sort();
    took
}

/// The time below which so many of 100 are.
fn percentile(took: &[Duration], of_100: usize) -> Duration {
    took[took.len() * of_100 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_keys_in_great_numbers_are_hardly_felt_by_others() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).tier(tollgate::pure::ids::Tier::Enterprise);
    let setup = setup.conf(|conf| {
        conf["auth_failures_per_minute"] = 60.into();
        conf["tiers"]["enterprise"] = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000 });
    });
    let gateway = Arc::new(setup.start().await);
    // In turns, and of each side the best turn counts: what else the machine does falls on some of them, the attack on each of its own.
    let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
    let attacks = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut under_attack = Duration::ZERO;
    let time = std::env::var("TOLLGATE_TEST_LONG").map_or(TURN, |_| Duration::from_secs(15));
    for _ in 0..TURNS {
        quiet.push(latencies(&gateway, time).await);
        let stop = Arc::new(AtomicBool::new(false));
        let attacker = tokio::spawn(attack(Arc::clone(&gateway), Arc::clone(&stop), Arc::clone(&attacks)));
        let turn = Instant::now();
        attacked.push(latencies(&gateway, time).await);
        under_attack += turn.elapsed();
        stop.store(true, Ordering::Relaxed);
        attacker.await.unwrap();
    }
    // A machine that is busy with other tests falls behind the pace of 100,000.
    let a_minute = attacks.load(Ordering::Relaxed) as f64 * 60.0 / under_attack.as_secs_f64();
    println!("{a_minute:.0} wrong keys a minute, {:?} in all", started.elapsed());
    for (of_100, more) in [(50, MEDIAN_MORE), (99, TAIL_MORE)] {
        let best = |turns: &[Vec<Duration>]| turns.iter().map(|took| percentile(took, of_100)).min().unwrap();
        let (without, with) = (best(&quiet), best(&attacked));
        println!("p{of_100}: {without:?} without and {with:?} with them");
        assert!(with <= without * 2 + more, "p{of_100}: {without:?} became {with:?}");
    }
    assert!(
        a_minute > LEAST_A_MINUTE,
        "the attack was too weak: {a_minute:.0} a minute"
    );
    gateway.check_books().await;
}

/// Presents wrong keys, half of them well-formed, at 100,000 a minute until told to stop.
async fn attack(gateway: Arc<Gateway>, stop: Arc<AtomicBool>, count: Arc<AtomicUsize>) {
    let mut attackers = tokio::task::JoinSet::new();
    for attacker in 0..4u64 {
        let (gateway, stop, count) = (Arc::clone(&gateway), Arc::clone(&stop), Arc::clone(&count));
        attackers.spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_micros(2_400));
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                pace.tick().await;
                let key = if number % 2 == 0 {
                    unknown_key(number * 4 + attacker)
                } else {
                    malformed_key(number)
                };
                gateway.http1.with_key(&key).get("/llm/balance").await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    attackers.join_all().await;
}

const TURNS: usize = 6;
const TURN: Duration = Duration::from_millis(1_000);
/// Half of its pace.
const LEAST_A_MINUTE: f64 = 50_000.0;
/// What an attack may add beside as much again: to the median call, and to the slowest of 100.
const MEDIAN_MORE: Duration = Duration::from_millis(2);
const TAIL_MORE: Duration = Duration::from_millis(5);
