//! A hold in memory is raised while its call runs.

use super::{Embedded, EmbeddedAccount};
use crate::ledger::StoreError;
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;

impl Embedded {
    /// Raises a hold: see [`AccountState::extend`](crate::pure::account::AccountState::extend).
    ///
    /// # Errors
    /// When another process owns the ledger now: it holds what this one's calls held then.
    pub(in crate::ledger) fn extend(
        &self,
        cell: &EmbeddedAccount,
        hold: RequestId,
        range: &HoldRange,
        quota: Credits,
    ) -> Result<Extended, StoreError> {
        let mut state = cell.state();
        if self.is_handed_over() {
            return Err(StoreError::Owned(
                "its new owner does not raise what it took over".to_owned(),
            ));
        }
        Ok(state.extend(hold, range, quota, self.shared.clock.now()))
    }
}
