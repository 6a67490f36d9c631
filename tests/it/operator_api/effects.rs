//! What operators make works at once, and a command is answered as the ledger answers it.

use serde_json::{Value, json};
use tollgate::ledger::admin::{AdminOp, AdminReply};
use tollgate::pure::ids::AccountId;
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, of};

fn account(name: &str) -> AccountId {
    name.parse().unwrap()
}

#[tokio::test]
async fn what_an_operator_makes_works_and_what_is_revoked_does_not() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let made = desk
            .admin("POST", "/v1/operators", json!({ "name": "Ann", "role": "billing" }))
            .await
            .done(201);
        let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
        desk.ask(
            token,
            "POST",
            "/v1/accounts/acme/credits",
            r#"{"amount":"1","reference":"x"}"#,
        )
        .await
        .done(201);
        let listed = desk.get("/v1/operators").await;
        let own = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .find(|operator| operator["id"] == id);
        assert_eq!(own.unwrap()["state"], "active");
        assert!(own.unwrap().get("token").is_none() && !listed.to_string().contains(token));
        let revoked = desk
            .admin("DELETE", &format!("/v1/operators/{id}"), Value::Null)
            .await
            .done(200);
        assert_eq!(revoked["state"], "revoked");
        desk.ask(token, "GET", "/v1/accounts", "")
            .await
            .error(401, "authentication_error");
    }
}

/// What a key is shown with can be written back, as it is.
#[tokio::test]
async fn what_a_key_is_shown_with_changes_it_to_that() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let weekly = json!({ "limit": "5", "limit_reset": "weekly" });
        let none = json!({ "limit": null, "limit_reset": null, "end_user_limit": null, "end_user_limit_reset": null });
        let made = desk
            .admin("POST", "/v1/accounts/acme/keys", none.clone())
            .await
            .done(201);
        let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
        let shown = |key: &Value| {
            ["limit", "limit_reset", "end_user_limit", "end_user_limit_reset"].map(|name| key[name].clone())
        };
        for (change, expected) in [
            (none.clone(), json!([null, null, null, null])),
            (weekly, json!(["5", "weekly", null, null])),
            (json!({ "limit_reset": null }), json!(["5", "none", null, null])),
            (none, json!([null, null, null, null])),
        ] {
            let key = desk.admin("PATCH", &path, change.clone()).await.done(200);
            assert_eq!(json!(shown(&key)), expected, "{change} {ground:?}");
        }
    }
}

#[tokio::test]
async fn a_command_is_answered_as_the_ledger_answers_it() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let show = AdminOp::AccountShow {
            account: account("acme"),
        };
        let asked = desk
            .admin("POST", "/v1/commands", serde_json::to_value(&show).unwrap())
            .await
            .done(200);
        let reply: Result<AdminReply, tollgate::ledger::admin::AdminError> = serde_json::from_value(asked).unwrap();
        assert_eq!(reply, Ok(desk.gateway.run(show).await));
        let nobody = AdminOp::AccountShow {
            account: account("nobody"),
        };
        let asked = desk
            .admin("POST", "/v1/commands", serde_json::to_value(&nobody).unwrap())
            .await
            .done(200);
        assert_eq!(asked, json!({ "Err": { "error": "no_account", "text": "nobody" } }));
        let add = json!({ "op": "credits_add", "account": "acme", "amount": 5, "reference": "by-command" });
        desk.ask(&of(Role::Billing), "POST", "/v1/commands", &add.to_string())
            .await
            .done(200);
        let last = &desk.get("/v1/log?limit=1").await["data"][0];
        assert_eq!(
            (&last["action"], &last["subject"]),
            (&json!("credits.post"), &json!("by-command"))
        );
    }
}

/// A role that may give credit gives it as each other way does: a refund takes some, and Stripe's payments are the gateway's own.
#[tokio::test]
async fn a_command_posts_no_credit_that_its_path_would_refuse() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let before = desk.get("/v1/accounts/acme").await;
        let post = |kind: &str, amount: i64, flag: &str| {
            let mut post = json!({
                "op": "credit", "credit_op": "post", "account": "acme", "amount": amount, "reference": "pi_1", "kind": kind,
            });
            if !flag.is_empty() {
                post[flag] = json!(true);
            }
            post.to_string()
        };
        for (body, words) in [
            (post("refund", 5, ""), "below 0"),
            (post("top_up", 5, "is_payment"), "the gateway's own"),
            (post("refund", -5, "as_available"), "the gateway's own"),
        ] {
            let refused = desk.ask(&of(Role::Billing), "POST", "/v1/commands", &body).await;
            let message = refused.error(400, "invalid_request_error");
            assert!(message.contains(words), "{body}: {message}");
        }
        assert_eq!(desk.get("/v1/accounts/acme").await, before);
        let taken = desk
            .ask(&of(Role::Billing), "POST", "/v1/commands", &post("refund", -5, ""))
            .await;
        assert_eq!(taken.done(200)["Ok"]["added"], true);
    }
}

/// What receivers are told of is the gateway's own: whoever asks for a test chooses neither its id nor its time, nor whom it is about.
#[tokio::test]
async fn a_test_of_webhooks_is_the_gateways_own_word() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            conf["webhooks"] = json!([{ "url": "https://hooks.test/", "secret_env": "SET_WEBHOOK" }]);
        })
        .await;
        let raise = |url: Value| {
            json!({
                "op": "event", "event_op": "raise", "id": "evt_forged", "kind": "webhook.test", "at": 1, "account": "acme",
                "data": { "url": url, "more": "of it" }, "deliveries": [],
            })
        };
        let raised = desk
            .admin("POST", "/v1/commands", raise("https://hooks.test/".into()))
            .await
            .done(200);
        let event = &raised["Ok"]["events"][0];
        let id = event["id"].as_str().unwrap();
        assert!(id.starts_with("evt_") && id != "evt_forged", "{raised}");
        assert_eq!(event["at"], desk.gateway.clock.now().0);
        assert_eq!(
            (&event["account"], &event["data"]),
            (&Value::Null, &json!({ "url": "https://hooks.test/" }))
        );
        let unknown = desk.admin("POST", "/v1/commands", raise("https://other.test/".into()));
        unknown.await.error(404, "not_found_error");
        let command = raise(Value::Null).to_string();
        let refused = desk.ask(&of(Role::Billing), "POST", "/v1/commands", &command).await;
        refused.error(403, "permission_error");
    }
}
