//! Each act by the API stands in the log with who, what, before and after.

use serde_json::{Value, json};
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, falsify, of};

/// The account that is acted on.
const API: &str = "api";
const WEBHOOK: &str = "https://billing.example.com/tollgate";

#[tokio::test]
async fn every_act_is_in_the_log() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            conf["webhooks"] = json!([{ "url": WEBHOOK, "secret_env": "SET_WEBHOOK" }]);
        })
        .await;
        desk.admin("POST", "/v1/accounts", json!({ "name": API, "tier": "free" }))
            .await
            .done(201);
        desk.admin("PATCH", "/v1/accounts/api", json!({ "tier": "pro" }))
            .await
            .done(200);
        desk.ask(
            &of(Role::Support),
            "PATCH",
            "/v1/accounts/api",
            r#"{"status":"suspended"}"#,
        )
        .await
        .done(200);
        let credit = r#"{"amount":"3","reference":"r1","kind":"bonus","note":"sorry"}"#;
        desk.ask(&of(Role::Billing), "POST", "/v1/accounts/api/credits", credit)
            .await
            .done(201);
        let refused = r#"{"amount":"-9","reference":"r2","kind":"correction"}"#;
        desk.ask(&of(Role::Billing), "POST", "/v1/accounts/api/credits", refused)
            .await
            .error(409, "conflict_error");
        let key = desk
            .ask(&of(Role::Support), "POST", "/v1/accounts/api/keys", "{}")
            .await
            .done(201);
        let first = format!("/v1/keys/{}", key["id"].as_str().unwrap());
        desk.ask(&of(Role::Support), "PATCH", &first, r#"{"label":"ci","limit":"5"}"#)
            .await
            .done(200);
        let rotate = format!("{first}/rotate");
        let rotated = desk
            .ask(&of(Role::Support), "POST", &rotate, r#"{"overlap":"1h"}"#)
            .await
            .done(201);
        let id = rotated["id"].as_str().unwrap();
        desk.ask(&of(Role::Support), "DELETE", &format!("/v1/keys/{id}"), "")
            .await
            .done(200);
        let made = desk
            .admin(
                "POST",
                "/v1/operators",
                json!({ "name": "Eve", "role": "read", "expires_in": "1d" }),
            )
            .await
            .done(201);
        let operator = made["id"].as_str().unwrap();
        desk.admin("DELETE", &format!("/v1/operators/{operator}"), Value::Null)
            .await
            .done(200);
        desk.admin("PUT", "/v1/maintenance", json!({ "on": true }))
            .await
            .done(200);
        desk.admin("PUT", "/v1/maintenance", json!({ "on": false }))
            .await
            .done(200);
        let event = desk
            .admin("POST", "/v1/webhooks/test", json!({ "url": WEBHOOK }))
            .await
            .done(200);
        let month = desk.gateway.clock.now().month();
        falsify(desk.redis.as_ref(), &desk.gateway.ledger_file(), API, month);
        let mended = desk.admin("POST", "/v1/repair", Value::Null).await.done(200);
        let figures = ["account", "found", "expected"].map(|name| &mended["mended"][0][name]);
        assert_eq!(figures, [&json!(API), &json!("5"), &json!("0")], "{mended}");
        // What mends nothing, only reads, or may not be done, is no act.
        let nothing = desk.admin("POST", "/v1/repair", Value::Null).await.done(200);
        assert_eq!(nothing, json!({ "mended": [] }));
        desk.get("/v1/accounts").await;
        desk.ask(&of(Role::Read), "DELETE", "/v1/keys/key_0123456789abcdef", "")
            .await
            .error(403, "permission_error");
        let log = desk.get("/v1/log").await;
        let acts = log["data"].as_array().unwrap();
        let told: Vec<(&str, &str)> = acts
            .iter()
            .rev()
            .map(|act| (act["action"].as_str().unwrap(), act["actor"]["role"].as_str().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                ("account.create", "admin"),
                ("account.set", "admin"),
                ("account.terms", "support"),
                ("credits.post", "billing"),
                ("credits.post", "billing"),
                ("key.create", "support"),
                ("key.set", "support"),
                ("key.rotate", "support"),
                ("key.revoke", "support"),
                ("operator.create", "admin"),
                ("operator.revoke", "admin"),
                ("maintenance", "admin"),
                ("maintenance", "admin"),
                ("event.raise", "admin"),
                ("ledger.repair", "admin"),
            ],
            "{ground:?}"
        );
        let at = |back: usize| &acts[acts.len() - 1 - back];
        assert!(
            acts.iter().all(|act| act["actor"]["address"] == "127.0.0.1"),
            "{acts:?}"
        );
        assert_eq!(
            (&at(1)["before"]["tier"], &at(1)["after"]["tier"]),
            (&json!("free"), &json!("pro"))
        );
        assert_eq!(
            (&at(2)["before"]["status"], &at(2)["after"]["status"]),
            (&json!("active"), &json!("suspended"))
        );
        assert_eq!(
            (&at(3)["subject"], &at(3)["after"]["balance"]),
            (&json!("r1"), &json!("3"))
        );
        assert!(at(4)["error"].as_str().unwrap().contains("available"), "{}", at(4));
        assert_eq!(
            (
                &at(6)["before"]["label"],
                &at(6)["after"]["label"],
                &at(6)["after"]["limit"]["amount"]
            ),
            (&Value::Null, &json!("ci"), &json!("5"))
        );
        assert_eq!(
            (
                &at(7)["subject"],
                &at(7)["request"]["new"],
                &at(7)["after"]["key"]["id"]
            ),
            (&key["id"], &rotated["id"], &rotated["id"])
        );
        assert!(at(7)["before"]["expires_at"].is_null() && at(7)["after"]["old"]["expires_at"].is_string());
        assert_eq!((&at(8)["subject"], &at(8)["account"]), (&json!(id), &json!(API)));
        assert_eq!((&at(13)["subject"], &at(13)["account"]), (&event["id"], &Value::Null));
        assert_eq!(at(14)["after"], mended, "{}", at(14));
        let text = log.to_string();
        for secret in [&key["key"], &rotated["key"], &made["token"]].map(|secret| secret.as_str().unwrap()) {
            assert!(!text.contains(secret), "a secret is in the log");
        }
        let of_account = desk.get("/v1/log?account=api&limit=3").await;
        let page = of_account["data"].as_array().unwrap();
        assert!(
            page.len() == 3 && page.iter().all(|act| act["account"] == API),
            "{page:?}"
        );
        let next = of_account["next"].as_str().unwrap();
        let rest = desk.get(&format!("/v1/log?account=api&before={next}")).await;
        assert_eq!(rest["data"].as_array().unwrap().len(), 6, "{rest}");
        assert_eq!(rest["next"], Value::Null);
    }
}
