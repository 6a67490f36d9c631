//! `POST /v1/commands`: a command of the ledger as the command line gives it, for `tollgate --operator URL`. What it means may differ
//! between versions, as on the ledger's own control socket; the paths beside it are the ones to build on.

use crate::ledger::admin::AdminOp;
use crate::pure::error::operator::OperatorError;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::Call;

/// Answers `{"Ok": reply}`, or `{"Err": error}` for what the ledger refuses.
pub(in crate::server::operator) async fn run(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let op: AdminOp = call.json()?;
    Ok(Answer::json(&call.command(op).await?))
}
