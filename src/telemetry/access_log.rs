//! The access log's writer: a thread that takes what requests have left, four times a second, and writes it in one piece.
//!
//! Requests never wait for it. When it falls behind (a full disk, a reader that stalls or has gone), lines are dropped and counted. A file that is made
//! is for the gateway's user alone, for it says who calls whom; one that is there keeps its mode.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
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
struct Sink {
    /// Of a file, which is opened again when it was moved away. None: standard output.
    path: Option<PathBuf>,
    file: File,
    /// What was written last is a part of a line.
    is_torn: bool,
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
            AccessLog::Stdout => Sink::stdout()?,
            AccessLog::File(path) => Sink::at(path)?,
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
    // Where each of the lines ends in the buffer.
    let (mut lines, mut buffer, mut ends) = (Lines::default(), Vec::new(), Vec::new());
    let human = sink.path.is_none() && sink.file.is_terminal();
    let mut failing = false;
    loop {
        let closes = {
            let (lock, condition) = closing;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = condition.wait_timeout_while(guard, WRITE_EVERY, |closes| !*closes);
            *waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let Some(telemetry) = telemetry.upgrade() else { return };
        telemetry.take_waiting(|records: Waiting| {
            for record in records {
                match human {
                    true => lines.human(&record, &mut buffer),
                    false => lines.json(&record, &mut buffer),
                }
                ends.push(buffer.len());
            }
        });
        if !buffer.is_empty() {
            let (bytes, written) = sink.write(&buffer);
            let whole = ends.partition_point(|end| *end <= bytes);
            let lost = ends.len().saturating_sub(whole);
            telemetry
                .lines
                .fetch_add(u64::try_from(whole).unwrap_or(u64::MAX), Ordering::Relaxed);
            if lost > 0 {
                telemetry.lines_lost(u64::try_from(lost).unwrap_or(u64::MAX));
            }
            failing = tell(failing, &written);
            ends.clear();
            ends.shrink_to(ENDS_KEPT);
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
    /// Past the buffer that others print to: what that could not write it would keep, and write later.
    fn stdout() -> std::io::Result<Sink> {
        let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Sink {
            path: None,
            file: stdout.into(),
            is_torn: false,
        })
    }

    fn at(path: &Path) -> std::io::Result<Sink> {
        Ok(Sink {
            path: Some(path.to_owned()),
            file: open(path)?,
            is_torn: ends_torn(path).unwrap_or(false),
        })
    }

    /// How many bytes of the text were written, and why not all. What comes after a part of a line begins a line of its own.
    fn write(&mut self, text: &[u8]) -> (usize, std::io::Result<()>) {
        let mut written = 0;
        let all = self.write_all(text, &mut written);
        if let Some(last) = written.checked_sub(1).and_then(|last| text.get(last)) {
            self.is_torn = *last != b'\n';
        }
        (written, all)
    }

    fn write_all(&mut self, text: &[u8], written: &mut usize) -> std::io::Result<()> {
        if let Some(path) = &self.path
            && moved_away(path, &self.file)
        {
            (self.file, self.is_torn) = (open(path)?, ends_torn(path).unwrap_or(false));
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while let Some(rest) = text.get(*written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => *written = written.saturating_add(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the path names another file by now, or none: a rotation.
fn moved_away(path: &Path, file: &File) -> bool {
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(named), Ok(open)) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
        _ => true,
    }
}

/// Whether a file ends with a part of a line: an earlier process may have left it.
fn ends_torn(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn open(path: &Path) -> std::io::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map_err(|error| std::io::Error::new(error.kind(), format!("access_log: {}: {error}", path.display())))
}

const WRITE_EVERY: Duration = Duration::from_millis(250);
/// What the buffer keeps after a burst.
const BUFFER_KEPT_BYTES: usize = 1 << 20;
const ENDS_KEPT: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::recorder::Recorder;
    use super::*;
    use crate::ledger::tests::logged::logged;
    use crate::pure::ids::RequestId;

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

    /// The next line would be the second half of one that no program can read.
    #[test]
    fn what_comes_after_a_part_of_a_line_begins_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut sink = Sink::at(&path).unwrap();
        sink.write(b"{\"a\":").1.unwrap();
        sink.write(b"{}\n").1.unwrap();
        sink.write(b"{\"b\":").1.unwrap();
        // Also what an earlier process has left.
        Sink::at(&path).unwrap().write(b"{}\n").1.unwrap();
        Sink::at(&path).unwrap().write(b"{}\n").1.unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"a\":\n{}\n{\"b\":\n{}\n{}\n"
        );
    }

    /// It was switched off for good, and nothing counted what was not written from then on.
    #[test]
    fn what_a_reader_that_has_gone_does_not_get_is_dropped_and_counted() {
        let (reader, writer) = std::io::pipe().unwrap();
        let telemetry = Arc::new(Telemetry::default());
        telemetry.logs.store(true, Ordering::Relaxed);
        let closing = Arc::new((Mutex::new(false), Condvar::new()));
        let sink = Sink {
            path: None,
            file: File::from(std::os::fd::OwnedFd::from(writer)),
            is_torn: false,
        };
        drop(reader);
        let thread = std::thread::spawn({
            let (telemetry, closing) = (Arc::downgrade(&telemetry), Arc::clone(&closing));
            move || run(&telemetry, sink, &closing)
        });
        for calls in 1..=2 {
            drop(Recorder::new(
                &telemetry,
                RequestId::from_bytes([0; 16]),
                crate::clock::monotonic(),
            ));
            while telemetry.lines().1 < calls {
                std::thread::yield_now();
            }
        }
        assert_eq!(telemetry.lines(), (0, 2));
        *closing.0.lock().unwrap() = true;
        closing.1.notify_all();
        thread.join().unwrap();
    }

    /// It was readable by everybody, as the process' umask left it.
    #[test]
    fn a_file_that_is_made_is_for_its_owner_alone_and_one_that_is_there_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let mut sink = Sink::at(&path).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::rename(&path, folder.path().join("moved.log")).unwrap();
        sink.write(b"a\n").1.unwrap();
        assert_eq!(mode(), 0o600, "also after a rotation");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        sink.write(b"b\n").1.unwrap();
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o640);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }
}
