//! Lists and their pages, statements, usage and calls.

use serde_json::{Value, json};

use super::{Desk, GROUNDS, Ground};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Setup, Upstream, catalogue, eventually};

impl Desk {
    /// Every entry of a list, by its pages.
    async fn all(&self, path: &str, next: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut place) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}limit={limit}{place}")).await;
            let data = page["data"].as_array().unwrap();
            assert!(data.len() <= limit, "{page}");
            all.extend(data.iter().cloned());
            match page["next"].as_str() {
                Some(text) => place = format!("&{next}={text}"),
                None => return all,
            }
        }
    }
}

#[tokio::test]
async fn accounts_are_found_by_pages_and_by_parts_of_their_names() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        for number in 0..25 {
            let name = format!("Shop-{number:02}");
            desk.admin("POST", "/v1/accounts", json!({ "name": name, "tier": "free" }))
                .await
                .done(201);
        }
        let names = |accounts: &[Value]| -> Vec<String> {
            let name = |account: &Value| account["name"].as_str().unwrap().to_owned();
            accounts.iter().map(name).collect()
        };
        let all = names(&desk.all("/v1/accounts?", "after", 7).await);
        assert_eq!(all.len(), 26);
        assert!(all.is_sorted(), "{all:?}");
        let found = names(&desk.all("/v1/accounts?search=sHOP-1&", "after", 4).await);
        assert_eq!(
            found,
            (10..20).map(|number| format!("Shop-{number}")).collect::<Vec<_>>()
        );
        assert_eq!(
            desk.get("/v1/accounts?search=nobody").await,
            json!({ "data": [], "next": null })
        );
        assert_eq!(
            names(desk.get("/v1/accounts?after=Shop-23").await["data"].as_array().unwrap()),
            ["Shop-24", "acme"]
        );
    }
}

/// A gateway with a listener of operators reads the names of accounts when it has started: the first list finds them read.
#[tokio::test]
async fn the_names_of_accounts_are_read_before_the_first_list() {
    let desk = Desk::with(Ground::Redis, |conf| conf["audit_seconds"] = json!(0)).await;
    let redis = desk.redis.as_ref().unwrap();
    let scans = || {
        let stats = redis.ask("INFO commandstats");
        let scans = stats.iter().find(|line| line.starts_with("cmdstat_sscan:"));
        scans.and_then(|line| line.split(['=', ',']).nth(1)).map(str::to_owned)
    };
    let read = eventually("the names are read", async || scans()).await;
    for _ in 0..2 {
        let page = desk.get("/v1/accounts").await;
        assert_eq!(page["data"][0]["name"], "acme", "{page}");
    }
    assert_eq!(scans(), Some(read));
}

#[tokio::test]
async fn credit_is_listed_newest_first_and_a_statement_adds_up() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        for number in 0..10 {
            let body = json!({ "amount": format!("1.00000000000{number}"), "reference": format!("r{number}") });
            desk.admin("POST", "/v1/accounts/acme/credits", body).await.done(201);
            desk.gateway.clock.advance(1_000);
        }
        let entries = desk.all("/v1/accounts/acme/credits?", "before", 3).await;
        let references: Vec<&str> = entries
            .iter()
            .map(|entry| entry["reference"].as_str().unwrap())
            .collect();
        assert_eq!(references.len(), 11, "{references:?}");
        assert_eq!(&references[..3], ["r9", "r8", "r7"]);
        assert_eq!(entries[0]["balance"], "110.000000000045");
        let statement = desk.get("/v1/accounts/acme/statement").await;
        assert_eq!(
            (&statement["opening_balance"], &statement["closing_balance"]),
            (&json!("0"), &json!("110.000000000045"))
        );
        assert_eq!(statement["entries"].as_array().unwrap().len(), 11);
        let october = desk.get("/v1/accounts/acme/statement?to=2026-10-30").await;
        assert_eq!(
            (&october["from"], &october["to"]),
            (&json!("2026-10-01"), &json!("2026-10-30"))
        );
        let csv = desk
            .admin("GET", "/v1/accounts/acme/statement?format=csv", Value::Null)
            .await;
        assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
        let expected = "attachment; filename=\"statement-acme-2026-11-01-2026-11-20.csv\"";
        assert_eq!(csv.header("content-disposition"), expected);
        assert_eq!(csv.text.lines().count(), 14, "{}", csv.text);
        assert!(
            csv.text.ends_with("closing,2026-11-20,,,110.000000000045,,,,,,\r\n"),
            "{}",
            csv.text
        );
    }
}

#[tokio::test]
async fn what_calls_cost_is_told_in_text() {
    for ground in GROUNDS {
        let upstream = Upstream::always(Reply::chat("Hi", 9, 3)).await;
        let redis = (ground == super::Ground::Redis).then(RedisServer::start);
        let setup = Setup::over(&upstream);
        let setup = match &redis {
            Some(redis) => setup.redis(&redis.url()),
            None => setup,
        };
        let desk = Desk::of(setup.start().await, redis).await;
        let body = json!({ "model": catalogue::LARGE, "messages": [{ "role": "user", "content": "Hi" }] });
        let answer = desk.gateway.http1.post("/llm/chat", body.to_string()).await;
        assert_eq!(answer.status, 200);
        let spent = desk.gateway.spent().await.to_string();
        let calls = desk.get("/v1/generations?account=acme").await;
        let call = &calls["data"][0];
        assert_eq!(
            (&call["total_cost"], &call["account"]),
            (&json!(spent), &json!("acme")),
            "{calls}"
        );
        let key = call["key"].as_str().unwrap();
        let usage = desk
            .get(&format!("/v1/usage?account=acme&key={key}&period=all&group_by=day"))
            .await;
        assert_eq!(
            (&usage["total_cost"], &usage["groups"][0]["cost"]),
            (&json!(spent), &json!(spent)),
            "{usage}"
        );
        let id = call["id"].as_str().unwrap();
        assert_eq!(
            desk.get(&format!("/v1/generations?account=acme&id={id}")).await["data"][0],
            *call
        );
        let none = desk.get("/v1/generations?account=acme&key=key_0123456789abcdef").await;
        assert_eq!(none["data"], json!([]));
        let statement = desk.get("/v1/accounts/acme/statement").await;
        assert_eq!(statement["debits"][0]["cost"], json!(spent));
    }
}

#[tokio::test]
async fn models_have_both_prices_and_providers_their_state() {
    let desk = Desk::over(super::Ground::Embedded).await;
    let models = desk.get("/v1/models").await;
    let model = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["id"] == catalogue::LARGE);
    let (list, base) = (&model.unwrap()["pricing"], &model.unwrap()["provider_pricing"]);
    let price = |text: &Value| text.as_str().unwrap().parse::<rust_decimal::Decimal>().unwrap();
    let markup: rust_decimal::Decimal = "1.15".parse().unwrap();
    for side in ["prompt", "completion"] {
        assert_eq!(price(&base[side]) * markup, price(&list[side]), "{side}");
    }
    let providers = desk.get("/v1/providers").await;
    let main = providers["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|provider| provider["name"] == "main")
        .unwrap();
    assert_eq!(main["on"], true);
    assert_eq!(main["targets"][0]["breaker_open"], false, "{main}");
    let settings = desk.get("/v1/settings").await;
    assert_eq!(
        (&settings["key_prefix"], &settings["tiers"]["pro"]["monthly_quota"]),
        (&json!("tg_"), &json!("1000"))
    );
    assert!(desk.get("/v1/status").await.is_object());
}
