//! Credit entries: an amount that takes something away is taken from memory first, where the holds are, and one that adds is added to the
//! file first, so that at no moment more can be spent than both have.

use std::collections::BTreeSet;

use super::commands::{failed, read_beside};
use super::shared::EmbeddedAccount;
use super::writer::{Committer, RETRY_EVERY};
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::credits::{CreditEntry, CreditOp, CreditPost, Posted, Statement, check_new_reference};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::sqlite::Reader;
use crate::ledger::sqlite::credits::{Untold, Written};
use crate::pure::account::post::PostRefusal;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Timestamp};

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
    Find {
        account: Option<AccountId>,
        reference: String,
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
            CreditOp::Find { account, reference } => Ok(CreditQuery::Find { account, reference }),
        }
    }

    pub(super) fn account(&self) -> Option<&AccountId> {
        match self {
            CreditQuery::List { account, .. } | CreditQuery::Statement { account, .. } => Some(account),
            CreditQuery::Find { account, .. } => account.as_ref(),
        }
    }

    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn check(&self) -> Result<(), AdminError> {
        match self {
            CreditQuery::List { .. } | CreditQuery::Find { .. } => Ok(()),
            CreditQuery::Statement { days: (from, to), .. } => {
                Statement::check_days(*from, *to).map_err(AdminError::Invalid)
            }
        }
    }

    pub(super) fn read(&self, reader: &Reader) -> Result<AdminReply, Untold> {
        match self {
            CreditQuery::List { account, limit, before } => reader
                .credits(account, *limit, before.as_deref())
                .map(AdminReply::CreditPage),
            CreditQuery::Statement { account, days } => reader.statement(account, *days).map(AdminReply::Statement),
            CreditQuery::Find { account, reference } => {
                let (account, entry) = reader.credit_entry(account.as_ref(), reference)?;
                Ok(AdminReply::CreditFound { account, entry })
            }
        }
    }
}

impl Committer {
    pub(super) fn credit_op(&mut self, op: CreditOp) -> Result<AdminReply, AdminError> {
        match CreditQuery::of(op) {
            Err(post) => self.post(&post).map(AdminReply::Posted),
            Ok(_) => Err(read_beside()),
        }
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
        self.resolve_doubts(&cell, &post.account).map_err(failed)?;
        let before = self.database.credit_entry(&post.account, &post.reference);
        let written = match before.map_err(failed)? {
            // Its account may have been given it by hand before: from now on it is nobody else's.
            Some(entry) if post.is_same_as(&entry) && post.is_payment => {
                let noted = self.database.post(post, self.shared.clock.now());
                noted.map_err(failed)?
            }
            Some(entry) if post.is_same_as(&entry) => Written::Already(entry),
            Some(_) => Written::Conflict,
            None => {
                check_new_reference(&post.reference).map_err(AdminError::Invalid)?;
                let terms = &cell.record.load().terms;
                post.allowed_by(terms).map_err(AdminError::Conflict)?;
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
        let mut post = post.clone();
        if takes {
            post.amount = take(cell, &post, self.shared.clock.now())?;
        }
        let post = &post;
        let written = self.write(post);
        let is_written = matches!(written, Ok(Written::Added(_)));
        // What the file may have taken stays taken here until it says so.
        let may_be_written = is_written || self.doubtful.has(&post.account);
        let amount = match (takes, may_be_written) {
            (true, true) => None,
            (true, false) => Credits::ZERO.checked_sub(post.amount),
            (false, _) => is_written.then_some(post.amount),
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
    pub(super) fn write(&mut self, post: &CreditPost) -> Result<Written, StoreError> {
        let written = self.database.post(post, self.shared.clock.now());
        let Err(error) = written else { return written };
        match self.look_for(post) {
            Ok(Some(entry)) => Ok(Written::Added(entry)),
            Ok(None) => Err(error),
            Err(_) => {
                let CreditPost { account, amount, .. } = post;
                log::warn!("MONEY: whether an entry of {amount} for {account} was written is not known yet");
                self.doubtful.posts.push(post.clone());
                self.doubtful.due_at = Some(monotonic());
                Err(error)
            }
        }
    }

    /// The entry that the file has of it, if it has.
    fn look_for(&mut self, post: &CreditPost) -> Result<Option<CreditEntry>, StoreError> {
        #[cfg(test)]
        if std::mem::take(&mut self.database.fails_to_look) {
            return Err(StoreError::Unavailable("a test's".to_owned()));
        }
        let found = self.database.credit_entry(&post.account, &post.reference)?;
        Ok(found.filter(|entry| post.is_same_as(entry)))
    }

    /// Commits what is queued, and asks the file for all entries that it may have: then memory has what the file has.
    ///
    /// # Errors
    /// When the file cannot be written, or does not say.
    pub(super) fn commit_and_resolve(&mut self) -> Result<(), StoreError> {
        self.commit()?;
        self.resolve_all_doubts()
    }

    /// Asks the file where that is due: until it says, what an entry would have taken is no credit that the account can use.
    pub(super) fn resolve_doubts_that_are_due(&mut self) {
        let now = monotonic();
        if self.doubtful.due_at.is_none_or(|at| at > now) {
            return;
        }
        self.doubtful.due_at = match self.resolve_all_doubts() {
            Ok(()) => None,
            // The try itself may have taken longer than that.
            Err(_) => monotonic().checked_add(RETRY_EVERY),
        };
    }

    /// # Errors
    /// The first of those accounts of which the file still does not say: the others are resolved all the same.
    fn resolve_all_doubts(&mut self) -> Result<(), StoreError> {
        let accounts: BTreeSet<AccountId> = self.doubtful.posts.iter().map(|post| post.account.clone()).collect();
        let mut all = Ok(());
        for account in accounts {
            // A post found its account in memory, where none is ever removed.
            let Ok(cell) = self.cell(&account) else { continue };
            all = all.and(self.resolve_doubts(&cell, &account));
        }
        all
    }

    /// Asks the file for the account's entries that it may have. Memory gets those that the file has and that add something, and gets back what
    /// those take that it has not.
    ///
    /// # Errors
    /// When the file still does not say: then nothing more is posted.
    fn resolve_doubts(&mut self, cell: &EmbeddedAccount, account: &AccountId) -> Result<(), StoreError> {
        while let Some(place) = self.doubtful.posts.iter().position(|post| post.account == *account) {
            let Some(post) = self.doubtful.posts.get(place).cloned() else {
                break;
            };
            let is_written = self.look_for(&post)?.is_some();
            let amount = match (post.amount < Credits::ZERO, is_written) {
                (true, false) => Credits::ZERO.checked_sub(post.amount),
                (false, true) => Some(post.amount),
                (true, true) | (false, false) => None,
            };
            let mend = |amount| {
                let mut state = cell.state();
                let mended = state.post(amount, true);
                if is_written && post.amount > Credits::ZERO {
                    cell.told.credited(&state);
                }
                mended.is_err()
            };
            if amount.is_some_and(mend) {
                let amount = post.amount;
                log::error!("MONEY: an entry of {amount} for {account} is not in memory as it is in the file");
            }
            self.doubtful.posts.swap_remove(place);
        }
        Ok(())
    }
}

/// Takes an amount below zero from memory. What it was: less than was asked for where the post is content with that.
///
/// # Errors
/// When it would take more than is available: nothing is taken then.
fn take(cell: &EmbeddedAccount, post: &CreditPost, now: Timestamp) -> Result<Credits, AdminError> {
    let mut state = cell.state();
    state.expire(now);
    let amount = post.amount_of(state.balance());
    let taken = state.post(amount, post.allow_negative || post.as_available);
    taken.map(|()| amount).map_err(|refusal| match refusal {
        PostRefusal::Short { available, held } => AdminError::Conflict(post.short(available, held)),
        PostRefusal::OutOfRange => AdminError::Invalid(post.out_of_range()),
    })
}
