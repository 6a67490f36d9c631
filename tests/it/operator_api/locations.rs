//! What `Location` names when something was made can be read, without its secret.

use serde_json::{Value, json};
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, Told, of};

/// The entry of a list that has this id.
fn listed(list: &Value, id: &Value) -> Value {
    let entries = list["data"].as_array().unwrap();
    let found = entries.iter().find(|entry| entry["id"] == *id);
    found.unwrap_or_else(|| panic!("{id} in {list}")).clone()
}

/// Whether what is shown has all that stands in the list, and the secret nowhere.
fn is_as_listed(shown: &Told, listed: &Value, secret: &Value) {
    assert!(!shown.text.contains(secret.as_str().unwrap()), "{shown:?}");
    let shown = shown.done(200);
    for (name, value) in listed.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}: {shown}");
    }
    assert!(shown.get("key").is_none() && shown.get("token").is_none(), "{shown}");
}

#[tokio::test]
async fn a_new_key_is_where_its_answer_says() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let new = json!({ "label": "ci", "limit": "5", "limit_reset": "monthly", "models": ["openai/*"] });
        let made = desk.admin("POST", "/v1/accounts/acme/keys", new).await;
        let (first, place) = (made.done(201), made.header("location").to_owned());
        let rotation = json!({ "overlap": "1h" });
        let rotated = desk.admin("POST", &format!("{place}/rotate"), rotation).await;
        let (second, place_of_second) = (rotated.done(201), rotated.header("location").to_owned());
        assert_ne!(place, place_of_second);
        for (place, made) in [(&place, &first), (&place_of_second, &second)] {
            let all = desk.get("/v1/accounts/acme/keys").await;
            for role in Role::ALL {
                let shown = desk.ask(&of(role), "GET", place, "").await;
                is_as_listed(&shown, &listed(&all, &made["id"]), &made["key"]);
                assert_eq!(shown.json()["label"], "ci", "{ground:?} {role}");
            }
            assert_eq!(desk.ask(&of(Role::Read), "HEAD", place, "").await.status, 200);
            desk.admin("DELETE", place, Value::Null).await.done(200);
            assert_eq!(desk.get(place).await["state"], "revoked", "{ground:?}");
        }
        for (nowhere, says) in [
            ("/v1/keys/key_0123456789abcdef", "no such key"),
            ("/v1/keys/key_x", "no key of that id"),
        ] {
            let message = desk.admin("GET", nowhere, Value::Null).await;
            let message = message.error(404, "not_found_error");
            assert!(message.contains(says), "{message}");
        }
    }
}

#[tokio::test]
async fn a_new_operator_is_where_the_answer_says() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let made = desk
            .admin("POST", "/v1/operators", json!({ "name": "Ann", "role": "billing" }))
            .await;
        let (operator, place) = (made.done(201), made.header("location"));
        let all = desk.get("/v1/operators").await;
        let shown = desk.admin("GET", place, Value::Null).await;
        is_as_listed(&shown, &listed(&all, &operator["id"]), &operator["token"]);
        assert_eq!(shown.json()["name"], "Ann", "{ground:?}");
        // Who may not see the list sees none of it.
        for role in [Role::Read, Role::Support, Role::Billing] {
            let refused = desk.ask(&of(role), "GET", place, "").await;
            refused.error(403, "permission_error");
        }
        desk.admin("DELETE", place, Value::Null).await.done(200);
        assert_eq!(desk.get(place).await["state"], "revoked", "{ground:?}");
        for nobody in ["/v1/operators/op_0123456789abcdef", "/v1/operators/x"] {
            let message = desk.admin("GET", nobody, Value::Null).await;
            let message = message.error(404, "not_found_error");
            assert!(message.contains("no operator of that id"), "{message}");
        }
    }
}
