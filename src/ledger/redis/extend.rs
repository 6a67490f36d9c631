//! A hold in Redis is raised while its call runs.

use std::sync::Arc;

use super::account::Account;
use super::spending::{end_users_of, extend_arguments};
use super::{RedisLedger, reply, script};
use crate::ledger::StoreError;
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;
use crate::pure::spend::SpendLimits;

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
        let (now, asked_ms) = (shared.now_text(), shared.now_ms());
        let spend = shared.holds.known(hold).and_then(|hold| hold.spend);
        let command = extend_command(
            account,
            (hold, range, quota),
            (&now, script::EvalMode::Hash),
            spend.as_ref(),
        );
        let call = super::link::Call {
            command,
            script: Some(&script::EXTEND),
        };
        let extended = reply::extended(&shared.ask(&shared.link(), &call).await?)?;
        if let Extended::To(amount) = extended {
            shared.holds.extended(hold, amount, asked_ms);
        }
        Ok(extended)
    }
}

/// A wish to raise a hold as its script takes it.
pub(super) fn extend_command(
    account: &Account,
    (hold, range, quota): (RequestId, &HoldRange, Credits),
    (now, mode): (&str, script::EvalMode),
    spend: Option<&Arc<SpendLimits>>,
) -> redis::Cmd {
    let end_users = end_users_of(account.id(), spend, hold);
    let keys: Vec<&str> = account.keys().into_iter().chain(end_users.as_deref()).collect();
    let mut command = script::EXTEND.call(mode, &keys);
    command
        .arg(hold.as_bytes())
        .arg(range.wanted.pico())
        .arg(range.at_least.pico())
        .arg(quota.pico())
        .arg(now);
    if let Some(limits) = spend {
        extend_arguments(&mut command, limits, hold);
    }
    command
}
