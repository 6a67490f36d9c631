//! The embedded ledger changes hands: a new binary takes over from a running one without a refused call.
//!
//! The old process writes out what is queued, closes the file and gives up its lock. From then on its last calls reserve at its
//! successor, by the control socket, and their final debits only stand in its journal; the successor has taken their holds from
//! there, and takes the debits as they come. When the successor fails before it serves, the old process takes the ledger back
//! ([`super::take_back`]).

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Embedded;
use super::command::Command;
use super::owner::{Owner, SERVES_WITHIN};
use super::predecessors::Reading;
use super::shared::{EmbeddedAccount, Shared};
use super::spending;
use crate::clock::monotonic;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, ReceiptPage, ReceiptQuery, RecoverReport};
use crate::ledger::control_socket::{Reached, WAIT_MAX};
use crate::ledger::journal::LiveHold;
use crate::ledger::query::{EndUserQuery, EndUserUsage, KeyedRow, UsageQuery};
use crate::ledger::{Figures, StoreError, control_socket};
use crate::pure::account::{ReserveRequest, Scope};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::limits::Limits;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Embedded {
    /// The account's figures at the successor.
    pub(in crate::ledger) async fn figures_at_successor(&self, cell: &EmbeddedAccount) -> Result<Figures, StoreError> {
        let account = cell.record.load().id.clone();
        match self.ask_successor(AdminOp::AccountShow { account }).await {
            Ok(AdminReply::Account(view)) => Ok(view.figures),
            Ok(_) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(_) if self.is_ours() => Ok(self.figures(cell)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    pub(super) async fn usage_at_successor(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
        match self.ask_successor(query.op()).await.map(AdminReply::into_usage) {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    pub(super) async fn end_users_at_successor(&self, query: EndUserQuery) -> Result<EndUserUsage, StoreError> {
        let asked = self.ask_successor(AdminOp::EndUsers(query)).await;
        match asked.map(AdminReply::into_end_users) {
            Ok(Some(usage)) => Ok(usage),
            Ok(None) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    pub(super) async fn receipts_at_successor(&self, query: ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        match self.ask_successor(AdminOp::Receipts(query)).await {
            Ok(AdminReply::Receipts(page)) => Ok(page),
            Ok(_) => Err(StoreError::Corrupt("an answer of another kind".to_owned())),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Asks the successor, which may take a moment to listen. An error too when the ledger is taken back meanwhile.
    pub(super) async fn ask_successor(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        Box::pin(self.give_successor(op)).await.0
    }

    /// The same, and whether the command may have had an effect there: one that writes is sent once, and its error is what is known of it.
    pub(super) async fn give_successor(&self, op: AdminOp) -> (Result<AdminReply, AdminError>, bool) {
        let (started, mut was_sent) = (monotonic(), false);
        // A stop waits for whoever tells events.
        let tells_events = matches!(op, AdminOp::Event(_));
        loop {
            let asked = match self.shared.owner.now() {
                Owner::This => return (Err(AdminError::Store("the ledger was taken back".to_owned())), false),
                Owner::TakesBack => Err(AdminError::Store("the ledger is being taken back".to_owned())),
                Owner::Successor => {
                    let (asked, is_sent) = self.ask_once(op.clone()).await;
                    was_sent |= is_sent;
                    asked
                }
            };
            let (has_effect, waited) = (was_sent && op.writes(), started.elapsed());
            let most = match tells_events {
                true => SUCCESSOR_WAIT_MAX,
                false => self.shared.successor_wait(),
            };
            match asked {
                // Nobody listens yet, or it was our own socket in its last moment. What only reads can be asked twice, and so can a
                // reserve: a request holds once. Who waits has no thread: there may be many.
                Err(AdminError::Store(_)) if !has_effect && waited < most => {
                    tokio::time::sleep((waited / 8).clamp(SUCCESSOR_PAUSE, SUCCESSOR_PAUSE_MAX)).await;
                }
                answered => return (answered, has_effect),
            }
        }
    }

    /// One try, and whether the command was sent, as far as that is known.
    async fn ask_once(&self, op: AdminOp) -> (Result<AdminReply, AdminError>, bool) {
        let socket = control_socket::socket_path(&self.path);
        let ask = move || {
            let mut reached = Reached::Nobody;
            let asked = control_socket::ask_noting(&socket, (&op, WAIT_MAX), &mut reached);
            (asked, reached != Reached::Nobody)
        };
        let asked = tokio::task::spawn_blocking(ask).await;
        let unasked = |error| AdminError::Store(format!("the successor was not asked: {error}"));
        asked.unwrap_or_else(|error| (Err(unasked(error)), true))
    }

    /// Holds what a call of a living process holds, until it or that process has ended. One that holds nothing is free, or has not asked
    /// yet: it is known to run, so that its idempotency key is not said to be left behind.
    pub(in crate::ledger) fn hold_for_predecessor(&self, hold: &LiveHold) {
        let accounts = self
            .shared
            .accounts
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(cell) = accounts.get(&hold.account).cloned() else {
            // Whoever recovers its journal tells of it.
            return log::warn!(
                "a call of a process before is one of {}, which is not there",
                hold.account
            );
        };
        drop(accounts);
        if hold.amount > Credits::ZERO {
            self.hold_what_runs(&cell, hold);
        }
        self.shared.predecessors.runs(hold.id, cell);
    }

    fn hold_what_runs(&self, cell: &EmbeddedAccount, hold: &LiveHold) {
        let key = self.shared.key_of(cell, &hold.key);
        let free = u64::MAX;
        let request = ReserveRequest {
            id: hold.id,
            scope: key.map_or(Scope::Account, |key| Scope::of(&key.id, &key.limits)),
            limits: Limits {
                rpm: free,
                tpm: free,
                concurrency: free,
            },
            quota: Credits::MAX,
            wanted: hold.amount,
            // What it holds was granted; less may be left now, and it is held all the same as far as there is any.
            at_least: Credits::ZERO,
            tokens: 0,
            expires: Timestamp(i64::MAX),
            // Its process has counted it, in the minute in which it came.
            is_counted: true,
            is_last: true,
            spend: spending::of_predecessor(&cell.state(), hold),
        };
        if cell.state().reserve(&request, self.shared.clock.now()).is_err() {
            log::warn!("the hold of request {} of the process before is not held here", hold.id);
        }
    }

    /// Whether calls of a process before this one may still run.
    pub(in crate::ledger) fn has_predecessors(&self) -> bool {
        !self.shared.predecessors.is_empty()
    }

    /// How the journals of the processes before this one are read from now on, also before a call is refused for what their calls hold.
    /// `reader` begins with [`Embedded::begin_reading`].
    pub(in crate::ledger) fn predecessors_read_by(&self, reader: Box<dyn Fn() + Send + Sync>) {
        self.shared.predecessors.read_by(reader);
    }

    /// The thread that follows the processes before this one, and is woken with the first of their calls.
    pub(in crate::ledger) fn predecessors_followed_by(&self, thread: std::thread::Thread) {
        self.shared.predecessors.followed_by(thread);
    }

    /// Reads what has become of the calls of the processes before this one. Blocks.
    pub(in crate::ledger) fn read_predecessors(&self) {
        let predecessors = &self.shared.predecessors;
        predecessors.read_since(predecessors.last_reading());
    }

    /// The calls of the process before that may run.
    pub(in crate::ledger) fn holds_of_predecessors(&self) -> HashSet<RequestId> {
        self.shared.predecessors.ids()
    }

    /// The journals of the processes before this one are about to be read.
    pub(in crate::ledger) fn begin_reading(&self) -> Reading {
        self.shared.predecessors.begin_reading()
    }

    /// Gives back what is held for the calls that were heard of before this reading of all journals and are not among `running`, as it found
    /// them.
    pub(in crate::ledger) fn predecessors_ended_of(&self, reading: Reading, running: &HashSet<RequestId>) {
        for (hold, cell) in self.shared.predecessors.missing(reading, running) {
            // Whoever asks anew is heard of before it holds anything: one that was not heard of has no newer hold while the account is locked.
            let mut state = cell.state();
            if self.shared.predecessors.forget(hold, reading) {
                state.release(hold);
            }
        }
    }

    /// Gives back what is held for a call of the process before that has given its hold back there. It is known as one of that process' calls
    /// until its place in the journal is free, as are those that were billed.
    pub(in crate::ledger) fn given_back_by_predecessor(&self, account: &AccountId, hold: RequestId) {
        if let Ok(cell) = self.place(account) {
            cell.state().release(hold);
        }
    }

    /// Every process before this one has ended, and its debits were taken: what it held besides is given back.
    pub(in crate::ledger) fn predecessors_ended(&self) {
        for (hold, cell) in self.shared.predecessors.take() {
            cell.state().release(hold);
        }
        if self.forgetting.others_ended() {
            self.forget_producers();
        }
    }

    /// Keeps what this process has recovered from journals when it began, to be shown. Where nothing of them was refused, producers that have
    /// been silent for long are forgotten, at once or when the processes before this one have ended.
    pub(in crate::ledger) fn recovered(&self, report: RecoverReport) {
        let is_whole = report.refused.is_empty();
        *self.shared.recovered.lock().unwrap_or_else(PoisonError::into_inner) = report;
        if self.forgetting.recovered(is_whole) {
            self.forget_producers();
        }
    }

    fn forget_producers(&self) {
        // Where its thread has ended, the next start does it.
        drop(self.tell(Command::ForgetProducers(self.opened)));
    }
}

impl Shared {
    /// How long a call waits for the successor to listen. One that does not serve yet opens the ledger, or fails and gives it back.
    pub(super) fn successor_wait(&self) -> Duration {
        match self.successor_serves.load(Ordering::Relaxed) {
            true => SUCCESSOR_WAIT_MAX,
            false => SERVES_WITHIN.saturating_add(TAKEN_BACK_WITHIN),
        }
    }
}

/// How long it takes to end one that does not, and to read the file anew, but for a ledger that is very large.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(10);
/// How long a call waits for a successor that serves.
const SUCCESSOR_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries, which may be many that wait: first so long, and longer from then on.
const SUCCESSOR_PAUSE: Duration = Duration::from_millis(5);
const SUCCESSOR_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often the ledger may change hands and come back while one call waits for it.
pub(super) const CHANGES_MAX: u32 = 3;
