//! Journals of gateways that ended: how many wait, which were put aside, and what is billed of them before a command counts on the balance.

use std::collections::HashSet;
use std::path::PathBuf;

use super::run_as_this_user;
use crate::cli::failure::Failure;
use crate::cli::output::line;
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::ledger::admin::{AdminOp, RecoverReport};
use crate::ledger::control::{LedgerAccess, takes_credit};
use crate::ledger::journal::recover::{acknowledged, put_aside, recover_by_hand, waiting};
use crate::ledger::journal::{UnknownKeys, follow};
use crate::ledger::{Ledger, ReceiptFiles, StoreError};

/// How many journals of processes that died wait on this machine. None for a gateway elsewhere, whose folder cannot be seen from here.
pub(in crate::cli) fn waiting_of(config: &Config) -> Option<u64> {
    is_here(config).then(|| waiting(&config.data_dir))
}

/// How many journals on this machine nobody has in hand of which Redis has acknowledged all; as [`waiting_of`].
pub(super) fn acknowledged_of(config: &Config) -> Option<u64> {
    is_here(config).then(|| acknowledged(&config.data_dir))
}

fn is_here(config: &Config) -> bool {
    match &config.store {
        Store::Remote(_) => false,
        Store::Sqlite(_) | Store::Redis(_) | Store::Missing(_) => true,
    }
}

/// How many of those are another ledger's, as the embedded ledger keeps none. Of those beside a ledger in Redis a recovery says what becomes
/// of them: they are kept for a while, or refused.
pub(super) fn acknowledged_elsewhere(config: &Config) -> u64 {
    match &config.store {
        Store::Sqlite(_) => acknowledged(&config.data_dir),
        Store::Redis(_) | Store::Missing(_) | Store::Remote(_) => 0,
    }
}

/// The journals on this machine that were put aside, for not all that stands in them could be billed; as [`waiting_of`].
pub(super) fn refused_of(config: &Config) -> Option<Vec<String>> {
    is_here(config).then(|| {
        let paths = put_aside(&config.data_dir).into_iter();
        paths.map(|path| path.display().to_string()).collect()
    })
}

/// Appends how many journals wait, when some are known to.
pub(in crate::cli) fn tell_waiting(text: &mut String, journals: Option<u64>) {
    let (journals, verb) = match journals.unwrap_or(0) {
        0 => return,
        1 => ("1 journal of a process that died".to_owned(), "waits"),
        more => (format!("{more} journals of processes that died"), "wait"),
    };
    line(
        text,
        format_args!("{journals} {verb}: tollgate ledger recover resolves what it can, and says what keeps the rest"),
    );
}

/// Appends that nobody knows here how many journals wait, where that is so.
pub(super) fn tell_unknown(text: &mut String, journals: Option<u64>) {
    if journals.is_none() {
        text.push_str(
            "whether calls of processes that died wait in journals there, the gateway's own machine alone tells\n",
        );
    }
}

/// Appends how many journals there are of which Redis has acknowledged all, when there are some.
pub(super) fn tell_acknowledged(text: &mut String, journals: u64) {
    let (journals, verb, them) = match journals {
        0 => return,
        1 => ("1 journal".to_owned(), "waits", "it"),
        more => (format!("{more} journals"), "wait", "them"),
    };
    line(
        text,
        format_args!(
            "{journals} of which Redis has acknowledged all {verb}: a gateway on that Redis, or tollgate ledger recover on it, asks it \
             once more, and deletes {them} after a minute"
        ),
    );
}

/// Resolves the journals that wait, with the receipts that go with them, and logs that as an act of this user's. The report, and the journals
/// that wait still.
///
/// # Errors
/// When the files of receipts cannot be written: then nothing is done.
pub(super) fn recover_now(
    config: &Config,
    access: &LedgerAccess,
    (ledger, keys): (&Ledger, UnknownKeys),
) -> Result<(RecoverReport, HashSet<PathBuf>), Failure> {
    if let Some(folder) = &config.receipts.files {
        let files = ReceiptFiles::start(folder, config.receipts.files_keep_days, Clock::System)
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        ledger.write_receipts_to(&files); // Its last owner is the ledger, whose end writes what is left.
    }
    let (mut report, wait) = recover_by_hand(&config.data_dir, ledger, keys);
    if let Err(error) = run_as_this_user(access, AdminOp::NoteRecovered(report.clone())) {
        let unlogged = format!("the log does not say what was recovered: {error}");
        report.refused.push(unlogged);
    }
    Ok((report, wait))
}

/// Before a command that takes credit from the embedded ledger of no running gateway: bills what waits in journals, as `tollgate ledger
/// recover` does. What calls of a gateway that died have used is not in the balance before that, nor held. One may also run still that has
/// handed the ledger over to another, which died: what its calls hold is held, and what they owe is taken.
///
/// # Errors
/// As [`recover_now`].
pub(super) fn recover_before(op: &AdminOp, access: &LedgerAccess, config: &Config) -> Result<(), Failure> {
    let LedgerAccess::Own(ledger @ Ledger::Embedded(_)) = access else {
        return Ok(()); // A gateway that runs does this by itself; in Redis the calls' holds stand.
    };
    if !takes_credit(op) {
        return Ok(());
    }
    if waiting(&config.data_dir) > 0 {
        recover_now(config, access, (ledger, UnknownKeys::Wait))?;
    }
    follow::read_once(&config.data_dir, ledger);
    Ok(())
}
