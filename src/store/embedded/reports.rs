//! Usage for callers. The ledger's own thread only writes out what is queued; the rows are read beside it, and an account has one report
//! made at a time, so that a key that asks again and again holds up nobody else.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Embedded;
use super::committer::Command;
use crate::pure::ids::AccountId;
use crate::pure::time::Period;
use crate::store::sqlite::Reader;
use crate::store::{StoreError, UsageRow};

/// What makes reports.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    reader: Arc<Mutex<Reader>>,
}

impl Reports {
    pub(super) fn open(path: &Path) -> Result<Reports, StoreError> {
        let reader = Arc::new(Mutex::new(Reader::open(path)?));
        Ok(Reports { reader })
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
    pub(in crate::store) async fn usage(
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
        let cell = {
            let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
            accounts.get(account).cloned()
        };
        let cell = cell.ok_or_else(|| StoreError::Corrupt("the account is not there".to_owned()))?;
        let _turn = cell.reporting.lock().await;
        if !self.is_ours() {
            let asked = self.usage_at_successor(account, period).await;
            if asked.is_ok() || !self.is_ours() {
                return asked;
            }
        }
        let (written, is_written) = oneshot::channel();
        let stopped = || StoreError::Unavailable("the ledger has stopped".to_owned());
        self.tell(Command::Flush(written))?;
        is_written.await.map_err(|_| stopped())??;
        let from = period.first_day(self.shared.clock.now().day());
        let (reports, account) = (self.reports.clone(), account.clone());
        let read = move || {
            let reader = reports.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.usage(&account, from)
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| StoreError::Unavailable(format!("the report failed: {error}")))?
    }
}

/// The longest that a caller waits for a report.
const REPORT_MAX: Duration = Duration::from_secs(5);
