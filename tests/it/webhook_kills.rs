//! Webhooks of the real binary that is killed: at each step on an event's way to its receiver, and between what causes an event and that way.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream, eventually, within};
use crate::webhooks::{Receiver, credit, webhooks, words};

/// Events that are still to be told.
fn open(process: &Process) -> u64 {
    let list: Value = serde_json::from_str(&process.command(&["webhook", "list", "--json"])).unwrap();
    list["events_open"].as_u64().unwrap()
}

async fn killed_at_each_step(store: Option<&RedisServer>) {
    let receiver = Receiver::start(|_| 200).await;
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut process = Process::prepare(&upstream, |conf| {
        webhooks(conf, &[receiver.url()]);
        if let Some(server) = store {
            conf["store"] = server.url().into();
        }
    });
    let steps = [
        "webhook-claim:after:2",
        "webhook-settle:before:1",
        "webhook-settle:after:1",
    ];
    for step in steps {
        let crash_at = format!("TOLLGATE_CRASH_AT={step}");
        let words = words(&process, &[&crash_at]);
        // It may die before it listens.
        let log = File::create(process.path("log")).unwrap();
        let mut child = Command::new(&words[0]).args(&words[1..]).stderr(log).spawn().unwrap();
        let status = eventually("it dies", async || child.try_wait().unwrap()).await;
        let log = std::fs::read_to_string(process.path("log")).unwrap();
        assert_eq!(status.signal(), Some(9), "{step}: {log}");
        credit(&process, step);
    }
    process.start_with(&words(&process, &[])).await;
    let taken = receiver.takes(4).await;
    let references: BTreeSet<&str> = taken
        .values()
        .map(|event| event["data"]["reference"].as_str().unwrap())
        .collect();
    let expected = ["first"].into_iter().chain(steps).collect::<BTreeSet<&str>>();
    assert_eq!((references, taken.len()), (expected, 4), "one id for each entry");
    // What the killed ones had claimed is due again after 20 seconds.
    let started = Instant::now();
    while open(&process) > 0 {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{} are left",
            open(&process)
        );
        // Sleeps: between two looks, each of which starts a command.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn no_kill_loses_an_event_of_the_file() {
    killed_at_each_step(None).await;
}

#[tokio::test]
async fn no_kill_loses_an_event_in_redis() {
    let server = RedisServer::start();
    killed_at_each_step(Some(&server)).await;
}

/// One webhook has the event and does not answer, and the gateway dies as it is about to send it again to the other, which had not taken it.
async fn killed_before_a_retry(store: Option<&RedisServer>) {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?a=b", silent.local_addr().unwrap());
    let receiver = Receiver::start(|n| if n == 0 { 500 } else { 200 }).await;
    let upstream = Upstream::unused().await;
    let mut process = Process::prepare(&upstream, |conf| {
        webhooks(conf, &[url, receiver.url()]);
        if let Some(server) = store {
            conf["store"] = server.url().into();
        }
    });
    let dying = words(&process, &["TOLLGATE_CRASH_AT=webhook-keep:after:1"]);
    let log = File::create(process.path("log")).unwrap();
    let mut child = Command::new(&dying[0]).args(&dying[1..]).stderr(log).spawn().unwrap();
    let status = eventually("it dies", async || child.try_wait().unwrap()).await;
    let log = std::fs::read_to_string(process.path("log")).unwrap();
    assert_eq!(status.signal(), Some(9), "{log}");
    assert_eq!(receiver.got().len(), 1, "it had not been sent again");
    process.start_with(&words(&process, &[])).await;
    // What the killed one had claimed is due again after 20 seconds.
    let started = Instant::now();
    while receiver.taken().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is not told");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(receiver.got().len(), 2);
    assert_eq!(open(&process), 1, "it waits for the silent one");
}

#[tokio::test]
async fn no_kill_loses_a_retry_of_the_file() {
    killed_before_a_retry(None).await;
}

#[tokio::test]
async fn no_kill_loses_a_retry_in_redis() {
    let server = RedisServer::start();
    killed_before_a_retry(Some(&server)).await;
}

/// A call takes the balance below its threshold, and the gateway dies before anybody has taken up the event: before its debit is in the
/// store, or right after. The next gateway tells it, once.
async fn killed_at_a_crossing(store: impl Fn() -> Option<RedisServer>) {
    for step in ["debit:after:1", "settlement:before:1", "settlement:after:1"] {
        let (server, receiver) = (store(), Receiver::start(|_| 200).await);
        let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let mut process = Process::prepare(&upstream, |conf| {
            webhooks(conf, &[receiver.url()]);
            if let Some(server) = &server {
                conf["store"] = server.url().into();
            }
        });
        process.command(&["account", "set", "acme", "--low-balance", "100"]);
        let crash_at = format!("TOLLGATE_CRASH_AT={step}");
        process.start_with(&words(&process, &[&crash_at])).await;
        eventually("the first credit is told", async || (open(&process) == 0).then_some(())).await;
        // Whether it has its answer before the gateway dies does not matter here.
        let call = process.client.post_request("/llm/chat", request(SMALL)).send();
        if let Ok(answer) = within("an answer, or none", call).await {
            drop(within("its end", answer.bytes()).await);
        }
        assert_eq!(process.ended().await.signal(), Some(9), "{step}");
        assert_eq!(receiver.taken().len(), 1, "{step}: nobody had taken it up");
        process.start_with(&words(&process, &[])).await;
        receiver.takes(2).await;
        eventually("nothing waits any more", async || (open(&process) == 0).then_some(())).await;
        let taken = receiver.taken();
        let kinds: Vec<&Value> = taken.values().map(|event| &event["type"]).collect();
        assert_eq!(kinds.len(), 2, "{step}: one id for each: {taken:?}");
        assert!(kinds.contains(&&json!("account.low_balance")), "{step}: {taken:?}");
        let shown: Value = serde_json::from_str(&process.command(&["account", "show", "acme", "--json"])).unwrap();
        let balance = (Decimal::ONE_HUNDRED - cost(SMALL, 9, 1)).normalize().to_string();
        let crossed = taken
            .values()
            .find(|event| event["type"] == "account.low_balance")
            .unwrap();
        assert_eq!(
            crossed["data"],
            json!({ "account": "acme", "balance": balance, "low_balance": "100" }),
            "{step}"
        );
        assert_eq!(shown["balance"].to_string(), balance, "{step}: {shown}");
    }
}

#[tokio::test]
async fn no_kill_loses_or_doubles_a_crossing_of_the_file() {
    killed_at_a_crossing(|| None).await;
}

#[tokio::test]
async fn no_kill_loses_or_doubles_a_crossing_in_redis() {
    killed_at_a_crossing(|| Some(RedisServer::start())).await;
}
