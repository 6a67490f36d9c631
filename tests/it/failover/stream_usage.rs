//! A target whose provider reports the usage of streams unasked, and refuses to be asked, behind one that has to be.

use serde_json::{Value, json};

use crate::harness::catalogue::{TWIN, cost};
use crate::harness::told::told_cost;
use crate::harness::{Reply, Setup, Upstream};

#[tokio::test]
async fn each_target_is_asked_for_its_usage_as_its_provider_wants_it() {
    // A long one is edited elsewhere.
    for words in [1, 200_000] {
        let main = Upstream::always(Reply::status(500)).await;
        let spare = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
        let setup = Setup::over(&main)
            .spare(&spare)
            .conf(|conf| conf["providers"]["spare"]["stream_usage"] = "unasked".into());
        let gateway = setup.start().await;
        let options = [
            Value::Null,
            json!({ "include_usage": true }),
            json!({ "include_usage": false }),
        ];
        for (calls, options) in options.into_iter().enumerate() {
            let body = json!({ "model": TWIN, "stream": true, "stream_options": options, "max_tokens": 5,
                "messages": [{ "role": "user", "content": "word ".repeat(words) }] });
            let before = gateway.spent().await;
            let answer = gateway.http1.post("/llm/chat", body.to_string()).await.ok();
            let spent = gateway.spent().await - before;
            assert_eq!(spent, cost(TWIN, 9, 1));
            let told = (options["include_usage"] == true).then_some(spent);
            assert_eq!(told_cost(answer.text()), told, "{options}: {}", answer.text());
            let seen = main.asked(calls + 1).await.json();
            assert_eq!(seen["stream_options"]["include_usage"], true, "{options}");
            let seen = spare.asked(calls + 1).await.json();
            assert_eq!((&seen["stream"], seen.get("stream_options")), (&json!(true), None));
        }
        gateway.check_books().await;
    }
}
