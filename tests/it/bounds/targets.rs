//! A model with two targets: what each is sent of the maximum, and that its calls hold what the dearer one adds to a prompt.

use rust_decimal::Decimal;
use serde_json::Value;

use super::on_both;
use crate::chat::PROMPT;
use crate::harness::catalogue::{TWIN, cost};
use crate::harness::{Reply, Setup, Upstream};

const PATHS: [&str; 2] = ["/llm/chat", "/llm/chat/stream"];

/// A call with these members before and behind the others.
fn body(first: &str, model: &str, last: &str) -> String {
    format!(r#"{{{first}"model":"{model}","messages":[{{"role":"user","content":"Hello"}}]{last}}}"#)
}

/// What a target is sent before all members of a call that came at this path.
fn begun(path: &str) -> &'static str {
    match path {
        "/llm/chat/stream" => r#""stream":true,"stream_options":{"include_usage":true},"#,
        _ => "",
    }
}

/// The upstreams of the two targets: the first is busy, and the second reads its maximum from `max_completion_tokens`.
struct Twin {
    main: Upstream,
    spare: Upstream,
}

impl Twin {
    async fn new() -> Twin {
        let answers = Upstream::by(|_, seen| match seen.json()["stream"] == true {
            true => Reply::stream_of(&["Hi"], 9, 1),
            false => Reply::chat("Hi", 9, 1),
        });
        Twin {
            main: Upstream::always(Reply::status(429)).await,
            spare: answers.await,
        }
    }

    fn setup(&self) -> Setup {
        let setup = Setup::over(&self.main).spare(&self.spare);
        setup.conf(|conf| conf["providers"]["spare"]["maximum_field"] = "max_completion_tokens".into())
    }

    /// What each was sent last.
    fn sent(&self) -> [String; 2] {
        [&self.main, &self.spare].map(|upstream| {
            let last = upstream.seen().pop().unwrap();
            String::from_utf8(last.body.to_vec()).unwrap()
        })
    }

    /// How often each was asked.
    fn asked(&self) -> [usize; 2] {
        [&self.main, &self.spare].map(|upstream| upstream.seen().len())
    }
}

#[tokio::test]
async fn the_next_target_is_sent_the_clients_maximum_in_the_field_that_it_reads() {
    for last in [
        r#","max_tokens":7"#,
        r#","max_completion_tokens":7"#,
        r#","max_completion_tokens":7,"max_tokens":9"#,
    ] {
        let twin = Twin::new().await;
        let gateway = twin.setup().start().await;
        for path in PATHS {
            gateway.http1.post(path, body("", TWIN, last)).await.ok();
            let expected = [
                body(begun(path), "up-twin", r#","max_tokens":7"#),
                body(begun(path), "up-twin-2", r#","max_completion_tokens":7"#),
            ];
            assert_eq!(twin.sent(), expected, "{path} {last}");
        }
        assert_eq!(twin.asked(), [2, 2]);
        assert_eq!(gateway.spent().await, cost(TWIN, 18, 2));
        gateway.check_books().await;
    }
}

/// The client sets none, and there is less credit than the model's own would cost.
#[tokio::test]
async fn the_next_target_is_sent_the_maximum_that_credit_pays_for_in_the_field_that_it_reads() {
    // Some 700 completion tokens' worth.
    let credit: Decimal = "0.002".parse().unwrap();
    let twin = Twin::new().await;
    for (gateway, _redis) in on_both(|| twin.setup().credit(&credit.to_string())).await {
        for path in PATHS {
            for last in ["", r#","max_tokens":null"#] {
                gateway.http1.post(path, body("", TWIN, last)).await.ok();
                let sent = twin.sent();
                let to_main: Value = serde_json::from_str(&sent[0]).unwrap();
                let cap = to_main["max_tokens"].as_u64().unwrap();
                assert!(cap >= 600 && cost(TWIN, PROMPT, cap) <= credit, "{sent:?}");
                let with_cap = |model: &str, field: &str| match last {
                    "" => body(&format!(r#"{}"{field}":{cap},"#, begun(path)), model, ""),
                    _ => body(begun(path), model, &format!(r#","{field}":{cap}"#)),
                };
                let expected = [
                    with_cap("up-twin", "max_tokens"),
                    with_cap("up-twin-2", "max_completion_tokens"),
                ];
                assert_eq!(sent, expected, "{path} {last}");
                // Else the next call would find the credit held.
                gateway.settled_balance().await;
            }
        }
        assert_eq!(gateway.spent().await, cost(TWIN, 36, 4));
        gateway.check_books().await;
    }
    assert_eq!(twin.asked(), [8, 8]);
}

/// Credit lowers no maximum of a client's: it is served whole, or refused.
#[tokio::test]
async fn the_next_target_is_sent_the_clients_maximum_as_it_is_where_credit_covers_no_more() {
    let last = r#","max_tokens":500"#;
    // A byte a token, and what the chat format adds to one message: all of it is held.
    let bound = body("", TWIN, last).len() as u64 + 256 + 16;
    let least = cost(TWIN, bound, 500).round_dp(12).to_string();
    let twin = Twin::new().await;
    for (gateway, _redis) in on_both(|| twin.setup().credit(&least)).await {
        for path in PATHS {
            gateway.http1.post(path, body("", TWIN, last)).await.ok();
            let expected = [
                body(begun(path), "up-twin", last),
                body(begun(path), "up-twin-2", r#","max_completion_tokens":500"#),
            ];
            assert_eq!(twin.sent(), expected, "{path}");
            gateway.settled_balance().await;
        }
        let asked = twin.asked();
        for path in PATHS {
            let refused = gateway.http1.post(path, body("", TWIN, r#","max_tokens":5000"#)).await;
            refused.error(402, "insufficient_credits");
        }
        assert_eq!(twin.asked(), asked);
        assert_eq!(gateway.spent().await, cost(TWIN, 18, 2));
        gateway.check_books().await;
    }
}

/// Nobody knows which of them will get the call.
#[tokio::test]
async fn what_the_providers_of_a_models_targets_add_to_a_prompt_is_held_by_the_most_of_it() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let credit = cost(TWIN, 50_000, 5).to_string();
    for (main, spare, status) in [
        (0, 0, 200),
        (40_000, 40_000, 200),
        (0, 60_000, 402),
        (60_000, 0, 402),
        (60_000, 60_000, 402),
    ] {
        let setup = Setup::over(&upstream).spare(&upstream).credit(&credit);
        let setup = setup.conf(|conf| {
            conf["providers"]["main"]["prompt_overhead_tokens"] = main.into();
            conf["providers"]["spare"]["prompt_overhead_tokens"] = spare.into();
        });
        let gateway = setup.start().await;
        let call = body("", TWIN, r#","max_tokens":5"#);
        let answer = gateway.http1.post("/llm/chat", call).await;
        assert_eq!(answer.status, status, "{main} and {spare}: {}", answer.text());
    }
    assert_eq!(upstream.seen().len(), 2, "only what is paid is sent");
}
