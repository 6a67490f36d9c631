//! A new binary that hangs: the old process ends it and goes on, and the next upgrade finds nothing in its way.

use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use super::load::{Load, one_call};
use super::process::{BINARY, Ground, Site};
use super::record::Outcome;
use super::unit::{has_ended, signal};
use super::upstream::Provider;
use crate::harness::eventually;

/// The file that runs as a good new binary does, and what the one does that never comes to the old process.
const GOOD: &str = "exec BINARY \"$@\"";
const SLEEPS: &str = "exec sleep 60";

/// A gateway that was started by a file that can be replaced. The processes that it starts in its place end with it.
struct Replaceable(Site);

impl Replaceable {
    /// Starts it, with a limit on a process that is to take over made so long (`TOLLGATE_LIMIT_MS`).
    fn start(provider: &Provider, limit: &str) -> Replaceable {
        let mut site = Site::new(Ground::Sqlite, provider, |_| ());
        symlink(BINARY, site.path("tollgate")).unwrap();
        site.start_by(Command::new(site.path("tollgate")), &[("TOLLGATE_LIMIT_MS", limit)]);
        Replaceable(site)
    }

    /// Puts a script in the binary's place, as `install` does, and has the gateway start it; its process.
    async fn upgrade_to(&self, script: &str) -> u32 {
        let before = self.started().len();
        let new = self.path("tollgate.new");
        std::fs::write(&new, format!("#!/bin/sh\n{}\n", script.replace("BINARY", BINARY))).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.path("tollgate")).unwrap();
        self.signal("-USR2");
        eventually("it is started", async || self.started().get(before).copied()).await
    }

    /// The processes that it says it has started in its place.
    fn started(&self) -> Vec<u32> {
        let log = self.log();
        let lines = log.lines().filter(|line| line.contains(", to take over"));
        let number = |line: &str| {
            line.rsplit_once("as process ")?
                .1
                .split(',')
                .next()?
                .parse::<u32>()
                .ok()
        };
        lines.filter_map(number).collect()
    }

    async fn says(&self, what: &str) {
        eventually(what, async || self.log().contains(what).then_some(())).await;
    }

    /// A call on whoever serves by now is answered, and billed.
    async fn serves(&self, provider: &Provider) {
        let mut load = Load::new(self, 1);
        let call = one_call(&reqwest::Client::new(), &self.base_url(), load.key(0), 2).await;
        assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
        load.record.keep(0, vec![call]);
        load.reconciled(self, provider).await;
    }
}

impl Deref for Replaceable {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.0
    }
}

impl DerefMut for Replaceable {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.0
    }
}

impl Drop for Replaceable {
    fn drop(&mut self) {
        for process in self.started() {
            if !has_ended(process) {
                signal("-KILL", process);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_binary_that_never_comes_is_killed_and_the_next_one_takes_over() {
    let provider = Provider::quick().await;
    // The limit holds for the good one as well, which may have to wait for a processor.
    let mut site = Replaceable::start(&provider, "connects:5000");
    let hangs = site.upgrade_to(SLEEPS).await;
    site.says(&format!(
        "process {hangs} was to take over and has not come for 5s: it is killed"
    ))
    .await;
    site.says("the process that was to take over has ended: signal: 9")
        .await;
    let good = site.upgrade_to(GOOD).await;
    eventually("the old process ends", async || site.has_ended().then_some(())).await;
    assert!(!has_ended(good), "{}", site.log());
    site.serves(&provider).await;
}

/// Else clients would wait in that socket once the old process has ended, and nobody could listen there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_binary_that_hangs_with_the_listening_socket_is_ended() {
    let provider = Provider::quick().await;
    let mut site = Replaceable::start(&provider, "prepares:3000");
    let hangs = site
        .upgrade_to("export TOLLGATE_HANG_AT=start-sockets; exec BINARY \"$@\"")
        .await;
    site.says("no other process takes over, this one goes on: it has said nothing for 3s")
        .await;
    site.says("the process that was to take over has ended: signal: 9")
        .await;
    assert!(has_ended(hangs));
    site.upgrade_to("exit 3").await;
    site.says("the process that was to take over has ended: exit status: 3")
        .await;
    site.serves(&provider).await;
    site.signal("-TERM");
    tokio::task::block_in_place(|| site.wait_end());
    assert!(TcpStream::connect(("127.0.0.1", site.port)).is_err(), "{}", site.log());
}

/// Calls wait meanwhile: whoever balances load hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_ledger_a_new_binary_has_that_hangs_is_not_ready_until_it_is_back() {
    let provider = Provider::quick().await;
    let site = Replaceable::start(&provider, "serves:5000");
    let url = format!("http://127.0.0.1:{}/readyz", site.admin_port);
    let ready = async || {
        let answer = reqwest::get(&url).await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    };
    eventually("it is ready", async || {
        ready().await.filter(|(status, _)| *status == 200)
    })
    .await;
    let hangs = site
        .upgrade_to("export TOLLGATE_HANG_AT=start-ledger; exec BINARY \"$@\"")
        .await;
    let (_, why) = eventually("it is not", async || ready().await.filter(|(status, _)| *status == 503)).await;
    assert_eq!(why, "the ledger changes hands\n");
    eventually("it is again", async || {
        ready().await.filter(|(status, _)| *status == 200)
    })
    .await;
    assert!(has_ended(hangs), "{}", site.log());
    site.serves(&provider).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_a_new_binary_that_has_not_taken_over() {
    let provider = Provider::quick().await;
    let mut site = Replaceable::start(&provider, "none:0");
    let hangs = site.upgrade_to(SLEEPS).await;
    site.signal("-TERM");
    tokio::task::block_in_place(|| site.wait_end());
    eventually("it ends as well", async || has_ended(hangs).then_some(())).await;
}
