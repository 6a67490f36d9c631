//! `kill -9`, at random moments and at every named point.

use std::pin::pin;
use std::time::Duration;

use super::load::{CALLS_MAX, Load};
use super::process::{Ground, Site, audit, journals, new_account, view};
use super::told::receipts_are_told_once;
use super::upstream::{Pace, Provider};
use crate::chat::request;
use crate::harness::catalogue::{SMALL, catalogue};
use crate::harness::client::Client;
use crate::harness::gateway::decimal;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::{Events, Reply, Upstream, eventually};

const PACE: Pace = Pace {
    tokens: 20,
    pause: Duration::from_millis(4),
};

/// How many times the gateway is killed in a run of the tests. `TOLLGATE_KILLS` says another number.
const KILLS: u64 = 6;

/// After so many the callers are others: what a call that was cut may have cost is known within bounds, which add up.
const KILLS_A_LOAD: u64 = 20;
const WORKERS: usize = 50;

fn kills() -> u64 {
    std::env::var("TOLLGATE_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Moments that differ from run to run; the first is printed with the test.
fn random() -> u64 {
    let [.., a, b] = *uuid::Uuid::now_v7().as_bytes();
    u64::from(u16::from_le_bytes([a, b]))
}

async fn reconciled(site: &Site, load: &mut Load, provider: &Provider) {
    load.reconciled(site, provider).await;
    eventually("the dead process' journal is resolved", async || {
        (journals(&site.data_dir(), "journal") == 1).then_some(())
    })
    .await;
    assert_eq!(journals(&site.data_dir(), "refused"), 0);
}

async fn random_kills(ground: Ground) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let (mut load, mut accounts) = (Load::new(&site, WORKERS), Vec::new());
    for n in 0..kills() {
        if n > 0 && n % KILLS_A_LOAD == 0 {
            receipts_are_told_once(&site, &load, WORKERS).await;
            accounts.extend(load.balances(&site));
            load = Load::of(&site, &format!("after-{n}-worker"), WORKERS);
            load.begin_at(n / KILLS_A_LOAD * CALLS_MAX);
        }
        let running = load.start(&site);
        let moment = 20 + random() % 400;
        println!("kill {n} after {moment} ms");
        // Sleeps: any moment is what is tried. A kill that waited for something to be seen would always come right after that.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        site.kill();
        load.finish(running).await;
        site.start(&[]);
        reconciled(&site, &mut load, &provider).await;
    }
    println!(
        "{} calls after the last of {} kills",
        load.record.all().count(),
        kills()
    );
    receipts_are_told_once(&site, &load, WORKERS).await;
    let ledger = site.ledger();
    for (name, balance) in accounts {
        let now = decimal(view(&ledger, &name).figures.balance);
        assert_eq!(now, balance, "{name}, long after its last call");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_loses_and_doubles_nothing_on_sqlite() {
    random_kills(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_loses_and_doubles_nothing_on_redis() {
    random_kills(Ground::Redis(RedisServer::start())).await;
}

/// `tollgate ledger recover` does by hand what a start does.
async fn recovered_by_hand(ground: Ground) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 20);
    let running = load.start(&site);
    eventually("calls run", async || (provider.seen() > 60).then_some(())).await;
    site.kill();
    load.finish(running).await;
    let report = site.command(&["ledger", "recover"]);
    assert_eq!(report["journals"], 1, "{report}");
    assert!(report["settled"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(journals(&site.data_dir(), "journal"), 0);
    load.record.check(&site.ledger(), &provider).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_recovers_by_hand_on_sqlite() {
    recovered_by_hand(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_recovers_by_hand_on_redis() {
    recovered_by_hand(Ground::Redis(RedisServer::start())).await;
}

/// The gateway kills itself at a point under load, is started again, and the books are right.
async fn kill_at(ground: Ground, point: &str, times: u32) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 20);
    site.kill();
    site.start(&[("TOLLGATE_CRASH_AT", &format!("{point}:{times}"))]);
    let running = load.start(&site);
    eventually("the gateway kills itself", async || site.has_ended().then_some(())).await;
    site.kill();
    load.finish(running).await;
    site.start(&[]);
    reconciled(&site, &mut load, &provider).await;
}

macro_rules! killed_at {
    ($($name:ident, $redis:ident: $point:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            kill_at(Ground::Sqlite, $point, 7).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $redis() {
            kill_at(Ground::Redis(RedisServer::start()), $point, 7).await;
        }
    )*};
}

killed_at! {
    killed_before_the_intent_on_sqlite, killed_before_the_intent_on_redis: "intent:before";
    killed_after_the_intent_on_sqlite, killed_after_the_intent_on_redis: "intent:after";
    killed_before_the_reserve_on_sqlite, killed_before_the_reserve_on_redis: "reserve:before";
    killed_after_the_reserve_on_sqlite, killed_after_the_reserve_on_redis: "reserve:after";
    killed_before_the_first_byte_on_sqlite, killed_before_the_first_byte_on_redis: "first-byte:before";
    killed_after_the_first_byte_on_sqlite, killed_after_the_first_byte_on_redis: "first-byte:after";
    killed_before_the_debit_is_written_on_sqlite, killed_before_the_debit_is_written_on_redis: "debit:before";
    killed_after_the_debit_is_written_on_sqlite, killed_after_the_debit_is_written_on_redis: "debit:after";
    killed_before_the_settlement_is_sent_on_sqlite, killed_before_the_settlement_is_sent_on_redis: "settlement:before";
    killed_after_the_settlement_is_sent_on_sqlite, killed_after_the_settlement_is_sent_on_redis: "settlement:after";
    killed_before_the_acknowledgement_on_sqlite, killed_before_the_acknowledgement_on_redis: "acknowledged:before";
    killed_after_the_acknowledgement_on_sqlite, killed_after_the_acknowledgement_on_redis: "acknowledged:after";
}

/// The next start closes the hold of the account's call, and takes nothing.
async fn has_its_credit_after_a_start(site: &mut Site) {
    site.start(&[]);
    let ledger = site.ledger();
    let account = eventually("the hold is closed", async || {
        Some(view(&ledger, "acme")).filter(|account| account.open_holds == 0)
    });
    assert_eq!(account.await.figures.balance.to_string(), "100");
    assert!(audit(&ledger).findings.is_empty());
}

/// A gateway that is killed while it gathers a whole answer has delivered nothing of it.
async fn killed_while_gathering(ground: Ground) {
    let body = whole_chat(&" word".repeat(300), Some((50, 30))).to_string();
    let half = Reply::json_head(body.len()).bytes(&body[..1_000]).silence();
    let (provider, upstream) = (Provider::start(PACE).await, Upstream::always(half).await);
    let mut site = Site::new(ground, &provider, |conf| {
        conf["providers"]["main"]["base_url"] = upstream.base_url().into();
        conf["threads"] = 1.into();
    });
    site.start(&[]);
    let key = new_account(&site.ledger(), "acme", "100");
    let client = Client::http1(([127, 0, 0, 1], site.port).into()).with_key(key.reveal());
    let mut call = pin!(client.post_request("/llm/chat", request(SMALL)).send());
    let gathers = async {
        upstream.asked(1).await;
        // The gateway has one thread: by the time that it has answered these it has read what its upstream sent.
        for _ in 0..20 {
            client.get("/llm/health").await.ok();
        }
    };
    tokio::select! {
        answer = &mut call => panic!("an answer came: {answer:?}"),
        () = gathers => {}
    }
    site.kill();
    call.await.unwrap_err();
    has_its_credit_after_a_start(&mut site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_a_whole_answer_is_gathered_on_sqlite() {
    killed_while_gathering(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_a_whole_answer_is_gathered_on_redis() {
    killed_while_gathering(Ground::Redis(RedisServer::start())).await;
}

/// The upstream fails before anything is delivered, so the call is free. The gateway is killed as it gives the hold back.
async fn killed_while_giving_back(ground: Ground) {
    let (provider, upstream) = (
        Provider::start(PACE).await,
        Upstream::always(Reply::stream().role().close()).await,
    );
    let mut site = Site::new(ground, &provider, |conf| {
        conf["providers"]["main"]["base_url"] = upstream.base_url().into();
    });
    site.start(&[]);
    let key = new_account(&site.ledger(), "acme", "100");
    site.kill();
    site.start(&[("TOLLGATE_CRASH_AT", "given-back:after:1")]);
    let client = Client::http1(([127, 0, 0, 1], site.port).into()).with_key(key.reveal());
    let call = client.post_request("/llm/chat/stream", request(SMALL)).send().await;
    // Where its head came first, its body ends early.
    drop(call);
    eventually("the gateway kills itself", async || site.has_ended().then_some(())).await;
    site.kill();
    has_its_credit_after_a_start(&mut site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_giving_back_is_free_on_sqlite() {
    killed_while_giving_back(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_giving_back_is_free_on_redis() {
    killed_while_giving_back(Ground::Redis(RedisServer::start())).await;
}

/// Money: a catalogue's maximum was too low, and what a kill left beyond it was billed to nobody, though the hold pays for it.
async fn killed_beyond_the_maximum(ground: Ground) {
    let (provider, upstream) = (
        Provider::start(PACE).await,
        Upstream::always(Reply::stream().role().text(&" word".repeat(8)).silence()).await,
    );
    let mut site = Site::new(ground, &provider, |conf| {
        conf["providers"]["main"]["base_url"] = upstream.base_url().into();
    });
    let mut listed = catalogue();
    for model in listed["models"].as_array_mut().unwrap() {
        if model["id"] == SMALL {
            model["max_completion_tokens"] = 5.into();
        }
    }
    std::fs::write(site.path("catalogue.yaml"), listed.to_string()).unwrap();
    site.start(&[]);
    let key = new_account(&site.ledger(), "acme", "100");
    let client = Client::http1(([127, 0, 0, 1], site.port).into()).with_key(key.reveal());
    // It sets no maximum of its own.
    let call = client.post_request("/llm/chat/stream", request(SMALL));
    let mut events = Events::of(call).await.ok();
    for _ in 0..2 {
        events.next().await.unwrap();
    }
    site.kill();
    site.start(&[]);
    let ledger = site.ledger();
    let receipt = eventually("it is billed", async || ledger.receipts("acme").pop()).await;
    assert_eq!(receipt.billed.completion_tokens, 8);
    assert!(audit(&ledger).findings.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_beyond_a_maximum_before_a_kill_is_billed_on_sqlite() {
    killed_beyond_the_maximum(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_beyond_a_maximum_before_a_kill_is_billed_on_redis() {
    killed_beyond_the_maximum(Ground::Redis(RedisServer::start())).await;
}
