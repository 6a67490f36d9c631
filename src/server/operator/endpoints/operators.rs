//! Operators, and the log of what they did.

use serde::Deserialize;

use super::keys::random;
use crate::ledger::admin::operators::{ACTS_MAX, ActQuery, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::shown::ActShown;
use crate::pure::error::operator::OperatorError;
use crate::pure::operator::{self, Role, is_operator_id};
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::fields::Lifetime;
use crate::server::operator::shown::{OperatorShown, Page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    role: Role,
    #[serde(default)]
    expires_in: Option<Lifetime>,
}

pub(in crate::server::operator) async fn create(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let new: New = call.json()?;
    let expires_in_ms = new.expires_in.map(Lifetime::above_zero).transpose();
    let token = operator::token(random()?);
    let op = OperatorOp::Create {
        digest: token.digest().to_hex(),
        name: new.name,
        role: new.role,
        expires_in_ms: expires_in_ms.map_err(|problem| OperatorError::bad(format!("{problem}.")))?,
    };
    let record = expect(call.run(AdminOp::Operator(op)).await?, one)?;
    let place = format!("/v1/operators/{}", record.id);
    let shown = OperatorShown::of(record, call.api.ledger().now()).revealing(token.reveal());
    Ok(Answer::json(&shown).created(&place))
}

pub(in crate::server::operator) async fn list(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let operators = all(call).await?;
    let now = call.api.ledger().now();
    Ok(Answer::json(&Page {
        data: operators
            .into_iter()
            .map(|record| OperatorShown::of(record, now))
            .collect(),
        next: None,
    }))
}

pub(in crate::server::operator) async fn show(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let id = call.name();
    let found = all(call).await?.into_iter().find(|record| record.id == id);
    let record = found.ok_or_else(unknown)?;
    Ok(Answer::json(&OperatorShown::of(record, call.api.ledger().now())))
}

pub(in crate::server::operator) async fn revoke(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let id = call.name();
    if !is_operator_id(id) {
        return Err(unknown());
    }
    let op = OperatorOp::Revoke { id: id.to_owned() };
    let record = expect(call.run(AdminOp::Operator(op)).await?, one)?;
    Ok(Answer::json(&OperatorShown::of(record, call.api.ledger().now())))
}

pub(in crate::server::operator) async fn log(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["account", "before", "limit"])?;
    let op = OperatorOp::Log(ActQuery {
        limit: query.limit(LIMIT, ACTS_MAX)?,
        before: query.text("before").map(str::to_owned),
        account: query.read_as("account")?,
    });
    let page = expect(call.run(AdminOp::Operator(op)).await?, |reply| match reply {
        AdminReply::Acts(page) => Some(page),
        _ => None,
    })?;
    Ok(Answer::json(&Page {
        data: page.acts.into_iter().map(ActShown::from).collect(),
        next: page.next,
    }))
}

/// Every operator, revoked ones too, oldest first.
async fn all(call: &Call<'_>) -> Result<Vec<OperatorRecord>, OperatorError> {
    let op = AdminOp::Operator(OperatorOp::List);
    expect(call.run(op).await?, |reply| match reply {
        AdminReply::Operators { operators } => Some(operators),
        _ => None,
    })
}

fn unknown() -> OperatorError {
    OperatorError::not_found("There is no operator of that id.")
}

fn one(reply: AdminReply) -> Option<OperatorRecord> {
    match reply {
        AdminReply::Operator(record) => Some(record),
        _ => None,
    }
}

/// Acts on a page by default.
const LIMIT: u32 = 50;
