//! The way to the embedded ledger: which commands may make a new one, and how others are waited for.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::clock::monotonic;
use crate::config::{Config, Store};
use crate::ledger::StoreError;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::control::{LedgerAccess, OWNER_PAUSE, OWNER_WAIT_MAX};

/// Whether it begins a business, and with it a ledger where there is none.
pub(super) fn begins(op: &AdminOp) -> bool {
    matches!(
        op,
        AdminOp::AccountCreate { .. } | AdminOp::Operator(OperatorOp::Create { .. })
    )
}

/// What to tell of a new ledger that a command which begins a business is about to make: there may be one elsewhere that was meant. Nothing
/// where there is one; what cannot be looked at, the command itself finds out.
pub(in crate::cli) fn new_ledger(config: &Config) -> Option<String> {
    let Store::Sqlite(path) = &config.store else {
        return None;
    };
    LedgerAccess::is_new(path).then(|| {
        let at = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        format!("there was no ledger at {}: a new one begins there", at.display())
    })
}

/// The way to a ledger that is made where it is missing.
pub(in crate::cli) fn open(path: &Path) -> Result<LedgerAccess, StoreError> {
    waited_for(|| LedgerAccess::to_embedded(path))
}

/// The way to one that is there. Makes nothing where there is none: a new one, empty and with books that balance, would be taken for that
/// which was there, or is elsewhere.
pub(super) fn existing(path: &Path, conf: &Path) -> Result<LedgerAccess, Failure> {
    let found = waited_for(|| LedgerAccess::to_existing(path))?;
    found.ok_or_else(|| {
        Failure::new(format!(
            "there is no ledger at {}: look at store and data_dir in {}; `tollgate serve` and `tollgate account create` begin one",
            // What is relative is looked for below the folder of the command, which is often the wrong one.
            std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display(),
            conf.display()
        ))
    })
}

/// Another command, or a gateway on its way up or down, owns the file for a moment without answering: that is waited for.
fn waited_for<T>(open: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let started = monotonic();
    loop {
        match open() {
            Err(StoreError::Owned(_)) if started.elapsed() < OWNER_WAIT_MAX => std::thread::sleep(OWNER_PAUSE),
            other => return other,
        }
    }
}
