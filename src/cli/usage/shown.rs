//! What `tollgate usage` shows: sums, and a plot of the days.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::output::{Align, Show, Table, counted, plain};
use crate::ledger::UsageRow;
use crate::ledger::query::{EndUserRow, KeyedRow};
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Day, Days, Period};

/// What the sums are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    Model,
    Key,
    Day,
    #[value(name = "end_user", alias = "end-user")]
    EndUser,
}

/// The sums of `GET /llm/usage` under the same names, and more of them.
#[derive(Debug, Serialize)]
pub(super) struct UsageShown {
    account: AccountId,
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
    /// Over the receipts that are kept. Where they are asked by end user, also if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_end_user: Option<Vec<EndUserSums>>,
    #[serde(skip)]
    by: By,
    /// What each day spent by model, for the plot.
    #[serde(skip)]
    spending: Spending,
}

/// Cost in 10^-12 credit, by day and model.
type Spending = BTreeMap<String, BTreeMap<String, i128>>;

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

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Sums {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    tokens: u64,
    cost: CreditSum,
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

impl UsageShown {
    pub(super) fn of(account: AccountId, days: Days, currency: String, rows: &[KeyedRow]) -> UsageShown {
        let (period, span) = match days {
            Days::Period(period) => (Some(period), None),
            Days::Span { from, to } => (None, Some((from, to))),
        };
        let mut total = Sums::default();
        let mut models: BTreeMap<&str, Sums> = BTreeMap::new();
        let mut days: BTreeMap<Day, Sums> = BTreeMap::new();
        let mut keys: BTreeMap<String, Sums> = BTreeMap::new();
        let mut spending = Spending::new();
        for KeyedRow { key, row } in rows {
            if let Some(key) = key {
                keys.entry(key.to_string()).or_default().add(row);
            }
            total.add(row);
            models.entry(&row.model).or_default().add(row);
            days.entry(row.day).or_default().add(row);
            let spent = spending.entry(row.day.to_string()).or_default();
            let spent = spent.entry(row.model.clone()).or_default();
            *spent = spent.saturating_add(i128::from(row.cost.pico()));
        }
        let by_model = models.into_iter().map(|(model, sums)| ModelSums {
            model: model.to_owned(),
            sums,
        });
        let mut by_model: Vec<ModelSums> = by_model.collect();
        // The dearest first; the sort is stable, so equal ones stay in the order of their names.
        by_model.sort_by_key(|line| std::cmp::Reverse(line.sums.cost));
        let by_day = days.into_iter().map(|(day, sums)| DaySums {
            day: day.to_string(),
            sums,
        });
        UsageShown {
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
            by_key: Some(keys.into_iter().map(|(key, sums)| KeySums { key, sums }).collect()),
            by_end_user: None,
            by: By::Model,
            spending,
        }
    }

    /// The same for one key, and shown by something.
    pub(super) fn by(self, by: By, key: Option<KeyId>) -> UsageShown {
        let by_key = self.by_key.filter(|_| by == By::Key);
        UsageShown {
            by,
            key,
            by_key,
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

    /// What is to be said of calls that are in the total and in no end user's sums.
    fn without_receipts(&self) -> String {
        let summed = self.by_end_user.iter().flatten().map(|line| line.sums.requests).sum();
        match self.total_requests.saturating_sub(summed) {
            missing if self.by == By::EndUser && missing > 0 => {
                let calls = counted(missing, "call");
                format!("no receipt is kept of {calls}: they are in no end user's sums\n")
            }
            _ => String::new(),
        }
    }

    fn whose(&self) -> String {
        match &self.key {
            None => self.account.to_string(),
            Some(key) => format!("{key} of {}", self.account),
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

    /// The models that have a shade of their own: those that cost most.
    fn shaded(&self) -> Vec<&str> {
        let dear = self.by_model.iter().filter(|line| line.sums.cost > CreditSum::ZERO);
        dear.take(SHADES.len() - 1).map(|line| line.model.as_str()).collect()
    }

    /// Which shade stands for which model.
    fn legend(&self) -> String {
        let shaded = self.shaded();
        let mut lines = String::new();
        for (model, shade) in shaded.iter().zip(SHADES) {
            lines.push_str(&format!("{shade} {model}\n"));
        }
        let dear = self
            .by_model
            .iter()
            .filter(|line| line.sums.cost > CreditSum::ZERO)
            .count();
        if dear > shaded.len() {
            let others = u64::try_from(dear - shaded.len()).unwrap_or(u64::MAX);
            lines.push_str(&format!("{} {}\n", SHADES[SHADES.len() - 1], counted(others, "other")));
        }
        lines
    }

    /// A day's bar: as long as its cost is to `most`, in the shades of its models.
    fn day_bar(&self, day: &str, most: i128) -> String {
        let shaded = self.shaded();
        let mut parts = [0i128; SHADES.len()];
        for (model, cost) in self.spending.get(day).into_iter().flatten() {
            let shade = shaded
                .iter()
                .position(|known| known == model)
                .unwrap_or(SHADES.len() - 1);
            parts[shade] = parts[shade].saturating_add(*cost);
        }
        let (mut drawn, mut sum) = (String::new(), 0i128);
        for (part, shade) in parts.iter().zip(SHADES) {
            let from = bar_length(sum, most);
            sum = sum.saturating_add(*part);
            drawn.extend(std::iter::repeat_n(shade, bar_length(sum, most).saturating_sub(from)));
        }
        drawn
    }

    fn day_table(&self) -> Table {
        let mut table = Table::new(&[
            ("DAY", Align::Left),
            ("REQUESTS", Align::Right),
            ("TOKENS", Align::Right),
            ("COST", Align::Point),
            ("", Align::Left),
        ]);
        let most = self.by_day.iter().map(|line| line.sums.cost.pico()).max().unwrap_or(0);
        for line in &self.by_day {
            let sums = &line.sums;
            table.row(vec![
                line.day.clone(),
                sums.requests.to_string(),
                sums.tokens.to_string(),
                sums.cost.to_string(),
                self.day_bar(&line.day, most),
            ]);
        }
        table
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
            return format!("{account} has used nothing {which}\n");
        }
        let days = counted(u64::try_from(self.by_day.len()).unwrap_or(u64::MAX), "day");
        let mut text = format!(
            "usage of {account}, {span}: {days} (UTC) with calls, costs in {}\n\n",
            self.currency
        );
        text.push_str(&self.table().text());
        text.push_str(&self.without_receipts());
        if self.by == By::Model && self.by_day.len() > 1 {
            text.push('\n');
            text.push_str(&self.day_table().text());
            text.push('\n');
            text.push_str(&self.legend());
        }
        text
    }
}

/// The length that is to [`BAR_MAX`] as `value` is to `most`; what is above 0 shows.
fn bar_length(value: i128, most: i128) -> usize {
    if value <= 0 || most <= 0 {
        return 0;
    }
    let length = value.saturating_mul(BAR_MAX) / most;
    usize::try_from(length.clamp(1, BAR_MAX)).unwrap_or(0)
}

/// From the dearest model to all the others.
const SHADES: [char; 4] = ['█', '▓', '▒', '░'];
const BAR_MAX: i128 = 24;

#[cfg(test)]
mod tests;
