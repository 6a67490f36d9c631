//! Receipts as files, for whatever ships them elsewhere: JSON lines, one file a day of the ledger.
//!
//! A ledger hands over a receipt once its store has taken it; no call waits for the disk. With the embedded ledger a call stands in the journal
//! until the disk has its receipt (on Redis for a minute), and a gateway that bills what a dead one left writes its receipts too, whether the dead one had written them or not: each is in
//! a file at least once. `producer`, `account` and `number` say which are the same. In no file are receipts for which there was no room, for
//! the files could not be written for so long that 100,000 waited; the log says how many. The journal keeps no more calls for files
//! that cannot be written than it has places for, so a gateway that is killed then may lose receipts as well.
//!
//! They say who bought what: what is made here is for the gateway's user alone. A file or a folder that is there keeps its mode.

mod writing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::folder::make_for_unmapped;
use super::known_time::KnownTime;
use crate::clock::{Clock, monotonic};
use crate::pure::receipt::Receipt;
use crate::pure::time::Day;

/// The files of a folder, with the thread that writes them.
#[derive(Debug)]
pub struct ReceiptFiles {
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    folder: PathBuf,
    keep_days: u32,
    /// By this files are too old: a clock that is ahead for a moment would have all deleted.
    known_time: KnownTime,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Something was written, or could not be.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    receipts: Vec<Receipt>,
    /// Receipts that there was no room for, since that was told.
    dropped: u64,
    /// Receipts that were taken, and those of them that are in the files, and these on the disk.
    taken: u64,
    written: u64,
    /// The last try failed.
    is_failing: bool,
    /// Somebody waits for what was taken.
    hurries: bool,
    closes: bool,
}

impl ReceiptFiles {
    /// Makes the folder where it is missing, and starts the thread. Files of more than `keep_days` ago are deleted; none for 0.
    ///
    /// # Errors
    /// When the folder cannot be made or written, or the thread not started.
    pub fn start(folder: &Path, keep_days: u32, clock: Clock) -> std::io::Result<Arc<ReceiptFiles>> {
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("receipts.files: {}: {error}", folder.display()))
        };
        make_for_unmapped(folder).map_err(named)?;
        let before = newest_day(folder).map(Day::start);
        let state = Arc::new(State {
            folder: folder.to_owned(),
            keep_days,
            known_time: KnownTime::new(&clock, before.map(|before| before.min(clock.now()))),
            queue: Mutex::default(),
            changed: Condvar::new(),
            progress: Condvar::new(),
        });
        state.open(clock.now().day()).map_err(named)?;
        let writer = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("receipts".to_owned())
            .spawn(move || writer.run())?;
        Ok(Arc::new(ReceiptFiles {
            state,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Takes a receipt to be written within a second. Never waits.
    pub(super) fn push(&self, receipt: Receipt) {
        let mut queue = self.state.queue();
        if queue.receipts.len() >= WAITING_MAX {
            queue.dropped = queue.dropped.saturating_add(1);
            return;
        }
        queue.taken = queue.taken.saturating_add(1);
        queue.receipts.push(receipt);
        if queue.receipts.len() == 1 {
            self.state.changed.notify_one();
        }
    }

    /// Has what was taken brought to the disk soon. How many receipts were, since the start.
    pub(super) fn hurry(&self) -> u64 {
        let mut queue = self.state.queue();
        queue.hurries = queue.written < queue.taken;
        self.state.changed.notify_one();
        queue.taken
    }

    /// Whether the first so many that were taken are on the disk.
    pub(super) fn has_written(&self, taken: u64) -> bool {
        self.state.queue().written >= taken
    }

    /// Waits until what was taken is on the disk, for a second at most, and not while the files cannot be written. Whether all is. Blocks.
    pub(super) fn flush(&self) -> bool {
        let mut queue = self.state.queue();
        let taken = queue.taken;
        queue.hurries = queue.written < taken;
        self.state.changed.notify_one();
        let waits = |queue: &mut Queue| queue.written < taken && !queue.is_failing && !queue.closes;
        let waited = self.state.progress.wait_timeout_while(queue, FLUSH_MAX, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.written >= taken
    }

    /// Writes what is left, and ends the thread. Blocks, for some seconds at most; a second call does nothing. To be called after the
    /// ledger was closed.
    pub fn close(&self) {
        self.close_within(CLOSE_MAX);
    }

    /// The same, for little longer than `most`.
    fn close_within(&self, most: Duration) {
        self.state.queue().closes = true;
        self.state.changed.notify_one();
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let began = monotonic();
        while !thread.is_finished() {
            if began.elapsed() > most {
                return log::error!("the last receipts cannot be written to their files");
            }
            std::thread::sleep(CLOSE_PAUSE);
        }
        if thread.join().is_err() {
            log::error!("the thread that writes receipts to files panicked");
        }
    }
}

impl Drop for ReceiptFiles {
    fn drop(&mut self) {
        self.close();
    }
}

/// What is being written, and how that went.
#[derive(Default)]
struct Writing {
    /// Taken from the queue, not yet written.
    receipts: Vec<Receipt>,
    /// The last try failed, perhaps within a line.
    is_torn: bool,
    /// The day whose file was written last.
    day: Option<Day>,
    /// The day on which old files were looked for last.
    cleaned: Option<Day>,
}

impl State {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut writing = Writing::default();
        loop {
            let closes = self.wait(!writing.receipts.is_empty());
            self.clean(&mut writing);
            let dropped = {
                let mut queue = self.queue();
                // Not more than the queue holds: what cannot be written stays, and new ones wait there.
                if writing.receipts.is_empty() {
                    std::mem::swap(&mut writing.receipts, &mut queue.receipts);
                }
                std::mem::take(&mut queue.dropped)
            };
            if dropped > 0 {
                log::error!("{dropped} receipts are not in the files: they could not be written for too long");
            }
            let before = writing.receipts.len();
            self.write(&mut writing);
            self.tell_progress(before, &writing);
            let is_done = writing.receipts.is_empty() && self.queue().receipts.is_empty();
            if closes && (is_done || writing.is_torn) {
                if !is_done {
                    log::error!("the last receipts are not in their files");
                }
                return;
            }
        }
    }

    /// Waits until there is something to write and a little longer, so that what comes together is written together. Whether the end has
    /// come.
    fn wait(&self, has_some: bool) -> bool {
        let mut queue = self.queue();
        if !has_some {
            let idle = |queue: &mut Queue| queue.receipts.is_empty() && !queue.closes;
            queue = self
                .changed
                .wait_while(queue, idle)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let has_time = |queue: &mut Queue| !queue.closes && !queue.hurries;
        let waited = self.changed.wait_timeout_while(queue, WRITE_EVERY, has_time);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.hurries = false;
        queue.closes
    }

    fn tell_progress(&self, before: usize, writing: &Writing) {
        let written = before.saturating_sub(writing.receipts.len());
        let mut queue = self.queue();
        queue.written = queue.written.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        queue.is_failing = writing.is_torn;
        self.progress.notify_all();
    }

    /// Deletes the files of too long ago, once a day, and none in the first hour.
    fn clean(&self, writing: &mut Writing) {
        let Some(today) = self.known_time.of_files().map(|time| time.day()) else {
            return;
        };
        if self.keep_days == 0 || writing.cleaned.replace(today) == Some(today) {
            return;
        }
        let oldest = Day(today.0.saturating_sub(i64::from(self.keep_days))).to_string();
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => return log::warn!("{} cannot be read: {error}", self.folder.display()),
        };
        for entry in entries.flatten() {
            // As text, days of this form are in their order.
            if day_of(&entry.file_name()).is_some_and(|day| *day < *oldest)
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                log::warn!("{} cannot be deleted: {error}", entry.path().display());
            }
        }
    }
}

/// The day of the newest file that has receipts: that day the clock has said before. None without any; of a folder that cannot be read
/// nothing is deleted either.
fn newest_day(folder: &Path) -> Option<Day> {
    let has_some = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|file| file.len() > 0);
    let entries = std::fs::read_dir(folder).ok()?.flatten().filter(has_some);
    entries
        .filter_map(|entry| Day::parse(day_of(&entry.file_name())?))
        .max()
}

/// The day in the name of a file of receipts; none in another one.
fn day_of(name: &std::ffi::OsStr) -> Option<&str> {
    let day = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    is_day(day).then_some(day)
}

/// Whether a text has the form `2026-11-23`.
fn is_day(text: &str) -> bool {
    let has_form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(has_form)
}

const PREFIX: &str = "receipts-";
const SUFFIX: &str = ".jsonl";
/// What comes together within this time is written together.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// The most receipts that wait: about 60 MB.
const WAITING_MAX: usize = 100_000;
/// The longest wait for what was taken.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long the end waits for a disk that does not answer.
const CLOSE_MAX: Duration = Duration::from_secs(5);
const CLOSE_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
