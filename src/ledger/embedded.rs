//! The embedded ledger: accounts and holds in memory, debits committed to SQLite in groups.
//!
//! One process owns it, by a lock on the file beside the database. A reserve touches only memory. A settlement changes memory
//! and queues its sums; the ledger's own thread commits the queue every [`COMMIT_WINDOW`], and runs the operator's commands
//! in between. When the file cannot be written, nothing is dropped: the queue stays, new reserves are refused, and the thread
//! keeps trying.

mod accounts;
mod acts;
mod audit;
mod chores;
mod command;
mod commands;
mod credits;
mod doubtful;
mod events;
mod extend;
mod group;
mod handover;
mod idempotency;
mod key_limits;
mod key_rotate;
mod keys;
mod keys_look;
mod lease;
mod load;
mod operators;
mod outage;
mod owner;
mod place;
mod predecessors;
mod preflight;
mod producers;
mod queries;
mod reads;
mod receipts;
mod reports;
mod reserve;
mod settle;
mod shared;
mod spending;
mod stoppable;
mod stops;
mod sync;
mod take_back;
mod told;
mod writer;

use self::load::take_lock;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::command::{Command, Commands};
pub(crate) use self::owner::SERVES_WITHIN;
pub(super) use self::place::{expect_lock_of, is_new, real};
use self::producers::Forgetting;
use self::reports::Reports;
use self::shared::Shared;
pub use self::shared::{COMMIT_WINDOW, EmbeddedAccount};
use self::writer::start_thread;
use super::admin::{AdminError, AdminOp, AdminReply};
use super::sqlite::ReceiptBounds;
use super::store_metrics::StoreMetrics;
use super::{Figures, Found, STOPPED, StoreError};
use crate::clock::Clock;
use crate::pure::account::{Denial, Look, Scope};
use crate::pure::ids::KeyDigest;
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::time::{Day, Timestamp};

/// The ledger in memory, with its thread.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    /// To the thread. Another one after the ledger was handed over and taken back.
    commands: Mutex<Commands>,
    reports: Reports,
    /// How much is kept of receipts.
    receipts: ReceiptBounds,
    /// The day on which it was opened, as far as that was known.
    opened: Day,
    forgetting: Forgetting,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    path: PathBuf,
}

impl Embedded {
    /// Opens the ledger at `path` and takes its lock. Where that is a symbolic link, both are beside the file that it leads to.
    ///
    /// # Errors
    /// When another process owns it, the file cannot be read or has several names, or its lock is that of another ledger in the folder.
    pub fn open(path: &Path, clock: Clock) -> Result<Arc<Embedded>, StoreError> {
        Embedded::open_for(path, None, clock)
    }

    /// The same, with receipts kept for so many days from now on; with 0 none are written.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_keeping(path: &Path, receipt_days: u32, clock: Clock) -> Result<Arc<Embedded>, StoreError> {
        Embedded::open_within(path, ReceiptBounds::days(receipt_days), clock)
    }

    /// The same, with receipts kept within these bounds.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_within(path: &Path, receipts: ReceiptBounds, clock: Clock) -> Result<Arc<Embedded>, StoreError> {
        Embedded::open_for(path, Some(receipts), clock)
    }

    fn open_for(path: &Path, receipts: Option<ReceiptBounds>, clock: Clock) -> Result<Arc<Embedded>, StoreError> {
        let path = &place::real(path);
        place::check_names(path)?;
        place::expect_lock_of(path)?;
        let lock = take_lock(path)?;
        let mut database = place::open(path, &lock)?;
        let receipts = match receipts {
            Some(bounds) => bounds,
            None => database
                .receipt_bounds_before()?
                .unwrap_or(ReceiptBounds::days(RECEIPT_DAYS)),
        };
        let known = database.known_day(clock.now().day())?;
        database.keep_receipts(receipts, known)?;
        let reports = Reports::open(path)?;
        let shared = Arc::new(Shared::load(&database, clock, lock)?);
        let (commands, thread) = start_thread(&shared, database, path)?;
        Ok(Arc::new(Embedded {
            shared,
            commands: Mutex::new(commands),
            reports,
            receipts,
            opened: known,
            forgetting: Forgetting::default(),
            thread: Mutex::new(Some(thread)),
            path: path.to_owned(),
        }))
    }

    /// Where the file is, whatever link leads to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn find_key(&self, digest: &KeyDigest) -> Option<Found<Arc<EmbeddedAccount>>> {
        let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.get(digest)?;
        let account = entry.cell.record.load_full();
        Some(Found {
            key: Arc::clone(&entry.record),
            account,
            place: Arc::clone(&entry.cell),
        })
    }

    pub(super) fn look(&self, cell: &Arc<EmbeddedAccount>, look: &Look) -> Result<(), Denial> {
        let mut state = cell.state();
        if self.is_handed_over() {
            return Ok(()); // Another process knows.
        }
        let now = self.shared.clock.now();
        let looked = match self.has_predecessors() {
            // Some of their calls that count here may have ended: a reserve finds that out.
            true => state.look(&look.beside_any_calls(), now),
            false => state.look(look, now),
        };
        looked.inspect_err(|denial| self.refused(cell, denial, look.quota))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub(super) fn rate(&self, cell: &EmbeddedAccount, scope: &Scope, limits: Limits) -> RateView {
        cell.state().rate(scope, limits, self.shared.clock.now())
    }

    pub(super) fn figures(&self, cell: &EmbeddedAccount) -> Figures {
        cell.figures(&self.shared.clock)
    }

    pub(super) fn in_maintenance(&self) -> bool {
        self.shared.maintenance.load(Ordering::Relaxed)
    }

    pub(super) fn store_metrics(&self) -> StoreMetrics {
        let shared = &self.shared;
        let (unsettled, since) = shared.unsettled();
        let age = since.map_or(0, |since| shared.clock.now().since(since));
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let mut store_metrics = StoreMetrics {
            kind: "embedded",
            holds_open: 0,
            held: Credits::ZERO,
            unsettled: count(unsettled),
            unsettled_age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
            below_zero: Some(0),
            latency: shared.commits.histogram(),
        };
        for cell in shared.accounts.read().unwrap_or_else(PoisonError::into_inner).values() {
            let state = cell.state();
            store_metrics.holds_open = store_metrics.holds_open.saturating_add(count(state.open_holds()));
            store_metrics.held = store_metrics.held.saturating_add(state.held());
            let below = u64::from(state.balance() < Credits::ZERO);
            store_metrics.below_zero = store_metrics.below_zero.map(|sum| sum.saturating_add(below));
        }
        store_metrics
    }

    pub(super) async fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        if !self.is_ours() {
            let (asked, has_effect) = Box::pin(self.give_successor(op.clone())).await;
            if asked.is_ok() || has_effect || !self.is_ours() {
                return asked;
            }
        }
        if let Some(answer) = self.read_beside(&op).await {
            return answer;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.tell(Command::Admin { op, reply }).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Runs an operator's command, or a reserve of the process before, from a thread that is on no runtime.
    pub fn run_blocking(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        if let AdminOp::Reserve(reserve) = &op {
            return self.reserve_for_predecessor(reserve);
        }
        if let Some(answer) = self.read_beside_blocking(&op) {
            return answer;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.tell(Command::Admin { op, reply }).map_err(|_| stopped())?;
        answer.blocking_recv().map_err(|_| stopped())?
    }

    /// Commits what is queued and ends the thread, and waits for the answer to the command that came last. A second call does nothing.
    pub(super) fn close(&self) {
        if self.is_handed_over() {
            stops::tell_freed(&self.shared, &self.path);
        }
        // A send only fails when the thread has ended already.
        drop(self.tell(Command::Close));
        self.join_thread();
        drop(self.answering());
    }

    /// To be held while a command is done and its answer written: the process ends after it.
    pub(super) fn answering(&self) -> MutexGuard<'_, ()> {
        self.shared.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// When the thread has ended.
    fn tell(&self, command: Command) -> Result<(), StoreError> {
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let stopped = |_| StoreError::Unavailable(STOPPED.to_owned());
        commands.send(command).map_err(stopped)
    }

    fn join_thread(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("MONEY: the ledger's thread panicked");
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

fn stopped() -> AdminError {
    AdminError::Store(STOPPED.to_owned())
}

/// For how many days receipts are kept in a file that was never opened with another number.
const RECEIPT_DAYS: u32 = 30;

#[cfg(test)]
pub(super) mod book;
#[cfg(test)]
mod tests;
