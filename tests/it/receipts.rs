//! Receipts of calls: what they say, and that they are there as soon as the client has its last byte.

use std::sync::Arc;

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::ledger::Ledger;
use tollgate::ledger::redis::{Options, RedisLedger};
use tollgate::pure::ids::RequestId;
use tollgate::pure::money::ListPrice;
use tollgate::pure::receipt::{CallEnding, EndpointName, Receipt};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{EMBED, FREE, SMALL, TWIN, cost};
use crate::harness::gateway::{STORE_TIME, account, decimal};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, eventually};

/// The receipt of a call that is over.
async fn receipt(gateway: &Gateway, id: &str) -> Option<Receipt> {
    let id: RequestId = id.parse().unwrap();
    gateway.ledger.receipt(&account(), id).await.unwrap()
}

fn id_of(headers: &reqwest::header::HeaderMap) -> String {
    headers["x-request-id"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_receipt_says_who_answered_what_was_counted_and_what_it_cost() {
    let upstream = Upstream::by(|_, seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hel", "lo"], 9, 3),
        false => Reply::chat("Hello", 9, 2),
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    for (path, endpoint, streamed, completion) in [
        ("/llm/chat", EndpointName::Chat, false, 2),
        ("/llm/chat/stream", EndpointName::ChatStream, true, 3),
    ] {
        let answer = gateway.http1.post(path, request(SMALL)).await.ok();
        let id = id_of(&answer.headers);
        let Receipt { billed, .. } = receipt(&gateway, &id).await.unwrap();
        assert_eq!(billed.id.to_string(), id);
        assert_eq!(billed.account, account());
        assert_eq!(billed.model.as_ref(), SMALL);
        assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, completion));
        assert_eq!(decimal(billed.cost), cost(SMALL, 9, completion));
        assert!(billed.held.is_some_and(|held| held > billed.cost));
        let call = billed.call;
        assert_eq!(call.provider.as_deref(), Some("main"));
        assert_eq!(call.upstream_model.as_deref(), Some("up-small"));
        assert_eq!(call.upstream_id.as_deref(), Some("chatcmpl-1"));
        assert_eq!((call.endpoint, call.streamed), (Some(endpoint), Some(streamed)));
        assert_eq!(call.ending, Some(CallEnding::Complete));
        assert_eq!(
            (call.reported_prompt_tokens, call.reported_completion_tokens),
            (Some(9), Some(completion))
        );
        // Only what streams is counted where the provider reports.
        assert_eq!(call.counted_completion_tokens, streamed.then_some(2));
        let (created, first, ended) = (call.created.unwrap(), call.first_byte.unwrap(), call.ended.unwrap());
        assert!(created <= first && first <= ended, "{created:?} {first:?} {ended:?}");
        let price = |price: Option<ListPrice>| price.unwrap().to_string().parse::<Decimal>().unwrap();
        assert_eq!(price(call.prompt_price), cost(SMALL, 1, 0));
        assert_eq!(price(call.completion_price), cost(SMALL, 0, 1));
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn calls_that_cost_nothing_for_nothing_came_have_no_receipt_and_free_ones_have() {
    let upstream = Upstream::by(|_, seen| match seen.json()["model"].as_str() {
        Some("up-free") => Reply::chat("Hi", 9, 1),
        _ => Reply::refusal(400, &[], "no"),
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    let refused = gateway.http1.post("/llm/chat", request(SMALL)).await;
    assert_eq!(refused.status, 400);
    assert_eq!(receipt(&gateway, &id_of(&refused.headers)).await, None);
    let unknown = gateway.http1.post("/llm/chat", request("acme/none")).await;
    assert_eq!(receipt(&gateway, &id_of(&unknown.headers)).await, None);
    let free = gateway.http1.post("/llm/chat", request(FREE)).await.ok();
    let free = receipt(&gateway, &id_of(&free.headers)).await.unwrap();
    assert_eq!(
        (decimal(free.billed.cost), free.billed.completion_tokens),
        (Decimal::ZERO, 1)
    );
    gateway.check_books().await;
}

#[tokio::test]
async fn a_receipt_says_how_a_call_ended() {
    let cue = Cue::new();
    let cut = Reply::stream().role().text("Hello").text(" world");
    let failed = r#"{"error":{"message":"Overloaded","code":529}}"#;
    for (reply, ending) in [
        (cut.clone().close(), CallEnding::UpstreamFailed),
        (cut.clone().event(failed).end(), CallEnding::UpstreamFailed),
        // It ends within an event.
        (
            cut.clone().chunk("data: {\"choices\":[{").end(),
            CallEnding::UpstreamFailed,
        ),
        (cut.wait(&cue), CallEnding::ClientGone),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
        let id = id_of(&events.headers);
        for _ in 0..3 {
            events.next().await.unwrap();
        }
        if ending == CallEnding::ClientGone {
            drop(events);
            upstream.hung_up().await;
        } else {
            events.rest().await;
        }
        let billed = eventually("its receipt", async || receipt(&gateway, &id).await)
            .await
            .billed;
        assert_eq!(billed.call.ending, Some(ending));
        assert_eq!((billed.prompt_tokens, billed.completion_tokens), (PROMPT, 2));
        assert_eq!(billed.call.reported_completion_tokens, None);
        assert_eq!(billed.call.counted_completion_tokens, Some(2));
        gateway.check_books().await;
    }
}

/// Its client left because it had all of it, while the provider's connection was still open.
#[tokio::test]
async fn an_answer_whose_client_closes_behind_the_last_event_is_complete() {
    let cue = Cue::new();
    let whole = Reply::stream()
        .role()
        .text("Hello")
        .finish()
        .usage(9, 1)
        .event("[DONE]");
    let upstream = Upstream::always(whole.wait(&cue)).await;
    let gateway = Gateway::over(&upstream).await;
    // Over HTTP/2 it resets its stream, which was taken for a write that failed.
    for client in [&gateway.http1, &gateway.h2c] {
        let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
        let id = id_of(&events.headers);
        while events.next().await.unwrap() != "[DONE]" {}
        drop(events);
        let billed = eventually("its receipt", async || receipt(&gateway, &id).await)
            .await
            .billed;
        assert_eq!(billed.call.ending, Some(CallEnding::Complete));
        assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 1));
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn after_a_fail_over_the_receipt_names_who_answered() {
    let main = Upstream::always(Reply::status(500)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    let call = receipt(&gateway, &id_of(&answer.headers)).await.unwrap().billed.call;
    assert_eq!(call.provider.as_deref(), Some("spare"));
    assert_eq!(call.upstream_model.as_deref(), Some("up-twin-2"));
    gateway.check_books().await;
}

/// The receipts of many calls, each asked for right after its last byte.
async fn there_with_the_last_byte(gateway: &Gateway, ledger: &Ledger) {
    let body = json!({ "model": EMBED, "input": ["Hello"] }).to_string();
    let worker = async |client: usize| {
        let client = if client.is_multiple_of(2) {
            &gateway.http1
        } else {
            &gateway.h2c
        };
        for n in 0..60 {
            let (path, body) = match n % 3 {
                0 => ("/llm/chat", request(SMALL)),
                1 => ("/llm/chat/stream", request(SMALL)),
                _ => ("/llm/embeddings", body.clone()),
            };
            let answer = client.post(path, body).await.ok();
            let id: RequestId = id_of(&answer.headers).parse().unwrap();
            let receipt = ledger.receipt(&account(), id).await.unwrap();
            assert!(receipt.is_some(), "call {n} has no receipt");
        }
    };
    join_all((0..4).map(worker)).await;
    gateway.check_books().await;
}

fn answer(seen: &Value) -> Reply {
    match (seen["input"].is_null(), seen["stream"] == true) {
        (false, _) => Reply::embeddings(1, 1),
        (true, true) => Reply::stream_of(&["Hel", "lo"], 9, 3),
        (true, false) => Reply::chat("Hello", 9, 3),
    }
}

/// No limit is reached.
fn unlimited(setup: Setup) -> Setup {
    setup.conf(|conf| conf["tiers"]["pro"] = json!({ "rpm": 100_000, "tpm": 1_000_000_000, "concurrency": 1_000 }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_is_there_with_the_last_byte_on_sqlite() {
    let upstream = Upstream::by(|_, seen| answer(&seen.json())).await;
    let gateway = unlimited(Setup::over(&upstream)).start().await;
    there_with_the_last_byte(&gateway, &gateway.ledger).await;
}

/// Asked of another gateway than the one that billed the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_is_there_with_the_last_byte_at_another_gateway_on_redis() {
    let server = RedisServer::start();
    let upstream = Upstream::by(|_, seen| answer(&seen.json())).await;
    let gateway = unlimited(Setup::over(&upstream).redis(&server.url())).start().await;
    let options = Options {
        timeout: STORE_TIME,
        clock: gateway.clock.clone(),
        ..Options::default()
    };
    let url = server.url();
    let open = move || RedisLedger::connect(&url, options);
    let other = Ledger::Redis(std::thread::spawn(open).join().unwrap().unwrap());
    there_with_the_last_byte(&gateway, &other).await;
    std::thread::spawn(move || other.close()).join().unwrap();
}

/// Of an account with more calls than receipts are kept, the newest are there.
#[tokio::test]
async fn redis_keeps_the_newest_receipts_of_an_account() {
    let server = RedisServer::start();
    let upstream = Upstream::by(|_, seen| answer(&seen.json())).await;
    let setup = unlimited(Setup::over(&upstream).redis(&server.url()));
    let gateway = setup
        .conf(|conf| conf["receipts"]["per_account_max"] = 150.into())
        .start()
        .await;
    let calls = Arc::new(request(SMALL));
    let mut last = String::new();
    for _ in 0..420 {
        last = id_of(&gateway.http1.post("/llm/chat", calls.to_string()).await.ok().headers);
    }
    assert!(receipt(&gateway, &last).await.is_some());
    let kept = gateway.receipts().await.len();
    // Redis drops them a hundred at a time.
    assert!((150..=250).contains(&kept), "{kept}");
}
