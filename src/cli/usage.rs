//! `tollgate usage`: what an account has used, by model and by day.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::arguments::{key_id, period};
use super::failure::Failure;
use super::ledger::ask;
use super::output::{Align, Answer, Format, Show, Table, counted};
use crate::config::Config;
use crate::ledger::UsageRow;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::money::Credits;
use crate::pure::time::{Day, Period};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate usage acme\n  tollgate usage acme --period 30d --json\n  \
    tollgate usage acme --key key_0123456789abcdef --period all"
)]
pub(super) struct UsageArgs {
    /// The account's name
    name: AccountId,
    /// Only what this key has used: its id, as `tollgate key list` tells it
    #[arg(long, value_name = "ID", value_parser = key_id)]
    key: Option<KeyId>,
    /// Which UTC days: today, 7d, 30d or all
    #[arg(long, default_value = "today", value_parser = period)]
    period: Period,
}

pub(super) fn run(args: UsageArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    if let Some(key) = &args.key {
        is_of(config, &args.name, key)?;
    }
    let op = AdminOp::Usage {
        account: args.name.clone(),
        key: args.key.clone(),
        period: args.period,
    };
    match ask(config, op)? {
        AdminReply::Usage { rows } => {
            let currency = config.currency.clone();
            let shown = UsageShown::of(args.name, args.period, currency, &rows);
            Answer::of(&UsageShown { key: args.key, ..shown }, format)
        }
        _ => Err(Failure::wrong_reply()),
    }
}

/// A key that is not the account's has no usage, which is another thing than none.
fn is_of(config: &Config, account: &AccountId, key: &KeyId) -> Result<(), Failure> {
    let op = AdminOp::KeyList {
        account: account.clone(),
    };
    match ask(config, op)? {
        AdminReply::Keys { keys } if keys.iter().any(|known| known.id == *key) => Ok(()),
        AdminReply::Keys { .. } => Err(Failure::new(format!(
            "{account} has no key {key}; `tollgate key list {account}` shows its keys"
        ))),
        _ => Err(Failure::wrong_reply()),
    }
}

/// The sums of `GET /llm/usage` under the same names, and more of them.
#[derive(Debug, Serialize)]
pub(super) struct UsageShown {
    account: AccountId,
    /// Whose calls these are, where it is one key's.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyId>,
    period: Period,
    currency: String,
    total_requests: u64,
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_tokens: u64,
    total_cost: Credits,
    by_model: Vec<ModelSums>,
    by_day: Vec<DaySums>,
    /// What each day spent by model, for the plot.
    #[serde(skip)]
    spending: Spending,
}

/// Cost in 10^-12 credit, by day and model.
type Spending = BTreeMap<String, BTreeMap<String, i64>>;

#[derive(Debug, Serialize)]
struct ModelSums {
    model: String,
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
    cost: Credits,
}

impl Sums {
    fn add(&mut self, row: &UsageRow) {
        self.requests = self.requests.saturating_add(row.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(row.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(row.completion_tokens);
        self.tokens = self.prompt_tokens.saturating_add(self.completion_tokens);
        self.cost = self.cost.saturating_add(row.cost);
    }
}

impl UsageShown {
    pub(super) fn of(account: AccountId, period: Period, currency: String, rows: &[UsageRow]) -> UsageShown {
        let mut total = Sums::default();
        let mut models: BTreeMap<&str, Sums> = BTreeMap::new();
        let mut days: BTreeMap<Day, Sums> = BTreeMap::new();
        let mut spending = Spending::new();
        for row in rows {
            total.add(row);
            models.entry(&row.model).or_default().add(row);
            days.entry(row.day).or_default().add(row);
            let spent = spending.entry(row.day.to_string()).or_default();
            let spent = spent.entry(row.model.clone()).or_default();
            *spent = spent.saturating_add(row.cost.pico());
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
            currency,
            total_requests: total.requests,
            total_prompt_tokens: total.prompt_tokens,
            total_completion_tokens: total.completion_tokens,
            total_tokens: total.tokens,
            total_cost: total.cost,
            by_model,
            by_day: by_day.collect(),
            spending,
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
        let dear = self.by_model.iter().filter(|line| line.sums.cost > Credits::ZERO);
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
            .filter(|line| line.sums.cost > Credits::ZERO)
            .count();
        if dear > shaded.len() {
            let others = u64::try_from(dear - shaded.len()).unwrap_or(u64::MAX);
            lines.push_str(&format!("{} {}\n", SHADES[SHADES.len() - 1], counted(others, "other")));
        }
        lines
    }

    /// A day's bar: as long as its cost is to `most`, in the shades of its models.
    fn day_bar(&self, day: &str, most: i64) -> String {
        let shaded = self.shaded();
        let mut parts = [0i64; SHADES.len()];
        for (model, cost) in self.spending.get(day).into_iter().flatten() {
            let shade = shaded
                .iter()
                .position(|known| known == model)
                .unwrap_or(SHADES.len() - 1);
            parts[shade] = parts[shade].saturating_add(*cost);
        }
        let (mut drawn, mut sum) = (String::new(), 0i64);
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

impl Show for UsageShown {
    fn text(&self) -> String {
        let (account, period) = (self.whose(), self.period.name());
        if self.by_model.is_empty() {
            return format!("{account} has used nothing in the period {period}\n");
        }
        let mut table = Table::new(&[
            ("MODEL", Align::Left),
            ("REQUESTS", Align::Right),
            ("PROMPT", Align::Right),
            ("COMPLETION", Align::Right),
            ("COST", Align::Point),
        ]);
        let mut row = |name: &str, sums: &Sums| {
            table.row(vec![
                name.to_owned(),
                sums.requests.to_string(),
                sums.prompt_tokens.to_string(),
                sums.completion_tokens.to_string(),
                sums.cost.to_string(),
            ]);
        };
        for line in &self.by_model {
            row(&line.model, &line.sums);
        }
        row("total", &self.total());
        let days = counted(u64::try_from(self.by_day.len()).unwrap_or(u64::MAX), "day");
        let mut text = format!(
            "usage of {account}, period {period}: {days} (UTC) with calls, costs in {}\n\n",
            self.currency
        );
        text.push_str(&table.text());
        if self.by_day.len() > 1 {
            text.push('\n');
            text.push_str(&self.day_table().text());
            text.push('\n');
            text.push_str(&self.legend());
        }
        text
    }
}

/// The length that is to [`BAR_MAX`] as `value` is to `most`; what is above 0 shows.
fn bar_length(value: i64, most: i64) -> usize {
    if value <= 0 || most <= 0 {
        return 0;
    }
    let length = i128::from(value) * BAR_MAX / i128::from(most);
    usize::try_from(length.clamp(1, BAR_MAX)).unwrap_or(0)
}

/// From the dearest model to all the others.
const SHADES: [char; 4] = ['█', '▓', '▒', '░'];
const BAR_MAX: i128 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_bar_in_the_shades_of_its_models() {
        let row = |day: i64, model: &str, cost: i64| UsageRow {
            day: Day(20_000 + day),
            model: model.to_owned(),
            requests: 1,
            prompt_tokens: 9,
            completion_tokens: 1,
            cost: Credits::from_pico(cost),
        };
        let mut rows = vec![
            row(0, "a/dear", 600),
            row(0, "a/cheap", 300),
            row(1, "a/dear", 450),
            row(2, "a/free", 0),
        ];
        rows.extend(["b/1", "b/2", "b/3"].map(|model| row(1, model, 1)));
        let account = "acme".parse().unwrap();
        let text = UsageShown::of(account, Period::Week, "USD".to_owned(), &rows).text();
        assert!(
            text.contains(&format!("{}{}\n", "█".repeat(16), "▓".repeat(8))),
            "{text}"
        );
        assert!(text.contains(&format!("{}\n", "█".repeat(12))), "{text}");
        for line in ["█ a/dear\n", "▓ a/cheap\n", "▒ b/1\n", "░ 2 others\n"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(
            !text.contains("a/free\n") && text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
