//! `kill -9` around a call with an `Idempotency-Key`, and its retry: the provider is asked once at most, and one debit is taken.

use rust_decimal::Decimal;
use serde_json::Value;

use super::process::{Ground, Site, audit, new_account, view};
use super::upstream::Provider;
use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Answer, Cue, Events, Reply, Upstream, eventually};
use crate::idempotency::{again, is_unavailable};

const PATH: &str = "/llm/chat/stream";

/// A gateway that may be killed, its upstream, and a client.
struct Scene {
    site: Site,
    upstream: Upstream,
    client: Client,
    _provider: Provider,
}

impl Scene {
    /// A gateway that kills itself at this point of its second life, in which it is.
    async fn new(ground: Ground, reply: Reply, point: Option<&str>) -> Scene {
        let (provider, upstream) = (Provider::quick().await, Upstream::always(reply).await);
        let mut site = Site::new(ground, &provider, |conf| {
            conf["providers"]["main"]["base_url"] = upstream.base_url().into();
        });
        site.start(&[]);
        let key = new_account(&site.ledger(), "acme", "100");
        if let Some(point) = point {
            site.kill();
            site.start(&[("TOLLGATE_CRASH_AT", &format!("{point}:1"))]);
        }
        let client = Client::http1(([127, 0, 0, 1], site.port).into()).with_key(key.reveal());
        Scene {
            site,
            upstream,
            client,
            _provider: provider,
        }
    }

    fn call(&self) -> reqwest::RequestBuilder {
        let call = self.client.post_request(PATH, request(SMALL));
        call.header("idempotency-key", "one")
    }

    /// Makes the call; what came of its answer before the gateway was gone.
    async fn cut_call(&self) -> (String, Vec<u8>) {
        let Ok(mut answer) = self.call().send().await else {
            return Default::default();
        };
        let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
        let mut came = Vec::new();
        while let Ok(Some(bytes)) = answer.chunk().await {
            came.extend_from_slice(&bytes);
        }
        (id, came)
    }

    /// Another life, and the retry in it.
    async fn retry(&mut self) -> Answer {
        self.site.kill();
        self.site.start(&[]);
        again(&self.client, PATH, &request(SMALL), "one").await
    }

    /// What was spent, once every call is closed.
    async fn spent(&self) -> Decimal {
        let ledger = self.site.ledger();
        let account = eventually("every call is closed", async || {
            Some(view(&ledger, "acme")).filter(|account| account.open_holds == 0)
        })
        .await;
        assert!(audit(&ledger).findings.is_empty());
        let balance: Decimal = account.figures.balance.to_string().parse().unwrap();
        assert_eq!(
            ledger.receipts("acme").len(),
            usize::from(balance < Decimal::ONE_HUNDRED)
        );
        Decimal::ONE_HUNDRED - balance
    }
}

fn answer() -> Reply {
    Reply::stream_of(&["Hel", "lo"], 9, 3)
}

/// What the retry gets after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// The call is made now.
    Made,
    /// It is said to run, until the key of a call that sent nothing expires.
    Waits,
    /// There is no answer, and the provider was asked so often.
    Unavailable(usize),
    /// The answer.
    Replayed,
}

async fn killed_at(ground: Ground, point: &str, expected: Retry) {
    let mut scene = Scene::new(ground, answer(), Some(point)).await;
    let (id, came) = scene.cut_call().await;
    eventually("the gateway kills itself", async || {
        scene.site.has_ended().then_some(())
    })
    .await;
    let asked = scene.upstream.seen().len();
    if expected == Retry::Waits {
        scene.site.kill();
        scene.site.start(&[]);
        let answer = Answer::read(scene.call().send().await.unwrap()).await;
        answer.error(409, "idempotency_request_in_progress");
        assert_eq!((asked, scene.upstream.seen().len()), (0, 0));
        assert_eq!(scene.spent().await, Decimal::ZERO);
        let Ground::Redis(server) = &scene.site.ground else {
            panic!("only in Redis")
        };
        let order = "redis.call('KEYS','tg1:{acme}:idempotency:*:order')[1]";
        let asked = server.ask(&format!(
            "EVAL \"return redis.call('ZRANGE',{order},0,0,'WITHSCORES')[2]\" 0"
        ));
        let expires: i64 = asked.last().unwrap().parse().unwrap();
        let now = i64::try_from(
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_millis(),
        );
        assert!(expires - now.unwrap() <= 60_000, "it is known for longer than a minute");
        return;
    }
    let got = scene.retry().await;
    let once = cost(SMALL, 9, 3);
    match expected {
        Retry::Made => {
            got.clone().ok();
            assert_eq!(got.header("idempotency-replayed"), "");
            assert_eq!((asked, scene.upstream.seen().len()), (0, 1));
            assert_eq!(scene.spent().await, once);
        }
        Retry::Unavailable(times) => {
            is_unavailable(&got, Some(&id).filter(|id| !id.is_empty()).map(String::as_str));
            assert_eq!((asked, scene.upstream.seen().len()), (times, times));
            let expected = if times == 0 { Decimal::ZERO } else { once };
            assert_eq!(scene.spent().await, expected);
        }
        Retry::Replayed => {
            got.clone().ok();
            assert_eq!(got.header("idempotency-replayed"), "true");
            assert_eq!(got.header("x-original-request-id"), id);
            assert!(got.body.starts_with(&came) && got.text().ends_with("data: [DONE]\n\n"));
            assert_eq!(scene.upstream.seen().len(), 1);
            assert_eq!(scene.spent().await, once);
        }
        Retry::Waits => unreachable!(),
    }
    // And so again.
    if expected != Retry::Made {
        let more = again(&scene.client, PATH, &request(SMALL), "one").await;
        assert_eq!((more.status, &more.body.len()), (got.status, &got.body.len()));
    }
    assert!(scene.upstream.seen().len() <= 1);
}

macro_rules! killed {
    ($($embedded:ident: $of_embedded:expr, $redis:ident: $of_redis:expr, $point:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $embedded() {
            killed_at(Ground::Sqlite, $point, $of_embedded).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $redis() {
            killed_at(Ground::Redis(RedisServer::start()), $point, $of_redis).await;
        }
    )*};
}

killed! {
    before_it_is_known_embedded: Retry::Made, before_it_is_known_redis: Retry::Waits, "idempotency-sent:before";
    before_it_is_sent_embedded: Retry::Unavailable(0), before_it_is_sent_redis: Retry::Unavailable(0), "idempotency-sent:after";
    after_the_debit_embedded: Retry::Unavailable(1), after_the_debit_redis: Retry::Unavailable(1), "idempotency:debited";
    before_the_answer_is_kept_embedded: Retry::Unavailable(1), before_the_answer_is_kept_redis: Retry::Unavailable(1),
        "idempotency-ended:before";
    after_the_answer_is_kept_embedded: Retry::Replayed, after_the_answer_is_kept_redis: Retry::Replayed, "idempotency-ended:after";
}

/// Killed within the stream: what was delivered is billed, once, and the call is not made again.
async fn killed_within_the_stream(ground: Ground) {
    let cue = Cue::new();
    let reply = Reply::stream()
        .role()
        .text("Hello")
        .text(" world")
        .wait(&cue)
        .finish()
        .usage(9, 3)
        .done();
    let mut scene = Scene::new(ground, reply, None).await;
    let mut events = Events::of(scene.call()).await.ok();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    is_unavailable(&scene.retry().await, Some(&id));
    assert_eq!(scene.upstream.seen().len(), 1);
    assert_eq!(scene.spent().await, cost(SMALL, PROMPT, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_within_the_stream_embedded() {
    killed_within_the_stream(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_within_the_stream_redis() {
    killed_within_the_stream(Ground::Redis(RedisServer::start())).await;
}

/// While an upgrade lets the old process' calls end, their keys are known to the new one.
async fn upgraded(ground: Ground) {
    let cue = Cue::new();
    let reply = Reply::stream()
        .role()
        .text("Hello")
        .wait(&cue)
        .text("!")
        .finish()
        .usage(9, 3)
        .done();
    let mut scene = Scene::new(ground, reply, None).await;
    let mut events = Events::of(scene.call()).await.ok();
    events.next().await.unwrap();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    let state = format!("http://127.0.0.1:{}/status.json", scene.site.admin_port);
    let began = async || {
        let state: Value = reqwest::get(&state).await.ok()?.json().await.ok()?;
        Some(state["at_ms"].as_i64()? - state["uptime_ms"].as_i64()?)
    };
    let first = eventually("the first process answers", began).await;
    let mut old = scene.site.upgrade();
    eventually("the second process takes over", async || {
        began().await.filter(|at| *at != first)
    })
    .await;
    // Each connection comes to the new process by now, which does not make the call again.
    let mut said = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let fresh = Client::http1(([127, 0, 0, 1], scene.site.port).into()).with_key(&scene.client.key);
        let call = fresh
            .post_request(PATH, request(SMALL))
            .header("idempotency-key", "one");
        let answer = Answer::read(call.send().await.unwrap()).await;
        said.insert((answer.status, answer.json()["error"]["type"].to_string()));
    }
    let running = (409, "\"idempotency_request_in_progress\"".to_owned());
    assert_eq!(said, [running].into());
    cue.give_all();
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    eventually("the old process ends", async || old.try_wait().unwrap()).await;
    let last = again(&scene.client, PATH, &request(SMALL), "one").await;
    match last.status {
        200 => assert_eq!(last.header("x-original-request-id"), id),
        _ => is_unavailable(&last, Some(&id)),
    }
    assert_eq!(scene.upstream.seen().len(), 1);
    assert_eq!(scene.spent().await, cost(SMALL, 9, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_makes_no_call_again_embedded() {
    upgraded(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_makes_no_call_again_redis() {
    upgraded(Ground::Redis(RedisServer::start())).await;
}
