//! The embedded store's steps of one account, for the random sequences.

use std::sync::Arc;

use super::{Embedded, EmbeddedAccount};
use crate::clock::Clock;
use crate::ledger::tests::rig::block_on;
use crate::ledger::tests::sequences::Book;
use crate::ledger::{Debit, Figures, Ledger};
use crate::pure::account::{Denial, Extended, Granted, ReserveRequest, Scope, Settled, Settlement, Spent};
use crate::pure::estimate::HoldRange;
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::spend::{Reset, SpendLimits};
use crate::pure::time::Timestamp;

/// An account of an embedded ledger.
pub(in crate::ledger) struct EmbeddedBook {
    store: Arc<Embedded>,
    cell: Arc<EmbeddedAccount>,
}

impl EmbeddedBook {
    pub(in crate::ledger) fn new(ledger: &Ledger, name: &str) -> EmbeddedBook {
        let Ledger::Embedded(store) = ledger else {
            panic!("another store");
        };
        let accounts = store.shared.accounts.read().unwrap();
        EmbeddedBook {
            store: Arc::clone(store),
            cell: Arc::clone(&accounts[&name.parse().unwrap()]),
        }
    }
}

impl Book for EmbeddedBook {
    fn clock(&self) -> &Clock {
        &self.store.shared.clock
    }

    fn reserve(&self, request: &ReserveRequest) -> Result<Granted, Denial> {
        self.store
            .reserve(&self.cell, request, &mut crate::ledger::journal::Entry::none())
            .unwrap()
            .unwrap()
    }

    fn settle(&self, settlement: &Settlement, debit: &Debit, _: Option<&(Scope, Credits)>) -> Settled {
        self.store.settle_numbered(&self.cell, settlement, debit.clone())
    }

    fn release(&self, hold: RequestId) -> Option<Credits> {
        self.cell.state().release(hold)
    }

    fn extend(&self, hold: RequestId, range: &HoldRange, quota: Credits, _: Option<&Arc<SpendLimits>>) -> Extended {
        let none = crate::ledger::journal::HeldSlot::default();
        block_on(self.store.extend(&self.cell, hold, (range, quota), &none)).unwrap()
    }

    fn track(&self, key: &KeyId) {
        self.cell.state().track(key, &std::collections::HashMap::new());
    }

    fn spent(&self, key: &KeyId, reset: Reset) -> Spent {
        crate::ledger::tests::rig::block_on(self.store.key_spent(&self.cell, key, reset)).unwrap()
    }

    fn renew(&self, hold: RequestId, expires: Timestamp) -> bool {
        self.cell.state().renew(hold, expires)
    }

    fn expire(&self) -> usize {
        let now = self.store.shared.clock.now();
        self.cell.state().expire(now)
    }

    fn rate(&self, scope: &Scope, limits: Limits) -> Option<RateView> {
        Some(self.store.rate(&self.cell, scope, limits))
    }

    fn view(&self) -> (Figures, usize) {
        let figures = self.store.figures(&self.cell);
        (figures, self.cell.state().open_holds())
    }
}
