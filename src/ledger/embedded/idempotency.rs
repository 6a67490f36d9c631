//! Idempotency keys of the embedded ledger: those of running calls in memory, the others in the file.
//!
//! A key is taken in memory and looked up in the file, so that no call waits for a disk before credit is held for it. That its call is
//! sent is on the disk before it is; how it ended follows with the next group. A record of the file that says "sent", of a call that does
//! not run, was left by a process that died: nobody knows what its provider did.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::shared::Shared;
use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::{Found, KeyEnd, KeyedCall};
use crate::ledger::sqlite::{Database, KeyWrite};
use crate::pure::idempotency::{Fingerprint, KeyName, Owner, Record, State};
use crate::pure::ids::{KeyId, RequestId};

/// The keys of running calls, and what the file has yet to hear of them.
#[derive(Debug, Default)]
pub(super) struct Keys {
    running: Mutex<HashMap<(KeyId, KeyName), (Fingerprint, RequestId)>>,
    writes: Mutex<Vec<Write>>,
}

/// What the file is to hear.
#[derive(Debug)]
enum Write {
    Sent(KeyedCall, oneshot::Sender<Result<(), StoreError>>),
    Ended(KeyedCall, KeyEnd),
}

impl Embedded {
    /// See [`Caller::take_key`](crate::ledger::Caller::take_key).
    pub(in crate::ledger) async fn take_key(&self, call: &KeyedCall) -> Result<Found, StoreError> {
        let keys = &self.shared.idempotency;
        if !self.is_ours() {
            return Err(changes_hands());
        }
        if let Some(record) = keys.take(call) {
            return Ok(Found::Known(record));
        }
        let mut taken = Taken {
            shared: &self.shared,
            call,
            stays: false,
        };
        let (reply, found) = oneshot::channel();
        self.tell(Command::FindKey(Box::new(call.clone()), reply))?;
        let found = found.await.map_err(|_| changes_hands())??;
        taken.stays = matches!(found, Found::Nothing);
        Ok(match found {
            Found::Known(mut record) => {
                if record.state == State::Sent(Owner::Gone) && self.holds_of_predecessors().contains(&record.request) {
                    record.state = State::Sent(Owner::Runs);
                }
                Found::Known(record)
            }
            found => found,
        })
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
        match tokio::time::timeout(WRITTEN_MAX, written).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(changes_hands()),
            Err(_) => Err(StoreError::Unavailable("the ledger's file takes too long".to_owned())),
        }
    }

    /// A call under a key is over. Once the ledger has changed hands, this waits for it to come back; else the successor says that the
    /// call's answer is not there.
    pub(in crate::ledger) fn end_key(&self, call: &KeyedCall, end: KeyEnd) {
        self.shared.idempotency.writes().push(Write::Ended(call.clone(), end));
        if !self.is_handed_over() && self.tell(Command::WriteKeys).is_err() {
            log::warn!("request {}: its idempotency key is not written", call.request);
        }
    }
}

impl Keys {
    /// Takes a key that no running call has; else what is known of it.
    fn take(&self, call: &KeyedCall) -> Option<Record> {
        match self.running().entry((call.key.clone(), call.name)) {
            Entry::Vacant(free) => {
                free.insert((call.fingerprint, call.request));
                None
            }
            Entry::Occupied(taken) => {
                let (fingerprint, request) = *taken.get();
                let state = State::Taken;
                Some(Record {
                    fingerprint,
                    request,
                    state,
                })
            }
        }
    }

    /// A call's key is no running call's any more.
    fn forget(&self, call: &KeyedCall) {
        if let Entry::Occupied(taken) = self.running().entry((call.key.clone(), call.name))
            && taken.get().1 == call.request
        {
            taken.remove();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(KeyId, KeyName), (Fingerprint, RequestId)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writes(&self) -> MutexGuard<'_, Vec<Write>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    fn of(&self) -> KeyWrite<'_> {
        match self {
            Write::Sent(call, _) => KeyWrite::Sent(call),
            Write::Ended(call, end) => KeyWrite::Ended(call, end),
        }
    }
}

/// A key in the making: without a call that keeps it, it is free again.
struct Taken<'a> {
    shared: &'a Shared,
    call: &'a KeyedCall,
    stays: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.shared.idempotency.forget(self.call);
        }
    }
}

/// What the file has of a call's key. For the ledger's thread.
///
/// # Errors
/// When the file cannot be read or written.
pub(super) fn find(shared: &Shared, database: &mut Database, call: &KeyedCall) -> Result<Found, StoreError> {
    let now = shared.clock.now();
    if let Some(record) = database.key_record(call, now)? {
        return Ok(Found::Known(record));
    }
    let most = call.limits.keys_per_key_max;
    if database.keys_known(&call.key)? >= most {
        database.delete_expired_keys(now)?;
        if database.keys_known(&call.key)? >= most {
            return Ok(Found::Full);
        }
    }
    Ok(Found::Nothing)
}

/// Writes what the file has yet to hear, and tells whoever waits for it. For the ledger's thread.
///
/// # Errors
/// When the file cannot be written: calls that were about to be sent are told so, and what ended is kept for the next try.
pub(super) fn write(shared: &Shared, database: &mut Database) -> Result<(), StoreError> {
    let keys = &shared.idempotency;
    let writes = std::mem::take(&mut *keys.writes());
    if writes.is_empty() {
        return Ok(());
    }
    let name = match writes.iter().any(|write| matches!(write, Write::Sent(..))) {
        true => "idempotency-sent",
        false => "idempotency-ended",
    };
    point(name, "before");
    let group: Vec<KeyWrite<'_>> = writes.iter().map(Write::of).collect();
    let written = database.write_keys(&group, shared.clock.now());
    point(name, "after");
    match written {
        Ok(written) => {
            for (write, is_written) in writes.into_iter().zip(written) {
                match write {
                    Write::Ended(call, _) => keys.forget(&call),
                    // Whoever asked may have gone.
                    Write::Sent(_, reply) if is_written => drop(reply.send(Ok(()))),
                    Write::Sent(_, reply) => drop(reply.send(Err(taken_by_another()))),
                }
            }
            Ok(())
        }
        Err(error) => {
            let mut kept = Vec::new();
            for write in writes {
                match write {
                    Write::Sent(_, reply) => drop(reply.send(Err(error.clone()))),
                    ended @ Write::Ended(..) => kept.push(ended),
                }
            }
            keys.writes().splice(0..0, kept);
            Err(error)
        }
    }
}

fn changes_hands() -> StoreError {
    StoreError::Unavailable("the ledger changes hands".to_owned())
}

fn taken_by_another() -> StoreError {
    StoreError::Corrupt("an idempotency key was taken twice".to_owned())
}

/// How long a call waits for its key to be on the disk.
const WRITTEN_MAX: Duration = Duration::from_secs(10);
