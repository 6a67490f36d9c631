//! `Idempotency-Key`: what its text may be, what makes two calls the same, and what becomes of a call whose key is known.
//!
//! A record of a key is `Taken` before anything is held for its call, `Sent` before anything is sent to a provider, and then either has
//! the answer or has none. A call that was not billed frees its key: then there is no record. So the key of a call that is still being
//! admitted is nobody's for good, and another request with it is told to come back.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::ids::{KeyId, RequestId};
use super::request_body::Endpoint;

/// SHA-256 of an API key's id and the header's text: the only form of that which is ever stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyName([u8; 32]);

/// SHA-256 of what makes two calls the same: method, endpoint and the bytes of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// A header that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("idempotency-key: it must be 1 to {TEXT_BYTES_MAX} visible ASCII characters")]
pub struct BadKey;

/// An answer with status 200 as its client got it, or would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is a stream of events; else it is JSON.
    pub streamed: bool,
    /// All of its body.
    pub body: Bytes,
}

/// How far the call came that has taken a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing of it was sent yet: a record in this state expires after [`TAKEN_MS`].
    Taken,
    /// It may have been sent to a provider, and is not over as far as the record knows.
    Sent(Owner),
    /// It was billed, and its answer is kept.
    Stored(Answer),
    /// It was billed, and its answer is not kept: too large, not to be stored, cut off, or in the way of later ones.
    NotStored,
}

/// Whether the process still runs the call that has sent its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It does: the call is held for.
    Runs,
    /// Nothing is held for the call, first seen so many milliseconds ago. It may be about to store its answer.
    Missing(u64),
    /// It does not.
    Gone,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of the call that took it.
    pub fingerprint: Fingerprint,
    /// The id of the call that took it.
    pub request: RequestId,
    /// How far that came.
    pub state: State,
}

/// What a call gets whose key is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// The answer of the call that took the key.
    Replayed {
        /// The answer.
        answer: Answer,
        /// The id of the call that was given it first.
        original: RequestId,
    },
    /// A refusal.
    Refused(KeyRefusal),
}

/// Why a call is refused whose key is known. The names are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// The call that took the key runs, or is still being admitted.
    InProgress,
    /// Another request was sent under the key.
    Conflict,
    /// There is no answer to give again: the call that took the key has this id, which is its receipt's.
    Unavailable(RequestId),
}

impl KeyName {
    /// The name of what an API key's caller sent in the header.
    ///
    /// # Errors
    /// When it is empty, longer than [`TEXT_BYTES_MAX`] or has another character than visible ASCII.
    pub fn of(key: &KeyId, text: &[u8]) -> Result<KeyName, BadKey> {
        let is_visible = |byte: &u8| byte.is_ascii_graphic();
        if text.is_empty() || text.len() > TEXT_BYTES_MAX || !text.iter().all(is_visible) {
            return Err(BadKey);
        }
        let mut digest = Sha256::new();
        digest.update(key.as_str());
        digest.update([0]);
        digest.update(text);
        Ok(KeyName(digest.finalize().into()))
    }

    /// The name with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> KeyName {
        KeyName(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Fingerprint {
    /// Of a `POST` to an endpoint. Two paths of one endpoint are the same.
    pub fn of(endpoint: Endpoint, body: &[u8]) -> Fingerprint {
        let name = match endpoint {
            Endpoint::Chat => "POST chat\0",
            Endpoint::ChatStream => "POST chat/stream\0",
            Endpoint::Embeddings => "POST embeddings\0",
        };
        let mut digest = Sha256::new();
        digest.update(name);
        digest.update(body);
        Fingerprint(digest.finalize().into())
    }

    /// The fingerprint with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Record {
    /// What a call with this fingerprint gets. Never a call of its own: who may be at a provider is not asked for a second time.
    pub fn repeated(self, fingerprint: &Fingerprint) -> Repeated {
        let is_same = self.fingerprint == *fingerprint;
        let original = self.request;
        match self.state {
            // It may yet be refused, which frees its key: nobody knows whose that will be.
            State::Taken => Repeated::Refused(KeyRefusal::InProgress),
            _ if !is_same => Repeated::Refused(KeyRefusal::Conflict),
            State::Sent(Owner::Runs) => Repeated::Refused(KeyRefusal::InProgress),
            State::Sent(Owner::Missing(ms)) if ms < MISSING_MS => Repeated::Refused(KeyRefusal::InProgress),
            State::Sent(Owner::Missing(_) | Owner::Gone) | State::NotStored => {
                Repeated::Refused(KeyRefusal::Unavailable(original))
            }
            State::Stored(answer) => Repeated::Replayed { answer, original },
        }
    }
}

impl KeyRefusal {
    /// For `error.type` and metrics.
    pub fn name(self) -> &'static str {
        match self {
            KeyRefusal::InProgress => "idempotency_request_in_progress",
            KeyRefusal::Conflict => "idempotency_key_conflict",
            KeyRefusal::Unavailable(_) => "idempotency_result_unavailable",
        }
    }
}

/// Most characters of the header.
pub const TEXT_BYTES_MAX: usize = 255;
/// How long a key is known, in milliseconds: 24 hours.
pub const KEPT_MS: i64 = 24 * 3_600_000;
/// How long a key is known that was taken by a call which has sent nothing yet, in milliseconds: far longer than a hold takes, for a
/// process that dies then blocks it so long.
pub const TAKEN_MS: i64 = 60_000;
/// For how many milliseconds nothing may be held for a call before it is taken for one without an answer: so long its answer may be on its
/// way into the store.
pub const MISSING_MS: u64 = 5_000;

#[cfg(test)]
mod tests;
