//! Usage, added up.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ledger::UsageRow;
use crate::ledger::query::KeyedRow;
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::AccountId;
use crate::pure::time::Day;

/// The sums of usage by all that it is shown by but end users, who are no part of a row.
#[derive(Default)]
pub(super) struct Summed {
    pub(super) total: Sums,
    pub(super) models: BTreeMap<String, Sums>,
    pub(super) days: BTreeMap<Day, Sums>,
    /// Of rows that say their key: calls of before usage was counted by key are in none.
    pub(super) keys: BTreeMap<String, Sums>,
    pub(super) accounts: BTreeMap<AccountId, Sums>,
    /// What each day spent by model.
    pub(super) spending: Spending,
}

/// Cost in 10^-12 credit, by day and model.
pub(super) type Spending = BTreeMap<String, BTreeMap<String, i128>>;

/// Sums of calls, their tokens and their cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Sums {
    pub(super) requests: u64,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) tokens: u64,
    pub(super) cost: CreditSum,
}

impl Summed {
    /// Adds the usage of an account.
    pub(super) fn add(&mut self, account: &AccountId, rows: &[KeyedRow]) {
        for KeyedRow { row, .. } in rows {
            self.total.add(row);
            self.models.entry(row.model.clone()).or_default().add(row);
            self.days.entry(row.day).or_default().add(row);
            self.accounts.entry(account.clone()).or_default().add(row);
            let spent = self.spending.entry(row.day.to_string()).or_default();
            let spent = spent.entry(row.model.clone()).or_default();
            *spent = spent.saturating_add(i128::from(row.cost.pico()));
        }
    }

    /// Adds what its keys have of it, which the totals have already: of the days that these are of, and no others.
    pub(super) fn add_of_keys(&mut self, rows: &[KeyedRow]) {
        for KeyedRow { key, row } in rows {
            if let Some(key) = key
                && self.days.contains_key(&row.day)
            {
                self.keys.entry(key.to_string()).or_default().add(row);
            }
        }
    }
}

impl Sums {
    fn add(&mut self, row: &UsageRow) {
        self.requests = self.requests.saturating_add(row.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(row.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(row.completion_tokens);
        self.tokens = self.prompt_tokens.saturating_add(self.completion_tokens);
        self.cost.add(row.cost);
    }
}
