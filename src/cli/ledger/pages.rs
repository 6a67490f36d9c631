//! Accounts and receipts, page after page.

use std::time::{Duration, Instant};

use super::Way;
use super::unreadable::Unreadable;
use crate::cli::failure::Failure;
use crate::clock::monotonic;
use crate::config::{Config, Store};
use crate::ledger::admin::accounts::{ACCOUNTS_MAX, AccountOp, AccountQuery};
use crate::ledger::admin::{AdminOp, AdminReply, RECEIPTS_MAX, ReceiptQuery};
use crate::pure::ids::AccountId;
use crate::pure::receipt::Receipt;

/// The way to the ledger for one who asks often. The embedded ledger's file is given up now and then, for others that wait for it.
pub(in crate::cli) struct Pages<'c> {
    config: &'c Config,
    access: Option<(Way, Instant)>,
    /// Receipts that could not be read so far.
    unreadable: Unreadable,
}

impl<'c> Pages<'c> {
    pub(in crate::cli) fn new(config: &'c Config) -> Pages<'c> {
        Pages {
            config,
            access: None,
            unreadable: Unreadable::default(),
        }
    }

    /// Receipts of the pages that were read that are left out there, since they cannot be read.
    pub(super) fn unreadable(self) -> Unreadable {
        self.unreadable
    }

    pub(in crate::cli) fn ask(&mut self, op: AdminOp) -> Result<AdminReply, Failure> {
        let is_file = matches!(self.config.store, Store::Sqlite(_));
        let kept = self
            .access
            .take()
            .filter(|(_, opened)| !is_file || opened.elapsed() < HELD_MAX);
        let (access, opened) = match kept {
            Some(kept) => kept,
            None => (super::access(self.config)?, monotonic()),
        };
        let reply = access.run(op)?;
        self.access = Some((access, opened));
        Ok(reply)
    }

    /// The names of all accounts, in their order.
    pub(in crate::cli) fn accounts(&mut self) -> Result<Vec<AccountId>, Failure> {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = AccountQuery {
                after,
                limit: ACCOUNTS_MAX,
                search: None,
            };
            let AdminReply::AccountPage(page) = self.ask(AdminOp::Account(AccountOp::Page(page)))? else {
                return Err(Failure::wrong_reply());
            };
            names.extend(page.accounts.into_iter().map(|view| view.record.id));
            after = page.next;
            if after.is_none() {
                return Ok(names);
            }
        }
    }

    /// The receipts of an account, newest first, a page at a time; `each` says whether it wants more. At most `limit` are given.
    pub(super) fn receipts(
        &mut self,
        account: &AccountId,
        model: Option<&str>,
        limit: u64,
        each: impl FnMut(Vec<Receipt>) -> bool,
    ) -> Result<(), Failure> {
        self.receipts_from(account, model, (None, limit), each).map(drop)
    }

    /// The same from a place on: also says where those begin that were not given, where there may be some.
    pub(super) fn receipts_from(
        &mut self,
        account: &AccountId,
        model: Option<&str>,
        (mut before, limit): (Option<String>, u64),
        mut each: impl FnMut(Vec<Receipt>) -> bool,
    ) -> Result<Option<String>, Failure> {
        let mut left = limit;
        while left > 0 {
            let query = ReceiptQuery {
                before,
                model: model.map(str::to_owned),
                ..ReceiptQuery::newest(account, u32::try_from(left).unwrap_or(u32::MAX).min(RECEIPTS_MAX))
            };
            let AdminReply::Receipts(page) = self.ask(AdminOp::Receipts(query))? else {
                return Err(Failure::wrong_reply());
            };
            self.unreadable.add(account, &page);
            if page.unreadable > 0 {
                log::warn!(
                    "{} receipts of {account} cannot be read and are left out",
                    page.unreadable
                );
            }
            left = left.saturating_sub(u64::try_from(page.receipts.len()).unwrap_or(u64::MAX));
            let wants_more = each(page.receipts);
            match page.next {
                Some(next) if wants_more => before = Some(next),
                _ => return Ok(None),
            }
        }
        Ok(before)
    }
}

/// For how long the ledger's file is owned: a gateway that starts waits for 2 seconds.
const HELD_MAX: Duration = Duration::from_millis(500);
