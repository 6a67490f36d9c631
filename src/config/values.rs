//! The configuration as it was checked: what each key means.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::idempotency::Idempotency;
use super::network::Network;
use super::provider::Provider;
use super::receipts::Receipts;
use super::remote::RemoteGateway;
use super::stripe::StripeHook;
use super::traces::Traces;
use super::wallet::Wallet;
use super::webhooks::Webhook;
use crate::pure::ids::Tier;
use crate::pure::limits::Limits;
use crate::pure::money::{Credits, Markup};

/// By what a file's text is told from another one.
pub(crate) type TextDigest = [u8; 32];

/// The whole configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// That of its text.
    pub(crate) text_digest: TextDigest,
    /// Where callers connect.
    pub listen: SocketAddr,
    /// Metrics and readiness; never public.
    pub admin_listen: SocketAddr,
    /// Names with a dot by which it may be asked, beside addresses.
    pub admin_hosts: Vec<String>,
    /// Where operators work; none: nowhere but on this machine.
    pub operator: Option<OperatorListener>,
    /// In front of every path of the interface, such as `/api/v1`; no slash at its end.
    pub base_path: String,
    /// Worker threads.
    pub threads: usize,
    /// Journal, lock and control socket.
    pub data_dir: PathBuf,
    /// Where the ledger is kept.
    pub store: Store,
    /// The environment variable that holds the address of that, where the file does not.
    pub store_env: Option<String>,
    /// The catalogue's file.
    pub catalogue: PathBuf,
    /// From the provider's price to the list price.
    pub markup: Markup,
    /// What one credit is.
    pub currency: String,
    /// What a key begins with.
    pub key_prefix: String,
    /// Upstream providers by name.
    pub providers: BTreeMap<String, Provider>,
    /// Limits and quota of each tier, by [`Tier::index`].
    pub tiers: [TierRules; 4],
    /// Time-outs towards upstreams and callers.
    pub timeouts: Timeouts,
    /// Longest request body in bytes.
    pub body_bytes_max: u64,
    /// Most bytes of an answer that is not streamed that wait for the rest of it.
    pub whole_answer_bytes_max: usize,
    /// Most bytes of all such answers together.
    pub gathered_bytes_max: usize,
    /// Most memory that request bodies take.
    pub body_memory: BodyMemoryLimits,
    /// Certificate and key when the listener speaks TLS.
    pub tls: Option<TlsFiles>,
    /// How long a stop waits for running streams.
    pub drain: Duration,
    /// What becomes of the running streams of an account that is suspended or closed.
    pub suspended_streams: SuspendedStreams,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Failed authentications a minute that are forgiven to one address.
    pub auth_failures_per_minute: u64,
    /// Most open connections of clients.
    pub connections_max: usize,
    /// Most of them from one address.
    pub connections_per_address_max: usize,
    /// How long `/readyz` says 503 before a stop closes the listeners.
    pub unready: Duration,
    /// Where a line for each request goes.
    pub access_log: AccessLog,
    /// What is kept of each call that was billed.
    pub receipts: Receipts,
    /// What is kept of calls with an `Idempotency-Key`.
    pub idempotency: Idempotency,
    /// How often the gateway audits the books; zero for never.
    pub audit_every: Duration,
    /// Whether and how the catalogue follows a provider's list.
    pub catalogue_refresh: Option<Refresh>,
    /// Whether and where traces are sent.
    pub traces: Traces,
    /// How Stripe's messages are known; none: there is no hook for them.
    pub stripe: Option<StripeHook>,
    /// What the wallet's pages show.
    pub wallet: Wallet,
    /// Who is told of events.
    pub webhooks: Vec<Webhook>,
}

/// Where operators connect, when they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorListener {
    /// Its address.
    pub address: SocketAddr,
    /// Certificate and key when it speaks TLS.
    pub tls: Option<TlsFiles>,
    /// Names with a dot by which it may be asked, beside addresses.
    pub hosts: Vec<String>,
}

/// How the catalogue follows a provider's list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Whose list.
    pub provider: String,
    /// The rules of the import.
    pub rules: PathBuf,
    /// How often it is fetched.
    pub every: Duration,
}

impl Refresh {
    /// Where the rules of an import are unless somebody names them: beside the catalogue, else beside the configuration, else in `conf`.
    pub fn usual_rules(catalogue: &Path, configuration: &Path) -> PathBuf {
        let beside = [catalogue, configuration].map(|file| file.with_file_name(RULES));
        let mut found = beside.into_iter().filter(|rules| rules.is_file());
        found.next().unwrap_or_else(|| Path::new("conf").join(RULES))
    }
}

/// Most memory that request bodies take, in bytes; each is at least the longest body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyMemoryLimits {
    /// In all.
    pub total: u64,
    /// Those of one key.
    pub per_key: u64,
    /// Those from one address, an IPv6 network of 64 bits being one.
    pub per_address: u64,
}

/// What becomes of the running streams of an account that is suspended or closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SuspendedStreams {
    /// They go on to their end.
    #[default]
    Finish,
    /// They are ended with an error event, and billed for what was delivered.
    End,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// To standard output, as JSON; as columns when that is a terminal.
    Stdout,
    /// To the end of this file, as JSON.
    File(PathBuf),
}

/// Where the ledger is kept. Its `Debug` shows no address of a Redis, which may have a password in it.
#[derive(Clone, PartialEq, Eq)]
pub enum Store {
    /// Embedded, in this file.
    Sqlite(PathBuf),
    /// A Redis of some form; the whole address.
    Redis(String),
    /// Not known: the environment variable of this name, which is to hold the address, is not set.
    Missing(String),
    /// That of a gateway elsewhere: only commands work on it, by its operator's API.
    Remote(RemoteGateway),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Store::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Store::Redis(_) => f.write_str("Redis(…)"),
            Store::Missing(variable) => write!(f, "Missing({variable})"),
            Store::Remote(gateway) => f.debug_tuple("Remote").field(gateway).finish(),
        }
    }
}

/// What applies to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierRules {
    /// Rate limits.
    pub limits: Limits,
    /// Quota of a month for accounts without their own.
    pub monthly_quota: Credits,
}

/// Time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a TCP connection to an upstream stands; with TLS it may take twice as long in all.
    pub connect: Duration,
    /// Until the upstream's answer begins, where it is a stream.
    pub first_byte: Duration,
    /// The same where it is not: providers commonly send nothing of it before it is finished.
    pub whole_first_byte: Duration,
    /// Between two pieces of the upstream's answer.
    pub idle: Duration,
    /// The idle time of an upstream after which its stream gets a comment; none: never.
    pub comment: Option<Duration>,
    /// How long the head of a stream waits for its first event while another target could be asked; none: not at all.
    pub first_event: Option<Duration>,
    /// How long the first bytes of an answer that is not streamed wait for its last, from its head.
    pub whole_gather: Duration,
    /// Until the head of a caller's request has arrived, and a TLS handshake is done.
    pub head: Duration,
    /// Until a caller's whole request body has arrived.
    pub body: Duration,
    /// Until a caller takes what is written to it.
    pub write: Duration,
    /// Of an idle keep-alive connection of a caller.
    pub keepalive: Duration,
    /// How long an answer that has begun is read on for a caller that has left.
    pub disconnect_drain: Duration,
}

/// Files for the listener's TLS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl Config {
    /// Where operators' programs and the console are answered, if anywhere.
    pub fn operator_address(&self) -> Option<SocketAddr> {
        self.operator.as_ref().map(|operator| operator.address)
    }

    /// All addresses that the gateway listens on: for clients, for health and metrics, for operators.
    pub fn listen_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen, self.admin_listen]
            .into_iter()
            .chain(self.operator_address())
    }

    /// The folder of the access log, where that is `data_dir` or lies below it: a start makes it, as it makes that.
    pub fn own_log_folder(&self) -> Option<&Path> {
        let AccessLog::File(path) = &self.access_log else {
            return None;
        };
        // Either may be relative, or begin with `./`.
        let own = std::path::absolute(&self.data_dir).ok()?;
        path.parent().filter(|folder| {
            let folder = std::path::absolute(folder).unwrap_or_default();
            let below = folder.strip_prefix(&own);
            below.is_ok_and(|below| below.components().all(|part| matches!(part, Component::Normal(_))))
        })
    }

    /// Whether a receipt of each call is written anywhere.
    pub fn keeps_receipts(&self) -> bool {
        let in_ledger = match self.store {
            Store::Sqlite(_) => self.receipts.keep_days,
            Store::Redis(_) | Store::Missing(_) | Store::Remote(_) => self.receipts.per_account_max,
        };
        in_ledger > 0 || self.receipts.files.is_some()
    }

    /// What applies to a tier.
    pub fn tier(&self, tier: Tier) -> &TierRules {
        let [free, lite, pro, enterprise] = &self.tiers;
        match tier {
            Tier::Free => free,
            Tier::Lite => lite,
            Tier::Pro => pro,
            Tier::Enterprise => enterprise,
        }
    }
}

/// The file of an import's rules.
const RULES: &str = "import.yaml";
