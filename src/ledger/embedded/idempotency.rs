//! Idempotency keys of the embedded ledger: those of running calls in memory, the others in the file.
//!
//! A key is taken in memory and looked up in the file, so that no call waits for a disk before credit is held for it. That its call is
//! sent is on the disk before it is; how it ended follows with the next group. A record of the file that says "sent", of a call that does
//! not run, was left by a process that died: nobody knows what its provider did.

use std::time::Duration;

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::keys::{Keys, Write};
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::{ENDS_MAX, Found, KeyEnd, KeyedCall};
use crate::pure::idempotency::{Owner, Record, State};

impl Embedded {
    /// See [`Caller::take_key`](crate::ledger::Caller::take_key).
    pub(in crate::ledger) async fn take_key(&self, call: &KeyedCall) -> Result<Found, StoreError> {
        let keys = &self.shared.idempotency;
        if !self.is_ours() {
            return Err(changes_hands());
        }
        if let Some(record) = keys.running_record(call) {
            return Ok(Found::Known(record));
        }
        // Before it is given, nothing is said of it to others: who merely looks for an answer keeps nobody from it.
        let mut taken = Taken {
            keys,
            call,
            stays: false,
        };
        let (reply, found) = oneshot::channel();
        self.tell(Command::FindKey(Box::new(call.clone()), reply))?;
        let found = answered(found).await?;
        taken.stays = matches!(found, Found::Nothing);
        Ok(match found {
            Found::Known(record) => Found::Known(self.with_predecessors(record)),
            found => found,
        })
    }

    /// See [`Caller::known_key`](crate::ledger::Caller::known_key).
    pub(in crate::ledger) async fn known_key(&self, call: &KeyedCall) -> Result<Option<Record>, StoreError> {
        if !self.is_ours() {
            return Err(changes_hands());
        }
        if let Some(record) = self.shared.idempotency.running_record(call) {
            return Ok(Some(record));
        }
        let (reply, known) = oneshot::channel();
        self.tell(Command::KnownKey(Box::new(call.clone()), reply))?;
        let known = answered(known).await?;
        Ok(known.map(|record| self.with_predecessors(record)))
    }

    /// A record of the file, whose call may run in a process before this one.
    fn with_predecessors(&self, mut record: Record) -> Record {
        if record.state == State::Sent(Owner::Gone) && self.holds_of_predecessors().contains(&record.request) {
            record.state = State::Sent(Owner::Runs);
        }
        record
    }

    /// See [`Hold::send_under_key`](crate::ledger::Hold::send_under_key).
    pub(in crate::ledger) async fn send_under_key(&self, call: &KeyedCall) -> Result<(), StoreError> {
        let (reply, written) = oneshot::channel();
        {
            let mut writes = self.shared.idempotency.writes();
            // Whoever hands the ledger over writes what stands here once it is not ours.
            if !self.is_ours() {
                return Err(changes_hands());
            }
            writes.push(Write::Sent(call.clone(), reply));
        }
        self.tell(Command::WriteKeys)?;
        answered(written).await
    }

    /// A call under a key is over. Once the ledger has changed hands, the successor is told that the key is free when the call came to
    /// nothing; else this waits for the ledger to come back, and the successor says that the call's answer is not there.
    pub(in crate::ledger) fn end_key(&self, call: &KeyedCall, end: KeyEnd) {
        let keys = &self.shared.idempotency;
        if let KeyEnd::Unsent = end {
            return keys.forget(call); // The file has not heard of it.
        }
        let mut writes = keys.writes();
        if writes.len() >= ENDS_MAX {
            drop(writes);
            log::warn!("request {}: its idempotency key is not written", call.request);
            return keys.forget(call);
        }
        writes.push(Write::Ended(call.clone(), end));
        drop(writes);
        if !self.is_handed_over() && self.tell(Command::WriteKeys).is_err() {
            log::warn!("request {}: its idempotency key is not written", call.request);
        }
    }
}

/// A key in the making: without a call that keeps it, it is free again.
struct Taken<'a> {
    keys: &'a Keys,
    call: &'a KeyedCall,
    stays: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.keys.forget(self.call);
        }
    }
}

/// What the ledger's thread answers.
async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(ANSWERED_MAX, answer).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(_)) => Err(changes_hands()),
        Err(_) => Err(StoreError::Unavailable("the ledger's file takes too long".to_owned())),
    }
}

fn changes_hands() -> StoreError {
    StoreError::Unavailable("the ledger changes hands".to_owned())
}

/// How long a call waits for the ledger's thread, and for its disk.
const ANSWERED_MAX: Duration = Duration::from_secs(10);
