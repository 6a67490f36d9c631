//! What a process leaves where others could see it, and what it says of a configuration that changes under it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::load::Load;
use super::process::{Ground, Site};
use super::upstream::Provider;
use crate::harness::eventually;

/// All files and folders at and below a path, with their modes.
fn modes(path: &Path, found: &mut Vec<(String, u32)>) {
    let about = path.symlink_metadata().unwrap();
    found.push((path.display().to_string(), about.permissions().mode() & 0o777));
    if about.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            modes(&entry.unwrap().path(), found);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_ledger_nor_journal_can_be_read_by_another_user() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    site.start(&[]);
    Load::new(&site, 1);
    let mut found = Vec::new();
    modes(&site.data_dir(), &mut found);
    for name in ["ledger.db", "ledger.db-wal", "ledger.lock"] {
        modes(&site.path(name), &mut found);
    }
    assert!(found.len() > 5, "{found:?}");
    let open: Vec<_> = found.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_names_what_waits_for_the_next_start() {
    let provider = Provider::quick().await;
    let mut site = Site::new(Ground::Sqlite, &provider, |conf| {
        conf["drain_seconds"] = 20.into();
        conf["unready_seconds"] = 0.into();
    });
    site.start(&[]);
    let conf = std::fs::read_to_string(site.path("tollgate.yaml")).unwrap();
    let changed = conf
        .replace("\"drain_seconds\":20", "\"drain_seconds\":5")
        .replace("\"unready_seconds\":0", "\"unready_seconds\":1");
    assert_ne!(conf, changed);
    std::fs::write(site.path("tollgate.yaml"), changed).unwrap();
    site.signal("-HUP");
    let log = eventually("it is read", async || {
        Some(site.log()).filter(|log| log.contains("reloaded: "))
    })
    .await;
    assert!(
        log.contains("in force from the next start on: drain_seconds, unready_seconds"),
        "{log}"
    );

    // One of them as it was at the start, and then the other.
    let last_told = |log: &str| {
        let reloads: Vec<&str> = log.split("reloaded: ").collect();
        let [.., last, _] = reloads.as_slice() else { return None };
        let told = last.split("in force from the next start on: ").nth(1)?;
        told.lines().next().map(str::to_owned)
    };
    let partly = conf.replace("\"unready_seconds\":0", "\"unready_seconds\":1");
    for (text, named) in [(&partly, Some("unready_seconds")), (&conf, None)] {
        std::fs::write(site.path("tollgate.yaml"), text).unwrap();
        eventually("what waits is told as it is", async || {
            (last_told(&site.log()).as_deref() == named).then_some(())
        })
        .await;
    }
}
