//! `tollgate account statement`: what happened to a balance, as text, JSON or CSV.

use clap::Args;
use serde::Serialize;

use super::arguments::day;
use super::credits::EntryShown;
use super::failure::Failure;
use super::ledger::ask;
use super::output::{Align, Answer, Format, Show, Table, facts};
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::credits::{CreditOp, DebitRow, Statement};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Day;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate account statement acme\n  \
    tollgate account statement acme --from 2026-11-01 --to 2026-11-30 --csv > acme.csv\n\n\
    Opening balance + entries - debits = closing balance, to the last digit. At most 367\n\
    days, and 20,000 entries and debits. Today is that of this machine's clock: where it may\n\
    not be the ledger's, as with --operator, name --to.")]
pub(super) struct StatementArgs {
    /// The account's name
    name: AccountId,
    /// The first UTC day [default: the first of the month of --to]
    #[arg(long, value_name = "DAY", value_parser = day)]
    from: Option<Day>,
    /// The last one [default: today]
    #[arg(long, value_name = "DAY", value_parser = day)]
    to: Option<Day>,
    /// As CSV
    #[arg(long)]
    csv: bool,
}

pub(super) fn run(args: StatementArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    if args.csv && format == Format::Json {
        return Err(Failure::wrong_usage(
            "a statement is either CSV or JSON: leave out --csv or --json",
        ));
    }
    let to = args.to.unwrap_or_else(|| Clock::System.now().day());
    let from = args.from.unwrap_or_else(|| to.first_of_month());
    if from > to {
        return Err(Failure::wrong_usage(format!("--from {from} is after --to {to}")));
    }
    let op = CreditOp::Statement {
        account: args.name,
        from,
        to,
    };
    match ask(config, AdminOp::Credit(op))? {
        AdminReply::Statement(statement) if args.csv => {
            let text = statement.csv().map_err(Failure::new)?;
            Ok(Answer {
                text,
                ..Answer::default()
            })
        }
        AdminReply::Statement(statement) => Answer::of(&StatementShown::of(statement, config), format),
        _ => Err(Failure::wrong_reply()),
    }
}

#[derive(Serialize)]
struct StatementShown {
    account: AccountId,
    currency: String,
    from: String,
    to: String,
    opening_balance: Credits,
    entries: Vec<EntryShown>,
    debits: Vec<DebitShown>,
    closing_balance: Credits,
}

#[derive(Serialize)]
struct DebitShown {
    day: String,
    model: String,
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    tokens: u64,
    cost: Credits,
}

impl StatementShown {
    fn of(statement: Statement, config: &Config) -> StatementShown {
        let debit = |row: DebitRow| DebitShown {
            day: row.day.to_string(),
            model: row.model,
            requests: row.requests,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
            cost: row.cost,
        };
        StatementShown {
            account: statement.account,
            currency: config.currency.clone(),
            from: statement.from.to_string(),
            to: statement.to.to_string(),
            opening_balance: statement.opening,
            entries: statement.entries.into_iter().map(EntryShown::of).collect(),
            debits: statement.debits.into_iter().map(debit).collect(),
            closing_balance: statement.closing,
        }
    }
}

impl Show for StatementShown {
    fn text(&self) -> String {
        let money = |amount: Credits| format!("{amount} {}", self.currency);
        let mut text = facts(&[
            ("account", self.account.to_string()),
            ("days", format!("{} to {}", self.from, self.to)),
            ("opening balance", money(self.opening_balance)),
            ("closing balance", money(self.closing_balance)),
        ]);
        if !self.entries.is_empty() {
            text.push('\n');
            text.push_str(&EntryShown::table(&self.entries));
        }
        if !self.debits.is_empty() {
            let mut table = Table::new(&[
                ("DAY", Align::Left),
                ("MODEL", Align::Left),
                ("REQUESTS", Align::Right),
                ("TOKENS", Align::Right),
                ("COST", Align::Point),
            ]);
            for debit in &self.debits {
                table.row(vec![
                    debit.day.clone(),
                    debit.model.clone(),
                    debit.requests.to_string(),
                    debit.tokens.to_string(),
                    debit.cost.to_string(),
                ]);
            }
            text.push('\n');
            text.push_str(&table.text());
        }
        text
    }
}
