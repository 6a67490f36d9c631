//! Which hooks run on a request, and in what order, as the binary's own trace of them tells.

use serde_json::{Value, json};

use crate::chat::request;
use crate::harness::catalogue::{SMALL, TWIN};
use crate::harness::operator::Process;
use crate::harness::{Reply, Upstream, eventually};

/// A gateway that shows its hooks in its log.
async fn traced(upstream: &Upstream, change: impl FnOnce(&mut Value)) -> Process {
    let mut gateway = Process::prepare(upstream, change);
    let conf = gateway.path("tollgate.yaml").to_str().unwrap().to_owned();
    let words = [
        "env",
        "RUST_LOG=tollgate::hooks=trace",
        env!("CARGO_BIN_EXE_tollgate"),
        "serve",
        "--conf",
        &conf,
    ];
    gateway.start_with(&words.map(str::to_owned)).await;
    gateway
}

/// The hooks of the last request, as they ran, once it was logged; those of pieces that follow each other count as one.
async fn hooks(gateway: &Process, id: &str) -> Vec<String> {
    eventually("the request is logged", async || {
        let log = std::fs::read_to_string(gateway.path("log")).unwrap();
        let needle = format!("{id} ");
        let mut hooks: Vec<String> = Vec::new();
        let mut pair = Vec::new();
        for line in log.lines().filter(|line| line.contains("tollgate::hooks")) {
            let Some((_, hook)) = line.split_once(&needle) else {
                continue;
            };
            if hook.ends_with("body_filter") && hook.contains("response") {
                pair.push(hook.to_owned());
                continue;
            }
            if !pair.is_empty() {
                assert!(
                    pair.chunks(2)
                        .all(|pair| pair == ["upstream_response_body_filter", "response_body_filter"]),
                    "{pair:?}"
                );
                hooks.push("body filters".to_owned());
                pair.clear();
            }
            hooks.push(hook.to_owned());
        }
        hooks.last().is_some_and(|last| last == "logging").then_some(hooks)
    })
    .await
}

const BEGINS: [&str; 2] = ["early_request_filter", "request_filter"];
const ASKS: [&str; 3] = ["upstream_peer", "upstream_request_filter", "request_body_filter"];
const ANSWERS: [&str; 2] = ["upstream_response_filter", "body filters"];

#[tokio::test]
async fn each_hook_runs_when_pingora_would_run_it() {
    let upstream = Upstream::by(|_, seen| match seen.json()["model"].as_str().unwrap() {
        "up-twin" => Reply::status(500),
        _ if seen.json()["stream"] == json!(true) => Reply::stream_of(&["Hello", " world"], 9, 2),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let gateway = traced(&upstream, |conf| {
        conf["providers"]["spare"]["base_url"] = upstream.base_url().into()
    })
    .await;

    let streamed = gateway.client.post("/llm/chat/stream", request(SMALL)).await.ok();
    let expected = [BEGINS.as_slice(), &ASKS, &ANSWERS, &["logging"]].concat();
    assert_eq!(hooks(&gateway, streamed.header("x-request-id")).await, expected);

    let failed_over = gateway.client.post("/llm/chat", request(TWIN)).await.ok();
    let failed = ["upstream_response_filter", "error_while_proxy"];
    let expected = [BEGINS.as_slice(), &ASKS, &failed, &ASKS, &ANSWERS, &["logging"]].concat();
    assert_eq!(hooks(&gateway, failed_over.header("x-request-id")).await, expected);

    let refused = gateway.client.post("/llm/chat", request("acme/nothing")).await;
    let expected = [BEGINS.as_slice(), &["logging"]].concat();
    assert_eq!(hooks(&gateway, refused.header("x-request-id")).await, expected);

    let native = gateway.client.get("/llm/balance").await.ok();
    assert_eq!(hooks(&gateway, native.header("x-request-id")).await, expected);
}

#[tokio::test]
async fn a_failure_is_told_and_logged_by_pingora_once() {
    let upstream = Upstream::always(Reply::default().close()).await;
    let gateway = traced(&upstream, |_| ()).await;

    let failed = gateway.client.post("/llm/chat", request(SMALL)).await;
    failed.error(502, "upstream_error");
    let ends = ["error_while_proxy", "fail_to_proxy", "logging"];
    let expected = [BEGINS.as_slice(), &ASKS, &ends].concat();
    assert_eq!(hooks(&gateway, failed.header("x-request-id")).await, expected);

    let unreachable = gateway.client.post("/llm/chat", request(TWIN)).await;
    unreachable.error(502, "upstream_error");
    let spare = ["upstream_peer", "fail_to_connect", "fail_to_proxy", "logging"];
    let expected = [BEGINS.as_slice(), &ASKS, &["error_while_proxy"], &spare].concat();
    assert_eq!(hooks(&gateway, unreachable.header("x-request-id")).await, expected);
}
