//! Settings that show at the gateway's two ends: headers for a provider, addresses of IPv6, the time before a stop.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpListener;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, SMALL, TWIN};
use crate::harness::client::Client;
use crate::harness::operator::{Process, free_address};
use crate::harness::redis_server::free_port;
use crate::harness::{Gateway, Reply, Setup, Upstream, deltas, eventually};

#[tokio::test]
async fn a_providers_own_headers_are_sent_with_each_request_to_it_and_to_no_other() {
    let main = Upstream::by(|number, seen| match (number, seen.json().get("input")) {
        (0, _) => Reply::status(503),
        (_, Some(_)) => Reply::embeddings(1, 4),
        _ if seen.json()["stream"] == true => Reply::stream_of(&["Hi"], 9, 1),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&main).spare(&spare);
    let setup = setup.conf(|conf| {
        conf["providers"]["main"]["headers"] = json!({ "x-team": "gateway", "HTTP-Referer": "https://shop.example" });
    });
    let gateway: Gateway = setup.start().await;
    // The first of its targets refuses, and the other is asked.
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    gateway.h2c.post("/llm/chat", request(SMALL)).await.ok();
    gateway.http1.post("/llm/chat", streaming(SMALL)).await.ok();
    let inputs = json!({ "model": EMBED, "input": ["a"] }).to_string();
    let own = gateway
        .http1
        .post_request("/llm/embeddings", inputs)
        .header("x-team", "the client's");
    crate::harness::client::ask(own).await.ok();
    assert_eq!(main.seen().len(), 4);
    for seen in main.seen() {
        assert_eq!(seen.header("x-team"), Some("gateway"), "{}", seen.head);
        assert_eq!(seen.header("http-referer"), Some("https://shop.example"));
        assert_eq!(seen.head.to_lowercase().matches("x-team").count(), 1, "{}", seen.head);
    }
    assert_eq!(spare.asked(1).await.header("x-team"), None);
}

/// The real binary: its listener, its admin listener, its provider, and who it takes its clients to be.
#[tokio::test]
async fn everything_works_over_ipv6() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let stream = |_: usize, seen: &crate::harness::upstream::Seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hi"], 9, 1),
        false => Reply::chat("Hi", 9, 1),
    };
    let upstream = Upstream::on(listener, stream, None);
    let (port, admin_port) = (free_port(), free_port());
    let process = Process::start(&upstream, |conf| {
        conf["listen"] = format!("[::1]:{port}").into();
        conf["admin_listen"] = format!("[::1]:{admin_port}").into();
        conf["providers"]["main"]["base_url"] = upstream.base_url_at("[::1]").into();
        conf["auth_failures_per_minute"] = 2.into();
        conf["trusted_proxies"] = json!(["::1/128"]);
    })
    .await;
    process.client.post("/llm/chat", request(SMALL)).await.ok();
    let events = process
        .client
        .stream("/llm/chat", streaming(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert_eq!(deltas(&events), "Hi");
    let address: std::net::SocketAddr = format!("[::1]:{port}").parse().unwrap();
    let over_h2 = Client::h2c(address).with_key(&process.client.key);
    over_h2.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(process.admin.get("//readyz").await.status, 200);
    // Failures are counted by network: whoever has one address has 2^64 of them.
    let status = async |forwarded: &str| {
        let wrong = process
            .client
            .with_key("tg_wrong")
            .request(reqwest::Method::GET, "/llm/balance");
        crate::harness::client::ask(wrong.header("x-forwarded-for", forwarded))
            .await
            .status
    };
    let statuses = [
        status("2001:db8:1:2::1").await,
        status("2001:db8:1:2::2").await,
        status("2001:db8:1:2:ffff::3").await,
        status("2001:db8:1:3::1").await,
    ];
    assert_eq!(statuses, [401, 401, 429, 401]);
}

/// Who balances load reads `/readyz` in these seconds, and its last calls are served in them.
#[tokio::test]
async fn a_stop_says_that_it_is_not_ready_before_it_takes_no_more_connections() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let address = free_address();
    let mut process = Process::start(&upstream, |conf| {
        conf["listen"] = address.to_string().into();
        conf["unready_seconds"] = 2.into();
    })
    .await;
    let told = Instant::now();
    process.signal("TERM");
    eventually("the gateway is not ready", async || {
        (process.admin.get("//readyz").await.status == 503).then_some(())
    })
    .await;
    // On connections of their own.
    for _ in 0..5 {
        let client = Client::http1(address).with_key(&process.client.key);
        client.post("/llm/chat", request(SMALL)).await.ok();
    }
    assert!(told.elapsed() < UNREADY, "too slow to tell: {:?}", told.elapsed());
    eventually("the listener is closed", async || {
        (!process.client.listens().await).then_some(())
    })
    .await;
    assert!(told.elapsed() >= UNREADY, "closed after {:?}", told.elapsed());
    assert!(process.ended().await.success());
}

const UNREADY: Duration = Duration::from_secs(2);
