//! A load without end and faults without end: kills, stops, upgrades, reloads, a store that is away. After each round every account has
//! spent exactly what its clients got, and at the end every earlier round's still has.
//!
//! `TOLLGATE_SOAK_SECONDS` says for how long; a nightly run takes an hour.

use std::time::{Duration, Instant};

use rust_decimal::Decimal;

use super::load::{CALLS_MAX, Load};
use super::process::{Ground, Site, view};
use super::record::Outcome;
use super::unwritable::{limit_files, start_unstoppable};
use super::upstream::{Pace, Provider};
use crate::harness::eventually;
use crate::harness::gateway::decimal;
use crate::harness::redis_server::RedisServer;

const PACE: Pace = Pace {
    tokens: 20,
    pause: Duration::from_millis(4),
};
const WORKERS: usize = 12;
/// In a run of the tests.
const SOAK: Duration = Duration::from_secs(5);
/// Faults in a round.
const FAULTS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    StoreAway,
    Reload,
    Stop,
    Upgrade,
}

/// In turns, so that each is followed by each in time: their number and the number in a round have no common factor.
const TURNS: [Fault; 8] = [
    Fault::Kill,
    Fault::StoreAway,
    Fault::Reload,
    Fault::Kill,
    Fault::Stop,
    Fault::StoreAway,
    Fault::Kill,
    Fault::Upgrade,
];

fn seconds() -> Duration {
    std::env::var("TOLLGATE_SOAK_SECONDS").map_or(SOAK, |text| Duration::from_secs(text.parse().unwrap()))
}

/// The store takes nothing for a while.
async fn away(site: &Site) {
    let away = Duration::from_millis(700);
    match &site.ground {
        Ground::Redis(server) => {
            server.freeze();
            // Sleeps: how long the store is away is what is tried.
            tokio::time::sleep(away).await;
            server.thaw();
        }
        Ground::Sqlite | Ground::Sentinels(_) => {
            limit_files(site, "0");
            // Sleeps: how long the store is away is what is tried.
            tokio::time::sleep(away).await;
            limit_files(site, "unlimited");
        }
    }
}

async fn happen(fault: Fault, site: &mut Site) {
    match fault {
        Fault::Kill => {
            site.kill();
            start_unstoppable(site);
        }
        Fault::StoreAway => away(site).await,
        Fault::Reload => site.signal("-HUP"),
        Fault::Stop => {
            site.signal("-TERM");
            tokio::task::block_in_place(|| site.wait_end());
            start_unstoppable(site);
        }
        Fault::Upgrade => {
            let mut old = site.upgrade();
            eventually("the old process ends", async || old.try_wait().unwrap()).await;
        }
    }
}

async fn soak(ground: Ground) {
    let provider = Provider::start(PACE).await;
    let mut site = Site::new(ground, &provider, |_| ());
    start_unstoppable(&mut site);
    let (began, mut turns) = (Instant::now(), TURNS.iter().cycle());
    let mut accounts: Vec<(String, Decimal)> = Vec::new();
    let (mut whole, mut others, mut round) = (0, 0, 0);
    while began.elapsed() < seconds() {
        round += 1;
        let mut load = Load::of(&site, &format!("round-{round}-worker"), WORKERS);
        load.begin_at(round * CALLS_MAX);
        let running = load.start(&site);
        let faults: Vec<Fault> = turns.by_ref().take(FAULTS).copied().collect();
        for fault in &faults {
            let seen = provider.seen();
            eventually("calls run", async || (provider.seen() > seen + 50).then_some(())).await;
            happen(*fault, &mut site).await;
        }
        load.finish(running).await;
        load.reconciled(&site, &provider).await;
        accounts.extend(load.balances(&site));
        let (all, good) = (load.record.all(), |outcome| matches!(outcome, Outcome::Whole { .. }));
        let (yes, no): (Vec<_>, Vec<_>) = all.partition(|call| good(call.outcome));
        (whole, others) = (whole + yes.len(), others + no.len());
        println!(
            "round {round} after {:?}: {faults:?}, {} and {} calls",
            began.elapsed(),
            yes.len(),
            no.len()
        );
    }
    let ledger = site.ledger();
    for (name, balance) in &accounts {
        assert_eq!(
            decimal(view(&ledger, name).figures.balance),
            *balance,
            "{name}, long after its last call"
        );
    }
    println!("{round} rounds, {whole} calls to their end and {others} not, each billed exactly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_without_end_lose_and_double_nothing_on_sqlite() {
    soak(Ground::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_without_end_lose_and_double_nothing_on_redis() {
    soak(Ground::Redis(RedisServer::start())).await;
}
