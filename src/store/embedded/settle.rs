//! Debits into the embedded ledger: memory first, the file with the next group.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::committer::Command;
use super::{Cell, Embedded, QueuedDebit};
use crate::pure::account::{AccountState, ProducerId, Settled, Settlement};
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::Credits;
use crate::store::journal::Entry;
use crate::store::{Debit, Orphan, Place, StoreError};

impl Embedded {
    pub(in crate::store) fn settle(&self, cell: &Arc<Cell>, hold: RequestId, debit: Debit, entry: Entry) {
        // The account stays locked until the debit is queued: the file then sees the sequence numbers in order.
        let mut state = cell.state();
        let producer = self.shared.producer;
        let sequence = state.last_sequence(producer).saturating_add(1);
        let cost = debit.cost;
        let settlement = settlement(hold, &debit, producer, sequence);
        match self.take(cell, &mut state, &settlement, debit, entry) {
            Settled::Now { overrun } => {
                if overrun && cost > Credits::ZERO {
                    log::debug!("request {hold} cost more than it held: {cost}");
                }
            }
            refused @ (Settled::Already | Settled::Gap { .. } | Settled::OutOfRange) => {
                // In one process under one lock the number is always the next one, so only the range is left.
                log::error!("MONEY: the debit of request {hold} ({cost}) was not taken: {refused:?}");
                state.release(hold);
            }
        }
    }

    /// Who numbers this process' settlements.
    #[cfg(test)]
    pub(in crate::store) fn producer(&self) -> ProducerId {
        self.shared.producer
    }

    /// A settlement with the number that its producer gave it.
    #[cfg(test)]
    pub(in crate::store) fn settle_numbered(&self, cell: &Arc<Cell>, settlement: &Settlement, debit: Debit) -> Settled {
        self.take(cell, &mut cell.state(), settlement, debit, Entry::none())
    }

    /// Takes a settlement into memory, and queues it for the file when it is new.
    fn take(
        &self,
        cell: &Arc<Cell>,
        state: &mut AccountState,
        settlement: &Settlement,
        debit: Debit,
        mut entry: Entry,
    ) -> Settled {
        let now = self.shared.clock.now();
        entry.owe(&debit, settlement.producer, settlement.sequence);
        let settled = state.settle(settlement, now);
        if let Settled::Already | Settled::OutOfRange = settled {
            entry.close();
            return settled;
        }
        if let Settled::Now { .. } = settled {
            let queued = QueuedDebit {
                cell: Arc::clone(cell),
                debit,
                day: now.day(),
                month: now.month(),
                month_used: state.month_used(now),
                producer: settlement.producer,
                sequence: settlement.sequence,
                queued: now,
                entry,
            };
            let first = {
                let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.push(queued);
                queue.len() == 1
            };
            // Once the ledger has changed hands, nobody empties the queue: the entries stay in the journal, for the successor.
            if first && !self.is_handed_over() {
                self.wake();
            }
        }
        settled
    }

    pub(in crate::store) fn release(&self, cell: &Cell, hold: RequestId, mut entry: Entry) {
        cell.state().release(hold);
        entry.close();
    }

    /// Where the account's figures are.
    ///
    /// # Errors
    /// When there is no such account.
    pub(in crate::store) fn place(&self, account: &AccountId) -> Result<Place, StoreError> {
        let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let cell = accounts
            .get(account)
            .ok_or_else(|| StoreError::Corrupt(format!("there is no account {account}")))?;
        Ok(Place::Embedded(Arc::clone(cell)))
    }

    /// Takes the debit of a call that ended in the process before this one, which lives, when it is the next of its numbers.
    pub(in crate::store) fn take_from_predecessor(
        &self,
        account: &AccountId,
        hold: RequestId,
        debit: Debit,
        (producer, sequence): (ProducerId, u64),
    ) {
        let Ok(Place::Embedded(cell)) = self.place(account) else {
            return;
        };
        let mut state = cell.state();
        if self.is_handed_over() || sequence != state.last_sequence(producer).saturating_add(1) {
            return;
        }
        let settlement = settlement(hold, &debit, producer, sequence);
        let settled = self.take(&cell, &mut state, &settlement, debit, Entry::none());
        if settled == Settled::OutOfRange {
            log::error!(
                "MONEY: the debit of request {hold} ({}) is not taken: {settled:?}",
                settlement.cost
            );
        }
    }

    /// Settles or releases a call that a dead process left. False when its debit had been taken before, or cannot be. The ledger's owner
    /// does this: in a process that has handed it over, the call stays in its journal.
    pub(in crate::store) fn take_over(&self, cell: &Arc<Cell>, hold: RequestId, orphan: Orphan, entry: Entry) -> bool {
        let (debit, numbered) = match orphan {
            Orphan::Held => {
                let mut state = cell.state();
                if !self.is_handed_over() {
                    state.release(hold);
                    drop(state);
                    close(entry);
                }
                return true;
            }
            Orphan::Answered(debit) => (debit, None),
            Orphan::Owed {
                debit,
                producer,
                sequence,
            } => (debit, Some((producer, sequence))),
        };
        let mut state = cell.state();
        if self.is_handed_over() {
            return false;
        }
        let own = self.shared.producer;
        let next = (own, state.last_sequence(own).saturating_add(1));
        let (producer, sequence) = match numbered {
            None => next,
            Some((producer, sequence)) if sequence <= state.last_sequence(producer).saturating_add(1) => {
                (producer, sequence)
            }
            Some(_) => {
                log::error!("MONEY: debits before that of request {hold} are missing in the ledger's file");
                next
            }
        };
        let settlement = settlement(hold, &debit, producer, sequence);
        let settled = self.take(cell, &mut state, &settlement, debit, entry);
        if settled == Settled::OutOfRange {
            log::error!(
                "MONEY: the debit of request {hold} ({}) is not taken: {settled:?}",
                settlement.cost
            );
        }
        matches!(settled, Settled::Now { .. })
    }

    fn wake(&self) {
        if self.tell(Command::Commit).is_err() {
            self.shared.unwritable.store(true, Ordering::Relaxed);
            log::error!("MONEY: a debit was queued after the ledger had stopped");
        }
    }
}

fn close(mut entry: Entry) {
    entry.close();
}

fn settlement(hold: RequestId, debit: &Debit, producer: ProducerId, sequence: u64) -> Settlement {
    Settlement {
        hold,
        cost: debit.cost,
        tokens: debit.usage.prompt.0.saturating_add(debit.usage.completion.0),
        producer,
        sequence,
    }
}
