//! The memory that request bodies take, and what is refused before a long one is taken: neither connections nor streams of one key, one
//! address or all together make the gateway hold more than it may.
//!
//! Longer than 400 lines: one case after another, each with its own connections.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate::pure::ids::Tier;

use crate::bounds::on_both;
use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, FREE, SMALL};
use crate::harness::client::{Client, ask};
use crate::harness::process::Process;
use crate::harness::{Answer, Cue, Gateway, KeySpec, Raw, Reply, Setup, Upstream, eventually, within};

const MIB: usize = 1 << 20;

/// So many bytes of a body, in pieces; then nothing more comes, and no end.
fn unfinished(bytes: usize) -> reqwest::Body {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let pieces = stream::iter((0..bytes / piece.len()).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    reqwest::Body::wrap_stream(pieces.chain(stream::pending()))
}

/// Sends so many bodies at once, none of which ends; the answers of those that are refused. The others stay open as long as the set.
struct Senders(JoinSet<Answer>);

impl Senders {
    fn start(client: &Client, count: usize, length: Option<usize>, bytes: usize) -> Senders {
        let mut senders = JoinSet::new();
        for _ in 0..count {
            let request = client.post_request("/llm/chat", unfinished(bytes));
            let request = match length {
                Some(length) => request.header("content-length", length),
                None => request,
            };
            senders.spawn(async move { Answer::read(request.send().await.unwrap()).await });
        }
        Senders(senders)
    }

    /// The next that is refused.
    async fn refused(&mut self) -> Answer {
        within("a refusal", self.0.join_next()).await.unwrap().unwrap()
    }
}

/// What is held.
fn held(gateway: &Gateway) -> Decimal {
    gateway.metrics().sum("tollgate_body_memory_bytes", &[])
}

async fn all_is_given_back(gateway: &Gateway) {
    eventually("no body is held", async || held(gateway).is_zero().then_some(())).await;
}

/// Waits until at least so much is held.
async fn held_at_least(gateway: &Gateway, bytes: usize) {
    eventually("bodies are held", async || {
        (held(gateway) >= Decimal::from(bytes)).then_some(())
    })
    .await;
}

/// Checks a refusal for the memory of the caller's own bodies.
fn check_429(answer: &Answer, limit: &str, value: usize) {
    let error = answer.error(429, "rate_limit_error");
    assert_eq!(error["metadata"], json!({ "limit": limit, "value": value }));
    assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
}

/// Limits of a few megabytes.
fn narrow(conf: &mut Value, key: usize, address: usize, total: usize) {
    conf["body_bytes_max"] = MIB.into();
    conf["body_memory_bytes_per_key_max"] = key.into();
    conf["body_memory_bytes_per_address_max"] = address.into();
    conf["body_memory_bytes_max"] = total.into();
}

/// A call with a text of about so many bytes.
fn long(bytes: usize) -> String {
    json!({ "model": SMALL, "messages": [{ "role": "user", "content": "word ".repeat(bytes / 5) }] }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_credit_takes_64_mib_by_any_number_of_connections_and_streams_and_another_is_served() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&upstream).credit("0").tier(Tier::Free).start().await;
    gateway.create_account("other", Tier::Pro).await;
    gateway.pay_in_to("other", "10").await;
    let other = gateway.new_key_of("other", KeySpec::default()).await;
    for (client, connections, length) in [
        (&gateway.http1, 40, Some(30 * MIB)),
        (&gateway.h2c, 60, Some(30 * MIB)),
        (&gateway.http1, 40, None),
        (&gateway.h2c, 60, None),
    ] {
        let mut senders = Senders::start(client, connections, length, 8 * MIB);
        // Each sends 8 MiB: eight of them fit.
        let mut refused = 0;
        let refuse = async {
            while refused < connections - 8 {
                assert!(held(&gateway) <= Decimal::from(64 * MIB), "{}", held(&gateway));
                let answer = tokio::time::timeout(Duration::from_millis(5), senders.0.join_next()).await;
                if let Ok(answer) = answer {
                    check_429(&answer.unwrap().unwrap(), "body_memory_bytes_per_key", 64 * MIB);
                    refused += 1;
                }
            }
        };
        within("all are refused that do not fit", refuse).await;
        for client in [gateway.http1.with_key(&other), gateway.h2c.with_key(&other)] {
            client.post("/llm/chat", request(SMALL)).await.ok();
            client.post("/llm/chat", long(MIB)).await.ok();
        }
        drop(senders);
        all_is_given_back(&gateway).await;
    }
    let reason = [("reason", "body_memory_bytes_per_key")];
    assert!(gateway.metrics().sum("tollgate_denials_total", &reason) > Decimal::ONE_HUNDRED);
    gateway.check_books().await;
}

#[tokio::test]
async fn many_long_bodies_of_one_key_leave_the_process_small() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, "").await;
    let (http1, h2c) = (Client::http1(process.address), Client::h2c(process.address));
    let before = process.resident_kb();
    let mut most = before;
    for (client, count) in [(http1, 40), (h2c, 60)] {
        let mut senders = Senders::start(&client.with_key(&process.key), count, Some(30 * MIB), 8 * MIB);
        for _ in 0..count - 8 {
            senders.refused().await.error(429, "rate_limit_error");
            most = most.max(process.resident_kb());
        }
    }
    println!("{before} KiB resident before, {most} KiB at most");
    assert!(
        most < before + RESIDENT_GROWTH_MAX_KB,
        "{before} KiB before, {most} KiB at most"
    );
}

#[tokio::test]
async fn a_body_that_cannot_fit_is_refused_before_it_comes() {
    let upstream = Upstream::unused().await;
    let gateway = Setup::over(&upstream)
        .conf(|conf| narrow(conf, 2 * MIB, 8 * MIB, 8 * MIB))
        .start()
        .await;
    let senders = Senders::start(&gateway.http1, 2, Some(MIB), 15 * MIB / 16);
    held_at_least(&gateway, 2 * MIB).await;
    for fields in ["HTTP/1.1\r\nhost: x", "HTTP/1.1\r\nhost: x\r\nexpect: 100-continue"] {
        let mut raw = Raw::posted_as(&gateway, "/llm/chat", fields, 100_000, "").await;
        check_429(&raw.answer().await, "body_memory_bytes_per_key", 2 * MIB);
    }
    // A short one is refused as well: any number of them would be much.
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    check_429(&answer, "body_memory_bytes_per_key", 2 * MIB);
    drop(senders);
    all_is_given_back(&gateway).await;
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn an_address_has_a_limit_over_all_its_keys() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).conf(|conf| {
        narrow(conf, 2 * MIB, 2 * MIB, 8 * MIB);
        conf["trusted_proxies"] = json!(["127.0.0.1"]);
    });
    let gateway = setup.start().await;
    let keys = [
        gateway.key.clone(),
        gateway.new_key(KeySpec::default()).await,
        gateway.new_key(KeySpec::default()).await,
    ];
    let from = |key: &str, address: &str, body: reqwest::Body| {
        let client = gateway.http1.with_key(key);
        client
            .post_request("/llm/chat", body)
            .header("x-forwarded-for", address)
    };
    let mut senders = JoinSet::new();
    for (key, address) in [(&keys[0], "2001:db8::1"), (&keys[1], "2001:db8::2")] {
        senders.spawn(from(key, address, unfinished(15 * MIB / 16)).send());
    }
    held_at_least(&gateway, 2 * MIB).await;
    let refused = ask(from(&keys[2], "2001:db8::3", request(SMALL).into())).await;
    check_429(&refused, "body_memory_bytes_per_address", 2 * MIB);
    for address in ["2001:db8:0:1::3", "203.0.113.9"] {
        ask(from(&keys[2], address, request(SMALL).into())).await.ok();
    }
    // What comes from a proxy itself counts for its key alone.
    gateway
        .http1
        .with_key(&keys[2])
        .post("/llm/chat", request(SMALL))
        .await
        .ok();
    drop(senders);
    all_is_given_back(&gateway).await;
}

#[tokio::test]
async fn the_process_has_a_limit_over_all_keys_and_says_503() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| narrow(conf, MIB, 8 * MIB, 2 * MIB));
    let gateway = setup.start().await;
    let other = gateway.new_key(KeySpec::default()).await;
    let third = gateway.new_key(KeySpec::default()).await;
    let mut senders = Vec::new();
    for key in [&gateway.key, &other] {
        senders.push(Senders::start(&gateway.h2c.with_key(key), 1, None, 15 * MIB / 16));
    }
    held_at_least(&gateway, 2 * MIB).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let answer = client.with_key(&third).post("/llm/chat", request(SMALL)).await;
        answer.error(503, "service_unavailable");
        assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    }
    gateway.counted(2).await;
    let reason = [("reason", "body_memory_bytes")];
    assert_eq!(gateway.metrics().sum("tollgate_denials_total", &reason), Decimal::TWO);
    drop(senders);
    all_is_given_back(&gateway).await;
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_body_is_counted_until_its_call_has_ended_however_that_is() {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::default().wait(&cue).and(Reply::chat("Hi", 9, 1))).await;
    let gateway = Gateway::over(&upstream).await;
    let body = long(300_000);
    for path in ["/llm/chat", "/llm/chat/stream"] {
        let asked = upstream.seen().len();
        let call = tokio::spawn(gateway.http1.post_request(path, body.clone()).send());
        upstream.asked(asked + 1).await;
        // The client's bytes, and a copy with the provider's name of the model.
        assert!(held(&gateway) >= Decimal::from(600_000), "{}", held(&gateway));
        assert!(held(&gateway) <= Decimal::from(800_000), "{}", held(&gateway));
        cue.give();
        within("an answer", call).await.unwrap().unwrap();
        all_is_given_back(&gateway).await;
    }
    // A client that leaves while its body comes, and while its call runs.
    drop(Raw::posted_as(&gateway, "/llm/chat", "HTTP/1.1\r\nhost: x", 100_000, &body[..70_000]).await);
    let asked = upstream.seen().len();
    let left = Raw::posted(&gateway, "/llm/chat", &body).await;
    upstream.asked(asked + 1).await;
    left.close();
    cue.give_all();
    all_is_given_back(&gateway).await;
    // Refusals of what came.
    for bad in [body.replace(SMALL, "no/such"), body.replace('}', "")] {
        assert!([400, 404].contains(&gateway.http1.post("/llm/chat", bad).await.status));
        all_is_given_back(&gateway).await;
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_to_its_end_is_given_back_with_its_time() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"] = json!({ "body_ms": 300 }));
    let gateway = setup.start().await;
    for client in [&gateway.http1, &gateway.h2c] {
        let mut senders = Senders::start(client, 3, None, 2 * MIB);
        for _ in 0..3 {
            senders.refused().await.error(408, "invalid_request_error");
        }
        all_is_given_back(&gateway).await;
    }
    gateway.check_untouched(&upstream).await;
}

/// The status of the first thing that is said to the head of a call with a body of a megabyte: 100 when the body is wanted.
async fn status_of_head(gateway: &Gateway, path: &str, more: &str) -> u16 {
    let fields = format!("HTTP/1.1\r\nhost: x\r\nexpect: 100-continue{more}");
    let mut raw = Raw::posted_as(gateway, path, &fields, MIB, "").await;
    raw.head().await.status
}

#[tokio::test]
async fn a_long_body_is_not_taken_from_a_key_that_has_no_request_left_on_either_store() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let limits = json!({ "rpm": 2, "tpm": 100_000_000, "concurrency": 10 });
    let setup = || Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits.clone());
    for (gateway, _redis) in on_both(setup).await {
        for _ in 0..2 {
            assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 100);
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
        assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 429);
        let without_length = reqwest::Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>(long(MIB))]));
        for body in [reqwest::Body::from(long(MIB)), without_length] {
            let answer = gateway.http1.post("/llm/chat", body).await;
            let error = answer.error(429, "rate_limit_error");
            assert_eq!(error["metadata"]["limit"], "requests_per_minute");
            assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0");
        }
        // What is short has come, and is looked at in the order of checks.
        gateway
            .http1
            .post("/llm/chat", "{}")
            .await
            .error(400, "invalid_request_error");
        all_is_given_back(&gateway).await;
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn a_long_body_is_not_taken_beyond_the_calls_at_once() {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done()).await;
    let limits = json!({ "rpm": 100, "tpm": 100_000_000, "concurrency": 1 });
    let setup = Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits);
    let gateway = setup.start().await;
    let events = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
    let answer = gateway.http1.post("/llm/chat", long(MIB)).await;
    let error = answer.error(429, "rate_limit_error");
    assert_eq!(error["metadata"], json!({ "limit": "concurrent_requests", "value": 1 }));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "98", "it counts");
    gateway
        .http1
        .post("/llm/chat", "{}")
        .await
        .error(400, "invalid_request_error");
    cue.give_all();
    events.rest().await;
    gateway.settled_balance().await;
    assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 100);
}

#[tokio::test]
async fn a_long_body_is_not_taken_without_credit_where_no_model_is_free() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let with_free = Setup::over(&upstream).credit("0").start().await;
    assert_eq!(status_of_head(&with_free, "/llm/chat", "").await, 100);
    assert_eq!(status_of_head(&with_free, "/llm/embeddings", "").await, 402);
    let setup = Setup::over(&upstream).credit("0");
    let setup = setup.model(FREE, |model| model["tier"] = "enterprise".into());
    let mut gateway = setup.start().await;
    assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 402);
    let answer = gateway.h2c.post("/llm/chat", long(MIB)).await;
    let error = answer.error(402, "insufficient_credits");
    assert_eq!(error["metadata"]["reason"], "insufficient_credits");
    // What it needs is not known: the smallest amount was told, and who paid that in was refused again.
    assert_eq!(error["metadata"].get("needed"), None, "{error}");
    assert_eq!(error["message"], "Not enough credit: 0 is available.");
    gateway.check_untouched(&upstream).await;
    gateway.pay_in("1", "later").await;
    assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 100);
    gateway.set_quota("0").await;
    let error = gateway
        .http1
        .post("/llm/chat", long(MIB))
        .await
        .error(402, "quota_exceeded");
    assert_eq!(error["metadata"]["reason"], "quota_exceeded");
    assert_eq!(error["metadata"].get("needed"), None, "{error}");
    assert_eq!(
        error["message"],
        "The monthly quota of 0 does not cover this call; 0 is used."
    );
}

#[tokio::test]
async fn a_long_body_is_not_taken_for_a_path_or_from_a_domain_that_is_not_the_keys() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).model(EMBED, |model| model["tier"] = "enterprise".into());
    let mut gateway = setup.start().await;
    assert_eq!(status_of_head(&gateway, "/llm/embeddings", "").await, 403);
    gateway.key = gateway
        .new_key(KeySpec {
            domains: &["app.example.com"],
            ..KeySpec::default()
        })
        .await;
    assert_eq!(status_of_head(&gateway, "/llm/chat", "").await, 403);
    let origin = "\r\norigin: https://app.example.com";
    assert_eq!(status_of_head(&gateway, "/llm/chat", origin).await, 100);
    let locked = gateway.http1.with_key(&gateway.key);
    locked.post("/llm/chat", "{}").await.error(400, "invalid_request_error");
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_long_body_that_is_no_call_counts_as_a_request_on_either_store() {
    let upstream = Upstream::unused().await;
    let limits = json!({ "rpm": 3, "tpm": 100_000_000, "concurrency": 10 });
    let setup = || Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits.clone());
    let bad = long(100_000);
    for (gateway, _redis) in on_both(setup).await {
        for (body, status, left) in [
            (bad.replace('}', ""), 400, "2"),
            (bad.replace(SMALL, "no/such"), 404, "1"),
            (bad.replace(SMALL, "acme/huge"), 403, "0"),
            (bad.clone(), 429, "0"),
        ] {
            let answer = gateway.http1.post("/llm/chat", body).await;
            assert_eq!(answer.status, status, "{}", answer.text());
            assert_eq!(answer.header("x-ratelimit-remaining-requests"), left);
        }
        gateway.check_untouched(&upstream).await;
    }
}

/// What 40 bodies of one key may add: its 64 MiB, the same again while they are moved as they grow, and buffers of sockets.
const RESIDENT_GROWTH_MAX_KB: u64 = 160 << 10;
