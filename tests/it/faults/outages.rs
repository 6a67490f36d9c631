//! Redis that dies and comes back without its last moments, or is away for long; a disk that is full.

use std::process::Command;
use std::time::Duration;

use super::load::Load;
use super::process::{BINARY, Ground, Site};
use super::record::Outcome;
use super::upstream::{Pace, Provider};
use crate::harness::eventually;
use crate::harness::metrics::Metrics;
use crate::harness::redis_group::RedisUnderSentinels;
use crate::harness::redis_server::{RedisServer, until};

const PACE: Pace = Pace {
    tokens: 20,
    pause: Duration::from_millis(4),
};

/// How long Redis is away in a run of the tests. `TOLLGATE_OUTAGE_SECONDS` says another number.
const OUTAGE: Duration = Duration::from_secs(4);

fn outage() -> Duration {
    std::env::var("TOLLGATE_OUTAGE_SECONDS").map_or(OUTAGE, |text| Duration::from_secs(text.parse().unwrap()))
}

fn redis_of(site: &mut Site) -> &mut RedisServer {
    match &mut site.ground {
        Ground::Redis(server) => server,
        Ground::Sqlite | Ground::Sentinels(_) => panic!("no Redis of its own"),
    }
}

/// Takes bytes off the end of the append-only file, as a crash of the machine would.
fn cut_tail(server: &RedisServer, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(aof(server)).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_without_its_last_moments_gets_them_again() {
    let provider = Provider::start(PACE).await;
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
    let mut site = Site::new(Ground::Redis(server), &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 50);
    let begun = std::fs::metadata(aof(redis_of(&mut site))).unwrap().len();
    let running = load.start(&site);
    eventually("many calls were billed", async || (provider.seen() > 600).then_some(())).await;
    let server = redis_of(&mut site);
    server.kill();
    let length = std::fs::metadata(aof(server)).unwrap().len();
    // Half of what the load wrote: reserves, settlements and releases alike.
    let cut = (length - begun) / 2;
    assert!(cut > 10_000, "{cut}");
    cut_tail(server, cut);
    server.restart();
    let seen = provider.seen();
    eventually("calls are served again", async || {
        (provider.seen() > seen + 200).then_some(())
    })
    .await;
    load.finish(running).await;
    assert!(site.log().contains("sent again"), "{}", site.log());
    load.reconciled(&site, &provider).await;
}

fn aof(server: &RedisServer) -> std::path::PathBuf {
    let folder = server.folder().join("appendonlydir");
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_are_billed_when_a_redis_that_was_away_is_back() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Redis(RedisServer::start()), &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 50);
    let running = load.start(&site);
    eventually("calls run", async || (provider.seen() > 200).then_some(())).await;
    redis_of(&mut site).freeze();
    let memory = resident_kib(site.process_id());
    // Sleeps: how long Redis is away is what is tried.
    tokio::time::sleep(outage()).await;
    let grown = resident_kib(site.process_id()).saturating_sub(memory);
    let seen = provider.seen();
    redis_of(&mut site).thaw();
    eventually("calls are served again", async || {
        (provider.seen() > seen + 200).then_some(())
    })
    .await;
    load.finish(running).await;
    let refused = load
        .record
        .all()
        .filter(|call| call.outcome == Outcome::Refused(503))
        .count();
    assert!(refused > 50, "new calls are refused meanwhile: {refused}");
    let others = load
        .record
        .all()
        .find(|call| !matches!(call.outcome, Outcome::Whole { .. } | Outcome::Refused(503)));
    assert!(others.is_none(), "calls in flight finish: {others:?}");
    assert!(grown < 64 << 10, "{grown} KiB more after {:?}", outage());
    load.reconciled(&site, &provider).await;
}

/// The new master has not got the last debits: they are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_that_was_behind_loses_no_debit() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Sentinels(RedisUnderSentinels::start()), &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 30);
    let running = load.start(&site);
    eventually("calls run", async || (provider.seen() > 100).then_some(())).await;
    let Ground::Sentinels(servers) = &mut site.ground else {
        unreachable!()
    };
    servers.starve_replica();
    let seen = provider.seen();
    eventually("calls that the replica never hears of", async || {
        (provider.seen() > seen + 100).then_some(())
    })
    .await;
    let Ground::Sentinels(servers) = &mut site.ground else {
        unreachable!()
    };
    servers.kill_master();
    servers.thaw_replica();
    tokio::task::block_in_place(|| until("the replica leads", || servers.replica_leads()));
    let seen = provider.seen();
    eventually("calls are served again", async || {
        (provider.seen() > seen + 60).then_some(())
    })
    .await;
    load.finish(running).await;
    assert!(site.log().contains("sent again"), "{}", site.log());
    load.reconciled(&site, &provider).await;
    super::told::receipts_are_told_once(&site, &load, 30).await;
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A disk that is full, as a limit on the size of files. The journal cannot be made; once it can, calls are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_paid_calls_until_there_is_room() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Redis(RedisServer::start()), &provider, |_| ());
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -S -f 1024; exec \"$0\" \"$@\"", BINARY]);
    site.start_by(shell, &[]);
    let mut load = Load::new(&site, 5);
    let running = load.start(&site);
    let refusals = "paid calls are refused";
    eventually("the log says so", async || site.log().contains(refusals).then_some(())).await;
    eventually("each worker's calls are refused", async || {
        let page = reqwest::get(format!("http://127.0.0.1:{}/metrics", site.admin_port));
        let metrics = Metrics::read(&page.await.unwrap().text().await.unwrap());
        (metrics.sum("tollgate_denials_total", &[("reason", "store")]) > 50.into()).then_some(())
    })
    .await;
    assert_eq!(provider.seen(), 0, "nothing unpaid is served");
    let models = reqwest::get(format!("{}/llm/public/models", site.base_url()))
        .await
        .unwrap();
    assert_eq!(models.status(), 200, "what costs nothing is");
    let lifted = Command::new("prlimit")
        .args(["--pid", &site.process_id().to_string(), "--fsize=unlimited:unlimited"])
        .status();
    assert!(lifted.unwrap().success());
    eventually("calls are served", async || (provider.seen() > 20).then_some(())).await;
    load.finish(running).await;
    let others = load
        .record
        .all()
        .find(|call| !matches!(call.outcome, Outcome::Whole { .. } | Outcome::Refused(503)));
    assert!(others.is_none(), "{others:?}");
    load.reconciled(&site, &provider).await;
}
