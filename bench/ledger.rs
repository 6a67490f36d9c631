//! What a reserve and its settlement cost on each store: pairs a second, and microseconds of CPU a pair, of this process and of
//! redis-server.
//!
//! `cargo bench --bench ledger -- [embedded] [redis] [receipts] [SECONDS]`; redis-server has to be installed. With `receipts` each
//! settlement writes its own. A pair is over when its
//! settlement is acknowledged (Redis) or in memory (embedded).

#![expect(clippy::print_stdout, reason = "its report is its output")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::config::Config;
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::{Caller, Debit, Ledger, open};
use tollgate::pure::account::{ReserveRequest, Scope};
use tollgate::pure::ids::{ApiKey, RequestId, Tier};
use tollgate::pure::limits::{LimitOverrides, Limits};
use tollgate::pure::money::{Credits, Pricing};
use tollgate::pure::receipt::{CallDetails, CallEnding};
use tollgate::pure::request_body::Endpoint;
use tollgate::pure::time::Timestamp;
use tollgate::pure::usage::{CompletionTokens, PromptTokens, Usage};

#[path = "../tests/support/redis_server.rs"]
#[expect(
    dead_code,
    clippy::expect_used,
    reason = "a bench without its redis-server cannot go on; the tests use more of it"
)]
mod redis_server;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let seconds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(3.0);
    let wanted =
        |store: &str| !words.iter().any(|w| w == "embedded" || w == "redis") || words.iter().any(|w| w == store);
    let receipts = words.iter().any(|word| word == "receipts");
    println!("store     callers accounts   pairs/s   us a pair: here  redis-server   p50 us   p99 us (reserve)");
    for (callers, accounts) in [(1, 1), (16, 1), (256, 1), (256, 64), (256, 1000)] {
        if wanted("embedded") {
            let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
            let store = format!("sqlite://{}", folder.path().join("ledger.db").display());
            measure(
                "embedded",
                &config(&store, receipts),
                None,
                (callers, accounts),
                seconds,
            );
        }
        if wanted("redis") {
            let server = redis_server::RedisServer::start_with(&["--appendonly", "yes", "--save", ""]);
            measure(
                "redis",
                &config(&server.url(), receipts),
                Some(server.process_id()),
                (callers, accounts),
                seconds,
            );
        }
    }
}

fn config(store: &str, receipts: bool) -> Config {
    let (days, each) = if receipts { (30, 10_000) } else { (0, 0) };
    let text = format!("store: {store:?}\nreceipts: {{ keep_days: {days}, per_account_max: {each} }}");
    Config::parse("bench".as_ref(), &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn measure(name: &str, config: &Config, server: Option<u32>, (callers, accounts): (u64, u64), seconds: f64) {
    let receipts = config.keeps_receipts();
    let ledger = open(config).unwrap_or_else(|error| panic!("{error}"));
    let callers_of: Vec<Caller> = (0..accounts).map(|n| caller(&ledger, n)).collect();
    let workers = callers.min(2);
    let pairs = AtomicU64::new(0);
    let (here, there) = (cpu("self"), server.map(|id| cpu(&id.to_string())));
    let start = Instant::now();
    let mut waits: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let (ledger, callers_of, pairs) = (&ledger, &callers_of, &pairs);
                scope.spawn(move || {
                    let runtime = runtime();
                    let each = async |n: u64| {
                        work(
                            ledger,
                            callers_of,
                            (n, receipts),
                            start,
                            Duration::from_secs_f64(seconds),
                            pairs,
                        )
                        .await
                    };
                    let mine = (0..callers).filter(|n| n % workers == worker).map(each);
                    runtime.block_on(futures::future::join_all(mine))
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_default())
            .flatten()
            .collect()
    });
    // Until the last settlement is acknowledged; the figures are not there before.
    let runtime = runtime();
    for caller in &callers_of {
        let waiting = Instant::now();
        while let Err(error) = runtime.block_on(caller.figures()) {
            assert!(waiting.elapsed() < ACKNOWLEDGED_WITHIN, "{error}");
        }
    }
    let (took, pairs) = (start.elapsed().as_secs_f64(), pairs.into_inner());
    let a_pair = |from: f64, to: f64| (to - from) * 1e6 / pairs as f64;
    waits.sort_unstable();
    let rank = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or(0) as f64 / 1000.0;
    let there = server
        .zip(there)
        .map_or(0.0, |(id, before)| a_pair(before, cpu(&id.to_string())));
    println!(
        "{name:9} {callers:7} {accounts:8} {:9.0} {:17.2} {there:13.2} {:8.2} {:8.2}",
        pairs as f64 / took,
        a_pair(here, cpu("self")),
        rank(50),
        rank(99),
    );
    ledger.close();
}

/// How long the last settlements may take.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

async fn work(
    ledger: &Ledger,
    callers: &[Caller],
    (n, receipts): (u64, bool),
    start: Instant,
    time: Duration,
    pairs: &AtomicU64,
) -> Vec<u32> {
    let (mut count, mut waits) = (0u64, Vec::new());
    let models: Vec<Arc<str>> = (0..MODELS).map(|n| format!("provider/model-{n}").into()).collect();
    while start.elapsed() < time {
        count += 1;
        let now = Timestamp(i64::try_from(std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis())).unwrap_or(0));
        // The time in front, as the gateway's have it.
        let mut id = [0u8; 16];
        id[..6].copy_from_slice(&now.0.to_be_bytes()[2..]);
        id[6..8].copy_from_slice(&n.to_be_bytes()[6..]);
        // One of the accounts and one of the models, at random, and the same in each run.
        let random = (count << 16 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        id[8..].copy_from_slice(&random.to_be_bytes());
        let one_of = |most: usize, bits: u32| usize::try_from(random >> bits).unwrap_or(0) % most;
        let caller = &callers[one_of(callers.len(), 16)];
        let request = ReserveRequest {
            id: RequestId::from_bytes(id),
            scope: Scope::Account,
            limits: Limits {
                rpm: 1 << 40,
                tpm: 1 << 50,
                concurrency: 1 << 20,
            },
            quota: Credits::MAX,
            wanted: Credits::from_pico(1_000_000),
            at_least: Credits::from_pico(1_000_000),
            tokens: 300,
            expires: ledger.hold_expiry(now),
            is_counted: false,
            is_last: true,
            spend: None,
        };
        let asked = Instant::now();
        let hold = caller.reserve(&request).await;
        waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        match hold {
            Ok(Ok(hold)) => hold.settle(Debit {
                model: Arc::clone(&models[one_of(MODELS, 40)]),
                key: caller.key.id.clone(),
                usage: Usage {
                    prompt: PromptTokens(100),
                    completion: CompletionTokens(200),
                },
                cost: Credits::from_pico(123_456),
                held: None,
                details: receipts.then(|| Box::new(details(random))),
                end_user: None,
            }),
            other => panic!("{other:?}"),
        }
        pairs.fetch_add(1, Ordering::Relaxed);
        if count % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    waits
}

/// How many models are called.
const MODELS: usize = 12;

/// What a gateway usually knows of a call whose answer has such an id.
fn details(random: u64) -> CallDetails {
    let now = Timestamp(i64::try_from(std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis())).unwrap_or(0));
    CallDetails {
        provider: Some(Arc::from("provider")),
        upstream_model: Some(Arc::from("model-2026-11-01")),
        upstream_id: Some(format!("chatcmpl-CdVx0ABCDEFGH{random:016x}")),
        endpoint: Some(Endpoint::ChatStream),
        first_byte: Some(now),
        ended: Some(now),
        streamed: Some(true),
        ending: Some(CallEnding::Complete),
        reported_prompt: Some(PromptTokens(100)),
        reported_completion: Some(CompletionTokens(200)),
        counted_completion: Some(CompletionTokens(200)),
        pricing: Pricing::from_units_each([2_300_000_000_000_000_000, 9_200_000_000_000_000_000]),
        ..CallDetails::default()
    }
}

fn caller(ledger: &Ledger, n: u64) -> Caller {
    let runtime = runtime();
    let account: tollgate::pure::ids::AccountId = format!("account-{n}").parse().unwrap_or_else(|_| panic!("a name"));
    let mut random = [7; 32];
    random[..8].copy_from_slice(&n.to_be_bytes());
    let digest = ApiKey::from_random("tg_", random).digest();
    let ops = [
        AdminOp::AccountCreate {
            account: account.clone(),
            tier: Tier::Pro,
            quota_pico: None,
            terms: Default::default(),
        },
        AdminOp::CreditsAdd {
            account: account.clone(),
            amount: Credits::from_pico(9_000_000_000_000_000_000),
            reference: "bench".to_owned(),
        },
        AdminOp::KeyCreate {
            digest: digest.to_hex(),
            account,
            tier: None,
            domains: Vec::new(),
            expires_in_ms: None,
            limits: LimitOverrides::default(),
            settings: Default::default(),
        },
    ];
    for op in ops {
        runtime
            .block_on(ledger.run(op))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    match runtime.block_on(ledger.authenticate(&digest)) {
        Ok(Some(found)) => match found.checked(Timestamp(0)) {
            Some(caller) => caller,
            None => panic!("a key that was just made is refused"),
        },
        other => panic!("{other:?}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// CPU seconds of a process, with those of its threads that have ended.
fn cpu(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The fields after the name, which may hold anything: user and system time are the 12th and 13th of them, in 1/100 s.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => (user + system) / 100.0,
        _ => panic!("no CPU time of the process {process}"),
    }
}
