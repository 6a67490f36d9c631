//! Attacks on raw sockets: each ends in a clean refusal or a right answer, no upstream sees more than the request that was meant, and the
//! gateway's memory and open files come back to where they were.
//!
//! `framing` and `heads` are tables of bytes over HTTP/1.1, `frames` one over HTTP/2; `slow` is about time, `long_bodies` about work.

mod frames;
mod framing;
mod heads;
mod long_bodies;
mod slow;

use std::net::SocketAddr;

use serde_json::json;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::process::Process;
use crate::harness::{Raw, Reply, Setup, Upstream, eventually};

/// Bytes that one connection sends, and the statuses that it gets, one for each answer; none when it is only closed.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    statuses: &'static [u16],
    /// Whether the client ends its side after its bytes.
    ends: bool,
    /// Whether the connection is closed after the last answer, over bytes that came behind its request.
    closes: bool,
}

fn case(name: &'static str, statuses: &'static [u16], bytes: impl AsRef<[u8]>) -> Case {
    Case {
        name,
        statuses,
        bytes: bytes.as_ref().to_vec(),
        ends: false,
        closes: false,
    }
}

/// The same with bytes after the last request that is answered: the connection is closed over them.
fn case_that_closes(name: &'static str, statuses: &'static [u16], bytes: impl AsRef<[u8]>) -> Case {
    Case {
        closes: true,
        ..case(name, statuses, bytes)
    }
}

/// The same by a client that then ends its side.
fn case_that_ends(name: &'static str, statuses: &'static [u16], bytes: impl AsRef<[u8]>) -> Case {
    Case {
        ends: true,
        ..case(name, statuses, bytes)
    }
}

/// Sends the bytes, reads the answers, and checks that nothing is left over: the connection is closed, or serves the next request.
async fn run(address: SocketAddr, case: &Case) -> Result<(), String> {
    let mut raw = Raw::connect(address).await;
    // The gateway may have answered and closed before the last byte.
    let _refused = raw.try_send(&case.bytes).await;
    if case.ends {
        raw.end().await;
    }
    let mut statuses = Vec::new();
    let mut open = !case.ends && !case.closes && !case.statuses.is_empty();
    while statuses.len() < case.statuses.len() {
        let Some(answer) = raw.try_answer().await else { break };
        statuses.push(answer.status);
        open &= answer.header("connection") != "close";
        // Pingora's own refusals, before any of ours is asked, have no body.
        if answer.status >= 400 && !answer.body.is_empty() {
            answer.error(answer.status, answer.json()["error"]["type"].as_str().unwrap());
        }
    }
    if statuses != case.statuses {
        return Err(format!("{}: {statuses:?} in place of {:?}", case.name, case.statuses));
    }
    if open {
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        match raw.try_answer().await {
            Some(answer) if answer.text() == r#"{"status":"ok"}"# => Ok(()),
            other => Err(format!("{}: {other:?} to the next request", case.name)),
        }
    } else {
        match raw.try_take(1).await {
            None => Ok(()),
            Some(_) => Err(format!("{}: something followed the last answer", case.name)),
        }
    }
}

/// Runs all cases and fails with all that went wrong.
async fn run_all(address: SocketAddr, cases: &[Case]) {
    let mut wrong = Vec::new();
    for case in cases {
        wrong.extend(run(address, case).await.err());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn table(key: &str) -> Vec<Case> {
    framing::table(key).into_iter().chain(heads::table(key)).collect()
}

#[tokio::test]
async fn what_is_sent_over_http1_is_refused_or_answered_rightly() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"] = json!({ "body_ms": 300, "head_ms": 300 }));
    let gateway = setup.start().await;
    let cases = table(&gateway.key);
    assert!(cases.len() >= 60, "{}", cases.len());
    run_all(gateway.address, &cases).await;
    let calls = cases.iter().filter(|case| case.bytes.starts_with(b"POST "));
    let answered = calls
        .flat_map(|case| case.statuses)
        .filter(|status| **status == 200)
        .count();
    assert!(answered >= 20, "{answered}");
    assert_eq!(
        upstream.seen().len(),
        answered,
        "a call is passed on if it is answered, once"
    );
    // What passes is the request that was meant, and nothing of the attacker's beside it.
    for seen in upstream.seen() {
        assert_eq!(
            seen.json()["messages"],
            serde_json::from_str::<serde_json::Value>(&request(SMALL)).unwrap()["messages"]
        );
        assert!(
            seen.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
            "{}",
            seen.head
        );
        assert_eq!(seen.header("authorization"), Some("Bearer credential-SET_MAIN"));
        assert!(!seen.head.contains("smuggled"), "{}", seen.head);
    }
    gateway.check_books().await;
}

/// Pingora closes a connection over such bytes.
#[tokio::test]
async fn an_answer_to_a_request_with_bytes_behind_it_says_that_the_connection_closes() {
    let upstream = Upstream::of([Reply::chat("Hi", 9, 1), Reply::chat("Hi", 9, 1)]).await;
    let gateway = Setup::over(&upstream).start().await;
    let health = "GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n";
    let call = framing::whole(&gateway.key);
    for (request, behind) in [
        (health, health),
        (health, "\r\n"),
        (call.as_str(), health),
        (call.as_str(), "\r\n"),
    ] {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(format!("{request}{behind}")).await;
        let answer = raw.answer().await.ok();
        assert_eq!(answer.header("connection"), "close", "{request}{behind}");
        raw.closed().await;
    }
    // A body that no one reads is not behind its request.
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(health.replace("\r\n\r\n", "\r\ncontent-length: 5\r\n\r\nhello"))
        .await;
    assert_ne!(raw.answer().await.ok().header("connection"), "close");
    assert_eq!(upstream.seen().len(), 2);
    gateway.check_books().await;
}

#[tokio::test]
async fn attacks_leave_no_memory_and_no_open_file_behind() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(
        &upstream,
        "head_ms: 500, body_ms: 200, write_ms: 200, keepalive_ms: 1000",
    )
    .await;
    let cases = table(&process.key);
    let round = async || {
        run_all(process.address, &cases).await;
        frames::run_all(process.address, &process.key).await;
        slow::run_all(process.address, &process.key).await;
    };
    // Whatever is made once and kept is made in the first round.
    round().await;
    let files = eventually("the connections of the first round are closed", async || {
        process.settled_files()
    })
    .await;
    let before_kb = process.resident_kb();
    let rounds = if std::env::var_os("TOLLGATE_TEST_LONG").is_some() {
        10
    } else {
        2
    };
    for _ in 0..rounds {
        round().await;
    }
    eventually("the open files are back", async || {
        process.settled_files().filter(|now| *now <= files)
    })
    .await;
    let after_kb = process.resident_kb();
    println!("{files} files; {before_kb} KiB resident before {rounds} rounds, {after_kb} KiB after");
    assert!(
        after_kb < before_kb + GROWTH_MAX_KB,
        "{before_kb} KiB before, {after_kb} KiB after"
    );
}

/// A leak of one connection's buffers in each case of a round would be more.
const GROWTH_MAX_KB: u64 = 16 << 10;
