//! Receipts of the embedded ledger: made with each group that is written, and found for whoever asks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Embedded;
use super::shared::{EmbeddedAccount, billed};
use crate::clock::monotonic;
use crate::ledger::admin::{ReceiptPage, ReceiptQuery};
use crate::ledger::query::{RunningCall, SETTLEMENT_WITHIN, Standing};
use crate::ledger::{Debit, ReceiptFiles, StoreError};
use crate::pure::ids::AccountId;
use crate::pure::receipt::Receipt;

impl Embedded {
    /// Receipts of an account, newest first; those of every settlement made before the call are among them. Where one call is asked for
    /// that is only just ending, that is waited for.
    ///
    /// # Errors
    /// As [`Embedded::usage`].
    pub(in crate::ledger) async fn receipts(&self, query: ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        let asked = monotonic();
        loop {
            // Before the receipts are read: a settlement that comes between is among them.
            let standing = match self.reported(&query.account) {
                Ok(cell) => standing(&cell, &query),
                Err(_) => Standing::Gone,
            };
            let page = self.in_turn(&query.account, self.page(query.clone())).await?;
            match answer(page, standing, asked.elapsed()) {
                Ok(page) => return Ok(page),
                Err(()) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
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

/// What is known of the call that is asked for, if it is one, beside its receipt.
pub(super) fn standing(cell: &EmbeddedAccount, query: &ReceiptQuery) -> Standing {
    let Some(call) = query.call() else {
        return Standing::Gone;
    };
    let state = cell.state();
    let held = call.id.and_then(|id| Some((id, state.held_by(id)?)));
    match held {
        Some((id, (held, scope))) => Standing::Held(RunningCall {
            id,
            held,
            key: scope.key().cloned(),
        }),
        None => Standing::without_hold(&call, state.open_holds() > 0),
    }
}

/// The answer to whoever asked so long ago; none where it is to be asked again.
pub(super) fn answer(mut page: ReceiptPage, standing: Standing, waited: Duration) -> Result<ReceiptPage, ()> {
    match standing {
        _ if !page.receipts.is_empty() || page.running.is_some() => {}
        Standing::Gone => {}
        _ if waited < SETTLEMENT_WITHIN => return Err(()),
        Standing::Perhaps => {}
        Standing::Held(running) => page.running = Some(running),
    }
    Ok(page)
}

type Named = (crate::pure::ids::RequestId, crate::pure::numbers::CallNumber);

pub(super) const ASK_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::rig::{credits, request};

    #[test]
    fn a_call_that_may_be_ending_is_asked_for_again_until_its_debit_must_be_there() {
        let ending = || {
            Standing::Held(RunningCall {
                id: request(1, "1").id,
                held: credits("1"),
                key: None,
            })
        };
        let soon = SETTLEMENT_WITHIN.checked_sub(Duration::from_millis(1)).unwrap();
        let answer = |standing, waited| answer(ReceiptPage::default(), standing, waited);
        assert!(answer(Standing::Gone, Duration::ZERO).unwrap().running.is_none());
        assert!(answer(Standing::Perhaps, soon).is_err());
        assert!(answer(Standing::Perhaps, SETTLEMENT_WITHIN).unwrap().running.is_none());
        assert!(answer(ending(), soon).is_err());
        let running = answer(ending(), SETTLEMENT_WITHIN).unwrap().running.unwrap();
        assert_eq!(running.held, credits("1"));
        let known = ReceiptPage {
            running: Some(running),
            ..ReceiptPage::default()
        };
        assert!(super::answer(known, ending(), Duration::ZERO).is_ok());
    }
}
