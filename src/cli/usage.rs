//! `tollgate usage`: what an account has used, by model, key, day and end user, and what all have.

mod limit;
mod shown;
mod sums;

use clap::Args;

use self::limit::{OfKey, UsageAndLimit};
use self::shown::{By, UsageShown};
use self::sums::Summed;
use super::arguments::{day, key_id, period};
use super::failure::Failure;
use super::ledger::ask;
use super::ledger::pages::Pages;
use super::output::{Answer, Format};
use super::progress::Progress;
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::AdminOp;
use crate::ledger::query::{EndUserQuery, EndUserRow, EndUserUsage, UsageQuery};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Day, Days, Period};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate usage acme\n  tollgate usage acme --period 30d --json\n  \
    tollgate usage acme --key key_0123456789abcdef --period all\n  \
    tollgate usage acme --from 2026-11-01 --to 2026-11-30 --by key\n  \
    tollgate usage acme --period 7d --by end_user\n  \
    tollgate usage --all --period 30d --by account\n\n\
    By end user the sums are of the receipts that are kept; at most 20,000 receipts and\n\
    1,000 end users are summed up. On Redis the ten minutes behind the days are looked\n\
    through as well, for at most 200,000 receipts.\n\n\
    With --all the accounts are read one after the other, while calls go on; the sums\n\
    are of models, days or accounts.\n\n\
    A period ends today by the ledger's clock, and with --all, or where --to is left out, by\n\
    this machine's. By end user the sums and the totals are asked for one after the other:\n\
    over midnight they may be of other days. --from and --to name the same days for all."
)]
pub(super) struct UsageArgs {
    /// The account's name
    #[arg(required_unless_present = "all")]
    name: Option<AccountId>,
    /// In place of a name: the sums of all accounts
    #[arg(long, conflicts_with_all = ["name", "key"])]
    all: bool,
    /// Only what this key has used: its id, as `tollgate key list` tells it
    #[arg(long, value_name = "ID", value_parser = key_id)]
    key: Option<KeyId>,
    /// Which UTC days: today, 7d, 30d or all
    #[arg(long, default_value = "today", value_parser = period, conflicts_with_all = ["from", "to"])]
    period: Period,
    /// In place of a period: the first UTC day
    #[arg(long, value_name = "DAY", value_parser = day)]
    from: Option<Day>,
    /// And the last; today by default
    #[arg(long, value_name = "DAY", value_parser = day)]
    to: Option<Day>,
    /// Sums by model, key, day, end_user or account
    #[arg(long, value_enum, default_value_t = By::Model, hide_possible_values = true)]
    by: By,
}

pub(super) fn run(args: UsageArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let today = Clock::System.now().day();
    let days = match (args.from, args.to) {
        (None, None) => args.period.into(),
        (from, to) => Days::between(from, to, today).ok_or_else(|| {
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or(today));
            Failure::wrong_usage(format!("--from {from} is after --to {to}"))
        })?,
    };
    match (args.name, args.by) {
        (None, By::Key | By::EndUser) => Err(Failure::wrong_usage(format!(
            "--by {} is of one account: give its name in place of --all",
            args.by.name()
        ))),
        (None, by) => of_all(by, (days, today), config, format),
        (Some(_), By::Account) => Err(Failure::wrong_usage(
            "--by account is of all accounts: give --all in place of a name".to_owned(),
        )),
        (Some(name), by) => of_one((name, args.key), by, days, config, format),
    }
}

fn of_one(
    (account, key): (AccountId, Option<KeyId>),
    by: By,
    days: Days,
    config: &Config,
    format: Format,
) -> Result<Answer, Failure> {
    let of_key = match &key {
        Some(key) => Some(OfKey::asked(config, &account, key)?),
        None => None,
    };
    let rows = |by_key: bool| {
        let query = UsageQuery {
            account: account.clone(),
            key: key.clone(),
            days,
            by_key,
        };
        ask(config, query.op())?.into_usage().ok_or_else(Failure::wrong_reply)
    };
    // The totals last: they have what is used meanwhile, so that no groups come to more. And they are not those of the keys, which lack calls of
    // before usage was counted by key.
    let of_keys = match by {
        By::Key => rows(true)?,
        By::Model | By::Day | By::EndUser | By::Account => Vec::new(),
    };
    let of_end_users = match by {
        By::EndUser => Some(end_users(config, (&account, key.as_ref()), days)?),
        By::Model | By::Key | By::Day | By::Account => None,
    };
    let mut summed = Summed::default();
    summed.add(&account, &rows(false)?);
    summed.add_of_keys(&of_keys);
    let mut shown = UsageShown::of(Some(account.clone()), days, config.currency.clone(), summed);
    if let Some(of_end_users) = of_end_users {
        shown = shown.with_end_users(of_end_users);
    }
    let usage = shown.by(by, key);
    Answer::of(&UsageAndLimit { usage, of_key }, format)
}

fn end_users(
    config: &Config,
    (account, key): (&AccountId, Option<&KeyId>),
    days: Days,
) -> Result<Vec<EndUserRow>, Failure> {
    let query = EndUserQuery {
        account: account.clone(),
        key: key.cloned(),
        days,
    };
    let reply = ask(config, AdminOp::EndUsers(query))?;
    match reply.into_end_users().ok_or_else(Failure::wrong_reply)? {
        EndUserUsage::Sums(rows) => Ok(rows),
        EndUserUsage::Beyond(bound) => Err(Failure::new(format!("{bound} (--from, --to)"))),
    }
}

fn of_all(by: By, (days, today): (Days, Day), config: &Config, format: Format) -> Result<Answer, Failure> {
    // The same days of each account, also where midnight comes meanwhile.
    let asked = match days {
        Days::Period(period) if period != Period::All => Days::Span {
            from: period.first_day(today),
            to: today,
        },
        days => days,
    };
    let (mut pages, mut progress) = (Pages::new(config), Progress::new());
    let (mut summed, mut read) = (Summed::default(), 0u64);
    for account in pages.accounts()? {
        let query = UsageQuery {
            account: account.clone(),
            key: None,
            days: asked,
            by_key: false,
        };
        let rows = pages.ask(query.op())?.into_usage().ok_or_else(Failure::wrong_reply)?;
        summed.add(&account, &rows);
        read = read.saturating_add(1);
        progress.show(read, "account");
    }
    drop(progress);
    let usage = UsageShown::of(None, days, config.currency.clone(), summed).by(by, None);
    Answer::of(&usage, format)
}
