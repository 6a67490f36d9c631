//! A running call and its credit in Redis: where a gateway can no longer be sure that the credit is set aside, the call ends.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tollgate::clock::Clock;
use tollgate::ledger::redis::{Options, RedisLedger};
use tollgate::ledger::{Hold, Ledger};
use tollgate::pure::account::{Denial, ReserveRequest, Scope};
use tollgate::pure::ids::{ApiKey, RequestId};
use tollgate::pure::limits::Limits;
use tollgate::pure::money::Credits;

use crate::bounds::billed;
use crate::chat::PROMPT;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::gateway::NOW;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, deltas, eventually};

/// A hold's life. A call whose hold cannot be renewed ends after two thirds of it.
const LIFE: Duration = Duration::from_secs(6);
/// Words of an answer before its upstream is silent.
const WORDS: u64 = 20;
const CREDIT: &str = "0.001";

fn body() -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 500 }).to_string()
}

async fn silent_after_words() -> Upstream {
    let begun = Reply::stream().role();
    Upstream::always((0..WORDS).fold(begun, |reply, _| reply.text(" word")).silence()).await
}

/// A way to a Redis that can be cut: what is sent then waits.
struct Wire {
    address: std::net::SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Wire {
    async fn to(redis: &RedisServer) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, port) = (listener.local_addr().unwrap(), redis.port());
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(near_read, far_write, cut.clone()));
                tokio::spawn(pass(far_read, near_write, cut.clone()));
            }
        });
        Wire { address, is_cut }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

async fn pass(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, mut cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Another gateway's ledger, whose clock is so much later.
struct Other {
    ledger: Ledger,
    clock: Clock,
}

impl Other {
    async fn at(redis: &RedisServer, later: Duration) -> Other {
        let clock = Clock::manual(NOW.plus_millis(i64::try_from(later.as_millis()).unwrap()));
        let (url, options) = (
            redis.url(),
            Options {
                clock: clock.clone(),
                timeout: Duration::from_secs(10),
                ..Options::default()
            },
        );
        let open = move || RedisLedger::connect(&url, options).unwrap();
        let ledger = tokio::task::spawn_blocking(open).await.unwrap();
        Other {
            ledger: Ledger::Redis(ledger),
            clock,
        }
    }

    async fn reserve(&self, key: &str, amount: Decimal) -> Result<Hold, Denial> {
        let digest = ApiKey::parse("tg_", key).unwrap().digest();
        let found = self.ledger.authenticate(&digest).await.unwrap().unwrap();
        let caller = found.checked(self.clock.now()).unwrap();
        let amount: Credits = amount.normalize().to_string().parse().unwrap();
        let limits = Limits {
            rpm: 1_000,
            tpm: 1_000_000,
            concurrency: 1_000,
        };
        let request = ReserveRequest {
            id: RequestId::from_bytes(*uuid::Uuid::now_v7().as_bytes()),
            scope: Scope::Account,
            limits,
            quota: Credits::MAX,
            wanted: amount,
            at_least: amount,
            tokens: 1,
            expires: self.clock.now().plus_millis(600_000),
            is_counted: false,
            is_last: true,
            spend: None,
        };
        caller.reserve(&request).await.unwrap()
    }

    /// On a thread of its own, as it blocks.
    async fn close(self) {
        let ledger = Arc::new(self.ledger);
        tokio::task::spawn_blocking(move || ledger.close()).await.unwrap();
    }
}

fn last_error(events: &[String]) -> Value {
    let [.., error, done] = events else {
        panic!("{events:?}")
    };
    assert_eq!(done, "[DONE]");
    serde_json::from_str(error).unwrap()
}

async fn is_billed_what_was_delivered(gateway: &Gateway, events: &[String]) {
    assert_eq!(deltas(events).matches(" word").count() as u64, WORDS);
    billed(gateway).await;
    let balance = gateway.settled_balance().await;
    assert!(balance >= Decimal::ZERO, "{balance}");
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, WORDS));
}

/// Its only call is counted as this.
async fn has_outcome(gateway: &Gateway, outcome: &str) {
    eventually("it is over", async || {
        let (metrics, labels) = (gateway.metrics(), [("status", "200"), ("outcome", outcome)]);
        (metrics.sum("tollgate_requests_total", &labels) == Decimal::ONE).then_some(())
    })
    .await;
}

/// The gateway loses sight of Redis while a stream runs, and another spends what it can: the stream ends before its hold does, and its
/// debit comes while that holds its credit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_cut_off_from_redis_ends_its_streams_before_their_credit_is_free() {
    let redis = RedisServer::start();
    let (upstream, wire) = (silent_after_words().await, Wire::to(&redis).await);
    let setup = Setup::over(&upstream).redis(&wire.url()).hold_ttl(LIFE).credit(CREDIT);
    let gateway = setup.start().await;
    let mut events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
    let mut read = Vec::new();
    while read.len() <= usize::try_from(WORDS).unwrap() {
        read.push(events.next().await.unwrap());
    }
    let held = gateway.held().await;
    wire.is_cut.send_replace(true);
    read.extend(events.rest().await);
    let error = last_error(&read);
    assert_eq!(error["error"]["code"], 503, "{error}");
    upstream.hung_up().await;

    let credit: Decimal = CREDIT.parse().unwrap();
    let other = Other::at(&redis, LIFE / 4 * 3).await;
    let denied = other.reserve(&gateway.key, credit).await;
    assert!(matches!(denied, Err(Denial::Credit { .. })), "{denied:?}");
    let rest = other.reserve(&gateway.key, credit - held).await.unwrap();
    wire.is_cut.send_replace(false);
    eventually("the debit has come", async || {
        (!gateway.usage().await.is_empty()).then_some(())
    })
    .await;
    rest.release();
    is_billed_what_was_delivered(&gateway, &read).await;
    has_outcome(&gateway, "ledger_failed").await;
    other.close().await;
    gateway.check_books().await;
}

/// A hold is gone from Redis, as after a fail-over that lost it, and another gateway has all of the credit.
#[tokio::test]
async fn a_stream_whose_hold_is_gone_is_ended_when_its_credit_is_gone_too() {
    let (redis, upstream) = (RedisServer::start(), silent_after_words().await);
    let setup = Setup::over(&upstream).redis(&redis.url()).hold_ttl(LIFE).credit(CREDIT);
    let gateway = setup.start().await;
    let other = Other::at(&redis, LIFE * 2).await;
    let events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
    let taken = other.reserve(&gateway.key, CREDIT.parse().unwrap()).await.unwrap();
    let events = events.rest().await;
    let error = last_error(&events);
    assert_eq!(error["error"]["code"], 402, "{error}");
    assert_eq!(error["error"]["type"], "insufficient_credits", "{error}");
    upstream.hung_up().await;
    taken.release();
    is_billed_what_was_delivered(&gateway, &events).await;
    has_outcome(&gateway, "dropped").await;
    other.close().await;
    gateway.check_books().await;
}

#[tokio::test]
async fn a_hold_that_is_gone_is_made_anew_when_its_credit_is_there() {
    let cue = Cue::new();
    let begun = Reply::stream().role().text(" word").wait(&cue);
    let reply = (1..WORDS).fold(begun, |reply, _| reply.text(" word"));
    let (redis, upstream) = (RedisServer::start(), Upstream::always(reply.finish().done()).await);
    let setup = Setup::over(&upstream).redis(&redis.url()).hold_ttl(LIFE).credit(CREDIT);
    let gateway = setup.start().await;
    let other = Other::at(&redis, LIFE * 2).await;
    let events = gateway.http1.stream("/llm/chat/stream", body()).await.ok();
    let held = gateway.held().await;
    let one = "0.000000000001".parse().unwrap();
    other.reserve(&gateway.key, one).await.unwrap().release();
    eventually("the hold is gone", async || (gateway.held().await < held).then_some(())).await;
    eventually("the hold is there again", async || {
        (gateway.held().await == held).then_some(())
    })
    .await;
    cue.give();
    let events = events.rest().await;
    assert!(!events.concat().contains("\"error\""), "{events:?}");
    is_billed_what_was_delivered(&gateway, &events).await;
    other.close().await;
    gateway.check_books().await;
}
