//! Statements: what happened to a balance between two days.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::CreditEntry;
use crate::ledger::{StoreError, UsageRow, pico};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Day;

/// What happened to a balance between two days, taken in one step: `opening + entries - debits = closing`, to the last digit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Whose.
    pub account: AccountId,
    /// The first UTC day.
    pub from: Day,
    /// The last UTC day.
    pub to: Day,
    /// The balance when the first day began.
    #[serde(with = "pico")]
    pub opening: Credits,
    /// Credit entries, oldest first.
    pub entries: Vec<CreditEntry>,
    /// Debits by day and model, oldest first.
    pub debits: Vec<DebitRow>,
    /// The balance when the last day ended, or now.
    #[serde(with = "pico")]
    pub closing: Credits,
}

/// Debits of one day and model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebitRow {
    /// The UTC day.
    pub day: Day,
    /// The model's id.
    pub model: String,
    /// Calls.
    pub requests: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
    /// What they cost.
    #[serde(with = "pico")]
    pub cost: Credits,
}

impl Statement {
    /// The statement that ends with this balance.
    ///
    /// # Errors
    /// When a balance would be out of range.
    pub(in crate::ledger) fn ending_with(
        closing: i128,
        account: &AccountId,
        (from, to): (Day, Day),
        (entries, debits): (Vec<CreditEntry>, Vec<DebitRow>),
    ) -> Result<Statement, StoreError> {
        let in_range = |amount: i128| {
            let pico = i64::try_from(amount).map(Credits::from_pico);
            pico.map_err(|_| StoreError::Corrupt("a balance of a statement is out of range".to_owned()))
        };
        let pico = |amount: Credits| i128::from(amount.pico());
        let added: i128 = entries.iter().map(|entry| pico(entry.amount)).sum();
        let debited: i128 = debits.iter().map(|row| pico(row.cost)).sum();
        Ok(Statement {
            account: account.clone(),
            from,
            to,
            opening: in_range(closing - added + debited)?,
            entries,
            debits,
            closing: in_range(closing)?,
        })
    }

    /// # Errors
    /// Says what is wrong with the days that are asked for.
    pub(in crate::ledger) fn check_days(from: Day, to: Day) -> Result<(), String> {
        if from > to {
            return Err(format!("the first day {from} is after the last one, {to}"));
        }
        if to.0.saturating_sub(from.0) >= STATEMENT_DAYS_MAX {
            return Err(format!("a statement has at most {STATEMENT_DAYS_MAX} days"));
        }
        Ok(())
    }

    /// What is said of days that have too much.
    pub(in crate::ledger) fn too_many(count: impl fmt::Display) -> String {
        format!(
            "there are {count} entries and debits, and a statement reads at most {STATEMENT_ROWS_MAX}: ask for fewer days"
        )
    }
}

impl From<UsageRow> for DebitRow {
    fn from(row: UsageRow) -> DebitRow {
        DebitRow {
            day: row.day,
            model: row.model,
            requests: row.requests,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            cost: row.cost,
        }
    }
}

/// The most days of one statement: a leap year and a day.
pub const STATEMENT_DAYS_MAX: i64 = 367;
/// The most entries and rows of debits that one statement reads.
pub const STATEMENT_ROWS_MAX: usize = 20_000;
