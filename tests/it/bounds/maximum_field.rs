//! The field that the maximum leaves in, at a provider that takes `max_completion_tokens` alone.

use serde_json::json;

use super::with;
use crate::harness::{Reply, Setup, Upstream};

/// A gateway in front of OpenAI refuses `max_tokens` for its reasoning models, and its address does not say so.
#[tokio::test]
async fn a_maximum_leaves_in_the_field_that_the_configuration_names_and_there_alone() {
    let upstream = Upstream::by(|_, seen| match seen.json() {
        body if body["stream"] == true => Reply::stream_of(&["Hi"], 9, 1),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    // About a thousand tokens' worth: where the client sets no maximum, the gateway does.
    let setup = Setup::over(&upstream)
        .credit("0.0007")
        .conf(|conf| conf["providers"]["main"]["maximum_field"] = "max_completion_tokens".into());
    let gateway = setup.start().await;
    let mut calls = 0;
    for path in ["/llm/chat", "/llm/chat/stream"] {
        for (members, expected) in [
            (json!({}), 800..=1_014),
            (json!({ "max_tokens": 7 }), 7..=7),
            (json!({ "max_completion_tokens": 7 }), 7..=7),
            (json!({ "max_completion_tokens": 9, "max_tokens": 7 }), 7..=7),
        ] {
            gateway.http1.post(path, with(members)).await.ok();
            calls += 1;
            let seen = upstream.asked(calls).await.json();
            let sent = seen["max_completion_tokens"].as_u64().unwrap();
            assert!(expected.contains(&sent), "{seen}");
            assert_eq!(seen.get("max_tokens"), None, "{seen}");
            // Else the next call would find the credit held.
            gateway.settled_balance().await;
        }
    }
    gateway.check_books().await;
}
