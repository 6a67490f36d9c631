//! A ledger's file that cannot be written: SQLite's COMMIT fails because the disk is full or takes no byte. Paid calls are refused, debits
//! wait, and once there is room, or after a `kill -9`, each is in the books once.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::load::Load;
use super::process::{BINARY, Ground, Site, journals};
use super::record::Outcome;
use super::upstream::{Pace, Provider};
use crate::harness::eventually;
use crate::harness::metrics::Metrics;

const PACE: Pace = Pace {
    tokens: 20,
    pause: Duration::from_millis(4),
};
const WORKERS: usize = 20;
/// Of a small file system, in bytes.
const SMALL_DISK: u64 = 12 << 20;
/// Calls that are made one by one while nothing can be written.
const ALONE: u64 = 20;

/// A gateway that lives on when a file may not grow, as it does on a full disk.
pub fn start_unstoppable(site: &mut Site) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", BINARY]);
    site.start_by(shell, &[]);
}

/// How long a file of the gateway's may be from now on.
pub fn limit_files(site: &Site, bytes: &str) {
    let limit = format!("--fsize={bytes}:unlimited");
    let limited = Command::new("prlimit")
        .args(["--pid", &site.process_id().to_string(), &limit])
        .status();
    assert!(limited.unwrap().success());
}

/// Debits that wait to be written.
async fn waiting(site: &Site) -> u64 {
    let url = format!("http://127.0.0.1:{}/metrics", site.admin_port);
    let page = reqwest::get(url).await.unwrap().text().await.unwrap();
    let waiting = Metrics::read(&page).sum("tollgate_unsettled_debits", &[]);
    waiting.try_into().unwrap()
}

/// A load during which no file of the gateway's takes a byte any more: calls that had begun go on to their end, new ones are refused, all
/// of them from the first refusal on.
async fn until_nothing_can_be_written(site: &Site, load: &mut Load, provider: &Provider) {
    let (running, seen) = (load.start(site), provider.seen());
    eventually("calls run", async || (provider.seen() > seen + 100).then_some(())).await;
    limit_files(site, "0");
    eventually("paid calls are refused", async || {
        (load.one_more(site).await == Outcome::Refused(503)).then_some(())
    })
    .await;
    for _ in 0..ALONE {
        assert_eq!(load.one_more(site).await, Outcome::Refused(503));
    }
    load.finish(running).await;
    let others = load
        .record
        .all()
        .find(|call| !matches!(call.outcome, Outcome::Whole { .. } | Outcome::Refused(503)));
    assert!(others.is_none(), "calls that had begun finish: {others:?}");
    assert!(waiting(site).await > 0, "debits wait");
    refuses_all_but_what_is_free(site).await;
}

async fn refuses_all_but_what_is_free(site: &Site) {
    let models = reqwest::get(format!("{}/llm/public/models", site.base_url())).await;
    assert_eq!(models.unwrap().status(), 200, "what costs nothing is served");
}

async fn serves_again(site: &Site, load: &mut Load) {
    eventually("calls are served again", async || {
        matches!(load.one_more(site).await, Outcome::Whole { .. }).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_refuses_calls_and_its_debits_are_written_once_there_is_room() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    start_unstoppable(&mut site);
    let mut load = Load::new(&site, WORKERS);
    // Twice: what was mended once breaks and mends again.
    for _ in 0..2 {
        until_nothing_can_be_written(&site, &mut load, &provider).await;
        limit_files(&site, "unlimited");
        serves_again(&site, &mut load).await;
        load.reconciled(&site, &provider).await;
        assert_eq!(waiting(&site).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debits_whose_commit_failed_outlive_a_kill() {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    start_unstoppable(&mut site);
    let mut load = Load::new(&site, WORKERS);
    until_nothing_can_be_written(&site, &mut load, &provider).await;
    site.kill();
    site.start(&[]);
    load.reconciled(&site, &provider).await;
    eventually("the dead process' journal is resolved", async || {
        (journals(&site.data_dir(), "journal") == 1).then_some(())
    })
    .await;
    load.reconciled(&site, &provider).await;
}

/// The folder as the gateway sees it, in whose file systems it is mounted.
fn seen_by_the_gateway(site: &Site, folder: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", site.process_id()));
    root.join(folder.strip_prefix("/").unwrap())
}

/// Writes until there is no more room.
fn fill(folder: &Path) {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(folder.join("fill"))
        .unwrap();
    for bytes in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![7; bytes]).is_ok() {}
    }
}

/// Whether a file system can be mounted here, in a place that only one process sees.
fn can_mount() -> bool {
    let mounted = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    mounted.is_ok_and(|output| output.status.success())
}

/// Says that something is not tried on this machine: here, and in the file in which tests/run looks for what it did not try.
fn skip(what: &str) {
    println!("*** SKIPPED: {what} was NOT tried. ***");
    if let Some(file) = std::env::var_os("TOLLGATE_SKIPPED") {
        let mut skipped = File::options().create(true).append(true).open(file).unwrap();
        writeln!(skipped, "{what}").unwrap();
    }
}

/// The real thing: a file system of 12 MiB that is full. Its receipts make the ledger grow, so sooner or later no COMMIT has room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_beneath_the_ledger_loses_and_doubles_nothing() {
    if !can_mount() {
        skip("a full file system beneath the ledger (none can be mounted)");
        return;
    }
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    let small = site.path("small");
    std::fs::create_dir(&small).unwrap();
    site.keep_ledger_at(small.join("ledger.db"));
    let mut unshare = Command::new("unshare");
    let mount = format!(
        "mount -t tmpfs -o size={SMALL_DISK} none {} && exec \"$0\" \"$@\"",
        small.display()
    );
    unshare.args(["--mount", "sh", "-c", &mount, BINARY]);
    site.start_by(unshare, &[]);
    let seen = seen_by_the_gateway(&site, &small);
    site.reach_ledger_at(seen.join("ledger.db"));
    let mut load = Load::new(&site, WORKERS);
    for _ in 0..2 {
        let (running, served) = (load.start(&site), provider.seen());
        eventually("calls run", async || (provider.seen() > served + 100).then_some(())).await;
        fill(&seen);
        eventually("no commit has room", async || {
            (load.one_more(&site).await == Outcome::Refused(503)).then_some(())
        })
        .await;
        load.finish(running).await;
        std::fs::remove_file(seen.join("fill")).unwrap();
        serves_again(&site, &mut load).await;
        load.reconciled(&site, &provider).await;
    }
    assert!(
        site.log().contains("full"),
        "SQLite says that the disk is full: {}",
        site.log()
    );
}
