//! `POST /v1/commands`: a command of the ledger as the command line gives it, for `tollgate --operator URL`. What it means may differ
//! between versions, as on the ledger's own control socket; the paths beside it are the ones to build on.

use serde_json::Value;

use super::gateway::webhook_test;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::admin::events::{EventKind, EventOp};
use crate::pure::error::operator::OperatorError;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::Call;

/// Answers `{"Ok": reply}`, or `{"Err": error}` for what the ledger refuses.
pub(in crate::server::operator) async fn run(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let op = match call.json()? {
        // What receivers are told is the gateway's own word: no id, time or text of whoever asks for it.
        AdminOp::Event(EventOp::Raise(event)) if event.kind == EventKind::Test => {
            webhook_test(call, event.data.get("url").and_then(Value::as_str))?
        }
        AdminOp::Credit(CreditOp::Post(post)) => {
            post.check_given().map_err(OperatorError::bad)?;
            AdminOp::Credit(CreditOp::Post(post))
        }
        op => op,
    };
    Ok(Answer::json(&call.command(op).await?))
}
