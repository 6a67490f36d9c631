//! `tollgate usage`: what an account has used, by model, key, day and end user.

mod limit;
mod shown;

use clap::Args;

use self::limit::{OfKey, UsageAndLimit};
use self::shown::{By, UsageShown};
use super::arguments::{day, key_id, period};
use super::failure::Failure;
use super::ledger::ask;
use super::output::{Answer, Format};
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::AdminOp;
use crate::ledger::query::{EndUserQuery, EndUserUsage, UsageQuery};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Day, Days, Period};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate usage acme\n  tollgate usage acme --period 30d --json\n  \
    tollgate usage acme --key key_0123456789abcdef --period all\n  \
    tollgate usage acme --from 2026-11-01 --to 2026-11-30 --by key\n  \
    tollgate usage acme --period 7d --by end_user\n\n\
    By end user the sums are of the receipts that are kept; at most 20,000 receipts and\n\
    1,000 end users are summed up."
)]
pub(super) struct UsageArgs {
    /// The account's name
    name: AccountId,
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
    /// What the sums are of: model, key, day or end_user
    #[arg(long, value_enum, default_value_t = By::Model, hide_possible_values = true)]
    by: By,
}

pub(super) fn run(args: UsageArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let of_key = match &args.key {
        Some(key) => Some(OfKey::asked(config, &args.name, key)?),
        None => None,
    };
    let today = Clock::System.now().day();
    let days = match (args.from, args.to) {
        (None, None) => args.period.into(),
        (from, to) => Days::between(from, to, today).ok_or_else(|| {
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or(today));
            Failure::wrong_usage(format!("--from {from} is after --to {to}"))
        })?,
    };
    let of_end_users = EndUserQuery {
        account: args.name.clone(),
        key: args.key.clone(),
        days,
    };
    let query = UsageQuery {
        account: args.name.clone(),
        key: args.key.clone(),
        days,
        by_key: args.by == By::Key,
    };
    let rows = ask(config, query.op())?.into_usage().ok_or_else(Failure::wrong_reply)?;
    let mut shown = UsageShown::of(args.name, days, config.currency.clone(), &rows);
    if args.by == By::EndUser {
        let reply = ask(config, AdminOp::EndUsers(of_end_users))?;
        shown = match reply.into_end_users().ok_or_else(Failure::wrong_reply)? {
            EndUserUsage::Sums(rows) => shown.with_end_users(rows),
            EndUserUsage::Beyond(bound) => return Err(Failure::new(format!("{bound} (--from, --to)"))),
        };
    }
    let usage = shown.by(args.by, args.key);
    Answer::of(&UsageAndLimit { usage, of_key }, format)
}
