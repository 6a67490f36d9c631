//! The served description of the interface, held to what the gateway does: its paths, methods, statuses, headers and fields.

mod errors;
mod tools;

use reqwest::Method;
use serde_json::{Value, json};

use crate::bad_paths::PATHS;
use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, HUGE, LARGE, SMALL};
use crate::harness::client::ask;
use crate::harness::{Answer, Gateway, KeySpec, Reply, Setup, Upstream};

pub async fn description(gateway: &Gateway) -> Value {
    gateway.http1.with_key("").get("/openapi.json").await.ok().json()
}

#[tokio::test]
async fn every_path_and_method_is_described_and_no_other() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let description = description(&gateway).await;
    assert_eq!(description["openapi"], "3.1.0");
    assert_eq!(description["servers"][0]["url"], "/api/v1");
    let mut described = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            described.push((path.replace("{id}", "acme/small"), method.to_uppercase()));
        }
    }
    let mut taken: Vec<(String, String)> = PATHS
        .iter()
        .map(|(path, allow)| ((*path).to_owned(), allow.split(',').next().unwrap().to_owned()))
        .collect();
    described.sort();
    taken.sort();
    assert_eq!(described, taken);

    let tag = gateway.http1.get("/openapi.json").await.header("etag").to_owned();
    let again = gateway
        .http1
        .request(Method::GET, "/openapi.json")
        .header("if-none-match", tag);
    assert_eq!(ask(again).await.status, 304);
}

/// Checks an answer against what is described for it: the status, every header of ours, and every field.
pub fn check(description: &Value, operation: &Value, answer: &Answer) {
    let response = &operation["responses"][answer.status.to_string()];
    assert!(
        response.is_object(),
        "{} of {}: {}",
        answer.status,
        operation["operationId"],
        answer.text()
    );
    for name in answer.headers.keys() {
        let of_http = [
            "date",
            "connection",
            "content-length",
            "content-type",
            "transfer-encoding",
        ];
        let described = response["headers"][name.as_str()].is_object();
        assert!(
            described || of_http.contains(&name.as_str()),
            "{name} with {} of {}",
            answer.status,
            operation["operationId"]
        );
    }
    for (name, header) in response["headers"].as_object().unwrap() {
        let header = resolved(description, header);
        if header["required"] == true {
            assert_ne!(answer.header(name), "", "{name}");
        }
        let (sent, schema) = (answer.header(name), &header["schema"]);
        if !sent.is_empty() {
            let only = schema.get("const");
            let some = schema.get("enum").and_then(Value::as_array);
            assert!(only.is_none_or(|only| only == sent), "{name}: {sent}");
            assert!(
                some.is_none_or(|some| some.iter().any(|one| one == sent)),
                "{name}: {sent}"
            );
        }
    }
    if answer.body.is_empty() {
        return;
    }
    let content = &response["content"][answer.header("content-type")];
    assert!(
        content.is_object(),
        "{} with {}",
        answer.header("content-type"),
        answer.status
    );
    if answer.header("content-type") == "application/json" {
        check_value(description, &content["schema"], &answer.json(), "");
    }
}

fn resolved<'a>(description: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => description
            .pointer(path.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{path}")),
        None => value,
    }
}

fn check_value(description: &Value, schema: &Value, value: &Value, place: &str) {
    let schema = resolved(description, schema);
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value}");
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(constant, value, "{place}");
    }
    match value {
        Value::Object(fields) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    fields.contains_key(required.as_str().unwrap()),
                    "{place}: {required} is missing in {value}"
                );
            }
            for (name, field) in fields {
                let described = &schema["properties"][name];
                let open = schema["additionalProperties"] != false;
                assert!(open || !described.is_null(), "{place}: {name} is not described");
                check_value(description, described, field, &format!("{place}/{name}"));
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| check_value(description, &schema["items"], item, &format!("{place}[]"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn every_answer_is_as_it_is_described() {
    let upstream = Upstream::by(|_, seen| {
        let body = seen.json();
        match (body["seed"].as_u64(), body["stream"].as_bool()) {
            (Some(status), _) => Reply::refusal(u16::try_from(status).unwrap(), &[("retry-after", "3")], "no"),
            (None, Some(true)) => Reply::stream_of(&["Hi"], 9, 1),
            (None, _) if body["input"].is_null() => Reply::chat("Hi", 9, 1),
            (None, _) => Reply::embeddings(1, 3),
        }
    })
    .await;
    let setup = Setup::over(&upstream).conf(|conf| {
        conf["auth_failures_per_minute"] = 5.into();
        conf["tiers"]["enterprise"] = json!({ "monthly_quota": "0" });
    });
    let mut gateway = setup.start().await;
    let description = description(&gateway).await;
    let origin = "https://app.example.com";
    let locked = gateway
        .new_key(KeySpec {
            domains: &["other.example"],
            ..KeySpec::default()
        })
        .await;
    let limits = tollgate::pure::limits::LimitOverrides {
        rpm: Some(1),
        ..Default::default()
    };
    let limited = gateway
        .new_key(KeySpec {
            limits,
            ..KeySpec::default()
        })
        .await;
    gateway.create_account("poor", tollgate::pure::ids::Tier::Pro).await;
    let poor = gateway.new_key_of("poor", KeySpec::default()).await;
    gateway
        .create_account("idle", tollgate::pure::ids::Tier::Enterprise)
        .await;
    let idle = gateway.new_key_of("idle", KeySpec::default()).await;

    let mut seen = Vec::new();
    let good = gateway.key.clone();
    let upstream_says =
        |status: u16| format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}],"seed":{status}}}"#);
    let chat = "/chat/completions";
    let mut calls: Vec<(&str, Method, String, &str, String)> = vec![
        ("/llm/chat", Method::POST, "/llm/chat".into(), &good, request(SMALL)),
        ("/llm/chat", Method::POST, "/llm/chat".into(), &good, streaming(SMALL)),
        (
            "/llm/chat/stream",
            Method::POST,
            "/llm/chat/stream".into(),
            &good,
            request(SMALL),
        ),
        (
            "/llm/embeddings",
            Method::POST,
            "/llm/embeddings".into(),
            &good,
            json!({ "model": EMBED, "input": "x" }).to_string(),
        ),
        (
            "/embeddings",
            Method::POST,
            "/embeddings".into(),
            &good,
            json!({ "model": EMBED, "input": ["x"] }).to_string(),
        ),
        ("/llm/balance", Method::GET, "/llm/balance".into(), &good, String::new()),
        (
            "/llm/usage",
            Method::GET,
            "/llm/usage?period=all".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/usage",
            Method::GET,
            "/llm/usage?period=week".into(),
            &good,
            String::new(),
        ),
        ("/key", Method::GET, "/key".into(), &good, String::new()),
        (
            "/llm/usage",
            Method::GET,
            "/llm/usage?from=2026-11-01&group_by=day".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/usage",
            Method::GET,
            "/llm/usage?group_by=end_user".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/generations",
            Method::GET,
            "/llm/generations?limit=2".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/generation",
            Method::GET,
            "/llm/generation?id=chatcmpl-1".into(),
            &good,
            String::new(),
        ),
        (
            "/generation",
            Method::GET,
            "/generation?id=none".into(),
            &good,
            String::new(),
        ),
        ("/generation", Method::GET, "/generation".into(), &good, String::new()),
        ("/llm/models", Method::GET, "/llm/models".into(), &good, String::new()),
        (
            "/llm/models",
            Method::GET,
            "/llm/models?search=small".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/models/purposes",
            Method::GET,
            "/llm/models/purposes".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/public/models",
            Method::GET,
            "/llm/public/models".into(),
            "",
            String::new(),
        ),
        (
            "/llm/public/models",
            Method::GET,
            "/llm/public/models?page=0".into(),
            "",
            String::new(),
        ),
        ("/llm/health", Method::GET, "/llm/health".into(), "", String::new()),
        ("/openapi.json", Method::GET, "/openapi.json".into(), "", String::new()),
        ("/wallet", Method::GET, "/wallet".into(), "", String::new()),
        ("/prices", Method::GET, "/prices".into(), "", String::new()),
        ("/models", Method::GET, "/models".into(), &good, String::new()),
        (
            "/models/{id}",
            Method::GET,
            "/models/acme/small".into(),
            &good,
            String::new(),
        ),
        (
            "/models/{id}",
            Method::GET,
            "/models/none/such".into(),
            &good,
            String::new(),
        ),
        (
            "/llm/balance",
            Method::GET,
            "/llm/balance".into(),
            &locked,
            String::new(),
        ),
        (chat, Method::POST, chat.into(), &good, "{}".into()),
        (chat, Method::POST, chat.into(), &good, request("no/such")),
        (chat, Method::POST, chat.into(), &good, request(HUGE)),
        (chat, Method::POST, chat.into(), &locked, request(SMALL)),
        (chat, Method::POST, chat.into(), &poor, request(LARGE)),
        (chat, Method::POST, chat.into(), &idle, request(LARGE)),
        (chat, Method::POST, chat.into(), &limited, request(SMALL)),
        (chat, Method::POST, chat.into(), &limited, request(SMALL)),
    ];
    for status in [400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503] {
        calls.push((chat, Method::POST, chat.into(), &good, upstream_says(status)));
    }
    for _ in 0..7 {
        calls.push((
            "/llm/balance",
            Method::GET,
            "/llm/balance".into(),
            "tg_wrong",
            String::new(),
        ));
    }
    for (path, method, target, key, body) in &calls {
        println!("{method} {target}");
        let client = gateway.http1.with_key(key);
        let call = client
            .request(method.clone(), target)
            .header("origin", origin)
            .body(body.clone());
        let answer = ask(call).await;
        let operation = &description["paths"][path][method.as_str().to_lowercase()];
        check(&description, operation, &answer);
        seen.push(answer.status);
    }
    for status in [200, 400, 401, 402, 403, 404, 409, 413, 415, 422, 429, 500, 502] {
        assert!(seen.contains(&status), "no answer had the status {status}: {seen:?}");
    }
    gateway.pay_in("1", "later").await;
    gateway.check_books().await;
}
