//! Credit entries: an amount that takes something away is taken from memory first, where the holds are, and one that adds is added to the
//! file first, so that at no moment more can be spent than both have.

use tokio::sync::oneshot;

use super::Embedded;
use super::command::Command;
use super::commands::failed;
use super::shared::EmbeddedAccount;
use super::writer::Committer;
use crate::ledger::StoreError;
use crate::ledger::admin::credits::{CreditOp, CreditPost, Posted, Statement};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::sqlite::Reader;
use crate::ledger::sqlite::credits::{Untold, Written};
use crate::pure::account::post::PostRefusal;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Day;

impl From<Untold> for AdminError {
    fn from(untold: Untold) -> AdminError {
        match untold {
            Untold::Invalid(why) => AdminError::Invalid(why),
            Untold::Failed(error) => failed(error),
        }
    }
}

/// What is read of an account's credit.
#[derive(Clone, Debug)]
pub(super) enum CreditQuery {
    List {
        account: AccountId,
        limit: u32,
        before: Option<String>,
    },
    Statement {
        account: AccountId,
        days: (Day, Day),
    },
}

impl CreditQuery {
    /// What a command asks for, if it is one that reads.
    pub(super) fn asked(op: &AdminOp) -> Option<CreditQuery> {
        match op {
            AdminOp::Credit(op) => CreditQuery::of(op.clone()).ok(),
            _ => None,
        }
    }

    /// # Errors
    /// Gives what a command posts that does so.
    fn of(op: CreditOp) -> Result<CreditQuery, CreditPost> {
        match op {
            CreditOp::Post(post) => Err(post),
            CreditOp::List { account, limit, before } => Ok(CreditQuery::List { account, limit, before }),
            CreditOp::Statement { account, from, to } => Ok(CreditQuery::Statement {
                account,
                days: (from, to),
            }),
        }
    }

    fn account(&self) -> &AccountId {
        match self {
            CreditQuery::List { account, .. } | CreditQuery::Statement { account, .. } => account,
        }
    }

    /// # Errors
    /// Says what is wrong with it.
    fn check(&self) -> Result<(), AdminError> {
        match self {
            CreditQuery::List { .. } => Ok(()),
            CreditQuery::Statement { days: (from, to), .. } => {
                Statement::check_days(*from, *to).map_err(AdminError::Invalid)
            }
        }
    }

    fn read(&self, reader: &Reader) -> Result<AdminReply, Untold> {
        match self {
            CreditQuery::List { account, limit, before } => reader
                .credits(account, *limit, before.as_deref())
                .map(AdminReply::CreditPage),
            CreditQuery::Statement { account, days } => reader.statement(account, *days).map(AdminReply::Statement),
        }
    }
}

impl Embedded {
    /// Reads beside the ledger's thread, which only writes out what is queued before.
    pub(super) async fn credit_query(&self, query: CreditQuery) -> Result<AdminReply, AdminError> {
        self.check_query(&query)?;
        let (written, is_written) = oneshot::channel();
        self.tell(Command::Flush(written)).map_err(failed)?;
        is_written.await.map_err(|_| stopped())?.map_err(failed)?;
        let reports = self.reports.clone();
        let read = move || reports.read_as_asked(|reader| query.read(reader));
        let read = tokio::task::spawn_blocking(read).await.map_err(|_| stopped())?;
        Ok(read?)
    }

    /// The same from a thread that is on no runtime.
    pub(super) fn credit_query_blocking(&self, query: &CreditQuery) -> Result<AdminReply, AdminError> {
        self.check_query(query)?;
        let (written, is_written) = oneshot::channel();
        self.tell(Command::Flush(written)).map_err(failed)?;
        is_written.blocking_recv().map_err(|_| stopped())?.map_err(failed)?;
        Ok(self.reports.read_as_asked(|reader| query.read(reader))?)
    }

    fn check_query(&self, query: &CreditQuery) -> Result<(), AdminError> {
        let unknown = |_| AdminError::NoAccount(query.account().clone());
        self.reported(query.account()).map_err(unknown)?;
        query.check()
    }
}

impl Committer {
    pub(super) fn credit_op(&mut self, op: CreditOp) -> Result<AdminReply, AdminError> {
        let query = match CreditQuery::of(op) {
            Ok(query) => query,
            Err(post) => return self.post(&post).map(AdminReply::Posted),
        };
        self.cell(query.account())?;
        query.check()?;
        self.commit().map_err(failed)?;
        Ok(match query {
            CreditQuery::List { account, limit, before } => {
                AdminReply::CreditPage(self.database.credits(&account, limit, before.as_deref())?)
            }
            CreditQuery::Statement { account, days } => AdminReply::Statement(self.database.statement(&account, days)?),
        })
    }

    /// A top-up as it was before entries had a kind.
    pub(super) fn add_credits(
        &mut self,
        account: AccountId,
        amount: Credits,
        reference: String,
    ) -> Result<AdminReply, AdminError> {
        let Posted { added, balance, .. } = self.post(&CreditPost::top_up(account, amount, reference))?;
        Ok(AdminReply::Credited { added, balance })
    }

    fn post(&mut self, post: &CreditPost) -> Result<Posted, AdminError> {
        let cell = self.cell(&post.account)?;
        post.check().map_err(AdminError::Invalid)?;
        // The file adds to the balance that it has, so it gets the debits that are queued first.
        self.commit().map_err(failed)?;
        self.resolve_doubts(&cell, &post.account)?;
        let before = self.database.credit_entry(&post.account, &post.reference);
        let written = match before.map_err(failed)? {
            Some(entry) if post.is_same_as(&entry) => Written::Already(entry),
            Some(_) => Written::Conflict,
            None => {
                let terms = &cell.record.load().terms;
                post.allowed_by(terms).map_err(AdminError::Invalid)?;
                self.post_new(&cell, post)?
            }
        };
        let (added, entry) = match written {
            Written::Added(entry) => (true, entry),
            Written::Already(entry) => (false, entry),
            Written::Conflict => return Err(AdminError::ReferenceConflict(post.reference.clone())),
            Written::OutOfRange => return Err(AdminError::Invalid(post.out_of_range())),
        };
        let balance = cell.state().balance();
        Ok(Posted { added, balance, entry })
    }

    fn post_new(&mut self, cell: &EmbeddedAccount, post: &CreditPost) -> Result<Written, AdminError> {
        let takes = post.amount < Credits::ZERO;
        if takes {
            take(cell, post, self.shared.clock.now())?;
        }
        let written = self.write(post);
        let is_written = matches!(written, Ok(Written::Added(_)));
        let amount = match (takes, is_written) {
            (true, true) | (false, false) => None,
            (true, false) => Credits::ZERO.checked_sub(post.amount),
            (false, true) => Some(post.amount),
        };
        let mend = |amount| {
            let mut state = cell.state();
            let mended = state.post(amount, true);
            if is_written && !takes {
                cell.told.credited(&state);
            }
            mended.is_err()
        };
        if amount.is_some_and(mend) {
            // Debits only lower a balance, so what fitted a moment ago still fits.
            let CreditPost { account, amount, .. } = post;
            log::error!("MONEY: an entry of {amount} for {account} is not in memory as it is in the file");
        }
        written.map_err(failed)
    }

    /// A write that failed may have reached the file all the same: that says so itself.
    fn write(&mut self, post: &CreditPost) -> Result<Written, StoreError> {
        let written = self.database.post(post, self.shared.clock.now());
        let Err(error) = written else { return written };
        let looked = self.database.credit_entry(&post.account, &post.reference);
        #[cfg(test)]
        let looked = match std::mem::take(&mut self.database.fails_to_look) {
            true => Err(StoreError::Unavailable("a test's".to_owned())),
            false => looked,
        };
        match looked {
            Ok(Some(entry)) if post.is_same_as(&entry) => Ok(Written::Added(entry)),
            Ok(_) => Err(error),
            Err(_) => {
                self.doubtful.push(post.clone());
                Err(error)
            }
        }
    }

    /// Asks the file for the account's entries that it may have and memory has not, and gives memory those that it has.
    ///
    /// # Errors
    /// When the file still does not say: then nothing more is posted.
    fn resolve_doubts(&mut self, cell: &EmbeddedAccount, account: &AccountId) -> Result<(), AdminError> {
        while let Some(place) = self.doubtful.iter().position(|post| post.account == *account) {
            let Some(post) = self.doubtful.get(place) else { break };
            let found = self.database.credit_entry(account, &post.reference).map_err(failed)?;
            if found.is_some_and(|entry| post.is_same_as(&entry)) && cell.state().post(post.amount, true).is_err() {
                let amount = post.amount;
                log::error!("MONEY: an entry of {amount} for {account} is not in memory as it is in the file");
            }
            self.doubtful.swap_remove(place);
        }
        Ok(())
    }
}

/// Takes an amount below zero from memory.
fn take(cell: &EmbeddedAccount, post: &CreditPost, now: crate::pure::time::Timestamp) -> Result<(), AdminError> {
    let mut state = cell.state();
    state.expire(now);
    state
        .post(post.amount, post.allow_negative)
        .map_err(|refusal| match refusal {
            PostRefusal::Short { available, held } => AdminError::Invalid(post.short(available, held)),
            PostRefusal::OutOfRange => AdminError::Invalid(post.out_of_range()),
        })
}

fn stopped() -> AdminError {
    AdminError::Store("the ledger has stopped".to_owned())
}
