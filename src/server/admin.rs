//! The admin listener: liveness, readiness, metrics, and the status page. It has a thread and a runtime of its own, so that it answers until the process
//! ends or another takes over. `/readyz` says 503 until clients can connect, and during a stop while the calls that still run come to their end.
//! In a host's server it does not know where clients connect: there it is ready as soon as it answers, for the books are open by then.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use pingora::apps::ServerApp;
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::stream::Stream as L4Stream;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::admin_connections::AdminConnections;
use super::admin_host::{NOT_OURS, is_ours};
use super::audit_task::Audited;
use super::pending_listener::{Accepting, PendingListener};
use super::socket::reachable;
use crate::clock::Clock;
use crate::gateway::access::body_memory::BodyMemory;
use crate::gateway::media_type::{HTML, JSON};
use crate::gateway::shutdown::Lifecycle;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Ledger;
use crate::ledger::journal::Journal;
use crate::pure::time::Timestamp;
use crate::telemetry::Telemetry;
use crate::telemetry::exposition::{self, Gauges};
use crate::telemetry::status::{Process, Sample, Series, Status};

/// What the admin listener answers from.
pub struct Admin {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) audited: Arc<Audited>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) body_memory: Arc<BodyMemory>,
    pub(crate) started: Timestamp,
    pub(crate) series: Mutex<Series>,
    /// Where the gateway itself listens for clients; none in a host's server, whose listeners it does not know.
    pub(crate) clients_at: Option<SocketAddr>,
    /// It was seen to take connections from clients.
    pub(crate) listens: AtomicBool,
}

impl Admin {
    /// The metrics, as Prometheus reads them.
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub fn metrics(&self) -> Result<String, prometheus::Error> {
        exposition::page(&self.telemetry.figures(), &self.gauges())
    }

    /// Serves at `listener` until the process ends.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn listen(self: Arc<Admin>, listener: PendingListener) -> std::io::Result<()> {
        listener.serve("admin", async move |listener| self.serve_on(listener).await)
    }

    /// Serves connections of `listener`, each in a task of its own, until another process takes over.
    pub async fn serve(self, listener: tokio::net::TcpListener) {
        Arc::new(self).serve_on(listener).await;
    }

    async fn serve_on(self: Arc<Admin>, listener: tokio::net::TcpListener) {
        let mut accepting = Accepting::new("admin_listen", listener, self.life.handed_over());
        let (app, connections) = (self, Arc::new(AdminConnections::of_admin()));
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the listener, which it holds weakly, and has nothing to lose"
        )]
        tokio::spawn(sample(Arc::downgrade(&app)));
        // Pingora's own stop is nothing to this listener.
        let (_running, stopping) = watch::channel(false);
        while let Some((socket, peer)) = accepting.next().await {
            // One makes room, for none of them works for an operator.
            let Some(permit) = connections.enter(peer.ip(), false) else {
                continue;
            };
            let (app, stopping, number) = (Arc::clone(&app), stopping.clone(), permit.number());
            #[expect(
                clippy::disallowed_methods,
                reason = "an answer of the admin listener has nothing to lose"
            )]
            let served = tokio::spawn(async move {
                let mut next: Option<Stream> = Some(Box::new(L4Stream::from(socket)));
                while let Some(stream) = next {
                    let answered = tokio::time::timeout(ANSWERED_WITHIN, app.process_new(stream, &stopping));
                    next = answered.await.ok().flatten();
                    permit.answered();
                }
            });
            connections.runs(number, served.abort_handle());
        }
        drop(accepting);
        connections.empty(LATE_ANSWERED_WITHIN).await;
    }

    /// The state, as the status page and `tollgate top` read it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn status(&self) -> Result<String, serde_json::Error> {
        let (now, snapshot) = (self.clock.now(), self.snapshot.load());
        let config = &snapshot.config;
        let process = Process {
            at_ms: now.0,
            uptime_ms: now.since(self.started),
            listen: config.listen.to_string(),
            currency: config.currency.clone(),
        };
        let (figures, gauges) = (self.telemetry.figures(), self.gauges());
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_string(&Status::of(&figures, &gauges, process, &series))
    }

    /// Keeps the state of this moment for the trends.
    fn sample(&self) {
        let sample = Sample::of(&self.telemetry.figures(), &self.gauges(), self.clock.now().0);
        self.series.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }

    pub(super) fn gauges(&self) -> Gauges {
        let (snapshot, now) = (self.snapshot.load(), self.clock.now());
        let config = &snapshot.config;
        let secs = |since: i64| since.max(0) / 1000;
        let mut breakers: Vec<(String, String, bool)> = Vec::new();
        let mut credentials: BTreeMap<(String, String), bool> = BTreeMap::new();
        for candidate in snapshot.candidates.values().flat_map(|targets| targets.all()) {
            let name = candidate.upstream.provider.name.clone();
            let target = (name.clone(), candidate.model.to_string());
            credentials.insert(target, candidate.refuses_credential());
            breakers.push((
                name,
                candidate.model.to_string(),
                candidate.breaker.open_until() > self.clock.passed_ms(),
            ));
        }
        breakers.sort();
        breakers.dedup_by(|a, b| (&a.0, &a.1) == (&b.0, &b.1));
        let (refreshed, unrefreshed, refreshed_at) = self.telemetry.refreshes();
        let (is_stopping, is_away) = (self.life.is_stopping(), self.ledger.is_away());
        Gauges {
            ready: !is_stopping && !is_away,
            ledger_away: !is_stopping && is_away,
            maintenance: self.ledger.in_maintenance(),
            in_flight: self.life.in_flight(),
            body_memory_bytes: self.body_memory.bytes(),
            store_metrics: self.ledger.store_metrics(),
            journal: (self.journal.depth(), self.journal.is_usable()),
            journal_reaches_disk: self.journal.reaches_disk(),
            journal_age_secs: self.journal.oldest().map_or(0, |oldest| secs(now.since(oldest))),
            breakers,
            credentials_refused: credentials,
            certificates: snapshot.certificates_left(now),
            models: snapshot.catalogue.models().len(),
            catalogue_age_secs: snapshot
                .catalogue_modified
                .max(refreshed_at)
                .map(|at| secs(now.since(at))),
            refreshes: (refreshed, unrefreshed),
            refresh_failed: config.catalogue_refresh.is_some() && self.telemetry.refresh_has_failed(),
            reloads: self.telemetry.reloads(),
            reload_refused: self.telemetry.reload_is_refused(),
            audit: self.audited.gauges(now),
            below_zero: self.audited.last().and_then(|audit| audit.below_zero),
            deliveries: self.telemetry.deliveries.figures(now.0),
            refunds_short: self.telemetry.refunds.all_short(),
            payments: self.telemetry.payments.counts(),
            lines: self.telemetry.lines(),
            spans: self.telemetry.spans(),
        }
    }
}

impl Admin {
    /// Whether clients can connect, as far as that is known. Tried until they can: who sends them here at the first word must not send them
    /// too early.
    async fn listens(&self) -> bool {
        let Some(address) = self.clients_at else { return true };
        if !self.listens.load(Ordering::Relaxed) {
            let connect = TcpStream::connect(reachable(address));
            let connected = tokio::time::timeout(CONNECT_MAX, connect).await;
            self.listens.store(matches!(connected, Ok(Ok(_))), Ordering::Relaxed);
        }
        self.listens.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header();
        if !is_ours(request, &self.snapshot.load().config.admin_hosts) {
            return answer(StatusCode::MISDIRECTED_REQUEST, PLAIN, NOT_OURS);
        }
        match request.uri.path() {
            "/healthz" => answer(StatusCode::OK, PLAIN, "ok\n"),
            "/readyz" if self.life.is_stopping() => answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "stopping\n"),
            "/readyz" if self.ledger.is_away() => answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, AWAY),
            "/readyz" if !self.listens().await => answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "starting\n"),
            "/readyz" => answer(StatusCode::OK, PLAIN, "ready\n"),
            "/metrics" => match self.metrics() {
                Ok(page) => answer(StatusCode::OK, METRICS, page),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            },
            "/" | "/status" => answer(StatusCode::OK, HTML, PAGE),
            "/status.json" => match self.status() {
                Ok(status) => answer(StatusCode::OK, JSON, status),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            },
            _ => answer(StatusCode::NOT_FOUND, PLAIN, "not found\n"),
        }
    }
}

/// Keeps a sample every few seconds.
async fn sample(admin: Weak<Admin>) {
    while let Some(admin) = admin.upgrade() {
        admin.sample();
        drop(admin);
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

fn answer(status: StatusCode, kind: HeaderValue, body: impl Into<Vec<u8>>) -> Response<Vec<u8>> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let length = HeaderValue::from(response.body().len());
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Another process has the ledger and does not serve yet: calls wait.
const AWAY: &str = "the ledger changes hands\n";
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The status page: one file, which asks for `status.json`.
const PAGE: &str = include_str!("status.html");
/// How long the listener of clients may take to accept this process' own connection.
const CONNECT_MAX: Duration = Duration::from_millis(50);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
/// From the beginning of a connection, or from its last answer, to the next answer's end.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// The same of one that is under way when the listener has ended.
const LATE_ANSWERED_WITHIN: Duration = Duration::from_millis(200);
