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
    /// Journals that could not be opened.
    pub(super) unopened: HashSet<PathBuf>,
}

impl Told {
    /// Whether it was told of the journal that it waits.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.waiting.contains(path) || self.unasked.contains(path)
    }
}

/// What was found in journals of processes that have ended.
pub(super) struct Recovered {
    pub(super) report: RecoverReport,
    /// Some call ran when its process ended.
    pub(super) were_running: bool,
}

impl Recovered {
    /// Whether every call was over when its process ended, and nothing waits for somebody to look at it.
    pub(super) fn is_in_order(&self) -> bool {
        !self.were_running && self.report.refused.is_empty()
    }

    /// Tells that processes have died.
    pub(super) fn told_as_died(self) -> RecoverReport {
        let report = self.report;
        if report.journals > 0 {
            log::warn!(
                "recovered {} journals of dead processes: {} debits taken, {} known before, {} holds given back, {} refused",
                report.journals,
                report.settled,
                report.already,
                report.released,
                report.refused.len()
            );
        }
        report
    }

    /// Tells that processes before this one have ended as they should.
    pub(super) fn told_as_ended(self) -> RecoverReport {
        let report = self.report;
        if report.journals > 0 {
            log::info!(
                "closed {} journals of processes before this one that have ended: {} debits taken, {} known before, {} holds given back",
                report.journals,
                report.settled,
                report.already,
                report.released
            );
        }
        report
    }
}

/// Tells what an operator has to look at.
pub(super) fn refuse(report: &mut RecoverReport, line: String) {
    log::error!("MONEY: {line}");
    report.refused.push(line);
}
