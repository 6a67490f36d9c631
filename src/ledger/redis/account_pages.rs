//! Pages of accounts, by their names: the accounts of a page are asked for at once.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use redis::Value;

use super::link::Link;
use super::reply::{self, corrupt};
use super::script::PREFIX;
use super::shared::{Shared, accounts_key};
use crate::ledger::StoreError;
use crate::ledger::admin::accounts::{AccountOp, AccountPage, AccountQuery};
use crate::ledger::admin::{AdminError, AdminReply};
use crate::pure::ids::AccountId;

impl Shared {
    pub(super) async fn account_op(&self, link: &Link, op: AccountOp) -> Result<AdminReply, AdminError> {
        match op {
            AccountOp::Terms { account, change } => self.set_terms(link, &account, &change, [""; 2]).await,
            AccountOp::Page(query) => self.account_page(link, &query).await.map(AdminReply::AccountPage),
            AccountOp::Stopped { accounts } => self.those_stopped(link, &accounts).await,
        }
    }

    async fn those_stopped(&self, link: &Link, accounts: &[AccountId]) -> Result<AdminReply, AdminError> {
        let mut stopped = Vec::new();
        for account in accounts {
            match self.view(link, account).await {
                Ok(view) if view.record.terms.status.stop().is_some() => stopped.push(view),
                Ok(_) | Err(AdminError::NoAccount(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(AdminReply::Accounts { accounts: stopped })
    }

    async fn account_page(&self, link: &Link, query: &AccountQuery) -> Result<AccountPage, AdminError> {
        let names = self.names(link).boxed().await?;
        let begins = match &query.after {
            Some(after) => names.partition_point(|name| name <= after),
            None => 0,
        };
        let limit = query.limit();
        let mut search = query.search();
        let mut found = names.iter().skip(begins).filter(|name| search.finds(name));
        let mut page = AccountPage::default();
        loop {
            let missing = limit.saturating_sub(page.accounts.len());
            let asked: Vec<&AccountId> = found.by_ref().take(missing).collect();
            if asked.is_empty() {
                break;
            }
            for view in join_all(asked.iter().map(|name| self.view(link, name))).await {
                match view {
                    Ok(view) => page.accounts.push(view),
                    // A name that was taken, and whose account was never made.
                    Err(AdminError::NoAccount(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(AccountPage::of(page.accounts, found.next().is_some()))
    }

    /// All names, in order; read only where there are more than this process knows.
    async fn names(&self, link: &Link) -> Result<Arc<Vec<AccountId>>, StoreError> {
        let _reading = self.names.reading.lock().await;
        let doubts = self.names.doubts();
        for _ in 0..NEWEST_TRIES {
            let known = self.names.get();
            if known.is_empty() {
                break;
            }
            if self.count_names(link).await? == known.len() {
                return Ok(known);
            }
            // Or it is copied to add a name.
            drop(known);
            // Before they are counted again: all of them are among those that are counted.
            let newest = self.newest_names(link).await?;
            if !self.names.learn(newest) {
                break;
            }
        }
        let names = Arc::new(self.read_names(link).await?);
        self.names.set(Arc::clone(&names), doubts);
        Ok(names)
    }

    async fn count_names(&self, link: &Link) -> Result<usize, StoreError> {
        let mut count = redis::cmd("SCARD");
        count.arg(accounts_key());
        let count = reply::integer(&self.command(link, count).await?)?;
        usize::try_from(count).map_err(|_| corrupt("a negative count"))
    }

    /// Puts a name among all of them, and at the end of those that came last.
    pub(super) async fn add_name(&self, link: &Link, account: &AccountId) -> Result<(), StoreError> {
        let mut add = redis::cmd("SADD");
        add.arg(accounts_key()).arg(account.as_str());
        if reply::integer(&self.command(link, add).await?)? == 0 {
            return Ok(());
        }
        // Who dies before this has other gateways read all names once more.
        let mut push = redis::cmd("RPUSH");
        push.arg(newest_key()).arg(account.as_str());
        if reply::integer(&self.command(link, push).await?)? > NEWEST_MAX {
            let mut trim = redis::cmd("LTRIM");
            trim.arg(newest_key()).arg(-NEWEST_MAX).arg(-1);
            self.command(link, trim).await?;
        }
        Ok(())
    }

    /// The names that came last, as gateways that know of this list have added them.
    async fn newest_names(&self, link: &Link) -> Result<Vec<AccountId>, StoreError> {
        let mut range = redis::cmd("LRANGE");
        range.arg(newest_key()).arg(-NEWEST_MAX).arg(-1);
        let value = self.command(link, range).await?;
        reply::list(&value)?.iter().map(name_of).collect()
    }

    /// Reads all names, in order, some at a time: nobody else waits for long.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) async fn read_names(&self, link: &Link) -> Result<Vec<AccountId>, StoreError> {
        let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let mut scan = redis::cmd("SSCAN");
            scan.arg(accounts_key()).arg(&cursor).arg("COUNT").arg(SCANNED_AT_ONCE);
            let value = self.command(link, scan).await?;
            let [next, some] = reply::list(&value)? else {
                return Err(corrupt("a scan has other parts than it should"));
            };
            for name in reply::list(some)? {
                names.push(name_of(name)?);
            }
            cursor = reply::text(next)?.to_owned();
            if cursor == "0" {
                names.sort_unstable();
                names.dedup();
                return Ok(names);
            }
        }
    }
}

fn name_of(value: &Value) -> Result<AccountId, StoreError> {
    let name = reply::text(value)?.parse();
    name.map_err(|_| corrupt("a name in the list of accounts"))
}

/// The names that were added last, oldest first.
fn newest_key() -> String {
    format!("{PREFIX}accounts:newest")
}

/// Names that are read at once: about a millisecond.
const SCANNED_AT_ONCE: u32 = 5_000;
/// The most names in the list of those that came last. Who missed more reads all.
const NEWEST_MAX: i64 = 2_000;
/// How often those that came last are asked for while more come.
const NEWEST_TRIES: u32 = 3;
