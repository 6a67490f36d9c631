//! The plugin's state: what every request sees. `server::open` fills it, and starts what runs beside the requests.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::access::auth_throttle::AuthThrottle;
use super::access::body_memory::BodyMemory;
use super::billing::settle::Settler;
use super::shutdown::Lifecycle;
use super::snapshot::Snapshot;
use super::transport::Transport;
use super::upstream::providers::Upstreams;
use crate::clock::Clock;
use crate::config::{Config, ConfigError, environment};
use crate::ledger::Ledger;
use crate::ledger::embedded::Embedded;
use crate::ledger::journal::Journal;
use crate::pure::error::{ApiError, Unavailable};
use crate::telemetry::Telemetry;

/// Where credentials are found, now and whenever the configuration is read again.
pub type Environment = fn(&str) -> Option<String>;

/// The gateway as a plugin of Pingora: it authenticates, admits, carries and bills each call below its `base_path`, and answers the
/// gateway's own endpoints there.
///
/// ```no_run
/// use pingora::prelude::*;
///
/// fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
///     let tollgate = tollgate::Tollgate::open("conf/tollgate.yaml")?; // impl ProxyHttp; nothing listens yet
///     let mut server = Server::new(None)?;
///     server.bootstrap();
///     server.add_services(tollgate.background()); // ledger, journal, DNS, reload, audit: as Pingora services
///     let mut proxy = http_proxy_service(&server.configuration, tollgate);
///     proxy.add_tcp("127.0.0.1:8080");
///     server.add_service(proxy);
///     server.run_forever();
/// }
/// ```
///
/// Clones are handles to the same gateway. When the last one is dropped, ledger, journal, webhooks, receipts, log and traces are closed, and
/// what is still to be billed is written; `admin_listen` and `operator_listen`, and what reloads, refreshes and audits, end with the process. `run_forever` ends the process without that: then the journal bills the rest at the next start.
///
/// # What the listener of `tollgate serve` adds
/// Limits on connections, in all and per address; the time and the size of a request's head; chunked bodies whose framing others would
/// read otherwise are refused; TLS whose certificate is read again when its file changes; a stop that waits for running calls for
/// `drain_seconds`, then ends their streams with an error event; upgrades without a refused call.
///
/// # What differs from Pingora's own loop
/// Calls are carried by a transport of its own (see the module `gateway::transport`): connections to upstreams are in its own pool, so
/// `ca_file`, `upstream_keepalive_pool_size` and `max_retries` of Pingora's `ServerConf` do not count, Pingora's counters of upstream
/// bytes stay 0, and no body modules run.
#[derive(Clone)]
pub struct Tollgate {
    shared: Arc<Shared>,
}

struct Shared {
    snapshot: Arc<ArcSwap<Snapshot>>,
    upstreams: Upstreams,
    environment: Environment,
    books: OnceLock<Books>,
    clock: Clock,
    settler: Arc<Settler>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    auth_throttle: AuthThrottle,
    body_memory: Arc<BodyMemory>,
    transport: Transport,
    /// Closes what runs beside the requests, with the books. None before that runs, and once it was closed.
    closer: Mutex<Option<Closer>>,
}

/// Closes what runs beside the requests, and ledger and journal with it.
pub(crate) type Closer = Box<dyn FnOnce(&Books) + Send>;

/// Ledger and journal, once they are open.
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    pub(crate) journal: Arc<Journal>,
}

impl Tollgate {
    /// A gateway with the configuration in this file. It takes no lock, opens no socket and starts no thread: [`Tollgate::background`]
    /// does, so that a process may fork in between.
    ///
    /// # Errors
    /// When the configuration, its catalogue or a certificate that it names cannot be read or is wrong: the message names file, key and
    /// what is expected.
    pub fn open(conf: impl AsRef<Path>) -> Result<Tollgate, ConfigError> {
        Tollgate::of(Config::load(conf.as_ref())?, environment)
    }

    /// The same, with a configuration that was read.
    ///
    /// # Errors
    /// As [`Tollgate::open`].
    pub(crate) fn of(config: Config, environment: Environment) -> Result<Tollgate, ConfigError> {
        let upstreams = Upstreams::default();
        let snapshot = Snapshot::load(config, &upstreams)?;
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        Ok(Tollgate::with(
            snapshot,
            upstreams,
            environment,
            Clock::System,
            Arc::default(),
        ))
    }

    /// A gateway over a ledger and its journal that are open; `snapshot` may be swapped at any time. What runs beside requests is the
    /// caller's.
    pub fn over(
        snapshot: Arc<ArcSwap<Snapshot>>,
        ledger: Ledger,
        journal: Arc<Journal>,
        clock: Clock,
        telemetry: &Arc<Telemetry>,
    ) -> Tollgate {
        let tollgate = Tollgate::with(
            snapshot,
            Upstreams::default(),
            environment,
            clock,
            Arc::clone(telemetry),
        );
        let books = Books { ledger, journal };
        if tollgate.shared.books.set(books).is_err() {
            log::error!("a new gateway has its books already");
        }
        tollgate
    }

    fn with(
        snapshot: Arc<ArcSwap<Snapshot>>,
        upstreams: Upstreams,
        environment: Environment,
        clock: Clock,
        telemetry: Arc<Telemetry>,
    ) -> Tollgate {
        let first = snapshot.load();
        first.comes_into_force();
        let keeps_receipts = first.config.keeps_receipts();
        drop(first);
        let lifecycle = Lifecycle::new();
        Tollgate {
            shared: Arc::new(Shared {
                snapshot,
                upstreams,
                environment,
                books: OnceLock::new(),
                settler: Settler::new(clock.clone(), keeps_receipts, Arc::clone(&lifecycle)),
                clock,
                lifecycle,
                telemetry,
                auth_throttle: AuthThrottle::new(),
                body_memory: Arc::default(),
                transport: Transport::new(),
                closer: Mutex::default(),
            }),
        }
    }

    /// Bills what is still to be billed, and closes what runs beside the requests. Blocks; a second call only waits for the first. To be
    /// called after the last request.
    pub(crate) fn close(&self) {
        self.shared.close();
    }

    /// Ledger and journal.
    ///
    /// # Errors
    /// 503 as long as they are not open.
    pub(crate) fn books(&self) -> Result<&Books, ApiError> {
        self.shared.books.get().ok_or(ApiError::Unavailable {
            what: Unavailable::Starting,
            message: "The gateway is starting.",
            retry_after_secs: 1,
        })
    }

    /// Gives it the books; those that it had before, when it had any.
    pub(crate) fn with_books(&self, books: Books) -> &Books {
        self.shared.books.get_or_init(|| books)
    }

    /// What runs beside the requests, and the books, are closed by this.
    pub(crate) fn closed_by(&self, closer: Closer) {
        *self.shared.closer.lock().unwrap_or_else(PoisonError::into_inner) = Some(closer);
    }

    /// Where the state that requests see is exchanged.
    pub(crate) fn current(&self) -> &Arc<ArcSwap<Snapshot>> {
        &self.shared.snapshot
    }

    pub(crate) fn upstreams(&self) -> &Upstreams {
        &self.shared.upstreams
    }

    pub(crate) fn environment(&self) -> Environment {
        self.shared.environment
    }

    /// The embedded ledger, when it is that and open.
    pub(crate) fn embedded(&self) -> Option<&Embedded> {
        self.shared.books.get()?.ledger.embedded()
    }

    /// The state that requests see now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(in crate::gateway) fn settler(&self) -> &Arc<Settler> {
        &self.shared.settler
    }

    /// Requests under way, for whoever stops the process.
    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.shared.lifecycle
    }

    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.shared.telemetry
    }

    pub(in crate::gateway) fn auth_throttle(&self) -> &AuthThrottle {
        &self.shared.auth_throttle
    }

    pub(crate) fn body_memory(&self) -> &Arc<BodyMemory> {
        &self.shared.body_memory
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.shared.transport
    }
}

impl Shared {
    fn close(&self) {
        // Held to the end: whoever comes second may end the process.
        let mut closer = self.closer.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(close), Some(books)) = (closer.take(), self.books.get()) {
            self.settler.finish();
            close(books);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
