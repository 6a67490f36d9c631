//! The ledger's thread: commits queued debits in groups and runs the operator's commands.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::command::{Command, Commands};
use super::doubtful::Doubtful;
use super::group::sums;
use super::keys_look::KeysLook;
use super::lease::Lease;
use super::outage::{Change, Outage, Unwritable};
use super::owner::Owner;
use super::place::OpenFile;
use super::shared::{COMMIT_WINDOW, EmbeddedAccount, QueuedDebit, Shared};
use super::sync::Unsynced;
use super::{keys, spending};
use crate::failpoints::point;
use crate::ledger::journal::Entry;
use crate::ledger::known_time::KnownTime;
use crate::ledger::sqlite::{BUSY_MAX, Database, SpentRow};
use crate::ledger::{StoreError, control_socket};
use crate::pure::time::{Day, Timestamp};

/// The thread's state.
pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) database: Database,
    /// Where the file is.
    pub(super) path: PathBuf,
    /// Which file was opened there.
    pub(super) file: OpenFile,
    /// Whether it was not found there when it was looked for last.
    pub(super) is_moved: bool,
    /// When it is looked for next.
    pub(super) file_at: Option<Instant>,
    pub(super) inbox: mpsc::Receiver<Command>,
    /// The group that is being written. Until it is, it stays as it was first tried: its commit may have reached the file all the same.
    unwritten: Vec<QueuedDebit>,
    /// The producer that the process began with: another one each time.
    process: u64,
    /// The number of the group that is being written: the file keeps the name of its last, so that one that it has is not written again.
    group: u64,
    pub(super) doubtful: Doubtful,
    /// The journal's entries of what had been taken before. What that came to may stand in the queue still.
    taken_before: Vec<Entry>,
    /// The journal's entries of what was committed, until it is on the disk.
    pub(super) unsynced: Unsynced,
    /// When the first of what is not on the disk was committed.
    pub(super) unsynced_since: Option<Timestamp>,
    pub(super) commit_at: Option<Instant>,
    /// When the thread had last done what was due and late.
    done_at: Option<Instant>,
    /// When what was committed is brought to the disk, for the case that the machine dies.
    pub(super) sync_at: Option<Instant>,
    /// By what time idempotency keys have expired, and events are too old.
    pub(super) known_time: KnownTime,
    /// On which day the file was last told what time it is.
    pub(super) known_day: Option<Day>,
    /// When idempotency keys are written that could not be, and looked through for those that have expired.
    pub(super) keys_at: Option<Instant>,
    /// When what was spent is looked through for periods that were over long ago.
    pub(super) spent_at: Option<Instant>,
    /// Up to where that was done, and for which day, while it is under way.
    pub(super) spent_seen: Option<(SpentRow, Day)>,
    /// Events that were claimed.
    pub(super) leases: HashMap<String, Lease>,
    /// A look at keys that goes on.
    pub(super) keys_look: Option<KeysLook>,
    /// Debits that cannot be written.
    pub(super) outage: Outage,
    /// Whether idempotency keys could not be written when that was last tried.
    pub(super) keys_wait: bool,
}

impl Committer {
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn new(
        shared: Arc<Shared>,
        database: Database,
        path: PathBuf,
        inbox: mpsc::Receiver<Command>,
    ) -> Result<Committer, StoreError> {
        let file = OpenFile::at(&path)
            .map_err(|error| StoreError::Unavailable(format!("cannot look at {}: {error}", path.display())))?;
        Ok(Committer {
            file,
            is_moved: false,
            file_at: Some(crate::clock::monotonic()),
            known_time: KnownTime::new(&shared.clock, database.known_time()?),
            known_day: None,
            process: shared.producer.current().0,
            path,
            shared,
            database,
            inbox,
            unwritten: Vec::new(),
            doubtful: Doubtful::default(),
            group: 0,
            taken_before: Vec::new(),
            unsynced: Unsynced::default(),
            unsynced_since: None,
            commit_at: None,
            done_at: None,
            sync_at: None,
            // What has expired before the start, and what was not written before the ledger was taken back.
            keys_at: Some(crate::clock::monotonic()),
            spent_at: Some(crate::clock::monotonic()),
            spent_seen: None,
            leases: HashMap::new(),
            keys_look: None,
            outage: Outage::default(),
            keys_wait: false,
        })
    }

    pub(super) fn run(mut self) {
        let _guard = Unwritable(Arc::clone(&self.shared));
        loop {
            self.do_what_is_late();
            let command = match self.due_at() {
                None => self.inbox.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(at) => self
                    .inbox
                    .recv_timeout(at.saturating_duration_since(crate::clock::monotonic())),
            };
            self.database.know_time(self.known_time.of_events());
            self.database.know_latest(self.known_time.latest());
            match command {
                Ok(Command::Commit) => self.commit_within(COMMIT_WINDOW),
                Ok(Command::Full) => {
                    self.commit_at = None;
                    self.commit_or_retry();
                }
                Ok(Command::HandOver(reply)) => match self.hand_over() {
                    Ok(()) => {
                        let lock = Arc::clone(&self.shared);
                        drop(self);
                        drop(lock.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
                        drop(reply.send(Ok(())));
                        return;
                    }
                    Err(error) => drop(reply.send(Err(error))),
                },
                Ok(Command::Admin { op, reply }) => {
                    // The asker may have gone; the command has taken effect all the same.
                    drop(reply.send(self.execute(op)));
                }
                Ok(Command::FindKey(call, found)) => {
                    let (keys, times) = (&self.shared.idempotency, self.known_time.of_keys());
                    let answer = keys::find(keys, &mut self.database, &call, times);
                    if found.send(answer).is_err() {
                        // The asker has gone.
                        keys.forget(&call);
                    }
                }
                // The asker may have gone.
                Ok(Command::KnownKey(call, known)) => {
                    let times = self.known_time.of_keys();
                    drop(known.send(keys::known(&self.shared.idempotency, &self.database, &call, times)));
                }
                Ok(Command::Refused { cell, refused }) => self.raise_refused(&cell, &refused),
                Ok(Command::WriteKeys) => {
                    self.write_keys();
                }
                Ok(Command::ForgetProducers(today)) => self.forget_producers(today),
                // The asker may have gone.
                Ok(Command::Moment(mut moment, taken)) => {
                    let at_hand = self.commit_and_resolve().and_then(|()| moment.take(&self.shared));
                    drop(taken.send(at_hand.map(|()| moment)));
                }
                Ok(Command::Flush(written)) => drop(written.send(self.commit())),
                Err(mpsc::RecvTimeoutError::Timeout) => self.do_what_is_due(),
                Ok(Command::Close) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.commit_at_the_end();
                    self.write_keys();
                    match self.sync(true) {
                        Ok(()) => self.empty_log(),
                        Err(error) => log::error!("MONEY: the ledger's file cannot be brought to the disk: {error}"),
                    }
                    if !self.unwritten.is_empty() {
                        log::error!(
                            "MONEY: {} debits could not be written before the end",
                            self.unwritten.len()
                        );
                    }
                    return;
                }
            }
        }
    }

    /// Writes out everything and takes no more, so that the file can change hands.
    pub(super) fn hand_over(&mut self) -> Result<(), StoreError> {
        self.commit()?; // Where this fails, nothing has changed yet.
        self.shared.owner.set(Owner::Successor);
        // Whoever is in the middle of a step on an account ends it; what comes after sees that the ledger has changed hands.
        let cells: Vec<Arc<EmbeddedAccount>> = {
            let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
            accounts.values().cloned().collect()
        };
        cells.iter().for_each(|cell| drop(cell.state()));
        self.write_keys();
        let written = self.commit().and_then(|()| self.sync(true));
        match written {
            // Calls look for the successor's socket from now on, not for ours.
            Ok(()) => control_socket::step_aside(&self.path),
            Err(_) => {
                self.shared.owner.set(Owner::This);
                self.commit_within(COMMIT_WINDOW);
            }
        }
        written
    }

    /// When something is due next.
    fn due_at(&self) -> Option<Instant> {
        let due = [self.commit_at, self.sync_at, self.keys_at, self.spent_at, self.file_at];
        let others = [self.outage.over_at(), self.doubtful.due_at];
        due.into_iter().chain(others).flatten().min()
    }

    /// Does what is due, also while more and more is asked of the thread, which a channel gives before it says that nothing came in time.
    fn do_what_is_late(&mut self) {
        // What takes its time and fails is due again at once: others have their turn between two tries.
        let due_at = self
            .due_at()
            .map(|at| self.done_at.map_or(at, |done_at| at.max(done_at)));
        let late_at = due_at.and_then(|at| at.checked_add(LATE_MAX));
        if late_at.is_some_and(|at| at <= crate::clock::monotonic()) {
            self.do_what_is_due();
            self.done_at = Some(crate::clock::monotonic());
        }
    }

    /// Commits what is queued now.
    ///
    /// # Errors
    /// When the file cannot be written: what was queued is kept for the next try.
    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        // Before the queue: what these were taken by stands there now, where the file has not got it yet.
        let mut before = self.shared.taken_before.lock().unwrap_or_else(PoisonError::into_inner);
        self.taken_before.append(&mut before);
        drop(before);
        while self.take_group() {
            self.write_group()?;
        }
        self.in_place()?;
        let before = std::mem::take(&mut self.taken_before);
        before.into_iter().for_each(|entry| self.is_committed(entry));
        Ok(())
    }

    /// The group to be written: the one that was tried last, or else what is queued. False when there is none.
    fn take_group(&mut self) -> bool {
        if self.unwritten.is_empty() {
            self.unwritten = std::mem::take(&mut *self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner));
            self.group = self.shared.groups.fetch_add(1, Ordering::Relaxed);
        }
        !self.unwritten.is_empty()
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        self.tell_unwritten();
        self.in_place()?;
        let group = sums(&self.unwritten);
        let files = self.shared.receipt_files.get();
        let written_out = match self.database.receipt_days() {
            0 if files.is_none() => Vec::new(),
            _ => self
                .unwritten
                .iter()
                .filter_map(QueuedDebit::receipt)
                .collect::<Vec<_>>(),
        };
        let (now, today) = (self.shared.clock.now(), self.known_time.to_keep().day());
        self.shared.producer.renew_when_old(now);
        let name = format!("{:x}-{}", self.process, self.group);
        point("settlement", "before");
        let began = crate::clock::monotonic();
        let written = self.database.write_debits(&group, &written_out, &name, now);
        self.shared.commits.observe(began.elapsed());
        written?;
        point("settlement", "after");
        if let Some(files) = files {
            written_out.into_iter().for_each(|receipt| files.push(receipt));
        }
        spending::bound(&self.unwritten, today, spending::END_USERS_IN_MEMORY);
        let mut written = std::mem::take(&mut self.unwritten);
        written.drain(..).for_each(|debit| self.is_committed(debit.entry));
        self.unwritten = written; // Its room is used again.
        self.tell_unwritten();
        Ok(())
    }

    /// For metrics: what waits to be written.
    fn tell_unwritten(&self) {
        let oldest = self.unwritten.first().map(|debit| debit.queued);
        let mut told = self.shared.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        *told = (self.unwritten.len(), oldest);
    }

    /// Tries for a while: what cannot be written now is left to the journal. A file that is not in its place is not waited for.
    fn commit_at_the_end(&mut self) {
        let began = crate::clock::monotonic();
        self.database.wait_for_others(END_PAUSE);
        while self.commit_or_retry() && !self.is_moved && began.elapsed() < END_MAX {
            std::thread::sleep(END_PAUSE);
        }
        self.database.wait_for_others(BUSY_MAX);
    }

    fn commit_within(&mut self, window: Duration) {
        if self.commit_at.is_none() {
            self.commit_at = crate::clock::monotonic().checked_add(window);
        }
    }

    pub(super) fn commit_or_retry(&mut self) -> bool {
        let (committed, now) = (self.commit(), crate::clock::monotonic());
        self.shared.unwritable.store(committed.is_err(), Ordering::Relaxed);
        let change = match &committed {
            Ok(()) => self.outage.succeeded(now),
            Err(_) => self.outage.failed(now),
        };
        let why = committed.as_ref().err();
        let why = why.map_or_else(String::new, |error| format!(": {error}"));
        match change {
            None => {}
            Some(Change::Begins) => log::warn!("MONEY: debits cannot be written, new paid calls are refused{why}"),
            Some(Change::Lasts) => {
                log::error!(
                    "MONEY: for a minute debits could not be written, or only now and then, and paid calls are refused{why}"
                );
            }
            Some(Change::Over) => log::warn!("the ledger's file can be written again"),
        }
        if committed.is_err() {
            self.commit_within(RETRY_EVERY);
        }
        !self.unwritten.is_empty()
    }
}

pub(super) const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How late what is due may be for what is asked of the thread meanwhile.
const LATE_MAX: Duration = Duration::from_millis(200);
/// How long a ledger that closes tries to write what is queued, and how long each try waits while another process writes, and after it.
const END_MAX: Duration = Duration::from_secs(10);
const END_PAUSE: Duration = Duration::from_millis(200);

/// Starts the ledger's thread.
///
/// # Errors
/// When it cannot be started, or the file cannot be read.
pub(super) fn start_thread(
    shared: &Arc<Shared>,
    database: Database,
    path: &Path,
) -> Result<(Commands, std::thread::JoinHandle<()>), StoreError> {
    let (commands, inbox) = mpsc::channel();
    let committer = Committer::new(Arc::clone(shared), database, path.to_owned(), inbox)?;
    let thread = std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || committer.run())
        .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's thread: {error}")))?;
    Ok((commands, thread))
}
