//! `tollgate account`: make, change and show accounts.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::account_set::{Changes, set};
use super::arguments::quota;
use super::failure::Failure;
use super::key::{KeyShown, key_table};
use super::ledger::waiting::{tell_waiting, waiting_of};
use super::ledger::{ask, new_ledger};
use super::output::{Align, Answer, Format, Show, Table, facts, line, plain};
use super::statement::{self, StatementArgs};
use crate::config::Config;
use crate::ledger::admin::accounts::{ACCOUNTS_MAX, AccountOp, AccountPage, AccountQuery};
use crate::ledger::admin::{AccountView, AdminOp, AdminReply};
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::pure::ids::{AccountId, Tier};
use crate::pure::money::Credits;

#[derive(Debug, Subcommand)]
pub(super) enum AccountCommand {
    /// Make an account
    #[command(after_help = "Example:\n  tollgate account create acme --tier pro --monthly-quota 50")]
    Create {
        /// Its name: 1 to 64 of A-Z a-z 0-9 . _ @ -
        name: AccountId,
        /// What it may use: free, lite, pro or enterprise
        #[arg(long)]
        tier: Tier,
        /// Credits it may spend in a month [default: its tier's quota]
        #[arg(long, value_name = "AMOUNT", value_parser = quota, allow_negative_numbers = true)]
        monthly_quota: Option<Credits>,
    },
    /// Change an account; what is left out stays
    #[command(
        override_usage = "tollgate account set [OPTIONS] <NAME>",
        after_help = "Examples:\n  tollgate account set acme --tier enterprise\n  \
                            tollgate account set acme --monthly-quota default\n  \
                            tollgate account set acme --low-balance 5 --meta crm=4711"
    )]
    Set {
        /// Its name
        name: AccountId,
        #[command(flatten)]
        changes: Changes,
    },
    /// Show an account: balance, held credit, the month's spending, keys
    #[command(after_help = "Example:\n  tollgate account show acme --json")]
    Show {
        /// Its name
        name: AccountId,
    },
    /// List accounts: all of them, or a page of those that are looked for
    #[command(after_help = "Examples:\n  tollgate account list\n  tollgate account list --search acme --limit 20")]
    List(ListArgs),
    /// Refuse an account's calls with 403 until it is resumed
    #[command(
        after_help = "Example:\n  tollgate account suspend acme\n\nIts running streams go on, unless the configuration says `suspended_streams: end`."
    )]
    Suspend {
        /// Its name
        name: AccountId,
    },
    /// Let a suspended account call again
    #[command(after_help = "Example:\n  tollgate account resume acme")]
    Resume {
        /// Its name
        name: AccountId,
    },
    /// Close an account for good
    #[command(
        after_help = "Example:\n  tollgate account close acme\n\nIts calls are refused with 403. It gets no keys, and no credit but corrections and\n\
        refunds, and cannot be opened again. Its books, usage and receipts stay."
    )]
    Close {
        /// Its name
        name: AccountId,
    },
    /// Show what happened to an account's balance, to the last digit
    Statement(StatementArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only names with this text in them, whatever the case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only those after this name: what the page before ended with
    #[arg(long, value_name = "NAME")]
    after: Option<AccountId>,
    /// The most of a page, up to 200 [default: a page has 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,
}

fn status(account: AccountId, status: AccountStatus) -> AdminOp {
    let change = TermsChange {
        status: Some(status),
        ..TermsChange::default()
    };
    AdminOp::Account(AccountOp::Terms { account, change })
}

impl ListArgs {
    fn op(self) -> AdminOp {
        if self.search.is_none() && self.after.is_none() && self.limit.is_none() {
            return AdminOp::AccountList;
        }
        AdminOp::Account(AccountOp::Page(AccountQuery {
            after: self.after,
            limit: self.limit.unwrap_or(ACCOUNTS_MAX),
            search: self.search,
        }))
    }
}

pub(super) fn run(command: AccountCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    let op = match command {
        AccountCommand::Create {
            name,
            tier,
            monthly_quota,
        } => {
            let create = AdminOp::AccountCreate {
                account: name,
                tier,
                quota_pico: monthly_quota.map(Credits::pico),
                terms: TermsChange::default(),
            };
            let warnings = new_ledger(config).into_iter().collect();
            let answer = answer(ask(config, create)?, config, format)?;
            return Ok(Answer { warnings, ..answer });
        }
        AccountCommand::Set { name, changes } => return answer(set(name, &changes, config)?, config, format),
        AccountCommand::Show { name } => AdminOp::AccountShow { account: name },
        AccountCommand::List(args) => args.op(),
        AccountCommand::Suspend { name } => status(name, AccountStatus::Suspended),
        AccountCommand::Resume { name } => status(name, AccountStatus::Active),
        AccountCommand::Close { name } => status(name, AccountStatus::Closed),
        AccountCommand::Statement(args) => return statement::run(args, config, format),
    };
    answer(ask(config, op)?, config, format)
}

fn answer(reply: AdminReply, config: &Config, format: Format) -> Result<Answer, Failure> {
    match reply {
        AdminReply::Account(view) => {
            let journals_waiting = waiting_of(config);
            let shown = AccountShown {
                journals_waiting,
                ..AccountShown::of(view, config)
            };
            Answer::of(&shown, format)
        }
        AdminReply::Accounts { accounts } => {
            let page = AccountPage { accounts, next: None };
            Answer::of(&AccountsShown::of(page, config, false), format)
        }
        AdminReply::AccountPage(page) => Answer::of(&AccountsShown::of(page, config, true), format),
        _ => Err(Failure::wrong_reply()),
    }
}

/// An account with its keys.
#[derive(Serialize)]
struct AccountShown {
    #[serde(flatten)]
    line: AccountLine,
    currency: String,
    keys: Vec<KeyShown>,
    /// What the calls in them owe is not in the balance yet. None for a gateway elsewhere: it is not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    journals_waiting: Option<u64>,
}

#[derive(Serialize)]
struct AccountsShown {
    currency: String,
    accounts: Vec<AccountLine>,
    /// What the next page is after.
    next: Option<AccountId>,
    #[serde(skip)]
    is_page: bool,
}

impl AccountsShown {
    fn of(page: AccountPage, config: &Config, is_page: bool) -> AccountsShown {
        let accounts = page.accounts.into_iter();
        AccountsShown {
            currency: config.currency.clone(),
            accounts: accounts.map(|view| AccountShown::of(view, config).line).collect(),
            next: page.next,
            is_page,
        }
    }
}

#[derive(Serialize)]
struct AccountLine {
    name: AccountId,
    tier: Tier,
    status: AccountStatus,
    balance: Credits,
    held: Credits,
    available: Credits,
    monthly_used: Credits,
    monthly_quota: Credits,
    /// Whether the quota is the account's own and not its tier's.
    own_quota: bool,
    open_calls: u64,
    low_balance: Option<Credits>,
    metadata: BTreeMap<String, String>,
    created: String,
    /// The same, by the name that it has elsewhere.
    created_at: String,
}

impl AccountShown {
    fn of(view: AccountView, config: &Config) -> AccountShown {
        let (record, figures) = (view.record, view.figures);
        let of_tier = config.tier(record.tier).monthly_quota;
        let line = AccountLine {
            name: record.id,
            tier: record.tier,
            status: record.terms.status,
            balance: figures.balance,
            held: figures.held,
            available: figures.balance.saturating_sub(figures.held),
            monthly_used: figures.monthly_used,
            monthly_quota: record.monthly_quota.unwrap_or(of_tier),
            own_quota: record.monthly_quota.is_some(),
            open_calls: view.open_holds,
            low_balance: record.terms.low_balance,
            metadata: record.terms.metadata,
            created: record.created.to_string(),
            created_at: record.created.to_string(),
        };
        AccountShown {
            line,
            currency: config.currency.clone(),
            keys: view.keys.into_iter().map(KeyShown::of).collect(),
            journals_waiting: None,
        }
    }
}

impl Show for AccountShown {
    fn text(&self) -> String {
        let account = &self.line;
        let money = |amount: Credits| format!("{amount} {}", self.currency);
        let whose = if account.own_quota { "its own" } else { "its tier's" };
        let mut text = facts(&[
            ("account", account.name.to_string()),
            ("tier", account.tier.name().to_owned()),
            ("status", account.status.name().to_owned()),
            ("balance", money(account.balance)),
            (
                "held",
                format!("{}, by calls that run now: {}", money(account.held), account.open_calls),
            ),
            ("available", money(account.available)),
            ("month used", money(account.monthly_used)),
            ("month quota", format!("{} ({whose})", money(account.monthly_quota))),
            (
                "low balance",
                account.low_balance.map_or_else(|| "none".to_owned(), money),
            ),
            ("created", account.created.clone()),
        ]);
        for (name, value) in &account.metadata {
            line(&mut text, format_args!("{} = {}", plain(name), plain(value)));
        }
        tell_waiting(&mut text, self.journals_waiting);
        if self.keys.is_empty() && account.status == AccountStatus::Closed {
            text.push_str("\nno keys\n"); // It gets none any more.
        } else if self.keys.is_empty() {
            text.push_str(&format!("\nno keys: tollgate key create --account {}\n", account.name));
        } else {
            text.push('\n');
            text.push_str(&key_table(&self.keys));
        }
        text
    }
}

impl Show for AccountsShown {
    fn text(&self) -> String {
        if self.accounts.is_empty() {
            return match self.is_page {
                true => "no such accounts\n".to_owned(),
                false => "no accounts: tollgate account create NAME --tier free\n".to_owned(),
            };
        }
        let is_active = |account: &AccountLine| account.status == AccountStatus::Active;
        let all_active = self.accounts.iter().all(is_active);
        let mut columns = vec![
            ("ACCOUNT", Align::Left),
            ("TIER", Align::Left),
            ("BALANCE", Align::Point),
            ("HELD", Align::Point),
            ("MONTH USED", Align::Point),
            ("QUOTA", Align::Point),
        ];
        columns.extend((!all_active).then_some(("STATUS", Align::Left)));
        let mut table = Table::new(&columns);
        for account in &self.accounts {
            let mut row = vec![
                account.name.to_string(),
                account.tier.name().to_owned(),
                account.balance.to_string(),
                account.held.to_string(),
                account.monthly_used.to_string(),
                account.monthly_quota.to_string(),
            ];
            row.extend((!all_active).then(|| account.status.name().to_owned()));
            table.row(row);
        }
        let mut text = table.text();
        if let Some(next) = &self.next {
            text.push_str(&format!("\nmore: --after {next}\n"));
        }
        text
    }
}
