//! Accounts that are to be looked at, for they may have been stopped: some at once, beside what is heard meanwhile, and again where a
//! server does not say.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::account::Account;
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::pure::ids::AccountId;

/// One look, and at whom it was.
type Look<'a> = BoxFuture<'a, (Arc<Account>, Result<(), StoreError>)>;

/// The looks that are under way, and those to come.
pub(super) struct Stops<'a> {
    shared: &'a Shared,
    waiting: VecDeque<Arc<Account>>,
    /// Those that wait.
    queued: BTreeSet<AccountId>,
    running: FuturesUnordered<Look<'a>>,
    /// Those that run: an account is not looked at twice at once, for the older answer could come last.
    looked_at: BTreeSet<AccountId>,
    /// Those whose server did not say, and when they are looked at again.
    failed: Vec<Arc<Account>>,
    again_at: Option<Instant>,
}

impl<'a> Stops<'a> {
    /// Looks at all accounts with calls that are to end when they are stopped: what was said of them may not have been heard.
    pub(super) fn all(shared: &'a Shared) -> Stops<'a> {
        let mut stops = Stops {
            shared,
            waiting: VecDeque::new(),
            queued: BTreeSet::new(),
            running: FuturesUnordered::new(),
            looked_at: BTreeSet::new(),
            failed: Vec::new(),
            again_at: None,
        };
        stops.add_all();
        stops
    }

    pub(super) fn add_all(&mut self) {
        for account in self.shared.holds.stoppable() {
            self.add(account);
        }
    }

    pub(super) fn add(&mut self, account: Arc<Account>) {
        if self.queued.insert(account.id().clone()) {
            self.waiting.push_back(account);
        }
    }

    /// Goes on until one look has ended; for ever where there is none. It may be dropped at any time, and no look is lost.
    pub(super) async fn step(&mut self) {
        self.begin();
        if self.running.is_empty() {
            match self.again_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
            return;
        }
        let Some((account, looked)) = self.running.next().await else {
            return;
        };
        self.looked_at.remove(account.id());
        if let Err(error) = looked {
            log::debug!("whether {} is stopped is not known: {error}", account.id());
            self.failed.push(account);
            self.again_at = self.again_at.or(crate::clock::monotonic().checked_add(AGAIN_AFTER));
        }
    }

    fn begin(&mut self) {
        if self.again_at.is_some_and(|at| at <= crate::clock::monotonic()) {
            self.again_at = None;
            for account in std::mem::take(&mut self.failed) {
                self.add(account);
            }
        }
        for _ in 0..self.waiting.len() {
            if self.running.len() >= AT_ONCE {
                return;
            }
            let Some(account) = self.waiting.pop_front() else {
                return;
            };
            if !self.looked_at.insert(account.id().clone()) {
                self.waiting.push_back(account);
                continue;
            }
            self.queued.remove(account.id());
            let shared = self.shared;
            let look = async move {
                let looked = shared.look_for_stop(&account).await;
                (account, looked)
            };
            self.running.push(Box::pin(look));
        }
    }
}

/// How many accounts are looked at once.
const AT_ONCE: usize = 32;
const AGAIN_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::rig::{Rig, block_on, redis_of};

    #[test]
    fn an_account_is_not_looked_at_twice_at_once() {
        let rig = Rig::redis();
        let caller = rig.caller("1");
        let shared = &redis_of(&rig.ledger).shared;
        let account = shared.cache.account(&caller.account.id);
        let mut stops = Stops::all(shared);
        stops.add(Arc::clone(&account));
        stops.begin();
        assert_eq!((stops.running.len(), stops.waiting.len()), (1, 0));
        stops.add(account);
        stops.begin();
        assert_eq!((stops.running.len(), stops.waiting.len()), (1, 1));
        block_on(stops.step());
        stops.begin();
        assert_eq!((stops.running.len(), stops.waiting.len()), (1, 0));
    }

    #[test]
    fn an_account_whose_server_did_not_say_is_looked_at_again_when_it_is_time() {
        let rig = Rig::redis();
        let shared = &redis_of(&rig.ledger).shared;
        let account = shared.cache.account(&"acme".parse().unwrap());
        let now = crate::clock::monotonic();
        for (again_at, expected) in [(now, (1, 0)), (now + Duration::from_secs(3600), (0, 1))] {
            let mut stops = Stops::all(shared);
            stops.failed.push(Arc::clone(&account));
            stops.again_at = Some(again_at);
            stops.begin();
            assert_eq!((stops.running.len(), stops.failed.len()), expected);
        }
    }
}
