//! What anyone who reaches the listeners, and a provider that talks nonsense, can do to an operator: readiness still answers, at once, the
//! log stays small, names no error that nobody can mend, and has nothing in it of what providers sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Load;
use super::process::{Ground, Site};
use super::upstream::Provider;
use crate::harness::catalogue::{FREE, LARGE, SMALL, TWIN};
use crate::harness::{Raw, Reply, Upstream, eventually};

/// More than the admin listener has at once.
const HALF_OPEN: usize = 80;
const RESETS: usize = 200;
const GARBAGE_BYTES: usize = 900_000;
/// What a provider sends that no log may have.
const COMPLETION: &str = "a secret completion ";
/// What all of it may add to the log: a few lines for each of the 36 calls, whatever order their answers come in, and none for a reset.
const LOG_BYTES_MAX: usize = 40_000;
const LINE_BYTES_MAX: usize = 400;
/// How long 99 of 100 probes may wait, and any: the machine may take the processor away for a moment.
const READY_MAX: Duration = Duration::from_millis(100);
const READY_EVER_MAX: Duration = Duration::from_secs(1);

/// Asks for readiness over a connection of its own, as a probe does: how long it took.
async fn ready(address: SocketAddr) -> Duration {
    let asked_at = Instant::now();
    let mut raw = Raw::connect(address).await;
    raw.send("GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(raw.answer().await.body, "ready\n");
    asked_at.elapsed()
}

/// Connections that say nothing at all, or never come to the end of their head.
async fn half_open(address: SocketAddr) -> Vec<Raw> {
    let mut all = Vec::new();
    for number in 0..HALF_OPEN {
        let mut raw = Raw::connect(address).await;
        if number % 2 == 0 {
            raw.send("GET /readyz HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
        }
        all.push(raw);
    }
    all
}

/// Clients that reset their connections, wherever they are in a call or in its answer.
async fn resets(address: SocketAddr, key: String) {
    let post = "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let known = format!("{post}authorization: Bearer {key}\r\n");
    let body = json!({ "model": TWIN, "messages": [{ "role": "user", "content": "Hello" }] }).to_string();
    let sent = [
        String::new(),
        post.to_owned(),
        "GET /api/v1/llm/public/models HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!("{known}content-length: 1000\r\n\r\n{{\"model\""),
        format!("{known}expect: 100-continue\r\ncontent-length: 1000\r\n\r\n"),
        format!("{post}content-length: {}\r\n\r\n{body}", body.len()),
        format!("{known}content-length: {}\r\n\r\n{body}", body.len()),
        format!("{known}transfer-encoding: chunked\r\n\r\n{}", "no length".repeat(100)),
        format!("{known}content-length: {}\r\n\r\n", "12 ".repeat(2_000)),
        "\u{1}\u{2}{".repeat(1_000),
    ];
    for number in 0..RESETS {
        let mut raw = Raw::connect(address).await;
        // It may be refused, and closed, before the last byte.
        let _sent = raw.try_send(&sent[number % sent.len()]).await;
        raw.reset();
    }
}

/// An upstream that answers nonsense, of another kind each time.
async fn garbage() -> (Upstream, usize) {
    let garbage = format!("{COMPLETION}\u{1}{{\"a\":\n").repeat(GARBAGE_BYTES / (COMPLETION.len() + 8));
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let kinds = [
        Reply::default().bytes(&garbage),
        Reply::default().bytes(format!("HTTP/1.1 200 OK\r\n{garbage}\r\n\r\n")),
        Reply::default().bytes(format!("HTTP/1.1 {garbage}\r\n\r\n")),
        Reply::json_head(garbage.len()).bytes(&garbage),
        Reply::new(500, &[("content-type", "application/json")], &garbage),
        Reply::new(400, &[("content-type", "text/plain")], &garbage),
        Reply::default().bytes(format!("{chunked}{garbage}")),
        Reply::stream().chunk(&garbage).close(),
        Reply::stream().event(&format!("{{\"error\":{garbage:?}}}")).close(),
    ]
    .map(Reply::close);
    let count = kinds.len();
    let next = AtomicUsize::new(0);
    let upstream = Upstream::by(move |_, _| kinds[next.fetch_add(1, Ordering::Relaxed) % count].clone()).await;
    (upstream, count)
}

/// Calls that are answered with nonsense, whole ones and streams.
async fn calls(base_url: String, key: String, count: usize) {
    // A connection whose answer has failed is closed, so none is used again.
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    for number in 0..2 * count {
        let model = [FREE, SMALL, LARGE, TWIN][number % 4];
        let body = json!({
            "model": model, "stream": number % 2 == 0, "messages": [{ "role": "user", "content": "Hello" }],
        });
        let asked = client
            .post(format!("{base_url}/llm/chat"))
            .bearer_auth(&key)
            .json(&body);
        let answer = asked.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        assert!(status >= 400 || text.contains("\"error\""), "{status}: {text:.200}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_outsiders_do_readiness_answers_at_once_and_the_log_stays_small_and_without_errors() {
    let provider = Provider::quick().await;
    let (upstream, kinds) = garbage().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        for name in ["main", "spare"] {
            conf["providers"][name]["base_url"] = upstream.base_url().into();
        }
    });
    site.start(&[]);
    let load = Load::new(&site, 1);
    let key = load.key(0).reveal().to_owned();
    let before = site.log().len();
    let (address, admin): (SocketAddr, SocketAddr) = (
        ([127, 0, 0, 1], site.port).into(),
        ([127, 0, 0, 1], site.admin_port).into(),
    );

    // A client that asks for more than its connection takes, and reads nothing of it.
    let mut silent = Raw::connect_narrow(address).await;
    silent
        .send("GET /api/v1/llm/public/models HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200))
        .await;
    let mut half_open = half_open(admin).await;
    let outsiders = Arc::new(());
    for _ in 0..2 {
        let outsider = Arc::clone(&outsiders);
        let (key, base_url) = (key.clone(), site.base_url());
        tokio::spawn(async move {
            tokio::join!(resets(address, key.clone()), calls(base_url, key, kinds));
            drop(outsider);
        });
    }
    let mut waits = Vec::new();
    while Arc::strong_count(&outsiders) > 1 || waits.len() < 100 {
        waits.push(ready(admin).await);
    }
    waits.sort_unstable();
    let (count, longest) = (waits.len(), waits[waits.len() - 1]);
    let most = waits[count * 99 / 100];
    assert!(
        most <= READY_MAX,
        "of {count} probes one in a hundred waited for {most:?}"
    );
    assert!(
        longest <= READY_EVER_MAX,
        "of {count} probes one waited for {longest:?}"
    );
    assert!(half_open[0].is_closed(), "the one that was quiet for longest made room");
    assert!(upstream.seen().len() >= kinds, "each kind of nonsense was sent");
    drop(silent);
    eventually("nothing is under way", async || {
        let url = format!("http://{admin}/metrics");
        let page = reqwest::get(url).await.unwrap().text().await.unwrap();
        page.contains("\ntollgate_requests_in_flight 0\n").then_some(())
    })
    .await;
    let log = site.log();
    let told = &log[before..];
    let errors: Vec<&str> = told.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(
        errors.is_empty(),
        "{} errors: {:#?}",
        errors.len(),
        &errors[..errors.len().min(5)]
    );
    assert!(!told.contains(COMPLETION), "{told:.2000}");
    assert!(told.len() < LOG_BYTES_MAX, "{} bytes: {told:.4000}", told.len());
    let longest = told.lines().max_by_key(|line| line.len()).unwrap_or_default();
    assert!(longest.len() < LINE_BYTES_MAX, "{longest}");
    assert!(!site.has_ended());
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
