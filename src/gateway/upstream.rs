//! Upstreams: where a provider is reached, which of its addresses are known, and whether a target has failed lately.
//!
//! Names are resolved on a thread of their own, never on a worker; a name that stops resolving keeps its last addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use pingora::protocols::ALPN;
use pingora::protocols::TcpKeepalive;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::FromDer;

use crate::config::{BaseUrl, Config, ConfigError, Credential, Provider, Timeouts};
use crate::pure::chat::{CapField, FieldRules};
use crate::pure::time::Timestamp;

/// A provider, ready to be asked.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) provider: Provider,
    /// The provider's name, for metrics.
    pub(super) name: Arc<str>,
    pub(super) place: Arc<Addresses>,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) rules: FieldRules,
    pub(super) cap_field: CapField,
    /// Headers that the configuration adds.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    ca: Option<Arc<CaType>>,
    timeouts: Timeouts,
}

/// The addresses of one host, kept fresh.
#[derive(Debug)]
pub(super) struct Addresses {
    url: BaseUrl,
    known: ArcSwap<Vec<SocketAddr>>,
    next: AtomicUsize,
    /// By provider and upstream model.
    breakers: Mutex<HashMap<String, Arc<Breaker>>>,
}

/// A target's passive breaker: it opens after failures in a row, or for as long as the upstream asks.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: AtomicU32,
    open_until: AtomicI64,
}

/// By host, port and whether TLS is spoken.
type Hosts = HashMap<(String, u16, bool), Arc<Addresses>>;

/// All hosts, over reloads.
#[derive(Clone, Debug, Default)]
pub struct Upstreams {
    hosts: Arc<Mutex<Hosts>>,
}

impl Upstreams {
    /// Starts the thread that keeps addresses fresh; it ends when the last handle is dropped.
    pub fn start() -> std::io::Result<Upstreams> {
        let upstreams = Upstreams::default();
        let hosts = Arc::downgrade(&upstreams.hosts);
        std::thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || refresh(&hosts))?;
        Ok(upstreams)
    }

    /// The configured providers that are on; hosts that were known keep their addresses and breakers.
    pub(super) fn for_config(&self, config: &Config) -> Result<BTreeMap<String, Arc<Upstream>>, ConfigError> {
        let mut upstreams = BTreeMap::new();
        for provider in config.providers.values().filter(|provider| provider.is_on()) {
            let fail =
                |problem: String| ConfigError::new(&config.path, format!("providers.{}: {problem}", provider.name));
            let upstream = Upstream {
                place: self.host(&provider.base_url),
                authorization: authorization(&provider.credential).map_err(fail)?,
                rules: FieldRules::allowing(provider.allow_fields.iter().map(String::as_str))
                    .map_err(|error| fail(format!("allow_fields: {error}")))?,
                cap_field: cap_field(&provider.base_url),
                headers: headers(&provider.headers).map_err(fail)?,
                ca: provider.ca_file.as_deref().map(read_ca).transpose().map_err(fail)?,
                timeouts: config.timeouts,
                name: Arc::from(provider.name.as_str()),
                provider: provider.clone(),
            };
            upstreams.insert(provider.name.clone(), Arc::new(upstream));
        }
        Ok(upstreams)
    }

    fn host(&self, url: &BaseUrl) -> Arc<Addresses> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (url.host.clone(), url.port, url.tls);
        let new = || {
            let addresses = Addresses {
                url: url.clone(),
                known: ArcSwap::default(),
                next: AtomicUsize::new(0),
                breakers: Mutex::default(),
            };
            // Plain addresses need no resolver; names are looked up by its thread at once.
            if let Ok(ip) = url.host.parse() {
                addresses.known.store(Arc::new(vec![SocketAddr::new(ip, url.port)]));
            }
            Arc::new(addresses)
        };
        Arc::clone(hosts.entry(key).or_insert_with(new))
    }

    /// Resolves what is not known yet; blocks. For start-up, before the first request.
    pub fn resolve_unknown(&self) {
        for host in all(&self.hosts) {
            if host.known.load().is_empty() {
                host.resolve();
            }
        }
    }
}

impl Addresses {
    fn resolve(&self) {
        match (self.url.host.as_str(), self.url.port).to_socket_addrs() {
            Ok(found) => {
                // The resolver puts what this machine can reach best first (RFC 6724); the other family is left out.
                let mut found: Vec<SocketAddr> = found.collect();
                let reachable = found.first().is_some_and(SocketAddr::is_ipv6);
                found.retain(|address| address.is_ipv6() == reachable);
                found.sort();
                found.dedup();
                if !found.is_empty() && **self.known.load() != found {
                    log::info!("{} is at {found:?}", self.url.host);
                    self.known.store(Arc::new(found));
                }
            }
            Err(error) => log::warn!("{} cannot be resolved: {error}", self.url.host),
        }
    }

    /// The next of the known addresses, in turn.
    fn pick(&self) -> Option<SocketAddr> {
        let known = self.known.load();
        let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(known.len())?;
        known.get(turn).copied()
    }

    /// How many addresses are known.
    pub(super) fn count(&self) -> usize {
        self.known.load().len()
    }

    /// The breaker of a target, which outlives reloads.
    fn breaker(&self, provider: &str, model: &str) -> Arc<Breaker> {
        let model = format!("{provider}\n{model}");
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = breakers.get(&model) {
            return Arc::clone(breaker);
        }
        Arc::clone(breakers.entry(model).or_default())
    }
}

impl Upstream {
    /// The breaker of one of the provider's models.
    pub(super) fn breaker(&self, model: &str) -> Arc<Breaker> {
        self.place.breaker(&self.provider.name, model)
    }

    /// A peer for Pingora, with every time-out set. None when no address is known.
    pub(super) fn peer(&self) -> Option<HttpPeer> {
        let url = &self.provider.base_url;
        let mut peer = HttpPeer::new(
            self.place.pick()?,
            url.tls,
            if url.tls { url.host.clone() } else { String::new() },
        );
        let options = &mut peer.options;
        options.connection_timeout = Some(self.timeouts.connect);
        options.total_connection_timeout = Some(self.timeouts.connect.saturating_mul(2));
        // The wait for the answer's first byte; silence after it is the buffered session's to notice.
        options.read_timeout = Some(self.timeouts.first_byte.max(self.timeouts.idle));
        options.write_timeout = Some(self.timeouts.write);
        options.idle_timeout = Some(POOLED_IDLE);
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            count: 3,
            #[cfg(target_os = "linux")]
            user_timeout: Duration::ZERO,
        });
        if url.tls && self.provider.http2 {
            options.alpn = ALPN::H2H1;
            options.max_h2_streams = 100;
            options.h2_ping_interval = Some(Duration::from_secs(30));
        }
        options.ca.clone_from(&self.ca);
        Some(peer)
    }
}

impl Breaker {
    /// Whether the target should be passed over.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now.0 < self.open_until.load(Ordering::Relaxed)
    }

    /// When it closes again, in milliseconds since 1970; in the past when it is closed.
    pub(super) fn open_until(&self) -> i64 {
        self.open_until.load(Ordering::Relaxed)
    }

    /// The target answered.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The target failed; it may have said for how long.
    pub(super) fn failed(&self, now: Timestamp, retry_after_secs: Option<u64>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let asked = retry_after_secs.map(|secs| secs.min(RETRY_AFTER_SECS_MAX).saturating_mul(1000));
        let pause = match asked {
            Some(millis) => i64::try_from(millis).unwrap_or(0),
            None if failures >= FAILURES_IN_A_ROW => COOL_DOWN_MS,
            None => return,
        };
        self.open_until.fetch_max(now.plus_millis(pause).0, Ordering::Relaxed);
    }
}

fn authorization(credential: &Credential) -> Result<Option<HeaderValue>, String> {
    let Credential::Bearer(text) = credential else {
        return Ok(None);
    };
    let mut value = HeaderValue::from_str(&format!("Bearer {text}"))
        .map_err(|_| "the credential cannot stand in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The configuration's own headers; those that the request's framing and authority rest on cannot be among them.
fn headers(configured: &BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    const OURS: [&str; 7] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "expect",
    ];
    let header = |(name, value): (&String, &String)| {
        let bad = || format!("headers: {name:?} cannot be set");
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        if OURS.contains(&parsed.as_str()) {
            return Err(bad());
        }
        Ok((parsed, HeaderValue::from_str(value).map_err(|_| bad())?))
    };
    configured.iter().map(header).collect()
}

/// OpenAI's reasoning models take only the newer name of the limit; nearly everyone else reads the older one.
fn cap_field(url: &BaseUrl) -> CapField {
    if url.host == "api.openai.com" {
        CapField::MaxCompletionTokens
    } else {
        CapField::MaxTokens
    }
}

/// Reads the certificates of a private authority; each must parse, for Pingora takes that as given.
fn read_ca(path: &std::path::Path) -> Result<Arc<CaType>, String> {
    let fail = |error: String| format!("ca_file {}: {error}", path.display());
    let mut certificates = Vec::new();
    for der in CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))? {
        let der = der.map_err(|error| fail(error.to_string()))?.to_vec();
        x509_parser::certificate::X509Certificate::from_der(&der).map_err(|error| fail(error.to_string()))?;
        certificates.push(WrappedX509::new(der, parse_x509));
    }
    if certificates.is_empty() {
        return Err(fail("no certificate in it".to_owned()));
    }
    Ok(certificates.into())
}

fn all(hosts: &Mutex<Hosts>) -> Vec<Arc<Addresses>> {
    hosts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .values()
        .cloned()
        .collect()
}

fn refresh(hosts: &Weak<Mutex<Hosts>>) {
    loop {
        let Some(hosts) = hosts.upgrade() else { return };
        for host in all(&hosts) {
            if host.url.host.parse::<std::net::IpAddr>().is_err() {
                host.resolve();
            }
        }
        drop(hosts);
        std::thread::sleep(RESOLVE_EVERY);
    }
}

/// Below the idle time-out that providers commonly have, so that a pooled connection is rarely stale.
const POOLED_IDLE: Duration = Duration::from_secs(55);
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
const FAILURES_IN_A_ROW: u32 = 5;
const COOL_DOWN_MS: i64 = 10_000;
const RETRY_AFTER_SECS_MAX: u64 = 120;
