//! Accounts whose operator has stopped them: their calls are refused, and their running streams end where that is configured.

use std::time::{Duration, Instant};

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::admin::accounts::AccountOp;
use tollgate::ledger::terms::{AccountStatus, TermsChange};

use crate::auth::PROTECTED;
use crate::bounds::billed;
use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Events, Gateway, Reply, Setup, Upstream, deltas, eventually, within};
use crate::nodes::unlimited;

const WORDS: u64 = 6;
const REST: u64 = 4;

async fn set(gateway: &Gateway, status: AccountStatus) {
    let change = TermsChange {
        status: Some(status),
        ..TermsChange::default()
    };
    let account = gateway.account().await.record.id;
    gateway
        .run(AdminOp::Account(AccountOp::Terms { account, change }))
        .await;
}

/// On either store.
fn stores() -> [Option<RedisServer>; 2] {
    [None, Some(RedisServer::start())]
}

fn on(setup: Setup, redis: Option<&RedisServer>) -> Setup {
    match redis {
        Some(redis) => setup.redis(&redis.url()),
        None => setup,
    }
}

#[tokio::test]
async fn a_stopped_account_is_refused_everywhere_with_a_reason_of_its_own() {
    for redis in stores() {
        let upstream = Upstream::always(Reply::chat("Hi", PROMPT, 1)).await;
        let gateway = on(Setup::over(&upstream), redis.as_ref()).start().await;
        gateway.http1.get("/llm/balance").await.ok();
        for (status, word) in [
            (AccountStatus::Suspended, "suspended"),
            (AccountStatus::Closed, "closed"),
        ] {
            set(&gateway, status).await;
            for (method, path) in PROTECTED {
                for client in [&gateway.http1, &gateway.h2c] {
                    let answer = ask(client.request(method.clone(), path).body(request(SMALL))).await;
                    let error = answer.error(403, "permission_error");
                    assert_eq!(error["message"], format!("This account is {word}."), "{path}");
                    assert_eq!(
                        error["metadata"],
                        json!({ "reason": format!("account_{word}") }),
                        "{path}"
                    );
                    assert_eq!(answer.header("x-should-retry"), "false");
                }
            }
            // A key that never was is no more than that.
            ask(gateway.http1.with_key("tg_x").request(Method::GET, "/llm/balance"))
                .await
                .error(401, "authentication_error");
            let metrics = gateway.metrics();
            let reason = format!("account_{word}");
            assert!(metrics.sum("tollgate_denials_total", &[("reason", &reason)]) > Decimal::ZERO);
            if status == AccountStatus::Suspended {
                set(&gateway, AccountStatus::Active).await;
                gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
            }
        }
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 1));
        gateway.check_books().await;
    }
}

fn body(content: &str) -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": content }], "max_tokens": 50 }).to_string()
}

fn words(reply: Reply, count: u64) -> Reply {
    (0..count).fold(reply, |reply, _| reply.text(" word"))
}

/// Streams are read to their middle when their account is stopped.
async fn middle_of(client: &Client) -> (Events, Vec<String>) {
    let mut events = client.stream("/llm/chat/stream", body("Hello")).await.ok();
    let mut read = Vec::new();
    while read.len() <= usize::try_from(WORDS).unwrap() {
        read.push(events.next().await.unwrap());
    }
    (events, read)
}

fn ends_as_suspended(read: &[String]) {
    let [.., error, done] = read else { panic!("{read:?}") };
    assert_eq!(done, "[DONE]");
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["type"]),
        (&json!(403), &json!("permission_error"))
    );
    assert_eq!(error["error"]["message"], "This account is suspended.");
}

#[tokio::test]
async fn a_running_stream_ends_when_its_account_is_stopped_where_that_is_configured() {
    for redis in stores() {
        let upstream = Upstream::always(words(Reply::stream().role(), WORDS).silence()).await;
        let setup = Setup::over(&upstream).conf(|conf| conf["suspended_streams"] = json!("end"));
        let gateway = on(setup, redis.as_ref()).start().await;
        let (events, mut read) = middle_of(&gateway.http1).await;
        set(&gateway, AccountStatus::Suspended).await;
        // Its upstream is silent: it is ended all the same.
        read.extend(within("the end of the stream", events.rest()).await);
        ends_as_suspended(&read);
        upstream.hung_up().await;
        assert_eq!(deltas(&read).matches(" word").count() as u64, WORDS);
        billed(&gateway).await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, WORDS), "what was delivered");
        gateway.check_books().await;
    }
}

/// It was billed its whole prompt.
#[tokio::test]
async fn a_stream_that_is_ended_before_anything_of_it_was_delivered_costs_nothing() {
    for redis in stores() {
        let upstream = Upstream::always(Reply::stream().role().silence()).await;
        let setup = Setup::over(&upstream).conf(|conf| conf["suspended_streams"] = json!("end"));
        let gateway = on(setup, redis.as_ref()).start().await;
        let mut events = gateway.http1.stream("/llm/chat/stream", body("Hello")).await.ok();
        let mut read = vec![events.next().await.unwrap()];
        set(&gateway, AccountStatus::Suspended).await;
        read.extend(within("the end of the stream", events.rest()).await);
        ends_as_suspended(&read);
        upstream.hung_up().await;
        eventually("it is over", async || {
            let metrics = gateway.metrics();
            let dropped = metrics.sum("tollgate_requests_total", &[("outcome", "dropped")]);
            (dropped == Decimal::ONE).then_some(())
        })
        .await;
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_running_stream_finishes_by_default() {
    for redis in stores() {
        for setting in [None, Some("finish")] {
            let cue = Cue::new();
            let begun = words(Reply::stream().role(), WORDS).wait(&cue);
            let reply = words(begun, REST).finish().usage(PROMPT, WORDS + REST).done();
            let upstream = Upstream::always(reply).await;
            let setup = Setup::over(&upstream).conf(|conf| {
                if let Some(setting) = setting {
                    conf["suspended_streams"] = json!(setting);
                }
            });
            let gateway = on(setup, redis.as_ref()).start().await;
            let (events, mut read) = middle_of(&gateway.http1).await;
            set(&gateway, AccountStatus::Suspended).await;
            gateway.http1.get("/llm/balance").await.error(403, "permission_error");
            cue.give();
            read.extend(events.rest().await);
            assert!(!read.concat().contains("\"error\""), "{read:?}");
            assert_eq!(deltas(&read).matches(" word").count() as u64, WORDS + REST);
            assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, WORDS + REST));
            gateway.check_books().await;
            // The next one has an account of its own name on the same store.
            if redis.is_some() {
                break;
            }
        }
    }
}

/// Of an answer that is not streamed nothing is there before its end.
#[tokio::test]
async fn a_whole_answer_is_never_cut() {
    for redis in stores() {
        let cue = Cue::new();
        let upstream = Upstream::always(Reply::default().wait(&cue).and(Reply::chat("Hi", PROMPT, 3))).await;
        let setup = Setup::over(&upstream).conf(|conf| conf["suspended_streams"] = json!("end"));
        let gateway = on(setup, redis.as_ref()).start().await;
        let client = gateway.http1.clone();
        let call = tokio::spawn(async move { client.post("/llm/chat", request(SMALL)).await });
        eventually("the upstream is asked", async || {
            (!upstream.seen().is_empty()).then_some(())
        })
        .await;
        set(&gateway, AccountStatus::Suspended).await;
        cue.give();
        call.await.unwrap().ok();
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 3));
        gateway.check_books().await;
    }
}

/// How long a gateway may take to hear what another one was told.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// An operator's PATCH of the account at the first gateway.
async fn change(fleet: &Fleet, token: &str, status: &str) {
    let operators = fleet.conf_of(0)["operator_listen"].as_str().unwrap().to_owned();
    let http = reqwest::Client::new();
    let changed = eventually("operators are listened to", async || {
        let url = format!("http://{operators}/v1/accounts/acme");
        let request = http.patch(url).bearer_auth(token).json(&json!({ "status": status }));
        request.send().await.ok()
    })
    .await;
    assert_eq!(changed.status(), 200);
    assert_eq!(changed.json::<Value>().await.unwrap()["status"], status);
}

/// Asks until the answer has this status. What is asked for a second or more after the change has it.
async fn heard(client: &Client, status: u16) {
    let changed = Instant::now();
    loop {
        let begun = changed.elapsed();
        if client.get("/llm/balance").await.status == status {
            println!("{status} at the other gateway after {:?}", changed.elapsed());
            return;
        }
        assert!(begun < HEARD_WITHIN, "not {status} after {begun:?}");
    }
}

/// Suspended over HTTP at one gateway, while a stream runs at another one on the same Redis.
async fn suspended_at_another_gateway(setting: Option<&str>) {
    let (redis, cue) = (RedisServer::start(), Cue::new());
    let begun = words(Reply::stream().role(), WORDS).wait(&cue);
    let reply = words(begun, REST).finish().usage(PROMPT, WORDS + REST).done();
    let upstream = Upstream::always(reply).await;
    let mut fleet = Fleet::prepared(&redis.url(), unlimited(), &upstream);
    fleet.configure(|conf| {
        conf["operator_listen"] = json!("127.0.0.1:9091");
        if let Some(setting) = setting {
            conf["suspended_streams"] = json!(setting);
        }
    });
    let key = fleet.account("acme", "pro", Decimal::TEN).await;
    let made = fleet
        .command(&["operator", "create", "desk", "--role", "support"])
        .await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let token = made["token"].as_str().unwrap();
    fleet.grow(2).await;
    let (there, there_h2c) = (fleet.http1(1, &key), fleet.h2c(1, &key).remove(1));
    there.get("/llm/balance").await.ok();
    let (events, mut read) = middle_of(&there).await;

    change(&fleet, token, "suspended").await;
    heard(&there, 403).await;
    for (method, path) in PROTECTED {
        for client in [&there, &there_h2c] {
            let answer = ask(client.request(method.clone(), path).body(request(SMALL))).await;
            let error = answer.error(403, "permission_error");
            assert_eq!(error["message"], "This account is suspended.", "{path}");
            assert_eq!(error["metadata"], json!({ "reason": "account_suspended" }), "{path}");
        }
    }
    let delivered = if setting == Some("end") {
        // Its upstream is silent: it is ended all the same.
        read.extend(within("the end of the stream", events.rest()).await);
        ends_as_suspended(&read);
        upstream.hung_up().await;
        WORDS
    } else {
        cue.give();
        read.extend(events.rest().await);
        assert!(!read.concat().contains("\"error\""), "{read:?}");
        WORDS + REST
    };
    assert_eq!(deltas(&read).matches(" word").count() as u64, delivered);
    let left = Decimal::TEN - cost(SMALL, PROMPT, delivered);
    assert_eq!(fleet.settled_balance("acme").await, left);

    change(&fleet, token, "active").await;
    heard(&there, 200).await;
    assert_eq!(upstream.seen().len(), 1, "nothing else was forwarded");
}

#[tokio::test]
async fn a_suspension_at_one_gateway_is_heard_at_another_one_where_streams_finish() {
    suspended_at_another_gateway(None).await;
}

#[tokio::test]
async fn a_suspension_at_one_gateway_is_heard_at_another_one_where_streams_end() {
    suspended_at_another_gateway(Some("end")).await;
}
