//! The memory that answers take on their way, measured on the real binary: events of a megabyte, streams of 64.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chat::request;
use crate::harness::catalogue::{SMALL, catalogue};
use crate::harness::client::Client;
use crate::harness::{Reply, Upstream, eventually, within};

const MEGABYTE: usize = 1 << 20;
/// How much more the process may need at its peak. An event is held up to 64 KiB; the rest is buffers of the sockets.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

/// A running `tollgate serve` with one account.
struct Served {
    child: Child,
    client: Client,
    conf: PathBuf,
    _dir: TempDir,
}

impl Served {
    async fn over(upstream: &Upstream) -> Served {
        let dir = TempDir::new().unwrap();
        let (listen, admin) = (free_address(), free_address());
        let path = |name: &str| dir.path().join(name);
        let conf = json!({
            "listen": listen, "admin_listen": admin, "data_dir": path("data"), "catalogue": path("catalogue.yaml"),
            "store": format!("sqlite://{}", path("ledger.db").display()),
            "providers": { "main": { "base_url": upstream.base_url() }, "spare": { "base_url": "http://127.0.0.1:1/v1" } },
        });
        std::fs::write(path("catalogue.yaml"), catalogue().to_string()).unwrap();
        std::fs::write(path("tollgate.yaml"), conf.to_string()).unwrap();
        let conf = path("tollgate.yaml");
        command(&conf, "account create acme --tier pro");
        command(&conf, "credits add acme 100 --reference first");
        let mut client = Client::http1(listen);
        client.key = command(&conf, "key create --account acme")["key"]
            .as_str()
            .unwrap()
            .to_owned();
        let serve = tollgate(&conf, "serve").stderr(Stdio::null()).spawn().unwrap();
        let served = Served {
            child: serve,
            client,
            conf,
            _dir: dir,
        };
        eventually("it listens", async || std::net::TcpStream::connect(listen).ok()).await;
        served
    }

    /// The most memory that it ever had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Asks for a stream and reads it to its end; how many bytes came, and the last of them.
    async fn read_stream(&self) -> (usize, Vec<u8>) {
        let ask = self.client.post_request("/llm/chat/stream", request(SMALL)).send();
        let mut answer = within("a head", ask).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let (mut bytes, mut last) = (0, Vec::new());
        while let Some(chunk) = within("a piece", answer.chunk()).await.unwrap() {
            bytes += chunk.len();
            last.extend_from_slice(&chunk);
            last.drain(..last.len().saturating_sub(64));
        }
        (bytes, last)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn tollgate(conf: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(words.split(' '))
        .arg("--conf")
        .arg(conf)
        .stdin(Stdio::null());
    command
}

fn command(conf: &Path, words: &str) -> Value {
    let output = tollgate(conf, words).arg("--json").output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// An event with a megabyte of something that is no text, or of text.
fn event(key: &str) -> String {
    let filler = "lorem ipsum ".repeat(MEGABYTE / 12);
    let delta = if key == "content" {
        json!({ "content": filler })
    } else {
        json!({ "content": "x", key: filler })
    };
    let chunk = json!({ "id": "x", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    format!("data: {chunk}\n\n")
}

#[tokio::test]
async fn streams_of_64_mb_of_events_of_1_mb_pass_in_bounded_memory() {
    let (other, text) = (event("annotations"), event("content"));
    let usage = r#"{"id":"x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9}}"#;
    let small = Reply::stream_of(&["Hi"], 9, 1);
    let events = (0..64).fold(Reply::stream(), |reply, number| {
        // Text is also counted, which takes its time in a build without optimisation.
        reply.chunk(if number % 16 == 0 { &text } else { &other })
    });
    let upstream = Upstream::of([small, events.finish().event(usage).done()]).await;
    let served = Served::over(&upstream).await;
    served.read_stream().await;
    let before = served.peak_kib();
    for _ in 0..2 {
        let (bytes, last) = served.read_stream().await;
        assert!(bytes > 63 * MEGABYTE, "{bytes}");
        assert!(
            last.ends_with(b"data: [DONE]\n\n"),
            "{:?}",
            String::from_utf8_lossy(&last)
        );
    }
    let growth = served.peak_kib() - before;
    println!("the peak was {before} KiB, and grew by {growth} KiB");
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    let usage = eventually("all is settled", async || {
        let usage = command(&served.conf, "usage acme --period all");
        (usage["total_requests"] == 3).then_some(usage)
    });
    assert_eq!(usage.await["total_tokens"], 10 + 18 + 18);
    assert_eq!(command(&served.conf, "ledger audit")["balanced"], true);
}
