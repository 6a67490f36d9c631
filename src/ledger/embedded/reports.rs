//! Usage for callers. The ledger's own thread only writes out what is queued; the rows are read beside it, and an account has one report
//! made at a time, so that a key that asks again and again holds up nobody else.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminReply, AuditReport};
use crate::ledger::sqlite::Reader;
use crate::pure::time::Day;

/// What makes reports.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    reader: Arc<Mutex<Reader>>,
    /// For audits, which read for longer.
    witness: Arc<Mutex<Reader>>,
}

impl Reports {
    pub(super) fn open(path: &Path) -> Result<Reports, StoreError> {
        let reader = Arc::new(Mutex::new(Reader::open(path)?));
        let witness = Arc::new(Mutex::new(Reader::open(path)?));
        Ok(Reports { reader, witness })
    }

    /// An audit with what receipts say of it.
    pub(super) fn witnessed(&self, mut report: AuditReport, today: Day) -> Result<AdminReply, AdminError> {
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        witness
            .witness(today, &mut report.findings)
            .map_err(|error| AdminError::Store(error.to_string()))?;
        Ok(AdminReply::Audit(report))
    }

    /// Reads the file. Blocks, also while another reads.
    pub(super) fn read<T>(&self, what: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.read_as_asked(what)
    }

    /// The same for what may also be asked for wrongly.
    pub(super) fn read_as_asked<T, E>(&self, what: impl FnOnce(&Reader) -> Result<T, E>) -> Result<T, E> {
        what(&self.reader.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(super) fn held_up(&self) -> std::sync::MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest that a caller waits for a report.
pub(super) const REPORT_MAX: Duration = Duration::from_secs(5);
