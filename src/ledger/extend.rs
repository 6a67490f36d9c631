//! A hold is raised while its call runs: where a model's maximum in the catalogue was too low, the answer goes on as long as it can be paid.

use std::future::Future;

use super::hold::Hold;
use super::{AccountHandle, Ledger, StoreError, foreign};
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::money::Credits;

impl Hold {
    /// Asks the store to raise the hold to `range.wanted`, or as near to it as the credit and the month's `quota` reach, but not to less
    /// than `range.at_least`; both are what it holds in all. The question can be asked while the call goes on; its answer is to be given
    /// to [`Hold::extended`].
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say. The hold may have been raised: what closes it gives that back.
    pub fn extension(
        &self,
        range: HoldRange,
        quota: Credits,
    ) -> impl Future<Output = Result<Extended, StoreError>> + Send + use<> {
        let (ledger, place, id) = (self.ledger.clone(), self.place.clone(), self.id);
        async move {
            match (&ledger, &place) {
                (Ledger::Embedded(store), AccountHandle::Embedded(cell)) => store.extend(cell, id, &range, quota),
                (Ledger::Redis(store), AccountHandle::Redis(account)) => store.extend(account, id, &range, quota).await,
                (Ledger::Embedded(_), AccountHandle::Redis(_)) | (Ledger::Redis(_), AccountHandle::Embedded(_)) => {
                    Err(foreign())
                }
            }
        }
    }

    /// The store has raised the hold to this.
    pub fn extended(&mut self, amount: Credits) {
        if amount > self.granted.amount {
            self.granted.amount = amount;
            self.entry.granted(amount);
        }
    }
}
