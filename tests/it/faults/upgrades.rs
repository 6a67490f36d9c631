//! A new binary takes over from a running one under load: nothing is refused, cut, lost or billed twice.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::load::{Load, one_call};
use super::process::{Ground, Site, audit, journals, new_account, view};
use super::record::{Call, Outcome};
use super::upstream::{MODEL, Pace, Provider, message, prompt_tokens};
use crate::harness::catalogue::catalogue;
use crate::harness::eventually;
use crate::harness::redis_server::{RedisServer, free_port};

async fn upgraded_under_load(ground: Ground) {
    let pace = Pace {
        tokens: 20,
        pause: Duration::from_millis(30),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 200);
    load.keeps_connections = true;
    let running = load.start(&site);
    eventually("200 calls run", async || (provider.seen() >= 400).then_some(())).await;
    let mut old = site.upgrade();
    ended(&mut old).await;
    let seen = provider.seen();
    eventually("the new process serves", async || {
        (provider.seen() > seen + 200).then_some(())
    })
    .await;
    load.finish(running).await;
    let others = load
        .record
        .all()
        .filter(|call| !matches!(call.outcome, Outcome::Whole { .. }));
    let others: Vec<_> = others.collect();
    assert!(
        others.is_empty(),
        "{} of {}: {others:?}",
        others.len(),
        load.record.all().count()
    );
    eventually("the old process' journal is resolved", async || {
        (journals(&site.data_dir(), "journal") == 1).then_some(())
    })
    .await;
    load.reconciled(&site, &provider).await;
}

/// Calls of one account, four at a time on connections of their own: of those that have ended none counts for long as one that runs, whichever
/// process made it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_refuses_no_call_of_an_account_for_those_that_have_ended() {
    let pace = Pace {
        tokens: 2,
        pause: Duration::from_millis(2),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        conf["tiers"]["pro"]["concurrency"] = 48.into();
    });
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    let (next, stops) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let (next, stops) = (Arc::clone(&next), Arc::clone(&stops));
        let (client, url, key) = (without_pool(), site.base_url(), Arc::clone(load.key(0)));
        workers.spawn(async move {
            let mut calls = Vec::new();
            while !stops.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                calls.push(one_call(&client, &url, &key, number).await);
            }
            calls
        });
    }
    eventually("calls run", async || (provider.seen() >= 100).then_some(())).await;
    let mut old = site.upgrade();
    ended(&mut old).await;
    stops.store(true, Ordering::Relaxed);
    let calls: Vec<Call> = workers.join_all().await.into_iter().flatten().collect();
    let others = calls
        .iter()
        .filter(|call| !matches!(call.outcome, Outcome::Whole { .. }));
    let others: Vec<_> = others.collect();
    assert!(others.is_empty(), "{} of {}: {others:?}", others.len(), calls.len());
    load.record.keep(0, calls);
    load.reconciled(&site, &provider).await;
}

/// Waits until the old process has ended by itself, which takes the seconds in which it keeps its connections.
async fn ended(old: &mut Child) {
    eventually("the old process ends", async || old.try_wait().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_load_refuses_and_loses_nothing_on_sqlite() {
    upgraded_under_load(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_load_refuses_and_loses_nothing_on_redis() {
    upgraded_under_load(Ground::Redis(RedisServer::start())).await;
}

/// Metrics, readiness and status page are the new process' as soon as it takes over; a scrape misses a moment at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_hands_over_the_admin_listener() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let url = format!("http://127.0.0.1:{}/status.json", site.admin_port);
    answered_over_an_upgrade(&without_pool(), &mut site, &url, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_hands_over_the_listener_of_operators() {
    operators_over_an_upgrade(&without_pool()).await;
}

/// Kept connections end with the old process' listener, so that whoever has one finds the new process as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_takes_operators_connections_to_the_new_process() {
    operators_over_an_upgrade(&reqwest::Client::new()).await;
}

fn without_pool() -> reqwest::Client {
    reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap()
}

async fn operators_over_an_upgrade(client: &reqwest::Client) {
    let provider = Provider::quick().await;
    let address = format!("127.0.0.1:{}", free_port());
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        conf["operator_listen"] = address.clone().into();
    });
    site.start(&[]);
    let operator = site.command(&["operator", "create", "anna", "--role", "read"]);
    let url = format!("http://{address}/v1/status");
    answered_over_an_upgrade(client, &mut site, &url, operator["token"].as_str().unwrap()).await;
}

async fn answered_over_an_upgrade(client: &reqwest::Client, site: &mut Site, url: &str, token: &str) {
    // When the process that answers began, and whether it is ready.
    let scrape = async || {
        let asked = client.get(url).bearer_auth(token).send();
        let state: Value = asked.await.ok()?.json().await.ok()?;
        let began = state["at_ms"].as_i64()? - state["uptime_ms"].as_i64()?;
        Some((began, state["ready"].as_bool()?))
    };
    let (first, _) = eventually("the first process answers", scrape).await;
    let mut old = site.upgrade();
    let (mut answered, mut longest) = (Instant::now(), Duration::ZERO);
    eventually("the second process answers", async || {
        let found = scrape().await;
        if found.is_some() {
            longest = longest.max(answered.elapsed());
            answered = Instant::now();
        }
        let (began, ready) = found?;
        assert!(began == first || ready, "the new one is ready");
        (began != first).then_some(())
    })
    .await;
    assert!(longest < SCRAPE_GAP_MAX, "nobody answered for {longest:?}");
    assert!(
        old.try_wait().unwrap().is_none(),
        "the old one still lets its calls end"
    );
    old.kill().unwrap();
    old.wait().unwrap();
}

/// Half of a scrape's usual time-out. It takes a moment; the rest is for a busy machine, which may stop the test as well.
const SCRAPE_GAP_MAX: Duration = Duration::from_secs(5);

/// Starts another process in the place of the one that runs, which is given back once the new one serves.
async fn upgraded(site: &mut Site) -> Child {
    let url = format!("http://127.0.0.1:{}/status.json", site.admin_port);
    // A connection that is kept is the old process' to its end.
    let fresh = without_pool();
    let began = async || {
        let state: Value = fresh.get(&url).send().await.ok()?.json().await.ok()?;
        Some(state["at_ms"].as_i64()? - state["uptime_ms"].as_i64()?)
    };
    let first = began().await.unwrap();
    let old = site.upgrade();
    eventually("the new process serves", async || {
        began().await.filter(|began| *began > first + 10).map(drop)
    })
    .await;
    old
}

/// A stream and a whole answer run in the process that was taken over, and have more tokens than the catalogue says there can be: the new
/// process raises what they hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_the_old_process_whose_holds_have_to_be_raised_are_whole_and_billed_whole() {
    let pace = Pace {
        tokens: 40,
        pause: Duration::from_millis(10),
    };
    let provider = Provider::waiting(pace, 5).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    let mut listed = catalogue();
    for model in listed["models"].as_array_mut().unwrap() {
        if model["id"] == MODEL {
            model["max_completion_tokens"] = 10.into();
        }
    }
    std::fs::write(site.path("catalogue.yaml"), listed.to_string()).unwrap();
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    let calls = [(1, false), (2, true)].map(|(number, streams)| {
        let (url, key) = (format!("{}/llm/chat", site.base_url()), Arc::clone(load.key(0)));
        let messages = json!([{ "role": "user", "content": message(number) }]);
        // Without a maximum of its own, so that it is the catalogue's that is too low.
        let body = json!({ "model": MODEL, "stream": streams, "messages": messages }).to_string();
        tokio::spawn(async move {
            let prompt = prompt_tokens(body.as_bytes());
            let asked = reqwest::Client::new().post(url).bearer_auth(key.reveal());
            let asked = asked.header("content-type", "application/json").body(body);
            let text = asked.send().await.unwrap().text().await.unwrap();
            (number, prompt, text)
        })
    });
    eventually("both calls run", async || (provider.seen() == 2).then_some(())).await;
    let mut old = upgraded(&mut site).await;
    provider.go_on();
    for call in calls {
        let (number, prompt, text) = call.await.unwrap();
        let received = u64::try_from(text.matches("apple").count()).unwrap();
        assert!(received == pace.tokens && !text.contains("\"error\""), "{text}");
        let outcome = Outcome::Whole { received };
        let call = Call {
            number,
            prompt,
            outcome,
        };
        load.record.keep(0, vec![call]);
    }
    ended(&mut old).await;
    let ledger = site.ledger();
    eventually("both are billed whole", async || {
        load.record.check(&ledger, &provider).ok()
    })
    .await;
}

/// A stream runs in the process that was taken over, and its account is suspended at the other one.
async fn suspended_after_an_upgrade(ground: Ground) {
    let pace = Pace {
        tokens: 4_000,
        pause: Duration::from_millis(20),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(ground, &provider, |conf| conf["suspended_streams"] = "end".into());
    site.start(&[]);
    let keys = ["acme", "globex"].map(|name| new_account(&site.ledger(), name, "100"));
    let client = reqwest::Client::new();
    let mut streams = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let messages = json!([{ "role": "user", "content": message(u64::try_from(number).unwrap() + 1) }]);
        let body = json!({ "model": MODEL, "stream": true, "messages": messages });
        let call = client.post(format!("{}/llm/chat/stream", site.base_url()));
        let call = call.bearer_auth(key.reveal()).json(&body);
        let mut answer = call.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.chunk().await.unwrap().unwrap();
        streams.push(answer);
    }
    let [mut acme, mut globex] = <[reqwest::Response; 2]>::try_from(streams).unwrap();
    let mut old = upgraded(&mut site).await;
    site.command(&["account", "suspend", "acme"]);
    let suspended = Instant::now();
    let mut end = Vec::new();
    while let Some(piece) = acme.chunk().await.unwrap() {
        end.extend_from_slice(&piece);
        assert!(suspended.elapsed() < ENDS_WITHIN, "it runs on");
    }
    let end = String::from_utf8(end).unwrap();
    assert!(
        end.contains("This account is suspended.") && end.ends_with("data: [DONE]\n\n"),
        "{end}"
    );
    assert!(
        old.try_wait().unwrap().is_none(),
        "it was the old process that ended it"
    );
    assert!(globex.chunk().await.unwrap().is_some(), "another account's runs on");
    drop(globex);
    old.kill().unwrap();
    old.wait().unwrap();
    let ledger = site.ledger();
    eventually("nothing is held any more", async || {
        (view(&ledger, "acme").open_holds == 0).then_some(())
    })
    .await;
    assert!(
        view(&ledger, "acme").figures.balance < "100".parse().unwrap(),
        "what was delivered is billed"
    );
    assert_eq!(audit(&ledger).findings, []);
}

/// Of a suspension each gateway knows within a second; the rest is for a busy machine. The stream itself would take 80 seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_the_old_process_ends_with_a_suspension_at_the_new_one_on_sqlite() {
    suspended_after_an_upgrade(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_the_old_process_ends_with_a_suspension_at_the_new_one_on_redis() {
    suspended_after_an_upgrade(Ground::Redis(RedisServer::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_without_a_gateway_says_so() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    site.kill();
    let failed = site.serve_and_fail(&["--upgrade"]);
    assert!(failed.contains("start without --upgrade"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_serve_beside_a_gateway_say_that_it_runs_and_leave_it_alone() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let checked = site.command(&["check"]);
    assert_eq!(
        (&checked["ok"], &checked["errors"]),
        (&json!(true), &json!([])),
        "{checked}"
    );
    assert!(
        checked["passed"].to_string().contains("a gateway runs with"),
        "{checked}"
    );
    let failed = site.serve_and_fail(&[]);
    assert!(
        failed.contains("listen: ") && failed.contains("serve --upgrade takes over"),
        "{failed}"
    );
    assert_eq!(failed.lines().count(), 1, "{failed}");
    // It still answers to a process that does take over.
    let mut before = site.upgrade();
    let ended = tokio::task::spawn_blocking(move || before.wait().unwrap())
        .await
        .unwrap();
    assert!(ended.success(), "{}", site.log());
    let log = site.log();
    assert!(!log.contains("ERROR"), "{log}");
}

/// It was taken for the gateway's own, whoever had it, and neither a start nor an upgrade came about.
#[tokio::test(flavor = "multi_thread")]
async fn check_beside_a_gateway_finds_an_address_that_another_process_has() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    // This test's own process is the other one.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for key in ["listen", "admin_listen", "operator_listen"] {
        let mut before = Value::Null;
        site.change(|conf| before = std::mem::replace(&mut conf[key], json!(address)));
        let checked = site.command(&["check"]);
        let errors = checked["errors"].to_string();
        assert_eq!(checked["ok"], json!(false), "{key}: {checked}");
        assert!(errors.contains(key) && errors.contains(&address), "{key}: {checked}");
        site.change(|conf| match before {
            Value::Null => drop(conf.as_object_mut().unwrap().remove(key)),
            before => conf[key] = before,
        });
    }
    assert_eq!(site.command(&["check"])["ok"], json!(true));
}
