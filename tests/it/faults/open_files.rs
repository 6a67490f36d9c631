//! A limit of open files that is too low for the connections that are configured, and one at which nothing can be opened any more.

use std::process::{Command, Output};

use rust_decimal::Decimal;
use serde_json::json;

use super::load::Load;
use super::process::{BINARY, Ground, Site};
use super::record::Outcome;
use super::upstream::{MODEL, Provider};
use crate::harness::metrics::Metrics;
use crate::harness::{Raw, eventually};

/// A shell that starts the binary with this limit of open files.
fn limited(files: u32) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), BINARY]);
    shell
}

/// Of a gateway with two threads: what it needs is known.
async fn site() -> (Site, Provider) {
    let provider = Provider::quick().await;
    let site = Site::new(Ground::Sqlite, &provider, |conf| conf["threads"] = 2.into());
    (site, provider)
}

/// A command's end under that limit.
fn ended(site: &Site, files: u32, words: &[&str]) -> Output {
    let mut command = limited(files);
    command.args(words).arg("--conf").arg(site.path("tollgate.yaml"));
    command.output().unwrap()
}

/// Sets the limit of the gateway that runs, and not how far it may be raised again.
fn limit(site: &Site, files: u32) {
    let limited = Command::new("prlimit")
        .args(["--pid", &site.process_id().to_string(), &format!("--nofile={files}:")])
        .status();
    assert!(limited.unwrap().success());
}

/// Ten times as many idle connections as there may be: each takes the place of another, and calls are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_below_a_limit_of_open_files_that_is_too_low() {
    let (mut site, provider) = site().await;
    site.start_by(limited(200), &[]);
    let told = "connections_max: 10000 connections need 20144 open files, and a gateway may have 200 here: it takes 28 at most";
    eventually("it is told", async || site.log().contains(told).then_some(())).await;
    let address = ([127, 0, 0, 1], site.port).into();
    let mut idle = Vec::new();
    for _ in 0..280 {
        let mut raw = Raw::connect(address).await;
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        raw.answer().await.ok();
        idle.push(raw);
    }
    let mut load = Load::new(&site, 1);
    let outcome = load.one_more(&site).await;
    assert!(matches!(outcome, Outcome::Whole { .. }), "{outcome:?}");
    load.reconciled(&site, &provider).await;
    assert!(!site.log().contains("Too many open files"), "{}", site.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_open_files_with_which_none_can_start_is_one_line_and_status_1() {
    let (site, _provider) = site().await;
    let told = "connections_max: a gateway needs 176 open files for 16 connections, and may have 40: raise the limit";
    let (served, checked) = (ended(&site, 40, &["serve"]), ended(&site, 40, &["check"]));
    for output in [&served, &checked] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.contains(told), "{said}");
    }
    let said = String::from_utf8_lossy(&served.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!site.data_dir().exists(), "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_warns_of_a_limit_of_open_files_that_is_too_low() {
    let (site, _provider) = site().await;
    let output = ended(&site, 200, &["check"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let told = "a gateway may have 200 here: it takes 28 at most; raise the limit (LimitNOFILE= of a systemd unit";
    assert!(
        said.lines()
            .any(|line| line.starts_with("warning ") && line.contains(told)),
        "{said}"
    );
}

/// A folder that cannot be listed for want of a descriptor says nothing of money.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_open_files_are_no_line_about_money() {
    let (mut site, provider) = site().await;
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    limit(&site, 10);
    let told = "data: Too many open files (os error 24): what processes that died have left here is looked for again";
    eventually("it is told", async || site.log().contains(told).then_some(())).await;
    limit(&site, 200);
    let outcome = load.one_more(&site).await;
    assert!(matches!(outcome, Outcome::Whole { .. }), "{outcome:?}");
    load.reconciled(&site, &provider).await;
    let log = site.log();
    assert!(!log.contains("MONEY"), "{log}");
}

/// It is given no socket, which is nobody's fault but its machine's: its provider is not passed over, and nobody is told that it fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_which_no_connection_can_be_opened_are_no_failures_of_their_provider() {
    let (mut site, provider) = site().await;
    site.start(&[]);
    let mut load = Load::new(&site, 1);
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut raw = Raw::connect(([127, 0, 0, 1], site.port).into()).await;
        raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        raw.answer().await.ok();
        clients.push(raw);
    }
    let body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "x" }] }).to_string();
    let head = format!(
        "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        load.key(0).reveal(),
        body.len()
    );
    limit(&site, 10);
    for client in &mut clients {
        client.send(format!("{head}{body}")).await;
        client.answer().await.error(503, "service_unavailable");
    }
    limit(&site, 200);
    let outcome = load.one_more(&site).await;
    assert!(matches!(outcome, Outcome::Whole { .. }), "{outcome:?}");
    load.reconciled(&site, &provider).await;
    assert!(site.log().contains("see LimitNOFILE"), "{}", site.log());
    let page = reqwest::get(format!("http://127.0.0.1:{}/metrics", site.admin_port))
        .await
        .unwrap();
    let metrics = Metrics::read(&page.text().await.unwrap());
    // Nor of the ledger.
    for figure in [
        "tollgate_upstream_errors_total",
        "tollgate_breaker_open",
        "tollgate_store_errors_total",
    ] {
        assert_eq!(metrics.sum(figure, &[]), Decimal::ZERO, "{figure}");
    }
    let reasons = [("reason", "no_connection")];
    assert_eq!(metrics.sum("tollgate_denials_total", &reasons), Decimal::from(6));
}
