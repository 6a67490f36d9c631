//! How the commands reach a ledger: the process that owns the embedded one answers them on the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::admin::credits::CreditOp;
use super::admin::unseen::Maker;
use super::admin::{AdminError, AdminOp, AdminReply};
use super::control_socket::{
    Reached, WAIT_MAX, accepted, ask_noting, connect, in_folder, reply_line, socket_path, wait_for,
};
use super::embedded::{self, Embedded};
use super::{Ledger, STOPPED, StoreError};
use crate::clock::{Clock, monotonic};
use crate::pure::money::Credits;

/// How a command reaches the ledger.
#[derive(Debug)]
pub enum LedgerAccess {
    /// This process owns it.
    Own(Ledger),
    /// Another process owns the one in this file, and listens on the socket beside it.
    Socket(PathBuf),
}

impl LedgerAccess {
    /// Opens the way to the embedded ledger at `path`: the owner's socket when there is one, else the file itself, which is made where it
    /// is missing.
    ///
    /// # Errors
    /// When the file is owned by a process that does not answer, or cannot be opened; and when its socket is that of another ledger in the
    /// folder.
    pub fn to_embedded(path: &Path) -> Result<LedgerAccess, StoreError> {
        let path = embedded::real(path);
        embedded::expect_lock_of(&path)?;
        if connect(&socket_path(&path)).is_ok() {
            return Ok(LedgerAccess::Socket(path));
        }
        Embedded::open(&path, Clock::System).map(|store| LedgerAccess::Own(Ledger::Embedded(store)))
    }

    /// Whether [`LedgerAccess::to_embedded`] would make a new one. What cannot be looked at is none.
    pub(crate) fn is_new(path: &Path) -> bool {
        let path = embedded::real(path);
        embedded::expect_lock_of(&path).is_ok() && connect(&socket_path(&path)).is_err() && embedded::is_new(&path)
    }

    /// The same to one that is there. None where there is none; then nothing is made.
    ///
    /// # Errors
    /// As [`LedgerAccess::to_embedded`].
    pub(crate) fn to_existing(path: &Path) -> Result<Option<LedgerAccess>, StoreError> {
        let path = embedded::real(path);
        embedded::expect_lock_of(&path)?;
        if connect(&socket_path(&path)).is_err() && embedded::is_new(&path) {
            // Whoever makes it at this moment has its lock.
            Embedded::expect_no_owner(&path)?;
            if embedded::is_new(&path) {
                return Ok(None);
            }
        }
        LedgerAccess::to_embedded(&path).map(Some)
    }

    /// Opens the way to the ledger that the configuration names.
    ///
    /// # Errors
    /// As [`LedgerAccess::to_embedded`], and when Redis cannot be reached.
    pub fn to(config: &crate::config::Config) -> Result<LedgerAccess, StoreError> {
        match &config.store {
            crate::config::Store::Sqlite(path) => LedgerAccess::to_embedded(path),
            crate::config::Store::Redis(_) | crate::config::Store::Missing(_) | crate::config::Store::Remote(_) => {
                super::open(config).map(LedgerAccess::Own)
            }
        }
    }

    /// Runs a command. Where its owner goes before it has begun it, or only reads it and does not answer, the ledger's next owner is looked
    /// for, for 5 seconds at most. Blocks.
    ///
    /// # Errors
    /// When it is refused or fails, nobody answers, or the owner has it and does not answer: then the error says that it may be done.
    pub fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        match self {
            LedgerAccess::Own(Ledger::Embedded(store)) => store.run_blocking(op),
            LedgerAccess::Own(Ledger::Redis(store)) => store.run_blocking(op),
            LedgerAccess::Socket(path) => ask_owner(path, &op),
        }
    }
}

/// Asks whoever owns the ledger at `path`, which may change hands meanwhile, or be nobody's: then it is this process' for the command.
fn ask_owner(path: &Path, op: &AdminOp) -> Result<AdminReply, AdminError> {
    let (socket, started) = (socket_path(path), monotonic());
    loop {
        let mut reached = Reached::Nobody;
        let asked = ask_noting(&socket, (op, wait_for(op)), &mut reached);
        if !may_be_asked_again(&asked, op, reached) || started.elapsed() >= OWNER_WAIT_MAX {
            return asked;
        }
        std::thread::sleep(OWNER_PAUSE);
        // It has an owner that listens, or one that does not yet; an error of the next try says what else it is.
        if let Ok(Some(LedgerAccess::Own(Ledger::Embedded(store)))) = LedgerAccess::to_existing(path) {
            // What its calls have used has to be billed before: whoever runs it again has that done.
            return if takes_credit(op) {
                asked
            } else {
                store.run_blocking(op.clone())
            };
        }
    }
}

/// Whether a command takes credit from an account.
pub fn takes_credit(op: &AdminOp) -> bool {
    match op {
        AdminOp::By(acted) => takes_credit(&acted.op),
        AdminOp::Credit(CreditOp::Post(post)) => post.amount < Credits::ZERO,
        _ => false,
    }
}

/// Whether the command has certainly had no effect for want of an owner.
fn may_be_asked_again(asked: &Result<AdminReply, AdminError>, op: &AdminOp, reached: Reached) -> bool {
    match (asked, reached) {
        (Err(AdminError::Store(_)), Reached::Nobody) => true,
        (Err(AdminError::Store(_)), Reached::Sent) => !op.writes(),
        (Err(AdminError::Store(why)), Reached::Answered) => why.ends_with(STOPPED),
        (Ok(_) | Err(_), _) => false,
    }
}

/// Answers commands on the ledger's control socket until the process ends.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(store: &Arc<Embedded>) -> Result<(), StoreError> {
    let path = socket_path(store.path());
    let unavailable = |error: std::io::Error| {
        StoreError::Unavailable(format!(
            "cannot listen on the control socket {}: {error}",
            path.display()
        ))
    };
    // The lock on the ledger is ours, so a socket that lies there belongs to a process that is gone.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(error)),
        _ => {}
    }
    let listener = in_folder(&path, |short| UnixListener::bind(short)).map_err(unavailable)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(unavailable)?;
    let (store, places) = (Arc::downgrade(store), Places::default());
    let serve = move || {
        let mut failure = None;
        for stream in listener.incoming() {
            let has_stopped = store.strong_count() == 0;
            let answer = |stream| {
                if let Err(error) = begin(stream, &store, &places) {
                    log::warn!("control socket: {error}");
                }
            };
            if let Some(stream) = accepted("control socket", stream, &mut failure) {
                answer(stream);
            }
            if has_stopped {
                // Whoever else waits is told too that the ledger has another owner now, or none.
                if listener.set_nonblocking(true).is_ok() {
                    while let Ok((stream, _)) = listener.accept() {
                        answer(stream);
                    }
                }
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(serve)
        .map_err(unavailable)?;
    Ok(())
}

/// What is under way.
#[derive(Default)]
struct Places {
    /// One clone for each connection that is answered.
    all: Arc<()>,
    /// How many of them read.
    reads: Arc<AtomicUsize>,
}

/// Answers one command on a thread of its own: whoever asks next waits neither for what is read, be it an act or a call of the process before
/// this one, nor for one who has connected and says nothing.
fn begin(stream: UnixStream, store: &Weak<Embedded>, places: &Places) -> std::io::Result<()> {
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    if Arc::strong_count(&places.all) > CONNECTIONS_MAX {
        return tell(&stream, &busy());
    }
    let (store, all, reads) = (Weak::clone(store), Arc::clone(&places.all), Arc::clone(&places.reads));
    let stream = Arc::new(stream);
    let asked = Arc::clone(&stream);
    let answer = move || {
        if let Err(error) = answer(&asked, &store, &reads) {
            log::warn!("control socket: {error}");
        }
        drop(all);
    };
    let thread = std::thread::Builder::new().name("control-answer".to_owned());
    match thread.spawn(answer) {
        Ok(_) => Ok(()),
        Err(error) => tell(&stream, &busy()).and(Err(error)),
    }
}

fn answer(stream: &UnixStream, store: &Weak<Embedded>, reads: &AtomicUsize) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(()); // A probe for whether somebody listens.
    }
    let op = match serde_json::from_str::<AdminOp>(&line) {
        Ok(op) => op,
        Err(error) => {
            let unknown = AdminError::Invalid(format!("{UNKNOWN_COMMAND}: {error}"));
            return tell(stream, &Err(unknown));
        }
    };
    let Some(store) = store.upgrade() else {
        // Nothing was done: the next owner can be asked.
        return tell(stream, &Err(AdminError::Store(STOPPED.to_owned())));
    };
    if op.only_reads() {
        if reads.fetch_add(1, Ordering::Relaxed) >= READS_MAX {
            reads.fetch_sub(1, Ordering::Relaxed);
            return tell(stream, &busy());
        }
        let reply = store.run_blocking(op);
        let told = tell(stream, &reply);
        reads.fetch_sub(1, Ordering::Relaxed);
        return told;
    }
    let _answering = store.answering();
    let maker = Maker::of(&op);
    let reply = store.run_blocking(op);
    let told = tell(stream, &reply);
    if told.is_err()
        && let (Some(maker), Ok(reply)) = (maker, &reply)
    {
        take_back(&store, maker, reply);
    }
    told
}

/// Whoever asked for it has gone, and nobody has the text of what was made.
fn take_back(store: &Embedded, maker: Maker, reply: &AdminReply) {
    let Some(revoke) = maker.revoke(reply) else { return };
    log::warn!("a key or a token was made for somebody who was not given the answer: it is revoked again");
    if let Err(error) = store.run_blocking(revoke) {
        log::error!("it cannot be revoked: {error}; see the log of acts");
    }
}

fn busy() -> Result<AdminReply, AdminError> {
    Err(AdminError::Store("too much is asked at once; ask again".to_owned()))
}

fn tell(mut stream: &UnixStream, reply: &Result<AdminReply, AdminError>) -> std::io::Result<()> {
    stream.write_all(&reply_line(reply)?)
}

/// For how long a command looks for its ledger's owner.
pub(crate) const OWNER_WAIT_MAX: Duration = Duration::from_secs(5);
pub(crate) const OWNER_PAUSE: Duration = Duration::from_millis(10);

/// Reads that run at once, and connections that are answered: acts wait for each other.
const READS_MAX: usize = 32;
const CONNECTIONS_MAX: usize = 256;

/// What an owner says first of a line that is no command that it knows: all versions do.
pub(crate) const UNKNOWN_COMMAND: &str = "not a command";
const LINE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
