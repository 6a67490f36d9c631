//! What is refused, and how it is said: bodies, fields, parameters, methods, heads.

use serde_json::{Value, json};
use tollgate::pure::operator::Role;

use super::{Desk, Ground, of};

/// Method, path, body, and words of the refusal.
const WRONG: &[(&str, &str, &str, u16, &str)] = &[
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"x","tier":"free","tiers":1}"#,
        400,
        "unknown key tiers (did you mean tier?)",
    ),
    ("POST", "/v1/accounts", r#"{"name":"x"}"#, 400, "missing field `tier`"),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"a b","tier":"free"}"#,
        400,
        "not an account name",
    ),
    ("POST", "/v1/accounts", r#"{"name":"x","tier":"gold"}"#, 400, "gold"),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"x","tier":"free","monthly_quota":5}"#,
        400,
        "an amount in quotes",
    ),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"x","tier":"free","monthly_quota":"-5"}"#,
        400,
        "cannot be negative",
    ),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"x","tier":"free","low_balance":"-5"}"#,
        400,
        "cannot be negative",
    ),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"x","tier":"free","name":"y"}"#,
        400,
        "duplicate field",
    ),
    ("PATCH", "/v1/accounts/acme", "[null, null]", 400, "not a JSON object"),
    ("POST", "/v1/accounts", "{", 400, "The body cannot be read"),
    (
        "POST",
        "/v1/accounts",
        r#"{"name":"acme","tier":"free"}"#,
        409,
        "exists already",
    ),
    ("PATCH", "/v1/accounts/acme", "{}", 400, "nothing to change"),
    (
        "PATCH",
        "/v1/accounts/acme",
        r#"{"tier":null}"#,
        400,
        "The body cannot be read",
    ),
    (
        "PATCH",
        "/v1/accounts/acme",
        r#"{"status":null}"#,
        400,
        "The body cannot be read",
    ),
    (
        "PATCH",
        "/v1/keys/key_0123456789abcdef",
        r#"{"models":null}"#,
        400,
        "The body cannot be read",
    ),
    ("PATCH", "/v1/accounts/acme", r#"{"status":"frozen"}"#, 400, "frozen"),
    (
        "PATCH",
        "/v1/accounts/acme",
        r#"{"metadata":{"":"x"}}"#,
        400,
        "metadata has names",
    ),
    (
        "PATCH",
        "/v1/accounts/nobody",
        r#"{"tier":"pro"}"#,
        404,
        "no account is named nobody",
    ),
    (
        "PATCH",
        "/v1/accounts/a%20b",
        r#"{"tier":"pro"}"#,
        404,
        "no account of that name",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":10.5,"reference":"x"}"#,
        400,
        "an amount in quotes",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":10,"reference":"x"}"#,
        400,
        "an amount in quotes",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"1e3","reference":"x"}"#,
        400,
        "1e3",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"0.0000000000001","reference":"x"}"#,
        400,
        "12 decimals",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"99999999","reference":"x"}"#,
        400,
        "99999999",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"0","reference":"x"}"#,
        400,
        "above 0",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"-1","reference":"x"}"#,
        400,
        "above 0",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"1","reference":""}"#,
        400,
        "reference",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"1"}"#,
        400,
        "missing field `reference`",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"1","reference":"x","kind":"gift"}"#,
        400,
        "gift",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"ammount":"1","reference":"x"}"#,
        400,
        "did you mean amount?",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"20","reference":"x","kind":"refund"}"#,
        400,
        "the amount of a refund is below 0",
    ),
    (
        "POST",
        "/v1/accounts/acme/credits",
        r#"{"amount":"-1000","reference":"x","kind":"correction"}"#,
        409,
        "available",
    ),
    (
        "POST",
        "/v1/accounts/nobody/credits",
        r#"{"amount":"1","reference":"x"}"#,
        404,
        "nobody",
    ),
    (
        "GET",
        "/v1/accounts/acme/statement?from=2026-13-01",
        "",
        400,
        "from must be a day",
    ),
    (
        "GET",
        "/v1/accounts/acme/statement?formats=csv",
        "",
        400,
        "did you mean format?",
    ),
    ("GET", "/v1/accounts/acme/statement?format=pdf", "", 400, "json or csv"),
    (
        "GET",
        "/v1/accounts/acme/statement?from=2020-01-01&to=2026-01-01",
        "",
        400,
        "at most 367 days",
    ),
    ("GET", "/v1/accounts?limit=0", "", 400, "from 1 to 200"),
    ("GET", "/v1/accounts?limit=201", "", 400, "from 1 to 200"),
    ("GET", "/v1/accounts?limit=1&limit=2", "", 400, "more than once"),
    ("GET", "/v1/accounts?after=a%20b", "", 400, "after"),
    ("GET", "/v1/usage", "", 400, "account is missing"),
    ("GET", "/v1/usage?account=nobody", "", 404, "nobody"),
    (
        "GET",
        "/v1/usage?account=acme&group_by=user",
        "",
        400,
        "group_by must be one of",
    ),
    (
        "GET",
        "/v1/usage?account=acme&key=key_1",
        "",
        400,
        "not the id of a key",
    ),
    ("GET", "/v1/generations?account=acme&before=x", "", 400, "next"),
    ("GET", "/v1/generations?account=acme&id=", "", 400, "id is of 1 to 256"),
    ("GET", "/v1/accounts/acme/credits?before=", "", 400, "before is of 1"),
    ("GET", "/v1/log?before=x", "", 400, "number"),
    ("POST", "/v1/accounts/acme/keys", r#"{"rpm":0}"#, 400, "from 1 to"),
    (
        "POST",
        "/v1/accounts/acme/keys",
        r#"{"expires_in":"0s"}"#,
        400,
        "above 0",
    ),
    (
        "POST",
        "/v1/accounts/acme/keys",
        r#"{"expires_in":"1y"}"#,
        400,
        "30d, 12h, 90m or 45s",
    ),
    (
        "POST",
        "/v1/accounts/acme/keys",
        r#"{"limit_reset":"daily"}"#,
        400,
        "no limit to reset",
    ),
    (
        "POST",
        "/v1/accounts/acme/keys",
        r#"{"domains":["a b"]}"#,
        400,
        "not a host",
    ),
    ("PATCH", "/v1/keys/key_0123456789abcdef", "{}", 400, "nothing to change"),
    (
        "PATCH",
        "/v1/keys/key_0123456789abcdef",
        r#"{"label":"x"}"#,
        404,
        "no such key",
    ),
    (
        "PATCH",
        "/v1/keys/key_0123456789abcdef",
        r#"{"rpm":5}"#,
        400,
        "unknown key rpm",
    ),
    ("DELETE", "/v1/keys/key_x", "", 404, "no key of that id"),
    (
        "POST",
        "/v1/keys/key_0123456789abcdef/rotate",
        "{}",
        400,
        "missing field `overlap`",
    ),
    ("DELETE", "/v1/operators/op_0123456789abcdef", "", 404, "no operator"),
    ("DELETE", "/v1/operators/x", "", 404, "no operator of that id"),
    ("POST", "/v1/operators", r#"{"name":"","role":"read"}"#, 400, "name"),
    ("POST", "/v1/operators", r#"{"name":"x","role":"root"}"#, 400, "root"),
    (
        "PUT",
        "/v1/maintenance",
        r#"{"on":"yes"}"#,
        400,
        "The body cannot be read",
    ),
    (
        "POST",
        "/v1/commands",
        r#"{"op":"nothing"}"#,
        400,
        "The body cannot be read",
    ),
    ("GET", "/v1/nothing", "", 404, "no such path"),
    ("GET", "/v1", "", 404, "no such path"),
    ("DELETE", "/v1/accounts", "", 405, "POST, GET, HEAD, OPTIONS"),
    ("TRACE", "/v1/accounts", "", 405, "POST, GET, HEAD, OPTIONS"),
];

fn kind(status: u16) -> &'static str {
    match status {
        404 => "not_found_error",
        409 => "conflict_error",
        _ => "invalid_request_error",
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_said() {
    for ground in super::GROUNDS {
        let desk = Desk::over(ground).await;
        let before = desk.get("/v1/accounts/acme").await;
        for (method, path, body, status, words) in WRONG {
            let answer = desk.ask(&of(Role::Admin), method, path, body).await;
            println!("{ground:?} {method} {path} {body}: {}", answer.text);
            let message = answer.error(*status, kind(*status));
            assert!(message.contains(words), "{method} {path} {body}: {message}");
        }
        assert_eq!(desk.get("/v1/accounts/acme").await, before);
    }
}

/// Nothing is wrong with either change by itself.
#[tokio::test]
async fn a_change_that_does_not_go_with_what_an_account_has_is_a_conflict() {
    let names = |range: std::ops::Range<u32>| -> Value {
        let metadata: serde_json::Map<_, _> = range.map(|n| (format!("n{n}"), json!("x"))).collect();
        json!({ "metadata": metadata })
    };
    for ground in super::GROUNDS {
        let desk = Desk::over(ground).await;
        let change = async |change: Value| desk.admin("PATCH", "/v1/accounts/acme", change).await;
        change(names(0..17)).await.error(400, "invalid_request_error");
        let full = change(names(0..16)).await.done(200);
        let message = change(names(16..17)).await.error(409, "conflict_error");
        assert!(message.contains("at most 16 names"), "{message}");
        assert_eq!(change(names(8..16)).await.done(200)["metadata"], full["metadata"]);
        change(json!({ "status": "closed" })).await.done(200);
        let message = change(json!({ "status": "active" })).await.error(409, "conflict_error");
        assert!(message.contains("cannot be opened again"), "{message}");
    }
}

#[tokio::test]
async fn commands_of_the_gateways_own_are_nobodys() {
    let desk = Desk::over(Ground::Embedded).await;
    let find = json!({ "op": "operator", "operator_op": "find", "digest": "0".repeat(64) });
    let by = json!({ "op": "by", "actor": { "id": "op_1", "name": "x", "role": "admin", "address": null }, "op_": {} });
    for command in [
        find,
        by,
        json!({ "op": "event", "event_op": "claim", "limit": 1, "lease_ms": 1 }),
    ] {
        let answer = desk.admin("POST", "/v1/commands", command).await;
        answer.error(400, "invalid_request_error");
    }
}
