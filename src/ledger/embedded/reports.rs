//! Usage for callers. The ledger's own thread only writes out what is queued; the rows are read beside it, and an account has one report
//! made at a time, so that a key that asks again and again holds up nobody else.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AuditReport};
use crate::ledger::sqlite::Reader;
use crate::pure::time::Day;

/// What makes reports.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    reader: Arc<Mutex<Reader>>,
    /// For operators, whose reads are longer.
    operators: Arc<[Mutex<Reader>; OPERATORS_AT_ONCE]>,
    /// For audits, which read for longer.
    witness: Arc<Mutex<Reader>>,
}

impl Reports {
    pub(super) fn open(path: &Path) -> Result<Reports, StoreError> {
        let reader = Arc::new(Mutex::new(Reader::open(path)?));
        let witness = Arc::new(Mutex::new(Reader::open(path)?));
        let operators = Arc::new([Mutex::new(Reader::open(path)?), Mutex::new(Reader::open(path)?)]);
        Ok(Reports {
            reader,
            operators,
            witness,
        })
    }

    /// An audit with what receipts say of it.
    pub(super) fn witnessed(&self, mut report: AuditReport, today: Day) -> Result<AuditReport, AdminError> {
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        witness
            .witness(today, &mut report.findings)
            .map_err(|error| AdminError::Store(error.to_string()))?;
        Ok(report)
    }

    /// Reads the file. Blocks, also while another reads.
    pub(super) fn read<T>(&self, what: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        what(&self.reader.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file for an operator: what is long there holds up no caller's report. Blocks, also while others read.
    pub(super) fn read_for_operators<T, E>(&self, what: impl FnOnce(&Reader) -> Result<T, E>) -> Result<T, E> {
        let [first, second] = &*self.operators;
        let reader = match first.try_lock() {
            Ok(reader) => reader,
            Err(_) => second.lock().unwrap_or_else(PoisonError::into_inner),
        };
        what(&reader)
    }

    #[cfg(test)]
    pub(super) fn held_up(&self) -> std::sync::MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads of operators that run at once.
const OPERATORS_AT_ONCE: usize = 2;
/// The longest that a caller waits for its turn, and then for its report.
pub(super) const REPORT_MAX: Duration = Duration::from_secs(5);
