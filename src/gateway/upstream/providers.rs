//! Upstreams: what is needed to ask a provider. `net::dns` knows the addresses of its host, `circuit_breaker` whether a target has failed lately.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use once_cell::sync::OnceCell;
use pingora::protocols::ALPN;
use pingora::protocols::TcpKeepalive;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer;

use super::circuit_breaker::Breaker;
use crate::config::{BaseUrl, Config, ConfigError, CostFrom, Credential, Provider, Timeouts};
use crate::gateway::media_type::{EVENT_STREAM, JSON};
use crate::net::certificates::pem_problem;
use crate::net::dns::{Addresses, Resolver};
use crate::pure::money::Markup;
use crate::pure::request_body::{FieldRules, ResponseMode};
use crate::telemetry::trace::Server;

/// A provider, ready to be asked.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) provider: Provider,
    /// The provider's name, for metrics.
    pub(crate) name: Arc<str>,
    /// Where it is, for traces.
    pub(crate) server: Arc<Server>,
    pub(crate) host: Arc<Host>,
    pub(crate) parts: Parts,
    /// The markup on the provider's own cost of a call, where that is what is billed.
    pub(crate) cost_markup: Option<Markup>,
    timeouts: Timeouts,
}

/// What is read out of a provider's configuration, and may be wrong there.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) rules: FieldRules,
    /// What the head of each of its requests has, with a length that stands for that of the body.
    whole: HeaderMap,
    /// The same of those that ask for a stream.
    stream: HeaderMap,
    pub(crate) chat: Uri,
    pub(crate) embeddings: Uri,
    ca: Option<Authorities>,
}

/// The certificates of a private authority.
#[derive(Debug)]
struct Authorities {
    certificates: Arc<CaType>,
    /// Tells connections that were made by these from those that were made by others, which nothing says are to be trusted.
    key: u64,
}

/// One host that providers are reached at.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) addresses: Arc<Addresses>,
    /// By provider and upstream model.
    breakers: Mutex<HashMap<String, Arc<Breaker>>>,
}

/// By host, port and whether TLS is spoken.
type Hosts = HashMap<(String, u16, bool), Arc<Host>>;

/// All hosts, over reloads. No name is resolved before the gateway has started.
#[derive(Clone, Debug, Default)]
pub struct Upstreams {
    hosts: Arc<Mutex<Hosts>>,
    resolver: Arc<OnceCell<Resolver>>,
}

impl Upstreams {
    /// No hosts yet, and how names are resolved.
    pub fn new(resolver: Resolver) -> Upstreams {
        let upstreams = Upstreams::default();
        upstreams.resolve(resolver);
        upstreams
    }

    /// Begins to resolve the names of all hosts, each on a thread of its own. A second call does nothing.
    pub(crate) fn resolve(&self, resolver: Resolver) {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(resolver) = self.resolver.try_insert(resolver) {
            hosts.values().for_each(|host| host.addresses.keep_fresh(resolver));
        }
    }

    /// The configured providers that are on; hosts that were known keep their addresses and breakers. Those that nothing uses any more are
    /// forgotten: no configuration, and no call that still runs with an old one.
    ///
    /// # Errors
    /// With the first of [`problems`], also of a provider that is off: it would come up when its credential does.
    pub(crate) fn for_config(&self, config: &Config) -> Result<BTreeMap<String, Arc<Upstream>>, ConfigError> {
        let mut upstreams = BTreeMap::new();
        for provider in config.providers.values() {
            let parts = Parts::of(provider).map_err(|problem| config.mistake(problem))?;
            if provider.is_on() {
                let name: Arc<str> = Arc::from(provider.name.as_str());
                let server = Server {
                    provider: Arc::clone(&name),
                    address: provider.base_url.host.clone(),
                    port: provider.base_url.port,
                };
                let upstream = Upstream {
                    host: self.host(&provider.base_url),
                    parts,
                    cost_markup: (provider.cost_from == CostFrom::Usage).then_some(config.markup),
                    timeouts: config.timeouts,
                    name,
                    server: Arc::new(server),
                    provider: provider.clone(),
                };
                upstreams.insert(provider.name.clone(), Arc::new(upstream));
            }
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, host| Arc::strong_count(host) > 1);
        drop(hosts);
        Ok(upstreams)
    }

    fn host(&self, url: &BaseUrl) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (url.host.clone(), url.port, url.tls);
        let new = || {
            let addresses = Addresses::of(&url.host, url.port);
            if let Some(resolver) = self.resolver.get() {
                addresses.keep_fresh(resolver);
            }
            Arc::new(Host {
                addresses,
                breakers: Mutex::default(),
            })
        };
        Arc::clone(hosts.entry(key).or_insert_with(new))
    }

    /// Waits until each name was asked for once, but not for longer than 3 seconds: a name that does not answer must not keep the
    /// others' models away. Blocks; for start-up, before the first request.
    pub fn wait_for_names(&self) {
        let deadline = crate::clock::monotonic()
            .checked_add(FIRST_ANSWERS_MAX)
            .unwrap_or_else(crate::clock::monotonic);
        let hosts: Vec<Arc<Host>> = {
            let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.values().cloned().collect()
        };
        for host in hosts.iter().filter(|_| self.resolver.get().is_some()) {
            host.addresses.wait_for_first_answer(deadline);
        }
    }
}

impl Host {
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
    pub(crate) fn breaker(&self, model: &str) -> Arc<Breaker> {
        self.host.breaker(&self.provider.name, model)
    }

    /// A peer for Pingora at this address of its host, with every other time-out set.
    pub(crate) fn peer_at(&self, address: SocketAddr) -> HttpPeer {
        let url = &self.provider.base_url;
        let mut peer = HttpPeer::new(address, url.tls, if url.tls { url.host.clone() } else { String::new() });
        let options = &mut peer.options;
        options.connection_timeout = Some(self.timeouts.connect);
        options.total_connection_timeout = Some(self.timeouts.connect.saturating_mul(2));
        // Its idle time is for the transport to notice, with one clock for the whole call and not one for each read.
        options.write_timeout = Some(self.timeouts.write);
        options.idle_timeout = Some(POOLED_IDLE);
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            count: 3,
            #[cfg(target_os = "linux")]
            user_timeout: Duration::ZERO,
        });
        if offers_http2(&self.provider) {
            options.alpn = ALPN::H2H1;
            options.max_h2_streams = HTTP2_STREAMS_MAX;
            options.h2_stream_window_size = Some(HTTP2_STREAM_WINDOW_BYTES);
            options.h2_connection_window_size = Some(HTTP2_CONNECTION_WINDOW_BYTES);
        }
        if let Some(ca) = &self.parts.ca {
            options.ca = Some(Arc::clone(&ca.certificates));
            peer.group_key = ca.key;
        }
        peer
    }
}

/// What is wrong with the configured providers; each would keep the gateway from starting.
pub(crate) fn problems(config: &Config) -> Vec<String> {
    config
        .providers
        .values()
        .filter_map(|provider| Parts::of(provider).err())
        .collect()
}

impl Parts {
    /// What the head of a request has, with a length that stands for that of the body.
    pub(crate) fn headers(&self, mode: ResponseMode) -> &HeaderMap {
        match mode {
            ResponseMode::Whole => &self.whole,
            ResponseMode::Stream => &self.stream,
        }
    }

    fn of(provider: &Provider) -> Result<Parts, String> {
        let at = |problem: String| format!("providers.{}: {problem}", provider.name);
        let allowed = FieldRules::allowing(provider.allow_fields.iter().map(String::as_str));
        let allowed = allowed.map_err(|error| at(format!("allow_fields: {error}")))?;
        Ok(Parts {
            rules: allowed.of_who_keeps_by_default(provider.base_url.is_within("openai.com")),
            whole: headers(provider, JSON).map_err(at)?,
            stream: headers(provider, EVENT_STREAM).map_err(at)?,
            chat: uri(&provider.base_url, "/chat/completions").map_err(at)?,
            embeddings: uri(&provider.base_url, "/embeddings").map_err(at)?,
            ca: provider.ca_file.as_deref().map(authorities).transpose().map_err(at)?,
        })
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

fn uri(base: &BaseUrl, path: &str) -> Result<Uri, String> {
    let path = format!("{}{path}", base.path);
    path.parse()
        .map_err(|_| format!("base_url: {path:?} is no path of a request"))
}

/// The headers of each request: ours, and the configuration's own. Those that the request's framing and authority rest on cannot be among
/// these, nor those of one connection where it may be one over HTTP/2, which has none of them (RFC 9113 section 8.2.2).
fn headers(provider: &Provider, accept: HeaderValue) -> Result<HeaderMap, String> {
    const OURS: [&str; 7] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "expect",
    ];
    let authority = provider.base_url.authority.as_str();
    let host = HeaderValue::from_str(authority).map_err(|_| format!("base_url: {authority:?} is no host"))?;
    // Each request has a copy of them, which is not to grow for what is added to it.
    let mut headers = HeaderMap::with_capacity(provider.headers.len().saturating_add(HEADERS));
    headers.extend([
        (header::HOST, host),
        (header::CONTENT_TYPE, JSON),
        (header::CONTENT_LENGTH, HeaderValue::from(0)),
        (header::ACCEPT, accept),
        (header::ACCEPT_ENCODING, IDENTITY),
        (header::USER_AGENT, USER_AGENT),
    ]);
    if let Some(authorization) = authorization(&provider.credential)? {
        headers.insert(header::AUTHORIZATION, authorization);
    }
    for (name, value) in &provider.headers {
        let bad = || format!("headers: {name:?} cannot be set");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let is_bad = match name.as_str() {
            // Anything else asks for an encoding of the answer that is not read.
            "te" => value.as_str() != "trailers",
            "keep-alive" | "proxy-connection" | "upgrade" => offers_http2(provider),
            name => OURS.contains(&name),
        };
        if is_bad {
            return Err(bad());
        }
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| bad())?);
    }
    Ok(headers)
}

/// Whether a provider is asked over HTTP/2, where it chooses that.
fn offers_http2(provider: &Provider) -> bool {
    provider.base_url.tls && provider.http2
}

/// Reads the certificates of a private authority; each must parse, for Pingora takes that as given.
pub(crate) fn read_ca(path: &std::path::Path) -> Result<Arc<CaType>, String> {
    let fail = |error: String| format!("ca_file: {}: {error}", path.display());
    let mut certificates = Vec::new();
    for der in CertificateDer::pem_file_iter(path).map_err(|error| fail(pem_problem(&error)))? {
        let der = der.map_err(|error| fail(pem_problem(&error)))?.to_vec();
        x509_parser::certificate::X509Certificate::from_der(&der).map_err(|error| fail(error.to_string()))?;
        certificates.push(WrappedX509::new(der, parse_x509));
    }
    if certificates.is_empty() {
        return Err(fail("no certificate in it".to_owned()));
    }
    Ok(certificates.into())
}

fn authorities(path: &std::path::Path) -> Result<Authorities, String> {
    let certificates = read_ca(path)?;
    let mut digest = Sha256::new();
    for certificate in certificates.iter() {
        digest.update(certificate.borrow_raw_cert());
    }
    let digest: [u8; 32] = digest.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    Ok(Authorities {
        certificates,
        key: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
    })
}

/// Headers that a request has beside the configuration's: a capacity, not a limit.
const HEADERS: usize = 12;
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
/// Below the idle time-out that providers commonly have, so that a pooled connection is rarely stale.
const POOLED_IDLE: Duration = Duration::from_secs(55);
/// Streams of one connection over HTTP/2 at most.
const HTTP2_STREAMS_MAX: usize = 100;
/// How much of an answer may come before its client has taken it: of all streams of a connection 25 MiB, which is the memory that they
/// take at most, beside what h2 keeps for each frame.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same of a connection. The windows of its streams together never use it up: a stream is not read while its client takes nothing,
/// and a few such clients would else stop the answers of all others on the connection. Half of it is also what h2 lets small DATA frames
/// that are not read come to, each by what it lacks to 256 bytes, before it ends the connection: all streams may be full of frames of
/// 42 bytes, and what h2 keeps for frames that are smaller is bounded.
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1 << 28;
/// How long a start waits for the addresses of providers.
const FIRST_ANSWERS_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
