//! The terms of accounts: how they are kept and changed, and what follows in this process when an account is stopped.

use std::sync::Arc;

use redis::Value;

use super::account::{Account, account_keys};
use super::kept_terms;
use super::link::Link;
use super::reply;
use super::script;
use super::server_health::{Change, channel};
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminReply};
use crate::ledger::terms::{AccountTerms, TermsChange};
use crate::pure::ids::AccountId;

impl Shared {
    /// Changes an account's terms, and in the same step its tier and its quota, as the script has them: an empty text stays.
    pub(super) async fn set_terms(
        &self,
        link: &Link,
        account: &AccountId,
        change: &TermsChange,
        [tier, quota]: [&str; 2],
    ) -> Result<AdminReply, AdminError> {
        let [name, _] = account_keys(account);
        let (channel, message) = (channel(), Change::Account(account.clone()).text());
        for _ in 0..CHANGES_MAX {
            let mut command = redis::cmd("HMGET");
            command.arg(&name).arg("tier").arg("ut");
            let value = self.command(link, command).await?;
            let [tier_before, before] = reply::list(&value)? else {
                return Err(reply::corrupt("an account has other fields than it should").into());
            };
            if *tier_before == Value::Nil {
                return Err(AdminError::NoAccount(account.clone()));
            }
            let before = reply::optional_text(before)?.unwrap_or_default();
            let terms = kept_terms::read(before)?.changed(change).map_err(AdminError::Invalid)?;
            let [text, low] = kept_terms::arguments(&terms)?;
            let arguments = [channel.as_str(), &message, before, &text, &low, tier, quota];
            let set = self.run_script(link, &script::TERMS, &[&name], &arguments).await?;
            if reply::text(&set)? == "changed" {
                continue;
            }
            self.cache.forget_account(account);
            if let Some(known) = self.cache.known_account(account) {
                self.stopped(&known, &terms);
            }
            let mut view = self.view(link, account).await?;
            // What this change came to, though another may have come since.
            view.record.terms = terms;
            view.keys = self.keys_of(link, account).await?;
            return Ok(AdminReply::Account(view));
        }
        Err(AdminError::Store(
            "the account is changed again and again; nothing was changed here".to_owned(),
        ))
    }

    /// Looks whether an account is stopped, and ends its calls where they are to end then.
    ///
    /// # Errors
    /// When Redis does not say.
    pub(super) async fn look_for_stop(&self, account: &Arc<Account>) -> Result<(), StoreError> {
        let facts = self.read_facts(&self.link(), account).await?;
        self.stopped(account, &facts.terms);
        Ok(())
    }

    fn stopped(&self, account: &Account, terms: &AccountTerms) {
        let stop = terms.status.stop();
        // First, so that a call whose hold is made meanwhile sees it.
        account.heard_stop(stop);
        if let Some(stop) = stop {
            let ended = self.holds.end_stopped(account, stop);
            if ended > 0 {
                log::info!(
                    "{} is stopped ({}): {ended} of its calls end",
                    account.id(),
                    stop.name()
                );
            }
        }
    }
}

/// How often a change is tried that others come in between.
const CHANGES_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SuspendedStreams;
    use crate::ledger::journal::Entry;
    use crate::ledger::terms::AccountStatus;
    use crate::ledger::tests::logged::logged;
    use crate::ledger::tests::rig::{Rig, block_on, redis_of, request};

    #[test]
    fn how_many_calls_end_with_a_stop_is_told_where_any_do() {
        let rig = Rig::redis();
        let caller = rig.caller("10");
        let shared = &redis_of(&rig.ledger).shared;
        let hold = block_on(caller.reserve_until(&request(1, "1"), Entry::none(), SuspendedStreams::End));
        let hold = hold.unwrap().unwrap();
        let terms = AccountTerms {
            status: AccountStatus::Suspended,
            ..AccountTerms::default()
        };
        let told = |account: &str| {
            let account = shared.cache.account(&account.parse().unwrap());
            logged(|| shared.stopped(&account, &terms))
        };
        assert_eq!(told("other"), [""; 0]);
        assert_eq!(
            told("acme"),
            ["INFO acme is stopped (account_suspended): 1 of its calls end"]
        );
        hold.release();
    }
}
