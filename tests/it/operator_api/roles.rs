//! Every endpoint, for every role and for every credential that is none.

use std::collections::BTreeSet;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::admin::operators::OperatorOp;
use tollgate::pure::ids::ApiKey;
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, Ground, of, token_of, told};
use crate::auth::check_refused;

/// Method, path in the description, path that is asked for, body, and the roles that may; `read` means all.
pub(super) const ENDPOINTS: &[(&str, &str, &str, &str, &[Role])] = &[
    (
        "POST",
        "/v1/accounts",
        "/v1/accounts",
        r#"{"name":"n","tier":"free"}"#,
        ADMIN,
    ),
    ("GET", "/v1/accounts", "/v1/accounts", "", ALL),
    ("GET", "/v1/accounts/{name}", "/v1/accounts/acme", "", ALL),
    (
        "PATCH",
        "/v1/accounts/{name}",
        "/v1/accounts/acme",
        r#"{"status":"active"}"#,
        SUPPORT,
    ),
    (
        "PATCH",
        "/v1/accounts/{name}",
        "/v1/accounts/acme",
        r#"{"tier":"pro"}"#,
        ADMIN,
    ),
    (
        "PATCH",
        "/v1/accounts/{name}",
        "/v1/accounts/acme",
        r#"{"low_balance":"1"}"#,
        ADMIN,
    ),
    (
        "PATCH",
        "/v1/accounts/{name}",
        "/v1/accounts/acme",
        r#"{"status":"active","tier":"pro"}"#,
        ADMIN,
    ),
    (
        "PATCH",
        "/v1/accounts/{name}",
        "/v1/accounts/nobody",
        r#"{"status":"closed"}"#,
        ADMIN,
    ),
    (
        "POST",
        "/v1/accounts/{name}/credits",
        "/v1/accounts/acme/credits",
        r#"{"amount":"1","reference":"r"}"#,
        BILLING,
    ),
    (
        "GET",
        "/v1/accounts/{name}/credits",
        "/v1/accounts/acme/credits",
        "",
        ALL,
    ),
    (
        "GET",
        "/v1/accounts/{name}/statement",
        "/v1/accounts/acme/statement",
        "",
        ALL,
    ),
    (
        "POST",
        "/v1/accounts/{name}/keys",
        "/v1/accounts/acme/keys",
        "{}",
        SUPPORT,
    ),
    ("GET", "/v1/accounts/{name}/keys", "/v1/accounts/acme/keys", "", ALL),
    ("GET", "/v1/keys/{id}", "/v1/keys/key_0123456789abcdef", "", ALL),
    (
        "PATCH",
        "/v1/keys/{id}",
        "/v1/keys/key_0123456789abcdef",
        r#"{"label":"x"}"#,
        SUPPORT,
    ),
    ("DELETE", "/v1/keys/{id}", "/v1/keys/key_0123456789abcdef", "", SUPPORT),
    (
        "POST",
        "/v1/keys/{id}/rotate",
        "/v1/keys/key_0123456789abcdef/rotate",
        r#"{"overlap":"1h"}"#,
        SUPPORT,
    ),
    ("GET", "/v1/usage", "/v1/usage?account=acme", "", ALL),
    ("GET", "/v1/generations", "/v1/generations?account=acme", "", ALL),
    ("GET", "/v1/models", "/v1/models", "", ALL),
    ("GET", "/v1/providers", "/v1/providers", "", ALL),
    ("GET", "/v1/settings", "/v1/settings", "", ALL),
    ("GET", "/v1/status", "/v1/status", "", ALL),
    ("GET", "/v1/maintenance", "/v1/maintenance", "", ALL),
    ("PUT", "/v1/maintenance", "/v1/maintenance", r#"{"on":false}"#, ADMIN),
    ("GET", "/v1/webhooks", "/v1/webhooks", "", ALL),
    ("POST", "/v1/webhooks/test", "/v1/webhooks/test", "{}", ADMIN),
    ("GET", "/v1/audit", "/v1/audit", "", ALL),
    ("POST", "/v1/repair", "/v1/repair", "", ADMIN),
    (
        "POST",
        "/v1/operators",
        "/v1/operators",
        r#"{"name":"n","role":"read"}"#,
        ADMIN,
    ),
    ("GET", "/v1/operators", "/v1/operators", "", ADMIN),
    (
        "GET",
        "/v1/operators/{id}",
        "/v1/operators/op_0123456789abcdef",
        "",
        ADMIN,
    ),
    (
        "DELETE",
        "/v1/operators/{id}",
        "/v1/operators/op_0123456789abcdef",
        "",
        ADMIN,
    ),
    ("GET", "/v1/log", "/v1/log", "", ALL),
    ("POST", "/v1/commands", "/v1/commands", r#"{"op":"audit"}"#, ALL),
    (
        "POST",
        "/v1/commands",
        "/v1/commands",
        r#"{"op":"credits_add","account":"acme","amount":1,"reference":"c"}"#,
        BILLING,
    ),
    (
        "POST",
        "/v1/commands",
        "/v1/commands",
        r#"{"op":"key_revoke","key":{"id":"key_0123456789abcdef"}}"#,
        SUPPORT,
    ),
    (
        "POST",
        "/v1/commands",
        "/v1/commands",
        r#"{"op":"operator","operator_op":"list"}"#,
        ADMIN,
    ),
    (
        "POST",
        "/v1/commands",
        "/v1/commands",
        r#"{"op":"maintenance","on":false}"#,
        ADMIN,
    ),
    ("GET", "/v1/session", "/v1/session", "", ALL),
    ("DELETE", "/v1/session", "/v1/session", "", ALL),
    ("GET", "/v1/openapi.json", "/v1/openapi.json", "", ALL),
];

const ALL: &[Role] = &Role::ALL;
const SUPPORT: &[Role] = &[Role::Support, Role::Admin];
const BILLING: &[Role] = &[Role::Billing, Role::Admin];
const ADMIN: &[Role] = &[Role::Admin];

#[tokio::test]
async fn each_role_may_what_is_its_own_and_nothing_else() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        for (method, _, path, body, may) in ENDPOINTS {
            for role in Role::ALL {
                let answer = desk.ask(&of(role), method, path, body).await;
                let case = format!("{ground:?} {role} {method} {path} {body}: {answer:?}");
                if may.contains(&role) {
                    assert!(![401, 403, 405, 415, 500, 503].contains(&answer.status), "{case}");
                    continue;
                }
                let message = answer.error(403, "permission_error");
                let metadata = &answer.json()["error"]["metadata"];
                assert!(message.contains(&format!("role {role}")), "{case}");
                let needs: Vec<&str> = may.iter().map(|role| role.name()).collect();
                assert!(
                    needs
                        .iter()
                        .all(|role| metadata["needs"].as_array().unwrap().contains(&json!(role))),
                    "{case}"
                );
            }
        }
    }
}

#[tokio::test]
async fn nobody_else_may_anything() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let (revoked, expired) = (token_of(50), token_of(51));
        let id = desk.make_operator(&revoked, Role::Admin, None).await;
        desk.gateway.run(AdminOp::Operator(OperatorOp::Revoke { id })).await;
        desk.make_operator(&expired, Role::Admin, Some(1_000)).await;
        let before = desk.ask(&expired, "GET", "/v1/accounts", "").await;
        assert_eq!(before.status, 200, "until its time");
        desk.gateway.clock.advance(1_000);
        let client = desk.gateway.key.clone();
        let mistyped = format!("{}0", &of(Role::Admin)[..of(Role::Admin).len() - 1]);
        let keylike = ApiKey::from_random("tgop_", [99; 32]).reveal().to_owned();
        for (method, _, path, body, _) in ENDPOINTS {
            for token in [&revoked, &expired, &client, &mistyped, &keylike, &"x".to_owned()] {
                let answer = desk.ask(token, method, path, body).await;
                let message = answer.error(401, "authentication_error");
                assert!(message.contains("wrong, expired or revoked"), "{message}");
                assert_eq!(answer.header("www-authenticate"), "Bearer");
            }
            for authorization in [None, Some("Basic eDp5"), Some("Bearer")] {
                let mut request = desk.request(method, path);
                if let Some(authorization) = authorization {
                    request = request.header("authorization", authorization);
                }
                let request = request
                    .header("content-type", "application/json")
                    .body(body.to_string());
                let message = told(request).await.error(401, "authentication_error");
                assert!(message.contains("No operator's token"), "{message}");
            }
        }
        let logged = desk.get("/v1/log?limit=1000").await;
        let acts = logged["data"].as_array().unwrap();
        assert!(acts.is_empty(), "nobody did anything: {acts:?}");
    }
}

#[tokio::test]
async fn an_operators_token_opens_nothing_on_the_public_listener() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        for role in Role::ALL {
            check_refused(&desk.gateway, &of(role)).await;
        }
        assert_eq!(desk.gateway.spent().await, Decimal::ZERO);
        assert_eq!(desk.gateway.usage().await, []);
    }
}

#[tokio::test]
async fn the_table_has_every_endpoint() {
    let desk = Desk::over(Ground::Embedded).await;
    let description = desk.get("/v1/openapi.json").await;
    let mut described = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"] != Value::Array(Vec::new()) {
                described.insert((method.to_uppercase(), path.clone()));
            }
        }
    }
    let tried: BTreeSet<(String, String)> = ENDPOINTS
        .iter()
        .map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(tried, described);
}
