//! The idempotency keys of running calls, and what the ledger's thread does with them in the file.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::{Found, FreedKey, KeyEnd, KeyTimes, KeyWrite, KeyedCall};
use crate::ledger::sqlite::Database;
use crate::pure::idempotency::{Fingerprint, KeyName, Owner, Record, State};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::time::Timestamp;

/// The keys of running calls, and what the file has yet to hear of them.
#[derive(Debug, Default)]
pub(super) struct Keys {
    running: Mutex<HashMap<(KeyId, KeyName), Running>>,
    writes: Mutex<Vec<Write>>,
}

/// A running call with a key.
#[derive(Clone, Copy, Debug)]
struct Running {
    fingerprint: Fingerprint,
    request: RequestId,
    /// The file knows that it is sent.
    is_sent: bool,
}

/// What the file is to hear.
#[derive(Debug)]
pub(super) enum Write {
    Sent(KeyedCall, oneshot::Sender<Result<(), StoreError>>),
    Ended(KeyedCall, KeyEnd),
}

impl Keys {
    /// What is known of the key that a running call has.
    pub(super) fn running_record(&self, call: &KeyedCall) -> Option<Record> {
        let running = self.running();
        running.get(&(call.key.clone(), call.name)).map(Running::record)
    }

    /// A call's key is no running call's any more.
    pub(super) fn forget(&self, call: &KeyedCall) {
        if let Entry::Occupied(taken) = self.running().entry((call.key.clone(), call.name))
            && taken.get().request == call.request
        {
            taken.remove();
        }
    }

    /// How many keys of the same API key running calls have of which the file has not heard.
    fn unwritten(&self, database: &Database, call: &KeyedCall, known: Timestamp) -> Result<u64, StoreError> {
        let running = self.running();
        let of_key = running.keys().filter(|(key, _)| *key == call.key);
        let names: Vec<KeyName> = of_key.map(|(_, name)| *name).collect();
        drop(running);
        names.into_iter().try_fold(0, |count: u64, name| {
            let other = KeyedCall { name, ..call.clone() };
            Ok(match database.key_record(&other, known)? {
                Some(_) => count,
                None => count.saturating_add(1),
            })
        })
    }

    /// Keys of calls that run, at most so many of one API key.
    fn count(&self) -> u64 {
        u64::try_from(self.running().len()).unwrap_or(u64::MAX)
    }

    fn give(&self, call: &KeyedCall) {
        let running = Running {
            fingerprint: call.fingerprint,
            request: call.request,
            is_sent: false,
        };
        self.running().insert((call.key.clone(), call.name), running);
    }

    /// The file knows that a call is sent.
    fn note_sent(&self, call: &KeyedCall) {
        if let Some(running) = self.running().get_mut(&(call.key.clone(), call.name))
            && running.request == call.request
        {
            running.is_sent = true;
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(KeyId, KeyName), Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writes(&self) -> MutexGuard<'_, Vec<Write>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the calls that have ended, and of which the file has not heard, the keys of those that came to nothing; at most so many.
    pub(super) fn freed(&self, most: usize) -> Vec<FreedKey> {
        let writes = self.writes();
        let freed = writes.iter().filter_map(|write| match write {
            Write::Ended(call, KeyEnd::Freed) => Some(FreedKey::of(call)),
            Write::Ended(_, KeyEnd::Billed(_) | KeyEnd::Unsent) | Write::Sent(..) => None,
        });
        freed.take(most).collect()
    }

    /// The file has heard of these, from another process.
    pub(super) fn are_free(&self, freed: &[FreedKey]) {
        let requests: HashSet<RequestId> = freed.iter().map(|freed| freed.request).collect();
        let is_told =
            |write: &mut Write| matches!(write, Write::Ended(call, KeyEnd::Freed) if requests.contains(&call.request));
        let told: Vec<Write> = self.writes().extract_if(.., is_told).collect();
        for write in told {
            if let Write::Ended(call, _) = write {
                self.forget(&call);
            }
        }
    }
}

impl Running {
    fn record(&self) -> Record {
        Record {
            fingerprint: self.fingerprint,
            request: self.request,
            state: match self.is_sent {
                true => State::Sent(Owner::Runs),
                false => State::Taken,
            },
        }
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

/// Gives the call its key, unless something is known of that: of those who ask for it at once, the first that comes here. For the ledger's
/// thread.
///
/// # Errors
/// When the file cannot be read or written.
pub(super) fn find(
    keys: &Keys,
    database: &mut Database,
    call: &KeyedCall,
    times: KeyTimes,
) -> Result<Found, StoreError> {
    if let Some(record) = known(keys, database, call, times)? {
        return Ok(Found::Known(record));
    }
    let most = call.limits.keys_per_key_max;
    // Only where it may be too many are they counted one by one.
    if database.keys_known(&call.key)?.saturating_add(keys.count()) >= most {
        database.delete_expired_keys(times.known)?;
        let unwritten = keys.unwritten(database, call, times.known)?;
        if database.keys_known(&call.key)?.saturating_add(unwritten) >= most {
            return Ok(Found::Full);
        }
    }
    keys.give(call);
    Ok(Found::Nothing)
}

/// What is known of a call's key, which is not taken. For the ledger's thread: it alone writes to the file, and a call that has sent something
/// runs until that is done. So what the file says was sent, of a call that does not run now, nobody runs.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn known(
    keys: &Keys,
    database: &Database,
    call: &KeyedCall,
    times: KeyTimes,
) -> Result<Option<Record>, StoreError> {
    match keys.running_record(call) {
        Some(record) => Ok(Some(record)),
        None => database.key_record(call, times.known),
    }
}

/// Writes what the file has yet to hear, and tells whoever waits for it. For the ledger's thread.
///
/// # Errors
/// When the file cannot be written: calls that were about to be sent are told so, and what ended is kept for the next try.
pub(super) fn write(keys: &Keys, database: &mut Database, times: KeyTimes) -> Result<(), StoreError> {
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
    let written = database.write_keys(&group, times);
    point(name, "after");
    match written {
        Ok(written) => {
            for (write, is_written) in writes.into_iter().zip(written) {
                match write {
                    Write::Ended(call, _) => keys.forget(&call),
                    Write::Sent(call, reply) if is_written => {
                        keys.note_sent(&call);
                        // Whoever asked may have gone.
                        drop(reply.send(Ok(())));
                    }
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
