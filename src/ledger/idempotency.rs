//! Idempotency keys in the ledger: one contract, both stores.
//!
//! A call takes its key before anything is held for it ([`Caller::take_key`]), and the store knows for 24 hours that it was sent before it
//! is ([`Hold::send_under_key`]). From then on the key goes the way of the hold: a settlement leaves the key with the answer, or without
//! one, and a release frees it. None of these waits for the store.

use super::StoreError;
use super::caller::Caller;
use super::handle::AccountHandle;
use super::hold::Hold;
use crate::config::Idempotency;
use crate::pure::idempotency::{Answer, Fingerprint, KeyName, Record};
use crate::pure::ids::{KeyId, RequestId};

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

/// What taking a key comes to.
#[derive(Debug)]
pub enum Taking {
    /// It is this call's.
    Taken(Box<TakenKey>),
    /// It is known.
    Known(Record),
    /// The API key has so many keys already.
    Full(u64),
}

/// How a store answers to that.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Known(Record),
    Full,
}

/// How a key's call ended.
#[derive(Debug)]
pub(super) enum KeyEnd {
    /// It was billed; its answer, when it is kept.
    Billed(Option<Answer>),
    /// It was not: the key is free.
    Freed,
}

/// A key that a call has taken. Dropped without an end, it is freed: so it is part of the call's hold before anything is sent.
#[derive(Debug)]
pub struct TakenKey {
    place: AccountHandle,
    call: KeyedCall,
    answer: Option<Answer>,
    is_open: bool,
}

impl Caller {
    /// Takes an idempotency key for a call, or says what is known of it. Atomic over all gateways.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say; a key that was taken all the same is free again within a minute.
    pub async fn take_key(&self, call: KeyedCall) -> Result<Taking, StoreError> {
        let found = match &self.place {
            AccountHandle::Embedded(store, _) => store.take_key(&call).await,
            AccountHandle::Redis(store, account) => store.take_key(account, &call).await,
        }?;
        Ok(match found {
            Found::Nothing => Taking::Taken(Box::new(TakenKey {
                place: self.place.clone(),
                call,
                answer: None,
                is_open: true,
            })),
            Found::Known(record) => Taking::Known(record),
            Found::Full => Taking::Full(call.limits.keys_per_key_max),
        })
    }
}

impl TakenKey {
    async fn is_sent(&self) -> Result<(), StoreError> {
        match &self.place {
            AccountHandle::Embedded(store, _) => store.send_under_key(&self.call).await,
            AccountHandle::Redis(store, account) => store.send_under_key(account, &self.call).await,
        }
    }

    pub(super) fn keep(&mut self, answer: Answer) {
        self.answer = Some(answer);
    }

    /// Its call was billed.
    pub(super) fn billed(mut self) {
        let answer = self.answer.take();
        self.end(KeyEnd::Billed(answer));
    }

    fn end(&mut self, end: KeyEnd) {
        self.is_open = false;
        match &self.place {
            AccountHandle::Embedded(store, _) => store.end_key(&self.call, end),
            AccountHandle::Redis(store, account) => store.end_key(account, &self.call, end),
        }
    }
}

impl Drop for TakenKey {
    fn drop(&mut self) {
        if self.is_open {
            self.end(KeyEnd::Freed);
        }
    }
}

impl Hold {
    /// The call is about to be sent under a key: from now on the store knows that for 24 hours, whatever becomes of this process, and
    /// the key ends as the hold does.
    ///
    /// # Errors
    /// When the store does not say so: then nothing may be sent, and the hold is to be released.
    pub async fn send_under_key(&mut self, key: Box<TakenKey>) -> Result<(), StoreError> {
        let key = self.key.insert(key);
        key.is_sent().await
    }

    /// The answer as its client gets it, to be kept with the key.
    pub fn keep_answer(&mut self, answer: Answer) {
        if let Some(key) = &mut self.key {
            key.keep(answer);
        }
    }
}
