//! A hold is raised while its call runs: where a model's maximum in the catalogue was too low, the answer goes on as long as it can be paid.

use std::future::Future;

use super::hold::Hold;
use super::{AccountHandle, StoreError};
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
        let (place, id, journaled) = (self.place.clone(), self.id, self.entry.held());
        async move {
            match &place {
                AccountHandle::Embedded(store, account) => store.extend(account, id, (&range, quota), &journaled).await,
                AccountHandle::Redis(store, account) => store.extend(account, id, &range, quota).await,
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
