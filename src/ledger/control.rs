//! How the commands reach a ledger: the process that owns the embedded one answers them on the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::admin::credits::CreditOp;
use super::admin::{AdminError, AdminOp, AdminReply};
use super::control_socket::{Reached, WAIT_MAX, accepted, ask_noting, connect, in_folder, socket_path};
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
    /// When the file is owned by a process that does not answer, or cannot be opened.
    pub fn to_embedded(path: &Path) -> Result<LedgerAccess, StoreError> {
        let path = embedded::real(path);
        if connect(&socket_path(&path)).is_ok() {
            return Ok(LedgerAccess::Socket(path));
        }
        Embedded::open(&path, Clock::System).map(|store| LedgerAccess::Own(Ledger::Embedded(store)))
    }

    /// The same to one that is there. None where there is none; then nothing is made.
    ///
    /// # Errors
    /// As [`LedgerAccess::to_embedded`].
    pub(crate) fn to_existing(path: &Path) -> Result<Option<LedgerAccess>, StoreError> {
        let path = embedded::real(path);
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
        let asked = ask_noting(&socket, op, &mut reached);
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

/// For how long a command looks for its ledger's owner.
pub(crate) const OWNER_WAIT_MAX: Duration = Duration::from_secs(5);
pub(crate) const OWNER_PAUSE: Duration = Duration::from_millis(10);

/// Reads that run at once.
const READS_MAX: usize = 32;

/// What an owner says first of a line that is no command that it knows: all versions do.
pub(crate) const UNKNOWN_COMMAND: &str = "not a command";
const LINE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::Acted;
    use crate::ledger::admin::credits::{CreditKind, CreditPost};
    use crate::ledger::admin::operators::Actor;
    use crate::pure::operator::Role;

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

    /// What a command is answered by an owner that gives these answers, none where it only hangs up, and then is gone; and how many commands
    /// that got.
    fn answered_by(
        path: &Path,
        op: &AdminOp,
        answers: Vec<Option<Result<AdminReply, AdminError>>>,
    ) -> (Result<AdminReply, AdminError>, usize) {
        const NO_MORE: &str = "no more\n";
        let mut listener = Some(UnixListener::bind(socket_path(path)).unwrap());
        let answer_all = move || {
            let last = answers.len();
            for (number, answer) in (1..).zip(answers) {
                let accept = || listener.as_ref().unwrap().accept().unwrap().0;
                let (mut stream, mut line) = (accept(), String::new());
                // A line that is empty is a probe.
                while BufReader::new(&stream).read_line(&mut line).unwrap() == 0 {
                    stream = accept();
                }
                if line == NO_MORE {
                    return number - 1;
                }
                if number == last {
                    listener = None; // Whoever asks again finds nobody.
                }
                if let Some(answer) = answer {
                    tell(&stream, &answer).unwrap();
                }
            }
            last
        };
        std::thread::scope(|scope| {
            let owner = scope.spawn(answer_all);
            let answer = LedgerAccess::to_embedded(path).unwrap().run(op.clone());
            if let Ok(mut waits) = connect(&socket_path(path)) {
                waits.write_all(NO_MORE.as_bytes()).unwrap();
            }
            let commands = owner.join().unwrap();
            std::fs::remove_file(socket_path(path)).unwrap();
            (answer, commands)
        })
    }

    fn store_failed(why: &str) -> Result<AdminReply, AdminError> {
        Err(AdminError::Store(why.to_owned()))
    }

    #[test]
    fn a_command_that_its_owner_has_not_begun_is_given_to_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (act, read) = (AdminOp::Maintenance { on: true }, AdminOp::AccountList);
        let done = || Ok(AdminReply::Maintenance { on: true });
        let listed = || Ok(AdminReply::Accounts { accounts: Vec::new() });
        let stopped = || Some(store_failed(STOPPED));
        let answers = vec![stopped(), stopped(), Some(done())];
        assert_eq!(answered_by(&path, &act, answers), (done(), 3));
        let unread = store_failed(&StoreError::Unavailable(STOPPED.to_owned()).to_string());
        let answers = vec![Some(unread), None, Some(listed())];
        assert_eq!(answered_by(&path, &read, answers), (listed(), 3));
        let busy = || store_failed("too much is read at once; ask again");
        assert_eq!(answered_by(&path, &read, vec![Some(busy())]), (busy(), 1));
        // Nobody has it any more: the command does.
        drop(Embedded::open(&path, Clock::System).unwrap());
        assert_eq!(answered_by(&path, &act, vec![stopped()]), (done(), 1));
        assert_eq!(answered_by(&path, &read, vec![None]), (listed(), 1));
        // But for what takes credit, which may be gone by what its calls have left in the journal.
        let takes = AdminOp::Credit(CreditOp::Post(CreditPost {
            account: "acme".parse().unwrap(),
            amount: Credits::from_pico(-1),
            reference: "typo".to_owned(),
            kind: CreditKind::Correction,
            note: None,
            allow_negative: false,
            as_available: false,
            is_payment: false,
        }));
        let actor = Actor {
            id: "cli".to_owned(),
            name: "root".to_owned(),
            role: Role::Admin,
            address: None,
        };
        let act = AdminOp::By(Box::new(Acted { actor, op: takes }));
        let stopped = || store_failed(STOPPED);
        assert_eq!(answered_by(&path, &act, vec![Some(stopped())]), (stopped(), 1));
    }

    #[test]
    fn an_act_that_was_sent_and_not_answered_is_sent_once_and_said_to_be_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let act = AdminOp::Maintenance { on: true };
        let (answer, commands) = answered_by(&path, &act, vec![None]);
        let says =
            "; it is not known whether it was done: look, and run it again where it was not; a reference counts once";
        assert!(
            matches!(&answer, Err(AdminError::Store(why)) if why.ends_with(says)),
            "{answer:?}"
        );
        assert_eq!(commands, 1);
    }

    #[test]
    fn a_ledger_that_is_being_made_is_waited_for_and_one_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let path = data.join("ledger.db");
        assert!(matches!(LedgerAccess::to_existing(&path), Ok(None)));
        assert!(!data.exists());
        std::fs::create_dir(&data).unwrap();
        let lock = std::fs::File::create(path.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let refused = LedgerAccess::to_existing(&path);
        assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
        lock.unlock().unwrap();
        assert!(matches!(LedgerAccess::to_existing(&path), Ok(None)));
        drop(Embedded::open(&path, Clock::System).unwrap());
        let found = LedgerAccess::to_existing(&path);
        assert!(matches!(found, Ok(Some(LedgerAccess::Own(_)))), "{found:?}");
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
