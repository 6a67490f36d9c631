//! How the commands reach a ledger: the process that owns the embedded one answers them on the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::admin::{AdminError, AdminOp, AdminReply};
use super::control_socket::{WAIT_MAX, accepted, ask, connect, in_folder, socket_path};
use super::embedded::Embedded;
use super::{Ledger, StoreError};
use crate::clock::Clock;

/// How a command reaches the ledger.
#[derive(Debug)]
pub enum LedgerAccess {
    /// This process owns it.
    Own(Ledger),
    /// Another process owns it and listens on this socket.
    Socket(PathBuf),
}

impl LedgerAccess {
    /// Opens the way to the embedded ledger at `path`: the owner's socket when there is one, else the file itself.
    ///
    /// # Errors
    /// When the file is owned by a process that does not answer, or cannot be opened.
    pub fn to_embedded(path: &Path) -> Result<LedgerAccess, StoreError> {
        let socket = socket_path(path);
        if connect(&socket).is_ok() {
            return Ok(LedgerAccess::Socket(socket));
        }
        Embedded::open(path, Clock::System).map(|store| LedgerAccess::Own(Ledger::Embedded(store)))
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

    /// Runs a command. Blocks.
    pub fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        match self {
            LedgerAccess::Own(Ledger::Embedded(store)) => store.run_blocking(op),
            LedgerAccess::Own(Ledger::Redis(store)) => store.run_blocking(op),
            LedgerAccess::Socket(socket) => ask(socket, &op),
        }
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
    let (store, reading) = (Arc::downgrade(store), Arc::new(()));
    let serve = move || {
        let mut failure = None;
        for stream in listener.incoming() {
            let Some(store) = store.upgrade() else { return };
            let Some(stream) = accepted("control socket", stream, &mut failure) else {
                continue;
            };
            if let Err(error) = answer(stream, store, &reading) {
                log::warn!("control socket: {error}");
            }
        }
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(serve)
        .map_err(unavailable)?;
    Ok(())
}

/// Answers one command. What only reads is read on a thread of its own, one for each `reading`: whoever asks next does not wait for it, be it
/// an act, or a call of the process before this one.
fn answer(stream: UnixStream, store: Arc<Embedded>, reading: &Arc<()>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(()); // A probe for whether somebody listens.
    }
    let op = match serde_json::from_str::<AdminOp>(&line) {
        Ok(op) => op,
        Err(error) => {
            let unknown = AdminError::Invalid(format!("{UNKNOWN_COMMAND}: {error}"));
            return tell(&stream, &Err(unknown));
        }
    };
    if !op.only_reads() {
        let _answering = store.answering();
        return tell(&stream, &store.run_blocking(op));
    }
    if Arc::strong_count(reading) > READS_MAX {
        let busy = AdminError::Store("too much is read at once; ask again".to_owned());
        return tell(&stream, &Err(busy));
    }
    let reading = Arc::clone(reading);
    let read = move || {
        if let Err(error) = tell(&stream, &store.run_blocking(op)) {
            log::warn!("control socket: {error}");
        }
        drop(reading);
    };
    std::thread::Builder::new()
        .name("control-read".to_owned())
        .spawn(read)?;
    Ok(())
}

fn tell(mut stream: &UnixStream, reply: &Result<AdminReply, AdminError>) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(reply)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Reads that run at once.
const READS_MAX: usize = 32;

/// What an owner says first of a line that is no command that it knows: all versions do.
pub(crate) const UNKNOWN_COMMAND: &str = "not a command";
const LINE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What an owner with so many reads under way answers.
    fn answered(store: &Arc<Embedded>, under_way: usize, op: &AdminOp) -> Result<AdminReply, AdminError> {
        let (asking, asked) = UnixStream::pair().unwrap();
        let mut text = serde_json::to_vec(op).unwrap();
        text.push(b'\n');
        (&asking).write_all(&text).unwrap();
        let reading = Arc::new(());
        let reads: Vec<Arc<()>> = std::iter::repeat_n(Arc::clone(&reading), under_way).collect();
        answer(asked, Arc::clone(store), &reading).unwrap();
        let mut line = String::new();
        BufReader::new(asking).read_line(&mut line).unwrap();
        drop(reads);
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn reads_have_a_bound_and_acts_do_not_wait_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(&folder.path().join("ledger.db"), Clock::System).unwrap();
        let read = AdminOp::AccountList;
        assert!(answered(&store, 0, &read).is_ok());
        assert!(answered(&store, READS_MAX - 1, &read).is_ok());
        let busy = Err(AdminError::Store("too much is read at once; ask again".to_owned()));
        for under_way in [READS_MAX, READS_MAX + 1] {
            assert_eq!(answered(&store, under_way, &read), busy);
            let act = AdminOp::Maintenance { on: true };
            assert_eq!(
                answered(&store, under_way, &act),
                Ok(AdminReply::Maintenance { on: true })
            );
        }
    }

    #[test]
    fn a_socket_that_cannot_be_removed_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let store = Embedded::open(&path, Clock::System).unwrap();
        std::fs::create_dir_all(socket_path(&path).join("full")).unwrap();
        let told = listen(&store).unwrap_err().to_string();
        let begins = format!("cannot listen on the control socket {}", socket_path(&path).display());
        assert!(told.contains(&begins) && told.contains("directory"), "{told}");
    }
}
