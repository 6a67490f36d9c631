//! Accounts: made, listed, shown, changed.

use serde::Deserialize;

use crate::ledger::admin::accounts::{ACCOUNTS_MAX, AccountOp, AccountQuery};
use crate::ledger::admin::{AccountView, AdminOp, AdminReply};
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::{AccountId, Tier};
use crate::pure::money::Credits;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::fields::{Named, given, present};
use crate::server::operator::shown::{AccountShown, Page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: AccountId,
    tier: Tier,
    #[serde(default)]
    monthly_quota: Option<Credits>,
    #[serde(default)]
    low_balance: Option<Credits>,
    #[serde(default)]
    metadata: Named<String>,
}

/// What a PATCH changes; what it does not name stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default, deserialize_with = "given")]
    tier: Option<Tier>,
    /// Null goes back to the tier's.
    #[serde(default, deserialize_with = "present")]
    monthly_quota: Option<Option<Credits>>,
    #[serde(default, deserialize_with = "given")]
    status: Option<AccountStatus>,
    /// Null takes it away.
    #[serde(default, deserialize_with = "present")]
    low_balance: Option<Option<Credits>>,
    /// Null takes a name away.
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Named<Option<String>>>,
}

pub(in crate::server::operator) async fn create(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let new: New = call.json()?;
    let terms = TermsChange {
        low_balance_pico: amount("low_balance", new.low_balance)?.map(Some),
        metadata: new
            .metadata
            .0
            .into_iter()
            .map(|(name, value)| (name, Some(value)))
            .collect(),
        ..TermsChange::default()
    };
    terms_are_good(&terms)?;
    let op = AdminOp::AccountCreate {
        account: new.name.clone(),
        tier: new.tier,
        quota_pico: amount("monthly_quota", new.monthly_quota)?,
        terms,
    };
    let view = expect(call.run(op).await?, account)?;
    let shown = AccountShown::of(view, &call.snapshot.config);
    Ok(Answer::json(&shown).created(&format!("/v1/accounts/{}", new.name)))
}

pub(in crate::server::operator) async fn list(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["search", "after", "limit"])?;
    let op = AccountOp::Page(AccountQuery {
        after: query.read_as("after")?,
        limit: query.limit(LIMIT, ACCOUNTS_MAX)?,
        search: query.text("search").map(str::to_owned).filter(|text| !text.is_empty()),
    });
    let page = expect(call.run(AdminOp::Account(op)).await?, |reply| match reply {
        AdminReply::AccountPage(page) => Some(page),
        _ => None,
    })?;
    let config = &call.snapshot.config;
    let accounts = page.accounts.into_iter().map(|view| AccountShown::of(view, config));
    Ok(Answer::json(&Page {
        data: accounts.collect(),
        next: page.next.map(String::from),
    }))
}

pub(in crate::server::operator) async fn show(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let op = AdminOp::AccountShow {
        account: call.account()?,
    };
    let view = expect(call.run(op).await?, account)?;
    Ok(Answer::json(&AccountShown::of(view, &call.snapshot.config)))
}

/// One act, whatever it names: none of it is done unless all of it is.
pub(in crate::server::operator) async fn change(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (name, change): (AccountId, Change) = (call.account()?, call.json()?);
    let low = match change.low_balance {
        None => None,
        Some(low) => Some(amount("low_balance", low)?),
    };
    let quota = match change.monthly_quota {
        None => None,
        Some(quota) => Some(amount("monthly_quota", quota)?),
    };
    let names_metadata = change.metadata.is_some();
    let terms = TermsChange {
        status: change.status,
        low_balance_pico: low,
        metadata: change.metadata.unwrap_or_default().0,
    };
    terms_are_good(&terms)?;
    let op = if change.tier.is_some() || quota.is_some() {
        AdminOp::AccountSet {
            account: name,
            tier: change.tier,
            quota_pico: quota,
            terms,
        }
    } else if !terms.is_empty() {
        AdminOp::Account(AccountOp::Terms {
            account: name,
            change: terms,
        })
    } else if names_metadata {
        return show(call).await;
    } else {
        return Err(OperatorError::bad(
            "There is nothing to change: name tier, monthly_quota, status, low_balance or metadata.",
        ));
    };
    // What is wrong with the change itself was told before: this does not go with the terms that the account has.
    let reply = call.run(op).await.map_err(|error| match error {
        OperatorError::Api(ApiError::BadRequest(text)) => OperatorError::Conflict(text),
        error => error,
    })?;
    let view = expect(reply, account)?;
    Ok(Answer::json(&AccountShown::of(view, &call.snapshot.config)))
}

/// What is wrong with a change whatever account it is of.
fn terms_are_good(change: &TermsChange) -> Result<(), OperatorError> {
    let changed = crate::ledger::terms::AccountTerms::default().changed(change);
    changed
        .map(drop)
        .map_err(|problem| OperatorError::bad(format!("{problem}.")))
}

/// An amount of 0 or more, in 10^-12 credit.
fn amount(name: &str, amount: Option<Credits>) -> Result<Option<i64>, OperatorError> {
    match amount {
        Some(amount) if amount < Credits::ZERO => Err(OperatorError::bad(format!("{name} cannot be negative."))),
        amount => Ok(amount.map(Credits::pico)),
    }
}

fn account(reply: AdminReply) -> Option<AccountView> {
    match reply {
        AdminReply::Account(view) => Some(view),
        _ => None,
    }
}

/// Accounts on a page by default.
const LIMIT: u32 = 50;
