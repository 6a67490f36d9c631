//! A hold in Redis is raised while its call runs.

use std::sync::Arc;

use super::account::Account;
use super::{RedisLedger, reply, script};
use crate::ledger::StoreError;
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;

impl RedisLedger {
    /// Raises a hold: see [`AccountState::extend`](crate::pure::account::AccountState::extend).
    ///
    /// # Errors
    /// When Redis cannot be reached or does not answer in time: the hold may have been raised, and its settlement gives that back.
    pub(in crate::ledger) async fn extend(
        &self,
        account: &Arc<Account>,
        hold: RequestId,
        range: &HoldRange,
        quota: Credits,
    ) -> Result<Extended, StoreError> {
        let shared = &self.shared;
        let now = shared.now_text();
        let mut command = script::EXTEND.call(script::EvalMode::Hash, &account.keys());
        command
            .arg(hold.as_bytes())
            .arg(range.wanted.pico())
            .arg(range.at_least.pico())
            .arg(quota.pico())
            .arg(&now);
        let call = super::link::Call {
            command,
            script: Some(&script::EXTEND),
        };
        let extended = reply::extended(&shared.ask(&shared.link(), &call).await?)?;
        if let Extended::To(amount) = extended {
            shared.holds.extended(hold, amount);
        }
        Ok(extended)
    }
}
