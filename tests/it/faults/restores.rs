//! Journals that are older than the ledger: a machine that died between two flushes, or a backup that somebody put back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::load::Load;
use super::process::{Ground, Site, journals};
use super::upstream::{Pace, Provider};
use crate::harness::eventually;
use crate::harness::redis_server::RedisServer;

const PACE: Pace = Pace {
    tokens: 20,
    pause: Duration::from_millis(4),
};

/// Copies of the journal that are taken while calls run.
const COPIES: usize = 4;

/// Takes the journal as the disk of a dying machine would have it at this moment.
fn copy_journal(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if is_journal(&path) {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

fn is_journal(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("journal" | "prompts"))
}

fn delete_journals(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if is_journal(&path) || path.extension().is_some_and(|extension| extension == "refused") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

async fn balances(site: &Site, load: &Load, provider: &Provider) {
    let ledger = site.ledger();
    eventually("the books say what the clients got", async || {
        load.record.check(&ledger, provider).ok()
    })
    .await;
    eventually("every journal of a dead process is resolved", async || {
        (journals(&site.data_dir(), "journal") == 1).then_some(())
    })
    .await;
    load.record.check(&ledger, provider).unwrap();
}

async fn older_journals_bill_nothing_twice(ground: Ground) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    site.start(&[]);
    let mut load = Load::new(&site, 20);
    let running = load.start(&site);
    let mut copies: Vec<PathBuf> = Vec::new();
    for n in 0..COPIES {
        let seen = provider.seen();
        eventually("calls run", async || (provider.seen() > seen + 25).then_some(())).await;
        let copy = site.path(&format!("copy-{n}"));
        copy_journal(&site.data_dir(), &copy);
        copies.push(copy);
    }
    load.finish(running).await;
    balances(&site, &load, &provider).await;
    // Each copy, in any order, and more than once: the ledger knows all of it.
    for copy in [&copies[2], &copies[0], &copies[3], &copies[1], &copies[2]] {
        site.kill();
        delete_journals(&site.data_dir());
        copy_journal(copy, &site.data_dir());
        site.start(&[]);
        balances(&site, &load, &provider).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_journals_bill_nothing_twice_on_sqlite() {
    older_journals_bill_nothing_twice(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_journals_bill_nothing_twice_on_redis() {
    older_journals_bill_nothing_twice(Ground::Redis(RedisServer::start())).await;
}
