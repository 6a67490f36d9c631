//! Starts everything, runs until told to stop, and stops so that nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora::apps::HttpServerOptions;
use pingora::apps::http_app::ServeHttp;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::protocols::http::ServerSession;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};

use super::Gateway;
use super::reload::Reloader;
use super::snapshot::Snapshot;
use super::upstream::Upstreams;
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::store::{self, Ledger};

/// What cannot be started.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A gateway that is ready to listen.
pub struct Prepared {
    snapshot: Arc<ArcSwap<Snapshot>>,
    upstreams: Upstreams,
    ledger: Ledger,
    environment: fn(&str) -> Option<String>,
}

/// Requests under way and whether the process is stopping.
#[derive(Debug, Default)]
struct Life {
    stopping: AtomicBool,
}

/// Opens the ledger, reads the catalogue and resolves the providers.
///
/// # Errors
/// When a file is broken, the ledger is owned by another process, or the store cannot be reached.
pub fn prepare(config: Config, environment: fn(&str) -> Option<String>) -> Result<Prepared, StartError> {
    let upstreams = Upstreams::start()?;
    let ledger = match &config.store {
        Store::Sqlite(path) => {
            let embedded = store::embedded::Embedded::open(path, Clock::System)?;
            store::control::listen(&embedded)?;
            Ledger::Embedded(embedded)
        }
        Store::Redis(_) => return Err("a Redis store is not supported yet; use store: sqlite://PATH".into()),
    };
    let snapshot = Snapshot::load(config, &upstreams)?;
    upstreams.resolve_unknown();
    for warning in &snapshot.warnings {
        log::warn!("{warning}");
    }
    Ok(Prepared {
        snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
        upstreams,
        ledger,
        environment,
    })
}

impl Prepared {
    /// The state that requests see.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The ledger, for what has to stand in it before the first request.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Serves until a signal says stop; returns when everything is billed and written. `ready` is called once the listeners are
    /// about to open.
    ///
    /// # Errors
    /// When the TLS files cannot be read or a thread cannot be started.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let config = self.snapshot.load_full().config.clone();
        let hang_up = Arc::new(AtomicBool::new(false));
        Reloader::new(&self.snapshot, self.upstreams.clone(), self.environment).watch(Arc::clone(&hang_up))?;
        let gateway = Gateway::new(Arc::clone(&self.snapshot), self.ledger.clone(), Clock::System);
        let finish = gateway.finisher();
        let life = Arc::new(Life::default());
        let mut server = Server::new_with_opt_and_conf(None, server_conf(&config));
        server.bootstrap();
        let mut service = pingora::proxy::http_proxy_service(&server.configuration, gateway);
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        options.h2_idle_timeout = Some(config.timeouts.keepalive);
        if let Some(logic) = service.app_logic_mut() {
            logic.server_options = Some(options);
        }
        service.add_listener(listener(&config)?);
        server.add_service(service);
        server.add_service(admin_service(&config, Arc::clone(&life)));
        log::info!("listening on {} under {}", config.listen, config.base_path);
        ready();
        server.run(RunArgs {
            shutdown_signal: Box::new(Signals { life, hang_up }),
        });
        finish();
        self.ledger.close();
        Ok(())
    }
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // A connection stays on the thread that accepted it: cheaper, and a ledger connection can belong to a thread.
        work_stealing: false,
        grace_period_seconds: Some(config.drain.as_secs()),
        graceful_shutdown_timeout_seconds: Some(1),
        upstream_keepalive_pool_size: 1024,
        max_retries: 16,
        ..ServerConf::default()
    }
}

fn listener(config: &Config) -> Result<ListenerConfig, StartError> {
    let address = config.listen.to_string();
    // With room for header and a whole JSON answer both leave in one system call.
    let buffer = L4BufferSettings::new(64 << 10, 16 << 10);
    let mut listener = ListenerConfig::tcp(&address).l4_buffer(buffer);
    if let Some(tls) = &config.tls {
        let (cert, key) = (tls.cert.to_string_lossy(), tls.key.to_string_lossy());
        let mut settings = pingora::listeners::tls::TlsSettings::intermediate(&cert, &key)?;
        settings.enable_h2();
        listener = listener.tls(settings);
    }
    Ok(listener)
}

/// The admin listener: liveness and readiness.
struct Admin {
    life: Arc<Life>,
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> http::Response<Vec<u8>> {
        let (status, body) = match session.req_header().uri.path() {
            "/healthz" => (200, "ok\n"),
            "/readyz" if self.life.stopping.load(Ordering::Relaxed) => (503, "stopping\n"),
            "/readyz" => (200, "ready\n"),
            _ => (404, "not found\n"),
        };
        let mut response = http::Response::new(body.as_bytes().to_vec());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let length = http::HeaderValue::from(body.len());
        response.headers_mut().insert(http::header::CONTENT_LENGTH, length);
        response
    }
}

fn admin_service(config: &Config, life: Arc<Life>) -> pingora::services::listening::Service<Admin> {
    let mut service = pingora::services::listening::Service::new("admin".to_owned(), Admin { life });
    service.threads = Some(1);
    service.add_tcp(&config.admin_listen.to_string());
    service
}

/// SIGTERM and SIGINT stop, SIGHUP re-reads the files.
struct Signals {
    life: Arc<Life>,
    hang_up: Arc<AtomicBool>,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        use tokio::signal::unix::{SignalKind, signal};
        let open = |kind: SignalKind| signal(kind).inspect_err(|error| log::error!("cannot wait for signals: {error}"));
        let (Ok(mut term), Ok(mut int), Ok(mut hup)) = (
            open(SignalKind::terminate()),
            open(SignalKind::interrupt()),
            open(SignalKind::hangup()),
        ) else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = hup.recv() => self.hang_up.store(true, Ordering::Relaxed),
            }
        }
        self.life.stopping.store(true, Ordering::Relaxed);
        log::info!("stopping");
        ShutdownSignal::FastShutdown
    }
}
