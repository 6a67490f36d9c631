//! What `tollgate usage` shows: sums, and a plot of the days.

mod plot;

use serde::Serialize;

use super::sums::{Spending, Summed, Sums};
use crate::cli::output::{Align, Show, Table, counted, plain};
use crate::ledger::query::EndUserRow;
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Days, Period};

/// What the sums are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    Model,
    Key,
    Day,
    #[value(name = "end_user", alias = "end-user")]
    EndUser,
    Account,
}

impl By {
    /// As it is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Model => "model",
            By::Key => "key",
            By::Day => "day",
            By::EndUser => "end_user",
            By::Account => "account",
        }
    }
}

/// The sums of `GET /llm/usage` under the same names, and more of them.
#[derive(Debug, Serialize)]
pub(super) struct UsageShown {
    /// Whose calls these are; none where they are all accounts'.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountId>,
    /// Of all accounts: how many have used something.
    #[serde(skip_serializing_if = "Option::is_none")]
    accounts: Option<usize>,
    /// Whose calls these are, where it is one key's.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyId>,
    /// None where the days were chosen.
    period: Option<Period>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    currency: String,
    total_requests: u64,
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_tokens: u64,
    total_cost: CreditSum,
    by_model: Vec<ModelSums>,
    by_day: Vec<DaySums>,
    /// Where they are asked by key, also if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_key: Option<Vec<KeySums>>,
    /// Of all accounts, where they are asked by account, also if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_account: Option<Vec<AccountSums>>,
    /// Over the receipts that are kept. Where they are asked by end user, also if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_end_user: Option<Vec<EndUserSums>>,
    #[serde(skip)]
    by: By,
    /// What each day spent by model, for the plot.
    #[serde(skip)]
    spending: Spending,
}

#[derive(Debug, Serialize)]
struct ModelSums {
    model: String,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Debug, Serialize)]
struct KeySums {
    key: String,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Debug, Serialize)]
struct AccountSums {
    account: String,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Debug, Serialize)]
struct EndUserSums {
    end_user: Option<Box<str>>,
    /// The same for a terminal.
    #[serde(skip)]
    shown: String,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Debug, Serialize)]
struct DaySums {
    day: String,
    #[serde(flatten)]
    sums: Sums,
}

impl UsageShown {
    /// The usage of an account, or of all.
    pub(super) fn of(account: Option<AccountId>, days: Days, currency: String, summed: Summed) -> UsageShown {
        let (period, span) = match days {
            Days::Period(period) => (Some(period), None),
            Days::Span { from, to } => (None, Some((from, to))),
        };
        let total = summed.total;
        let models = summed.models.into_iter();
        let mut by_model: Vec<ModelSums> = models.map(|(model, sums)| ModelSums { model, sums }).collect();
        // The dearest first; the sort is stable, so equal ones stay in the order of their names.
        by_model.sort_by_key(|line| std::cmp::Reverse(line.sums.cost));
        let accounts = summed.accounts.into_iter();
        let mut by_account: Vec<AccountSums> = accounts
            .map(|(account, sums)| AccountSums {
                account: account.to_string(),
                sums,
            })
            .collect();
        by_account.sort_by_key(|line| std::cmp::Reverse(line.sums.cost));
        let by_day = summed.days.into_iter().map(|(day, sums)| DaySums {
            day: day.to_string(),
            sums,
        });
        let keys = summed.keys.into_iter();
        UsageShown {
            accounts: account.is_none().then_some(by_account.len()),
            account,
            key: None,
            period,
            from: span.map(|(from, _)| from.to_string()),
            to: span.map(|(_, to)| to.to_string()),
            currency,
            total_requests: total.requests,
            total_prompt_tokens: total.prompt_tokens,
            total_completion_tokens: total.completion_tokens,
            total_tokens: total.tokens,
            total_cost: total.cost,
            by_model,
            by_day: by_day.collect(),
            by_key: Some(keys.map(|(key, sums)| KeySums { key, sums }).collect()),
            by_account: Some(by_account),
            by_end_user: None,
            by: By::Model,
            spending: summed.spending,
        }
    }

    /// The same for one key, and shown by something.
    pub(super) fn by(self, by: By, key: Option<KeyId>) -> UsageShown {
        let by_key = self.by_key.filter(|_| by == By::Key);
        let by_account = self.by_account.filter(|_| by == By::Account);
        UsageShown {
            by,
            key,
            by_key,
            by_account,
            ..self
        }
    }

    /// The same with the sums of end users, the dearest first.
    pub(super) fn with_end_users(self, rows: Vec<EndUserRow>) -> UsageShown {
        let line = |row: EndUserRow| EndUserSums {
            shown: row.end_user.as_deref().map_or_else(|| "(none)".to_owned(), plain),
            end_user: row.end_user,
            sums: Sums {
                requests: row.requests,
                prompt_tokens: row.prompt_tokens,
                completion_tokens: row.completion_tokens,
                tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
                cost: row.cost,
            },
        };
        let mut by_end_user: Vec<EndUserSums> = rows.into_iter().map(line).collect();
        by_end_user.sort_by_key(|line| std::cmp::Reverse(line.sums.cost));
        UsageShown {
            by_end_user: Some(by_end_user),
            ..self
        }
    }

    /// What is to be said of calls that are in the total and in no key's or end user's sums.
    fn in_no_sums(&self) -> String {
        let (summed, why, whose): (u64, &str, &str) = match self.by {
            By::Key => (
                self.by_key.iter().flatten().map(|line| line.sums.requests).sum(),
                "usage was not counted by key yet for",
                "key",
            ),
            By::EndUser => (
                self.by_end_user.iter().flatten().map(|line| line.sums.requests).sum(),
                "no receipt is kept of",
                "end user",
            ),
            By::Model | By::Day | By::Account => return String::new(),
        };
        match self.total_requests.saturating_sub(summed) {
            0 => String::new(),
            // The sums were read before the total.
            missing => format!(
                "{why} {}, or they were billed meanwhile: they are in no {whose}'s sums\n",
                counted(missing, "call")
            ),
        }
    }

    fn whose(&self) -> String {
        match (&self.account, &self.key) {
            (None, _) => "all accounts".to_owned(),
            (Some(account), None) => account.to_string(),
            (Some(account), Some(key)) => format!("{key} of {account}"),
        }
    }

    fn total(&self) -> Sums {
        Sums {
            requests: self.total_requests,
            prompt_tokens: self.total_prompt_tokens,
            completion_tokens: self.total_completion_tokens,
            tokens: self.total_tokens,
            cost: self.total_cost,
        }
    }
}

impl UsageShown {
    /// The days, in words.
    fn span(&self) -> String {
        match (self.period, &self.from, &self.to) {
            (Some(period), ..) => format!("period {}", period.name()),
            (None, from, to) => {
                let text = |day: &Option<String>| day.clone().unwrap_or_default();
                format!("{} to {}", text(from), text(to))
            }
        }
    }

    /// The sums of whatever they are asked by, and their total.
    fn table(&self) -> Table {
        let title = match self.by {
            By::Model => "MODEL",
            By::Key => "KEY",
            By::Day => "DAY",
            By::EndUser => "END USER",
            By::Account => "ACCOUNT",
        };
        let mut table = Table::new(&[
            (title, Align::Left),
            ("REQUESTS", Align::Right),
            ("PROMPT", Align::Right),
            ("COMPLETION", Align::Right),
            ("COST", Align::Point),
        ]);
        let lines: Vec<(&str, &Sums)> = match self.by {
            By::Model => self
                .by_model
                .iter()
                .map(|line| (line.model.as_str(), &line.sums))
                .collect(),
            By::Key => self
                .by_key
                .iter()
                .flatten()
                .map(|line| (line.key.as_str(), &line.sums))
                .collect(),
            By::Day => self.by_day.iter().map(|line| (line.day.as_str(), &line.sums)).collect(),
            By::EndUser => self
                .by_end_user
                .iter()
                .flatten()
                .map(|line| (&*line.shown, &line.sums))
                .collect(),
            By::Account => self
                .by_account
                .iter()
                .flatten()
                .map(|line| (line.account.as_str(), &line.sums))
                .collect(),
        };
        let total = self.total();
        for (name, sums) in lines.into_iter().chain([("total", &total)]) {
            table.row(vec![
                name.to_owned(),
                sums.requests.to_string(),
                sums.prompt_tokens.to_string(),
                sums.completion_tokens.to_string(),
                sums.cost.to_string(),
            ]);
        }
        table
    }
}

impl Show for UsageShown {
    fn text(&self) -> String {
        let (account, span) = (self.whose(), self.span());
        if self.by_model.is_empty() {
            let which = match self.period {
                Some(_) => format!("in the {span}"),
                None => format!("from {span}"),
            };
            return match self.account {
                Some(_) => format!("{account} has used nothing {which}\n"),
                None => format!("no account has used anything {which}\n"),
            };
        }
        let count = |lines: usize, what: &str| counted(u64::try_from(lines).unwrap_or(u64::MAX), what);
        let days = count(self.by_day.len(), "day");
        let callers = self
            .accounts
            .map_or_else(String::new, |accounts| count(accounts, "account") + ", ");
        let mut text = format!(
            "usage of {account}, {span}: {callers}{days} (UTC) with calls, costs in {}\n\n",
            self.currency
        );
        text.push_str(&self.table().text());
        text.push_str(&self.in_no_sums());
        if self.by == By::Model && self.by_day.len() > 1 {
            text.push('\n');
            text.push_str(&self.day_table().text());
            text.push('\n');
            text.push_str(&self.legend());
        }
        text
    }
}

#[cfg(test)]
mod tests;
