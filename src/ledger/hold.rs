//! Credit that is set aside for a running call, and the two ways in which that ends.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::cover::{Cover, Uncovered};
use super::handle::AccountHandle;
use super::idempotency::taken::TakenKey;
use super::journal::Entry;
use super::records::Debit;
use crate::failpoints::point;
use crate::pure::account::Granted;
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;
use crate::pure::money::Credits;
use crate::pure::numbers::CallNumber;
use crate::pure::usage::{CompletionTokens, PromptTokens};

/// Credit set aside for a running request. It is settled or released exactly once; dropped without either, it is released.
#[must_use = "a hold has to be settled or released"]
#[derive(Debug)]
pub struct Hold {
    pub(super) place: AccountHandle,
    pub(super) id: RequestId,
    pub(super) granted: Granted,
    pub(super) entry: Entry,
    /// The name under which the call is billed, once it owes something.
    pub(super) number: Option<CallNumber>,
    /// None where holds do not expire, the call has no end user with a limit, and it is not to end when its account is stopped.
    pub(super) cover: Option<Arc<Cover>>,
    /// The idempotency key under which the call was sent.
    pub(super) key: Option<Box<TakenKey>>,
    pub(super) open: bool,
}

impl Hold {
    pub(super) fn new(
        place: AccountHandle,
        id: RequestId,
        granted: Granted,
        entry: Entry,
        cover: Option<Arc<Cover>>,
    ) -> Hold {
        Hold {
            place,
            id,
            granted,
            entry,
            number: None,
            cover,
            key: None,
            open: true,
        }
    }

    /// The request's id, which is the hold's.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// What is held.
    pub fn amount(&self) -> Credits {
        self.granted.amount
    }

    /// For the rate-limit headers.
    pub fn rate(&self) -> RateView {
        self.granted.rate
    }

    /// Tokens of the answer are about to be passed on: `delivered` in all, with the provider's report of the prompt where it has come.
    /// Costs a few store instructions.
    pub fn pass(&mut self, delivered: CompletionTokens, prompt: Option<PromptTokens>) {
        if self.number.is_none() {
            let number = self.place.next_number();
            self.entry.name(number);
            self.number = Some(number);
        }
        self.entry.pass(delivered, prompt);
    }

    /// Takes the exact cost and gives the rest back. Never waits; the debit is taken whole even above the hold.
    pub fn settle(mut self, mut debit: Debit) {
        self.open = false;
        debit.held = Some(self.granted.amount);
        debit.end_user = self.cover.as_ref().and_then(|cover| cover.end_user);
        let entry = std::mem::replace(&mut self.entry, Entry::none());
        let number = self.number;
        match &self.place {
            AccountHandle::Embedded(store, account) => store.settle(account, self.id, number, debit, entry),
            AccountHandle::Redis(store, account) => store.settle(account, self.id, number, debit, entry),
        }
        if let Some(key) = self.key.take() {
            point("idempotency", "debited");
            key.billed();
        }
    }

    /// Why the call has to end, once it has to.
    pub fn uncovered(&self) -> Option<Uncovered> {
        self.cover.as_ref()?.ended()
    }

    /// Ready once the call has to end. Never for a hold that does not expire, unless its account is stopped and that ends it.
    pub fn poll_uncovered(&self, context: &mut Context<'_>) -> Poll<Uncovered> {
        match &self.cover {
            Some(cover) => cover.poll_ended(context),
            None => Poll::Pending,
        }
    }

    /// Gives everything back. Never waits.
    pub fn release(mut self) {
        self.give_back();
    }

    /// Leaves the hold as the death of the process would.
    #[cfg(test)]
    pub(crate) fn forget(mut self) {
        self.open = false;
        std::mem::forget(self.key.take());
    }

    fn give_back(&mut self) {
        self.open = false;
        let mut entry = std::mem::replace(&mut self.entry, Entry::none());
        entry.given_back();
        match &self.place {
            AccountHandle::Embedded(store, account) => store.release(account, self.id, self.number, entry),
            AccountHandle::Redis(store, account) => store.release(account, self.id, self.number, entry),
        }
        drop(self.key.take()); // Nothing was billed, so it is free.
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.open {
            log::warn!(
                "the hold of request {} was dropped without a settlement; it is released",
                self.id
            );
            self.give_back();
        }
    }
}
