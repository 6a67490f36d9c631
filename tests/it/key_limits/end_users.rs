//! How many end users a key with a limit for each of them may have in one period.

use serde_json::json;
use tollgate::ledger::Hold;
use tollgate::ledger::key_settings::KeySettings;
use tollgate::pure::account::{ReserveRequest, Scope};
use tollgate::pure::ids::{ApiKey, KeyId};
use tollgate::pure::limits::Limits;
use tollgate::pure::money::Credits;
use tollgate::pure::spend::{END_USERS_MAX, EndUserId, Reset};

use super::{bounded, key_with, limit};
use crate::bounds::on_both;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Gateway, Reply, Setup, Upstream, eventually};

/// As many as leave room for one more beside the one who is known.
const OTHERS: u32 = END_USERS_MAX - 2;
/// From 20 November, 10:00, to the end of the month.
const MONTH_LEFT_MS: i64 = (10 * 24 + 14) * 3_600_000;

/// Makes the others end users of a key that has one in this month. Redis is told their number; in memory each holds something.
async fn meet_others(gateway: &Gateway, redis: Option<&RedisServer>, key: &str) -> Vec<Hold> {
    let digest = ApiKey::parse("tg_", key).unwrap().digest();
    let found = gateway.ledger.authenticate(&digest).await.unwrap().unwrap();
    let caller = found.checked(gateway.clock.now()).unwrap();
    let key = &caller.key;
    if let Some(redis) = redis {
        let month = Reset::Monthly.period(gateway.clock.now().day());
        let known = redis.ask(&format!("HINCRBY tg1:{{acme}}:spent:{}:{month} n {OTHERS}", key.id));
        assert_eq!(known, [format!(":{}", OTHERS + 1)]);
        return Vec::new();
    }
    let most = u64::from(END_USERS_MAX);
    // Not the account's: its calls at once are for those of the test.
    let scope = Scope::Key(KeyId::from("others".to_owned()));
    let mut holds = Vec::new();
    for n in 0..OTHERS {
        let request = ReserveRequest {
            is_last: true,
            id: gateway.clock.request_id(),
            scope: scope.clone(),
            limits: Limits {
                rpm: most,
                tpm: most,
                concurrency: most,
            },
            quota: Credits::MAX,
            wanted: Credits::from_pico(1),
            at_least: Credits::from_pico(1),
            tokens: 0,
            expires: caller.hold_expiry(gateway.clock.now()),
            is_counted: false,
            spend: key.settings.spend(&key.id, Some(EndUserId::of(&n.to_string()))),
        };
        holds.push(caller.reserve(&request).await.unwrap().unwrap());
    }
    holds
}

#[tokio::test]
async fn one_end_user_more_than_a_key_may_have_is_429_until_the_next_period() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (gateway, redis) in on_both(|| Setup::over(&upstream)).await {
        let settings = KeySettings {
            end_user_limit: limit("1", Reset::Monthly),
            ..KeySettings::default()
        };
        let key = key_with(&gateway, settings).await;
        let client = gateway.http1.with_key(&key);
        let call = async |user: &str| client.post("/llm/chat", bounded(SMALL, 5, user)).await;
        call("anna").await.ok();
        gateway.settled_balance().await;
        let others = meet_others(&gateway, redis.as_ref(), &key).await;
        call("bob").await.ok();

        let asked = upstream.seen().len();
        for path in ["/llm/chat", "/llm/chat/stream"] {
            let refused = client.post(path, bounded(SMALL, 5, "carla")).await;
            let error = refused.error(429, "rate_limit_error");
            let metadata = json!({ "limit": "end_users_per_key", "value": END_USERS_MAX });
            assert_eq!(error["metadata"], metadata);
            assert_eq!(refused.header("retry-after"), (MONTH_LEFT_MS / 1000).to_string());
            assert_eq!(refused.header("x-should-retry"), "false");
            assert_eq!(refused.header("x-ratelimit-limit-requests"), "600");
        }
        assert_eq!(upstream.seen().len(), asked);
        // Who is known goes on, and a key without such a limit knows nobody.
        call("anna").await.ok();
        call("bob").await.ok();
        gateway.http1.post("/llm/chat", bounded(SMALL, 5, "carla")).await.ok();
        eventually("only what the others hold is held", async || {
            (gateway.account().await.open_holds == others.len() as u64).then_some(())
        })
        .await;

        gateway.clock.advance(MONTH_LEFT_MS - 1);
        let refused = call("carla").await;
        refused.error(429, "rate_limit_error");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(refused.headers.get("x-should-retry"), None);
        gateway.clock.advance(1);
        call("carla").await.ok();
        others.into_iter().for_each(Hold::release);
        assert_eq!(gateway.spent().await, cost(SMALL, 9 * 6, 6));
        gateway.check_books().await;
    }
}
