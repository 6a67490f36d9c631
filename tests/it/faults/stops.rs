//! A graceful stop: everything finishes, everything is billed, and the process ends at once.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::pure::receipt::CallEnding;

use super::load::{Load, one_call};
use super::process::{Ground, Site, journals};
use super::record::{Call, Outcome};
use super::upstream::{MODEL, Pace, Provider, message, prompt_tokens};
use crate::harness::catalogue::{SMALL, catalogue};
use crate::harness::process::untaken_bytes;
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::{Raw, eventually};

/// How long the process may take to end once nothing runs. A second, and what a busy machine adds.
const END_MAX: Duration = Duration::from_millis(1500);
/// For so long nothing was written to a client that takes no more.
const STILL_MIN: Duration = Duration::from_millis(300);

async fn stop_with_streams(ground: Ground) {
    let pace = Pace {
        tokens: 40,
        pause: Duration::from_millis(25),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 200);
    let running = load.start(&site);
    // Each worker has begun a call: the provider has seen 200 of them.
    crate::harness::eventually("200 calls run", async || (provider.seen() >= 200).then_some(())).await;
    running.stop();
    site.signal("-TERM");
    let ended = tokio::task::spawn_blocking(move || {
        site.wait_end();
        (Instant::now(), site)
    });
    load.finish(running).await;
    let last_answer = Instant::now();
    let (ended, mut site) = ended.await.unwrap();
    assert!(
        ended.saturating_duration_since(last_answer) < END_MAX,
        "{:?}",
        ended - last_answer
    );
    let cut: Vec<_> = load
        .record
        .all()
        .filter(|call| matches!(call.outcome, Outcome::Cut { .. }))
        .collect();
    assert!(cut.is_empty(), "{cut:?}");
    let whole = load
        .record
        .all()
        .filter(|call| matches!(call.outcome, Outcome::Whole { .. }))
        .count();
    assert!(whole >= 200, "{whole}");
    assert_eq!(
        journals(&site.data_dir(), "journal"),
        0,
        "everything was billed before the end"
    );
    site.start(&[]);
    load.record.check(&site.ledger(), &provider).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_200_streams_finish_and_bills_them_on_sqlite() {
    stop_with_streams(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_200_streams_finish_and_bills_them_on_redis() {
    stop_with_streams(Ground::Redis(RedisServer::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_stops_at_once() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let client = reqwest::Client::new();
    let call = one_call(&client, &site.base_url(), load.key(0), 2).await;
    assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
    // The client's connection stays open; it does not hold the stop up.
    site.signal("-TERM");
    let took = tokio::task::block_in_place(|| site.wait_end());
    assert!(took < END_MAX, "{took:?}");
    drop(client);
}

/// After `drain_seconds` the streams that still run get the error event and `[DONE]`, and pay for what was delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_outlives_the_stop_is_told_and_billed() {
    let provider = Provider::start(Pace {
        tokens: 100_000,
        pause: Duration::from_millis(5),
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| conf["drain_seconds"] = 1.into());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let (client, url) = (reqwest::Client::new(), site.base_url());
    let key = std::sync::Arc::clone(load.key(0));
    let call = tokio::spawn(async move { one_call(&client, &url, &key, 2).await });
    crate::harness::eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    site.signal("-TERM");
    tokio::task::block_in_place(|| site.wait_end());
    let call = call.await.unwrap();
    let Outcome::Failed { received } = call.outcome else {
        panic!("{call:?}")
    };
    site.start(&[]);
    let mut load = load;
    load.record.keep(0, vec![call]);
    load.record.check(&site.ledger(), &provider).unwrap();
    assert!(received > 3);
}

/// A stream that a stop cuts is no failure of its provider's: the client, the receipt and the access log say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_cuts_a_stream_does_not_blame_its_provider() {
    let pace = Pace {
        tokens: 100_000,
        pause: Duration::from_millis(5),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| conf["drain_seconds"] = 1.into());
    let access_log = site.path("access.log");
    site.change(|conf| conf["access_log"] = access_log.to_str().into());
    site.start(&[]);
    let load = Load::new(&site, 1);
    let (head, body, _) = posted(2);
    let mut raw = Raw::connect(([127, 0, 0, 1], site.port).into()).await;
    let key = load.key(0).reveal();
    raw.send(format!("{head}authorization: Bearer {key}\r\n\r\n{body}"))
        .await;
    eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    site.signal("-TERM");
    let answer = String::from_utf8(raw.rest().await).unwrap();
    let told = "\"error\":{\"code\":503,\"message\":\"The gateway was stopped before the answer was complete.\"";
    assert!(answer.contains(told) && !answer.contains("provider failed"), "{answer}");
    assert!(answer.contains("\"type\":\"service_unavailable\""), "{answer}");
    tokio::task::block_in_place(|| site.wait_end());
    let lines = std::fs::read_to_string(access_log).unwrap();
    assert!(lines.contains("\"outcome\":\"dropped\""), "{lines}");
    site.start(&[]);
    let receipts = site.ledger().receipts(&load.record.account(0));
    let endings: Vec<_> = receipts.iter().map(|receipt| receipt.billed.call.ending).collect();
    assert_eq!(endings, [Some(CallEnding::Dropped)]);
}

/// An answer beyond a catalogue's maximum is over before its hold was raised: a stop waits until it is raised and billed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_an_ended_call_whose_hold_is_raised() {
    let pace = Pace {
        tokens: 40,
        pause: Duration::from_millis(100),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    let mut listed = catalogue();
    for model in listed["models"].as_array_mut().unwrap() {
        if model["id"] == MODEL {
            model["max_completion_tokens"] = 10.into();
        }
    }
    std::fs::write(site.path("catalogue.yaml"), listed.to_string()).unwrap();
    site.start(&[("TOLLGATE_STALL_AT", "raise")]);
    let mut load = Load::new(&site, 1);
    let asked = json!({ "model": MODEL, "messages": [{ "role": "user", "content": message(1) }] }).to_string();
    let prompt = prompt_tokens(asked.as_bytes());
    let sent = reqwest::Client::new()
        .post(format!("{}/llm/chat", site.base_url()))
        .bearer_auth(load.key(0).reveal())
        .header("content-type", "application/json")
        .body(asked);
    let answer = sent.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    site.signal("-TERM");
    tokio::task::block_in_place(|| site.wait_end());
    assert_eq!(journals(&site.data_dir(), "journal"), 0, "it was billed before the end");
    let outcome = Outcome::Whole { received: pace.tokens };
    let call = Call {
        number: 1,
        prompt,
        outcome,
    };
    load.record.keep(0, vec![call]);
    load.record.check(&site.ledger(), &provider).unwrap();
}

/// A client has connected, and its request comes when nothing else runs any more, or while the process closes its books: it is answered
/// whole, or refused, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_as_the_process_ends_is_not_cut() {
    let pace = Pace {
        tokens: 40,
        pause: Duration::from_millis(25),
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[("TOLLGATE_STALL_AT", "close")]);
    let mut load = Load::new(&site, 1);
    let mut raw = Raw::connect(([127, 0, 0, 1], site.port).into()).await;
    site.signal("-TERM");
    eventually("it stops", async || site.log().contains("stopping: ").then_some(())).await;
    // Sleeps: for longer than a stop waits for what was accepted a moment ago, and shorter than it takes to its end.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let (head, body, mut call) = posted(2);
    let sent = raw.try_send(format!(
        "{head}authorization: Bearer {}\r\n\r\n{body}",
        load.key(0).reveal()
    ));
    let answer = match sent.await {
        Ok(()) => String::from_utf8(raw.rest().await).unwrap(),
        Err(_) => String::new(),
    };
    call.outcome = if answer.is_empty() {
        Outcome::Unanswered
    } else if answer.starts_with("HTTP/1.1 503 ") {
        Outcome::Refused(503)
    } else {
        assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
        Outcome::Whole { received: pace.tokens }
    };
    tokio::task::block_in_place(|| site.wait_end());
    site.start(&[]);
    load.record.keep(0, vec![call]);
    load.record.check(&site.ledger(), &provider).unwrap();
}

/// While a stream runs on, a process that stops ends the connections on which nothing comes, so that no client sends to one as the process
/// ends, and takes the request whose head has come in part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_silent_connections_and_takes_a_request_that_has_begun() {
    let provider = Provider::start(Pace {
        tokens: 100,
        pause: Duration::from_millis(50),
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 2);
    let address = ([127, 0, 0, 1], site.port).into();
    let (client, url, key) = (reqwest::Client::new(), site.base_url(), load.key(0).clone());
    let call = tokio::spawn(async move { one_call(&client, &url, &key, 2).await });
    eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    let mut unused = Raw::connect(address).await;
    let (mut used, mut begun) = (Raw::connect(address).await, Raw::connect(address).await);
    for raw in [&mut used, &mut begun] {
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(raw.answer().await.status, 200);
    }
    let (head, body, mut second) = posted(4);
    begun.send(&head).await;
    site.signal("-TERM");
    unused.closed().await;
    used.closed().await;
    assert!(!call.is_finished(), "the stream still runs");
    begun
        .send(format!("authorization: Bearer {}\r\n\r\n{body}", load.key(1).reveal()))
        .await;
    let answer = String::from_utf8(begun.rest().await).unwrap();
    assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
    second.outcome = Outcome::Whole { received: 100 };
    let first = call.await.unwrap();
    assert!(matches!(first.outcome, Outcome::Whole { .. }), "{first:?}");
    tokio::task::block_in_place(|| site.wait_end());
    site.start(&[]);
    load.record.keep(0, vec![first]);
    load.record.keep(1, vec![second]);
    load.record.check(&site.ledger(), &provider).unwrap();
}

/// An act of an operator that runs when the process is told to stop is answered; one that comes then is refused, and not done.
async fn stop_with_act(ground: Ground) {
    let provider = Provider::quick().await;
    let address = format!("127.0.0.1:{}", free_port());
    let mut site = Site::new(ground, &provider, |conf| {
        conf["operator_listen"] = address.clone().into();
    });
    site.start(&[("TOLLGATE_STALL_AT", "act")]);
    let operator = site.command(&["operator", "create", "anna", "--role", "admin"]);
    let act = reqwest::Client::new()
        .post(format!("http://{address}/v1/accounts"))
        .bearer_auth(operator["token"].as_str().unwrap())
        .json(&json!({ "name": "late", "tier": "pro" }));
    let act = tokio::spawn(act.send());
    // Sleeps: for less than the act is held up.
    tokio::time::sleep(Duration::from_millis(200)).await;
    site.signal("-TERM");
    let answer = act.await.unwrap();
    tokio::task::block_in_place(|| site.wait_end());
    site.start(&[]);
    let status = match answer {
        Ok(answer) => answer.status().as_u16(),
        Err(error) => {
            assert!(error.is_connect(), "it was begun and not answered: {error:?}");
            503
        }
    };
    let listed = site.command(&["account", "list"]).to_string();
    assert_eq!(
        (status == 201, status == 503),
        (listed.contains("late"), !listed.contains("late"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_act_is_answered_before_the_end_on_sqlite() {
    stop_with_act(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_act_is_answered_before_the_end_on_redis() {
    stop_with_act(Ground::Redis(RedisServer::start())).await;
}

/// Stops a gateway while a client asks this and reads nothing of an answer that no buffer holds.
async fn stop_with_who_never_reads(call: Option<Call>, request: impl FnOnce(&str) -> String) {
    let pace = Pace {
        tokens: 3_000_000,
        pause: Duration::ZERO,
    };
    let provider = Provider::start(pace).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| conf["drain_seconds"] = 1.into());
    let mut listed = catalogue();
    for model in listed["models"].as_array_mut().unwrap() {
        if model["id"] == SMALL {
            model["description"] = "A word of its own. ".repeat(1_000_000).into();
        }
    }
    std::fs::write(site.path("catalogue.yaml"), listed.to_string()).unwrap();
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    let address = ([127, 0, 0, 1], site.port).into();
    let mut raw = Raw::connect_narrow(address).await;
    raw.send(request(load.key(0).reveal())).await;
    let mut queued = (0, Instant::now());
    eventually("nothing more can be written to it", async || {
        let now = untaken_bytes(address);
        if now != queued.0 {
            queued = (now, Instant::now());
        }
        (now > 0 && queued.1.elapsed() > STILL_MIN).then_some(())
    })
    .await;
    site.signal("-TERM");
    let took = tokio::task::block_in_place(|| site.wait_end());
    assert!(took < Duration::from_secs(1) + END_MAX, "{took:?}");
    drop(raw);
    site.start(&[]);
    load.record.keep(0, call.into_iter().collect());
    load.record.check(&site.ledger(), &provider).unwrap();
}

/// A call of this number, streamed when that is even: the head without its key, the body, and what its client has seen so far.
fn posted(number: u64) -> (String, String, Call) {
    let streams = number.is_multiple_of(2);
    let messages = json!([{ "role": "user", "content": message(number) }]);
    let body = json!({ "model": MODEL, "stream": streams, "messages": messages }).to_string();
    let call = Call {
        number,
        prompt: prompt_tokens(body.as_bytes()),
        outcome: Outcome::Cut { received: 0 },
    };
    let head = format!(
        "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n",
        body.len()
    );
    (head, body, call)
}

/// The same with a call of this number.
async fn stop_with_call(number: u64) {
    let (head, body, call) = posted(number);
    let request = |key: &str| format!("{head}authorization: Bearer {key}\r\n\r\n{body}");
    stop_with_who_never_reads(Some(call), request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_who_never_reads_a_whole_answer() {
    stop_with_call(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_who_never_reads_a_stream() {
    stop_with_call(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_who_never_reads_a_listing() {
    let request =
        |key: &str| format!("GET /api/v1/llm/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    stop_with_who_never_reads(None, request).await;
}
