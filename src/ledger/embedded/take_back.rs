//! A ledger that was handed over comes back: its successor has failed before it served.
//!
//! The file is read anew, for the successor may have written to it. The holds of this process' own calls, which ran on meanwhile, are in
//! memory, also those that the successor granted; its debits since are in the queue, and those that the file has by now leave it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::load::{stored_accounts, take_lock};
use super::owner::Owner;
use super::place;
use super::shared::{EmbeddedAccount, KeyEntry, MAINTENANCE, QueuedDebit, Shared};
use super::spending;
use super::stops;
use super::writer::start_thread;
use crate::clock::monotonic;
use crate::ledger::journal::Entry;
use crate::ledger::sqlite::{Database, StoredAccount};
use crate::ledger::{STOPPED, StoreError, control_socket};
use crate::pure::account::{AccountState, Settled};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;

impl Embedded {
    /// Whether another process owns the ledger now.
    pub(in crate::ledger) fn is_handed_over(&self) -> bool {
        self.shared.owner.now() == Owner::Successor
    }

    /// Whether this process may grant. Else its successor is to be asked, or in a moment this process again.
    pub(in crate::ledger) fn is_ours(&self) -> bool {
        self.shared.owner.now() == Owner::This
    }

    /// Whether calls wait, for another process has the ledger, or this one takes it back, for longer than that takes where all is well.
    pub(in crate::ledger) fn is_away(&self) -> bool {
        let since = self.shared.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() > AWAY_MAX)
    }

    /// Writes out what is queued and gives the file up, for a successor that is about to open it. Blocks.
    ///
    /// # Errors
    /// When the file cannot be written: then it stays this process'.
    pub(crate) fn hand_over(&self) -> Result<(), StoreError> {
        self.shared.successor_serves.store(false, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.tell(Command::HandOver(reply))?;
        let stopped = |_| StoreError::Unavailable(STOPPED.to_owned());
        answer.blocking_recv().map_err(stopped)??;
        *self.shared.away_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(monotonic());
        stops::watch(&self.shared, &self.path);
        Ok(())
    }

    /// The successor serves: the ledger stays with it.
    pub(crate) fn stays_handed_over(&self) {
        self.shared.successor_serves.store(true, Ordering::Relaxed);
        *self.shared.away_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        control_socket::stay_aside(&self.path);
    }

    /// Whether the process that has the ledger now serves, and so follows the calls that this one has still.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_handed_over() && self.shared.successor_serves.load(Ordering::Relaxed)
    }

    /// Takes a ledger back that was handed over, once its successor has ended: reads the file anew, and grants again when
    /// `bill_the_dead` has returned. Blocks; does nothing when it is this process' own.
    ///
    /// # Errors
    /// When another process owns the file, or it cannot be read. To be tried again: then nothing has changed.
    pub(crate) fn take_back(&self, bill_the_dead: impl FnOnce()) -> Result<(), StoreError> {
        if !self.is_handed_over() {
            return Ok(());
        }
        let lock = take_lock(&self.path)?;
        self.join_thread();
        let mut database = place::open(&self.path, &lock)?;
        let known = database.known_day(self.shared.clock.now().day())?;
        database.keep_receipts(self.receipts, known)?;
        self.shared.read_anew(&database)?;
        let (commands, thread) = start_thread(&self.shared, database, &self.path)?;
        *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        *self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        self.shared.unwritable.store(false, Ordering::Relaxed);
        self.shared.owner.set(Owner::TakesBack);
        bill_the_dead();
        // Whoever hears that this process is ready may give a command at once: it finds the socket.
        control_socket::step_back(&self.path);
        self.shared.owner.set(Owner::This);
        *self.shared.away_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // For what was queued while nobody emptied the queue.
        self.tell(Command::Commit)
    }
}

/// Without a ledger for longer, a gateway says that it is not ready.
const AWAY_MAX: Duration = Duration::from_secs(1);

impl Shared {
    /// Makes memory what the file says, with what this process has queued on top.
    pub(super) fn read_anew(&self, database: &Database) -> Result<(), StoreError> {
        let (stored, keys) = (stored_accounts(database, &self.clock)?, database.keys()?);
        let mut told = database.told()?;
        let maintenance = database.setting(MAINTENANCE)?.as_deref() == Some("on");
        self.operators.read_anew(database)?;
        let mut accounts = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        self.rebase(&mut accounts, stored);
        for (id, cell) in accounts.iter() {
            cell.told.read_anew(told.remove(id.as_str()).unwrap_or_default());
        }
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for (digest, record) in keys {
            let cell = accounts
                .get(&record.account)
                .ok_or_else(|| StoreError::Corrupt(format!("{} has no account", record.id)))?;
            let (record, cell) = (Arc::new(record), Arc::clone(cell));
            let of = Arc::clone(&cell);
            if known.insert(digest, KeyEntry { record, cell }).is_none() {
                of.has_key(digest);
            }
        }
        self.maintenance.store(maintenance, Ordering::Relaxed);
        known
            .values()
            .for_each(|entry| spending::track(&entry.cell, &entry.record));
        Ok(())
    }

    fn rebase(&self, accounts: &mut BTreeMap<AccountId, Arc<EmbeddedAccount>>, stored: Vec<StoredAccount>) {
        for stored in &stored {
            accounts
                .entry(stored.record.id.clone())
                .or_insert_with(|| Arc::new(EmbeddedAccount::new(stored.record.clone(), AccountState::default())));
        }
        // All at once: no call is settled in between, so the queue and the accounts agree.
        let mut states: HashMap<AccountId, MutexGuard<'_, AccountState>> =
            accounts.iter().map(|(id, cell)| (id.clone(), cell.state())).collect();
        for stored in stored {
            let id = stored.record.id.clone();
            if let Some(cell) = accounts.get(&id) {
                cell.set_record(stored.record);
            }
            if let Some(state) = states.get_mut(&id) {
                state.read_anew(stored.kept);
            }
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = self.taken_before.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = std::mem::take(&mut *queue);
        for debit in queued {
            let id = debit.cell.record.load().id.clone();
            let kept = states
                .get_mut(&id)
                .and_then(|state| queued_anew(state, debit, &mut before));
            queue.extend(kept);
        }
    }
}

/// A debit of the queue with what the file says by now; none when the file has it. Its successor may not have brought that to the disk
/// before it ended: its entry goes among those of what was taken `before`.
fn queued_anew(state: &mut AccountState, mut debit: QueuedDebit, before: &mut Vec<Entry>) -> Option<QueuedDebit> {
    let cost = debit.debit.as_ref().map_or(Credits::ZERO, |debit| debit.cost);
    match state.resolve(debit.number, cost, debit.month) {
        Ok(used) => {
            if let Some(owed) = &debit.debit {
                state.spend(&owed.key, owed.end_user, debit.id, owed.cost);
                debit.is_tracked = state.tracks(&owed.key);
            }
            debit.month_used = used;
            debit.numbers = state.numbers(debit.number.producer);
            Some(debit)
        }
        Err(Settled::Already) => {
            before.push(debit.entry);
            None
        }
        Err(refused) => {
            log::error!("MONEY: a debit of {cost} is not taken: {refused:?}");
            debit.entry.suspend();
            None
        }
    }
}
