//! What is read of an account's usage and receipts, every settlement before it included.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::reports::REPORT_MAX;
use super::shared::EmbeddedAccount;
use crate::ledger::StoreError;
use crate::ledger::admin::{ReceiptPage, ReceiptQuery};
use crate::ledger::query::{EndUserQuery, EndUserUsage, KeyedRow, UsageQuery};
use crate::ledger::sqlite::Reader;
use crate::pure::ids::AccountId;

impl Embedded {
    /// The usage that is asked for, by UTC day and model, oldest first; every settlement made before the call is in it.
    ///
    /// # Errors
    /// When there is no such account, the file cannot be written or read, or reports take too long.
    pub(in crate::ledger) async fn usage(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
        let late = |_| StoreError::Unavailable("usage is asked for faster than it can be read".to_owned());
        tokio::time::timeout(REPORT_MAX, self.report(query))
            .await
            .map_err(late)?
    }

    async fn report(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
        let cell = self.reported(&query.account)?;
        let _turn = cell.reporting.lock().await;
        if !self.is_ours() {
            let asked = self.usage_at_successor(query.clone()).await;
            if asked.is_ok() || !self.is_ours() {
                return asked;
            }
        }
        self.flush().await?;
        let today = self.shared.clock.now().day();
        self.read(move |reader| reader.usage(&query, today)).await
    }

    /// Usage by end user; every settlement made before the call is in it.
    ///
    /// # Errors
    /// As [`Embedded::usage`], and when a receipt of these days cannot be read.
    pub(in crate::ledger) async fn end_users(&self, query: EndUserQuery) -> Result<EndUserUsage, StoreError> {
        let late = |_| StoreError::Unavailable("usage is asked for faster than it can be read".to_owned());
        tokio::time::timeout(REPORT_MAX, self.end_users_report(query))
            .await
            .map_err(late)?
    }

    async fn end_users_report(&self, query: EndUserQuery) -> Result<EndUserUsage, StoreError> {
        let cell = self.reported(&query.account)?;
        let _turn = cell.reporting.lock().await;
        if !self.is_ours() {
            let asked = self.end_users_at_successor(query.clone()).await;
            if asked.is_ok() || !self.is_ours() {
                return asked;
            }
        }
        self.flush().await?;
        let today = self.shared.clock.now().day();
        self.read(move |reader| reader.end_users(&query, today)).await
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
    pub(super) async fn read<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reports = self.reports.clone();
        let read = move || reports.read(what);
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| StoreError::Unavailable(format!("the report failed: {error}")))?
    }
}
