//! Starts everything, runs until told to stop, and stops so that nothing is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};

use super::Gateway;
use super::door::Door;
use super::life::Life;
use super::names::Resolver;
use super::refresh;
use super::reload::Reloader;
use super::snapshot::Snapshot;
use super::supervisor::Supervisor;
use super::upgrade::{self, BOTH_ACCEPT, PidFile, Predecessor, Start, Successor};
use super::upstream::Upstreams;
use super::watch::Audited;
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::pure::tokens::{self, Encoding};
use crate::store::journal::Journal;
use crate::store::{self, Ledger, StoreError};
use crate::telemetry::{Telemetry, access_log, otlp};

/// What cannot be started.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A gateway that is ready to listen.
pub struct Prepared {
    snapshot: Arc<ArcSwap<Snapshot>>,
    upstreams: Upstreams,
    ledger: Ledger,
    journal: Arc<Journal>,
    predecessor: Option<Predecessor>,
    successor: Option<Successor>,
    environment: fn(&str) -> Option<String>,
}

/// Opens the ledger, reads the catalogue and resolves the providers.
///
/// # Errors
/// When a file is broken, the ledger is owned by another process, or the store cannot be reached.
pub fn prepare(config: Config, environment: fn(&str) -> Option<String>, start: Start) -> Result<Prepared, StartError> {
    let upstreams = Upstreams::new(Resolver::system());
    let predecessor = match start {
        Start::Fresh => None,
        Start::Upgrade => Some(Predecessor::find(&config.data_dir)?),
    };
    let (store, data_dir) = (config.store.clone(), config.data_dir.clone());
    // What can be wrong with the files is found before anything is taken from a gateway that runs.
    let snapshot = Snapshot::load(config, &upstreams)?;
    if let (Some(_), Store::Sqlite(path)) = (&predecessor, &store) {
        store::embedded::request_handover(path)?;
    }
    let ledger = open_ledger(&store)?;
    // Nothing is granted before it is known what the calls of the processes before this one hold.
    store::journal::recover::hold_for_predecessors(&data_dir, &ledger);
    if let Ledger::Embedded(embedded) = &ledger {
        store::control::listen(embedded)?;
    }
    // What a process that died has left is billed before the first call is admitted.
    let recovered = store::journal::recover::recover(&data_dir, &ledger);
    ledger.recovered(recovered);
    let journal = Journal::open(&data_dir);
    upstreams.wait_for_names();
    // Loading takes a while, which no caller should wait for.
    tokens::load(Encoding::O200k);
    tokens::load(Encoding::Cl100k);
    for warning in &snapshot.warnings {
        log::warn!("{warning}");
    }
    Ok(Prepared {
        snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
        upstreams,
        ledger,
        journal,
        predecessor,
        successor: None,
        environment,
    })
}

/// A command may own the embedded ledger for a moment, also while it changes hands.
fn open_ledger(store: &Store) -> Result<Ledger, StoreError> {
    let started = crate::clock::monotonic();
    loop {
        match store::open(store) {
            Err(StoreError::Owned(_)) if started.elapsed() < OWNED_MAX => std::thread::sleep(OWNED_PAUSE),
            opened => return opened,
        }
    }
}

impl Prepared {
    /// The state that requests see.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The same, with a process to start in its place on SIGUSR2.
    pub fn succeeded_by(self, successor: Successor) -> Prepared {
        let successor = Some(successor);
        Prepared { successor, ..self }
    }

    /// The ledger, for what has to stand in it before the first request.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Serves until a signal says stop; returns when everything is billed and written. `ready` is called once the listeners are
    /// about to open.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let config = self.snapshot.load_full().config.clone();
        let hang_up = Arc::new(AtomicBool::new(false));
        let telemetry: Arc<Telemetry> = Arc::default();
        let log = access_log::Writer::start(&telemetry, &config.access_log)?;
        let traces = otlp::Exporter::start(&telemetry, &config.traces)?;
        Reloader::new(&self.snapshot, self.upstreams.clone(), self.environment)
            .observed_by(&telemetry)
            .watch(Arc::clone(&hang_up))?;
        refresh::watch(&self.snapshot, &telemetry)?;
        let keeper = Keeper::start(&self.journal, &self.ledger)?;
        let journal = Arc::clone(&self.journal);
        let gateway = Gateway::new(Arc::clone(&self.snapshot), self.ledger.clone(), journal, Clock::System)
            .observed_by(&telemetry);
        let admin = gateway.admin();
        Audited::watch(&admin.audited, self.ledger.clone(), Clock::System, config.audit_every)?;
        admin.listen(config.admin_listen)?;
        let finish = Arc::new(Mutex::new(Some(gateway.finisher())));
        let life = gateway.life();
        let upgrade_socket = upgrade::socket_path(&config.data_dir)?;
        let mut conf = server_conf(&config);
        conf.upgrade_sock = upgrade_socket.to_string_lossy().into_owned();
        let opt = Opt {
            upgrade: self.predecessor.is_some(),
            ..Opt::default()
        };
        if let Some(predecessor) = self.predecessor {
            predecessor.call(upgrade_socket)?;
        }
        let mut server = Server::new_with_opt_and_conf(opt, conf);
        server.bootstrap();
        let _pid_file = PidFile::write(&config.data_dir).inspect_err(|error| {
            log::warn!("gateway.pid cannot be written, so no upgrade will find this process: {error}")
        });
        let door = Door::new(gateway);
        let mut service = pingora::services::listening::Service::new("gateway".to_owned(), door);
        service.add_listener(listener(&config));
        server.add_service(service);
        log::info!("listening on {} under {}", config.listen, config.base_path);
        ready();
        let supervisor = Supervisor::of(&self.environment);
        supervisor.ready_at(config.listen)?;
        let end = {
            let (finish, ledger, journal) = (Arc::clone(&finish), self.ledger.clone(), Arc::clone(&self.journal));
            let written = Arc::new(Mutex::new((log, traces)));
            move || {
                if let Some(finish) = finish.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    finish();
                    keeper.stop();
                    ledger.close();
                    journal.close();
                    let (log, traces) = &mut *written.lock().unwrap_or_else(PoisonError::into_inner);
                    log.close();
                    traces.close();
                }
            }
        };
        let stop = Stop {
            life,
            drain: config.drain,
            unready: config.unready,
            end: Box::new(end.clone()),
        };
        server.run(RunArgs {
            shutdown_signal: Box::new(Signals {
                stop: Mutex::new(Some(stop)),
                hang_up,
                successor: self.successor,
                supervisor,
            }),
        });
        // Only reached when requests outlived the stop: their runtimes are gone, and each was billed when it was dropped.
        end();
        Ok(())
    }
}

/// The thread that tends the journal.
#[derive(Clone)]
struct Keeper {
    stopped: Arc<AtomicBool>,
    thread: Arc<Mutex<Option<std::thread::JoinHandle<()>>>>,
}

impl Keeper {
    fn start(journal: &Arc<Journal>, ledger: &Ledger) -> std::io::Result<Keeper> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (journal, ledger, told) = (Arc::clone(journal), ledger.clone(), Arc::clone(&stopped));
        let keep = move || store::journal::recover::keep(&journal, &ledger, &told);
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(keep)?;
        Ok(Keeper {
            stopped,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Ends the thread, so that it hands nothing more to the ledger.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            if thread.join().is_err() {
                log::error!("the journal's thread panicked");
            }
        }
    }
}

/// What a stop does beside Pingora, which would sleep its whole grace period even with nothing to wait for.
struct Stop {
    life: Arc<Life>,
    drain: Duration,
    unready: Duration,
    end: Box<dyn Fn() + Send>,
}

impl Stop {
    /// Waits for running requests, cuts those that outlive the limit, and ends the process once nothing is left to bill. When
    /// something is, it returns, and Pingora's own shutdown drops what is left.
    fn run(self, accepts_for: Duration) {
        // A connection that was accepted a moment ago has a request that is not counted yet.
        std::thread::sleep(accepts_for.saturating_add(ACCEPTED_MAX));
        if !self.life.wait_idle(self.drain) {
            log::warn!("cutting the requests that outlived {:?}", self.drain);
            self.life.cut_now();
            if !self.life.wait_idle(CUT_MAX) {
                return;
            }
        }
        (self.end)();
        log::info!("stopped");
        std::process::exit(0);
    }
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // A connection's task stays on one thread, which Pingora draws for it: cheaper, and a ledger connection can belong to a thread.
        work_stealing: false,
        // `Stop` ends the process long before, unless requests outlive it.
        grace_period_seconds: Some(config.drain.saturating_add(CUT_MAX).as_secs().saturating_add(2)),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

/// Plain, whatever is configured: the door greets over TLS.
fn listener(config: &Config) -> ListenerConfig {
    let address = config.listen.to_string();
    // Pingora reads into buffers of its own and the door gathers what is written, so more of them would cost each open stream two
    // pages and save nothing. TLS reads a record in two steps.
    let read = if config.tls.is_some() { TLS_READ_BYTES } else { 0 };
    ListenerConfig::tcp(&address).l4_buffer(L4BufferSettings::new(read, 0))
}

/// SIGTERM and SIGINT stop, SIGUSR2 starts a new process, which sends SIGQUIT to be handed what this one has, SIGHUP re-reads the files.
struct Signals {
    stop: Mutex<Option<Stop>>,
    hang_up: Arc<AtomicBool>,
    successor: Option<Successor>,
    supervisor: Supervisor,
}

impl Signals {
    fn start_successor(&self) {
        match &self.successor {
            Some(successor) => successor.start(),
            None => log::warn!("SIGUSR2: only `tollgate serve` can start another process in its place"),
        }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        use tokio::signal::unix::{SignalKind, signal};
        let open = |kind: SignalKind| signal(kind).inspect_err(|error| log::error!("cannot wait for signals: {error}"));
        let (Ok(mut term), Ok(mut quit), Ok(mut int), Ok(mut hup), Ok(mut usr2)) = (
            open(SignalKind::terminate()),
            open(SignalKind::quit()),
            open(SignalKind::interrupt()),
            open(SignalKind::hangup()),
            open(SignalKind::user_defined2()),
        ) else {
            return std::future::pending().await;
        };
        let (shutdown, accepts_for) = loop {
            tokio::select! {
                _ = term.recv() => break (ShutdownSignal::GracefulTerminate, Duration::ZERO),
                _ = int.recv() => break (ShutdownSignal::GracefulTerminate, Duration::ZERO),
                _ = quit.recv() => break (ShutdownSignal::GracefulUpgrade, BOTH_ACCEPT),
                _ = hup.recv() => self.hang_up.store(true, Ordering::Relaxed),
                _ = usr2.recv() => self.start_successor(),
            }
        };
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stop) = stop
            && stop.life.begin_stop()
        {
            if accepts_for.is_zero() {
                self.supervisor.stopping();
                // `/readyz` says 503 from now on; whoever balances load gets the time to read it.
                tokio::time::sleep(stop.unready).await;
            } else {
                // Before Pingora passes the sockets, so before the new process can say or do anything as the main one.
                if let Some(process) = self.successor.as_ref().and_then(Successor::process) {
                    self.supervisor.succeeded_by(process);
                }
                stop.life.hand_over();
            }
            log::info!("stopping: waiting up to {:?} for running requests", stop.drain);
            if let Err(error) = std::thread::Builder::new()
                .name("stop".to_owned())
                .spawn(move || stop.run(accepts_for))
            {
                log::error!("cannot start the thread that stops: {error}");
            }
        }
        shutdown
    }
}

/// How long another process may own the ledger before that is an error.
const OWNED_MAX: Duration = Duration::from_secs(2);
const OWNED_PAUSE: Duration = Duration::from_millis(10);
/// How long an accepted connection may take until its request counts.
const ACCEPTED_MAX: Duration = Duration::from_millis(100);
/// How long requests that were cut may take to say so to their clients.
const CUT_MAX: Duration = Duration::from_secs(5);
/// What is read at once of a connection over TLS, in bytes: a record, and the head of the next.
const TLS_READ_BYTES: usize = 17 << 10;
