//! The access log's writer: a thread that takes what requests have left, four times a second, and writes it in one piece.
//!
//! Requests never wait for it. When it falls behind (a full disk, a reader that stalls), lines are dropped and counted. A file that is made
//! is for the gateway's user alone, for it says who calls whom; one that is there keeps its mode.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::log_format::Lines;
use super::{Telemetry, Waiting};
use crate::config::AccessLog;

/// The writer, for whoever stops the process.
#[derive(Debug)]
pub struct Writer {
    closing: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Where the lines go.
#[derive(Debug)]
enum Sink {
    /// Standard output; columns when it is a terminal.
    Stdout,
    /// A file, opened again when it was moved away.
    File { path: PathBuf, file: File },
}

impl Writer {
    /// Starts writing. Nothing is started for [`AccessLog::Off`].
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn start(telemetry: &Arc<Telemetry>, to: &AccessLog) -> std::io::Result<Writer> {
        let closing = Arc::new((Mutex::new(false), Condvar::new()));
        let sink = match to {
            AccessLog::Off => return Ok(Writer { closing, thread: None }),
            AccessLog::Stdout => Sink::Stdout,
            AccessLog::File(path) => Sink::File {
                file: open(path)?,
                path: path.clone(),
            },
        };
        telemetry.logs.store(true, Ordering::Relaxed);
        let (telemetry, closes) = (Arc::downgrade(telemetry), Arc::clone(&closing));
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || run(&telemetry, sink, &closes))?;
        Ok(Writer {
            closing,
            thread: Some(thread),
        })
    }

    /// Writes what is left, as far as somebody takes it within two seconds: a reader that has stopped does not hold up a stop. Blocks;
    /// called once, after the last request.
    pub fn close(&mut self) {
        let (lock, condition) = &*self.closing;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_all();
        let Some(thread) = self.thread.take() else { return };
        let started = crate::clock::monotonic();
        while !thread.is_finished() {
            if started.elapsed() > CLOSE_MAX {
                return log::error!("nobody takes the last lines of the access log");
            }
            std::thread::sleep(CLOSE_PAUSE);
        }
        if thread.join().is_err() {
            log::error!("the thread that writes the access log panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// How long the end waits for a reader of the access log.
const CLOSE_MAX: Duration = Duration::from_secs(2);
const CLOSE_PAUSE: Duration = Duration::from_millis(5);

fn run(telemetry: &Weak<Telemetry>, mut sink: Sink, closing: &(Mutex<bool>, Condvar)) {
    let (mut lines, mut buffer) = (Lines::default(), Vec::new());
    let human = matches!(sink, Sink::Stdout) && std::io::stdout().is_terminal();
    let mut failing = false;
    loop {
        let closes = {
            let (lock, condition) = closing;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = condition.wait_timeout_while(guard, WRITE_EVERY, |closes| !*closes);
            *waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let Some(telemetry) = telemetry.upgrade() else { return };
        let mut count = 0u64;
        telemetry.take_waiting(|records: Waiting| {
            for record in records {
                match human {
                    true => lines.human(&record, &mut buffer),
                    false => lines.json(&record, &mut buffer),
                }
                count = count.saturating_add(1);
            }
        });
        if !buffer.is_empty() {
            let written = sink.write(&buffer);
            match &written {
                Ok(()) => {
                    telemetry.lines.fetch_add(count, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    log::warn!("the access log's reader has gone; it is off from now on");
                    telemetry.logs.store(false, Ordering::Relaxed);
                    return;
                }
                Err(_) => telemetry.lines_lost(count),
            }
            failing = tell(failing, &written);
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT_BYTES);
        }
        if closes {
            return;
        }
    }
}

/// Tells once when it begins to fail, and once when it works again. Returns whether it fails.
fn tell(failed: bool, written: &std::io::Result<()>) -> bool {
    match (failed, written) {
        (false, Err(error)) => log::error!("the access log cannot be written, its lines are dropped: {error}"),
        (true, Ok(())) => log::info!("the access log is written again"),
        (true, Err(_)) | (false, Ok(())) => {}
    }
    written.is_err()
}

impl Sink {
    fn write(&mut self, text: &[u8]) -> std::io::Result<()> {
        match self {
            Sink::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(text)?;
                stdout.flush()
            }
            Sink::File { path, file } => {
                if moved_away(path, file) {
                    *file = open(path)?;
                }
                file.write_all(text)
            }
        }
    }
}

/// Whether the path names another file by now, or none: a rotation.
fn moved_away(path: &Path, file: &File) -> bool {
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(named), Ok(open)) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
        _ => true,
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map_err(|error| std::io::Error::new(error.kind(), format!("access_log: {}: {error}", path.display())))
}

const WRITE_EVERY: Duration = Duration::from_millis(250);
/// What the buffer keeps after a burst.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::ledger::tests::logged::logged;

    #[test]
    fn a_log_that_cannot_be_written_is_told_once_and_so_is_its_end() {
        let lines = logged(|| {
            let mut failed = false;
            for works in [true, false, false, true, true] {
                let written = match works {
                    true => Ok(()),
                    false => Err(ErrorKind::StorageFull.into()),
                };
                failed = tell(failed, &written);
                assert_eq!(failed, !works);
            }
        });
        let [begins, ends] = lines.try_into().unwrap();
        assert!(begins.starts_with("ERROR the access log cannot be written"), "{begins}");
        assert_eq!(ends, "INFO the access log is written again");
    }

    /// It was readable by everybody, as the process' umask left it.
    #[test]
    fn a_file_that_is_made_is_for_its_owner_alone_and_one_that_is_there_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let mut sink = Sink::File {
            file: open(&path).unwrap(),
            path: path.clone(),
        };
        assert_eq!(mode(), 0o600);
        std::fs::rename(&path, folder.path().join("moved.log")).unwrap();
        sink.write(b"a\n").unwrap();
        assert_eq!(mode(), 0o600, "also after a rotation");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        sink.write(b"b\n").unwrap();
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o640);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }
}
