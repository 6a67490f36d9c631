//! Credit that is set aside for a running call, and the two ways in which that ends.

use std::sync::Arc;

use super::cover::Cover;
use super::journal::Entry;
use super::{AccountHandle, Debit, Ledger, foreign};
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
    pub(super) ledger: Ledger,
    pub(super) place: AccountHandle,
    pub(super) id: RequestId,
    pub(super) granted: Granted,
    pub(super) entry: Entry,
    /// The name under which the call is billed, once it owes something.
    pub(super) number: Option<CallNumber>,
    /// None where holds do not expire.
    pub(super) cover: Option<Arc<Cover>>,
    pub(super) open: bool,
}

impl Hold {
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
        if self.number.is_none()
            && let Some(number) = self.next_number()
        {
            self.entry.name(number);
            self.number = Some(number);
        }
        self.entry.pass(delivered, prompt);
    }

    fn next_number(&self) -> Option<CallNumber> {
        match (&self.ledger, &self.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => Some(store.next_number(cell)),
            (Ledger::Redis(store), AccountHandle::Redis(account)) => Some(store.next_number(account)),
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => None,
        }
    }

    /// Takes the exact cost and gives the rest back. Never waits; the debit is taken whole even above the hold.
    pub fn settle(mut self, mut debit: Debit) {
        self.open = false;
        debit.held = Some(self.granted.amount);
        let entry = std::mem::replace(&mut self.entry, Entry::none());
        let number = self.number;
        match (&self.ledger, &self.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => {
                store.settle(cell, self.id, number, debit, entry)
            }
            (Ledger::Redis(store), AccountHandle::Redis(account)) => {
                store.settle(account, self.id, number, debit, entry)
            }
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                log::error!("MONEY: request {}: {}", self.id, foreign());
            }
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
    }

    fn give_back(&mut self) {
        self.open = false;
        let entry = std::mem::replace(&mut self.entry, Entry::none());
        match (&self.ledger, &self.place) {
            (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => {
                store.release(cell, self.id, self.number, entry)
            }
            (Ledger::Redis(store), AccountHandle::Redis(account)) => {
                store.release(account, self.id, self.number, entry)
            }
            (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {}
        }
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
