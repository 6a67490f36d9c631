//! Credit that is set aside for a running call, and the two ways in which that ends.

use std::sync::Arc;

use super::cover::Cover;
use super::journal::Entry;
use super::{Debit, Ledger, Place, foreign};
use crate::pure::account::Granted;
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;
use crate::pure::money::Credits;
use crate::pure::usage::{CompletionTokens, PromptTokens};

/// Credit set aside for a running request. It is settled or released exactly once; dropped without either, it is released.
#[must_use = "a hold has to be settled or released"]
#[derive(Debug)]
pub struct Hold {
    pub(super) ledger: Ledger,
    pub(super) place: Place,
    pub(super) id: RequestId,
    pub(super) granted: Granted,
    pub(super) entry: Entry,
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
        self.entry.pass(delivered, prompt);
    }

    /// Takes the exact cost and gives the rest back. Never waits; the debit is taken whole even above the hold.
    pub fn settle(mut self, debit: Debit) {
        self.open = false;
        let entry = std::mem::replace(&mut self.entry, Entry::none());
        match (&self.ledger, &self.place) {
            (Ledger::Embedded(store), Place::Embedded(cell)) => store.settle(cell, self.id, debit, entry),
            (Ledger::Redis(store), Place::Redis(account)) => store.settle(account, self.id, debit, entry),
            (Ledger::Embedded(_), Place::Redis(_)) | (Ledger::Redis(_), Place::Embedded(_)) => {
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
            (Ledger::Embedded(store), Place::Embedded(cell)) => store.release(cell, self.id, entry),
            (Ledger::Redis(store), Place::Redis(account)) => store.release(account, self.id, entry),
            (Ledger::Embedded(_), Place::Redis(_)) | (Ledger::Redis(_), Place::Embedded(_)) => {}
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
