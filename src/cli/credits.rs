//! `tollgate credits`: add credit.

use clap::Subcommand;
use serde::Serialize;

use super::arguments::amount;
use super::failure::Failure;
use super::ledger::ask;
use super::output::{Answer, Format, Show};
use crate::config::Config;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;

#[derive(Debug, Subcommand)]
pub(super) enum CreditsCommand {
    /// Add credit to an account, once for each reference
    #[command(after_help = "Example:\n  tollgate credits add acme 10.50 --reference INVOICE-7\n\n\
        The same reference and amount again change nothing, so that a script may repeat\n\
        the command when in doubt. The same reference with another amount is refused.")]
    Add {
        /// Who gets it
        name: AccountId,
        /// How much, in credits: up to 12 decimals
        #[arg(value_parser = amount, allow_negative_numbers = true)]
        amount: Credits,
        /// What the payment is known by, such as an invoice's number
        #[arg(long)]
        reference: String,
    },
}

pub(super) fn run(command: CreditsCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    let CreditsCommand::Add {
        name,
        amount,
        reference,
    } = command;
    let op = AdminOp::CreditsAdd {
        account: name.clone(),
        amount,
        reference: reference.clone(),
    };
    match ask(config, op)? {
        AdminReply::Credited { added, balance } => {
            let currency = config.currency.clone();
            Answer::of(
                &Credited {
                    account: name,
                    added,
                    amount,
                    reference,
                    balance,
                    currency,
                },
                format,
            )
        }
        _ => Err(Failure::wrong_reply()),
    }
}

#[derive(Serialize)]
struct Credited {
    account: AccountId,
    added: bool,
    amount: Credits,
    reference: String,
    balance: Credits,
    currency: String,
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
        match self.added {
            true => format!("added {amount} {currency} to {account}: the balance is {balance} {currency}\n"),
            false => format!(
                "nothing added: {reference} had counted before. The balance of {account} is {balance} {currency}\n"
            ),
        }
    }
}
