//! What happens every hour leaves no line above INFO: a WARN is for an operator to look at, an ERROR for one to act on.

use std::time::Duration;

use serde_json::{Value, json};

use super::load::Load;
use super::process::{Ground, Site};
use super::upstream::{MODEL, Pace, Provider};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Raw, Reply, Upstream, eventually};

/// Asks for what the upstream is to do.
fn request(what: &str, stream: bool) -> Value {
    json!({ "model": MODEL, "stream": stream, "messages": [{ "role": "user", "content": what }] })
}

/// A provider that serves, is busy, refuses, or never comes to an end, as it is asked.
async fn provider(cue: &Cue) -> Upstream {
    let cue = cue.clone();
    Upstream::by(move |_, seen| {
        let asked = String::from_utf8_lossy(&seen.body).into_owned();
        match seen.json()["stream"] == true {
            _ if asked.contains("busy") => Reply::refusal(429, &[("retry-after", "1")], "slow down"),
            _ if asked.contains("wrong") => Reply::refusal(400, &[], "no such parameter"),
            true if asked.contains("endless") => Reply::stream().role().text("Once").wait(&cue),
            true => Reply::stream_of(&["Hello", " you"], 10, 2),
            false => Reply::chat("Hello you", 10, 2),
        }
    })
    .await
}

async fn an_hour(ground: Ground) {
    let (cue, pace) = (
        Cue::new(),
        Pace {
            tokens: 1,
            pause: Duration::ZERO,
        },
    );
    let (other, upstream) = (Provider::start(pace).await, provider(&cue).await);
    let mut site = Site::new(ground, &other, |conf| {
        for name in ["main", "spare"] {
            conf["providers"][name]["base_url"] = upstream.base_url().into();
        }
        conf["tiers"]["free"] = json!({ "rpm": 3 });
        // More of them may need more open files than a process has here, which is told at a start.
        conf["connections_max"] = 400.into();
    });
    site.start(&[]);
    let load = Load::new(&site, 1);
    site.command(&["account", "create", "poor", "--tier", "pro"]);
    site.command(&["account", "create", "busy", "--tier", "free"]);
    site.command(&["credits", "add", "busy", "5", "--reference", "first"]);
    let made = |arguments: &[&str]| site.command(arguments)["key"].as_str().unwrap().to_owned();
    let poor = made(&["key", "create", "--account", "poor"]);
    let busy = made(&["key", "create", "--account", "busy"]);
    let locked = made(&["key", "create", "--account", "busy", "--domain", "shop.example"]);
    let good = load.key(0).reveal().to_owned();
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let base_url = site.base_url();
    let post = async |path: &str, key: &str, body: Value| {
        let asked = client.post(format!("{base_url}{path}")).bearer_auth(key).json(&body);
        let answer = asked.send().await.unwrap();
        let status = answer.status().as_u16();
        answer.bytes().await.unwrap();
        status
    };

    // Calls that are served, that the provider has no time for, and that it refuses.
    for stream in [false, true] {
        assert_eq!(post("/llm/chat", &good, request("hello", stream)).await, 200);
        assert_eq!(post("/llm/chat", &good, request("busy", stream)).await, 429);
        assert_eq!(post("/llm/chat", &good, request("wrong", stream)).await, 400);
    }
    // Keys that are refused, and calls that are.
    let unknown = format!("tg_{}", "0".repeat(72));
    for (key, status) in [
        ("", 401),
        ("nonsense", 401),
        (&unknown, 401),
        (&poor, 402),
        (&locked, 403),
    ] {
        assert_eq!(post("/llm/chat", key, request("hello", false)).await, status, "{key}");
    }
    let mut limited = 0;
    for _ in 0..6 {
        limited += usize::from(post("/llm/chat", &busy, request("hello", false)).await == 429);
    }
    assert!(limited >= 3, "{limited}");
    assert_eq!(
        post(
            "/llm/chat",
            &good,
            json!({ "model": "no/such", "messages": [{ "role": "user", "content": "x" }] })
        )
        .await,
        404
    );
    assert_eq!(post("/llm/chat", &good, json!([1, 2])).await, 400);
    assert_eq!(post("/llm/nowhere", &good, json!({})).await, 404);

    // Clients that leave: before they ask, while they ask, in the middle of the answer.
    let address = ([127, 0, 0, 1], site.port).into();
    let head = format!("POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {good}\r\n");
    let body = request("endless", true).to_string();
    let whole = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    for sent in [
        "",
        "GET",
        "\u{16}\u{3}\u{1}",
        &head,
        &format!("{head}content-length: 99\r\n\r\n{{"),
        &whole,
    ] {
        for resets in [false, true] {
            let mut raw = Raw::connect(address).await;
            raw.send(sent).await;
            if sent == whole {
                raw.head().await;
            }
            if resets {
                raw.reset();
            }
        }
    }

    // What an operator does: reloads, a catalogue that changes, upgrades both ways, and a stop.
    let reloaded = async |times: usize| {
        eventually("it is read", async || {
            (site.log().matches("reloaded").count() == times).then_some(())
        })
        .await;
    };
    site.signal("-HUP");
    reloaded(1).await;
    let catalogue = std::fs::read_to_string(site.path("catalogue.yaml")).unwrap();
    std::fs::write(site.path("catalogue.new"), catalogue + "\n").unwrap();
    std::fs::rename(site.path("catalogue.new"), site.path("catalogue.yaml")).unwrap();
    reloaded(2).await;
    let mut before = site.upgrade();
    assert_eq!(post("/llm/chat", &good, request("hello", false)).await, 200);
    let ended = tokio::task::spawn_blocking(move || before.wait().unwrap())
        .await
        .unwrap();
    assert!(ended.success(), "{}", site.log());
    assert_eq!(post("/llm/chat", &good, request("hello", true)).await, 200);
    site.signal("-TERM");
    site.wait_end();

    let log = site.log();
    // The site's first start makes its ledger.
    let is_first = |line: &str| line.contains("a new, empty ledger was made at ");
    let loud = log.lines().filter(|line| !line.contains("Z INFO ") && !is_first(line));
    let loud: Vec<&str> = loud.collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_normal_life_on_the_embedded_ledger_leaves_no_line_above_info() {
    an_hour(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_normal_life_on_redis_leaves_no_line_above_info() {
    let server = RedisServer::start_with(&["--save", "", "--appendonly", "yes"]);
    an_hour(Ground::Redis(server)).await;
}
