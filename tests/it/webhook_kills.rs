//! Webhooks of the real binary that is killed: at each step on an event's way to its receiver.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream, eventually};
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
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let status = eventually("it dies", async || child.try_wait().unwrap()).await;
        assert_eq!(status.signal(), Some(9), "{step}");
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
