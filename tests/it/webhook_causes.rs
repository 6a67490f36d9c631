//! Each event that a webhook is told of happens here, and is told once: at one gateway, and at three on one Redis with many at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, catalogue, cost};
use crate::harness::fleet::Fleet;
use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream, eventually};
use crate::nodes::unlimited;
use crate::webhooks::{Receiver, credit, webhooks, words};

/// Of each event that was taken: its type and whom it is about; with how many ids.
fn told(receiver: &Receiver) -> BTreeMap<(String, String), usize> {
    let mut told = BTreeMap::new();
    for event in receiver.taken().into_values() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = ["account", "provider"].map(|name| text(&event["data"][name])).concat();
        *told.entry((text(&event["type"]), about)).or_default() += 1;
    }
    told
}

async fn is_told(receiver: &Receiver, kind: &str, about: &str) {
    let wanted = (kind.to_owned(), about.to_owned());
    eventually(kind, async || told(receiver).contains_key(&wanted).then_some(())).await;
}

/// Has the gateways tell this receiver.
fn tell(fleet: &mut Fleet, receiver: &Receiver) {
    fleet.configure(|conf| {
        conf["webhooks"] =
            json!([{ "url": receiver.url(), "secret_env": "FLEET_WEBHOOK_SECRET", "allow_private": true }]);
    });
}

/// Gateways that are not started yet, over this Redis or a file, and the receiver of their webhook.
async fn with_webhook(redis: Option<&RedisServer>) -> (Receiver, Upstream, Fleet) {
    let (receiver, upstream) = (
        Receiver::start(|_| 200).await,
        Upstream::always(Reply::chat("Hi", 9, 1)).await,
    );
    let store = redis.map_or_else(|| "sqlite://{dir}/ledger.db".to_owned(), RedisServer::url);
    let mut fleet = Fleet::prepared(&store, unlimited(), &upstream);
    tell(&mut fleet, &receiver);
    (receiver, upstream, fleet)
}

/// What books and keys cause, over some gateways.
async fn books_and_keys(gateways: usize, redis: Option<&RedisServer>) {
    let (receiver, _upstream, mut fleet) = with_webhook(redis).await;
    fleet.configure(|conf| conf["audit_seconds"] = json!(1));
    fleet.account("acme", "pro", Decimal::TEN).await;
    for expires in ["3d", "6d", "8d"] {
        let words = [
            "key",
            "create",
            "--account",
            "acme",
            "--label",
            expires,
            "--expires",
            expires,
        ];
        fleet.command(&words).await;
    }
    fleet.grow(gateways).await;
    is_told(&receiver, "key.expiring", "acme").await;
    // Somebody writes into the books.
    match redis {
        Some(redis) => drop(redis.ask("HINCRBY tg1:{acme} avail 1000000000000")),
        None => {
            let path = fleet.path("ledger.db");
            let file = rusqlite::Connection::open(path).unwrap();
            file.busy_timeout(Duration::from_secs(5)).unwrap();
            file.execute("UPDATE accounts SET balance = balance + 1000000000000", [])
                .unwrap();
        }
    }
    is_told(&receiver, "books.unbalanced", "").await;
    // Each gateway has audited again, and found the same.
    let audits = |log: String| log.matches("the books of acme do not balance").count();
    eventually("each gateway audits again", async || {
        (0..gateways).all(|n| audits(fleet.log(n)) > 4).then_some(())
    })
    .await;
    fleet.command(&["webhook", "test"]).await;
    is_told(&receiver, "webhook.test", "").await;
    let told = told(&receiver);
    assert_eq!(told[&("books.unbalanced".to_owned(), String::new())], 1, "{told:?}");
    assert_eq!(
        told[&("key.expiring".to_owned(), "acme".to_owned())],
        2,
        "those within a week: {told:?}"
    );
    let finding = receiver
        .taken()
        .into_values()
        .find(|event| event["type"] == "books.unbalanced");
    assert_eq!(finding.unwrap()["data"]["first"][0]["account"], "acme");
}

#[tokio::test]
async fn books_that_do_not_balance_and_keys_that_expire_are_told_once_on_the_file() {
    books_and_keys(1, None).await;
}

#[tokio::test]
async fn books_that_do_not_balance_and_keys_that_expire_are_told_once_by_three_gateways() {
    let redis = RedisServer::start();
    books_and_keys(3, Some(&redis)).await;
}

/// What a call costs: 0.01 and the markup of 15 %.
const EACH: &str = "0.0115";

/// Calls that each account's credit, or quota, is enough for.
const SERVED: usize = 100;

/// Always more than are served.
fn racers() -> usize {
    let told = std::env::var("TOLLGATE_RACERS");
    told.map_or(300, |text| text.parse().unwrap()).max(SERVED * 3 / 2)
}

/// Many at once around a low balance, the end of the credit and a monthly quota, at three gateways on one Redis: each is crossed once, and
/// each is told once.
#[tokio::test]
async fn of_many_racers_over_three_gateways_each_crossing_is_told_once() {
    let redis = RedisServer::start();
    let receiver = Receiver::start(|n| if n % 3 == 1 { 500 } else { 200 }).await;
    let upstream = Upstream::always(Reply::chat("Hi", PROMPT, 50)).await;
    let mut fleet = Fleet::prepared(&redis.url(), unlimited(), &upstream);
    let mut sold = catalogue();
    let models = sold["models"].as_array_mut().unwrap();
    let fixed = models.iter_mut().find(|model| model["id"] == SMALL).unwrap();
    fixed["pricing"] = json!({ "prompt": "0", "completion": "0", "request": "0.01" });
    fleet.sells(&sold);
    tell(&mut fleet, &receiver);
    fleet.grow(3).await;
    let each: Decimal = EACH.parse().unwrap();
    let poor = fleet.account("poor", "pro", each * Decimal::from(SERVED)).await;
    let low = (each * Decimal::from(50)).to_string();
    fleet.command(&["account", "set", "poor", "--low-balance", &low]).await;
    let rich = fleet.account("rich", "pro", Decimal::from(1_000)).await;
    let quota = (each * Decimal::from(SERVED)).to_string();
    fleet
        .command(&["account", "set", "rich", "--monthly-quota", &quota])
        .await;
    let race = [(&poor, "poor"), (&rich, "rich")].map(async |(key, name)| {
        let clients = fleet.h2c(4, key);
        let (mut left, mut served) = (racers(), 0);
        while left > 0 {
            let calls = (0..left).map(async |n| {
                let answer = clients[n % clients.len()].post("/llm/chat", request(SMALL)).await;
                match answer.status {
                    200 => Some(true),
                    402 => (answer.json()["error"]["metadata"]["reason"] != "in_flight").then_some(false),
                    // A Redis that is asked by many on a busy machine may be late.
                    503 => None,
                    status => panic!("{status}: {}", answer.text()),
                }
            });
            let ends = join_all(calls).await;
            served += ends.iter().filter(|end| **end == Some(true)).count();
            left = ends.iter().filter(|end| end.is_none()).count();
            fleet.settled_balance(name).await;
        }
        assert_eq!(served, SERVED, "{name}");
    });
    join_all(race).await;
    for (kind, about) in [
        ("account.low_balance", "poor"),
        ("account.exhausted", "poor"),
        ("account.quota_reached", "rich"),
    ] {
        is_told(&receiver, kind, about).await;
    }
    eventually("nothing waits any more", async || {
        let list: Value = serde_json::from_str(&fleet.command(&["webhook", "list"]).await).unwrap();
        (list["events_open"] == 0).then_some(())
    })
    .await;
    let expected = [
        ("account.exhausted", "poor"),
        ("account.low_balance", "poor"),
        ("account.quota_reached", "rich"),
        ("credits.added", "poor"),
        ("credits.added", "rich"),
    ];
    let expected = expected.map(|(kind, about)| ((kind.to_owned(), about.to_owned()), 1));
    assert_eq!(told(&receiver), BTreeMap::from(expected));
}

/// A call whose prompt repeats four words so many times.
fn wordy(times: usize, max_tokens: u64) -> String {
    let message = json!({ "role": "user", "content": "four words of text ".repeat(times) });
    json!({ "model": SMALL, "messages": [message], "max_tokens": max_tokens }).to_string()
}

/// A call that is refused by the bound of its prompt, and served once the prompt is counted, is told to nobody; one that is refused then is
/// told, whatever it is refused for.
async fn only_what_is_refused_is_told(redis: Option<&RedisServer>) {
    let (receiver, _upstream, mut fleet) = with_webhook(redis).await;
    // Less than a token for each byte of the words costs, and more than the words do when they are counted.
    let enough = cost(SMALL, 12_000, 10);
    let poor = fleet.account("poor", "pro", enough).await;
    let capped = fleet.account("capped", "pro", Decimal::TEN).await;
    let penniless = fleet.account("penniless", "pro", Decimal::ZERO).await;
    let barred = fleet.account("barred", "pro", Decimal::TEN).await;
    for (name, quota) in [("capped", enough), ("barred", Decimal::ZERO)] {
        let quota = quota.to_string();
        fleet
            .command(&["account", "set", name, "--monthly-quota", &quota])
            .await;
    }
    fleet.grow(1).await;
    let all_told = async || {
        eventually("nothing waits any more", async || {
            let list: Value = serde_json::from_str(&fleet.command(&["webhook", "list"]).await).unwrap();
            (list["events_open"] == 0).then_some(())
        })
        .await;
        told(&receiver)
    };
    let once = |(kind, about): (&str, &str)| ((kind.to_owned(), about.to_owned()), 1_usize);
    let credited = ["poor", "capped", "barred"].map(|name| once(("credits.added", name)));
    let mut expected = BTreeMap::from(credited);
    for (key, name) in [(&poor, "poor"), (&capped, "capped")] {
        let answer = fleet.http1(0, key).post("/llm/chat", wordy(1_000, 10)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        fleet.settled_balance(name).await;
    }
    assert_eq!(all_told().await, expected, "nothing was refused");
    for (key, name, kind, body) in [
        // Its prompt is not counted to its end.
        (&poor, "poor", "account.exhausted", wordy(10_000, 10)),
        (&capped, "capped", "account.quota_reached", wordy(1_000, 4_000)),
        (&penniless, "penniless", "account.exhausted", request(SMALL)),
        (&barred, "barred", "account.quota_reached", request(SMALL)),
    ] {
        for _ in 0..3 {
            let answer = fleet.http1(0, key).post("/llm/chat", body.clone()).await;
            assert_eq!(answer.status, 402, "{name}: {}", answer.text());
        }
        is_told(&receiver, kind, name).await;
        expected.extend([once((kind, name))]);
    }
    assert_eq!(all_told().await, expected);
    let taken = receiver.taken();
    for (name, kind, told, shown) in [
        ("poor", "account.exhausted", "available", "balance"),
        ("capped", "account.quota_reached", "monthly_used", "monthly_used"),
    ] {
        let mut events = taken.values().map(|event| (&event["type"], &event["data"]));
        let (_, data) = events
            .find(|(of, data)| *of == kind && data["account"] == name)
            .unwrap();
        let figure: Decimal = data[told].as_str().unwrap().parse().unwrap();
        assert_eq!(figure, fleet.figure(name, shown).await, "not of the one before");
    }
}

#[tokio::test]
async fn only_what_is_refused_is_told_on_the_file() {
    only_what_is_refused_is_told(None).await;
}

#[tokio::test]
async fn only_what_is_refused_is_told_on_redis() {
    let redis = RedisServer::start();
    only_what_is_refused_is_told(Some(&redis)).await;
}

/// Events wait for a receiver that takes connections and never answers. A call takes as long as at a gateway without webhooks.
#[tokio::test]
async fn no_call_is_slower_with_a_dead_receiver() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = format!("http://{}/hook?a=b", silent.local_addr().unwrap());
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut with = Process::prepare(&upstream, |conf| webhooks(conf, &[dead]));
    with.start_with(&words(&with, &[])).await;
    let without = Process::start(&upstream, |_| ()).await;
    for n in 0..200 {
        credit(&with, &format!("r{n}"));
    }
    let timed = async |process: &Process| {
        let began = Instant::now();
        let answer = process.client.post("/llm/chat", request(SMALL)).await;
        assert_eq!(answer.status, 200);
        began.elapsed()
    };
    let (mut at_dead, mut at_none) = (Vec::new(), Vec::new());
    // By turns, so that whatever else the machine does is the same for both.
    for _ in 0..300 {
        at_dead.push(timed(&with).await);
        at_none.push(timed(&without).await);
    }
    let list: Value = serde_json::from_str(&with.command(&["webhook", "list", "--json"])).unwrap();
    assert_eq!(list["events_open"], 201, "they all wait");
    let middle = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (dead, none) = (middle(&mut at_dead), middle(&mut at_none));
    println!("the middle call: {dead:?} with 201 events for a dead receiver, {none:?} without webhooks");
    assert!(
        dead < none.saturating_mul(3) / 2 + Duration::from_millis(1),
        "{dead:?} and {none:?}"
    );
}
