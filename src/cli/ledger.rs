//! `tollgate ledger`, and how every command reaches the ledger.

mod audit;
mod export;
pub(super) mod pages;
pub(super) mod receipts;
mod reconcile;
mod unreadable;
pub(super) mod waiting;
mod way;

use std::collections::HashSet;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;

use self::way::{begins, existing};
pub(super) use self::way::{new_ledger, open};
use super::failure::Failure;
use super::output::{Answer, Format, Show, counted, facts, line};
use super::remote;
use super::user::this_user;
use crate::config::{Config, RemoteGateway, Store};
use crate::ledger::Ledger;
use crate::ledger::admin::Acted;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, RecoverReport};
use crate::ledger::control::{LedgerAccess, UNKNOWN_COMMAND};
use crate::ledger::journal::UnknownKeys;
use crate::ledger::journal::recover::kept_but;
use crate::pure::time::Timestamp;

#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// Check that the books balance; exit status 1 when they do not
    #[command(after_help = "Example:\n  tollgate ledger audit\n\n\
        For each account: top-ups - debits = balance, sum of holds = held, usage = debits.\n\n\
        The answer of a gateway that runs on the embedded ledger may take 15 minutes,\n\
        and a minute with --operator. What waits in journals is told on the gateway's own\n\
        machine alone: with --operator --json, journals_waiting and its like are left out.")]
    Audit,
    /// Make counters what their entries say, such as a month's use what its days add up to
    #[command(
        after_help = "Example:\n  tollgate ledger repair\n\nShows what was mended. Balances are never changed: what does not\n\
            balance is for somebody to look at."
    )]
    Repair,
    /// Bill or give back what processes that died have left in their journals
    #[command(after_help = "Example:\n  tollgate ledger recover\n\n\
            A gateway does this when it starts. While one runs on the embedded ledger, this shows\n\
            what its start did; otherwise it does it now. Debits that Redis has acknowledged and\n\
            may still lose stay in the journal for a minute: it says until when.\n\n\
            Calls of keys that the ledger does not have wait, for the journal may be another\n\
            ledger's. Where a backup of before they were made was restored, stop the\n\
            gateway, and --unknown-keys bills them to the accounts of their names.")]
    Recover {
        /// Also bill calls of keys that a restored ledger does not have
        #[arg(long)]
        unknown_keys: bool,
    },
    /// Show receipts: what calls cost, and why
    Receipts(receipts::ReceiptsArgs),
    /// Hold a provider's export against the receipts; exit status 1 when they do not agree
    Reconcile(reconcile::ReconcileArgs),
}

/// Asks the ledger of the configuration: by its owner's control socket while a gateway runs, else by its file. What writes is an act of
/// this user's.
pub(super) fn ask(config: &Config, op: AdminOp) -> Result<AdminReply, Failure> {
    let way = match &config.store {
        Store::Sqlite(path) if begins(&op) => Way::Here(open(path)?),
        Store::Sqlite(_) | Store::Redis(_) | Store::Missing(_) | Store::Remote(_) => access(config)?,
    };
    if let Way::Here(access) = &way {
        waiting::recover_before(&op, access, config)?;
    }
    way.run(op)
}

fn run_as_this_user(access: &LedgerAccess, op: AdminOp) -> Result<AdminReply, Failure> {
    if !op.is_act() {
        return Ok(access.run(op)?);
    }
    let actor = this_user();
    match access.run(AdminOp::By(Box::new(Acted { actor, op }))) {
        // Without an entry in the log nothing is done.
        Err(AdminError::Invalid(why)) if why.starts_with(UNKNOWN_COMMAND) => Err(Failure::new(
            "the gateway that owns the ledger is of an earlier version and cannot log who does what, so nothing was done: \
             upgrade the gateway first",
        )),
        answered => Ok(answered?),
    }
}

/// The way to a ledger.
enum Way {
    /// On this machine, or in Redis.
    Here(LedgerAccess),
    /// By a gateway elsewhere.
    There(RemoteGateway),
}

impl Way {
    fn run(&self, op: AdminOp) -> Result<AdminReply, Failure> {
        match self {
            Way::Here(access) => run_as_this_user(access, op),
            Way::There(gateway) => remote::ask(gateway, &op),
        }
    }
}

fn access(config: &Config) -> Result<Way, Failure> {
    if let Store::Remote(gateway) = &config.store {
        return Ok(Way::There(gateway.clone()));
    }
    here(config).map(Way::Here)
}

fn here(config: &Config) -> Result<LedgerAccess, Failure> {
    Ok(match &config.store {
        Store::Sqlite(path) => existing(path, &config.path)?,
        Store::Redis(_) | Store::Missing(_) | Store::Remote(_) => LedgerAccess::to(config)?,
    })
}

pub(super) fn run(command: &LedgerCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        LedgerCommand::Audit => match ask(config, AdminOp::Audit)? {
            AdminReply::Audit(report) => Answer::of(&audit::Audit::of(report, config), format),
            _ => Err(Failure::wrong_reply()),
        },
        LedgerCommand::Repair => match ask(config, AdminOp::Repair)? {
            AdminReply::Repaired { findings } => Answer::of(&audit::Repaired::of(findings), format),
            _ => Err(Failure::wrong_reply()),
        },
        LedgerCommand::Recover { unknown_keys } => {
            let keys = match unknown_keys {
                true => UnknownKeys::Bill,
                false => UnknownKeys::Wait,
            };
            Answer::of(&recovered(config, keys)?, format)
        }
        LedgerCommand::Receipts(args) => receipts::run(args, config, format),
        LedgerCommand::Reconcile(args) => reconcile::run(args, config, format),
    }
}

fn recovered(config: &Config, keys: UnknownKeys) -> Result<Recovered, Failure> {
    if let Store::Remote(_) = &config.store {
        return Err(Failure::wrong_usage(
            "this works on the gateway's own machine alone: leave out --operator",
        ));
    }
    let access = here(config)?;
    let (done_now, wait) = match &access {
        LedgerAccess::Own(ledger) => waiting::recover_now(config, &access, (ledger, keys))?,
        LedgerAccess::Socket(_) if keys == UnknownKeys::Bill => {
            return Err(Failure::new(
                "a gateway runs on the ledger: stop it first, and run this again",
            ));
        }
        LedgerAccess::Socket(_) => (RecoverReport::default(), HashSet::new()),
    };
    let mut report = match (run_as_this_user(&access, AdminOp::Recover), &access) {
        (Ok(AdminReply::Recovered(report)), _) => report,
        (Ok(_), _) => return Err(Failure::wrong_reply()),
        (Err(failure), LedgerAccess::Socket(_)) => return Err(failure),
        // What was billed just now is told all the same.
        (Err(failure), LedgerAccess::Own(_)) => RecoverReport {
            refused: vec![format!("expired holds were not given back: {failure}")],
            ..RecoverReport::default()
        },
    };
    let kept = match &access {
        LedgerAccess::Own(ledger) => {
            ledger.close(); // What was recovered is in the store now, and its journals are gone or kept.
            match ledger {
                Ledger::Redis(_) => Kept::of(kept_but(&config.data_dir, &wait), ledger.keeps_acknowledged()),
                Ledger::Embedded(_) => None,
            }
        }
        LedgerAccess::Socket(_) => None,
    };
    report.journals += done_now.journals;
    report.settled += done_now.settled;
    report.already += done_now.already;
    report.released += done_now.released;
    report.refused.extend(done_now.refused);
    Ok(Recovered {
        by_gateway: matches!(access, LedgerAccess::Socket(_)),
        report,
        kept,
        journals_acknowledged: waiting::acknowledged_elsewhere(config),
    })
}

#[derive(Serialize)]
struct Recovered {
    #[serde(flatten)]
    report: RecoverReport,
    /// The gateway that runs did it at its start; nothing was done now.
    by_gateway: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Kept>,
    /// Of a Redis, beside a ledger that is not in it.
    journals_acknowledged: u64,
}

/// Debits that Redis has acknowledged, and that stand in the journal until it cannot lose them any more.
#[derive(Serialize)]
struct Kept {
    debits: u64,
    until: String,
}

impl Kept {
    /// Of these, the last of which was acknowledged then; they are kept for so long.
    fn of(kept: Option<(u64, Timestamp)>, keeps: Duration) -> Option<Kept> {
        let (debits, last) = kept?;
        let keeps_ms = i64::try_from(keeps.as_millis()).unwrap_or(i64::MAX);
        let until = last.plus_millis(keeps_ms).plus_millis(SHOWN_EACH_MS); // Not a part of a second too early.
        let until = until.to_string();
        Some(Kept { debits, until })
    }
}

impl Show for Recovered {
    fn text(&self) -> String {
        let report = &self.report;
        let mut text = match self.by_gateway {
            true => "a gateway runs on this ledger and does this by itself; at its start it found:\n\n".to_owned(),
            false => String::new(),
        };
        text.push_str(&facts(&[
            ("journals read", report.journals.to_string()),
            ("debits taken", report.settled.to_string()),
            ("debits known before", report.already.to_string()),
            ("holds given back", report.released.to_string()),
        ]));
        if let Some(Kept { debits, until }) = &self.kept {
            let debits = counted(*debits, "debit");
            line(
                &mut text,
                format_args!("\nkept until {until}, as Redis may still lose them: {debits}"),
            );
            line(
                &mut text,
                format_args!("after that run this again, or start a gateway: nothing is left of them"),
            );
        }
        if self.journals_acknowledged > 0 {
            text.push('\n');
        }
        waiting::tell_acknowledged(&mut text, self.journals_acknowledged);
        text
    }

    fn problems(&self) -> Vec<String> {
        self.report.refused.clone()
    }
}

/// Moments are shown by the second.
const SHOWN_EACH_MS: i64 = 1000;

#[cfg(test)]
mod tests {
    use super::super::output::json_line;
    use super::*;

    #[test]
    fn what_redis_may_still_lose_is_told_with_the_moment_from_which_on_it_cannot() {
        let shown = |kept| Recovered {
            report: RecoverReport::default(),
            by_gateway: false,
            kept: Kept::of(kept, Duration::from_secs(60)),
            journals_acknowledged: 0,
        };
        let nothing = shown(None);
        assert!(!nothing.text().contains("kept"));
        assert!(!json_line(&nothing).unwrap().contains("kept"));
        let kept = shown(Some((2, Timestamp(500))));
        let told = "\nkept until 1970-01-01T00:01:01Z, as Redis may still lose them: 2 debits\n";
        assert!(kept.text().contains(told), "{}", kept.text());
        let json = json_line(&kept).unwrap();
        let told = concat!(
            r#""refused":[],"by_gateway":false,"kept":{"debits":2,"until":"1970-01-01T00:01:01Z"},"#,
            r#""journals_acknowledged":0}"#
        );
        assert!(
            json.starts_with(r#"{"journals":0,"#) && json.trim_end().ends_with(told),
            "{json}"
        );
    }
}
