//! What does not go with what is there is 409, and a change is done whole or not at all.

use serde_json::{Value, json};

use super::{Desk, GROUNDS};

#[tokio::test]
async fn what_a_closed_account_or_a_key_that_is_over_does_not_take_is_a_conflict() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let key = async || desk.admin("POST", "/v1/accounts/acme/keys", json!({})).await.done(201);
        let of = |key: &Value| format!("/v1/keys/{}", key["id"].as_str().unwrap());
        let (good, revoked) = (of(&key().await), of(&key().await));
        desk.admin("DELETE", &revoked, Value::Null).await.done(200);
        let rotation = json!({ "overlap": "1h" });
        let conflict = async |path: &str, body: Value, says: &str| {
            let message = desk.admin("POST", path, body).await.error(409, "conflict_error");
            assert!(message.contains(says), "{ground:?} {path}: {message}");
        };
        conflict(&format!("{revoked}/rotate"), rotation.clone(), "is revoked").await;
        let account_status = async || desk.get("/v1/accounts/acme/keys").await["account_status"].clone();
        assert_eq!(account_status().await, "active", "{ground:?}");
        let closed = json!({ "status": "closed" });
        desk.admin("PATCH", "/v1/accounts/acme", closed).await.done(200);
        assert_eq!(account_status().await, "closed", "{ground:?}");
        conflict(&format!("{good}/rotate"), rotation, "is closed").await;
        conflict("/v1/accounts/acme/keys", json!({}), "is closed").await;
        let credit = "/v1/accounts/acme/credits";
        let entry = |kind: &str, amount: &str| json!({ "amount": amount, "reference": kind, "kind": kind });
        conflict(credit, entry("bonus", "1"), "is closed").await;
        conflict(credit, entry("refund", "-1000000"), "available").await;
        // What is wrong in itself is no conflict, whatever the account.
        desk.admin("POST", "/v1/accounts/acme/keys", json!({ "label": "\n" }))
            .await
            .error(400, "invalid_request_error");
        desk.admin("POST", credit, entry("bonus", "-1"))
            .await
            .error(400, "invalid_request_error");
    }
}

#[tokio::test]
async fn a_change_of_an_account_is_one_act() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let patch = async |change: Value| desk.admin("PATCH", "/v1/accounts/acme", change).await;
        let full: serde_json::Map<String, Value> = (0..16).map(|n| (format!("n{n}"), json!("x"))).collect();
        patch(json!({ "tier": "pro", "metadata": full })).await.done(200);
        let before = desk.get("/v1/accounts/acme").await;
        let too_much = json!({ "tier": "lite", "monthly_quota": "7", "metadata": { "n16": "x" } });
        patch(too_much).await.error(409, "conflict_error");
        assert_eq!(desk.get("/v1/accounts/acme").await, before, "{ground:?}");
        let all = json!({
            "tier": "lite", "monthly_quota": "7", "status": "suspended", "low_balance": "1.5", "metadata": { "n0": null },
        });
        let changed = patch(all.clone()).await.done(200);
        for (name, is) in all.as_object().unwrap().iter().filter(|(name, _)| *name != "metadata") {
            assert_eq!(&changed[name], is, "{ground:?} {name}: {changed}");
        }
        assert_eq!(changed["metadata"].as_object().unwrap().len(), 15, "{changed}");
        let log = desk.get("/v1/log?account=acme&limit=2").await;
        let [done, refused] = [0, 1].map(|at| &log["data"][at]);
        assert_eq!(
            (&done["action"], &done["request"], &done["error"]),
            (&json!("account.set"), &all, &Value::Null)
        );
        assert_eq!(refused["action"], "account.set", "the one before: {log}");
    }
}
