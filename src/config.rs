//! Configuration: what was typed in `conf/tollgate.yaml` becomes what it means, once, with errors that name file, key and form.
//!
//! The only file that reads configuration files and the environment.

pub mod import;
pub mod mistakes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::pure::catalogue::Catalogue;
use crate::pure::ids::Tier;
use crate::pure::limits::Limits;
use crate::pure::lines;
use crate::pure::money::{Credits, Markup};
use crate::pure::time::Timestamp;

mod network;
mod traces;

pub use network::Network;
pub use traces::{Collector, Sample, Traces};

/// The whole configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// Where callers connect.
    pub listen: SocketAddr,
    /// Metrics and readiness; never public.
    pub admin_listen: SocketAddr,
    /// In front of every path of the interface, such as `/api/v1`; no slash at its end.
    pub base_path: String,
    /// Worker threads.
    pub threads: usize,
    /// Journal, lock and control socket.
    pub data_dir: PathBuf,
    /// Where the ledger is kept.
    pub store: Store,
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
    /// Certificate and key when the listener speaks TLS.
    pub tls: Option<TlsFiles>,
    /// How long a stop waits for running streams.
    pub drain: Duration,
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
    /// How often the gateway audits the books; zero for never.
    pub audit_every: Duration,
    /// Whether and how the catalogue follows a provider's list.
    pub catalogue_refresh: Option<Refresh>,
    /// Whether and where traces are sent.
    pub traces: Traces,
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

/// Where the ledger is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// Embedded, in this file.
    Sqlite(PathBuf),
    /// A Redis of some form; the whole address.
    Redis(String),
}

/// An upstream provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name in the configuration.
    pub name: String,
    /// Address of its API.
    pub base_url: BaseUrl,
    /// What it is asked with.
    pub credential: Credential,
    /// What becomes of a call whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// Request fields that are refused unless they are named here.
    pub allow_fields: Vec<String>,
    /// Headers sent with each request.
    pub headers: BTreeMap<String, String>,
    /// A private certificate authority that is trusted in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether HTTP/2 is offered over TLS.
    pub http2: bool,
}

/// An address `http(s)://host[:port]/path`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Whether it is `https`.
    pub tls: bool,
    /// Host name or address, for SNI and resolution.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the `Host` header says: the host, with the port unless it is the scheme's own.
    pub authority: String,
    /// Path without a slash at its end.
    pub path: String,
}

/// What a provider is asked with. It has no `Debug` of its text.
#[derive(Clone)]
pub enum Credential {
    /// The provider wants none.
    None,
    /// Sent as `Authorization: Bearer`.
    Bearer(String),
    /// The environment variable of this name is not set: the provider is switched off.
    Missing(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credential::None => f.write_str("None"),
            Credential::Bearer(_) => f.write_str("Bearer(…)"),
            Credential::Missing(variable) => write!(f, "Missing({variable})"),
        }
    }
}

/// What becomes of a call whose client has gone before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// Close the upstream at once; prompt and delivered tokens are billed.
    #[default]
    Cancel,
    /// Keep reading, within limits, to get the reported usage.
    Drain,
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
    /// Until a connection to an upstream stands, TLS included.
    pub connect: Duration,
    /// Until the upstream's answer begins.
    pub first_byte: Duration,
    /// Between two pieces of the upstream's answer.
    pub idle: Duration,
    /// The silence of an upstream after which its stream gets a comment; none: never.
    pub comment: Option<Duration>,
    /// Until the head of a caller's request has arrived, and a TLS handshake is done.
    pub head: Duration,
    /// Until a caller's whole request body has arrived.
    pub body: Duration,
    /// Until a caller takes what is written to it.
    pub write: Duration,
    /// Of an idle keep-alive connection of a caller.
    pub keepalive: Duration,
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

/// What is wrong with a configuration or catalogue file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong, with the key where there is one.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    listen: String,
    admin_listen: String,
    base_path: String,
    threads: usize,
    data_dir: PathBuf,
    store: Option<String>,
    catalogue: PathBuf,
    markup: Markup,
    currency: String,
    key_prefix: String,
    providers: BTreeMap<String, RawProvider>,
    tiers: RawTiers,
    timeouts: RawTimeouts,
    body_bytes_max: u64,
    tls: Option<TlsFiles>,
    drain_seconds: u64,
    trusted_proxies: Vec<String>,
    auth_failures_per_minute: u64,
    connections_max: usize,
    connections_per_address_max: usize,
    unready_seconds: u64,
    access_log: String,
    audit_seconds: u64,
    catalogue_refresh: Option<RawRefresh>,
    traces: Option<traces::RawTraces>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRefresh {
    provider: String,
    #[serde(default = "import_rules")]
    rules: PathBuf,
    every_minutes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProvider {
    base_url: String,
    #[serde(default)]
    api_key_env: Option<String>,
    #[serde(default)]
    on_disconnect: OnDisconnect,
    #[serde(default)]
    allow_fields: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    ca_file: Option<PathBuf>,
    #[serde(default = "yes")]
    http2: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTiers {
    free: RawTier,
    lite: RawTier,
    pro: RawTier,
    enterprise: RawTier,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTier {
    rpm: Option<u64>,
    tpm: Option<u64>,
    concurrency: Option<u64>,
    monthly_quota: Option<Credits>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTimeouts {
    connect_ms: u64,
    first_byte_ms: u64,
    idle_ms: u64,
    comment_ms: u64,
    head_ms: u64,
    body_ms: u64,
    write_ms: u64,
    keepalive_ms: u64,
}

impl Default for RawTimeouts {
    fn default() -> RawTimeouts {
        RawTimeouts {
            connect_ms: 3_000,
            first_byte_ms: 120_000,
            idle_ms: 60_000,
            comment_ms: 15_000,
            head_ms: 15_000,
            body_ms: 60_000,
            write_ms: 60_000,
            keepalive_ms: 75_000,
        }
    }
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            listen: "127.0.0.1:8080".to_owned(),
            admin_listen: "127.0.0.1:9090".to_owned(),
            base_path: "/api/v1".to_owned(),
            threads: 2,
            data_dir: "data".into(),
            store: None,
            catalogue: "conf/catalogue.yaml".into(),
            markup: Markup::default(),
            currency: "USD".to_owned(),
            key_prefix: "tg_".to_owned(),
            providers: BTreeMap::new(),
            tiers: RawTiers::default(),
            timeouts: RawTimeouts::default(),
            body_bytes_max: 32 << 20,
            tls: None,
            drain_seconds: 120,
            unready_seconds: 0,
            access_log: "stdout".to_owned(),
            audit_seconds: 300,
            catalogue_refresh: None,
            traces: None,
            trusted_proxies: Vec::new(),
            auth_failures_per_minute: 60,
            connections_max: 10_000,
            connections_per_address_max: 1_000,
        }
    }
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read, has an unknown key (the nearest known one is named), or a value that makes no sense.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = read(path)?;
        Config::parse(path, &text, &environment)
    }

    /// The same from text; `environment` gives the credentials.
    pub fn parse(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let raw: Raw = if text.trim().is_empty() {
            Raw::default()
        } else {
            serde_yaml_ng::from_str(text).map_err(|error| ConfigError::of_yaml(path, text, &error))?
        };
        checked(path, raw, environment).map_err(|problem| {
            let line = line_of(text, &problem);
            ConfigError::new(path, problem).at(line)
        })
    }

    /// Reads the catalogue that the configuration names: all of it, whatever providers have credentials.
    ///
    /// # Errors
    /// As [`Catalogue::parse`], and when a target names a provider that is not configured.
    pub fn load_catalogue(&self) -> Result<Catalogue, ConfigError> {
        self.catalogue_of(&read(&self.catalogue)?)
    }

    /// The same of a text that is, or is to be, the catalogue's.
    ///
    /// # Errors
    /// As [`Config::load_catalogue`].
    pub fn catalogue_of(&self, text: &str) -> Result<Catalogue, ConfigError> {
        match self.read_catalogue(text) {
            (Some(catalogue), mistakes) if mistakes.is_empty() => Ok(catalogue),
            (_, mistakes) => {
                let first = mistakes.into_iter().next();
                Err(first.unwrap_or_else(|| ConfigError::new(&self.catalogue, "it cannot be read")))
            }
        }
    }

    /// All that is wrong with a text that is, or is to be, the catalogue's.
    pub fn catalogue_mistakes(&self, text: &str) -> Vec<ConfigError> {
        self.read_catalogue(text).1
    }

    fn read_catalogue(&self, text: &str) -> (Option<Catalogue>, Vec<ConfigError>) {
        let fail = |line: Option<usize>, problem: String| ConfigError::new(&self.catalogue, problem).at(line);
        let (catalogue, found) = match Catalogue::read(text, self.markup) {
            Ok(read) => read,
            Err(error) => {
                let (problem, line) = placed(&explain(&error.to_string()));
                return (None, vec![fail(line, problem)]);
            }
        };
        let mut mistakes: Vec<ConfigError> = found
            .iter()
            .map(|error| fail(error.line(text), error.to_string()))
            .collect();
        for model in catalogue.models() {
            let unknown = model
                .targets
                .iter()
                .find(|target| !self.providers.contains_key(&target.provider));
            if let Some(target) = unknown {
                let (id, provider) = (&model.id, &target.provider);
                let near = nearest(provider, self.providers.keys().map(String::as_str));
                mistakes.push(fail(
                    lines::of_entry(text, id, "targets").map(|at| lines::of_text(text, at, provider)),
                    format!("{id}: its target names the provider {provider}, which is not configured{near}"),
                ));
            }
        }
        (Some(catalogue), mistakes)
    }

    /// When the catalogue's file was changed last; nothing when that is not known.
    pub fn catalogue_modified(&self) -> Option<Timestamp> {
        let modified = std::fs::metadata(&self.catalogue).and_then(|file| file.modified());
        modified.ok().map(crate::clock::timestamp)
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

impl ConfigError {
    /// A mistake somewhere in the file.
    pub fn new(path: &Path, problem: impl Into<String>) -> ConfigError {
        ConfigError {
            path: path.to_owned(),
            line: None,
            problem: problem.into(),
        }
    }

    /// The same on this line.
    pub fn at(self, line: Option<usize>) -> ConfigError {
        ConfigError { line, ..self }
    }

    fn of_yaml(path: &Path, text: &str, error: &serde_yaml_ng::Error) -> ConfigError {
        let (problem, line) = placed(&explain(&error.to_string()));
        // The reader does not tell the line of a key at the top that it does not know.
        let line = line.or_else(|| {
            let key = mistakes::key_of(&problem)?;
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            lines::of_key(text, &key)
        });
        ConfigError::new(path, problem).at(line)
    }
}

impl Provider {
    /// Whether it can be asked at all.
    pub fn is_on(&self) -> bool {
        !matches!(self.credential, Credential::Missing(_))
    }
}

impl BaseUrl {
    /// Takes an address apart.
    pub fn parse(text: &str) -> Result<BaseUrl, String> {
        let bad = || format!("{text:?} is not an address such as https://api.example.com/v1");
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(bad()),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let url: http::Uri = format!("{scheme}://{authority}/").parse().map_err(|_| bad())?;
        let host = url.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        if authority.contains('@') || path.contains(['?', '#']) {
            return Err(bad());
        }
        let own_port = if tls { 443 } else { 80 };
        let port = url.port_u16().unwrap_or(own_port);
        let authority = if port == own_port {
            host.to_owned()
        } else {
            format!("{host}:{port}")
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(BaseUrl {
            tls,
            host,
            port,
            authority,
            path: path.trim_end_matches('/').to_owned(),
        })
    }
}

/// A variable of this process's environment; nothing when it is not set or not UTF-8.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn checked(path: &Path, raw: Raw, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, String> {
    let base_path = raw.base_path.trim_end_matches('/').to_owned();
    if !(base_path.is_empty() || base_path.starts_with('/')) || base_path.contains(['?', '#', ' ']) {
        return Err(format!(
            "base_path: {base_path:?} must begin with / and be a plain path"
        ));
    }
    if !(1..=256).contains(&raw.threads) {
        return Err(format!("threads: {} is not from 1 to 256", raw.threads));
    }
    if !(1024..=1 << 30).contains(&raw.body_bytes_max) {
        return Err(format!(
            "body_bytes_max: {} is not from 1024 to 1073741824",
            raw.body_bytes_max
        ));
    }
    if raw.key_prefix.is_empty()
        || !raw
            .key_prefix
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    {
        return Err(format!(
            "key_prefix: {:?} must be 1 or more of A-Z a-z 0-9 _ -",
            raw.key_prefix
        ));
    }
    if raw.auth_failures_per_minute == 0 || raw.connections_max == 0 || raw.connections_per_address_max == 0 {
        return Err(
            "auth_failures_per_minute, connections_max and connections_per_address_max must be 1 or more".to_owned(),
        );
    }
    let proxies = raw.trusted_proxies.iter().map(|text| text.parse());
    let trusted_proxies = proxies
        .collect::<Result<Vec<Network>, _>>()
        .map_err(|error| format!("trusted_proxies: {error}"))?;
    let mut providers = BTreeMap::new();
    for (name, provider) in raw.providers {
        let provider = checked_provider(&name, provider, environment).map_err(|e| format!("providers.{name}: {e}"))?;
        providers.insert(name, provider);
    }
    let catalogue_refresh = raw
        .catalogue_refresh
        .map(|refresh| checked_refresh(refresh, &providers))
        .transpose()?;
    let traces = raw
        .traces
        .map(|traces| traces::checked(traces, environment))
        .transpose()?;
    let store = match raw.store {
        Some(text) => checked_store(&text)?,
        None => Store::Sqlite(raw.data_dir.join("ledger.db")),
    };
    Ok(Config {
        path: path.to_owned(),
        listen: address("listen", &raw.listen)?,
        admin_listen: address("admin_listen", &raw.admin_listen)?,
        base_path,
        threads: raw.threads,
        data_dir: raw.data_dir,
        store,
        catalogue: raw.catalogue,
        markup: raw.markup,
        currency: raw.currency,
        key_prefix: raw.key_prefix,
        providers,
        tiers: checked_tiers(&raw.tiers)?,
        timeouts: checked_timeouts(&raw.timeouts)?,
        body_bytes_max: raw.body_bytes_max,
        tls: raw.tls,
        drain: Duration::from_secs(raw.drain_seconds.min(86_400)),
        trusted_proxies,
        auth_failures_per_minute: raw.auth_failures_per_minute,
        connections_max: raw.connections_max,
        connections_per_address_max: raw.connections_per_address_max,
        unready: Duration::from_secs(raw.unready_seconds.min(3_600)),
        access_log: checked_log(raw.access_log)?,
        audit_every: Duration::from_secs(raw.audit_seconds.min(86_400)),
        catalogue_refresh,
        traces: traces.unwrap_or_default(),
    })
}

fn checked_refresh(raw: RawRefresh, providers: &BTreeMap<String, Provider>) -> Result<Refresh, String> {
    if !providers.contains_key(&raw.provider) {
        let near = nearest(&raw.provider, providers.keys().map(String::as_str));
        return Err(format!(
            "catalogue_refresh.provider: {} is not configured{near}",
            raw.provider
        ));
    }
    if !(1..=525_600).contains(&raw.every_minutes) {
        return Err(format!(
            "catalogue_refresh.every_minutes: {} is not from 1 to 525600",
            raw.every_minutes
        ));
    }
    Ok(Refresh {
        provider: raw.provider,
        rules: raw.rules,
        every: Duration::from_secs(raw.every_minutes.saturating_mul(60)),
    })
}

fn checked_log(text: String) -> Result<AccessLog, String> {
    match text.as_str() {
        "off" => Ok(AccessLog::Off),
        "stdout" => Ok(AccessLog::Stdout),
        "" => Err("access_log: it must be stdout, off, or a file's path".to_owned()),
        _ => Ok(AccessLog::File(text.into())),
    }
}

fn checked_provider(
    name: &str,
    raw: RawProvider,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Provider, String> {
    let credential = match raw.api_key_env {
        None => Credential::None,
        Some(variable) => match environment(&variable)
            .map(|text| text.trim().to_owned())
            .filter(|t| !t.is_empty())
        {
            Some(text) if http::HeaderValue::from_str(&text).is_ok() => Credential::Bearer(text),
            Some(_) => return Err(format!("the value of {variable} cannot stand in a header")),
            None => Credential::Missing(variable),
        },
    };
    for (header, value) in &raw.headers {
        let good =
            http::HeaderName::from_bytes(header.as_bytes()).is_ok() && http::HeaderValue::from_str(value).is_ok();
        if !good {
            return Err(format!("headers: {header:?} is not a header name with a plain value"));
        }
    }
    Ok(Provider {
        name: name.to_owned(),
        base_url: BaseUrl::parse(&raw.base_url).map_err(|e| format!("base_url: {e}"))?,
        credential,
        on_disconnect: raw.on_disconnect,
        allow_fields: raw.allow_fields,
        headers: raw.headers,
        ca_file: raw.ca_file,
        http2: raw.http2,
    })
}

fn checked_store(text: &str) -> Result<Store, String> {
    const REDIS: [&str; 4] = ["redis://", "rediss://", "redis+cluster://", "redis+sentinel://"];
    if let Some(path) = text.strip_prefix("sqlite://").filter(|path| !path.is_empty()) {
        return Ok(Store::Sqlite(path.into()));
    }
    if REDIS.iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(Store::Redis(text.to_owned()));
    }
    Err(format!(
        "store: {text:?} is not sqlite://PATH or one of {}…",
        REDIS.join("… ")
    ))
}

fn checked_tiers(raw: &RawTiers) -> Result<[TierRules; 4], String> {
    let rules = |name: &str, raw: &RawTier, rpm: u64, tpm: u64, concurrency: u64, quota: i64| {
        let limits = Limits {
            rpm: raw.rpm.unwrap_or(rpm),
            tpm: raw.tpm.unwrap_or(tpm),
            concurrency: raw.concurrency.unwrap_or(concurrency),
        };
        if [limits.rpm, limits.tpm, limits.concurrency].contains(&0) {
            return Err(format!("tiers.{name}: a limit must be at least 1"));
        }
        if limits.rpm.max(limits.tpm).max(limits.concurrency) > 1 << 53 {
            return Err(format!("tiers.{name}: a limit is too large"));
        }
        let monthly_quota = raw
            .monthly_quota
            .unwrap_or(Credits::from_pico(quota.saturating_mul(1_000_000_000_000)));
        if monthly_quota < Credits::ZERO {
            return Err(format!("tiers.{name}.monthly_quota: cannot be negative"));
        }
        Ok(TierRules { limits, monthly_quota })
    };
    Ok([
        rules("free", &raw.free, 20, 40_000, 4, 10)?,
        rules("lite", &raw.lite, 60, 200_000, 8, 100)?,
        rules("pro", &raw.pro, 600, 2_000_000, 32, 1_000)?,
        rules("enterprise", &raw.enterprise, 6_000, 20_000_000, 256, 100_000)?,
    ])
}

fn checked_timeouts(raw: &RawTimeouts) -> Result<Timeouts, String> {
    let millis = |name: &str, value: u64| {
        if (1..=86_400_000).contains(&value) {
            Ok(Duration::from_millis(value))
        } else {
            Err(format!("timeouts.{name}: {value} is not from 1 to 86400000"))
        }
    };
    Ok(Timeouts {
        connect: millis("connect_ms", raw.connect_ms)?,
        first_byte: millis("first_byte_ms", raw.first_byte_ms)?,
        idle: millis("idle_ms", raw.idle_ms)?,
        comment: match raw.comment_ms {
            0 => None,
            value => Some(millis("comment_ms", value)?),
        },
        head: millis("head_ms", raw.head_ms)?,
        body: millis("body_ms", raw.body_ms)?,
        write: millis("write_ms", raw.write_ms)?,
        keepalive: millis("keepalive_ms", raw.keepalive_ms)?,
    })
}

fn address(key: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{key}: {text:?} is not an address such as 127.0.0.1:8080"))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))
}

/// Puts the nearest known key behind serde's message about an unknown one, in place of the whole list.
fn explain(message: &str) -> String {
    let Some((before, rest)) = message.split_once("unknown field `") else {
        return message.to_owned();
    };
    let Some((unknown, rest)) = rest.split_once('`') else {
        return message.to_owned();
    };
    let known = rest.split('`').skip(1).step_by(2);
    let place = rest
        .rsplit_once(" at line")
        .map(|(_, place)| format!(" at line{place}"))
        .unwrap_or_default();
    format!("{before}unknown key {unknown}{}{place}", nearest(unknown, known))
}

/// A message of the YAML reader without the place at its end, and the line.
fn placed(message: &str) -> (String, Option<usize>) {
    let Some((problem, place)) = message.rsplit_once(" at line ") else {
        return (message.to_owned(), None);
    };
    match place.split(' ').next().map(str::parse) {
        Some(Ok(line)) => (problem.to_owned(), Some(line)),
        _ => (message.to_owned(), None),
    }
}

/// The line of the key that a problem begins with, such as `providers.openai: …`.
fn line_of(text: &str, problem: &str) -> Option<usize> {
    let (path, _) = problem.split_once(": ")?;
    let path: Vec<&str> = path.split('.').collect();
    lines::of_key(text, &path)
}

fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(3) / 2)
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

fn import_rules() -> PathBuf {
    "conf/import.yaml".into()
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests;
