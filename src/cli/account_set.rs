//! `tollgate account set`: changes an account in one step.

use clap::Args;

use super::arguments::{LowBalance, Quota, metadata};
use super::failure::Failure;
use super::ledger::ask;
use crate::config::Config;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::terms::{AccountTerms, TermsChange};
use crate::pure::ids::{AccountId, Tier};

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct Changes {
    /// What it may use: free, lite, pro or enterprise
    #[arg(long)]
    tier: Option<Tier>,
    /// Credits it may spend in a month; `default`: its tier's
    #[arg(long, value_name = "AMOUNT|default", allow_negative_numbers = true)]
    monthly_quota: Option<Quota>,
    /// Below it, an event tells that the balance is low
    #[arg(long, value_name = "AMOUNT|none", allow_negative_numbers = true)]
    low_balance: Option<LowBalance>,
    /// A note to keep; empty: it goes; repeatable
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = metadata)]
    metadata: Vec<(String, Option<String>)>,
}

impl Changes {
    /// What they change of its terms.
    fn terms(&self) -> Option<TermsChange> {
        let change = TermsChange {
            status: None,
            low_balance_pico: self.low_balance.map(|low| match low {
                LowBalance::Below(amount) => Some(amount.pico()),
                LowBalance::None => None,
            }),
            metadata: self.metadata.iter().cloned().collect(),
        };
        (!change.is_empty()).then_some(change)
    }
}

/// Changes an account, in one step. A gateway of an earlier version changes tier and quota in that step alone, and is asked for the rest then.
pub(super) fn set(account: AccountId, changes: &Changes, config: &Config) -> Result<AdminReply, Failure> {
    let terms = changes.terms();
    if let Some(change) = &terms {
        check(change)?;
    }
    if let Some(change) = &terms
        && changes.tier.is_none()
        && changes.monthly_quota.is_none()
    {
        let change = change.clone();
        return ask(config, AdminOp::Account(AccountOp::Terms { account, change }));
    }
    if let Some(change) = &terms {
        // An earlier gateway does the rest before it finds what is wrong with these.
        AccountTerms::default().changed(change).map_err(Failure::new)?;
    }
    let set = AdminOp::AccountSet {
        account: account.clone(),
        tier: changes.tier,
        quota_pico: changes.monthly_quota.map(|quota| match quota {
            Quota::Own(amount) => Some(amount.pico()),
            Quota::OfTier => None,
        }),
        terms: terms.clone().unwrap_or_default(),
    };
    let reply = ask(config, set)?;
    let Some(change) = terms.filter(|change| lacks(&reply, change)) else {
        return Ok(reply);
    };
    ask(config, AdminOp::Account(AccountOp::Terms { account, change })).map_err(|failure| {
        let changed = given([
            ("--tier", changes.tier.is_some()),
            ("--monthly-quota", changes.monthly_quota.is_some()),
        ]);
        let failed = given([
            ("--low-balance", changes.low_balance.is_some()),
            ("--meta", !changes.metadata.is_empty()),
        ]);
        Failure::new(format!("{failure} (changed already: {changed}; perhaps not: {failed})"))
    })
}

/// Refuses what no account can have. A control character may stand in a value of before there was a rule for it, and be said again: only the
/// ledger knows that.
fn check(change: &TermsChange) -> Result<(), Failure> {
    let mut certain = change.clone();
    certain.metadata.retain(|_, value| {
        let text = value.as_deref().unwrap_or_default();
        !text.chars().any(char::is_control)
    });
    let changed = AccountTerms::default().changed(&certain);
    changed.map(drop).map_err(Failure::wrong_usage)
}

/// Whether an account is told without a change of its terms.
fn lacks(reply: &AdminReply, change: &TermsChange) -> bool {
    match reply {
        AdminReply::Account(view) => {
            let terms = &view.record.terms;
            !terms.changed(change).is_ok_and(|changed| changed == *terms)
        }
        _ => false,
    }
}

/// The options that were given, in one text.
fn given(options: [(&str, bool); 2]) -> String {
    let given = options.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(option, _)| option).collect::<Vec<&str>>().join(", ")
}
