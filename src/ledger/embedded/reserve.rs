//! A reserve: decided in memory, and once the ledger has changed hands by the process that has it.
//!
//! Calls of the process before this one that have ended are not known to have until its journal is read. So what they seem to hold refuses
//! nobody: before that the journal is read, and the reserve decided anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Embedded;
use super::commands::failed;
use super::handover::CHANGES_MAX;
use super::shared::EmbeddedAccount;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::journal::Entry;
use crate::ledger::remote::RemoteReserve;
use crate::pure::account::{Denial, Granted, ReserveRequest};

/// Why a reserve is not decided at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Undecided {
    /// Another process owns the ledger now: it is to be asked.
    Elsewhere,
    /// It does not fit beside what calls hold, and some of those may have ended in the process before this one. Its window has counted it.
    MayFit,
}

/// As of when it is known which calls of the process before this one have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AsOf {
    /// As of the last reading of its journal.
    LastReading,
    /// As of a reading that began after the reserve had come.
    Now,
}

impl Embedded {
    /// Holds what is asked for, or refuses it, where that is decided in memory at once; else see [`Embedded::reserve_later`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(in crate::ledger) fn reserve(
        &self,
        cell: &Arc<EmbeddedAccount>,
        request: &ReserveRequest,
        entry: &mut Entry,
    ) -> Result<Result<Result<Granted, Denial>, Undecided>, StoreError> {
        self.decide(cell, request, entry, AsOf::LastReading)
    }

    /// A reserve that was not decided at once: at the successor, or here, when the ledger is taken back or was not handed over.
    ///
    /// # Errors
    /// When the successor does not answer, or the file cannot be written.
    pub(in crate::ledger) async fn reserve_later(
        self: &Arc<Self>,
        cell: &Arc<EmbeddedAccount>,
        (request, why): (&ReserveRequest, Undecided),
        entry: &mut Entry,
    ) -> Result<Result<Granted, Denial>, StoreError> {
        let account = cell.record.load().id.clone();
        let here = match why {
            Undecided::Elsewhere => request.clone(),
            Undecided::MayFit => counted(request),
        };
        for _ in 0..CHANGES_MAX {
            if !self.is_ours() {
                let op = AdminOp::Reserve(RemoteReserve::of(account.clone(), request));
                let asked = self.ask_successor(op).await;
                if let Some(reply) = self.reserved_at_successor(cell, request, asked) {
                    return reply;
                }
            }
            self.predecessors_read(cell).await;
            if let Ok(reply) = self.decide(cell, &here, entry, AsOf::Now)? {
                return Ok(reply);
            }
        }
        Err(StoreError::Unavailable("the ledger changes hands too often".to_owned()))
    }

    /// A reserve of the process before this one, where the call runs and stands in the journal. Blocks.
    ///
    /// # Errors
    /// When there is no such account, the file cannot be written, or the ledger is another process' by now.
    pub(super) fn reserve_for_predecessor(&self, reserve: &RemoteReserve) -> Result<AdminReply, AdminError> {
        let (account, request) = (reserve.account(), reserve.request());
        let cell = self.place(account);
        let cell = cell.map_err(|_| AdminError::NoAccount(account.clone()))?;
        let predecessors = &self.shared.predecessors;
        let seen = predecessors.last_reading();
        // Before it holds anything: a reading that has begun may have found an earlier try of the call, and not this one.
        predecessors.runs(request.id, Arc::clone(&cell));
        let mut entry = Entry::none();
        let decided = self.decide(&cell, &request, &mut entry, AsOf::LastReading);
        let decided = match decided.map_err(failed)? {
            Err(Undecided::MayFit) => {
                predecessors.read_since(seen);
                let decided = self.decide(&cell, &counted(&request), &mut entry, AsOf::Now);
                decided.map_err(failed)?
            }
            decided => decided,
        };
        match decided {
            Ok(reply) => Ok(AdminReply::Reserved(reply.into())),
            Err(Undecided::Elsewhere | Undecided::MayFit) => {
                Err(AdminError::Store("the ledger changes hands".to_owned()))
            }
        }
    }

    /// Never [`Undecided::MayFit`] with [`AsOf::Now`].
    fn decide(
        &self,
        cell: &Arc<EmbeddedAccount>,
        request: &ReserveRequest,
        entry: &mut Entry,
        known: AsOf,
    ) -> Result<Result<Result<Granted, Denial>, Undecided>, StoreError> {
        let mut state = cell.state();
        if !self.is_ours() {
            return Ok(Err(Undecided::Elsewhere));
        }
        if self.shared.unwritable.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable(format!(
                "{} cannot be written",
                self.path.display()
            )));
        }
        if let Some(stop) = cell.stop() {
            return Ok(Ok(Err(Denial::Stopped(stop))));
        }
        let reply = state.reserve(request, self.shared.clock.now());
        match &reply {
            // Still under the account's lock: a successor that looks into the journal finds every hold.
            Ok(granted) => entry.granted(granted.amount),
            Err(denial)
                if known == AsOf::LastReading
                    && request.fits_without_holds(denial)
                    && self.shared.predecessors.may_have_ended(cell) =>
            {
                return Ok(Err(Undecided::MayFit));
            }
            Err(denial) if request.tells_of(denial) => self.refused(cell, denial, request.quota),
            Err(_) => {}
        }
        Ok(Ok(reply))
    }

    /// Waits until it is known which calls of the account have ended by now in the process before, where some may run there.
    async fn predecessors_read(self: &Arc<Self>, cell: &Arc<EmbeddedAccount>) {
        if !self.shared.predecessors.may_have_ended(cell) {
            return;
        }
        let (this, seen) = (Arc::clone(self), self.shared.predecessors.last_reading());
        // Whoever is refused again and again costs no more than a reading each time.
        tokio::time::sleep(READ_TOGETHER).await;
        let read = move || this.shared.predecessors.read_since(seen);
        if let Err(error) = tokio::task::spawn_blocking(read).await {
            log::error!("it is not known which calls of the process before have ended: {error}");
        }
    }

    /// What the successor said of a reserve; nothing when the ledger is this process' again, and the successor's word is void. What it
    /// holds for a call of this process is noted here too: should it fail, this process has to hold it.
    fn reserved_at_successor(
        &self,
        cell: &EmbeddedAccount,
        request: &ReserveRequest,
        asked: Result<AdminReply, AdminError>,
    ) -> Option<Result<Result<Granted, Denial>, StoreError>> {
        let mut state = cell.state();
        if self.is_ours() {
            return None;
        }
        let reply: Result<Granted, Denial> = match asked {
            Ok(AdminReply::Reserved(reply)) => reply.into(),
            Ok(_) => return Some(Err(StoreError::Corrupt("an answer of another kind".to_owned()))),
            Err(error) => return Some(Err(StoreError::Unavailable(error.to_string()))),
        };
        if let Ok(granted) = &reply {
            state.hold(request, granted.amount, self.shared.clock.now());
        }
        Some(Ok(reply))
    }
}

/// The same once more, where its window has counted it.
fn counted(request: &ReserveRequest) -> ReserveRequest {
    ReserveRequest {
        is_counted: true,
        ..request.clone()
    }
}

/// Calls that come within so long share one reading of the journal, which takes a tenth of that, or some milliseconds where there are very many
/// calls.
const READ_TOGETHER: Duration = Duration::from_millis(5);
