//! The idempotency keys of running calls, and what the ledger's thread does with them in the file.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::KeyWrite;
use crate::ledger::idempotency::call::{Found, KeyEnd, KeyedCall};
use crate::ledger::sqlite::Database;
use crate::pure::idempotency::{Fingerprint, KeyName, Record, State};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::time::Timestamp;

/// The keys of running calls, and what the file has yet to hear of them.
#[derive(Debug, Default)]
pub(super) struct Keys {
    running: Mutex<HashMap<(KeyId, KeyName), (Fingerprint, RequestId)>>,
    writes: Mutex<Vec<Write>>,
}

/// What the file is to hear.
#[derive(Debug)]
pub(super) enum Write {
    Sent(KeyedCall, oneshot::Sender<Result<(), StoreError>>),
    Ended(KeyedCall, KeyEnd),
}

impl Keys {
    /// Takes a key that no running call has; else what is known of it.
    pub(super) fn take(&self, call: &KeyedCall) -> Option<Record> {
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
    pub(super) fn forget(&self, call: &KeyedCall) {
        if let Entry::Occupied(taken) = self.running().entry((call.key.clone(), call.name))
            && taken.get().1 == call.request
        {
            taken.remove();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(KeyId, KeyName), (Fingerprint, RequestId)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writes(&self) -> MutexGuard<'_, Vec<Write>> {
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

/// What the file has of a call's key. For the ledger's thread.
///
/// # Errors
/// When the file cannot be read or written.
pub(super) fn find(database: &mut Database, call: &KeyedCall, now: Timestamp) -> Result<Found, StoreError> {
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
pub(super) fn write(keys: &Keys, database: &mut Database, now: Timestamp) -> Result<(), StoreError> {
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
    let written = database.write_keys(&group, now);
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

fn taken_by_another() -> StoreError {
    StoreError::Corrupt("an idempotency key was taken twice".to_owned())
}
