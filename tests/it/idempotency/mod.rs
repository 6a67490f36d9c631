//! `Idempotency-Key`: a call is made and billed once, and its answer given again byte for byte, on both stores.

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::json;
use tollgate::config::Idempotency;
use tollgate::ledger::{KeyedCall, Taking};
use tollgate::pure::idempotency::{Fingerprint, KeyName};
use tollgate::pure::ids::{ApiKey, RequestId};
use tollgate::pure::request_body::Endpoint;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, LARGE, SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Answer, Cue, Gateway, KeySpec, Reply, Setup, Upstream, eventually};

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

mod cut_off;
mod fleets;
mod later;
mod limits;

on_both_stores! {
    an_answer_is_given_again: given_again_embedded, given_again_redis;
    another_request_conflicts: conflicts_embedded, conflicts_redis;
    a_failure_frees_the_key: freed_embedded, freed_redis;
    a_call_that_is_being_admitted: admitted_embedded, admitted_redis;
    a_running_call: running_embedded, running_redis;
    a_stream_that_broke_off: broken_embedded, broken_redis;
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

/// What was delivered of it was paid for, and is given again as it was, with its error; what delivered nothing cost nothing.
async fn a_stream_that_broke_off(store: OnStore<'_>) {
    let upstream = Upstream::by(|n, _| match n {
        0 => Reply::stream().role().reset(),
        1 => Reply::stream().role().text("Hello").reset(),
        2 => Reply::stream()
            .role()
            .text("Hello")
            .event(r#"{"error":{"message":"no","code":500}}"#)
            .end(),
        _ => Reply::stream()
            .role()
            .text("Hello")
            .event(r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#)
            .end(),
    })
    .await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let (client, path, body) = (&gateway.http1, "/llm/chat/stream", request(SMALL));
    let nothing = keyed(client, path, body.clone(), "a").await.ok();
    assert!(nothing.text().contains("\"error\""));
    for (key, code) in [("a", 502), ("b", 502), ("c", 400)] {
        let first = again(client, path, &body, key).await.ok();
        let error = format!("\"error\":{{\"code\":{code},");
        assert!(
            first.text().contains("Hello") && first.text().contains(&error),
            "{}",
            first.text()
        );
        assert_eq!(first.header("idempotency-replayed"), "");
        is_replay(&again(client, path, &body, key).await, &first);
    }
    assert_eq!(upstream.seen().len(), 4);
    assert_eq!(
        gateway.spent().await,
        cost(SMALL, crate::chat::PROMPT, 1) * Decimal::from(3)
    );
    gateway.check_books().await;
}

/// It may yet be refused, and free its key: who comes with another body meanwhile is to come back, and gets the key then.
async fn a_call_that_is_being_admitted(store: OnStore<'_>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = store(Setup::over(&upstream)).start().await;
    let (client, body) = (&gateway.http1, request(SMALL));
    let other_body = format!("{body} ");
    let digest = ApiKey::parse("tg_", &gateway.key).unwrap().digest();
    let found = gateway.ledger.authenticate(&digest).await.unwrap().unwrap();
    let caller = found.checked(gateway.clock.now()).unwrap();
    let first = KeyedCall {
        key: caller.key.id.clone(),
        name: KeyName::of(&caller.key.id, b"a").unwrap(),
        fingerprint: Fingerprint::of(Endpoint::Chat, body.as_bytes()),
        request: RequestId::from_bytes([1; 16]),
        limits: Idempotency::default(),
    };
    let taken = match caller.take_key(first).await.unwrap() {
        Taking::Taken(taken) => taken,
        other => panic!("{other:?}"),
    };
    for body in [&body, &other_body] {
        let meanwhile = keyed(client, "/llm/chat", body.clone(), "a").await;
        meanwhile.error(409, IN_PROGRESS);
        assert_eq!(meanwhile.header("retry-after"), "1");
        assert_eq!(meanwhile.header("x-should-retry"), "");
    }
    // As where it was refused.
    drop(taken);
    let answer = again(client, "/llm/chat", &other_body, "a").await.ok();
    assert_eq!(answer.header("idempotency-replayed"), "");
    again(client, "/llm/chat", &body, "a").await.error(409, CONFLICT);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    gateway.check_books().await;
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

/// It is hashed where it is parsed, and that is on another thread.
#[tokio::test]
async fn a_long_call_is_given_again_and_another_one_as_long_conflicts() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let long = |word: &str| {
        let messages = json!([{ "role": "user", "content": word.repeat(60_000) }]);
        json!({ "model": SMALL, "messages": messages }).to_string()
    };
    let first = keyed(&gateway.http1, "/llm/chat", long("word "), "a").await.ok();
    is_replay(&again(&gateway.h2c, "/llm/chat", &long("word "), "a").await, &first);
    let other = again(&gateway.h2c, "/llm/chat", &long("work "), "a").await;
    other.error(409, CONFLICT);
    assert_eq!(upstream.seen().len(), 1);
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
