//! Bad bodies: 400, 403 and 404, before anything is held. Each gets the
//! right error and costs nothing.

use serde_json::json;

use crate::harness::catalogue::{EMBED, HUGE, SMALL};
use crate::harness::client::ask;
use crate::harness::{Gateway, Setup, Upstream};

const CHAT: [&str; 3] = ["/llm/chat", "/llm/chat/stream", "/chat/completions"];
const EMBEDDINGS: [&str; 2] = ["/llm/embeddings", "/embeddings"];

/// Sends each body to each path; every answer must be a 400 whose message contains the text beside the body.
async fn check_400(paths: &[&str], cases: &[(&str, &[u8])]) {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for (words, body) in cases {
        for path in paths {
            println!("{path} {}", String::from_utf8_lossy(body));
            for client in [&gateway.http1, &gateway.h2c] {
                let answer = client.post(path, body.to_vec()).await;
                let error = answer.error(400, "invalid_request_error");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains(words), "{message}");
                assert_eq!(answer.header("x-should-retry"), "false");
            }
        }
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_body_that_is_not_a_json_object_is_400() {
    check_400(
        &CHAT,
        &[
            ("not valid JSON", b""),
            ("not valid JSON", b" "),
            ("not valid JSON", b"hello"),
            ("not valid JSON", b"{\"model\":\"acme/small\",\"messages\":["),
            (
                "not valid JSON",
                b"{\"model\":\"acme/small\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]} x",
            ),
            ("not valid JSON", b"{'model':'acme/small'}"),
            ("not valid JSON", b"{\"model\":\"acme/small\",\"messages\":[{}],}"),
            (
                "not valid JSON",
                b"{\"model\":\"acme/small\",\"messages\":[{}],\"x\":01}",
            ),
            (
                "not valid JSON",
                b"{\"model\":\"acme/small\",\"messages\":[{}],\"x\":NaN}",
            ),
            (
                "not valid JSON",
                b"{\"model\":\"acme/small\",\"messages\":[{\"content\":\"a\nb\"}]}",
            ),
            ("JSON object", b"[]"),
            ("JSON object", b"null"),
            ("JSON object", b"\"model\""),
            ("JSON object", b"1"),
            (
                "not UTF-8",
                b"{\"model\":\"acme/small\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
            ),
            ("not UTF-8", b"{\"model\":\"acme/\xc3\x28\",\"messages\":[{}]}"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_missing_or_mistyped_field_is_400() {
    let with = |rest: &str| format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}],{rest}}}"#);
    let mut cases: Vec<(&str, String)> = vec![
        (
            "`model` is required",
            r#"{"messages":[{"role":"user","content":"x"}]}"#.into(),
        ),
        ("`model` is required", "{}".into()),
        ("`messages` is required", format!(r#"{{"model":"{SMALL}"}}"#)),
    ];
    for model in ["null", "1", "true", "[]", "{}"] {
        cases.push(("`model`", format!(r#"{{"model":{model},"messages":[{{}}]}}"#)));
    }
    cases.push(("`model`", r#"{"model":"","messages":[{}]}"#.into()));
    for messages in ["null", "\"x\"", "{}", "[]", "[1]", "[\"x\"]", "[null]", "[{},[]]"] {
        cases.push(("`messages`", format!(r#"{{"model":"{SMALL}","messages":{messages}}}"#)));
    }
    for stream in ["\"true\"", "1", "0", "{}"] {
        cases.push(("`stream`", with(&format!(r#""stream":{stream}"#))));
    }
    for field in ["max_tokens", "max_completion_tokens", "n"] {
        for value in [
            "0",
            "-1",
            "1.5",
            "\"5\"",
            "true",
            "[]",
            "1e400",
            "99999999999999999999999999",
        ] {
            cases.push((field, with(&format!(r#""{field}":{value}"#))));
        }
    }
    for options in [
        "1",
        "[]",
        "\"x\"",
        r#"{"include_usage":1}"#,
        r#"{"include_usage":"true"}"#,
    ] {
        cases.push(("stream_options", with(&format!(r#""stream_options":{options}"#))));
    }
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|(words, body)| (*words, body.as_bytes())).collect();
    check_400(&CHAT, &cases).await;
}

#[tokio::test]
async fn a_key_that_stands_twice_is_400_however_it_is_spelled() {
    let mut cases = Vec::new();
    for twice in [
        r#""model":"acme/large""#,
        r#""mod\u0065l":"acme/large""#,
        r#""messages":[{}]"#,
        r#""stream":false,"stream":true"#,
        r#""max_tokens":1,"max_t\u006fkens":100000"#,
        r#""n":1,"n":100"#,
        r#""stream_options":null,"stream_options":{}"#,
    ] {
        cases.push(format!(
            r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}],{twice}}}"#
        ));
    }
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|body| ("more than once", body.as_bytes())).collect();
    check_400(&CHAT, &cases).await;
}

#[tokio::test]
async fn fields_that_choose_another_model_or_price_are_400() {
    let fields = [
        "models",
        "route",
        "provider",
        "plugins",
        "transforms",
        "web_search_options",
        "service_tier",
        "prediction",
        "store",
        "background",
        "deferred",
        "n_cmpl",
        "context_window_fallbacks",
        "content_policy_fallbacks",
    ];
    let body =
        |field: &str| format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}],"{field}":"on"}}"#);
    let bodies = fields.map(body);
    let mut cases: Vec<(&str, &[u8])> = fields
        .iter()
        .zip(&bodies)
        .map(|(field, body)| (*field, body.as_bytes()))
        .collect();
    let options = body("providerOptions");
    cases.push(("providerOptions", options.as_bytes()));
    check_400(&CHAT, &cases).await;
}

/// Refused fields with the values that pass.
const ASK_FOR_NOTHING: [(&str, &str); 7] = [
    ("transforms", "[]"),
    ("plugins", "[]"),
    ("models", "[]"),
    ("provider", "{}"),
    ("providerOptions", "{}"),
    ("context_window_fallbacks", "[]"),
    ("content_policy_fallbacks", "[]"),
];

#[tokio::test]
async fn every_refused_field_is_400_however_its_name_is_spelled() {
    let mut cases = Vec::new();
    let refused = tollgate::pure::request_body::refused_fields().map(|(field, _)| field);
    for field in refused.chain(tollgate::pure::request_body::other_maxima()) {
        let escaped: String = field.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        let first = format!("\\u{:04X}{}", u32::from(field.chars().next().unwrap()), &field[1..]);
        for name in [field.to_owned(), first, escaped] {
            for value in ["\"on\"", "true", "1", "{}", "[]"] {
                if ASK_FOR_NOTHING.contains(&(field, value)) {
                    continue;
                }
                let body =
                    format!(r#"{{"model":"{SMALL}","messages":[{{"role":"user","content":"x"}}],"{name}":{value}}}"#);
                cases.push((field, body));
            }
        }
    }
    assert!(cases.len() > 600, "{}", cases.len());
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|(field, body)| (*field, body.as_bytes())).collect();
    check_400(&CHAT[..1], &cases).await;
}

#[tokio::test]
async fn bad_embedding_requests_are_400() {
    let mut cases: Vec<(&str, String)> = vec![
        ("`input` is required", format!(r#"{{"model":"{EMBED}"}}"#)),
        ("`model` is required", r#"{"input":"x"}"#.into()),
        ("not valid JSON", "hello".into()),
        ("JSON object", "[]".into()),
        (
            "makes no embeddings",
            json!({ "model": SMALL, "input": "x" }).to_string(),
        ),
    ];
    for input in [
        "null",
        "1",
        "true",
        "{}",
        "[]",
        "[1.5]",
        "[-1]",
        "[\"a\",1]",
        "[1,\"a\"]",
        "[[]]",
        "[[1],\"a\"]",
        "[null]",
    ] {
        cases.push(("`input`", format!(r#"{{"model":"{EMBED}","input":{input}}}"#)));
    }
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|(words, body)| (*words, body.as_bytes())).collect();
    check_400(&EMBEDDINGS, &cases).await;
}

#[tokio::test]
async fn an_embedding_model_does_not_chat() {
    let body = json!({ "model": EMBED, "messages": [{ "role": "user", "content": "x" }] }).to_string();
    check_400(&CHAT, &[("does not chat", body.as_bytes())]).await;
}

#[tokio::test]
async fn an_unknown_model_is_404_and_one_of_a_higher_tier_403() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let long = "x".repeat(10_000);
    for unknown in [
        "gpt-4",
        "acme",
        "acme/",
        "ACME/SMALL",
        "acme/small ",
        "up-small",
        long.as_str(),
    ] {
        let body = json!({ "model": unknown, "messages": [{ "role": "user", "content": "x" }] }).to_string();
        let answer = gateway.http1.post("/llm/chat", body).await;
        answer.error(404, "not_found_error");
        assert!(answer.body.len() < 1_000, "a long name does not come back");
        assert_eq!(answer.header("x-should-retry"), "false");
        let body = json!({ "model": unknown, "input": "x" }).to_string();
        gateway
            .http1
            .post("/llm/embeddings", body)
            .await
            .error(404, "not_found_error");
    }
    let body = json!({ "model": HUGE, "messages": [{ "role": "user", "content": "x" }] }).to_string();
    let error = gateway
        .http1
        .post("/llm/chat", body)
        .await
        .error(403, "permission_error");
    assert!(error["message"].as_str().unwrap().contains("Enterprise"), "{error}");
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_with_a_length_and_without() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["body_bytes_max"] = 2_000.into());
    let gateway = setup.start().await;
    let body =
        |content: usize| json!({ "model": "acme/none", "messages": [{ "content": "x".repeat(content) }] }).to_string();
    let frame = body(0).len();
    for client in [&gateway.http1, &gateway.h2c] {
        for path in ["/llm/chat", "/llm/chat/stream", "/llm/embeddings"] {
            for (length, status, kind) in [
                (2_000, if path.contains("chat") { 404 } else { 400 }, ""),
                (2_001, 413, "invalid_request_error"),
                (300_000, 413, "invalid_request_error"),
            ] {
                println!("{path} {length}");
                let body = body(length - frame);
                let whole = ask(client.post_request(path, body.clone())).await;
                let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
                    body.into_bytes().chunks(900).map(|c| Ok(c.to_vec())).collect();
                let chunked = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
                let chunked = ask(client.post_request(path, chunked)).await;
                for answer in [whole, chunked] {
                    if status == 413 {
                        let error = answer.error(status, kind);
                        assert!(error["message"].as_str().unwrap().contains("2000 bytes"), "{error}");
                    } else {
                        assert_eq!(answer.status, status, "{}", answer.text());
                    }
                }
            }
        }
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn the_order_of_checks_is_route_key_body_model_tier() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let nobody = gateway.http1.with_key("");
    nobody.post("/llm/nothing", "x").await.error(404, "not_found_error");
    nobody.get("/llm/chat").await.error(405, "invalid_request_error");
    nobody.post("/llm/chat", "x").await.error(401, "authentication_error");
    gateway
        .http1
        .post("/llm/chat", r#"{"model":"no/such"}"#)
        .await
        .error(400, "invalid_request_error");
    let body = r#"{"model":"no/such","messages":[{}],"max_tokens":999999999}"#;
    gateway
        .http1
        .post("/llm/chat", body)
        .await
        .error(404, "not_found_error");
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_compressed_body_is_400() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let request = gateway
        .http1
        .post_request("/llm/chat", crate::chat::request(SMALL))
        .header("content-encoding", "gzip");
    ask(request).await.error(400, "invalid_request_error");
    gateway.check_untouched(&upstream).await;
}
