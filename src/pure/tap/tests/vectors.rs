//! Embeddings: what is told as their usage is what is billed.

use serde_json::{Value, json};

use super::costs::{CATALOGUE, Call, cost_text};
use super::*;
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::pure::usage::CompletionTokens;

/// A request to embed two tokens.
fn call() -> Call {
    let body = json!({ "model": "a/m", "input": "Hello world" });
    let mut call = Call::of(CATALOGUE);
    call.body = RequestBody::parse(Bytes::from(body.to_string()), Endpoint::Embeddings).unwrap();
    call.ceiling.completion = CompletionTokens(0);
    call
}

fn answer(usage: &str) -> String {
    format!(r#"{{"object":"list","data":[{{"embedding":[0.5],"index":0}}],"model":"m"{usage}}}"#)
}

#[test]
fn what_is_billed_is_told_in_the_place_of_what_was_reported_however_it_is_cut() {
    let call = call();
    let vectors = |tokens: u64| json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    let with_completion =
        |tokens: u64| json!({ "prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens });
    for (usage, told) in [
        // What is not believed, or said by nobody, is counted.
        (r#","usage":{"prompt_tokens":0,"total_tokens":0}"#, vectors(2)),
        (r#","usage":{"total_tokens":0}"#, vectors(2)),
        (r#","usage":{}"#, vectors(2)),
        (
            r#","usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#,
            with_completion(2),
        ),
        (r#","usage":{"prompt_tokens":2,"total_tokens":12}"#, vectors(2)),
        ("", vectors(2)),
        // What is believed is told as it is billed.
        (r#","usage":{"prompt_tokens":5,"total_tokens":5}"#, vectors(5)),
        (r#","usage":{"total_tokens":5}"#, vectors(5)),
        (r#","usage":{"prompt_tokens":5}"#, json!({ "prompt_tokens": 5 })),
        (r#","usage":{"prompt_tokens":5,"total_tokens":3}"#, vectors(5)),
        (r#","usage":{"prompt_tokens":5,"total_tokens":3,"cost":99}"#, vectors(5)),
        (r#","usage":{"prompt_tokens":5000,"total_tokens":5000}"#, vectors(1_000)),
        (
            r#","usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5}"#,
            with_completion(5),
        ),
    ] {
        let answer = answer(usage);
        for cut in 0..=answer.len() {
            let (head, tail) = answer.as_bytes().split_at(cut);
            let out = call.whole(&[head, tail]);
            let mut value: Value = serde_json::from_str(&out).unwrap();
            let members = value["usage"].as_object_mut().unwrap();
            assert!(members.remove("cost").is_some() && members.remove("cost_details").is_some());
            assert_eq!(value["usage"], told, "{usage}, cut at {cut}");
            let tokens = told["prompt_tokens"].as_u64().unwrap();
            assert_eq!(
                cost_text(&out),
                call.cost(tokens, 0).to_string(),
                "{usage}, cut at {cut}"
            );
            assert_eq!(value["data"][0]["embedding"], json!([0.5]));
        }
    }
}

#[test]
fn what_is_no_vectors_is_told_no_usage() {
    let call = call();
    for answer in [
        r#"{"object":"list","model":"m"}"#,
        r#"{"data":{},"usage":{}}"#,
        r#"{"data":[],"error":{"message":"no"}}"#,
        r#"[{"data":[]}]"#,
        r#"{"data":[],"usage":null}"#,
    ] {
        assert_eq!(call.whole(&[answer.as_bytes()]), answer);
    }
}
