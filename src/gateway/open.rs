//! The plugin's state: what every request sees, how it is opened, and what runs beside the requests.
//!
//! Longer than 400 lines: what is opened, step by step, and closed again is read together.

mod beside;

use self::beside::{JournalTask, open_ledger};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
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
use crate::ledger;
use crate::ledger::embedded::Embedded;
use crate::ledger::journal;
use crate::ledger::journal::Journal;
use crate::ledger::{Ledger, ReceiptFiles, StoreError};
use crate::net::dns::Resolver;
use crate::pure::error::ApiError;
use crate::pure::tokens::{self, Encoding};
use crate::server::admin::{Admin, AdminPlace};
use crate::server::audit_task::Audited;
use crate::server::refresh;
use crate::server::reload::Reloader;
use crate::server::upgrade::{Start, Step};
use crate::telemetry::{Telemetry, access_log, otlp};

/// What cannot be started.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

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
/// Clones are handles to the same gateway. When the last one is dropped, what runs beside the requests is closed, and what is still to
/// be billed is written. `run_forever` ends the process without that: then the journal bills the rest at the next start.
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
    opened: Mutex<Option<Opened>>,
    books: OnceLock<Books>,
    clock: Clock,
    settler: Arc<Settler>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    audited: Arc<Audited>,
    auth_throttle: AuthThrottle,
    body_memory: Arc<BodyMemory>,
    transport: Transport,
    beside: Mutex<Option<Beside>>,
}

/// Ledger and journal, once they are open.
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    pub(crate) journal: Arc<Journal>,
}

/// What is open before the ledger is.
struct Opened {
    journal: Arc<Journal>,
    log: access_log::Writer,
    traces: otlp::Exporter,
    receipts: Option<Arc<ReceiptFiles>>,
    admin: AdminPlace,
}

/// What runs beside the requests and has to be closed.
struct Beside {
    journal: JournalTask,
    log: access_log::Writer,
    traces: otlp::Exporter,
    receipts: Option<Arc<ReceiptFiles>>,
}

impl Tollgate {
    /// A gateway with the configuration in this file. It takes no lock, opens no socket and starts no thread: [`Tollgate::background`]
    /// does, so that a process may fork in between.
    ///
    /// # Errors
    /// When the configuration, its catalogue or a certificate that it names cannot be read or is wrong: the message names file, key and
    /// what is expected.
    pub fn open(conf: impl AsRef<Path>) -> Result<Tollgate, ConfigError> {
        let path = conf.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))?;
        Tollgate::of(Config::parse(path, &text, &environment)?, environment)
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
        let keeps_receipts = snapshot.load().config.keeps_receipts();
        let lifecycle = Lifecycle::new();
        Tollgate {
            shared: Arc::new(Shared {
                snapshot,
                upstreams,
                environment,
                opened: Mutex::default(),
                books: OnceLock::new(),
                settler: Settler::new(clock.clone(), keeps_receipts, Arc::clone(&lifecycle)),
                clock,
                lifecycle,
                telemetry,
                audited: Arc::default(),
                auth_throttle: AuthThrottle::new(),
                body_memory: Arc::default(),
                transport: Transport::new(),
                beside: Mutex::default(),
            }),
        }
    }

    /// Opens everything but the ledger: resolves the providers' names, opens access log, traces and journal, and binds `admin_listen`.
    /// Blocks. A second call does nothing.
    ///
    /// # Errors
    /// When one of them cannot be opened; it may be called again then. Without a journal paid calls are refused until one can be made: a
    /// gateway that starts lives with that, one that is to take over does not.
    pub(crate) fn open_beside(&self, start: Start) -> Result<(), StartError> {
        let mut opened = self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_some() || self.shared.books.get().is_some() {
            return Ok(());
        }
        let snapshot = self.snapshot();
        let (config, telemetry) = (&snapshot.config, &self.shared.telemetry);
        Step::Providers.take(|| {
            self.shared.upstreams.resolve(Resolver::system());
            self.shared.upstreams.wait_for_names();
            // Loading takes a while, which no caller should wait for.
            tokens::load(Encoding::O200k);
            tokens::load(Encoding::Cl100k);
            Ok::<_, StartError>(())
        })?;
        let (log, traces, receipts) = Step::Logs.take(|| {
            let log = access_log::Writer::start(telemetry, &config.access_log)?;
            let traces = otlp::Exporter::start(telemetry, &config.traces)?;
            let keep_days = config.receipts.files_keep_days;
            let start = |folder: &PathBuf| ReceiptFiles::start(folder, keep_days, self.shared.clock.clone());
            Ok::<_, StartError>((log, traces, config.receipts.files.as_ref().map(start).transpose()?))
        })?;
        let admin = Step::Admin.take(|| AdminPlace::bind(config.admin_listen).map_err(StartError::from))?;
        let journal = Step::Journal.take(|| {
            let journal = Journal::open(&config.data_dir);
            match start {
                Start::Upgrade if !journal.is_usable() => {
                    Err(format!("no journal can be made in {}", config.data_dir.display()).into())
                }
                Start::Upgrade | Start::Fresh => Ok::<_, StartError>(journal),
            }
        })?;
        *opened = Some(Opened {
            journal,
            log,
            traces,
            receipts,
            admin,
        });
        Ok(())
    }

    /// Opens the ledger, once the rest is open, and bills what processes that died have left. Blocks.
    ///
    /// # Errors
    /// When the ledger is owned by another process, or the store cannot be reached. It may be called again then.
    pub(crate) fn open_books(&self) -> Result<&Books, StoreError> {
        if let Some(books) = self.shared.books.get() {
            return Ok(books);
        }
        let (journal, receipts) = {
            let opened = self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = opened
                .as_ref()
                .ok_or_else(|| StoreError::Unavailable("there is no journal yet".to_owned()))?;
            (Arc::clone(&opened.journal), opened.receipts.clone())
        };
        let config = &self.snapshot().config;
        let ledger = Step::Ledger.take(|| open_ledger(config))?;
        if let Some(files) = receipts {
            ledger.write_receipts_to(&files);
        }
        Step::Recovery.take(|| {
            // Nothing is granted before it is known what the calls of the processes before this one hold.
            journal::recover::hold_for_predecessors(&config.data_dir, &ledger);
            if let Ledger::Embedded(embedded) = &ledger {
                ledger::control::listen(embedded)?;
            }
            // What a process that died has left is billed before the first call is admitted.
            ledger.recovered(journal::recover::recover_others(&journal, &ledger));
            Ok::<_, StoreError>(())
        })?;
        Ok(self.shared.books.get_or_init(|| Books { ledger, journal }))
    }

    /// Starts what runs beside the requests, once the books are open: the journal's thread, reload, refresh, audit and the admin listener.
    /// `hang_up` asks for a reload.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start_beside(&self, hang_up: Arc<AtomicBool>) -> Result<(), StartError> {
        let shared = &self.shared;
        let opened = shared.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(books), Some(opened)) = (shared.books.get(), opened) else {
            return Err("the books are not open".into());
        };
        let Opened {
            log,
            traces,
            receipts,
            admin: place,
            ..
        } = opened;
        let snapshot = self.snapshot();
        for warning in &snapshot.warnings {
            log::warn!("{warning}");
        }
        let (config, telemetry) = (&snapshot.config, &shared.telemetry);
        if let Some(admin) = self.admin() {
            admin.listen(place)?;
        }
        Reloader::new(&shared.snapshot, shared.upstreams.clone(), shared.environment)
            .observed_by(telemetry)
            .watch(hang_up)?;
        refresh::watch(&shared.snapshot, telemetry)?;
        let journal = JournalTask::start(&books.journal, &books.ledger)?;
        let beside = Beside {
            journal,
            log,
            traces,
            receipts,
        };
        *shared.beside.lock().unwrap_or_else(PoisonError::into_inner) = Some(beside);
        Audited::watch(
            &shared.audited,
            books.ledger.clone(),
            shared.clock.clone(),
            config.audit_every,
        )?;
        Ok(())
    }

    /// Bills what is still to be billed, and closes what runs beside the requests. Blocks; a second call does nothing. To be called after
    /// the last request.
    pub(crate) fn close(&self) {
        self.shared.close();
    }

    /// What the admin listener answers from; none before the books are open.
    pub fn admin(&self) -> Option<Admin> {
        let shared = &self.shared;
        let books = shared.books.get()?;
        Some(Admin {
            snapshot: Arc::clone(&shared.snapshot),
            ledger: books.ledger.clone(),
            clock: shared.clock.clone(),
            life: Arc::clone(&shared.lifecycle),
            telemetry: Arc::clone(&shared.telemetry),
            audited: Arc::clone(&shared.audited),
            journal: Arc::clone(&books.journal),
            body_memory: Arc::clone(&shared.body_memory),
            started: shared.clock.now(),
            series: Mutex::default(),
        })
    }

    /// Ledger and journal.
    ///
    /// # Errors
    /// 503 as long as they are not open.
    pub(crate) fn books(&self) -> Result<&Books, ApiError> {
        self.shared.books.get().ok_or(ApiError::Unavailable {
            message: "The gateway is starting.",
            retry_after_secs: 1,
        })
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
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(mut beside), Some(books)) = (beside, self.books.get()) else {
            return;
        };
        self.settler.finish();
        beside.journal.stop();
        books.ledger.close();
        books.journal.close();
        if let Some(receipts) = &beside.receipts {
            receipts.close();
        }
        beside.log.close();
        beside.traces.close();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}
