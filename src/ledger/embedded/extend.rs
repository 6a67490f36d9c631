//! A hold in memory is raised while its call runs. Once the ledger has changed hands, by the process that has it: that one holds what the
//! calls of this one held then, and gives it back with their end, whatever became of the answer to a wish.

use super::handover::CHANGES_MAX;
use super::writer::Committer;
use super::{Embedded, EmbeddedAccount};
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::journal::HeldSlot;
use crate::ledger::remote::RemoteExtend;
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;

impl Embedded {
    /// Raises a hold: see [`AccountState::extend`](crate::pure::account::AccountState::extend).
    ///
    /// # Errors
    /// When another process owns the ledger now, and does not answer, or knows no such wish. The hold may have been raised there: the call's
    /// end gives that back.
    pub(in crate::ledger) async fn extend(
        &self,
        cell: &EmbeddedAccount,
        hold: RequestId,
        (range, quota): (&HoldRange, Credits),
        journaled: &HeldSlot,
    ) -> Result<Extended, StoreError> {
        for _ in 0..CHANGES_MAX {
            if let Some(extended) = self.extend_here(cell, hold, (range, quota), journaled) {
                return Ok(extended);
            }
            let account = cell.record.load().id.clone();
            let limits = cell.state().limits_of(hold).as_deref().cloned();
            let wish = RemoteExtend::of(account, (hold, range, quota), limits);
            let asked = self.ask_successor(AdminOp::Extend(wish)).await;
            if let Some(reply) = self.extended_at_successor(cell, (hold, journaled), asked) {
                return reply;
            }
        }
        Err(StoreError::Unavailable("the ledger changes hands too often".to_owned()))
    }

    /// None when another process owns the ledger now: it is to be asked.
    fn extend_here(
        &self,
        cell: &EmbeddedAccount,
        hold: RequestId,
        (range, quota): (&HoldRange, Credits),
        journaled: &HeldSlot,
    ) -> Option<Extended> {
        let mut state = cell.state();
        if !self.is_ours() {
            return None;
        }
        let extended = state.extend(hold, range, quota, self.shared.clock.now());
        if let Extended::To(amount) = extended {
            // Still under the account's lock: a successor that looks into the journal finds every hold as it was granted.
            journaled.raised(amount);
        }
        Some(extended)
    }

    /// What the successor said; nothing when the ledger is this process' again, and the successor's word is void. What it holds now is noted
    /// here too: should it fail, this process has to hold it.
    fn extended_at_successor(
        &self,
        cell: &EmbeddedAccount,
        (hold, journaled): (RequestId, &HeldSlot),
        asked: Result<AdminReply, AdminError>,
    ) -> Option<Result<Extended, StoreError>> {
        let mut state = cell.state();
        if self.is_ours() {
            return None;
        }
        let extended: Extended = match asked {
            Ok(AdminReply::Extended(reply)) => reply.into(),
            Ok(_) => return Some(Err(StoreError::Corrupt("an answer of another kind".to_owned()))),
            Err(error) => return Some(Err(StoreError::Unavailable(error.to_string()))),
        };
        if let Extended::To(amount) = extended
            && state.extended(hold, amount)
        {
            // For the successor's successor, should this process still live then.
            journaled.raised(amount);
        }
        Some(Ok(extended))
    }
}

impl Committer {
    /// Raises what a call of the process before this one holds, as far as it is still held here.
    pub(super) fn extend_for_predecessor(&self, wish: &RemoteExtend) -> Result<AdminReply, AdminError> {
        let cell = self.cell(wish.account())?;
        let (now, mut state) = (self.shared.clock.now(), cell.state());
        let extended = state.extend_within(wish.hold(), &wish.range(), wish.quota(), wish.limits(), now);
        Ok(AdminReply::Extended(extended.into()))
    }
}
