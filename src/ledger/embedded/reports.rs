//! Usage for callers. The ledger's own thread only writes out what is queued; the rows are read beside it, and an account has one report
//! made at a time, so that a key that asks again and again holds up nobody else.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::writer::Command;
use super::{Embedded, EmbeddedAccount};
use crate::ledger::admin::{AdminError, AdminReply, AuditReport, ReceiptPage, ReceiptQuery};
use crate::ledger::sqlite::Reader;
use crate::ledger::{StoreError, UsageRow};
use crate::pure::ids::AccountId;
use crate::pure::time::{Day, Period};

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

    #[cfg(test)]
    pub(super) fn held_up(&self) -> std::sync::MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Embedded {
    /// The account's usage by UTC day and model, oldest first; every settlement made before the call is in it.
    ///
    /// # Errors
    /// When there is no such account, the file cannot be written or read, or reports take too long.
    pub(in crate::ledger) async fn usage(
        &self,
        account: &AccountId,
        period: Period,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let late = |_| StoreError::Unavailable("usage is asked for faster than it can be read".to_owned());
        tokio::time::timeout(REPORT_MAX, self.report(account, period))
            .await
            .map_err(late)?
    }

    async fn report(&self, account: &AccountId, period: Period) -> Result<Vec<UsageRow>, StoreError> {
        let cell = self.reported(account)?;
        let _turn = cell.reporting.lock().await;
        if !self.is_ours() {
            let asked = self.usage_at_successor(account, period).await;
            if asked.is_ok() || !self.is_ours() {
                return asked;
            }
        }
        self.flush().await?;
        let from = period.first_day(self.shared.clock.now().day());
        let account = account.clone();
        self.read(move |reader| reader.usage(&account, from)).await
    }

    pub(super) async fn page(&self, query: ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        let cell = self.reported(&query.account)?;
        let _turn = cell.reporting.lock().await;
        if !self.is_ours() {
            let asked = self.receipts_at_successor(query.clone()).await;
            if asked.is_ok() || !self.is_ours() {
                return asked;
            }
        }
        self.flush().await?;
        self.read(move |reader| reader.page(&query)).await
    }

    /// The account that a report is of.
    pub(super) fn reported(&self, account: &AccountId) -> Result<Arc<EmbeddedAccount>, StoreError> {
        let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let cell = accounts.get(account).cloned();
        cell.ok_or_else(|| StoreError::Corrupt("the account is not there".to_owned()))
    }

    /// Brings what is queued into the file.
    async fn flush(&self) -> Result<(), StoreError> {
        let (written, is_written) = oneshot::channel();
        self.tell(Command::Flush(written))?;
        let stopped = |_| StoreError::Unavailable("the ledger has stopped".to_owned());
        is_written.await.map_err(stopped)?
    }

    /// Reads the file beside the thread that owns it.
    async fn read<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reports = self.reports.clone();
        let read = move || what(&reports.reader.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| StoreError::Unavailable(format!("the report failed: {error}")))?
    }
}

/// The longest that a caller waits for a report.
pub(super) const REPORT_MAX: Duration = Duration::from_secs(5);
