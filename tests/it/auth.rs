//! Authentication: which headers count, and what expired, revoked and unknown keys get.

use std::collections::BTreeSet;

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde_json::json;
use tollgate::pure::ids::{ApiKey, Tier};

use crate::chat::request;
use crate::harness::catalogue::{LARGE, SMALL};
use crate::harness::client::ask;
use crate::harness::{Gateway, KeySpec, Reply, Setup, Upstream};

/// The paths that need a key, with the method of each.
pub const PROTECTED: [(Method, &str); 15] = [
    (Method::POST, "/llm/chat/stream"),
    (Method::POST, "/llm/chat"),
    (Method::POST, "/llm/embeddings"),
    (Method::GET, "/llm/balance"),
    (Method::GET, "/llm/usage"),
    (Method::GET, "/key"),
    (Method::GET, "/llm/generation?id=x"),
    (Method::GET, "/llm/generations"),
    (Method::GET, "/generation?id=x"),
    (Method::GET, "/llm/models"),
    (Method::GET, "/llm/models/purposes"),
    (Method::POST, "/chat/completions"),
    (Method::POST, "/embeddings"),
    (Method::GET, "/models"),
    (Method::GET, "/models/acme/small"),
];

/// Every protected path refuses this key with 401.
pub async fn check_refused(gateway: &Gateway, key: &str) {
    for (method, path) in PROTECTED {
        for client in [gateway.http1.with_key(key), gateway.h2c.with_key(key)] {
            let answer = ask(client.request(method.clone(), path).body(request(SMALL))).await;
            let error = answer.error(401, "authentication_error");
            assert!(!error["message"].as_str().unwrap().contains("tg_"), "{error}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            assert_eq!(
                answer.header("x-ratelimit-limit-requests"),
                "",
                "nothing is said to a stranger"
            );
        }
    }
}

#[tokio::test]
async fn the_table_has_every_path_that_needs_a_key() {
    let gateway = Gateway::over(&Upstream::unused().await).await;
    let description = crate::openapi::description(&gateway).await;
    let mut described = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"] != json!([]) {
                described.insert((method.to_uppercase(), path.replace("{id}", "acme/small")));
            }
        }
    }
    let path_of = |path: &str| path.split('?').next().unwrap().to_owned();
    let tried = PROTECTED.map(|(method, path)| (method.to_string(), path_of(path)));
    assert_eq!(BTreeSet::from(tried), described);
}

#[tokio::test]
async fn a_key_that_was_never_made_is_401_whatever_is_wrong_with_it() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let last = if gateway.key.ends_with('0') { "1" } else { "0" };
    let wrong_checksum = format!("{}{last}", &gateway.key[..gateway.key.len() - 1]);
    let wrong_prefix = ApiKey::from_random("sk-", [7; 32]).reveal().to_owned();
    let unknown = ApiKey::from_random("tg_", [7; 32]).reveal().to_owned();
    let cut = gateway.key[..gateway.key.len() - 1].to_owned();
    let upper = gateway.key.to_uppercase();
    let long = format!("tg_{}", "a".repeat(7_000));
    for key in [
        "",
        "x",
        "tg_",
        &wrong_checksum,
        &wrong_prefix,
        &unknown,
        &cut,
        &upper,
        &long,
    ] {
        println!("{key}");
        check_refused(&gateway, key).await;
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn only_a_bearer_header_counts() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let key = &gateway.key;
    let nobody = gateway.http1.with_key("");
    let balance = || nobody.request(Method::GET, "/llm/balance");
    for header in [
        key.clone(),
        format!("Basic {key}"),
        "Bearer".to_owned(),
        format!("Bearer{key}"),
        format!("Bearer {key} x"),
    ] {
        ask(balance().header(AUTHORIZATION, header))
            .await
            .error(401, "authentication_error");
    }
    ask(balance().header("x-api-key", key))
        .await
        .error(401, "authentication_error");
    ask(nobody.request(Method::GET, &format!("/llm/balance?api_key={key}")))
        .await
        .error(401, "authentication_error");
    let twice = balance()
        .header(AUTHORIZATION, format!("Bearer {key}"))
        .header(AUTHORIZATION, format!("Bearer {key}"));
    ask(twice).await.error(401, "authentication_error");
    for header in [
        format!("Bearer {key}"),
        format!("bearer {key}"),
        format!("BEARER  {key} "),
    ] {
        ask(balance().header(AUTHORIZATION, header)).await.ok();
    }
}

#[tokio::test]
async fn an_expired_key_is_401_from_its_last_moment_on() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let spec = KeySpec {
        expires_in_ms: Some(60_000),
        ..KeySpec::default()
    };
    let key = gateway.new_key(spec).await;
    gateway.http1.with_key(&key).get("/llm/balance").await.ok();
    gateway.clock.advance(59_999);
    gateway.http1.with_key(&key).get("/llm/balance").await.ok();
    gateway.clock.advance(1);
    check_refused(&gateway, &key).await;
    gateway.http1.get("/llm/balance").await.ok();
}

#[tokio::test]
async fn a_revoked_key_is_401_at_once_and_other_keys_are_not() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let key = gateway.new_key(KeySpec::default()).await;
    gateway.http1.with_key(&key).get("/llm/balance").await.ok();
    gateway.revoke(&key).await;
    check_refused(&gateway, &key).await;
    gateway.http1.get("/llm/balance").await.ok();
}

#[tokio::test]
async fn revoking_a_key_lets_its_running_stream_end_and_bills_it() {
    let cue = crate::harness::Cue::new();
    let upstream = Upstream::always(Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done()).await;
    let gateway = Gateway::over(&upstream).await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();
    gateway.revoke(&gateway.key).await;
    cue.give();
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    assert_eq!(gateway.spent().await, crate::harness::catalogue::cost(SMALL, 9, 1));
}

#[tokio::test]
async fn a_key_of_a_lower_tier_than_its_account_is_held_to_its_own() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let spec = KeySpec {
        tier: Some(Tier::Free),
        ..KeySpec::default()
    };
    let free = gateway.http1.with_key(&gateway.new_key(spec).await);
    let error = free
        .post("/llm/chat", request(LARGE))
        .await
        .error(403, "permission_error");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("needs the tier Pro; this key has Free"),
        "{error}"
    );
    assert!(upstream.seen().is_empty());
    free.post("/llm/chat", request(SMALL)).await.ok();
    gateway.http1.post("/llm/chat", request(LARGE)).await.ok();
    assert_eq!(free.get("/llm/balance").await.ok().json()["tier"], "Free");
    assert_eq!(gateway.http1.get("/llm/balance").await.ok().json()["tier"], "Pro");
}

#[tokio::test]
async fn each_tier_may_use_its_models_and_those_of_lower_tiers() {
    let tiers = [
        (Tier::Free, "Free", 3),
        (Tier::Lite, "Lite", 4),
        (Tier::Pro, "Pro", 5),
        (Tier::Enterprise, "Enterprise", 6),
    ];
    for (tier, title, models) in tiers {
        let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
        let gateway = Setup::over(&upstream).spare(&upstream).tier(tier).start().await;
        assert_eq!(gateway.http1.get("/llm/balance").await.ok().json()["tier"], title);
        let listing = gateway.http1.get("/llm/models").await.ok().json();
        assert_eq!(listing["total"], models, "{title}");
        let allowed: Vec<&str> = listing["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap())
            .collect();
        for (model, _, _) in crate::harness::catalogue::PRICES {
            let answer = gateway.http1.post("/llm/chat", request(model)).await;
            match (allowed.contains(&model), model) {
                (_, crate::harness::catalogue::EMBED) => drop(answer.error(400, "invalid_request_error")),
                (true, _) => drop(answer.ok()),
                (false, _) => drop(answer.error(403, "permission_error")),
            }
        }
    }
}

#[tokio::test]
async fn the_open_paths_need_no_key_and_mind_no_wrong_one() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for key in ["", "nonsense"] {
        for path in ["/llm/public/models", "/llm/health", "/wallet", "/prices"] {
            gateway.http1.with_key(key).get(path).await.ok();
        }
    }
}

#[tokio::test]
async fn an_account_that_changes_its_tier_is_held_to_it_at_once() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let spec = KeySpec {
        tier: Some(Tier::Pro),
        ..KeySpec::default()
    };
    let pro = gateway.http1.with_key(&gateway.new_key(spec).await);
    pro.post("/llm/chat", request(LARGE)).await.ok();
    gateway.set_tier(Tier::Lite).await;
    for client in [&gateway.http1, &pro] {
        client
            .post("/llm/chat", request(LARGE))
            .await
            .error(403, "permission_error");
        let balance = client.get("/llm/balance").await.ok();
        assert_eq!(
            (&balance.json()["tier"], balance.number("monthly_quota").as_str()),
            (&"Lite".into(), "100")
        );
        assert_eq!(balance.header("x-ratelimit-limit-requests"), "60");
    }
    gateway.set_tier(Tier::Enterprise).await;
    gateway
        .http1
        .post("/llm/chat", request(crate::harness::catalogue::HUGE))
        .await
        .ok();
    pro.post("/llm/chat", request(crate::harness::catalogue::HUGE))
        .await
        .error(403, "permission_error");
}
