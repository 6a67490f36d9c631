//! What a recovery tells, and what of it was told before.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::ledger::admin::RecoverReport;

/// What was told of journals that wait, and is not told again.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Journals that wait for another ledger; and the folder, where that was told of too many open files.
    pub(super) waiting: HashSet<PathBuf>,
    /// Journals with calls of whose keys the store did not say, when it was asked last, whether it has them.
    pub(super) unasked: HashSet<PathBuf>,
}

impl Told {
    /// Whether it was told of the journal that it waits.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.waiting.contains(path) || self.unasked.contains(path)
    }
}

/// Tells what an operator has to look at.
pub(super) fn refuse(report: &mut RecoverReport, line: String) {
    log::error!("MONEY: {line}");
    report.refused.push(line);
}
