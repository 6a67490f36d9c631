//! `POST /llm/embeddings`: one element for each input, as numbers or base64.

use serde_json::{Value, json};

use crate::harness::catalogue::{EMBED, cost};
use crate::harness::told::told_cost;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// A request to embed this.
pub fn request(input: &Value) -> String {
    json!({ "model": EMBED, "input": input }).to_string()
}

#[tokio::test]
async fn an_array_gives_one_element_per_input() {
    let upstream = Upstream::always(Reply::embeddings(3, 12)).await;
    let gateway = Gateway::over(&upstream).await;
    let answer = gateway
        .http1
        .post("/llm/embeddings", request(&json!(["a", "b", "c"])))
        .await
        .ok();
    let body = answer.json();
    assert_eq!(body["object"], "list");
    assert_eq!(body["data"].as_array().unwrap().len(), 3);
    for (index, element) in body["data"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&element["object"], &element["index"]),
            (&json!("embedding"), &json!(index))
        );
        assert!(element["embedding"].as_array().unwrap().iter().all(Value::is_number));
    }
    assert!(
        crate::harness::told::without_cost(answer.text()).contains(r#""usage":{"prompt_tokens":12,"total_tokens":12}"#)
    );
    assert!(body["model"].is_string());
    let seen = upstream.only();
    assert!(
        seen.head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"),
        "{}",
        seen.head
    );
    assert_eq!(seen.json(), json!({ "model": "up-embed", "input": ["a", "b", "c"] }));
    assert_eq!(gateway.spent().await, cost(EMBED, 12, 0));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_string_gives_one_element_with_index_0() {
    let upstream = Upstream::always(Reply::embeddings(1, 4)).await;
    let gateway = Gateway::over(&upstream).await;
    for path in ["/llm/embeddings", "/embeddings"] {
        let body = gateway.http1.post(path, request(&json!("one text"))).await.ok().json();
        assert_eq!(body["data"].as_array().unwrap().len(), 1);
        assert_eq!(body["data"][0]["index"], 0);
    }
    assert_eq!(gateway.spent().await, cost(EMBED, 8, 0));
}

#[tokio::test]
async fn token_ids_are_an_input_too() {
    let upstream = Upstream::always(Reply::embeddings(1, 3)).await;
    let gateway = Gateway::over(&upstream).await;
    for input in [json!([1, 2, 3]), json!([[1, 2, 3], [4]])] {
        gateway.http1.post("/llm/embeddings", request(&input)).await.ok();
    }
    assert_eq!(gateway.spent().await, cost(EMBED, 6, 0));
}

#[tokio::test]
async fn the_small_embedding_model_returns_1536_dimensions_as_numbers_or_base64() {
    let provider = crate::harness::simulated::start().await;
    let gateway = Setup::at(&provider.base_url()).start().await;
    let answer = gateway
        .http1
        .post("/llm/embeddings", request(&json!(["one", "two"])))
        .await
        .ok()
        .json();
    assert_eq!(answer["data"][1]["embedding"].as_array().unwrap().len(), 1536);
    let body = json!({ "model": EMBED, "input": "one", "encoding_format": "base64" }).to_string();
    let encoded = gateway.h2c.post("/embeddings", body).await.ok().json();
    assert_eq!(
        encoded["data"][0]["embedding"].as_str().unwrap().len(),
        1536 * 4 / 3 * 4
    );
    let tokens = [&answer, &encoded].map(|answer| answer["usage"]["prompt_tokens"].as_u64().unwrap());
    assert_eq!(
        gateway.spent().await,
        cost(EMBED, tokens[0], 0) + cost(EMBED, tokens[1], 0)
    );
}

#[tokio::test]
async fn without_a_usage_report_the_inputs_are_counted() {
    // LM Studio reports nothing for every embedding.
    for usage in [
        json!(null),
        json!({ "prompt_tokens": 0 }),
        json!({ "total_tokens": 0 }),
        json!({ "prompt_tokens": 0, "total_tokens": 0 }),
        json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }),
        // Vectors have no completion, so this is not believed.
        json!({ "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 }),
        json!({ "prompt_tokens": 5, "total_tokens": 12 }),
        json!("left out"),
    ] {
        let mut list = json!({ "object": "list", "data": [], "model": "up-embed", "usage": usage });
        if usage == "left out" {
            list.as_object_mut().unwrap().remove("usage");
        }
        let upstream = Upstream::always(Reply::json(&list)).await;
        let gateway = Gateway::over(&upstream).await;
        for (input, tokens) in [
            (json!("Hello world"), 2),
            (json!(["Hello", "Hello world"]), 3),
            (json!([1, 2, 3, 4]), 4),
        ] {
            let before = gateway.spent().await;
            let answer = gateway.http1.post("/llm/embeddings", request(&input)).await.ok();
            let owed = cost(EMBED, tokens, 0);
            assert_eq!(gateway.spent().await - before, owed, "{input} {usage}");
            let body = answer.json();
            let told = &body["usage"];
            if usage.is_null() {
                assert_eq!((told, told_cost(answer.text())), (&usage, None), "{input}");
                continue;
            }
            // What is shown is what was billed.
            assert_eq!(told_cost(answer.text()), Some(owed), "{input} {usage}");
            let shown = ["prompt_tokens", "total_tokens"].map(|name| told[name].as_u64());
            assert_eq!(shown, [Some(tokens); 2], "{input} {usage}");
            let has_completion = usage.get("completion_tokens").map(|_| 0);
            assert_eq!(told["completion_tokens"].as_u64(), has_completion, "{input} {usage}");
        }
    }
}
