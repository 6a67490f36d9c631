//! What the keys of a rotation are told that they used: what all of them did, for that is what is spent of their limit.

use rust_decimal::Decimal;
use tollgate::ledger::admin::{AdminOp, KeyRef};
use tollgate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use tollgate::pure::ids::ApiKey;
use tollgate::pure::spend::Reset;

use super::{key_with, limit, number};
use crate::bounds::on_both;
use crate::chat::request;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

const LIMIT: &str = "0.5";
const HOUR_MS: i64 = 3_600_000;
const USAGES: [&str; 4] = ["usage", "usage_daily", "usage_weekly", "usage_monthly"];

/// A new key in place of another one, which holds on for an hour.
async fn rotated(gateway: &Gateway, old: &str) -> String {
    let mut random = [0; 32];
    getrandom::fill(&mut random).unwrap();
    let key = ApiKey::from_random("tg_", random);
    let old = ApiKey::parse("tg_", old).unwrap();
    gateway
        .run(AdminOp::KeyRotate {
            key: KeyRef::Digest(old.digest().to_hex()),
            digest: key.digest().to_hex(),
            overlap_ms: HOUR_MS,
        })
        .await;
    key.reveal().to_owned()
}

/// Each key is told that so many calls were made, in each of these periods, and what they leave of the limit.
async fn all_are_told(gateway: &Gateway, keys: &[String], calls: u64, periods: &[&str]) {
    gateway.settled_balance().await;
    let spent = cost(SMALL, 9 * calls, calls);
    for key in keys {
        let answer = gateway.http1.with_key(key).get("/key").await.ok();
        let told = |name: &str| number(answer.text(), name).parse::<Decimal>().unwrap();
        for name in periods {
            assert_eq!(told(name), spent, "{name}: {}", answer.text());
        }
        let monthly = told("usage_monthly");
        assert_eq!(told("limit") - told("limit_remaining"), monthly, "{}", answer.text());
    }
}

#[tokio::test]
async fn every_key_of_a_rotation_is_told_what_all_of_them_used() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        let settings = KeySettings {
            limit: limit(LIMIT, Reset::Monthly),
            ..KeySettings::default()
        };
        let first = key_with(&gateway, settings).await;
        let call = async |key: &str| gateway.http1.with_key(key).post("/llm/chat", request(SMALL)).await.ok();
        call(&first).await;
        call(&first).await;
        let second = rotated(&gateway, &first).await;
        let mut keys = vec![first, second];
        all_are_told(&gateway, &keys, 2, &USAGES).await;
        // Both are used, and rotated once more.
        call(&keys[0]).await;
        call(&keys[1]).await;
        let third = rotated(&gateway, &keys[1]).await;
        call(&third).await;
        keys.push(third);
        all_are_told(&gateway, &keys, 5, &USAGES).await;
        // In another month it begins anew, and what was used in all does not.
        gateway.clock.advance(40 * 24 * HOUR_MS);
        all_are_told(&gateway, &keys[2..], 5, &USAGES[..1]).await;
        call(&keys[2]).await;
        all_are_told(&gateway, &keys[2..], 6, &USAGES[..1]).await;
        all_are_told(&gateway, &keys[2..], 1, &USAGES[1..]).await;
        gateway.check_books().await;
    }
}

/// Whoever takes the limit away leaves nothing that they spend together.
#[tokio::test]
async fn a_key_of_a_rotation_that_has_no_limit_any_more_is_told_what_it_used_itself() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (gateway, _redis) in on_both(|| Setup::over(&upstream)).await {
        let settings = KeySettings {
            limit: limit(LIMIT, Reset::Monthly),
            ..KeySettings::default()
        };
        let first = key_with(&gateway, settings).await;
        let second = rotated(&gateway, &first).await;
        for key in [&first, &second, &second] {
            let client = gateway.http1.with_key(key);
            client.post("/llm/chat", request(SMALL)).await.ok();
        }
        all_are_told(&gateway, &[first.clone(), second.clone()], 3, &USAGES).await;
        let change = KeyChange {
            limit: Some(AmountChange::Removed),
            ..KeyChange::default()
        };
        let digest = ApiKey::parse("tg_", &second).unwrap().digest().to_hex();
        let set = AdminOp::KeySet {
            key: KeyRef::Digest(digest),
            change: Box::new(change),
        };
        gateway.run(set).await;
        let answer = gateway.http1.with_key(&second).get("/key").await.ok();
        for name in USAGES {
            let told: Decimal = number(answer.text(), name).parse().unwrap();
            assert_eq!(told, cost(SMALL, 18, 2), "{name}: {}", answer.text());
        }
        all_are_told(&gateway, &[first], 3, &USAGES).await;
        gateway.check_books().await;
    }
}
