//! The change from one binary to the next: `tollgate serve --upgrade` takes over from the gateway that runs. On SIGUSR2 a gateway starts
//! it itself, from the file that stands by now where its own stood, as a child in the same cgroup and sandbox.
//!
//! The new process takes the embedded ledger first, then the listening sockets, which the old one sends when it gets SIGQUIT. For some
//! seconds both accept connections; the old process closes each of its own with the next answer, lets its streams finish, and ends.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::open::StartError;
use crate::clock::monotonic;

/// How a gateway starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On its own.
    Fresh,
    /// In the place of one that runs with the same `data_dir`.
    Upgrade,
}

/// How long the old process accepts connections after it has sent its sockets. Pingora's own constant.
pub(super) const BOTH_ACCEPT: Duration = Duration::from_secs(5);

/// How a gateway starts the process that takes its place.
#[derive(Debug)]
pub struct Successor {
    program: PathBuf,
    arguments: Vec<OsString>,
    running: Arc<Mutex<Option<u32>>>,
}

/// The file that says which process runs, locked for as long as it does.
#[derive(Debug)]
pub(super) struct PidFile {
    _locked: File,
}

/// The gateway that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predecessor {
    process: i32,
}

impl Successor {
    /// One that is started as `program` with these arguments, which make it take over.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Successor {
        Successor {
            program,
            arguments,
            running: Arc::default(),
        }
    }

    /// Starts it, unless one is starting already. When it ends before it has taken over, this process goes on as before.
    pub(super) fn start(&self) {
        let mut running = self.lock();
        if let Some(process) = *running {
            return log::warn!("process {process} is taking over already");
        }
        let program = self.program.display();
        let started = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return log::error!("{program} cannot be started, this process goes on: {error}"),
        };
        log::info!("started {program} as process {}, to take over", child.id());
        *running = Some(child.id());
        let running = Arc::clone(&self.running);
        let wait = move || {
            let ended = child.wait();
            *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
            match ended {
                Ok(status) => log::error!("the process that was to take over has ended: {status}"),
                Err(error) => log::error!("the process that was to take over is lost: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("successor".to_owned()).spawn(wait) {
            log::error!("nobody waits for the process that takes over: {error}");
        }
    }

    /// The process that was started, while it runs.
    pub(super) fn process(&self) -> Option<u32> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PidFile {
    /// Says that this process runs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(data_dir: &Path) -> std::io::Result<PidFile> {
        std::fs::create_dir_all(data_dir)?;
        let new = data_dir.join(format!("gateway.pid.{}", std::process::id()));
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.try_lock()?;
        file.write_all(std::process::id().to_string().as_bytes())?;
        // Whoever runs keeps its lock on its own file; the name is now this process'.
        std::fs::rename(&new, pid_path(data_dir))?;
        Ok(PidFile { _locked: file })
    }
}

impl Predecessor {
    /// Finds the gateway that runs.
    ///
    /// # Errors
    /// When none does.
    pub(super) fn find(data_dir: &Path) -> Result<Predecessor, StartError> {
        let path = pid_path(data_dir);
        let none = || format!("no gateway runs with {}: start without --upgrade", data_dir.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|_| none())?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => {}
            Ok(()) => return Err(none().into()),
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let process = text
            .trim()
            .parse()
            .map_err(|_| format!("{} names no process", path.display()))?;
        Ok(Predecessor { process })
    }

    /// Has it send its sockets as soon as `socket` is listened on.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn call(self, socket: PathBuf) -> std::io::Result<()> {
        let call = move || {
            let started = monotonic();
            while !socket.exists() {
                if started.elapsed() > LISTENS_WITHIN {
                    return log::error!("{} is not listened on", socket.display());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            // SAFETY: a signal to the process that holds the lock on the file that names it.
            if unsafe { libc::kill(self.process, libc::SIGQUIT) } != 0 {
                log::error!(
                    "process {} cannot be told to hand over: {}",
                    self.process,
                    std::io::Error::last_os_error()
                );
            }
        };
        std::thread::Builder::new().name("upgrade".to_owned()).spawn(call)?;
        Ok(())
    }
}

/// Where the sockets are passed.
///
/// # Errors
/// When the path is too long for a socket's address.
pub(super) fn socket_path(data_dir: &Path) -> Result<PathBuf, StartError> {
    let path = data_dir.join("upgrade.sock");
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!("{} is too long for a socket's address", path.display()).into());
    }
    Ok(path)
}

fn pid_path(data_dir: &Path) -> PathBuf {
    data_dir.join("gateway.pid")
}

const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// A socket's address holds 107 bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;
