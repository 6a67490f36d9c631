//! Chat completions: whole answers, streams, and the form of their events.

use serde_json::{Value, json};

use crate::harness::catalogue::{LARGE, SMALL, cost};
use crate::harness::reply::whole_chat;
use crate::harness::told::{told_cost, without_cost};
use crate::harness::{Gateway, Reply, Setup, Upstream, deltas};

/// A chat request in its simplest form.
pub fn request(model: &str) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }] }).to_string()
}

/// Tokens of that prompt, as the chat format has them: one of text, three that frame a message with its role, three that prime the reply.
pub const PROMPT: u64 = 7;

/// The same with `stream: true`.
pub fn streaming(model: &str) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }], "stream": true }).to_string()
}

#[tokio::test]
async fn chat_answers_with_the_upstreams_completion_and_its_cost() {
    let upstream = Upstream::always(Reply::chat("Hi there", 9, 3)).await;
    let gateway = Gateway::over(&upstream).await;
    for path in ["/llm/chat", "/chat/completions"] {
        let answer = gateway.http1.post(path, request(SMALL)).await.ok();
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(
            without_cost(answer.text()),
            whole_chat("Hi there", Some((9, 3))).to_string()
        );
        assert_eq!(told_cost(answer.text()), Some(cost(SMALL, 9, 3)));
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 3) + cost(SMALL, 9, 3));
    gateway.check_books().await;
}

#[tokio::test]
async fn stream_true_gives_the_same_events_as_the_stream_endpoint() {
    let upstream = Upstream::always(Reply::stream_of(&["Hel", "lo", "!"], 9, 3)).await;
    let gateway = Gateway::over(&upstream).await;
    let mut streams = Vec::new();
    let bodies = [
        ("/llm/chat/stream", request(SMALL)),
        ("/llm/chat/stream", streaming(SMALL)),
        ("/llm/chat", streaming(SMALL)),
        ("/chat/completions", streaming(SMALL)),
    ];
    for (path, body) in bodies {
        streams.push(gateway.http1.stream(path, body.clone()).await.ok().rest().await);
        streams.push(gateway.h2c.stream(path, body).await.ok().rest().await);
    }
    assert!(streams.iter().all(|stream| *stream == streams[0]), "{streams:#?}");
    for seen in upstream.seen() {
        assert_eq!(seen.json()["stream"], true);
        assert_eq!(seen.json()["stream_options"]["include_usage"], true);
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn events_have_the_form_that_clients_expect() {
    let upstream = Upstream::always(Reply::stream_of(&["Hel", "lo"], 9, 3)).await;
    let gateway = Gateway::over(&upstream).await;
    let answer = gateway.http1.post("/llm/chat/stream", request(SMALL)).await.ok();
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert!(
        answer.text().ends_with("\n\ndata: [DONE]\n\n"),
        "6.5 and 6.1: {}",
        answer.text()
    );
    let events: Vec<&str> = answer.text().trim_end().split("\n\n").collect();
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").expect("6.1")).unwrap())
        .collect();
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk", "2");
        assert_eq!(chunk["id"], chunks[0]["id"], "2: the same in every chunk");
        assert_eq!(chunk["choices"][0]["index"], 0, "2");
    }
    let choice = |chunk: &Value| {
        (
            chunk["choices"][0]["delta"].clone(),
            chunk["choices"][0]["finish_reason"].clone(),
        )
    };
    assert_eq!(
        choice(&chunks[0]),
        (json!({ "role": "assistant", "content": "" }), Value::Null),
        "6.2"
    );
    assert_eq!(choice(&chunks[1]), (json!({ "content": "Hel" }), Value::Null), "6.3");
    assert_eq!(choice(&chunks[2]), (json!({ "content": "lo" }), Value::Null), "6.3");
    assert_eq!(choice(&chunks[3]), (json!({}), json!("stop")), "6.4");
    assert_eq!(chunks.len(), 4, "the usage chunk was not asked for");
}

#[tokio::test]
async fn chat_false_or_null_as_stream_is_a_whole_answer() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    for stream in [json!(false), Value::Null] {
        let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "x" }], "stream": stream });
        let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        assert_eq!(answer.json()["object"], "chat.completion");
    }
}

#[tokio::test]
async fn the_upstream_gets_its_own_name_of_the_model_and_nothing_of_the_clients_headers() {
    let upstream = Upstream::always(Reply::stream_of(&["Hi"], 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let request = gateway
        .http1
        .post_request("/llm/chat/stream", request(LARGE))
        .header("cookie", "a=b")
        .header("x-forwarded-for", "192.0.2.1")
        .header("x-custom", "1")
        .header("accept-encoding", "gzip, br")
        .header("user-agent", "secret-agent");
    let answer = crate::harness::client::ask(request).await.ok();
    let seen = upstream.only();
    assert!(
        seen.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{}",
        seen.head
    );
    assert_eq!(seen.header("authorization"), Some("Bearer credential-SET_MAIN"));
    assert_eq!(seen.header("host"), Some(upstream.address.to_string().as_str()));
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("accept"), Some("text/event-stream"));
    for kept in ["cookie", "x-forwarded-for", "x-custom", "expect", "transfer-encoding"] {
        assert_eq!(seen.header(kept), None, "{kept}");
    }
    assert!(
        !seen.head.contains("secret-agent") && !seen.head.contains(&gateway.key),
        "{}",
        seen.head
    );
    assert_eq!(seen.json()["model"], "up-large");
    for internal in ["x-upstream", "set-cookie", "server"] {
        assert_eq!(answer.header(internal), "", "{internal}");
    }
    assert_eq!(answer.header("cache-control"), "no-cache");
}

#[tokio::test]
async fn a_purpose_may_stand_in_the_place_of_a_model() {
    let upstream = Upstream::always(Reply::chat("Hi", 100, 10)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", request("purpose/code")).await.ok();
    assert_eq!(upstream.only().json()["model"], "up-large");
    assert_eq!(gateway.spent().await, cost(LARGE, 100, 10));
    assert_eq!(gateway.usage().await[0].model, LARGE);
    for unknown in ["purpose/", "purpose/none", "purpose/Chat"] {
        gateway
            .http1
            .post("/llm/chat", request(unknown))
            .await
            .error(404, "not_found_error");
    }
}

#[tokio::test]
async fn a_purpose_that_no_model_serves_is_404_by_its_name() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut setup = Setup::over(&upstream).model(SMALL, |model| model["purposes"] = json!(["chat"]));
    let models = setup.catalogue["models"].as_array().unwrap();
    let only = models.iter().find(|model| model["id"] == SMALL).unwrap().clone();
    setup.catalogue = json!({ "models": [only] });
    let gateway = setup.start().await;
    let call = async |purpose: &str| gateway.http1.post("/llm/chat", request(purpose)).await;
    call("purpose/chat").await.ok();
    let error = call("purpose/slide").await.error(404, "not_found_error");
    assert_eq!(error["message"], "There is no model for the purpose slide.");
    let purposes = gateway.http1.get("/llm/models/purposes").await.ok().json();
    assert_eq!((&purposes["chat"], &purposes["slide"]), (&json!(SMALL), &Value::Null));
}

#[tokio::test]
async fn the_fragments_joined_are_the_message() {
    let texts = ["Grüße", " 👋", "", "\n\n", "data: [DONE]", " \"quoted\" \\ "];
    let upstream = Upstream::always(Reply::stream_of(&texts, 1, 9)).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let events = client
            .stream("/llm/chat/stream", request(SMALL))
            .await
            .ok()
            .rest()
            .await;
        assert_eq!(deltas(&events), texts.concat());
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 1, 9) + cost(SMALL, 1, 9));
}
