//! `tollgate credits`: add, correct and list credit.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::arguments::{amount, change, reference};
use super::failure::Failure;
use super::ledger::ask;
use super::output::{Align, Answer, Format, Show, Table, plain, shell_word};
use crate::config::Config;
use crate::ledger::admin::credits::{CreditEntry, CreditKind, CreditOp, CreditPage, CreditPost, Posted};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;

#[derive(Debug, Subcommand)]
pub(super) enum CreditsCommand {
    /// Add credit to an account, once for each reference
    #[command(
        after_help = "Examples:\n  tollgate credits add acme 10.50 --reference INVOICE-7\n  \
        tollgate credits add acme 5 --reference WELCOME --kind bonus --note 'for the wait'\n\n\
        The same reference, amount and kind again change nothing, so that a script may\n\
        repeat the command when in doubt. Anything else under that reference is refused."
    )]
    Add(AddArgs),
    /// Correct an account's credit, up or down, or pay some back
    #[command(
        after_help = "Examples:\n  tollgate credits correct acme -2.50 --reference FIX-7 --note 'typed twice'\n  \
        tollgate credits correct acme -20 --reference REFUND-3 --kind refund\n\n\
        No more is taken than is available: the balance less what running calls hold. With\n\
        --allow-negative it is, and the balance may fall below 0, as after a chargeback."
    )]
    Correct(CorrectArgs),
    /// List an account's credit entries, the newest first
    #[command(after_help = "Example:\n  tollgate credits list acme --limit 20")]
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// Who gets it
    name: AccountId,
    /// How much, in credits: up to 12 decimals
    #[arg(value_parser = amount, allow_negative_numbers = true)]
    amount: Credits,
    /// What the payment is known by, such as an invoice's number
    #[arg(long, value_parser = reference)]
    reference: String,
    /// What it is: top_up, bonus or correction
    #[arg(long, default_value = "top_up")]
    kind: CreditKind,
    /// A word on it, at most 500 bytes
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct CorrectArgs {
    /// Whose credit
    name: AccountId,
    /// By how much, in credits: up to 12 decimals, below 0 to take away
    #[arg(value_parser = change, allow_negative_numbers = true)]
    amount: Credits,
    /// What the correction is known by
    #[arg(long, value_parser = reference)]
    reference: String,
    /// What it is: correction or refund
    #[arg(long, default_value = "correction")]
    kind: CreditKind,
    /// A word on it, at most 500 bytes
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Take it also where less is available
    #[arg(long)]
    allow_negative: bool,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Whose
    name: AccountId,
    /// The most that are listed, up to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those before this entry: the page before ended with it
    #[arg(long, value_name = "REFERENCE")]
    before: Option<String>,
}

pub(super) fn run(command: CreditsCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        CreditsCommand::Add(args) => add(args, config, format),
        CreditsCommand::Correct(args) => {
            if !args.kind.may_be_negative() {
                return Err(Failure::wrong_usage(
                    "a correction has the kind correction or refund; `tollgate credits add` adds the others",
                ));
            }
            let post = CreditPost {
                kind: args.kind,
                note: args.note,
                allow_negative: args.allow_negative,
                as_available: false,
                is_payment: false,
                ..CreditPost::top_up(args.name, args.amount, args.reference)
            };
            posted(post, config, format)
        }
        CreditsCommand::List(args) => list(args, config, format),
    }
}

fn add(args: AddArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let post = CreditPost {
        kind: args.kind,
        note: args.note,
        ..CreditPost::top_up(args.name, args.amount, args.reference)
    };
    if post.kind != CreditKind::TopUp || post.note.is_some() {
        return posted(post, config, format);
    }
    // As it always was: a gateway of an earlier version that owns the ledger knows this too.
    let op = AdminOp::CreditsAdd {
        account: post.account.clone(),
        amount: post.amount,
        reference: post.reference.clone(),
    };
    match ask(config, op)? {
        AdminReply::Credited { added, balance } => Answer::of(&Credited::of(post, added, balance, config), format),
        _ => Err(Failure::wrong_reply()),
    }
}

fn posted(post: CreditPost, config: &Config, format: Format) -> Result<Answer, Failure> {
    post.check_given().map_err(Failure::wrong_usage)?;
    match ask(config, AdminOp::Credit(CreditOp::Post(post.clone())))? {
        AdminReply::Posted(Posted { added, balance, entry }) => {
            let post = CreditPost {
                note: entry.note,
                ..post
            };
            Answer::of(&Credited::of(post, added, balance, config), format)
        }
        _ => Err(Failure::wrong_reply()),
    }
}

fn list(args: ListArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let op = CreditOp::List {
        account: args.name.clone(),
        limit: args.limit,
        before: args.before,
    };
    match ask(config, AdminOp::Credit(op))? {
        AdminReply::CreditPage(CreditPage { entries, next }) => Answer::of(
            &EntriesShown {
                account: args.name,
                currency: config.currency.clone(),
                entries: entries.into_iter().map(EntryShown::of).collect(),
                next,
            },
            format,
        ),
        _ => Err(Failure::wrong_reply()),
    }
}

#[derive(Serialize)]
struct Credited {
    account: AccountId,
    added: bool,
    amount: Credits,
    kind: CreditKind,
    reference: String,
    note: Option<String>,
    balance: Credits,
    currency: String,
}

impl Credited {
    fn of(post: CreditPost, added: bool, balance: Credits, config: &Config) -> Credited {
        Credited {
            account: post.account,
            added,
            amount: post.amount,
            kind: post.kind,
            reference: post.reference,
            note: post.note,
            balance,
            currency: config.currency.clone(),
        }
    }
}

impl Show for Credited {
    fn text(&self) -> String {
        let Credited {
            account,
            amount,
            reference,
            balance,
            currency,
            ..
        } = self;
        if !self.added {
            return format!(
                "nothing added: {reference} had counted before. The balance of {account} is {balance} {currency}\n"
            );
        }
        let what = match Credits::ZERO.checked_sub(*amount) {
            Some(taken) if *amount < Credits::ZERO => format!("took {taken} {currency} from {account}"),
            _ => format!("added {amount} {currency} to {account}"),
        };
        format!("{what}: the balance is {balance} {currency}\n")
    }
}

/// A credit entry.
#[derive(Serialize)]
pub(super) struct EntryShown {
    time: String,
    kind: CreditKind,
    amount: Credits,
    reference: String,
    note: Option<String>,
    balance: Option<Credits>,
}

impl EntryShown {
    pub(super) fn of(entry: CreditEntry) -> EntryShown {
        EntryShown {
            time: entry.at.to_string(),
            kind: entry.kind,
            amount: entry.amount,
            reference: entry.reference,
            note: entry.note,
            balance: entry.balance,
        }
    }

    /// Entries for people.
    pub(super) fn table(entries: &[EntryShown]) -> String {
        let mut table = Table::new(&[
            ("TIME", Align::Left),
            ("KIND", Align::Left),
            ("AMOUNT", Align::Point),
            ("BALANCE", Align::Point),
            ("REFERENCE", Align::Left),
            ("NOTE", Align::Left),
        ]);
        for entry in entries {
            table.row(vec![
                entry.time.clone(),
                entry.kind.name().to_owned(),
                entry.amount.to_string(),
                entry.balance.map(|balance| balance.to_string()).unwrap_or_default(),
                entry.reference.replace(char::is_control, " "),
                entry.note.clone().unwrap_or_default(),
            ]);
        }
        table.text()
    }
}

#[derive(Serialize)]
struct EntriesShown {
    account: AccountId,
    currency: String,
    entries: Vec<EntryShown>,
    next: Option<String>,
}

impl Show for EntriesShown {
    fn text(&self) -> String {
        if self.entries.is_empty() {
            return format!(
                "no credit: tollgate credits add {} AMOUNT --reference R\n",
                self.account
            );
        }
        let mut text = EntryShown::table(&self.entries);
        if let Some(next) = &self.next {
            text.push_str(&format!("\nmore: --before {}\n", shell_word(&plain(next))));
        }
        text
    }
}
