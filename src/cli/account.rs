//! `tollgate account`: make, change and show accounts.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::arguments::{Quota, quota};
use super::failure::Failure;
use super::key::{KeyShown, key_table};
use super::ledger::ask;
use super::output::{Align, Answer, Format, Show, Table, facts};
use crate::config::Config;
use crate::ledger::admin::{AccountView, AdminOp, AdminReply};
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
    #[command(after_help = "Examples:\n  tollgate account set acme --tier enterprise\n  \
                            tollgate account set acme --monthly-quota default")]
    Set {
        /// Its name
        name: AccountId,
        #[command(flatten)]
        changes: Changes,
    },
    /// Show an account: balance, held credit, the month's spending, keys
    Show {
        /// Its name
        name: AccountId,
    },
    /// List all accounts
    List,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct Changes {
    /// What it may use: free, lite, pro or enterprise
    #[arg(long)]
    tier: Option<Tier>,
    /// Credits it may spend in a month; `default`: its tier's
    #[arg(long, value_name = "AMOUNT|default", allow_negative_numbers = true)]
    monthly_quota: Option<Quota>,
}

pub(super) fn run(command: AccountCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    let op = match command {
        AccountCommand::Create {
            name,
            tier,
            monthly_quota,
        } => AdminOp::AccountCreate {
            account: name,
            tier,
            quota_pico: monthly_quota.map(Credits::pico),
        },
        AccountCommand::Set { name, changes } => AdminOp::AccountSet {
            account: name,
            tier: changes.tier,
            quota_pico: changes.monthly_quota.map(|quota| match quota {
                Quota::Own(amount) => Some(amount.pico()),
                Quota::OfTier => None,
            }),
        },
        AccountCommand::Show { name } => AdminOp::AccountShow { account: name },
        AccountCommand::List => AdminOp::AccountList,
    };
    match ask(config, op)? {
        AdminReply::Account(view) => Answer::of(&AccountShown::of(view, config), format),
        AdminReply::Accounts { accounts } => {
            let accounts = accounts.into_iter().map(|view| AccountShown::of(view, config).line);
            let currency = config.currency.clone();
            Answer::of(
                &AccountsShown {
                    currency,
                    accounts: accounts.collect(),
                },
                format,
            )
        }
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
}

#[derive(Serialize)]
struct AccountsShown {
    currency: String,
    accounts: Vec<AccountLine>,
}

#[derive(Serialize)]
struct AccountLine {
    name: AccountId,
    tier: Tier,
    balance: Credits,
    held: Credits,
    available: Credits,
    monthly_used: Credits,
    monthly_quota: Credits,
    /// Whether the quota is the account's own and not its tier's.
    own_quota: bool,
    open_calls: u64,
    created: String,
}

impl AccountShown {
    fn of(view: AccountView, config: &Config) -> AccountShown {
        let (record, figures) = (view.record, view.figures);
        let of_tier = config.tier(record.tier).monthly_quota;
        let line = AccountLine {
            name: record.id,
            tier: record.tier,
            balance: figures.balance,
            held: figures.held,
            available: figures.balance.saturating_sub(figures.held),
            monthly_used: figures.monthly_used,
            monthly_quota: record.monthly_quota.unwrap_or(of_tier),
            own_quota: record.monthly_quota.is_some(),
            open_calls: view.open_holds,
            created: record.created.to_string(),
        };
        AccountShown {
            line,
            currency: config.currency.clone(),
            keys: view.keys.into_iter().map(KeyShown::of).collect(),
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
            ("balance", money(account.balance)),
            (
                "held",
                format!("{}, by calls that run now: {}", money(account.held), account.open_calls),
            ),
            ("available", money(account.available)),
            ("month used", money(account.monthly_used)),
            ("month quota", format!("{} ({whose})", money(account.monthly_quota))),
            ("created", account.created.clone()),
        ]);
        if self.keys.is_empty() {
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
            return "no accounts: tollgate account create NAME --tier free\n".to_owned();
        }
        let mut table = Table::new(&[
            ("ACCOUNT", Align::Left),
            ("TIER", Align::Left),
            ("BALANCE", Align::Point),
            ("HELD", Align::Point),
            ("MONTH USED", Align::Point),
            ("QUOTA", Align::Point),
        ]);
        for account in &self.accounts {
            table.row(vec![
                account.name.to_string(),
                account.tier.name().to_owned(),
                account.balance.to_string(),
                account.held.to_string(),
                account.monthly_used.to_string(),
                account.monthly_quota.to_string(),
            ]);
        }
        table.text()
    }
}
