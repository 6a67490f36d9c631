//! Statements: what happened to a balance, as JSON or as CSV.

use http::header::{self, HeaderValue};
use serde::Serialize;

use crate::ledger::admin::credits::{CreditOp, DebitRow, Statement};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::AccountId;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::shown::{Amount, EntryShown};

#[derive(Serialize)]
struct StatementShown {
    account: AccountId,
    from: String,
    to: String,
    currency: String,
    opening_balance: Amount,
    entries: Vec<EntryShown>,
    debits: Vec<DebitShown>,
    closing_balance: Amount,
}

#[derive(Serialize)]
struct DebitShown {
    day: String,
    model: String,
    requests: u64,
    tokens: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost: Amount,
}

impl From<DebitRow> for DebitShown {
    fn from(row: DebitRow) -> DebitShown {
        DebitShown {
            day: row.day.to_string(),
            model: row.model,
            requests: row.requests,
            tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            cost: row.cost.into(),
        }
    }
}

pub(in crate::server::operator) async fn show(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let query = call.query(&["from", "to", "format"])?;
    let is_csv = match query.text("format") {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(OperatorError::bad("format must be json or csv.")),
    };
    let to = query.day("to")?.unwrap_or_else(|| call.api.ledger().now().day());
    let op = CreditOp::Statement {
        account: call.account()?,
        from: query.day("from")?.unwrap_or_else(|| to.first_of_month()),
        to,
    };
    let statement = expect(call.run(AdminOp::Credit(op)).await?, |reply| match reply {
        AdminReply::Statement(statement) => Some(statement),
        _ => None,
    })?;
    if is_csv {
        return csv_of(&statement);
    }
    Ok(Answer::json(&StatementShown {
        account: statement.account,
        from: statement.from.to_string(),
        to: statement.to.to_string(),
        currency: call.snapshot.config.currency.clone(),
        opening_balance: statement.opening.into(),
        entries: statement.entries.into_iter().map(EntryShown::from).collect(),
        debits: statement.debits.into_iter().map(DebitShown::from).collect(),
        closing_balance: statement.closing.into(),
    }))
}

fn csv_of(statement: &Statement) -> Result<Answer, OperatorError> {
    let text = statement.csv().map_err(|error| {
        log::error!("a statement cannot be written: {error}");
        OperatorError::Api(ApiError::Internal)
    })?;
    let (account, from, to) = (&statement.account, statement.from, statement.to);
    let name = format!("attachment; filename=\"statement-{account}-{from}-{to}.csv\"");
    Ok(Answer::body(CSV, text).with(header::CONTENT_DISPOSITION, &name))
}

const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");
