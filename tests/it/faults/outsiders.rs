//! What anyone who reaches the listeners, and a provider that talks nonsense, can do to an operator: readiness still answers, the log stays
//! small and names no error that nobody can mend.

use std::time::Duration;

use serde_json::json;

use super::load::Load;
use super::process::{Ground, Site};
use super::upstream::{MODEL, Provider};
use crate::harness::{Raw, Reply, Upstream, eventually};

/// More than the admin listener has at once.
const HALF_OPEN: usize = 80;
const RESETS: usize = 200;
const GARBAGE_BYTES: usize = 900_000;
/// What all of it may add to the log.
const LOG_BYTES_MAX: usize = 20_000;

async fn ready(site: &Site) -> String {
    let url = format!("http://127.0.0.1:{}/readyz", site.admin_port);
    let answer = reqwest::Client::new().get(url).timeout(Duration::from_secs(2)).send();
    answer.await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_ask_nothing_keep_no_probe_from_its_answer() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let address = ([127, 0, 0, 1], site.admin_port).into();
    let mut half_open = Vec::new();
    for number in 0..HALF_OPEN {
        let mut raw = Raw::connect(address).await;
        // Some say nothing at all, and some never come to the end of their head.
        if number % 2 == 0 {
            raw.send("GET /readyz HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
        }
        half_open.push(raw);
        if number % 20 == 19 {
            assert_eq!(ready(&site).await, "ready\n");
        }
    }
    assert_eq!(ready(&site).await, "ready\n");
    assert!(half_open[0].is_closed(), "the one that was quiet for longest made room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_somebody_else_may_own_is_not_the_admin_listeners() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        conf["admin_hosts"] = json!(["gw1.example.com"]);
    });
    site.start(&[]);
    for (host, expected) in [
        ("127.0.0.1:9090", 200),
        ("gateway:9090", 200),
        ("gw1.example.com", 200),
        ("evil.example", 421),
    ] {
        for path in ["/status.json", "/metrics", "/"] {
            let url = format!("http://127.0.0.1:{}{path}", site.admin_port);
            let asked = reqwest::Client::new().get(url).header("host", host).send();
            assert_eq!(asked.await.unwrap().status(), expected, "{host} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_and_a_provider_that_talks_nonsense_leave_a_small_log_without_an_error() {
    let provider = Provider::quick().await;
    let garbage = "\u{1}{\"a\":\n".repeat(GARBAGE_BYTES / 7);
    let length = garbage.len();
    let upstream = Upstream::by(move |_, seen| {
        let whole = Reply::json_head(length).bytes(&garbage);
        match seen.json()["stream"] == true {
            true => Reply::stream().chunk(&garbage).close(),
            false => whole,
        }
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        conf["providers"]["main"]["base_url"] = upstream.base_url().into();
    });
    site.start(&[]);
    let load = Load::new(&site, 1);
    let before = site.log().len();
    let address = ([127, 0, 0, 1], site.port).into();
    let head = "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let key = load.key(0).reveal();
    for number in 0..RESETS {
        let mut raw = Raw::connect(address).await;
        let sent = match number % 3 {
            0 => String::new(),
            1 => head.to_owned(),
            _ => format!("{head}authorization: Bearer {key}\r\ncontent-length: 1000\r\n\r\n{{\"model\""),
        };
        raw.send(sent).await;
        raw.close();
    }
    // A connection whose answer has failed is closed, so none is used again.
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    for number in 0..20 {
        let body = json!({
            "model": MODEL, "stream": number % 2 == 0, "messages": [{ "role": "user", "content": "Hello" }],
        });
        let asked = client
            .post(format!("{}/llm/chat", site.base_url()))
            .bearer_auth(key)
            .json(&body);
        let answer = asked.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        assert!(status == 502 || text.contains("\"error\""), "{status}: {text:.200}");
    }
    eventually("nothing is under way", async || {
        let url = format!("http://127.0.0.1:{}/metrics", site.admin_port);
        let page = client.get(url).send().await.unwrap().text().await.unwrap();
        page.contains("\ntollgate_requests_in_flight 0\n").then_some(())
    })
    .await;
    let log = site.log();
    let told = &log[before..];
    assert!(told.len() < LOG_BYTES_MAX, "{} bytes: {told:.4000}", told.len());
    let errors: Vec<&str> = told.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
