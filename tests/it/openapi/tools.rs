//! The members of a tool that the description has, held to those that the gateway takes.

use std::collections::BTreeSet;

use serde_json::json;

use super::description;
use crate::harness::catalogue::SMALL;
use crate::harness::{Reply, Setup, Upstream};

/// A client that is made from the description could not ask for a tool to be kept in a cache.
#[tokio::test]
async fn a_tools_members_that_may_be_objects_are_those_that_are_described() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut setup = Setup::over(&upstream);
    setup.catalogue["models"][1]["pricing"]["input_cache_write"] = "0.000001".into();
    let gateway = setup.start().await;
    let description = description(&gateway).await;
    let tools = &description["components"]["schemas"]["ChatRequest"]["properties"]["tools"];
    let described = tools["items"]["properties"].as_object().unwrap();
    let mut names: BTreeSet<&str> = described.keys().map(String::as_str).collect();
    names.extend(["cache_control", "googleSearch", "code_execution"]);
    // Its values are listed.
    assert!(names.remove("type"));
    for name in names {
        let mut tool = json!({ "type": "function", "function": { "name": "f" } });
        tool[name] = json!({});
        let messages = json!([{ "role": "user", "content": "Hi" }]);
        let body = json!({ "model": SMALL, "messages": messages, "tools": [tool] }).to_string();
        let answer = gateway.http1.post("/llm/chat", body).await;
        let expected = if described.contains_key(name) { 200 } else { 400 };
        assert_eq!(answer.status, expected, "{name}: {}", answer.text());
    }
}
