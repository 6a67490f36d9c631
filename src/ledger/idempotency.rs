//! Idempotency keys in the ledger: one contract, both stores.
//!
//! A call takes its key before anything is held for it ([`Caller::take_key`]), and the store knows for 24 hours that it was sent before it
//! is ([`Hold::send_under_key`]). From then on the key goes the way of the hold: a settlement leaves the key with the answer, or without
//! one, and a release frees it. None of these waits for the store. A call that is not made takes no key ([`Caller::known_key`]).

pub(super) mod call;
pub(super) mod taken;

use self::call::Found;
pub use self::call::KeyedCall;
pub use self::taken::TakenKey;
use super::StoreError;
use super::caller::Caller;
use super::handle::AccountHandle;
use super::hold::Hold;
use crate::pure::idempotency::{Answer, Record};

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
            Found::Nothing => Taking::Taken(Box::new(TakenKey::new(self.place.clone(), call))),
            Found::Known(record) => Taking::Known(record),
            Found::Full => Taking::Full(call.limits.keys_per_key_max),
        })
    }

    /// What is known of a call's key, as [`Caller::take_key`] says it; a key of which nothing is known is not taken, so that whoever asks next
    /// may have it.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say.
    pub async fn known_key(&self, call: &KeyedCall) -> Result<Option<Record>, StoreError> {
        match &self.place {
            AccountHandle::Embedded(store, _) => store.known_key(call).await,
            AccountHandle::Redis(store, account) => store.known_key(account, call).await,
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
        key.send().await
    }

    /// The answer as its client gets it, to be kept with the key.
    pub fn keep_answer(&mut self, answer: Answer) {
        if let Some(key) = &mut self.key {
            key.keep(answer);
        }
    }
}
