//! Keys: made, listed, shown, changed, rotated, revoked. A key's text is in one answer, and nowhere else.

use serde::Deserialize;

use crate::config::Network;
use crate::ledger::KeyRecord;
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use crate::pure::account::Spent;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::{ApiKey, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::policy::{DomainPattern, ModelPattern};
use crate::pure::spend::Reset;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::fields::{KeyName, Lifetime, RateLimit, given, present};
use crate::server::operator::shown::{KeyShown, KeyWithSpending, KeysShown, Page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    #[serde(default)]
    tier: Option<Tier>,
    #[serde(default)]
    domains: Vec<DomainPattern>,
    #[serde(default)]
    expires_in: Option<Lifetime>,
    #[serde(default)]
    rpm: Option<RateLimit>,
    #[serde(default)]
    tpm: Option<RateLimit>,
    #[serde(default)]
    concurrency: Option<RateLimit>,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    limit: Option<Credits>,
    #[serde(default)]
    limit_reset: Option<Reset>,
    #[serde(default)]
    end_user_limit: Option<Credits>,
    #[serde(default)]
    end_user_limit_reset: Option<Reset>,
    #[serde(default)]
    models: Vec<ModelPattern>,
    #[serde(default)]
    addresses: Vec<Network>,
}

/// What a PATCH changes; what it does not name stays, and null takes away.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default, deserialize_with = "present")]
    label: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    limit: Option<Option<Credits>>,
    #[serde(default, deserialize_with = "present")]
    limit_reset: Option<Option<Reset>>,
    #[serde(default, deserialize_with = "present")]
    end_user_limit: Option<Option<Credits>>,
    #[serde(default, deserialize_with = "present")]
    end_user_limit_reset: Option<Option<Reset>>,
    #[serde(default, deserialize_with = "given")]
    models: Option<Vec<ModelPattern>>,
    #[serde(default, deserialize_with = "given")]
    addresses: Option<Vec<Network>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotation {
    /// For how long the old key holds on.
    overlap: Lifetime,
}

pub(in crate::server::operator) async fn create(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (account, new): (_, New) = (call.account()?, call.json()?);
    let limits = LimitOverrides {
        rpm: new.rpm.map(|limit| limit.0),
        tpm: new.tpm.map(|limit| limit.0),
        concurrency: new.concurrency.map(|limit| limit.0),
    };
    let change = KeyChange {
        label: new.label,
        limit: new.limit.map(AmountChange::To),
        limit_reset: new.limit_reset,
        end_user_limit: new.end_user_limit.map(AmountChange::To),
        end_user_limit_reset: new.end_user_limit_reset,
        models: Some(new.models),
        addresses: Some(new.addresses),
    };
    let settings = change.applied(&KeySettings::default()).map_err(bad)?;
    let key = ApiKey::from_random(&call.snapshot.config.key_prefix, random()?);
    let op = AdminOp::KeyCreate {
        digest: key.digest().to_hex(),
        account,
        tier: new.tier,
        domains: new.domains,
        expires_in_ms: new.expires_in.map(Lifetime::above_zero).transpose().map_err(bad)?,
        limits,
        settings: Box::new(settings),
    };
    made(call, op, &key).await
}

pub(in crate::server::operator) async fn list(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let op = AdminOp::KeyList {
        account: call.account()?,
    };
    let (keys, account_status) = expect(call.run(op).await?, |reply| match reply {
        AdminReply::Keys { keys, account_status } => Some((keys, account_status)),
        _ => None,
    })?;
    let now = call.api.ledger().now();
    let page = Page {
        data: keys.into_iter().map(|record| KeyShown::of(record, now)).collect(),
        next: None,
    };
    Ok(Answer::json(&KeysShown { page, account_status }))
}

pub(in crate::server::operator) async fn show(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let key = named(call)?;
    let record = expect(call.run(AdminOp::KeyShow { key }).await?, record)?;
    // Before the period is looked up: what is spent of one is never shown as of the next.
    let now = call.api.ledger().now();
    let spent = match record.settings.limit {
        None => None,
        Some(limit) => Some(spent(call, &record, limit.reset).await?),
    };
    Ok(Answer::json(&KeyWithSpending::of(record, spent, now)))
}

pub(in crate::server::operator) async fn change(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (key, change): (KeyRef, Change) = (named(call)?, call.json()?);
    let amount = |limit: Option<Credits>| limit.map_or(AmountChange::Removed, AmountChange::To);
    let change = KeyChange {
        label: change.label.map(Option::unwrap_or_default),
        limit: change.limit.map(amount),
        limit_reset: change.limit_reset.map(Option::unwrap_or_default),
        end_user_limit: change.end_user_limit.map(amount),
        end_user_limit_reset: change.end_user_limit_reset.map(Option::unwrap_or_default),
        models: change.models,
        addresses: change.addresses,
    };
    if change == KeyChange::default() {
        let message = "There is nothing to change: name label, limit, limit_reset, end_user_limit, end_user_limit_reset, models or addresses.";
        return Err(OperatorError::bad(message));
    }
    let change = Box::new(change);
    shown(call, AdminOp::KeySet { key, change }).await
}

pub(in crate::server::operator) async fn revoke(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let key = named(call)?;
    shown(call, AdminOp::KeyRevoke { key }).await
}

pub(in crate::server::operator) async fn rotate(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (old, rotation): (KeyRef, Rotation) = (named(call)?, call.json()?);
    let key = ApiKey::from_random(&call.snapshot.config.key_prefix, random()?);
    let op = AdminOp::KeyRotate {
        key: old,
        digest: key.digest().to_hex(),
        overlap_ms: rotation.overlap.0,
    };
    made(call, op, &key).await
}

async fn made(call: &Call<'_>, op: AdminOp, key: &ApiKey) -> Result<Answer, OperatorError> {
    let record = expect(call.run(op).await?, record)?;
    let place = format!("/v1/keys/{}", record.id);
    let shown = KeyShown::of(record, call.api.ledger().now()).revealing(key.reveal());
    Ok(Answer::json(&shown).created(&place))
}

async fn shown(call: &Call<'_>, op: AdminOp) -> Result<Answer, OperatorError> {
    let record = expect(call.run(op).await?, record)?;
    Ok(Answer::json(&KeyShown::of(record, call.api.ledger().now())))
}

/// What a key has spent, and holds, in the period that is now.
async fn spent(call: &Call<'_>, key: &KeyRecord, reset: Reset) -> Result<Spent, OperatorError> {
    let op = AdminOp::KeySpent {
        account: key.account.clone(),
        key: key.id.clone(),
        reset,
    };
    expect(call.run(op).await?, |reply| match reply {
        AdminReply::KeySpent { spent, held } => Some(Spent { spent, held }),
        _ => None,
    })
}

fn record(reply: AdminReply) -> Option<KeyRecord> {
    match reply {
        AdminReply::Key(record) => Some(record),
        _ => None,
    }
}

fn named(call: &Call<'_>) -> Result<KeyRef, OperatorError> {
    let KeyName(id) = call
        .name()
        .parse()
        .map_err(|_| OperatorError::not_found("There is no key of that id."))?;
    Ok(KeyRef::Id(id))
}

fn bad(problem: String) -> OperatorError {
    OperatorError::bad(format!("{problem}."))
}

/// 256 bits from the operating system.
pub(super) fn random() -> Result<[u8; 32], OperatorError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        log::error!("the operating system gives no random numbers: {error}");
        OperatorError::Api(ApiError::Internal)
    })?;
    Ok(bytes)
}
