//! Fields that a provider gets only where its `allow_fields` names them: `metadata`, a `store` that asks for nothing, OpenRouter's `usage`.

use serde_json::{Value, json};

use crate::harness::catalogue::{EMBED, SMALL, TWIN};
use crate::harness::told::told_cost;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// A provider that answers as it is asked: whole, or as a stream.
async fn upstream() -> Upstream {
    Upstream::by(|_, seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hi"], 9, 1),
        false => Reply::chat("Hi", 9, 1),
    })
    .await
}

/// A gateway whose provider is sent these fields.
async fn allowing(upstream: &Upstream, fields: &[&str]) -> Gateway {
    let setup = Setup::over(upstream).conf(|conf| conf["providers"]["main"]["allow_fields"] = json!(fields));
    setup.start().await
}

/// A request for a model, with more members at its end.
fn body(model: &str, rest: &str) -> String {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"x"}}],"seed":1{rest}}}"#)
}

/// What a provider is sent for it at this path.
fn sent(path: &str, rest: &str) -> String {
    let whole = body("up-small", rest);
    match path {
        "/llm/chat/stream" => whole.replacen('{', r#"{"stream":true,"stream_options":{"include_usage":true},"#, 1),
        _ => whole,
    }
}

const PATHS: [&str; 2] = ["/llm/chat", "/llm/chat/stream"];

/// OpenAI refuses `metadata` without `store: true`, and Gemini, Groq, Cerebras and Mistral refuse any `store`: the client could mend neither.
#[tokio::test]
async fn metadata_and_a_store_that_asks_for_nothing_are_not_sent_and_name_the_end_user_all_the_same() {
    let upstream = upstream().await;
    let gateway = Gateway::over(&upstream).await;
    for path in PATHS {
        for store in ["false", "null"] {
            let asked = upstream.seen().len();
            let rest = format!(r#","metadata":{{"user_id":"anna"}},"store":{store}"#);
            gateway.http1.post(path, body(SMALL, &rest)).await.ok();
            let seen = upstream.seen().swap_remove(asked);
            assert_eq!(std::str::from_utf8(&seen.body).unwrap(), sent(path, ""), "{store}");
            gateway.settled_balance().await;
            let call = gateway.receipts().await.swap_remove(0).billed.call;
            assert_eq!(call.end_user.as_deref(), Some("anna"), "{path}");
        }
    }
    let asked = upstream.seen().len();
    let kept = gateway.http1.post("/llm/chat", body(SMALL, r#","store":true"#)).await;
    kept.error(400, "invalid_request_error");
    let twice = body(SMALL, r#","metadata":{},"metadata":{"user_id":"anna"}"#);
    let twice = gateway.http1.post("/llm/chat", twice).await;
    twice.error(400, "invalid_request_error");
    assert_eq!(upstream.seen().len(), asked);
    gateway.check_books().await;
}

#[tokio::test]
async fn metadata_of_embeddings_is_not_sent() {
    let upstream = Upstream::always(Reply::embeddings(1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let input = |model: &str, rest: &str| format!(r#"{{"model":"{model}","input":"x"{rest}}}"#);
    let asked = input(EMBED, r#","metadata":{"user_id":"anna"}"#);
    gateway.http1.post("/llm/embeddings", asked).await.ok();
    let seen = upstream.only();
    assert_eq!(std::str::from_utf8(&seen.body).unwrap(), input("up-embed", ""));
    gateway.settled_balance().await;
    let call = gateway.receipts().await.swap_remove(0).billed.call;
    assert_eq!(call.end_user.as_deref(), Some("anna"));
}

#[tokio::test]
async fn a_provider_that_is_allowed_them_gets_them_as_they_are() {
    let upstream = upstream().await;
    let members = [
        ("metadata", r#","metadata": { "user_id":"anna" }"#),
        ("store", r#","store": false"#),
        ("usage", r#","usage": {"include":true}"#),
    ];
    let all: String = members.iter().map(|(_, member)| *member).collect();
    for (field, member) in members {
        let gateway = allowing(&upstream, &[field]).await;
        for path in PATHS {
            let asked = upstream.seen().len();
            gateway.http1.post(path, body(SMALL, &all)).await.ok();
            let seen = upstream.seen().swap_remove(asked);
            assert_eq!(std::str::from_utf8(&seen.body).unwrap(), sent(path, member), "{field}");
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn each_target_gets_what_its_own_provider_is_allowed() {
    let busy = Upstream::always(Reply::status(429)).await;
    let spare = upstream().await;
    let setup = Setup::over(&busy)
        .spare(&spare)
        .conf(|conf| conf["providers"]["main"]["allow_fields"] = json!(["metadata"]));
    let gateway = setup.start().await;
    let rest = r#","metadata":{"user_id":"anna"},"store":false"#;
    gateway.http1.post("/llm/chat", body(TWIN, rest)).await.ok();
    let member = |upstream: &Upstream, name: &str| upstream.only().json().get(name).cloned();
    assert_eq!(member(&busy, "metadata"), Some(json!({ "user_id": "anna" })));
    assert_eq!(member(&spare, "metadata"), None);
    assert_eq!((member(&busy, "store"), member(&spare, "store")), (None, None));
}

/// Only `stream_options.include_usage` was heard: the usage chunk was removed, and strict providers refused the field.
#[tokio::test]
async fn usage_that_is_asked_for_in_openrouters_way_is_told_with_its_cost() {
    let upstream = upstream().await;
    let gateway = Gateway::over(&upstream).await;
    for path in PATHS {
        for (rest, asks) in [
            (r#","usage":{"include":true}"#, true),
            (r#","usage":{"include":false}"#, false),
            (r#","usage":{}"#, false),
            (r#","usage":null"#, false),
        ] {
            let (asked, before) = (upstream.seen().len(), gateway.spent().await);
            let answer = gateway.http1.post(path, body(SMALL, rest)).await.ok();
            let seen = upstream.seen().swap_remove(asked);
            assert_eq!(std::str::from_utf8(&seen.body).unwrap(), sent(path, ""), "{rest}");
            let cost = gateway.spent().await - before;
            // A whole answer tells it always.
            let told = (asks || path == "/llm/chat").then_some(cost);
            assert_eq!(told_cost(answer.text()), told, "{path} {rest}: {}", answer.text());
            let usage = answer.text().matches("prompt_tokens\":9").count();
            assert_eq!(usage, usize::from(told.is_some()), "{path} {rest}: {}", answer.text());
        }
    }
    let asked = upstream.seen().len();
    for wrong in [
        "7",
        "true",
        "[]",
        r#"{"include":"yes"}"#,
        r#"{"include":true,"include":true}"#,
    ] {
        let answer = gateway
            .http1
            .post("/llm/chat", body(SMALL, &format!(r#","usage":{wrong}"#)))
            .await;
        let message: Value = answer.error(400, "invalid_request_error")["message"].clone();
        assert!(message.as_str().unwrap().contains("usage"), "{wrong}: {message}");
    }
    assert_eq!(upstream.seen().len(), asked);
    gateway.check_books().await;
}
