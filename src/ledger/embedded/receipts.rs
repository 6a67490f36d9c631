//! Receipts of the embedded ledger: made with each group that is written, and found for whoever asks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Embedded;
use super::shared::billed;
use crate::clock::monotonic;
use crate::ledger::admin::{AdminError, AdminReply, ReceiptPage, ReceiptQuery};
use crate::ledger::{Debit, ReceiptFiles, StoreError};
use crate::pure::ids::AccountId;
use crate::pure::receipt::Receipt;

impl Embedded {
    /// Receipts of an account, newest first; those of every settlement made before the call are among them. Where one request is asked
    /// for whose call is only just ending, that is waited for.
    ///
    /// # Errors
    /// As [`Embedded::usage`].
    pub(in crate::ledger) async fn receipts(&self, query: ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        let asked = monotonic();
        while self.is_under_way(&query) && asked.elapsed() < ENDING_MAX {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        let late = |_| StoreError::Unavailable("receipts are asked for faster than they can be read".to_owned());
        tokio::time::timeout(super::reports::REPORT_MAX, self.page(query))
            .await
            .map_err(late)?
    }

    /// The same from a thread that is on no runtime.
    pub(super) fn receipts_blocking(&self, query: &ReceiptQuery) -> Result<AdminReply, AdminError> {
        let asked = monotonic();
        while self.is_under_way(query) && asked.elapsed() < ENDING_MAX {
            std::thread::sleep(ASK_AGAIN);
        }
        self.ask_thread(crate::ledger::admin::AdminOp::Receipts(query.clone()))
    }

    /// Whether the call that is asked for holds credit yet.
    fn is_under_way(&self, query: &ReceiptQuery) -> bool {
        let cell = self.reported(&query.account).ok();
        query
            .id
            .is_some_and(|id| cell.is_some_and(|cell| cell.state().is_held(id)))
    }

    /// Where receipts are written to as well.
    pub(in crate::ledger) fn receipt_files(&self) -> &OnceLock<Arc<ReceiptFiles>> {
        &self.shared.receipt_files
    }

    /// Writes to the files what a dead process left, and its own process may not have written there.
    pub(super) fn write_again(&self, account: &AccountId, (id, number): Named, debit: &Debit) {
        if let Some(files) = self.shared.receipt_files.get() {
            let resolved = self.shared.clock.now();
            let billed = billed(account, (id, number), debit);
            files.push(Receipt { resolved, billed });
        }
    }
}

type Named = (crate::pure::ids::RequestId, crate::pure::numbers::CallNumber);

/// For how long a call that is ending is waited for: its client may have the answer's last byte just before it is billed.
const ENDING_MAX: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(2);
