//! A graceful stop: everything finishes, everything is billed, and the process ends at once.

use std::time::{Duration, Instant};

use super::load::{Load, one_call};
use super::process::{Ground, Site, journals};
use super::record::Outcome;
use super::upstream::{Pace, Provider};
use crate::harness::redis_server::RedisServer;

/// How long the process may take to end once nothing runs. A second, and what a busy machine adds.
const END_MAX: Duration = Duration::from_millis(1500);

async fn stop_with_streams(ground: Ground) {
    let pace = Pace {
        tokens: 40,
        pause: Duration::from_millis(25),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 200);
    let running = load.start(&site);
    // Each worker has begun a call: the provider has seen 200 of them.
    crate::harness::eventually("200 calls run", async || (provider.seen() >= 200).then_some(())).await;
    running.stop();
    site.signal("-TERM");
    let ended = tokio::task::spawn_blocking(move || {
        site.wait_end();
        (Instant::now(), site)
    });
    load.finish(running).await;
    let last_answer = Instant::now();
    let (ended, mut site) = ended.await.unwrap();
    assert!(
        ended.saturating_duration_since(last_answer) < END_MAX,
        "{:?}",
        ended - last_answer
    );
    let cut: Vec<_> = load
        .record
        .all()
        .filter(|call| matches!(call.outcome, Outcome::Cut { .. }))
        .collect();
    assert!(cut.is_empty(), "{cut:?}");
    let whole = load
        .record
        .all()
        .filter(|call| matches!(call.outcome, Outcome::Whole { .. }))
        .count();
    assert!(whole >= 200, "{whole}");
    assert_eq!(
        journals(&site.data_dir(), "journal"),
        0,
        "everything was billed before the end"
    );
    site.start(&[]);
    load.record.check(&site.ledger(), &provider).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_a_stop_lets_200_streams_finish_and_bills_them_on_sqlite() {
    stop_with_streams(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_a_stop_lets_200_streams_finish_and_bills_them_on_redis() {
    stop_with_streams(Ground::Redis(RedisServer::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_an_idle_gateway_stops_at_once() {
    let provider = Provider::start(Pace {
        tokens: 1,
        pause: Duration::ZERO,
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let client = reqwest::Client::new();
    let call = one_call(&client, &site.base_url(), load.key(0), 2).await;
    assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
    // The client's connection stays open; it does not hold the stop up.
    site.signal("-TERM");
    let took = tokio::task::block_in_place(|| site.wait_end());
    assert!(took < END_MAX, "{took:?}");
    drop(client);
}

/// After `drain_seconds` the streams that still run get the error event and `[DONE]`, and pay for what was delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_a_stream_that_outlives_the_stop_is_told_and_billed() {
    let provider = Provider::start(Pace {
        tokens: 100_000,
        pause: Duration::from_millis(5),
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| conf["drain_seconds"] = 1.into());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let (client, url) = (reqwest::Client::new(), site.base_url());
    let key = std::sync::Arc::clone(load.key(0));
    let call = tokio::spawn(async move { one_call(&client, &url, &key, 2).await });
    crate::harness::eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    site.signal("-TERM");
    tokio::task::block_in_place(|| site.wait_end());
    let call = call.await.unwrap();
    let Outcome::Failed { received } = call.outcome else {
        panic!("{call:?}")
    };
    site.start(&[]);
    let mut load = load;
    load.record.keep(0, vec![call]);
    load.record.check(&site.ledger(), &provider).unwrap();
    assert!(received > 3);
}
