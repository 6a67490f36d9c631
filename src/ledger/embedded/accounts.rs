//! Accounts as a business has them: their terms, and pages of many. Pages are read from memory, not on the ledger's thread.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use super::commands::{failed, read_beside};
use super::shared::{EmbeddedAccount, Shared};
use super::writer::Committer;
use crate::ledger::AccountRecord;
use crate::ledger::admin::accounts::{AccountOp, AccountPage, AccountQuery};
use crate::ledger::admin::{AccountView, AdminError, AdminReply};
use crate::ledger::terms::TermsChange;
use crate::pure::ids::AccountId;

impl Shared {
    /// A page of accounts.
    pub(super) fn account_page(&self, query: &AccountQuery) -> AccountPage {
        let limit = query.limit();
        let after = match &query.after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Unbounded,
        };
        let cells: Vec<Arc<EmbeddedAccount>> = {
            let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
            let mut search = query.search();
            let those = accounts.range((after, Bound::Unbounded));
            let found = those.filter(|(id, _)| search.finds(id)).take(limit.saturating_add(1));
            found.map(|(_, cell)| Arc::clone(cell)).collect()
        };
        let has_more = cells.len() > limit;
        let accounts: Vec<AccountView> = cells.iter().take(limit).map(|cell| self.account_view(cell)).collect();
        AccountPage::of(accounts, has_more)
    }

    /// Those of some accounts that may not call.
    pub(super) fn stopped(&self, names: &[AccountId]) -> Vec<AccountView> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let those = names.iter().filter_map(|name| accounts.get(name));
        let stopped = those.filter(|cell| cell.stop().is_some());
        stopped.map(|cell| self.account_view(cell)).collect()
    }

    /// An account without its keys.
    pub(super) fn account_view(&self, cell: &EmbeddedAccount) -> AccountView {
        AccountView {
            record: AccountRecord::clone(&cell.record.load()),
            figures: cell.figures(&self.clock),
            open_holds: u64::try_from(cell.state().open_holds()).unwrap_or(u64::MAX),
            keys: Vec::new(),
        }
    }
}

impl Committer {
    pub(super) fn account_op(&mut self, op: AccountOp) -> Result<AdminReply, AdminError> {
        match op {
            AccountOp::Terms { account, change } => self.set_terms(&account, &change),
            AccountOp::Page(_) | AccountOp::Stopped { .. } => Err(read_beside()),
        }
    }

    fn set_terms(&mut self, account: &AccountId, change: &TermsChange) -> Result<AdminReply, AdminError> {
        let cell = self.cell(account)?;
        let mut record = AccountRecord::clone(&cell.record.load());
        record.terms = record.terms.changed(change).map_err(AdminError::Invalid)?;
        self.database.set_terms(account, &record.terms).map_err(failed)?;
        cell.set_record(record);
        Ok(AdminReply::Account(self.view(&cell, true)))
    }
}
