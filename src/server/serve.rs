//! Starts everything, runs until told to stop, and stops so that nothing is lost.

use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{ListenFds, RunArgs, Server, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening;
use tokio::sync::Notify;

use super::handover::{Handover, Listening};
use super::listener::Listener;
use super::open::{Opened, StartError, open_beside, open_books, start_beside};
use super::open_files::OpenFiles;
use super::preflight;
use super::signals::{CUT_MAX, Signals, Stop};
use super::socket::{bind, listen};
use super::systemd::Systemd;
use super::upgrade::{Predecessor, Start, Step, Successor};
use crate::config::{Config, Store};
use crate::gateway::snapshot::Snapshot;
use crate::gateway::state::Books;
use crate::gateway::{Environment, Tollgate};
use crate::ledger::Ledger;

/// A gateway that is ready to listen.
pub struct Prepared {
    tollgate: Tollgate,
    opened: Opened,
    predecessor: Option<Predecessor>,
    /// Bound, and in an upgrade listening.
    socket: OwnedFd,
    successor: Option<Successor>,
    environment: Environment,
    files: OpenFiles,
}

/// Reads the catalogue, resolves the providers, opens the logs, binds the sockets, and then opens the ledger.
///
/// # Errors
/// When too few files may be open, a file is broken, a socket cannot be had, the ledger is owned by another process, or the store cannot be
/// reached. In an upgrade the gateway that runs goes on then.
pub fn prepare(config: Config, environment: Environment, start: Start) -> Result<Prepared, StartError> {
    let files = OpenFiles::now(&config);
    files.suffice(&config)?;
    let predecessor = match start {
        Start::Fresh => None,
        Start::Upgrade => Some(Predecessor::find(&config.data_dir)?),
    };
    let opened = open(config, environment, predecessor);
    if let (Err(_), Some(predecessor)) = (&opened, predecessor) {
        predecessor.failed();
    }
    let (tollgate, opened, socket) = opened?;
    Ok(Prepared {
        tollgate,
        opened,
        predecessor,
        socket,
        successor: None,
        environment,
        files,
    })
}

/// Opens everything, the ledger last: up to it, nothing is taken from a gateway that runs.
fn open(
    config: Config,
    environment: Environment,
    predecessor: Option<Predecessor>,
) -> Result<(Tollgate, Opened, OwnedFd), StartError> {
    let (store, listen) = (config.store.clone(), config.listen);
    let tollgate = Step::Files.take(|| Tollgate::of(config, environment).map_err(StartError::from))?;
    let start = match predecessor {
        Some(_) => Start::Upgrade,
        None => Start::Fresh,
    };
    match (start, tollgate.snapshot().nothing_on_sale()) {
        (Start::Fresh, _) => preflight::for_start(&tollgate.snapshot().config)?,
        // The one that runs sells something, most likely.
        (Start::Upgrade, Some(problem)) => {
            return Err(format!("the gateway that runs goes on, until it is stopped: {problem}").into());
        }
        (Start::Upgrade, None) => {}
    }
    let opened = open_beside(&tollgate, start)?;
    let taken = take_over(&tollgate, &opened, predecessor, listen, &store);
    if taken.is_err() {
        opened.leave_no_journal();
    }
    let socket = taken?;
    Ok((tollgate, opened, socket))
}

/// Binds the socket or takes it over, and opens the ledger.
fn take_over(
    tollgate: &Tollgate,
    opened: &Opened,
    predecessor: Option<Predecessor>,
    listen: SocketAddr,
    store: &Store,
) -> Result<OwnedFd, StartError> {
    let socket = Step::Sockets.take(|| {
        let passed = predecessor
            .map(|predecessor| predecessor.listener(listen))
            .transpose()?;
        match passed.flatten() {
            Some(socket) => Ok(socket),
            None => bind(listen).map_err(|error| StartError::from(format!("listen: {listen}: {error}"))),
        }
    })?;
    if let (Some(predecessor), Store::Sqlite(path)) = (predecessor, store) {
        predecessor.ledger(path)?;
    }
    open_books(tollgate, opened)?;
    Ok(socket)
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
        Ok(&books(&self.tollgate)?.ledger)
    }

    /// Serves until a signal says stop; returns when everything is billed and written. `ready` is called once the listeners are
    /// about to open.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let (predecessor, tollgate) = (self.predecessor, self.tollgate.clone());
        let started = self.start(ready);
        if started.is_err() {
            leave_no_journal(&tollgate);
        }
        drop(tollgate);
        if let (Err(_), Some(predecessor)) = (&started, predecessor) {
            predecessor.failed();
        }
        let (server, signals, tollgate) = started?;
        server.run(RunArgs {
            shutdown_signal: Box::new(signals),
        });
        // Only reached when requests outlived the stop: their runtimes are gone, and each was billed when it was dropped.
        tollgate.close();
        Ok(())
    }

    /// A server that only has to be run.
    fn start(self, ready: impl FnOnce()) -> Result<(Server, Signals, Tollgate), StartError> {
        let (tollgate, opened) = (self.tollgate, self.opened);
        let config = tollgate.snapshot().config.clone();
        let reload_requested = Arc::new(AtomicBool::new(false));
        let (clients_at, told) = (Some(config.listen), Arc::clone(&reload_requested));
        Step::Tasks.take(|| start_beside(&tollgate, books(&tollgate)?, opened, clients_at, told))?;
        let mut server = Server::new_with_opt_and_conf(Opt::default(), server_conf(&config));
        server.bootstrap();
        let mut listener = Listener::new(tollgate.clone(), &server.configuration);
        if let Ok(Some(told)) = self.files.suffice(&config) {
            log::warn!("{told}");
        }
        listener.take_at_most(self.files.connections());
        let mut service = listening::Service::new("gateway".to_owned(), listener);
        service.add_listener(listener_config(&config));
        let listening = Listening::new(config.listen, self.socket.try_clone()?);
        let (supervisor, succeeded) = (Systemd::of(&self.environment), Arc::new(Notify::new()));
        let (heeded, accept_ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handover = Handover {
            tollgate: tollgate.clone(),
            listening: listening.clone(),
            supervisor: supervisor.clone(),
            successor: self.successor.clone(),
            succeeded: Arc::clone(&succeeded),
        };
        let serving = Serving {
            predecessor: self.predecessor,
            socket: self.socket.try_clone()?,
            handover,
        };
        server.add_service(Bound {
            service,
            address: config.listen.to_string(),
            socket: Some(self.socket),
            serving: Some(serving),
            // From here on, so that a stop that comes before the service listens is not missed.
            accepts_none: tollgate.lifecycle().accepts_none(),
            accept_ended: Arc::clone(&accept_ended),
            heeded: Arc::clone(&heeded),
        });
        log::info!("listening on {} under {}", config.listen, config.base_path);
        ready();
        let stop = Stop {
            tollgate: tollgate.clone(),
            drain: config.drain,
            unready: config.unready,
        };
        let signals = Signals {
            heeded,
            stop: Mutex::new(Some(stop)),
            reload_requested,
            successor: self.successor,
            supervisor,
            listening,
            succeeded,
            accept_ended,
        };
        Ok((server, signals, tollgate))
    }
}

/// Of a process that does not get to serve. No call stands in its journal.
fn leave_no_journal(tollgate: &Tollgate) {
    if let Ok(books) = tollgate.books() {
        books.journal.close();
    }
}

fn books(tollgate: &Tollgate) -> Result<&Books, StartError> {
    tollgate.books().map_err(|_| StartError::from("the books are not open"))
}

/// Pingora's service on a socket that is there already.
struct Bound {
    service: listening::Service<Listener>,
    address: String,
    socket: Option<OwnedFd>,
    serving: Option<Serving>,
    /// Turns true when no connection is accepted any more: in an upgrade some time before Pingora shuts down.
    accepts_none: ShutdownWatch,
    /// Told once that is so.
    accept_ended: Arc<Notify>,
    /// Told by [`Signals`] once the handlers of all signals are in place.
    heeded: Arc<Notify>,
}

#[async_trait]
impl Service for Bound {
    async fn start_service(&mut self, fds: Option<ListenFds>, shutdown: ShutdownWatch, listeners_per_fd: usize) {
        // Whoever hears that this process serves may signal it, and a signal without a handler would end it.
        if tokio::time::timeout(HEEDED_MAX, self.heeded.notified()).await.is_err() {
            log::warn!("signals are not heeded after {HEEDED_MAX:?}");
        }
        // Before Pingora listens: no client has come to this process when it turns out that it does not take over.
        if let Some(serving) = self.serving.take()
            && let Err(error) = tokio::task::spawn_blocking(|| serving.tell()).await
        {
            log::error!("nobody was told that this process serves: {error}");
        }
        if let (Some(fds), Some(socket)) = (&fds, self.socket.take()) {
            // Pingora owns it from here on, and listens on what it finds under its address.
            fds.lock().add(self.address.clone(), socket.into_raw_fd());
        }
        if let Some(listener) = self.service.app_logic_mut() {
            listener.keep_until(shutdown);
        }
        let accepts_none = self.accepts_none.clone();
        self.service.start_service(fds, accepts_none, listeners_per_fd).await;
        self.accept_ended.notify_one();
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        Service::threads(&self.service)
    }
}

/// What has to hear that this process serves.
struct Serving {
    predecessor: Option<Predecessor>,
    socket: OwnedFd,
    handover: Handover,
}

impl Serving {
    /// Ends the process when it cannot listen, or the one before goes on. Blocks.
    fn tell(self) {
        let tollgate = self.handover.tollgate.clone();
        if let Err(error) = self.begin() {
            log::error!("this process does not serve: {error}");
            leave_no_journal(&tollgate);
            #[expect(
                clippy::disallowed_methods,
                reason = "the process that was to take over ends without a trace"
            )]
            std::process::exit(1);
        }
    }

    /// Tells the process before, or listens where there was none, waits for a process after, and tells the supervisor. Whoever finds by the
    /// port or from the supervisor that this process serves finds it in `upgrade.sock` as well; in an upgrade the process before is found
    /// there until it has let this one serve. Blocks.
    ///
    /// # Errors
    /// When this process does not serve.
    fn begin(self) -> Result<(), StartError> {
        let Serving {
            predecessor,
            socket,
            handover,
        } = self;
        let config = handover.tollgate.snapshot().config.clone();
        let supervisor = handover.supervisor.clone();
        Step::Serves.take(|| Ok::<_, StartError>(()))?;
        if let Some(predecessor) = predecessor {
            predecessor.serves()?;
        }
        if let Err(error) = handover.listen(&config.data_dir) {
            log::warn!("upgrade.sock cannot be made, so no upgrade will find this process: {error}");
        }
        if predecessor.is_none() {
            listen(&socket).map_err(|error| format!("it cannot listen: {error}"))?;
        }
        if let Err(error) = supervisor.ready_at(config.listen) {
            log::error!("nobody is told that this process serves: {error}");
        }
        Ok(())
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

/// How long a start waits for the handlers of signals, which Pingora asks for once it has started the services.
const HEEDED_MAX: Duration = Duration::from_secs(5);
/// What is read at once of a connection over TLS, in bytes: a record, and the head of the next.
const TLS_READ_BYTES: usize = 17 << 10;

#[cfg(test)]
mod tests;
