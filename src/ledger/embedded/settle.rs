//! Debits into the embedded ledger: memory first, the file with the next group.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Embedded;
use super::command::Command;
use super::shared::{EmbeddedAccount, GROUP_MAX, QueuedDebit};
use crate::ledger::journal::Entry;
use crate::ledger::{Debit, Orphan, StoreError};
use crate::pure::account::{AccountState, Settled, Settlement};
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::CallNumber;
#[cfg(test)]
use crate::pure::numbers::ProducerId;
use crate::pure::time::Timestamp;

impl Embedded {
    pub(in crate::ledger) fn settle(
        &self,
        cell: &Arc<EmbeddedAccount>,
        hold: RequestId,
        number: Option<CallNumber>,
        debit: Debit,
        entry: Entry,
    ) {
        // The account stays locked until the debit is queued: the file then sees the account's numbers as they were closed.
        let mut state = cell.state();
        let cost = debit.cost;
        let number = number.unwrap_or_else(|| self.next_number(cell));
        match self.take_own(cell, &mut state, settlement(hold, &debit, number), debit, entry) {
            Settled::Now { overrun } => {
                if overrun && cost > Credits::ZERO {
                    log::debug!("request {hold} cost more than it held: {cost}");
                }
            }
            refused @ (Settled::Already | Settled::Stale { .. } | Settled::OutOfRange) => {
                // In one process under one lock the number is new, so only the range is left.
                log::error!("MONEY: the debit of request {hold} ({cost}) was not taken: {refused:?}");
                state.release(hold);
            }
        }
    }

    /// The account's next number.
    pub(in crate::ledger) fn next_number(&self, cell: &EmbeddedAccount) -> CallNumber {
        cell.numbers.next(&self.shared.producer)
    }

    /// Who numbers this process' settlements.
    #[cfg(test)]
    pub(in crate::ledger) fn producer(&self) -> ProducerId {
        self.shared.producer.current()
    }

    /// A settlement with the number that its producer gave it.
    #[cfg(test)]
    pub(in crate::ledger) fn settle_numbered(
        &self,
        cell: &Arc<EmbeddedAccount>,
        settlement: &Settlement,
        debit: Debit,
    ) -> Settled {
        self.take(cell, &mut cell.state(), settlement, debit, Entry::none())
    }

    /// Takes a settlement of this process, which was never sent before: so a number that its account has forgotten is replaced.
    fn take_own(
        &self,
        cell: &Arc<EmbeddedAccount>,
        state: &mut AccountState,
        mut settlement: Settlement,
        debit: Debit,
        mut entry: Entry,
    ) -> Settled {
        if let Some(forgotten) = state.is_stale(settlement.number) {
            self.shared.producer.renew_after(self.shared.clock.now(), forgotten);
            settlement.number = self.next_number(cell);
            entry.name(settlement.number);
        }
        self.take(cell, state, &settlement, debit, entry)
    }

    /// Takes a settlement into memory, and queues it for the file when it is new.
    fn take(
        &self,
        cell: &Arc<EmbeddedAccount>,
        state: &mut AccountState,
        settlement: &Settlement,
        debit: Debit,
        mut entry: Entry,
    ) -> Settled {
        let now = self.shared.clock.now();
        entry.owe(&debit, settlement.number);
        let settled = state.settle(settlement, now);
        if let Settled::Now { .. } = settled {
            state.spend(&debit.key, debit.end_user, settlement.hold, debit.cost);
        }
        match settled {
            Settled::Now { .. } => self.queue(
                cell,
                state,
                (settlement.hold, settlement.number),
                Some(debit),
                entry,
                now,
            ),
            Settled::Already => self.close_once_synced(state, entry),
            Settled::OutOfRange => entry.close(),
            Settled::Stale { .. } => entry.suspend(),
        }
        settled
    }

    /// Closes the entry of a call whose number was closed before once that is on the disk: what closed it may still stand in the queue, or in
    /// a file that was not brought there. Called while the account is locked, so that what is in the queue was queued before this.
    fn close_once_synced(&self, _locked: &AccountState, entry: Entry) {
        if entry.is_none() {
            return;
        }
        let waiting = {
            let mut before = self.shared.taken_before.lock().unwrap_or_else(PoisonError::into_inner);
            before.push(entry);
            before.len()
        };
        if waiting == 1 && !self.is_handed_over() {
            // Without the ledger's thread it stays in the journal, for the next start.
            drop(self.tell(Command::Commit));
        }
    }

    /// Queues what was resolved for the file.
    fn queue(
        &self,
        cell: &Arc<EmbeddedAccount>,
        state: &AccountState,
        (id, number): (RequestId, CallNumber),
        debit: Option<Debit>,
        entry: Entry,
        now: Timestamp,
    ) {
        let is_tracked = debit.as_ref().is_some_and(|debit| state.tracks(&debit.key));
        let queued = QueuedDebit {
            cell: Arc::clone(cell),
            debit,
            is_tracked,
            day: now.day(),
            month: now.month(),
            month_used: state.month_used(now),
            number,
            id,
            numbers: state.numbers(number.producer),
            queued: now,
            entry,
        };
        let waiting = {
            let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push(queued);
            queue.len()
        };
        let command = match waiting {
            1 => Command::Commit,
            GROUP_MAX => Command::Full,
            _ => return,
        };
        // Once the ledger has changed hands, nobody empties the queue: the entries stay in the journal, for the successor.
        if !self.is_handed_over() {
            self.wake(command);
        }
    }

    pub(in crate::ledger) fn release(
        &self,
        cell: &Arc<EmbeddedAccount>,
        hold: RequestId,
        number: Option<CallNumber>,
        entry: Entry,
    ) {
        self.give_back(cell, &mut cell.state(), (hold, number), entry);
    }

    fn give_back(
        &self,
        cell: &Arc<EmbeddedAccount>,
        state: &mut AccountState,
        (hold, number): (RequestId, Option<CallNumber>),
        mut entry: Entry,
    ) {
        let now = self.shared.clock.now();
        state.release(hold);
        // A call that has its number may stand in an older copy of the journal with something to pay: that is closed as well.
        let Some(number) = number else {
            return entry.close();
        };
        match state.resolve(number, Credits::ZERO, now.month()) {
            Ok(_) => self.queue(cell, state, (hold, number), None, entry, now),
            Err(Settled::Already) => self.close_once_synced(state, entry),
            Err(Settled::Now { .. } | Settled::Stale { .. } | Settled::OutOfRange) => entry.close(),
        }
    }

    /// Where the account's figures are.
    ///
    /// # Errors
    /// When there is no such account.
    pub(in crate::ledger) fn place(&self, account: &AccountId) -> Result<Arc<EmbeddedAccount>, StoreError> {
        let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let found = accounts.get(account).map(Arc::clone);
        found.ok_or_else(|| StoreError::Corrupt(format!("there is no account {account}")))
    }

    /// Whether the key is one of the account's, revoked or not.
    pub(in crate::ledger) fn has_key(&self, account: &EmbeddedAccount, key: &KeyId) -> bool {
        self.shared.key_of(account, key).is_some()
    }

    /// Takes the debit of a call that ended in the process before this one, which lives.
    pub(in crate::ledger) fn take_from_predecessor(
        &self,
        account: &AccountId,
        hold: RequestId,
        debit: Debit,
        number: CallNumber,
    ) {
        let Ok(cell) = self.place(account) else {
            return;
        };
        let mut state = cell.state();
        if self.is_handed_over() {
            return;
        }
        let settlement = settlement(hold, &debit, number);
        let settled = self.take(&cell, &mut state, &settlement, debit, Entry::none());
        if settled == Settled::Already {
            // An owner between that process and this one took it: what its journal says that it holds, it does not.
            state.release(hold);
        }
        if settled == Settled::OutOfRange {
            log::error!(
                "MONEY: the debit of request {hold} ({}) is not taken: {settled:?}",
                settlement.cost
            );
        }
    }

    /// Settles or releases a call that a dead process left. False when its debit had been taken before, or cannot be. The ledger's owner
    /// does this: in a process that has handed it over, the call stays in its journal.
    ///
    /// # Errors
    /// When the account has forgotten the call's producer, so that nobody knows whether the debit was taken. The entry stays in its journal.
    pub(in crate::ledger) fn take_over(
        &self,
        cell: &Arc<EmbeddedAccount>,
        hold: RequestId,
        orphan: Orphan,
        entry: Entry,
    ) -> Result<bool, StoreError> {
        let mut state = cell.state();
        if self.is_handed_over() {
            return Ok(matches!(orphan, Orphan::Held { .. }));
        }
        let (debit, number) = match orphan {
            Orphan::Held { number } => {
                self.give_back(cell, &mut state, (hold, number), entry);
                return Ok(true);
            }
            Orphan::Owed { debit, number } => (debit, number),
        };
        let number = number.unwrap_or_else(|| self.next_number(cell));
        let cost = debit.cost;
        if state.is_stale(number).is_some() {
            return Err(StoreError::Corrupt(format!(
                "it is too old to know whether its debit ({cost}) was taken before; it is not taken"
            )));
        }
        let settlement = settlement(hold, &debit, number);
        let left = self.shared.receipt_files.get().map(|_| debit.clone());
        let settled = self.take(cell, &mut state, &settlement, debit, entry);
        if let (Settled::Already, Some(debit)) = (settled, left) {
            self.write_again(&cell.record.load().id, (hold, number), &debit);
        }
        if let Settled::Stale { .. } | Settled::OutOfRange = settled {
            log::error!("MONEY: the debit of request {hold} ({cost}) is not taken: {settled:?}");
        }
        Ok(matches!(settled, Settled::Now { .. }))
    }

    fn wake(&self, command: Command) {
        if self.tell(command).is_err() {
            self.shared.unwritable.store(true, Ordering::Relaxed);
            log::error!("MONEY: a debit was queued after the ledger had stopped");
        }
    }
}

fn settlement(hold: RequestId, debit: &Debit, number: CallNumber) -> Settlement {
    Settlement {
        hold,
        cost: debit.cost,
        tokens: debit.usage.prompt.0.saturating_add(debit.usage.completion.0),
        number,
    }
}
