//! `Idempotency-Key`: a call is made and billed once, and its answer given again byte for byte, on both stores.

use futures::future::join_all;
use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, LARGE, SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::{Answer, Cue, Events, Gateway, KeySpec, Raw, Reply, Setup, Upstream, eventually};
use crate::nodes::unlimited;

const IN_PROGRESS: &str = "idempotency_request_in_progress";
const CONFLICT: &str = "idempotency_key_conflict";
const UNAVAILABLE: &str = "idempotency_result_unavailable";

async fn keyed(client: &Client, path: &str, body: impl Into<reqwest::Body>, key: &str) -> Answer {
    ask(client.post_request(path, body).header("idempotency-key", key)).await
}

/// The answer to a call with a key that was brought before, once the first call with it is over.
pub async fn again(client: &Client, path: &str, body: &str, key: &str) -> Answer {
    eventually("the first call with the key is over", async || {
        let answer = keyed(client, path, body.to_owned(), key).await;
        (answer.status != 409 || answer.json()["error"]["type"] != IN_PROGRESS).then_some(answer)
    })
    .await
}

/// Checks that an answer is that of an earlier one.
#[track_caller]
pub fn is_replay(again: &Answer, first: &Answer) {
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.header("x-original-request-id"), first.header("x-request-id"));
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    assert_eq!(first.header("idempotency-replayed"), "");
}

/// Checks that there is no answer to give again, and whose it would be.
#[track_caller]
pub fn is_unavailable(answer: &Answer, original: Option<&str>) {
    let error = answer.error(409, UNAVAILABLE);
    assert_eq!(answer.header("x-should-retry"), "false");
    let id = error["metadata"]["request_id"].as_str().unwrap();
    assert!(id.parse::<uuid::Uuid>().is_ok(), "{id}");
    if let Some(original) = original {
        assert_eq!(id, original);
    }
}

/// Runs a case on both stores.
macro_rules! on_both_stores {
    ($($case:ident: $embedded:ident, $redis:ident;)+) => {$(
        #[tokio::test]
        async fn $embedded() {
            $case(&|setup| setup).await;
        }

        #[tokio::test]
        async fn $redis() {
            let server = RedisServer::start();
            $case(&|setup: Setup| setup.redis(&server.url())).await;
        }
    )+};
}

on_both_stores! {
    an_answer_is_given_again: given_again_embedded, given_again_redis;
    another_request_conflicts: conflicts_embedded, conflicts_redis;
    a_failure_frees_the_key: freed_embedded, freed_redis;
    an_answer_that_is_not_kept: not_kept_embedded, not_kept_redis;
    a_running_call: running_embedded, running_redis;
    a_client_that_is_cut_off: cut_off_embedded, cut_off_redis;
    a_client_that_is_cut_off_for_too_long: cut_off_too_long_embedded, cut_off_too_long_redis;
    answers_make_room_for_later_ones: room_embedded, room_redis;
    what_is_given_again_counts: counts_embedded, counts_redis;
    keys_are_limited: limited_embedded, limited_redis;
}

type OnStore<'a> = &'a dyn Fn(Setup) -> Setup;

async fn an_answer_is_given_again(store: OnStore<'_>) {
    let upstream = Upstream::by(|_, seen| match seen.json() {
        body if body["stream"] == true => Reply::stream_of(&["Hel", "lo", "!"], 9, 3),
        body if body["input"].is_null() => Reply::chat("Hi there", 9, 3),
        _ => Reply::embeddings(1, 5),
    })
    .await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let embed = json!({ "model": EMBED, "input": "Hello" }).to_string();
    let calls = [
        ("/llm/chat", request(SMALL), cost(SMALL, 9, 3)),
        ("/llm/chat", streaming(SMALL), cost(SMALL, 9, 3)),
        ("/llm/chat/stream", request(SMALL), cost(SMALL, 9, 3)),
        ("/llm/embeddings", embed.clone(), cost(EMBED, 5, 0)),
        ("/chat/completions", request(SMALL), cost(SMALL, 9, 3)),
        ("/embeddings", embed, cost(EMBED, 5, 0)),
    ];
    let mut spent = Decimal::ZERO;
    let description = crate::openapi::description(&gateway).await;
    for (n, (path, body, price)) in calls.iter().enumerate() {
        let client = if n % 2 == 0 { &gateway.http1 } else { &gateway.h2c };
        let key = format!("call-{n}");
        let first = keyed(client, path, body.clone(), &key).await.ok();
        for client in [&gateway.http1, &gateway.h2c] {
            let second = again(client, path, body, &key).await;
            is_replay(&second, &first);
            crate::openapi::check(&description, &description["paths"][path]["post"], &second);
        }
        spent += price;
        assert_eq!(gateway.spent().await, spent, "{path}");
        assert_eq!(upstream.seen().len(), n + 1, "{path}");
        assert!(upstream.seen()[n].header("idempotency-key").is_none());
    }
    // The alias is the same endpoint, and another key the same call anew.
    let first = keyed(&gateway.http1, "/llm/chat", request(SMALL), "both").await.ok();
    is_replay(
        &again(&gateway.h2c, "/chat/completions", &request(SMALL), "both").await,
        &first,
    );
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(upstream.seen().len(), calls.len() + 3);
    let replays = gateway.metrics().sum("tollgate_idempotency_replays_total", &[]);
    assert_eq!(replays, Decimal::from(13));
    gateway.check_books().await;
}

async fn another_request_conflicts(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let client = &gateway.http1;
    keyed(client, "/llm/chat", request(SMALL), "a").await.ok();
    let spaced = format!("{} ", request(SMALL));
    for (path, body) in [
        ("/llm/chat", spaced),
        ("/llm/chat", request(LARGE)),
        ("/llm/chat/stream", request(SMALL)),
    ] {
        let answer = again(client, path, &body, "a").await;
        answer.error(409, CONFLICT);
        assert_eq!(answer.header("x-should-retry"), "false");
    }
    let conflicts = gateway.metrics().sum("tollgate_denials_total", &[("reason", CONFLICT)]);
    assert_eq!(conflicts, Decimal::from(3));
    // It is the API key's own.
    let colleague = client.with_key(&gateway.new_key(KeySpec::default()).await);
    keyed(&colleague, "/llm/chat", request(LARGE), "a").await.ok();
    assert_eq!(upstream.seen().len(), 2);
    gateway.spent().await;
    gateway.check_books().await;
}

#[tokio::test]
async fn a_header_that_is_no_key_is_refused() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let mut bad: Vec<Vec<u8>> = ["", " ", "a b", "a\tb"].map(|text| text.as_bytes().to_vec()).into();
    bad.push(vec![b'x'; 256]);
    bad.push(vec![0xe4]);
    for text in bad {
        let value = reqwest::header::HeaderValue::from_bytes(&text).unwrap();
        for path in ["/llm/chat", "/llm/chat/stream", "/llm/embeddings"] {
            let call = gateway.http1.post_request(path, request(SMALL));
            let answer = ask(call.header("idempotency-key", value.clone())).await;
            answer.error(400, "invalid_request_error");
        }
    }
    let twice = gateway.http1.post_request("/llm/chat", request(SMALL));
    let twice = twice.header("idempotency-key", "a").header("idempotency-key", "a");
    ask(twice).await.error(400, "invalid_request_error");
    // Where nothing is made, it says nothing.
    let balance = gateway.http1.request(Method::GET, "/llm/balance");
    ask(balance.header("idempotency-key", "a b")).await.ok();
    gateway.check_untouched(&upstream).await;
}

async fn a_failure_frees_the_key(store: OnStore<'_>) {
    let upstream = Upstream::by(|n, _| match n {
        0 => Reply::status(500),
        1 => Reply::refusal(400, &[], "no"),
        2 => Reply::chat("Hi", 9, 1),
        _ => Reply::status(500),
    })
    .await;
    let mut gateway = store(Setup::over(&upstream)).credit("0").start().await;
    let client = gateway.http1.clone();
    let call = async |status: u16| {
        let answer = again(&client, "/llm/chat", &request(SMALL), "a").await;
        assert_eq!(answer.status, status, "{}", answer.text());
        answer
    };
    call(402).await.error(402, "insufficient_credits");
    gateway.pay_in("100", "later").await;
    call(500).await;
    call(400).await;
    let first = call(200).await;
    is_replay(&call(200).await, &first);
    // What costs nothing is given again to whoever has no credit.
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    gateway.check_books().await;
}

async fn an_answer_that_is_not_kept(store: OnStore<'_>) {
    let long = "word ".repeat(1_000);
    let upstream = Upstream::always(Reply::chat(&long, 9, 1_000)).await;
    for setting in [json!({ "answer_bytes_max": 2_000 }), json!({ "store_answers": false })] {
        let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = setting.clone()));
        let gateway = gateway.start().await;
        let client = &gateway.http1;
        let before = upstream.seen().len();
        let first = keyed(client, "/llm/chat", request(SMALL), "a").await.ok();
        let second = again(client, "/llm/chat", &request(SMALL), "a").await;
        is_unavailable(&second, Some(first.header("x-request-id")));
        assert_eq!(upstream.seen().len(), before + 1, "{setting}");
        // The id is that of the receipt.
        gateway.spent().await;
        let receipts = gateway.receipts().await;
        assert_eq!(receipts[0].billed.id.to_string(), first.header("x-request-id"));
        if store_is_shared(&gateway) {
            return; // Its account is there already.
        }
    }
}

fn store_is_shared(gateway: &Gateway) -> bool {
    matches!(gateway.ledger, tollgate::ledger::Ledger::Redis(_))
}

async fn a_running_call(store: OnStore<'_>) {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::default().wait(&cue).and(Reply::chat("Hi", 9, 1))).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let first = keyed(&gateway.http1, "/llm/chat", request(SMALL), "a");
    let meanwhile = async {
        upstream.asked(1).await;
        let second = keyed(&gateway.h2c, "/llm/chat", request(SMALL), "a").await;
        second.error(409, IN_PROGRESS);
        assert_eq!(second.header("retry-after"), "1");
        assert_eq!(second.header("x-should-retry"), "");
        keyed(&gateway.h2c, "/llm/chat", request(LARGE), "a")
            .await
            .error(409, CONFLICT);
        cue.give_all();
    };
    let (first, ()) = tokio::join!(first, meanwhile);
    is_replay(
        &again(&gateway.h2c, "/llm/chat", &request(SMALL), "a").await,
        &first.ok(),
    );
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    gateway.check_books().await;
}

/// The upstream goes on at the cue, whole and streamed.
fn gated(cue: &Cue, is_stream: bool) -> Reply {
    let whole = whole_chat(&"word ".repeat(400), Some((50, 30))).to_string();
    let (begun, rest) = whole.split_at(whole.len() / 2);
    match is_stream {
        true => Reply::stream()
            .role()
            .text("Hello")
            .wait(cue)
            .text(" world")
            .finish()
            .usage(50, 30)
            .done(),
        false => Reply::json_head(whole.len()).bytes(begun).wait(cue).bytes(rest),
    }
}

async fn a_client_that_is_cut_off(store: OnStore<'_>) {
    let cue = Cue::new();
    let of_upstream = cue.clone();
    let upstream = Upstream::by(move |_, seen| gated(&of_upstream, seen.json()["stream"] == true)).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let stream = streaming(SMALL);
    let mut spent = Decimal::ZERO;
    for over_h2 in [false, true] {
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        let key = format!("stream-{over_h2}");
        let call = client.post_request("/llm/chat", stream.clone());
        let mut events = Events::of(call.header("idempotency-key", &key)).await.ok();
        events.next().await.unwrap();
        let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
        drop(events);
        assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
        cue.give();
        let got = again(client, "/llm/chat", &stream, &key).await.ok();
        assert_eq!(got.header("x-original-request-id"), id);
        assert!(
            got.text().contains("Hello") && got.text().ends_with("data: [DONE]\n\n"),
            "{}",
            got.text()
        );
        is_same_as_an_unbroken_one(&gateway, &cue, &stream, &got).await;
        spent += cost(SMALL, 50, 30) * Decimal::TWO;
        assert_eq!(gateway.spent().await, spent);
    }
    // A whole answer, of which its client got nothing.
    let body = request(SMALL);
    let fields = "HTTP/1.1\r\nhost: x\r\nidempotency-key: whole";
    let raw = Raw::posted_as(&gateway, "/llm/chat", fields, body.len(), &body).await;
    upstream.asked(5).await;
    raw.close();
    cue.give();
    let got = again(&gateway.http1, "/llm/chat", &body, "whole").await.ok();
    is_same_as_an_unbroken_one(&gateway, &cue, &body, &got).await;
    assert_eq!(gateway.spent().await, spent + cost(SMALL, 50, 30) * Decimal::TWO);
    assert_eq!(upstream.seen().len(), 6);
    gateway.check_books().await;
}

/// Checks an answer against that of a call that nobody cut.
async fn is_same_as_an_unbroken_one(gateway: &Gateway, cue: &Cue, body: &str, got: &Answer) {
    cue.give();
    let unbroken = gateway.http1.post("/llm/chat", body.to_owned()).await.ok();
    assert_eq!(got.text(), unbroken.text());
    assert_eq!(got.header("content-type"), unbroken.header("content-type"));
}

async fn a_client_that_is_cut_off_for_too_long(store: OnStore<'_>) {
    let cue = Cue::new();
    let of_upstream = cue.clone();
    let upstream = Upstream::by(move |_, _| gated(&of_upstream, true)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["disconnect_drain_ms"] = 100.into());
    let gateway = store(setup).start().await;
    let call = gateway.http1.post_request("/llm/chat/stream", request(SMALL));
    let mut events = Events::of(call.header("idempotency-key", "a")).await.ok();
    events.next().await.unwrap();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    drop(events);
    upstream.hung_up().await;
    let second = again(&gateway.http1, "/llm/chat/stream", &request(SMALL), "a").await;
    is_unavailable(&second, Some(&id));
    assert_eq!(upstream.seen().len(), 1);
    gateway.spent().await;
    gateway.check_books().await;
}

async fn answers_make_room_for_later_ones(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat(&"word ".repeat(300), 9, 300)).await;
    let limits = json!({ "answer_bytes_max": 2_000, "bytes_per_key_max": 4_000, "bytes_max": 4_000 });
    let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = limits))
        .start()
        .await;
    let client = &gateway.http1;
    let mut answers = Vec::new();
    for n in 0..3 {
        let key = n.to_string();
        let first = keyed(client, "/llm/chat", request(SMALL), &key).await.ok();
        is_replay(&again(client, "/llm/chat", &request(SMALL), &key).await, &first);
        answers.push(first);
        gateway.clock.advance(1);
    }
    let oldest = again(client, "/llm/chat", &request(SMALL), "0").await;
    is_unavailable(&oldest, Some(answers[0].header("x-request-id")));
    for (n, first) in answers.iter().enumerate().skip(1) {
        is_replay(&again(client, "/llm/chat", &request(SMALL), &n.to_string()).await, first);
    }
    assert_eq!(upstream.seen().len(), 3);
}

async fn what_is_given_again_counts(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = json!({ "rpm": 100 }));
    let gateway = store(setup).start().await;
    let client = &gateway.http1;
    let left = |answer: &Answer| answer.header("x-ratelimit-remaining-requests").parse::<i64>().unwrap();
    let first = keyed(client, "/llm/chat", request(SMALL), "a").await.ok();
    let second = again(client, "/llm/chat", &request(SMALL), "a").await;
    is_replay(&second, &first);
    let third = keyed(client, "/llm/chat", request(SMALL), "a").await;
    is_replay(&third, &first);
    assert!(left(&second) < left(&first));
    assert_eq!(left(&third), left(&second) - 1);
    let conflict = keyed(client, "/llm/chat", request(LARGE), "a").await;
    conflict.error(409, CONFLICT);
    assert_eq!(left(&conflict), left(&third) - 1);
    for n in 1..=left(&conflict) {
        is_replay(&keyed(client, "/llm/chat", request(SMALL), "a").await, &first);
        assert!(n <= 100);
    }
    let limited = keyed(client, "/llm/chat", request(SMALL), "a").await;
    let error = limited.error(429, "rate_limit_error");
    assert_eq!(error["metadata"]["limit"], "requests_per_minute");
    assert_eq!(upstream.seen().len(), 1);
}

async fn keys_are_limited(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let limits = json!({ "keys_per_key_max": 3 });
    let gateway = store(Setup::over(&upstream).conf(|conf| conf["idempotency"] = limits))
        .start()
        .await;
    let client = &gateway.http1;
    for n in 0..3 {
        let first = keyed(client, "/llm/chat", request(SMALL), &n.to_string()).await.ok();
        is_replay(
            &again(client, "/llm/chat", &request(SMALL), &n.to_string()).await,
            &first,
        );
    }
    let full = keyed(client, "/llm/chat", request(SMALL), "3").await;
    let error = full.error(429, "rate_limit_error");
    assert_eq!(error["metadata"]["limit"], "idempotency_keys_per_key");
    assert_eq!(full.header("retry-after"), "60");
    // Others are not limited by it, and a day later nor is this one.
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let colleague = client.with_key(&gateway.new_key(KeySpec::default()).await);
    keyed(&colleague, "/llm/chat", request(SMALL), "3").await.ok();
    gateway.clock.advance(24 * 3_600_000);
    keyed(client, "/llm/chat", request(SMALL), "3").await.ok();
    gateway.spent().await;
    gateway.check_books().await;
}

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

#[tokio::test]
async fn a_page_may_send_the_key_and_read_what_is_said_of_it() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let ask_for = |names: Option<&'static str>| {
        let preflight = gateway.http1.with_key("").request(Method::OPTIONS, "/llm/chat");
        let preflight = preflight
            .header("origin", "https://app.example")
            .header("access-control-request-method", "POST");
        match names {
            Some(names) => preflight.header("access-control-request-headers", names),
            None => preflight,
        }
    };
    for names in [Some("authorization,idempotency-key"), None] {
        let answer = ask(ask_for(names)).await;
        assert!(
            answer
                .header("access-control-allow-headers")
                .contains("idempotency-key")
        );
        let exposed = answer.header("access-control-expose-headers");
        assert!(exposed.contains("idempotency-replayed") && exposed.contains("x-original-request-id"));
    }
}

#[test]
fn the_settings_are_checked() {
    let check = |idempotency: Value| {
        let conf = json!({ "idempotency": idempotency }).to_string();
        tollgate::config::Config::parse("tollgate.yaml".as_ref(), &conf, &|_| None)
    };
    let config = check(json!({ "answer_bytes_max": 4_000_000 })).unwrap().idempotency;
    assert_eq!(
        (config.answer_bytes_max, config.bytes_per_key_max),
        (4_000_000, 16 << 20)
    );
    for (wrong, words) in [
        (json!({ "answer_bytes_max": 1 }), "idempotency.answer_bytes_max"),
        (json!({ "bytes_per_key_max": 5_000 }), "idempotency.bytes_per_key_max"),
        (json!({ "bytes_max": 5_000 }), "idempotency.bytes_max"),
        (json!({ "keys_per_key_max": 0 }), "idempotency.keys_per_key_max"),
    ] {
        let error = check(wrong).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
