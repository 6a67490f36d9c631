//! What is read of an account's usage and receipts, every settlement before it included.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::reports::REPORT_MAX;
use super::shared::EmbeddedAccount;
use crate::ledger::admin::{ReceiptPage, ReceiptQuery};
use crate::ledger::query::{EndUserQuery, EndUserUsage, KeyedRow, UsageQuery};
use crate::ledger::sqlite::Reader;
use crate::ledger::{STOPPED, StoreError};
use crate::pure::ids::AccountId;

impl Embedded {
    /// The usage that is asked for, by UTC day and model, oldest first; every settlement made before the call is in it.
    ///
    /// # Errors
    /// When there is no such account, the file cannot be written or read, or reports take too long; [`StoreError::Busy`] when too many are
    /// asked for.
    pub(in crate::ledger) async fn usage(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
        let account = query.account.clone();
        self.in_turn(&account, self.report(query)).await
    }

    /// Makes a report of an account, once those that were asked for before it are made.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when its turn does not come in time, and what the report says.
    pub(super) async fn in_turn<T>(
        &self,
        account: &AccountId,
        report: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let cell = self.reported(account)?;
        let Ok(_turn) = tokio::time::timeout(REPORT_MAX, cell.reporting.lock()).await else {
            return Err(StoreError::Busy(
                "reports of the account are asked for faster than they can be made".to_owned(),
            ));
        };
        let late = |_| StoreError::Unavailable("a report takes too long".to_owned());
        tokio::time::timeout(REPORT_MAX, report).await.map_err(late)?
    }

    async fn report(&self, query: UsageQuery) -> Result<Vec<KeyedRow>, StoreError> {
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
        let account = query.account.clone();
        self.in_turn(&account, self.end_users_report(query)).await
    }

    async fn end_users_report(&self, query: EndUserQuery) -> Result<EndUserUsage, StoreError> {
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
        let stopped = |_| StoreError::Unavailable(STOPPED.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::tests::rig::{NOW, Rig, block_on};
    use crate::pure::time::{Days, Period};

    /// They wait as long as callers do.
    #[test]
    fn reports_of_one_account_that_wait_for_too_long_say_that_they_are_too_many() {
        let rig = Rig::embedded();
        let (acme, other) = (rig.caller("1"), rig.caller_of("other", "1", Default::default()));
        let (account, other) = (acme.account.id.clone(), other.account.id.clone());
        let Ledger::Embedded(store) = &rig.ledger else {
            panic!("the store in Redis");
        };
        let cell = store.reported(&account).unwrap();
        let today = NOW.day();
        let by_end_user = EndUserQuery {
            account: account.clone(),
            key: None,
            days: Days::Span { from: today, to: today },
        };
        block_on(async {
            let turn = cell.reporting.lock().await;
            let (usage, end_users, calls) = tokio::join!(
                rig.ledger.usage(&account, None, Period::All),
                rig.ledger.end_users(by_end_user),
                rig.ledger.receipts(ReceiptQuery::newest(&account, 1)),
            );
            assert!(matches!(usage, Err(StoreError::Busy(_))), "{usage:?}");
            assert!(matches!(end_users, Err(StoreError::Busy(_))), "{end_users:?}");
            assert!(matches!(calls, Err(StoreError::Busy(_))), "{calls:?}");
            assert_eq!(rig.ledger.usage(&other, None, Period::All).await, Ok(Vec::new()));
            drop(turn);
            assert_eq!(rig.ledger.usage(&account, None, Period::All).await, Ok(Vec::new()));
        });
    }
}
