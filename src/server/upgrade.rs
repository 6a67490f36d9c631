//! The change from one binary to the next: `tollgate serve --upgrade` takes over from the gateway that runs. On SIGUSR2 a gateway starts
//! it itself, from the file that stands by now where its own stood, as a child in the same cgroup and sandbox.
//!
//! The new process talks to the old one over `upgrade.sock` in the `data_dir` (`handover` is the other end). It opens everything
//! that it can ([`Step`]), gets the listening socket, and takes the embedded ledger last. Before it accepts its first connection it says
//! so, and only then does the old one stop: it accepts no more, and what waits in the listening socket is the new one's. It closes each of its
//! connections with the next answer, or after some seconds without a request, lets its streams finish, and ends. When the new process fails,
//! dies or hangs before that, the old one goes on as if nothing had been.

use std::io::{Error, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::descriptor;
use super::listening::addresses_of;
use super::open::StartError;
use super::peer::Peer;
pub use super::successor::Successor;
use crate::failpoints;
use crate::ledger::control_socket;

/// How a gateway starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On its own.
    Fresh,
    /// In the place of one that runs with the same `data_dir`.
    Upgrade,
}

/// What a gateway opens when it starts, in this order. Up to [`Step::Ledger`] nothing is taken from a gateway that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Catalogue, certificate and what else the configuration names are read.
    Files,
    /// The providers' names are resolved, the tokenizers loaded.
    Providers,
    /// The access log, the traces' exporter and the receipts' folder are opened.
    Logs,
    /// `admin_listen` and `operator_listen` are bound, where they are free.
    Admin,
    /// This process' own journal is made.
    Journal,
    /// `listen` is bound, or its socket taken over.
    Sockets,
    /// The ledger is opened, and taken over when it is an embedded one.
    Ledger,
    /// What the processes before hold is held, and what dead ones have left is billed.
    Recovery,
    /// Reload, refresh, audit, journal, webhooks and the listeners of monitoring and of operators run.
    Tasks,
    /// All is open. After this step the process before is told to stop; then connections are accepted.
    Serves,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 10] = [
        Step::Files,
        Step::Providers,
        Step::Logs,
        Step::Admin,
        Step::Journal,
        Step::Sockets,
        Step::Ledger,
        Step::Recovery,
        Step::Tasks,
        Step::Serves,
    ];

    /// The name under which a test lets it fail or kills the process there.
    pub fn name(self) -> &'static str {
        match self {
            Step::Files => "start-files",
            Step::Journal => "start-journal",
            Step::Providers => "start-providers",
            Step::Logs => "start-logs",
            Step::Admin => "start-admin",
            Step::Sockets => "start-sockets",
            Step::Ledger => "start-ledger",
            Step::Recovery => "start-recovery",
            Step::Tasks => "start-tasks",
            Step::Serves => "start-serves",
        }
    }

    /// Does what the step does.
    ///
    /// # Errors
    /// As `act`.
    pub(crate) fn take<T, E>(self, act: impl FnOnce() -> Result<T, E>) -> Result<T, E>
    where
        E: From<StepFault>,
    {
        failpoints::point(self.name(), "before");
        let done = act()?;
        failpoints::hang(self.name());
        failpoints::fault(self.name()).map_err(StepFault)?;
        failpoints::point(self.name(), "after");
        Ok(done)
    }
}

/// What a test asked for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct StepFault(Error);

impl From<StepFault> for crate::ledger::StoreError {
    fn from(fault: StepFault) -> Self {
        crate::ledger::StoreError::Unavailable(fault.to_string())
    }
}

/// The gateway that runs, as its successor talks to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predecessor {
    /// Open until this process ends, for its end is what the other one waits for.
    line: &'static UnixStream,
}

impl Predecessor {
    /// Finds the gateway that runs.
    ///
    /// # Errors
    /// When none does.
    pub(crate) fn find(data_dir: &Path) -> Result<Predecessor, StartError> {
        let none = |_| format!("no gateway runs with {}: start without --upgrade", data_dir.display());
        let line = control_socket::connect(&socket_path(data_dir)).map_err(none)?;
        line.set_read_timeout(Some(ANSWERS_WITHIN))?;
        line.set_write_timeout(Some(ANSWERS_WITHIN))?;
        let line = Box::leak(Box::new(line));
        Ok(Predecessor { line })
    }

    /// The socket that it listens on; nothing when that is at another address.
    ///
    /// # Errors
    /// When it stops itself, or does not answer.
    pub(crate) fn listener(self, listen: SocketAddr) -> Result<Option<OwnedFd>, StartError> {
        let (told, socket) = self.ask("listener")?;
        Ok(socket.filter(|_| told.strip_prefix("listener ") == Some(listen.to_string().as_str())))
    }

    /// Has it write out its embedded ledger at `path` and give it up.
    ///
    /// # Errors
    /// When it cannot, or has another one: then it keeps it.
    pub(crate) fn ledger(self, path: &Path) -> Result<(), StartError> {
        let path = std::path::absolute(path)?;
        let path = path.to_str().ok_or("the ledger's path is not UTF-8")?;
        self.ask(&format!("ledger {path}")).map(drop)
    }

    /// Tells it that this process serves. When it has died in this moment, this process serves all the same.
    ///
    /// # Errors
    /// When it does not go.
    pub(crate) fn serves(self) -> Result<(), StartError> {
        match self.exchange("serves") {
            Ok((told, _)) if told == "serves" => Ok(()),
            Ok((told, _)) => Err(told.into()),
            Err(error) if is_gone(&error) => {
                log::warn!("the gateway that ran has ended already");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tells it that this process cannot serve, which it would find out when this process has ended.
    pub(crate) fn failed(self) {
        if let Err(error) = self.write("failed") {
            log::debug!("the gateway that runs cannot be told of the failure: {error}");
        }
    }

    fn ask(self, what: &str) -> Result<(String, Option<OwnedFd>), StartError> {
        let (told, descriptor) = self
            .exchange(what)
            .map_err(|error| match control_socket::is_late(&error) {
                true => format!(
                    "the gateway that runs does not answer within {} s",
                    ANSWERS_WITHIN.as_secs()
                ),
                false => format!("the gateway that runs does not answer: {error}"),
            })?;
        let word = |text: &str| text.split(' ').next().map(str::to_owned);
        if word(&told) == word(what) {
            return Ok((told, descriptor));
        }
        Err(format!("the gateway that runs goes on: {told}").into())
    }

    fn exchange(self, what: &str) -> std::io::Result<(String, Option<OwnedFd>)> {
        self.write(what)?;
        let (text, descriptor) = descriptor::receive(self.line)?;
        let text = String::from_utf8(text).map_err(|_| ErrorKind::InvalidData)?;
        Ok((text.trim_end().to_owned(), descriptor))
    }

    fn write(self, what: &str) -> std::io::Result<()> {
        let mut line = self.line;
        line.write_all(format!("{what}\n").as_bytes())
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Whether a gateway runs with this `data_dir`.
pub(crate) fn is_running(data_dir: &Path) -> bool {
    look(data_dir).is_some()
}

/// Where the gateway that runs with this `data_dir` listens. None where that cannot be seen: it is another user's, or in another container.
pub(crate) fn addresses_of_running(data_dir: &Path) -> Option<Vec<SocketAddr>> {
    let line = look(data_dir)?;
    let peer = Peer::of(&line).ok()??;
    addresses_of(peer.process()).ok()
}

/// A connection to the gateway that runs with this `data_dir`, over which it was told that nothing is wanted of it.
fn look(data_dir: &Path) -> Option<UnixStream> {
    let mut line = control_socket::connect(&socket_path(data_dir)).ok()?;
    if let Err(error) = line.write_all(format!("{LOOKS}\n").as_bytes()) {
        log::debug!("the gateway that runs takes no word: {error}");
    }
    Some(line)
}

/// What is said to a gateway by somebody who only wants to know whether it runs.
pub(crate) const LOOKS: &str = "looks";

/// Where a gateway listens for its successor.
pub(crate) fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("upgrade.sock")
}

/// How long the gateway that runs may take for an answer: to write out its ledger, above all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
