//! `POST /llm/embeddings`: INTERFACE.md section 4 and the embedding list of section 2.

use serde_json::{Value, json};

use crate::harness::catalogue::{EMBED, cost};
use crate::harness::{Gateway, Reply, Upstream};

/// A request to embed this.
pub fn request(input: &Value) -> String {
    json!({ "model": EMBED, "input": input }).to_string()
}

#[tokio::test]
async fn s4_embeddings_rule_1_an_array_gives_one_element_per_input() {
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
    assert_eq!(body["usage"], json!({ "prompt_tokens": 12, "total_tokens": 12 }));
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
async fn s4_embeddings_rule_2_a_string_gives_one_element_with_index_0() {
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
async fn d8_token_ids_are_an_input_too() {
    let upstream = Upstream::always(Reply::embeddings(1, 3)).await;
    let gateway = Gateway::over(&upstream).await;
    for input in [json!([1, 2, 3]), json!([[1, 2, 3], [4]])] {
        gateway.http1.post("/llm/embeddings", request(&input)).await.ok();
    }
    assert_eq!(gateway.spent().await, cost(EMBED, 6, 0));
}
