//! What the stores are told of a call with an idempotency key, and what they answer.

use serde::{Deserialize, Serialize};

use crate::config::Idempotency;
use crate::pure::idempotency::{Answer, Fingerprint, KeyName, Record};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::time::Timestamp;

/// A call that brings an idempotency key.
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// The API key, for which the name counts.
    pub key: KeyId,
    /// The idempotency key.
    pub name: KeyName,
    /// What makes another call the same.
    pub fingerprint: Fingerprint,
    /// The call's own id.
    pub request: RequestId,
    /// What is kept.
    pub limits: Idempotency,
}

/// How a store answers to a call that takes its key.
#[derive(Debug)]
pub(in crate::ledger) enum Found {
    Nothing,
    Known(Record),
    Full,
}

/// How a key's call ended.
#[derive(Debug)]
pub(in crate::ledger) enum KeyEnd {
    /// It was billed; its answer, when it is kept.
    Billed(Option<Answer>),
    /// It was not: the key is free.
    Freed,
    /// It was never sent: the key is free.
    Unsent,
}

/// A key that is free, as a process tells the one that has its ledger by now: the key's call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreedKey {
    pub(in crate::ledger) key: KeyId,
    pub(in crate::ledger) name: [u8; 32],
    pub(in crate::ledger) request: RequestId,
}

impl FreedKey {
    pub(in crate::ledger) fn of(call: &KeyedCall) -> FreedKey {
        FreedKey {
            key: call.key.clone(),
            name: *call.name.as_bytes(),
            request: call.request,
        }
    }
}

/// One write: that a call is sent, or how it ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) enum KeyWrite<'a> {
    Sent(&'a KeyedCall),
    Ended(&'a KeyedCall, &'a KeyEnd),
    /// One of the process before ended without a bill.
    Freed(&'a FreedKey),
}

/// By which times keys are written and forgotten.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) struct KeyTimes {
    /// The latest that it can be: from then on a key that is sent is known for 24 hours.
    pub(in crate::ledger) latest: Timestamp,
    /// What has expired by then is forgotten.
    pub(in crate::ledger) known: Timestamp,
}

/// Most ends that wait for their store; beyond that, a store that does not take them has keys taken whose calls are over.
pub(in crate::ledger) const ENDS_MAX: usize = 100_000;
