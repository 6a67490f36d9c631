//! Starts everything, runs until told to stop, and stops so that nothing is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};

use super::listener::Listener;
use super::open::{Environment, StartError, Tollgate};
use super::snapshot::Snapshot;
use super::systemd::Systemd;
use super::upgrade::{self, BOTH_ACCEPT, PidFile, Predecessor, Start, Successor};
use crate::config::{Config, Store};
use crate::store::{self, Ledger};

/// A gateway that is ready to listen.
pub struct Prepared {
    tollgate: Tollgate,
    predecessor: Option<Predecessor>,
    successor: Option<Successor>,
    environment: Environment,
}

/// Opens the ledger, reads the catalogue and resolves the providers.
///
/// # Errors
/// When a file is broken, the ledger is owned by another process, or the store cannot be reached.
pub fn prepare(config: Config, environment: Environment, start: Start) -> Result<Prepared, StartError> {
    let predecessor = match start {
        Start::Fresh => None,
        Start::Upgrade => Some(Predecessor::find(&config.data_dir)?),
    };
    let store = config.store.clone();
    // What can be wrong with the files is found before anything is taken from a gateway that runs.
    let tollgate = Tollgate::of(config, environment)?;
    if let (Some(_), Store::Sqlite(path)) = (&predecessor, store) {
        store::embedded::request_handover(&path)?;
    }
    tollgate.open_books()?;
    Ok(Prepared {
        tollgate,
        predecessor,
        successor: None,
        environment,
    })
}

impl Prepared {
    /// The state that requests see.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.tollgate.snapshot()
    }

    /// The same, with a process to start in its place on SIGUSR2.
    pub fn succeeded_by(self, successor: Successor) -> Prepared {
        let successor = Some(successor);
        Prepared { successor, ..self }
    }

    /// The ledger, for what has to stand in it before the first request.
    ///
    /// # Errors
    /// Never: the books are open. An error all the same would be a mistake of ours.
    pub fn ledger(&self) -> Result<&Ledger, StartError> {
        Ok(&self.tollgate.open_books()?.ledger)
    }

    /// Serves until a signal says stop; returns when everything is billed and written. `ready` is called once the listeners are
    /// about to open.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let tollgate = self.tollgate;
        let config = tollgate.snapshot().config.clone();
        let hang_up = Arc::new(AtomicBool::new(false));
        tollgate.start_beside(Arc::clone(&hang_up))?;
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
        let listener = Listener::new(tollgate.clone(), &server.configuration);
        let mut service = pingora::services::listening::Service::new("gateway".to_owned(), listener);
        service.add_listener(listener_config(&config));
        server.add_service(service);
        log::info!("listening on {} under {}", config.listen, config.base_path);
        ready();
        let supervisor = Systemd::of(&self.environment);
        supervisor.ready_at(config.listen)?;
        let stop = Stop {
            tollgate: tollgate.clone(),
            drain: config.drain,
            unready: config.unready,
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
        tollgate.close();
        Ok(())
    }
}

/// What a stop does beside Pingora, which would sleep its whole grace period even with nothing to wait for.
struct Stop {
    tollgate: Tollgate,
    drain: Duration,
    unready: Duration,
}

impl Stop {
    /// Waits for running requests, cuts those that outlive the limit, and ends the process once nothing is left to bill. When
    /// something is, it returns, and Pingora's own shutdown drops what is left.
    fn run(self, accepts_for: Duration) {
        // A connection that was accepted a moment ago has a request that is not counted yet.
        std::thread::sleep(accepts_for.saturating_add(ACCEPTED_MAX));
        let lifecycle = self.tollgate.lifecycle();
        if !lifecycle.wait_idle(self.drain) {
            log::warn!("cutting the requests that outlived {:?}", self.drain);
            lifecycle.cut_now();
            if !lifecycle.wait_idle(CUT_MAX) {
                return;
            }
        }
        self.tollgate.close();
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

/// Plain, whatever is configured: [`Listener`] greets over TLS.
fn listener_config(config: &Config) -> ListenerConfig {
    let address = config.listen.to_string();
    // Pingora reads into buffers of its own and the listener gathers what is written, so more of them would cost each open stream two
    // pages and save nothing. TLS reads a record in two steps.
    let read = if config.tls.is_some() { TLS_READ_BYTES } else { 0 };
    ListenerConfig::tcp(&address).l4_buffer(L4BufferSettings::new(read, 0))
}

/// SIGTERM and SIGINT stop, SIGUSR2 starts a new process, which sends SIGQUIT to be handed what this one has, SIGHUP re-reads the files.
struct Signals {
    stop: Mutex<Option<Stop>>,
    hang_up: Arc<AtomicBool>,
    successor: Option<Successor>,
    supervisor: Systemd,
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
            && stop.tollgate.lifecycle().begin_stop()
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
                stop.tollgate.lifecycle().hand_over();
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

/// How long an accepted connection may take until its request counts.
const ACCEPTED_MAX: Duration = Duration::from_millis(100);
/// How long requests that were cut may take to say so to their clients.
const CUT_MAX: Duration = Duration::from_secs(5);
/// What is read at once of a connection over TLS, in bytes: a record, and the head of the next.
const TLS_READ_BYTES: usize = 17 << 10;
