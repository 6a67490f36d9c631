//! What accounts have used, and what their calls cost.

use futures::future::BoxFuture;
use serde::Serialize;

use crate::gateway::api::endpoints::generations::{Generation, LIMIT};
use crate::gateway::api::endpoints::usage::{UsageBooks, summary};
use crate::gateway::media_type::JSON;
use crate::ledger::admin::{AdminOp, AdminReply, RECEIPTS_MAX, ReceiptQuery};
use crate::ledger::query::{EndUserQuery, EndUserUsage, KeyedRow, UsageQuery, is_place};
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::{AccountId, KeyId};
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::fields::KeyName;
use crate::server::operator::shown::{Amount, Page, Sum};

pub(in crate::server::operator) async fn usage(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["account", "key", "from", "to", "period", "group_by"])?;
    let account: AccountId = query.needed("account")?;
    let key: Option<KeyName> = query.read_as("key")?;
    is_there(call, &account).await?;
    let today = call.api.ledger().now().day();
    let key = key.as_ref().map(|key| &key.0);
    let body = summary::<Sum, _>(call, &account, key, query.pairs(), today).await?;
    Ok(Answer::body(JSON, body))
}

impl UsageBooks for Call<'_> {
    type Error = OperatorError;

    fn usage(&self, query: UsageQuery) -> BoxFuture<'_, Result<Vec<KeyedRow>, OperatorError>> {
        Box::pin(async { expect(self.run(query.op()).await?, AdminReply::into_usage) })
    }

    fn end_users(&self, query: EndUserQuery) -> BoxFuture<'_, Result<EndUserUsage, OperatorError>> {
        Box::pin(async { expect(self.run(AdminOp::EndUsers(query)).await?, AdminReply::into_end_users) })
    }
}

/// A call, with whose it is.
#[derive(Serialize)]
struct CallShown<'r> {
    account: &'r AccountId,
    key: &'r KeyId,
    #[serde(flatten)]
    generation: Generation<'r, Amount>,
}

pub(in crate::server::operator) async fn generations(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["account", "key", "model", "id", "before", "limit"])?;
    let account: AccountId = query.needed("account")?;
    let before = query.text("before");
    if before.is_some_and(|place| !is_place(place)) {
        return Err(OperatorError::bad("before must be what `next` of another page says."));
    }
    let key: Option<KeyName> = query.read_as("key")?;
    let asked = ReceiptQuery {
        before: before.map(str::to_owned),
        model: query.text("model").map(str::to_owned),
        named: query.one_of("id", CALL_ID_BYTES_MAX)?,
        key: key.map(|key| key.0),
        ..ReceiptQuery::newest(
            &account,
            query.limit(u32::try_from(LIMIT).unwrap_or(RECEIPTS_MAX), RECEIPTS_MAX)?,
        )
    };
    is_there(call, &account).await?;
    let is_met = asked.clone();
    let page = expect(call.run(AdminOp::Receipts(asked)).await?, |reply| match reply {
        AdminReply::Receipts(page) => Some(page),
        _ => None,
    })?;
    let receipts = page.receipts.iter().filter(|receipt| is_met.is_met_by(receipt));
    let data = receipts.map(|receipt| CallShown {
        account: &account,
        key: &receipt.billed.key,
        generation: Generation::done(receipt),
    });
    Ok(Answer::json(&Page {
        data: data.collect(),
        next: page.next,
    }))
}

/// The longest id of a call or an answer that is looked for, in bytes.
const CALL_ID_BYTES_MAX: usize = 256;

/// Whether there is such an account: usage and receipts of none are nothing, which would be an answer about an account.
async fn is_there(call: &Call<'_>, account: &AccountId) -> Result<(), OperatorError> {
    let account = account.clone();
    call.run(AdminOp::AccountShow { account }).await.map(drop)
}
