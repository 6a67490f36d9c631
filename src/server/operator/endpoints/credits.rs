//! Credit: posted and listed.

use serde::{Deserialize, Serialize};

use crate::ledger::admin::credits::{CREDITS_MAX, CreditKind, CreditOp, CreditPost, Posted, REFERENCE_BYTES_MAX};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::shown::{Amount, EntryShown, Page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Post {
    amount: Credits,
    reference: String,
    #[serde(default)]
    kind: CreditKind,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    allow_negative: bool,
}

/// What became of a post.
#[derive(Serialize)]
struct PostedShown {
    account: AccountId,
    /// Whether this reference had counted before.
    replayed: bool,
    /// The balance now.
    balance: Amount,
    entry: EntryShown,
}

pub(in crate::server::operator) async fn post(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let (account, post): (AccountId, Post) = (call.account()?, call.json()?);
    let post = CreditPost {
        account: account.clone(),
        amount: post.amount,
        reference: post.reference,
        kind: post.kind,
        note: post.note.filter(|note| !note.is_empty()),
        allow_negative: post.allow_negative,
        as_available: false,
        is_payment: false,
    };
    post.check_given().map_err(OperatorError::bad)?;
    let op = CreditOp::Post(post);
    let Posted { added, balance, entry } = expect(call.run(AdminOp::Credit(op)).await?, |reply| match reply {
        AdminReply::Posted(posted) => Some(posted),
        _ => None,
    })?;
    let place = format!("/v1/accounts/{account}/credits");
    let answer = Answer::json(&PostedShown {
        account,
        replayed: !added,
        balance: balance.into(),
        entry: entry.into(),
    });
    Ok(if added { answer.created(&place) } else { answer })
}

pub(in crate::server::operator) async fn list(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["before", "limit"])?;
    let op = CreditOp::List {
        account: call.account()?,
        limit: query.limit(LIMIT, CREDITS_MAX)?,
        before: query.one_of("before", REFERENCE_BYTES_MAX)?,
    };
    let page = expect(call.run(AdminOp::Credit(op)).await?, |reply| match reply {
        AdminReply::CreditPage(page) => Some(page),
        _ => None,
    })?;
    Ok(Answer::json(&Page {
        data: page.entries.into_iter().map(EntryShown::from).collect(),
        next: page.next,
    }))
}

/// Entries on a page by default.
const LIMIT: u32 = 50;
