//! What is done to a key, or to the gateway, while the body of a call is on its way: it counts for that call.

use serde_json::json;
use tollgate::ledger::admin::{AdminOp, KeyRef};
use tollgate::ledger::key_settings::{AmountChange, KeyChange};
use tollgate::pure::ids::{ApiKey, Tier};

use crate::bounds::on_both;
use crate::chat::request;
use crate::harness::catalogue::{LARGE, SMALL};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Answer, Gateway, KeySpec, Raw, Reply, Setup, Upstream, eventually};

/// A call whose body is there but for its last byte.
struct Begun {
    raw: Raw,
    last: String,
}

impl Begun {
    /// The gateway's key was looked up once this returns: the body is asked for then.
    async fn at(gateway: &Gateway, body: &str, more_fields: &str) -> Begun {
        let fields = format!("HTTP/1.1\r\nhost: x\r\nexpect: 100-continue{more_fields}");
        let mut raw = Raw::posted_as(gateway, "/llm/chat", &fields, body.len(), "").await;
        assert_eq!(raw.head().await.status, 100);
        let (most, last) = body.split_at(body.len() - 1);
        raw.send(most).await;
        Begun {
            raw,
            last: last.to_owned(),
        }
    }

    async fn ends(mut self) -> Answer {
        self.raw.send(&self.last).await;
        self.raw.answer().await
    }
}

/// A call that is parsed on another thread.
fn long() -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "word ".repeat(60_000) }] }).to_string()
}

async fn change(gateway: &Gateway, change: KeyChange) {
    let digest = ApiKey::parse("tg_", &gateway.key).unwrap().digest().to_hex();
    let (key, change) = (KeyRef::Digest(digest), Box::new(change));
    gateway.run(AdminOp::KeySet { key, change }).await;
}

#[tokio::test]
async fn a_key_that_is_revoked_or_expires_while_its_body_comes_opens_nothing() {
    let upstream = Upstream::unused().await;
    for (mut gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        for (body, more_fields) in [
            (request(SMALL), ""),
            (request(SMALL), "\r\nidempotency-key: a"),
            (long(), ""),
            ("{".to_owned(), ""),
        ] {
            gateway.key = gateway.new_key(KeySpec::default()).await;
            let call = Begun::at(&gateway, &body, more_fields).await;
            gateway.revoke(&gateway.key).await;
            call.ends().await.error(401, "authentication_error");
        }
        let spec = KeySpec {
            expires_in_ms: Some(1_000),
            ..KeySpec::default()
        };
        gateway.key = gateway.new_key(spec).await;
        let call = Begun::at(&gateway, &request(SMALL), "").await;
        gateway.clock.advance(1_000);
        call.ends().await.error(401, "authentication_error");
        gateway.check_untouched(&upstream).await;
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_at_another_gateway_while_its_body_comes_opens_nothing() {
    let redis = RedisServer::start();
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream).redis(&redis.url()).start().await;
    let other = Setup::over(&upstream)
        .redis(&redis.url())
        .beside(&gateway)
        .start()
        .await;
    let call = Begun::at(&gateway, &request(SMALL), "").await;
    other.revoke(&gateway.key).await;
    eventually("the gateway hears of it", async || {
        (gateway.http1.get("/llm/balance").await.status == 401).then_some(())
    })
    .await;
    call.ends().await.error(401, "authentication_error");
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn what_is_changed_of_a_key_while_its_body_comes_counts() {
    let none = KeyChange::default;
    let changes = [
        (
            KeyChange {
                limit: Some(AmountChange::To("0.000000000001".parse().unwrap())),
                ..none()
            },
            402,
            "insufficient_credits",
        ),
        (
            KeyChange {
                models: Some(vec![LARGE.parse().unwrap()]),
                ..none()
            },
            403,
            "permission_error",
        ),
        (
            KeyChange {
                addresses: Some(vec!["192.0.2.0/24".parse().unwrap()]),
                ..none()
            },
            403,
            "permission_error",
        ),
    ];
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (mut gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        let before = upstream.seen().len();
        for (changed, status, kind) in &changes {
            gateway.key = gateway.new_key(KeySpec::default()).await;
            let call = Begun::at(&gateway, &request(SMALL), "").await;
            change(&gateway, changed.clone()).await;
            call.ends().await.error(*status, kind);
        }
        gateway.key = gateway.new_key(KeySpec::default()).await;
        let call = Begun::at(&gateway, &request(LARGE), "").await;
        gateway.set_tier(Tier::Free).await;
        call.ends().await.error(403, "permission_error");
        assert_eq!(upstream.seen().len(), before);
        // What forbids nothing lets it through.
        let call = Begun::at(&gateway, &request(SMALL), "").await;
        let label = Some("late".to_owned());
        change(&gateway, KeyChange { label, ..none() }).await;
        call.ends().await.ok();
        assert_eq!(upstream.seen().len(), before + 1);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_call_whose_body_comes_while_maintenance_is_switched_on_is_not_taken() {
    let upstream = Upstream::unused().await;
    for (gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        let call = Begun::at(&gateway, &request(SMALL), "").await;
        gateway.run(AdminOp::Maintenance { on: true }).await;
        let answer = call.ends().await;
        answer.error(503, "service_unavailable");
        assert_eq!(answer.header("retry-after"), "30");
        gateway.check_untouched(&upstream).await;
    }
}
