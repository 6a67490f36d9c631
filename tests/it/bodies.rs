//! Request bodies: of any size, with any framing, replayed on another target, and edited where they must be and nowhere else.

use bytes::Bytes;
use serde_json::json;

use crate::chat::request;
use crate::harness::catalogue::{EMBED, SMALL, TWIN, cost};
use crate::harness::client::ask;
use crate::harness::{Answer, Gateway, Reply, Setup, Upstream};

/// Two megabytes of text that no compression shortens and every byte of which could be lost.
fn long_text() -> String {
    let mut text = String::with_capacity(2 << 20);
    let mut state = 1_u32;
    while text.len() < 2 << 20 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("{state:08x} "));
    }
    text
}

/// The same body in pieces, so that no length is sent.
fn in_pieces(body: &str) -> reqwest::Body {
    let pieces: Vec<Result<Bytes, std::io::Error>> = body
        .as_bytes()
        .chunks(50_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    reqwest::Body::wrap_stream(futures::stream::iter(pieces))
}

/// Sends `body` with a length and without, over both protocols, to a model whose first target says 429, and checks what each target gets.
async fn check_replayed(path: &str, body: &str, good: Reply, first: &str, second: &str) -> Vec<Answer> {
    let busy = Upstream::always(Reply::status(429)).await;
    let spare = Upstream::always(good).await;
    let gateway = Setup::over(&busy)
        .spare(&spare)
        .conf(|conf| conf["tiers"]["pro"] = json!({ "tpm": 100_000_000 }))
        .model(TWIN, |model| model["context_length"] = 3_000_000.into())
        .start()
        .await;
    let mut answers = Vec::new();
    for client in [&gateway.http1, &gateway.h2c] {
        answers.push(ask(client.post_request(path, body.to_owned())).await.ok());
        answers.push(ask(client.post_request(path, in_pieces(body))).await.ok());
    }
    for (upstream, expected) in [(&busy, first), (&spare, second)] {
        let seen = upstream.seen();
        assert_eq!(seen.len(), 4);
        for seen in seen {
            assert!(
                seen.body == expected,
                "the body was changed: {} bytes for {}",
                seen.body.len(),
                expected.len()
            );
            assert_eq!(seen.header("content-length").unwrap(), expected.len().to_string());
            assert_eq!(seen.header("transfer-encoding"), None);
        }
    }
    assert_eq!(gateway.spent().await, cost(TWIN, 4_000_000, 40));
    gateway.check_books().await;
    answers
}

#[tokio::test]
async fn a_body_of_2_mb_reaches_the_second_target_after_a_429() {
    let text = long_text();
    let body = |model: &str| format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let good = Reply::chat("Hi", 1_000_000, 10);
    let answers = check_replayed("/llm/chat", &body(TWIN), good, &body("up-twin"), &body("up-twin-2")).await;
    assert!(answers.iter().all(|answer| answer.text() == answers[0].text()));
}

#[tokio::test]
async fn a_streamed_request_of_2_mb_reaches_the_second_target_after_a_429() {
    let text = long_text();
    let body = |model: &str| format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let edited =
        |model: &str| body(model).replacen('{', r#"{"stream":true,"stream_options":{"include_usage":true},"#, 1);
    let good = Reply::stream_of(&["Hi"], 1_000_000, 10);
    let answers = check_replayed(
        "/llm/chat/stream",
        &body(TWIN),
        good,
        &edited("up-twin"),
        &edited("up-twin-2"),
    )
    .await;
    assert!(answers.iter().all(|answer| answer.text().ends_with("data: [DONE]\n\n")));
}

#[tokio::test]
async fn what_the_gateway_does_not_know_passes_byte_by_byte() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let body = |model: &str| {
        format!(
            "\n {{ \"zebra\" : 1.0e0,\t\"temperature\":0.70, \"seed\":12345678901234567890123,\"model\" : \"{model}\", \"a\\u0062c\":[1 ,2],\
             \"messages\":[ {{\"content\":\"\\u00e9\\/ \\ud83d\\ude00 é\",\"role\":\"user\",\"role2\":null}} ], \"stop\":[\"x\"], \"max_tokens\" : 7 }} \n"
        )
    };
    gateway.http1.post("/llm/chat", body(SMALL)).await.ok();
    let seen = upstream.only();
    assert_eq!(std::str::from_utf8(&seen.body).unwrap(), body("up-small"));
}

#[tokio::test]
async fn usage_is_asked_of_the_upstream_whatever_the_client_says() {
    let upstream = Upstream::always(Reply::stream_of(&["Hi"], 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let with = |rest: &str| format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}]{rest}}}"#);
    let cases = [
        ("", true),
        (r#","stream":false"#, true),
        (r#","stream":null,"stream_options":null"#, true),
        (r#","stream":true,"stream_options":{}"#, true),
        (r#","stream":true,"stream_options":{"include_usage":false}"#, true),
        (r#","stream":true,"stream_options":{"include_usage":null}"#, true),
        (r#","stream":true,"stream_options":{"include_obfuscation":false}"#, true),
        (r#","stream":true,"stream_options":{"include_usage":true}"#, false),
        (r#","stream_options":{"x":1,"include_usage":true}"#, false),
    ];
    for (rest, is_dropped) in cases {
        let asked = upstream.seen().len();
        let events = gateway
            .http1
            .stream("/llm/chat/stream", with(rest))
            .await
            .ok()
            .rest()
            .await;
        let seen = upstream.asked(asked + 1).await.json();
        assert_eq!(
            (&seen["stream"], &seen["stream_options"]["include_usage"]),
            (&json!(true), &json!(true)),
            "{rest}"
        );
        let usage = events.iter().filter(|event| event.contains("prompt_tokens")).count();
        assert_eq!(usage, usize::from(!is_dropped), "{rest}: {events:?}");
        if rest.contains("obfuscation") {
            assert_eq!(seen["stream_options"]["include_obfuscation"], false);
        }
        if rest.contains("\"x\"") {
            assert_eq!(seen["stream_options"]["x"], 1);
        }
    }
}

#[tokio::test]
async fn a_whole_answer_is_asked_for_without_stream_options() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let body = upstream.only().json();
    assert_eq!(
        body,
        json!({ "model": "up-small", "messages": [{ "role": "user", "content": "Hello" }] })
    );
}

#[tokio::test]
async fn a_field_that_the_provider_allows_passes() {
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["providers"]["main"]["allow_fields"] = json!(["service_tier"]));
    let gateway = setup.start().await;
    let with = |field: &str| {
        json!({ "model": SMALL, "messages": [{ "role": "user", "content": "x" }], field: "flex" }).to_string()
    };
    gateway.http1.post("/llm/chat", with("service_tier")).await.ok();
    assert_eq!(upstream.only().json()["service_tier"], "flex");
    gateway
        .http1
        .post("/llm/chat", with("route"))
        .await
        .error(400, "invalid_request_error");
    assert_eq!(upstream.seen().len(), 1);
}

/// Nobody knows which of a model's targets will get the call.
#[tokio::test]
async fn a_field_passes_only_where_the_providers_of_all_targets_allow_it() {
    let messages = json!([{ "role": "user", "content": "x" }]);
    let body = json!({ "model": TWIN, "messages": messages, "service_tier": "flex" }).to_string();
    for (allowing, status) in [
        (["main"].as_slice(), 400),
        (&["spare"], 400),
        (&[], 400),
        (&["main", "spare"], 200),
    ] {
        let main = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let spare = Upstream::unused().await;
        let setup = Setup::over(&main).spare(&spare).conf(|conf| {
            for provider in allowing {
                conf["providers"][provider]["allow_fields"] = json!(["service_tier"]);
            }
        });
        let gateway = setup.start().await;
        let answer = gateway.http1.post("/llm/chat", body.clone()).await;
        if status == 200 {
            answer.ok();
            assert_eq!(main.only().json()["service_tier"], "flex");
            assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
        } else {
            let error = answer.error(status, "invalid_request_error");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("service_tier"), "{allowing:?}: {message}");
            gateway.check_untouched(&main).await;
        }
        assert_eq!(spare.connections(), 0);
    }
}

#[tokio::test]
async fn embeddings_of_many_long_inputs_pass_whole() {
    let upstream = Upstream::always(Reply::embeddings(2, 900_000)).await;
    let setup = Setup::over(&upstream).model(EMBED, |model| model["context_length"] = 1_000_000.into());
    let gateway = setup.start().await;
    let body = |model: &str| format!(r#"{{"model":"{model}","input":["{}","x"]}}"#, long_text());
    for client in [&gateway.http1, &gateway.h2c] {
        ask(client.post_request("/llm/embeddings", in_pieces(&body(EMBED))))
            .await
            .ok();
    }
    for seen in upstream.seen() {
        assert!(seen.body == body("up-embed"));
    }
    assert_eq!(gateway.spent().await, cost(EMBED, 1_800_000, 0));
}
