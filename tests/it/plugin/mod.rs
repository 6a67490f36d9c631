//! Tollgate as a plugin: mounted in servers of other people's by its public interface alone, and the hooks that run on a request.

mod complete;
mod hooks;
mod hosts;

use std::net::SocketAddr;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use self::hosts::{CONFS, HOST, LISTEN};
use crate::chat::{PROMPT, request};
use crate::harness::answer::number;
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::client::Client;
use crate::harness::operator::{Process, free_address};
use crate::harness::{Collector, Cue, Reply, Upstream, deltas, eventually};

/// A server of [`hosts`], with the gateways that it mounts.
struct Host {
    /// The first one's folder is the server's too.
    gateways: Vec<Process>,
    listen: SocketAddr,
}

impl Host {
    /// Starts it over this upstream, with a gateway below each of these paths.
    async fn start(name: &str, base_paths: &[&str], upstream: &Upstream) -> Host {
        let mut host = Host::prepare(base_paths, upstream, |_| ());
        host.run(name).await;
        host.opens().await;
        host
    }

    /// Its gateways, with these changes to their configurations. Nothing runs yet.
    fn prepare(base_paths: &[&str], upstream: &Upstream, change: impl Fn(&mut Value)) -> Host {
        let listen = free_address();
        let prepare = |base_path: &&str| {
            let mut gateway = Process::prepare(upstream, |conf| {
                conf["base_path"] = (*base_path).into();
                conf["providers"]["spare"] = json!({ "base_url": upstream.base_url() });
                change(conf);
            });
            gateway.client = Client::below(listen, base_path).with_key(&gateway.client.key);
            gateway
        };
        let gateways = base_paths.iter().map(prepare).collect();
        Host { gateways, listen }
    }

    /// Runs it, and waits until it takes connections.
    async fn run(&mut self, name: &str) {
        let conf = |gateway: &Process| gateway.path("tollgate.yaml").to_str().unwrap().to_owned();
        let confs: Vec<String> = self.gateways.iter().map(conf).collect();
        let words = [
            "env".to_owned(),
            format!("{HOST}={name}"),
            format!("{LISTEN}={}", self.listen),
            format!("{CONFS}={}", confs.join(",")),
            "RUST_BACKTRACE=0".to_owned(),
            std::env::current_exe().unwrap().to_str().unwrap().to_owned(),
            "plugin::hosts::host_process".to_owned(),
            "--exact".to_owned(),
            "--nocapture".to_owned(),
        ];
        self.gateways[0].start_with(&words).await;
    }

    /// Waits until its gateways have opened their ledgers.
    async fn opens(&self) {
        for gateway in &self.gateways {
            eventually("its ledger is open", async || {
                (gateway.client.get("/llm/balance").await.status == 200).then_some(())
            })
            .await;
        }
    }

    /// What the account of a gateway has spent, once nothing is held.
    async fn spent(&self, gateway: usize) -> Decimal {
        let gateway = &self.gateways[gateway];
        let shown = eventually("every call is closed", async || {
            let shown = gateway.command(&["account", "show", "acme", "--json"]);
            (number(&shown, "open_calls") == "0").then_some(shown)
        })
        .await;
        let books: Value = serde_json::from_str(&gateway.command(&["ledger", "audit", "--json"])).unwrap();
        assert_eq!(books["balanced"], true, "{books}");
        Decimal::from(100) - number(&shown, "balance").parse::<Decimal>().unwrap()
    }
}

/// Answers by the request: a stream that waits at the cue, a whole answer, and a failure of the first of two targets.
async fn upstream(cue: &Cue) -> Upstream {
    let cue = cue.clone();
    Upstream::by(move |_, seen| {
        let body = seen.json();
        match (body["model"].as_str().unwrap(), body["stream"].as_bool()) {
            ("up-twin", _) => Reply::status(500),
            (_, Some(true)) => Reply::stream()
                .role()
                .text("Hello")
                .text(" world")
                .wait(&cue)
                .text("!")
                .finish()
                .usage(50, 30)
                .done(),
            _ => Reply::chat("Hi", 9, 1),
        }
    })
    .await
}

/// A call of each kind through one gateway of a host; what they come to.
async fn calls(host: &Host, gateway: usize, upstream: &Upstream, cue: &Cue) -> Decimal {
    let client = &host.gateways[gateway].client;
    client.post("/llm/chat", request(SMALL)).await.ok();
    client.post("/llm/chat", request(TWIN)).await.ok();
    cue.give();
    let events = client
        .stream("/llm/chat/stream", request(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert_eq!(deltas(&events), "Hello world!");
    let mut left = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
    for _ in 0..3 {
        left.next().await.unwrap();
    }
    drop(left);
    upstream.hung_up().await;
    let refused = client.with_key("tg_wrong").post("/llm/chat", request(SMALL)).await;
    refused.error(401, "authentication_error");
    client.get("/llm/health").await.ok();
    client.get("/llm/nothing").await.error(404, "not_found_error");
    cost(SMALL, 9, 1) + cost(TWIN, 9, 1) + cost(SMALL, 50, 30) + cost(SMALL, PROMPT, 2)
}

/// A stop while a stream runs: it is finished, billed, and the books are closed before the process is gone.
async fn stop(host: &mut Host, gateway: usize, cue: &Cue) -> Decimal {
    let client = &host.gateways[gateway].client;
    let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    host.gateways[0].signal("TERM");
    let listen = host.listen;
    eventually("the server accepts no more", async || {
        tokio::net::TcpStream::connect(listen).await.err()
    })
    .await;
    cue.give();
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    cost(SMALL, 50, 30)
}

#[tokio::test]
async fn the_lines_of_the_documentation_are_a_gateway() {
    let cue = Cue::new();
    let upstream = upstream(&cue).await;
    let mut host = Host::start("lines", &["/api/v1"], &upstream).await;
    let expected = calls(&host, 0, &upstream, &cue).await;
    assert_eq!(host.spent(0).await, expected);
    let stopped = stop(&mut host, 0, &cue).await;
    // Pingora would sleep its grace period of minutes now. What the stop did not bill, the next start does.
    host.gateways[0].signal("KILL");
    host.gateways[0].ended().await;
    host.gateways[0].command(&["ledger", "recover"]);
    assert_eq!(host.spent(0).await, expected + stopped);
}

#[tokio::test]
async fn a_host_keeps_its_own_routes_and_hooks() {
    let cue = Cue::new();
    let upstream = upstream(&cue).await;
    let mut host = Host::start("routes", &["/models/v1"], &upstream).await;
    let own = Client::below(host.listen, "");
    // What was asked until the server listened was the host's too.
    let before = own.get("/hello").await;
    let counted = before.text().strip_prefix("/hello ").unwrap();
    let (requests, logged) = counted.split_once(' ').unwrap();
    assert_eq!(requests, logged);
    let next = requests.parse::<usize>().unwrap() + 1;
    let expected = calls(&host, 0, &upstream, &cue).await;
    // No hook of the host's ran on a call of the gateway's.
    let after = own.get("/models/v10").await;
    assert_eq!(after.text(), format!("/models/v10 {next} {next}"));
    assert_eq!(host.spent(0).await, expected);
    let stopped = stop(&mut host, 0, &cue).await;
    assert!(host.gateways[0].ended().await.success());
    assert_eq!(host.spent(0).await, expected + stopped);
}

/// The gateway asked the port of its own configuration, where a host need not listen.
#[tokio::test]
async fn a_gateway_in_a_host_that_listens_elsewhere_is_ready() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let host = Host::start("routes", &["/models/v1"], &upstream).await;
    let admin = &host.gateways[0].admin;
    eventually("its admin listener answers", async || {
        admin.listens().await.then_some(())
    })
    .await;
    let answer = admin.get("//readyz").await;
    assert_eq!((answer.status, answer.text()), (200, "ready\n"));
}

/// Traces had begun with the first try, and each one after it was refused for that.
#[tokio::test]
async fn a_gateway_with_traces_starts_after_a_try_that_failed() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let collector = Collector::start().await;
    let mut host = Host::prepare(&["/api/v1"], &upstream, |conf| {
        let beside = format!("{}-beside", conf["data_dir"].as_str().unwrap());
        conf["receipts"] = json!({ "files": format!("{beside}/receipts") });
        conf["traces"] = json!({ "endpoint": collector.endpoint() });
    });
    let [blocked, access_log] = ["data-beside", "access.log"].map(|name| host.gateways[0].path(name));
    std::fs::write(&blocked, "a file where the folder should be").unwrap();
    host.run("lines").await;
    // Each try makes the access log where it is missing: the second comes after one that failed.
    for _ in 0..2 {
        eventually("a try", async || std::fs::remove_file(&access_log).ok()).await;
    }
    std::fs::remove_file(&blocked).unwrap();
    host.opens().await;
    eventually("a trace is sent", async || {
        host.gateways[0].client.get("/llm/health").await.ok();
        (!collector.spans().is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn two_gateways_in_one_server_have_two_ledgers() {
    let cue = Cue::new();
    let upstream = upstream(&cue).await;
    let mut host = Host::start("two", &["/one/v1", "/two/v1"], &upstream).await;
    let first = calls(&host, 0, &upstream, &cue).await;
    assert_eq!((host.spent(0).await, host.spent(1).await), (first, Decimal::ZERO));
    let second = calls(&host, 1, &upstream, &cue).await;
    let other = host.gateways[1].client.with_key(&host.gateways[0].client.key);
    let refused = other.post("/llm/chat", request(SMALL)).await;
    refused.error(401, "authentication_error");
    let stopped = stop(&mut host, 1, &cue).await;
    assert!(host.gateways[0].ended().await.success());
    assert_eq!((host.spent(0).await, host.spent(1).await), (first, second + stopped));
}
