//! Heads and bodies: types, lengths, methods, names of the listener.

use serde_json::{Value, json};
use tollgate::pure::operator::Role;

use super::{Desk, Ground, of, told};

#[tokio::test]
async fn bodies_are_json_of_at_most_a_mebibyte() {
    let desk = Desk::over(Ground::Embedded).await;
    let post = |kind: Option<&str>, body: String| {
        let request = desk.request("POST", "/v1/accounts").bearer_auth(of(Role::Admin));
        match kind {
            Some(kind) => request.header("content-type", kind).body(body),
            None => request.body(body),
        }
    };
    let good = r#"{"name":"a1","tier":"free"}"#.to_owned();
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonx"),
    ] {
        told(post(kind, good.clone())).await.error(415, "invalid_request_error");
    }
    let long = format!("{}{}", " ".repeat((1 << 20) - good.len()), good);
    told(post(Some("application/json; charset=utf-8"), long.clone()))
        .await
        .done(201);
    told(post(Some("application/json"), format!(" {long}")))
        .await
        .error(413, "invalid_request_error");
    let coded = post(Some("application/json"), good).header("content-encoding", "gzip");
    told(coded).await.error(400, "invalid_request_error");
    let head = desk.request("GET", "/v1/accounts").bearer_auth(of(Role::Admin));
    told(head.header("x-long", "x".repeat(40_000)))
        .await
        .error(431, "invalid_request_error");
}

#[tokio::test]
async fn heads_and_options() {
    let desk = Desk::over(Ground::Embedded).await;
    for path in [
        "/v1/accounts",
        "/v1/accounts/acme",
        "/v1/openapi.json",
        "/v1/models",
        "/v1/nothing",
    ] {
        let get = desk.admin("GET", path, Value::Null).await;
        let head = desk.admin("HEAD", path, Value::Null).await;
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        for name in [
            "content-type",
            "content-length",
            "cache-control",
            "x-content-type-options",
        ] {
            assert_eq!(head.header(name), get.header(name), "{path} {name}");
        }
        assert_eq!(
            (get.header("cache-control"), get.header("x-content-type-options")),
            ("no-store", "nosniff")
        );
        assert_eq!(get.header("x-request-id").len(), 36);
        assert!(
            get.headers
                .keys()
                .all(|name| !name.as_str().starts_with("access-control"))
        );
    }
    let options = told(desk.request("OPTIONS", "/v1/keys/key_0123456789abcdef")).await;
    assert_eq!(
        (options.status, options.header("allow")),
        (204, "GET, HEAD, PATCH, DELETE, OPTIONS")
    );
}

#[tokio::test]
async fn a_name_that_somebody_else_may_own_is_not_this_listeners() {
    let desk = Desk::with(Ground::Embedded, |conf| {
        conf["operator_listen"] = "127.0.0.1:0".into();
        conf["operator_hosts"] = json!(["ops.example.com"]);
    })
    .await;
    for (host, status) in [
        ("127.0.0.1:9091", 200),
        ("localhost", 200),
        ("ops.example.com", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ] {
        let request = desk.request("GET", "/v1/accounts").bearer_auth(of(Role::Read));
        assert_eq!(told(request.header("host", host)).await.status, status, "{host}");
    }
}

/// With Nagle's algorithm what is sent behind a head waits until the client acknowledges that, which clients delay by 40 ms.
#[tokio::test]
async fn no_answer_waits_for_the_acknowledgement_of_its_first_bytes() {
    let desk = Desk::over(Ground::Embedded).await;
    for number in 0..100 {
        let account = json!({ "name": format!("account-{number}"), "tier": "free" });
        desk.admin("POST", "/v1/accounts", account).await.done(201);
    }
    let answered = async || {
        let asked = std::time::Instant::now();
        let page = desk.admin("GET", "/v1/accounts?limit=100", Value::Null).await;
        assert!((20_000..60_000).contains(&page.text.len()), "{}", page.text.len());
        asked.elapsed()
    };
    let mut took = Vec::new();
    for _ in 0..41 {
        took.push(answered().await);
    }
    took.sort_unstable();
    assert!(took[20] < std::time::Duration::from_millis(30), "{:?}", took[20]);
}
