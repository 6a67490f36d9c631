//! Many calls with one key at once, over several gateways, and a Redis that is away.

use futures::future::join_all;
use rust_decimal::Decimal;

use super::{IN_PROGRESS, again, is_replay, keyed};
use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::fleet::Fleet;
use crate::harness::redis_group::RedisCluster;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Reply, Upstream, eventually};
use crate::nodes::unlimited;

/// 100 at once: one call of the provider, one debit, 99 honest answers; and whoever comes back gets the same bytes.
async fn many_at_once(gateways: usize, store: &str) {
    const CALLERS: usize = 100;
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::default().wait(&cue).and(Reply::stream_of(&["Hel", "lo"], 9, 3))).await;
    let fleet = Fleet::start(gateways, store, unlimited(), &upstream).await;
    let key = fleet.account("acme", "pro", Decimal::TEN).await;
    let clients = fleet.h2c(6 / gateways, &key);
    let body = request(SMALL);
    let calls = join_all(
        (0..CALLERS).map(async |n| keyed(&clients[n % clients.len()], "/llm/chat/stream", body.clone(), "one").await),
    );
    let watch = async {
        upstream.asked(1).await;
        // All the others are answered while it runs.
        eventually("99 were told that it runs", async || {
            let told = fleet.sum("tollgate_denials_total", &[("reason", IN_PROGRESS)]).await;
            (told == Decimal::from(CALLERS - 1)).then_some(())
        })
        .await;
        cue.give_all();
    };
    let (answers, ()) = tokio::join!(calls, watch);
    let (got, told): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((got.len(), told.len()), (1, CALLERS - 1));
    for answer in &told {
        answer.error(409, IN_PROGRESS);
        assert_eq!(answer.header("retry-after"), "1");
    }
    let later = join_all(
        (0..CALLERS).map(async |n| again(&clients[n % clients.len()], "/llm/chat/stream", &body, "one").await),
    );
    for answer in later.await {
        is_replay(&answer, &got[0]);
    }
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(fleet.settled_balance("acme").await, Decimal::TEN - cost(SMALL, 9, 3));
}

#[tokio::test]
async fn a_hundred_at_once_make_one_call_over_three_gateways_on_one_redis() {
    many_at_once(3, &RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_hundred_at_once_make_one_call_over_two_gateways_on_a_cluster() {
    many_at_once(2, &RedisCluster::start().url()).await;
}

#[tokio::test]
async fn a_hundred_at_once_make_one_call_on_the_embedded_ledger() {
    many_at_once(1, "sqlite://{dir}/ledger.db").await;
}

/// While Redis is away no call with a key is made, and what was made before is given again once it is back.
#[tokio::test]
async fn a_redis_that_is_away_makes_nobody_pay_twice() {
    let server = RedisServer::start();
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::default().wait(&cue).and(Reply::chat("Hi", 9, 1))).await;
    let fleet = Fleet::start(1, &server.url(), unlimited(), &upstream).await;
    let key = fleet.account("acme", "pro", Decimal::TEN).await;
    let client = fleet.http1(0, &key);
    let first = keyed(&client, "/llm/chat", request(SMALL), "a");
    let meanwhile = async {
        upstream.asked(1).await;
        server.freeze();
        let other = client.clone();
        let refused = keyed(&other, "/llm/chat", request(SMALL), "a").await;
        refused.error(503, "service_unavailable");
        cue.give_all();
    };
    let (first, ()) = tokio::join!(first, meanwhile);
    let first = first.ok();
    server.thaw();
    let second = eventually("Redis is back", async || {
        let answer = again(&client, "/llm/chat", &request(SMALL), "a").await;
        (answer.status != 503).then_some(answer)
    })
    .await;
    is_replay(&second, &first);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(fleet.settled_balance("acme").await, Decimal::TEN - cost(SMALL, 9, 1));
}
