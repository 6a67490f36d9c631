//! A key that a call has taken, on its way to an end.

use super::call::{KeyEnd, KeyedCall};
use crate::ledger::StoreError;
use crate::ledger::handle::AccountHandle;
use crate::pure::idempotency::Answer;

/// A key that a call has taken. Dropped without an end, it is freed: so it is part of the call's hold before anything is sent.
#[derive(Debug)]
pub struct TakenKey {
    place: AccountHandle,
    call: KeyedCall,
    answer: Option<Answer>,
    is_sent: bool,
    is_open: bool,
}

impl TakenKey {
    pub(in crate::ledger) fn new(place: AccountHandle, call: KeyedCall) -> TakenKey {
        TakenKey {
            place,
            call,
            answer: None,
            is_sent: false,
            is_open: true,
        }
    }

    /// Its call is about to be sent.
    pub(in crate::ledger) async fn send(&mut self) -> Result<(), StoreError> {
        self.is_sent = true;
        match &self.place {
            AccountHandle::Embedded(store, _) => store.send_under_key(&self.call).await,
            AccountHandle::Redis(store, account) => store.send_under_key(account, &self.call).await,
        }
    }

    pub(in crate::ledger) fn keep(&mut self, answer: Answer) {
        self.answer = Some(answer);
    }

    /// Its call was billed.
    pub(in crate::ledger) fn billed(mut self) {
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
            self.end(if self.is_sent { KeyEnd::Freed } else { KeyEnd::Unsent });
        }
    }
}
