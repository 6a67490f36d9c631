//! Answers of every kind, and the requests that get none.

use super::*;

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let server = Server::start().await;
    let whole = server.chat(says("Hello")).await;
    let events = server.stream(streamed("Hello")).await;

    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        text.contains("simulated provider") && text.contains("“Hello”"),
        "{text}"
    );
    assert_eq!(content(&events), text);
    assert_eq!(whole["usage"]["completion_tokens"], tokens::count(text));
    assert_eq!(whole["usage"]["prompt_tokens"], 3 + 3 + 1 + 1);
    assert!((30..=70).contains(&tokens::count(text)));
    assert_eq!(
        (&whole["object"], &whole["system_fingerprint"]),
        (&json!("chat.completion"), &json!("simulated"))
    );
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-sim"));

    let [first, middle @ .., finish, usage, done] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        first["choices"][0]["delta"],
        json!({"role": "assistant", "content": "", "refusal": null})
    );
    assert_eq!(middle.len() as u64, tokens::count(text));
    assert_eq!(
        (&finish["choices"][0]["delta"], &finish["choices"][0]["finish_reason"]),
        (&json!({}), &json!("stop"))
    );
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
    assert_eq!(done, "[DONE]");
    for event in &events[..events.len() - 1] {
        assert_eq!(
            (&event["id"], &event["created"], &event["model"]),
            (&first["id"], &first["created"], &json!("m"))
        );
        assert_eq!(event["object"], "chat.completion.chunk");
        assert!(event.as_object().unwrap().contains_key("usage"));
    }
}

#[tokio::test]
async fn usage_comes_only_when_asked_for() {
    let server = Server::start().await;
    let events = server.stream(with(says("Hello"), json!({"stream": true}))).await;
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_maximum_cuts_and_choices_add_up() {
    let server = Server::start().await;
    for field in ["max_tokens", "max_completion_tokens"] {
        let whole = server.chat(with(says("Hello"), json!({field: 5, "n": 2}))).await;
        assert_eq!(whole["usage"]["completion_tokens"], 10);
        for index in 0..2 {
            assert_eq!(
                (
                    &whole["choices"][index]["index"],
                    &whole["choices"][index]["finish_reason"]
                ),
                (&json!(index), &json!("length"))
            );
        }
    }
    let events = server
        .stream(with(streamed("Hello"), json!({"n": 2, "max_tokens": 1})))
        .await;
    let indices: Vec<_> = events
        .iter()
        .filter_map(|event| event["choices"][0]["index"].as_u64())
        .collect();
    assert_eq!(indices, [0, 1, 0, 1, 0, 1]);
}

#[tokio::test]
async fn tools_are_called_and_their_results_are_answered() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "required": ["city", "unit"], "properties":
        {"city": {"type": "string"}, "unit": {"enum": ["celsius", "kelvin"]}, "days": {"type": "integer"}}});
    let tools = json!({"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]});
    let question = with(streamed("What is the Weather?"), tools.clone());

    let events = server.stream(question.clone()).await;
    let [first, middle @ .., finish, _, _] = events.as_slice() else {
        panic!("{events:?}")
    };
    let opening = &first["choices"][0]["delta"]["tool_calls"][0];
    assert!(opening["id"].as_str().unwrap().starts_with("call_sim"));
    assert_eq!(
        (&opening["index"], &opening["type"], &opening["function"]["name"]),
        (&json!(0), &json!("function"), &json!("get_weather"))
    );
    let calls: Vec<_> = middle
        .iter()
        .map(|event| &event["choices"][0]["delta"]["tool_calls"][0])
        .collect();
    assert!(calls.len() > 2 && calls.iter().all(|call| call.get("id").is_none() && call["index"] == 0));
    let arguments: String = calls
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap())
        .collect();
    let arguments: Value = serde_json::from_str(&arguments).unwrap();
    assert_eq!(arguments, json!({"city": "Lisbon, Portugal", "unit": "celsius"}));
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");

    let mut answered = with(says("What is the weather?"), tools.clone());
    let call = json!({"role": "assistant", "content": null, "tool_calls": [opening]});
    let result = json!({"role": "tool", "tool_call_id": opening["id"], "content": "rain"});
    answered["messages"].as_array_mut().unwrap().extend([call, result]);
    assert_eq!(server.chat(answered).await["choices"][0]["finish_reason"], "stop");

    let named = json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}});
    for (choice, reason) in [
        (json!({"tool_choice": "required"}), "tool_calls"),
        (named, "tool_calls"),
        (json!({}), "stop"),
    ] {
        let whole = server.chat(with(with(says("Hello"), tools.clone()), choice)).await;
        assert_eq!(whole["choices"][0]["finish_reason"], reason);
        assert_eq!(
            whole["choices"][0]["message"]["tool_calls"].is_array(),
            reason == "tool_calls"
        );
    }
    let never = server
        .chat(with(with(says("weather"), tools), json!({"tool_choice": "none"})))
        .await;
    assert_eq!(never["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn embeddings_of_every_kind_of_input() {
    let server = Server::start().await;
    let floats = server
        .embeddings(json!({"model": "e", "input": ["one", "two words"]}))
        .await;
    assert_eq!(
        (floats["data"].as_array().unwrap().len(), &floats["data"][1]["index"]),
        (2, &json!(1))
    );
    assert_eq!(floats["data"][0]["embedding"].as_array().unwrap().len(), 1536);
    assert_eq!(floats["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));

    let base64 = server
        .embeddings(json!({"model": "e", "input": "one", "encoding_format": "base64", "dimensions": 3}))
        .await;
    let float = server
        .embeddings(json!({"model": "e", "input": "one", "dimensions": 3}))
        .await;
    let expected: Vec<f32> = serde_json::from_value(float["data"][0]["embedding"].clone()).unwrap();
    assert_eq!(
        base64["data"][0]["embedding"].as_str().unwrap(),
        embeddings::base64_of(&expected)
    );

    let tokens = server
        .embeddings(json!({"model": "e", "input": [[1, 2, 3], [4]]}))
        .await;
    assert_eq!(
        (
            tokens["data"].as_array().unwrap().len(),
            &tokens["usage"]["prompt_tokens"]
        ),
        (2, &json!(4))
    );
    let flat = server.embeddings(json!({"model": "e", "input": [1, 2, 3]})).await;
    assert_eq!(flat["data"][0]["embedding"], tokens["data"][0]["embedding"]);

    for more in [
        json!({}),
        json!({"input": ""}),
        json!({"input": []}),
        json!({"input": ["a", ""]}),
        json!({"input": 1}),
    ] {
        error(
            server.post("/v1/embeddings", &with(json!({"model": "e"}), more)).await,
            400,
        )
        .await;
    }
    let wide = json!({"model": "e", "input": "a", "dimensions": 4000});
    assert_eq!(
        error(server.post("/v1/embeddings", &wide).await, 400).await["param"],
        "dimensions"
    );
    let unmeasured = server
        .embeddings(json!({"model": "e", "input": "simulate:no-usage"}))
        .await;
    assert_eq!(unmeasured.get("usage"), None);
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let server = Server::start().await;
    let post = |body: &'static [u8]| {
        Client::new()
            .post(format!("http://{}/v1/chat/completions", server.address))
            .body(body)
            .send()
    };
    for body in [
        &b""[..],
        b"{",
        b"[]",
        b"\xff",
        b"{\"model\":1}",
        b"{\"model\":\"a\",\"model\":\"b\",\"messages\":[]}",
    ] {
        error(post(body).await.unwrap(), 400).await;
    }
    for (more, param) in [
        (json!({"model": ""}), "model"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "nobody", "content": "a"}]}), "messages"),
        (json!({"messages": [{"role": "user", "content": null}]}), "messages"),
        (json!({"messages": [{"role": "user", "content": [1]}]}), "messages"),
        (json!({"n": 0}), "n"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": 1, "max_completion_tokens": 1}), "max_tokens"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tools": [{}]}), "tools"),
    ] {
        let body = with(says("Hello"), more);
        assert_eq!(
            error(server.post("/chat/completions", &body).await, 400).await["param"],
            param,
            "{body}"
        );
    }
}

#[tokio::test]
async fn paths_methods_and_models() {
    let options = Options {
        models: vec!["known".to_owned()],
        ..Options::default()
    };
    let server = Server::start_with(options).await;
    let models: Value = reqwest::get(format!("http://{}/v1/models?limit=1", server.address))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(
        (&models["object"], &models["data"][0]["id"]),
        (&json!("list"), &json!("known"))
    );

    let unknown = error(server.post("/v1/chat/completions", &says("Hello")).await, 404).await;
    assert_eq!(unknown["code"], "model_not_found");
    assert!(unknown["message"].as_str().unwrap().contains("simulate:WORD"));
    server.chat(with(says("Hello"), json!({"model": "known"}))).await;
    server
        .chat(with(says("Hello"), json!({"model": "simulate:no-usage"})))
        .await;
    error(server.post("/v2/chat/completions", &json!({})).await, 404).await;
    let response = reqwest::get(format!("http://{}/v1/embeddings", server.address))
        .await
        .unwrap();
    assert_eq!(response.headers()["allow"], "POST");
    error(response, 405).await;
}
