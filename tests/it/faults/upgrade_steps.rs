//! A new binary that fails or dies at each step of its start: the old process goes on within a second, and every call is billed exactly.

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::server::upgrade::Step;

use super::load::{Load, one_call};
use super::process::{Ground, Site, journals};
use super::record::Outcome;
use super::upstream::{Pace, Provider};
use crate::harness::eventually;
use crate::harness::redis_server::RedisServer;

/// From the end of the process that was to take over to the end of a paid call on the old one: within a second, and what a busy machine adds.
/// An old process that did not hear of that end would wait for half a minute.
const SERVES_WITHIN: Duration = Duration::from_secs(10);

const PACE: Pace = Pace {
    tokens: 10,
    pause: Duration::from_millis(10),
};

/// How a new process does not get to serve, each with what makes it so.
fn failures() -> Vec<(&'static str, String)> {
    let mut failures = Vec::new();
    for step in Step::ALL {
        let name = step.name();
        failures.push(("TOLLGATE_FAIL_AT", name.to_owned()));
        failures.push(("TOLLGATE_CRASH_AT", format!("{name}:before:1")));
    }
    failures
}

async fn ended(process: &mut Child) {
    let status = eventually("the new process ends", async || process.try_wait().unwrap()).await;
    assert!(!status.success(), "{status}");
}

async fn survives_each_failure(ground: Ground) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 4);
    let running = load.start(&site);
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let (key, mut calls) = (Arc::clone(load.key(0)), Vec::new());
    for (number, (kind, at)) in failures().into_iter().enumerate() {
        let mut new = site.successor(&[(kind, &at)]);
        ended(&mut new).await;
        let end = Instant::now();
        let number = 2_000_000 + u64::try_from(number).unwrap();
        let call = one_call(&client, &site.base_url(), &key, number).await;
        let took = end.elapsed();
        assert!(matches!(call.outcome, Outcome::Whole { .. }), "{kind} {at}: {call:?}");
        assert!(took < SERVES_WITHIN, "{kind} {at}: {took:?}");
        calls.push(call);
    }
    let mut old = site.upgrade();
    eventually("the old process ends", async || old.try_wait().unwrap()).await;
    load.finish(running).await;
    load.record.keep(0, calls);
    let others = load
        .record
        .all()
        .filter(|call| !matches!(call.outcome, Outcome::Whole { .. }));
    let others: Vec<_> = others.collect();
    assert!(others.is_empty(), "{others:?}");
    eventually("the old process' journal is resolved", async || {
        (journals(&site.data_dir(), "journal") == 1).then_some(())
    })
    .await;
    load.reconciled(&site, &provider).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_fails_at_any_step_leaves_the_old_process_serving_on_sqlite() {
    survives_each_failure(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_fails_at_any_step_leaves_the_old_process_serving_on_redis() {
    survives_each_failure(Ground::Redis(RedisServer::start())).await;
}

/// The one that was found: the new process reads its configuration, takes the ledger, and cannot open the access log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_to_a_broken_access_log_leaves_the_old_process_serving() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    site.change(|conf| conf["access_log"] = "/nowhere/access.log".into());
    ended(&mut site.successor(&[])).await;
    let call = one_call(&reqwest::Client::new(), &site.base_url(), load.key(0), 2).await;
    assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
    load.record.keep(0, vec![call]);
    load.reconciled(&site, &provider).await;
}

/// The one that was found: the new process has no provider's credential in its environment, and would answer each call with 404.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_without_the_credentials_leaves_the_old_process_serving() {
    let (provider, variable) = (Provider::start(PACE).await, "TOLLGATE_TEST_CREDENTIAL");
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        for name in ["main", "spare"] {
            conf["providers"][name]["api_key_env"] = variable.into();
        }
    });
    site.start(&[(variable, "secret")]);
    let mut load = Load::new(&site, 1);
    // It has no credential either.
    let checked = site.command(&["check"]);
    let warnings = checked["warnings"].to_string();
    assert!(
        checked["ok"] == true
            && warnings.contains("tollgate serve --upgrade would be refused, for no model is on sale"),
        "{checked}"
    );
    ended(&mut site.successor(&[])).await;
    for told in [
        "the gateway that runs goes on, until it is stopped: no model is on sale",
        "provider main is off, for TOLLGATE_TEST_CREDENTIAL is not set",
        "no other process takes over, this one goes on: the new one failed",
    ] {
        eventually("it is told", async || site.log().contains(told).then_some(())).await;
    }
    let call = one_call(&reqwest::Client::new(), &site.base_url(), load.key(0), 2).await;
    assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
    load.record.keep(0, vec![call]);
    load.reconciled(&site, &provider).await;
}

/// A start on its own serves what it can, and says that it sells nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_sells_nothing_says_so() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        for name in ["main", "spare"] {
            conf["providers"][name]["api_key_env"] = "TOLLGATE_TEST_CREDENTIAL".into();
        }
    });
    site.start(&[]);
    let is_told = || {
        site.log()
            .contains("no model is on sale: every call is answered with 404")
    };
    eventually("it is told", async || is_told().then_some(())).await;
}

async fn nothing_is_left_of_upgrades_during_a_stop(ground: Ground) {
    let pace = Pace {
        tokens: 100_000,
        pause: Duration::from_millis(50),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(ground, &provider, |conf| conf["drain_seconds"] = 600.into());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let (client, url, key) = (reqwest::Client::new(), site.base_url(), Arc::clone(load.key(0)));
    let call = tokio::spawn(async move { one_call(&client, &url, &key, 2).await });
    eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    site.signal("-TERM");
    let ready = format!("http://127.0.0.1:{}/readyz", site.admin_port);
    eventually("it stops", async || {
        let answer = reqwest::get(&ready).await.unwrap();
        (answer.status() == 503).then_some(())
    })
    .await;
    for _ in 0..3 {
        let failed = tokio::task::block_in_place(|| site.serve_and_fail(&["--upgrade"]));
        assert!(failed.contains("the gateway that runs goes on: it stops"), "{failed}");
    }
    let left = ["journal", "prompts"].map(|extension| journals(&site.data_dir(), extension));
    assert_eq!(left, [1, 1], "those of the one that stops alone");
    site.kill();
    call.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_of_a_gateway_that_stops_leaves_no_journal_on_sqlite() {
    nothing_is_left_of_upgrades_during_a_stop(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_of_a_gateway_that_stops_leaves_no_journal_on_redis() {
    nothing_is_left_of_upgrades_during_a_stop(Ground::Redis(RedisServer::start())).await;
}
