//! What was typed, and what it means: the options of a run and the hidden ones by which the bench starts its own roles.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

use crate::{common::Result, waiting::Waiting};

/// Load-tests the gateway beside a bare Pingora pass-through, each as its own process, on loopback.
///
/// Without a scenario it runs all of them but instructions, operators and soak; with --quick, all but instructions, which takes minutes. Figures
/// go to tables, to JSON and to SVG plots. It fails at wrong answers and wrong debits, and where something that was asked for could not be measured.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo bench --bench load --", bin_name = "cargo bench --bench load --")]
pub(crate) struct Options {
    /// What to run; without one: all but instructions, operators and soak, or with --quick all but instructions
    #[arg(value_enum)]
    pub(crate) scenarios: Vec<Scenario>,

    /// What to put under load; without it: all that can be started, except direct
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SUBJECT,…")]
    pub(crate) subjects: Vec<Variant>,

    /// Load a gateway that already runs, at its base URL (http://host:port/api/v1), in place of starting one; http:// only, since the bench
    /// speaks no TLS
    #[arg(long, value_name = "URL", requires = "key", value_parser = clear_text)]
    pub(crate) against: Option<String>,

    /// The key to call the gateway of --against with
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// Process id of the gateway of --against, when it runs on this machine: its CPU and memory are then measured too
    #[arg(long, requires = "against")]
    pub(crate) pid: Option<u32>,

    /// Chat model to ask the gateway of --against for
    #[arg(long, default_value = "openai/gpt-4o-mini")]
    pub(crate) model: String,

    /// Embedding model to ask the gateway of --against for
    #[arg(long, default_value = "openai/text-embedding-3-small")]
    pub(crate) embedding_model: String,

    /// Accounts that call, each with a key of its own [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) accounts: Option<usize>,

    /// Requests a second where they come at random times (open loop, latency from when due)
    ///
    /// Streams without pauses are 20 times fewer, paced ones always 25 a second
    #[arg(long, default_value_t = 1000)]
    pub(crate) rate: u32,

    /// Connections, saturated (closed loop) and at a rate; paced streams have their own
    ///
    /// Half of them where all is streams without pauses, or 100 KB long
    ///
    /// Where system calls or instructions are counted, all of them for these streams too
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,

    /// Seconds of each measured round [default: 1]
    ///
    /// Twice as long where requests come at a rate, three times where streams are paced
    ///
    /// System calls are counted for as long as it says, but half a second at least
    ///
    /// Instructions are counted for six seconds, whatever it says
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<f64>,

    /// Rounds of each subject [default: 30]; they alternate (A B, B A) and ratios are taken within a round: many short ones tell more
    /// than few long ones where the machine's speed drifts
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,

    /// Worker threads of the gateway and of what it is compared with
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,

    /// Seconds of soak for each gateway, at most 3600 [default: 600]
    #[arg(long, value_name = "N")]
    pub(crate) soak_seconds: Option<u64>,

    /// Idle streams of open, in ascending steps
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) streams: Vec<usize>,

    /// Nice value for all processes (negative ones need privileges): -20 steadies the figures on a busy machine
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) nice: Option<i32>,

    /// Let the load and the upstream poll without sleeping: their wake-ups then cost the subject nothing, as on a real
    /// network, and a busy machine disturbs less; needs cores of their own
    #[arg(long)]
    pub(crate) busy_poll: bool,

    /// Let the gateways keep no receipts
    #[arg(long)]
    pub(crate) without_receipts: bool,

    /// Another gateway binary in place of the one built with this bench, such as an earlier release
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,

    /// Everything but instructions for a moment: shows that it works, the figures mean little. Without strace no system calls are counted,
    /// which is said and no failure here
    #[arg(long)]
    pub(crate) quick: bool,

    /// Where the table, the JSON file and the plots go
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub(crate) out: PathBuf,

    /// Run as one of the bench's own processes
    #[arg(long, value_enum, hide = true, requires = "listen")]
    pub(crate) role: Option<Role>,

    /// Address that a role listens on
    #[arg(long, hide = true)]
    pub(crate) listen: Option<SocketAddr>,

    /// Address that the baseline passes requests on to
    #[arg(long, hide = true)]
    pub(crate) upstream: Option<SocketAddr>,

    /// Cargo passes it to every bench; its absence means `cargo test --benches`, which only wants a smoke run
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

/// A kind of load.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Everything below
    All,
    /// Whole answers: 1 KB in, 1.4 KB out; saturated, then at the rate
    Whole,
    /// 100 KB in, 1.4 KB out
    Big,
    /// Embeddings of 1536 numbers
    Embeddings,
    /// Streams with 20 ms between events
    StreamPaced,
    /// Streams of 100 events without pauses, all in one write; saturated, then at a rate
    StreamBurst,
    /// The same with a write for each event
    StreamEach,
    /// The same saturated with tool calls, with logprobs, and with two choices
    StreamForms,
    /// Idle streams: memory and open files
    Open,
    /// System calls a request and an event, counted by strace
    Syscalls,
    /// Instructions a request and an event, counted by callgrind, and in which part of the program they are
    Instructions,
    /// Floods of 401, 402 and a key's 429 (gateway only)
    Denied,
    /// 1,000 requests a second without and with 100,000 wrong keys a minute from the same address, and the 429 of such an address (gateway only)
    Strangers,
    /// All shapes at once
    Mixed,
    /// 1,000 requests a second beside credit that is posted, of a gateway with a webhook that never answers and of one without (gateway only)
    Webhooks,
    /// What operators list and search among 100,000 accounts, and 1,000 requests a second beside that (gateway only)
    Operators,
    /// Mixed requests with cuts, errors, clients that leave and kill -9: each account's debits are computed and compared (gateway only)
    Soak,
}

/// What is put under load.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The simulated upstream without a proxy: the floor of latency, the ceiling of the load generator
    Direct,
    /// A bare Pingora pass-through with the system allocator
    Baseline,
    /// The same with the gateway's allocator
    BaselineJemalloc,
    /// Tollgate with the embedded ledger
    Embedded,
    /// Tollgate with a redis-server
    Redis,
    /// nginx as a pass-through
    Nginx,
    /// HAProxy as a pass-through
    Haproxy,
}

/// A process of the bench's own.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Upstream,
    Baseline,
}

impl Options {
    /// Reads the command line; prints help or a usage error and ends the process where clap would.
    pub(crate) fn read() -> Self {
        let mut options = Self::parse();
        if !options.bench && options.role.is_none() && std::env::args().len() == 1 {
            options.quick = true;
        }
        options
    }

    /// Refuses what cannot be measured.
    pub(crate) fn check(&self) -> Result<()> {
        let seconds = self.seconds.unwrap_or(1.0);
        if !(0.05..=3600.0).contains(&seconds) {
            return Err("--seconds must be between 0.05 and 3600".into());
        }
        if self
            .soak_seconds
            .is_some_and(|seconds| !(1..=SOAK_SECONDS_MAX).contains(&seconds))
        {
            return Err(format!("--soak-seconds must be between 1 and {SOAK_SECONDS_MAX}").into());
        }
        if !(1..=ACCOUNTS_MAX).contains(&self.accounts()) {
            return Err(format!("--accounts must be between 1 and {ACCOUNTS_MAX}").into());
        }
        if self.threads == 0 || self.connections == 0 || self.rate == 0 || self.rounds == Some(0) {
            return Err("--threads, --connections, --rate and --rounds must be at least 1".into());
        }
        if self.connections > CONNECTIONS_MAX || self.streams.iter().any(|streams| *streams > STREAMS_MAX) {
            return Err(format!("at most {CONNECTIONS_MAX} connections and {STREAMS_MAX} idle streams").into());
        }
        Ok(())
    }

    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        let all = all.filter(|scenario| *scenario != Scenario::All);
        if self.scenarios.contains(&Scenario::All) {
            return all.collect();
        }
        if !self.scenarios.is_empty() {
            return self.scenarios.clone();
        }
        // Each takes minutes that the others are for.
        let left_out = match self.quick {
            true => &[Scenario::Instructions][..],
            false => &[Scenario::Instructions, Scenario::Operators, Scenario::Soak],
        };
        all.filter(|scenario| !left_out.contains(scenario)).collect()
    }

    pub(crate) fn variants(&self) -> Vec<Variant> {
        if !self.subjects.is_empty() {
            return self.subjects.clone();
        }
        if self.against.is_some() {
            return Vec::new();
        }
        Variant::value_variants()
            .iter()
            .copied()
            .filter(|variant| *variant != Variant::Direct)
            .collect()
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 30 })
    }

    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 0.2 } else { 1.0 }))
    }

    /// Load before each measured round, with the same connections.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.quick { 50 } else { 300 })
    }

    /// How the load and the upstream wait for work.
    pub(crate) fn waiting(&self) -> Waiting {
        if self.busy_poll {
            Waiting::Polling
        } else {
            Waiting::Asleep
        }
    }

    pub(crate) fn idle_streams(&self) -> Vec<usize> {
        let mut streams = match (self.streams.is_empty(), self.quick) {
            (false, _) => self.streams.clone(),
            (true, true) => vec![100],
            (true, false) => vec![1000, 5000, 10_000],
        };
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    pub(crate) fn soak_length(&self) -> Duration {
        Duration::from_secs(self.soak_seconds.unwrap_or(if self.quick { 3 } else { 600 }))
    }

    pub(crate) fn accounts(&self) -> usize {
        let of_ours = self.accounts.unwrap_or(if self.quick { 20 } else { 1000 });
        if self.against.is_some() { 1 } else { of_ours }
    }

    /// So many accounts are many.
    pub(crate) fn many_accounts(&self) -> usize {
        if self.quick { MANY_ACCOUNTS_QUICK } else { MANY_ACCOUNTS }
    }
}

/// A base URL that the load generator can speak to.
fn clear_text(url: &str) -> std::result::Result<String, String> {
    match url.strip_prefix("http://") {
        Some(rest) if !rest.starts_with('/') && !rest.is_empty() => Ok(url.to_owned()),
        Some(_) => Err("it names no host".to_owned()),
        None => Err("only http:// is possible, since the bench speaks no TLS".to_owned()),
    }
}

impl Scenario {
    /// The name as it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Variant {
    /// The name as it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

const SOAK_SECONDS_MAX: u64 = 3600;
const ACCOUNTS_MAX: usize = 10_000;
/// What operators has, with those that call.
const MANY_ACCOUNTS: usize = 100_000;
const MANY_ACCOUNTS_QUICK: usize = 200;
const CONNECTIONS_MAX: usize = 10_000;
const STREAMS_MAX: usize = 25_000;
