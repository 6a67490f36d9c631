//! The old process' end of an upgrade: it gives its successor what that asks for, and takes it back when the successor does not get to serve.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::descriptor;
use super::peer::Peer;
use super::systemd::Systemd;
use super::upgrade::{LOOKS, Successor, socket_path};
use crate::failpoints;
use crate::gateway::Tollgate;
use crate::ledger::StoreError;
use crate::ledger::control_socket;
use crate::ledger::embedded::SERVES_WITHIN;
use crate::ledger::journal::recover;

/// The listening socket, for a successor, as long as this process listens. Clones are handles to the same.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    socket: Arc<Mutex<Option<OwnedFd>>>,
}

/// What a successor can ask for.
pub(crate) struct Handover {
    pub(crate) tollgate: Tollgate,
    pub(crate) listening: Listening,
    pub(crate) supervisor: Systemd,
    /// The one that SIGUSR2 starts.
    pub(crate) successor: Option<Successor>,
    /// Told once a successor serves.
    pub(crate) succeeded: Arc<Notify>,
}

/// What a successor says, a line each.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The listening socket is wanted.
    Listener,
    /// The embedded ledger at this path is wanted.
    Ledger(PathBuf),
    /// It accepts connections.
    Serves,
    /// It does not get so far.
    Failed,
    /// It is no successor, and only wanted to know whether this process runs.
    Looks,
}

/// What a successor has of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing, and it wants nothing.
    Looked,
    /// Nothing that this process would miss.
    Prepares,
    /// The listening socket, as this process does: clients whom nobody answers would wait in it once this one has ended.
    HasListener,
    /// The ledger.
    HasLedger,
    /// Everything: this process stops.
    Serves,
}

impl Listening {
    pub(crate) fn new(address: SocketAddr, socket: OwnedFd) -> Listening {
        Listening {
            address,
            socket: Arc::new(Mutex::new(Some(socket))),
        }
    }

    /// No more connections come to this process: where nobody else has the socket, whoever connects is refused.
    pub(crate) fn close(&self) {
        drop(self.socket.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn send(&self, to: &UnixStream) -> std::io::Result<()> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.as_ref().ok_or(ErrorKind::NotConnected)?;
        descriptor::send(to, format!("listener {}\n", self.address).as_bytes(), socket.as_fd())
    }
}

impl Handover {
    /// Waits for successors, on a thread of its own, in the place of whoever did so before.
    ///
    /// # Errors
    /// When the socket cannot be made, or the thread cannot be started.
    pub(crate) fn listen(self, data_dir: &Path) -> std::io::Result<()> {
        let path = socket_path(data_dir);
        let new = path.with_extension(std::process::id().to_string());
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = control_socket::in_folder(&new, |short| UnixListener::bind(short))?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&new, &path)?;
        let wait = move || {
            let mut failure = None;
            for stream in listener.incoming() {
                if let Some(stream) = control_socket::accepted("upgrade.sock", stream, &mut failure)
                    && self.give(&stream) == Stage::Serves
                {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("upgrade".to_owned()).spawn(wait)?;
        Ok(())
    }

    /// Gives a successor what it asks for until it serves or fails, and takes it back when it fails.
    fn give(&self, to: &UnixStream) -> Stage {
        let peer = match Peer::of(to) {
            Ok(Some(peer)) => peer,
            // It only looked whether a gateway runs, or failed before it was heard: whatever it said, nobody waits for the answer.
            Ok(None) => return Stage::Looked,
            // Such as `check` in another container, which cannot be seen from here and needs not be watched.
            Err(_) if only_looks(to) => return Stage::Looked,
            Err(error) => {
                log::error!("a process that is to take over cannot be watched: {error}");
                return Stage::Prepares;
            }
        };
        let mut stage = Stage::Prepares;
        let child = self.successor.as_ref();
        if let Some(child) = child {
            child.talks();
        }
        let ended = self.converse(to, &mut stage);
        let says_so = ended.is_ok();
        let ended = ended.map_or_else(|error| error.to_string(), |()| "the new one failed".into());
        match stage {
            Stage::Looked => {}
            Stage::Serves => self.succeeded.notify_one(),
            Stage::Prepares | Stage::HasListener => {
                log::error!("no other process takes over, this one goes on: {ended}");
                let is_child = child.and_then(Successor::process) == Some(peer.process());
                // One that says that it has failed ends; another may hang. The socket is nobody's but this process'.
                if stage == Stage::HasListener || (is_child && !says_so) {
                    peer.end();
                }
            }
            Stage::HasLedger => {
                log::error!("the process that took the ledger over does not serve, this one goes on: {ended}");
                peer.end();
                self.take_back();
            }
        }
        if let Some(child) = child {
            match stage {
                Stage::Looked => child.was_another(),
                Stage::Prepares | Stage::HasListener | Stage::HasLedger => child.has_failed(),
                Stage::Serves => {}
            }
        }
        stage
    }

    /// Answers line by line. Returns when the successor serves, has failed or is gone; an error says why it has not come further.
    fn converse(&self, with: &UnixStream, stage: &mut Stage) -> std::io::Result<()> {
        let mut lines = BufReader::new(with.take(LINES_BYTES_MAX));
        let mut answer = with;
        with.set_write_timeout(Some(ANSWER_MAX))?;
        loop {
            let limit = match stage {
                Stage::Prepares | Stage::HasListener | Stage::Looked => failpoints::limit("prepares", PREPARES_MAX),
                Stage::HasLedger | Stage::Serves => failpoints::limit("serves", SERVES_WITHIN),
            };
            with.set_read_timeout(Some(limit))?;
            let said = Said::read(&mut lines).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => std::io::Error::other(format!("it has said nothing for {limit:?}")),
                _ => error,
            })?;
            match said {
                Said::Failed => return Ok(()),
                Said::Looks => {
                    *stage = Stage::Looked;
                    return Ok(());
                }
                _ if self.tollgate.lifecycle().is_stopping() => answer.write_all(b"it stops\n")?,
                Said::Listener | Said::Ledger(_) if is_first_process() => {
                    answer.write_all(format!("{FIRST_PROCESS}\n").as_bytes())?;
                }
                Said::Listener => {
                    self.listening.send(with)?;
                    if *stage == Stage::Prepares {
                        *stage = Stage::HasListener;
                    }
                }
                Said::Ledger(path) => match self.hand_over(&path) {
                    Ok(()) => {
                        *stage = Stage::HasLedger;
                        answer.write_all(b"ledger\n")?;
                    }
                    Err(error) => answer.write_all(format!("{error}\n").as_bytes())?,
                },
                Said::Serves => {
                    if !self.lets_serve() {
                        answer.write_all(b"it stops\n")?;
                        continue;
                    }
                    // Before the new process can say or do anything as the main one.
                    if let Some(process) = self.successor.as_ref().and_then(Successor::process) {
                        self.supervisor.succeeded_by(process);
                    }
                    answer.write_all(b"serves\n")?;
                    *stage = Stage::Serves;
                    if let Some(embedded) = self.tollgate.embedded() {
                        embedded.stays_handed_over();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// False when this process stops instead. Once it is true, a stop does not end the child that it has started any more.
    fn lets_serve(&self) -> bool {
        let stops = || self.tollgate.lifecycle().is_stopping();
        match &self.successor {
            Some(child) => child.serves_unless(stops),
            None => !stops(),
        }
    }

    /// Gives up the embedded ledger, when it is the one at this path.
    fn hand_over(&self, path: &Path) -> Result<(), StoreError> {
        let other = || StoreError::Unavailable(format!("its ledger is not {}", path.display()));
        // The one that is open: what the configuration names since may be in force from the next start on.
        let embedded = self.tollgate.embedded().ok_or_else(other)?;
        let own = std::fs::canonicalize(embedded.path()).map_err(|_| other())?;
        if std::fs::canonicalize(path).ok() != Some(own) {
            return Err(other());
        }
        embedded.hand_over()
    }

    /// Takes the ledger back from a successor that is dead. Does not give up: without it no call can be admitted.
    fn take_back(&self) {
        let (Some(embedded), Ok(books)) = (self.tollgate.embedded(), self.tollgate.books()) else {
            return;
        };
        let bill_the_dead = || {
            books
                .ledger
                .recovered(recover::recover_others(&books.journal, &books.ledger))
        };
        let mut told = String::new();
        while let Err(error) = embedded.take_back(bill_the_dead) {
            let error = error.to_string();
            if told != error {
                log::error!("MONEY: the ledger cannot be taken back yet, new paid calls wait: {error}");
                told = error;
            }
            std::thread::sleep(TAKE_BACK_PAUSE);
        }
        log::warn!("the ledger is this process' again");
    }
}

impl Said {
    fn read(lines: &mut impl BufRead) -> std::io::Result<Said> {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let Some(line) = line.strip_suffix('\n') else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        match line.split_once(' ') {
            None if line == "listener" => Ok(Said::Listener),
            None if line == "serves" => Ok(Said::Serves),
            None if line == "failed" => Ok(Said::Failed),
            None if line == LOOKS => Ok(Said::Looks),
            Some(("ledger", path)) => Ok(Said::Ledger(path.into())),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Whether the first that is said is that it only looks.
fn only_looks(from: &UnixStream) -> bool {
    let mut lines = BufReader::new(from.take(LINES_BYTES_MAX));
    let can_wait = from.set_read_timeout(Some(LOOKS_MAX)).is_ok();
    can_wait && Said::read(&mut lines).is_ok_and(|said| said == Said::Looks)
}

/// How much a successor may say in all.
const LINES_BYTES_MAX: u64 = 1 << 14;
/// How long a successor may take to open everything but the ledger.
const PREPARES_MAX: Duration = Duration::from_secs(120);
/// Whoever only looks says so as soon as it has connected; nobody else is answered meanwhile.
const LOOKS_MAX: Duration = Duration::from_millis(200);
const ANSWER_MAX: Duration = Duration::from_secs(5);
const TAKE_BACK_PAUSE: Duration = Duration::from_millis(5);

/// Whether this is the first process of a container: the kernel ends all others there with it, and so whoever would take over from it.
pub(super) fn is_first_process() -> bool {
    std::process::id() == 1
}

/// What is said then to whoever would take over.
pub(super) const FIRST_PROCESS: &str =
    "it is the first process of its container, which ends with it: stop it, and start another container in its place";

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` in another container with the same volume was an upgrade that failed, in the log of the gateway.
    #[test]
    fn a_process_that_cannot_be_seen_may_look() {
        for (said, looks) in [
            (format!("{LOOKS}\n"), true),
            ("listener\n".to_owned(), false),
            (String::new(), false),
        ] {
            let (one, mut other) = UnixStream::pair().unwrap();
            other.write_all(said.as_bytes()).unwrap();
            drop(other);
            assert_eq!(only_looks(&one), looks, "{said:?}");
        }
    }
}
