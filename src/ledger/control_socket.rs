//! The control socket: a Unix socket beside the database, readable only by its owner. One JSON line in, one JSON line out.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admin::{AdminError, AdminOp, AdminReply};

/// Gives up the socket's name, for a successor to listen on.
pub(super) fn step_aside(database: &Path) {
    rename(&socket_path(database), &aside_path(database));
}

/// Takes the name again, whoever has it: the ledger's lock is ours.
pub(super) fn step_back(database: &Path) {
    rename(&aside_path(database), &socket_path(database));
}

/// The successor serves: nobody will step back.
pub(super) fn stay_aside(database: &Path) {
    let aside = aside_path(database);
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            log::error!("{} cannot be removed: {error}", aside.display());
        }
        _ => {}
    }
}

fn rename(from: &Path, to: &Path) {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            log::error!("{} cannot be renamed: {error}", from.display());
        }
        _ => {}
    }
}

/// A connection that came. One that cannot be accepted, for this process has no descriptor left, is not there to wait for either: then this
/// waits a moment, and tells the log once until it goes on. `failure` is None before the first.
pub(crate) fn accepted(
    socket: &str,
    stream: std::io::Result<UnixStream>,
    failure: &mut Option<std::io::ErrorKind>,
) -> Option<UnixStream> {
    match stream {
        Ok(stream) => {
            *failure = None;
            Some(stream)
        }
        Err(error) => {
            if failure.replace(error.kind()) != Some(error.kind()) {
                log::warn!("{socket}: {error}");
            }
            std::thread::sleep(ACCEPT_PAUSE);
            None
        }
    }
}

/// How far a command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Nobody has it.
    Nobody,
    /// It was sent, and no whole answer came: whether it was done is not known.
    Sent,
    /// The owner has answered.
    Answered,
}

pub(super) fn ask(socket: &Path, op: &AdminOp) -> Result<AdminReply, AdminError> {
    ask_noting(socket, (op, WAIT_MAX), &mut Reached::Nobody)
}

/// The same, waiting for so long, and how far the command came.
pub(super) fn ask_noting(
    socket: &Path,
    (op, wait): (&AdminOp, Duration),
    reached: &mut Reached,
) -> Result<AdminReply, AdminError> {
    *reached = Reached::Nobody;
    let failed = |error: std::io::Error| AdminError::Store(format!("{}: {error}", socket.display()));
    let mut stream = connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(wait)).map_err(failed)?;
    let mut text = serde_json::to_vec(op).map_err(|error| AdminError::Invalid(error.to_string()))?;
    text.push(b'\n');
    stream.write_all(&text).map_err(failed)?;
    *reached = Reached::Sent;
    let unanswered = |error: std::io::Error| {
        let why = match is_late(&error) {
            true => format!("no answer within {} s; the gateway goes on with it", wait.as_secs()),
            false => error.to_string(),
        };
        AdminError::Store(match op.writes() {
            true => format!("{}: {why}; {UNKNOWN_IF_DONE}", socket.display()),
            false => format!("{}: {why}", socket.display()),
        })
    };
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(unanswered)?;
    // An owner that dies writes no line, or a part of one.
    if !line.ends_with('\n') {
        return Err(unanswered(ErrorKind::UnexpectedEof.into()));
    }
    *reached = Reached::Answered;
    read_reply(&line).map_err(|error| AdminError::Store(format!("the gateway's answer cannot be read: {error}")))?
}

/// What an owner answers, as a line. Earlier versions know no [`AdminError::Conflict`]: they read it as invalid, and pass the mark beside it over.
pub(super) fn reply_line(reply: &Result<AdminReply, AdminError>) -> serde_json::Result<Vec<u8>> {
    let mut line = match reply {
        Err(AdminError::Conflict(_)) => {
            let mut value = serde_json::to_value(reply)?;
            if let Some(error) = value.get_mut("Err").and_then(serde_json::Value::as_object_mut) {
                error.insert(CONFLICT.to_owned(), true.into());
            }
            serde_json::to_vec(&value)?
        }
        reply => serde_json::to_vec(reply)?,
    };
    line.push(b'\n');
    Ok(line)
}

/// Reads such a line.
pub(super) fn read_reply(line: &str) -> serde_json::Result<Result<AdminReply, AdminError>> {
    let reply = serde_json::from_str(line)?;
    let Err(AdminError::Invalid(text)) = reply else {
        return Ok(reply);
    };
    let value: serde_json::Value = serde_json::from_str(line)?;
    let is_conflict = value.get("Err").and_then(|error| error.get(CONFLICT)) == Some(&true.into());
    Ok(Err(match is_conflict {
        true => AdminError::Conflict(text),
        false => AdminError::Invalid(text),
    }))
}

/// The member of an error's line by which it is one.
const CONFLICT: &str = "conflict";

/// Whether whoever read has waited for as long as it may.
pub(crate) fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// How long whoever gives a command waits for its answer: what reads all of the books takes longer the larger they are.
pub(super) fn wait_for(op: &AdminOp) -> Duration {
    match op {
        AdminOp::By(acted) => wait_for(&acted.op),
        AdminOp::Audit | AdminOp::Repair => BOOKS_WAIT_MAX,
        _ => WAIT_MAX,
    }
}

/// Connects to a Unix socket, however long its path is.
pub(crate) fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    in_folder(socket, |short| UnixStream::connect(short))
}

/// A socket's address holds 107 bytes; through an open folder every path is short enough.
pub(crate) fn in_folder<T>(socket: &Path, act: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        return act(socket);
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let opened = std::fs::File::open(folder)?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&opened);
    act(&Path::new("/proc/self/fd").join(descriptor.to_string()).join(name))
}

/// Where the socket of the process before waits while its successor starts.
fn aside_path(database: &Path) -> PathBuf {
    database.with_extension("control.before")
}

/// Where the owner of a database listens.
pub(crate) fn socket_path(database: &Path) -> PathBuf {
    database.with_extension("control")
}

/// What is said of a command that was sent and not answered.
const UNKNOWN_IF_DONE: &str =
    "it is not known whether it was done: look, and run it again where it was not; a reference counts once";

pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);
/// As long as gateways on Redis wait for each other's audits.
const BOOKS_WAIT_MAX: Duration = Duration::from_secs(900);

/// How long is waited when a connection cannot be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::ledger::admin::Acted;
    use crate::ledger::admin::operators::Actor;
    use crate::ledger::tests::logged::logged;
    use crate::pure::operator::Role;

    /// Whoever only listens has the command, and says nothing.
    #[test]
    fn an_answer_that_does_not_come_in_time_is_told_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ledger.control");
        let _listener = UnixListener::bind(&socket).unwrap();
        let told = |op: &AdminOp| {
            let mut reached = Reached::Nobody;
            let asked = ask_noting(&socket, (op, Duration::from_secs(1)), &mut reached);
            assert_eq!(reached, Reached::Sent);
            asked.unwrap_err().to_string()
        };
        let why = format!(
            "the store failed: {}: no answer within 1 s; the gateway goes on with it",
            socket.display()
        );
        assert_eq!(told(&AdminOp::AccountList), why);
        assert_eq!(
            told(&AdminOp::Maintenance { on: true }),
            format!("{why}; {UNKNOWN_IF_DONE}")
        );
    }

    #[test]
    fn what_reads_all_of_the_books_is_waited_for_longer() {
        let actor = Actor {
            id: "cli".to_owned(),
            name: "root".to_owned(),
            role: Role::Admin,
            address: None,
        };
        let by = |op: AdminOp| {
            let actor = actor.clone();
            AdminOp::By(Box::new(Acted { actor, op }))
        };
        for (op, seconds) in [
            (AdminOp::Audit, 900),
            (AdminOp::Repair, 900),
            (AdminOp::AccountList, 30),
            (AdminOp::Maintenance { on: true }, 30),
        ] {
            let expected = Duration::from_secs(seconds);
            assert_eq!(wait_for(&op), expected, "{op:?}");
            assert_eq!(wait_for(&by(op)), expected);
        }
    }

    /// A folder in place of a socket, or none at all.
    #[test]
    fn what_cannot_be_put_aside_is_logged_and_what_is_not_there_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("ledger.db");
        for act in [step_aside, step_back, stay_aside] {
            assert_eq!(logged(|| act(&database)), Vec::<String>::new());
        }
        let (socket, aside) = (socket_path(&database), aside_path(&database));
        std::fs::write(&socket, "").unwrap();
        std::fs::create_dir(&aside).unwrap();
        for (act, path, what) in [
            (step_aside as fn(&Path), &socket, "cannot be renamed"),
            (step_back, &aside, "cannot be renamed"),
            (stay_aside, &aside, "cannot be removed"),
        ] {
            let lines = logged(|| act(&database));
            let begins = format!("ERROR {} {what}: ", path.display());
            assert!(lines.len() == 1 && lines[0].starts_with(&begins), "{lines:?}");
        }
    }

    #[test]
    fn a_socket_that_cannot_accept_says_so_once_until_it_goes_on() {
        let out_of_descriptors = || Err(std::io::Error::from_raw_os_error(libc::EMFILE));
        let mut failure = None;
        let lines = logged(|| {
            for _ in 0..2 {
                for _ in 0..2 {
                    assert!(accepted("a.sock", out_of_descriptors(), &mut failure).is_none());
                }
                let (one, _other) = UnixStream::pair().unwrap();
                assert!(accepted("a.sock", Ok(one), &mut failure).is_some());
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("WARN a.sock: ")), "{lines:?}");
    }

    #[test]
    fn a_socket_steps_aside_and_back_or_stays_aside() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("ledger.db");
        let (socket, aside) = (socket_path(&database), aside_path(&database));
        let there = || (socket.exists(), aside.exists());
        std::fs::write(&socket, "").unwrap();
        step_aside(&database);
        assert_eq!(there(), (false, true));
        // A successor that failed has left its own.
        std::fs::write(&socket, "successor").unwrap();
        step_back(&database);
        assert_eq!(there(), (true, false));
        assert_eq!(std::fs::read_to_string(&socket).unwrap(), "");
        step_aside(&database);
        stay_aside(&database);
        assert_eq!(there(), (false, false));
    }
}
