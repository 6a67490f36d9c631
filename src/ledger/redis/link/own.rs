//! Links that one call has for itself, for as long as it waits for a replica: `WAIT` holds up all that comes after it on its connection.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::Link;
use crate::ledger::StoreError;
use crate::ledger::redis::options::unavailable;

/// Those of one runtime for one shard: whoever waits at another shard takes none of them.
#[derive(Debug)]
pub(super) struct OwnLinks {
    idle: Mutex<Vec<Link>>,
    free: Semaphore,
}

/// A link that nobody else uses. Dropped, it is not used again: something may wait on it still.
#[derive(Debug)]
pub(in crate::ledger::redis) struct OwnLink<'a> {
    of: &'a OwnLinks,
    link: Link,
    _permit: SemaphorePermit<'a>,
}

impl Default for OwnLinks {
    fn default() -> OwnLinks {
        OwnLinks {
            idle: Mutex::default(),
            free: Semaphore::new(OWN_MAX),
        }
    }
}

impl OwnLinks {
    /// One that is idle, or else a new one, which connects when it is used.
    ///
    /// # Errors
    /// When [`OWN_MAX`] calls have one each, and none of them is done within `within`.
    pub(super) async fn take(&self, within: Duration) -> Result<OwnLink<'_>, StoreError> {
        let Ok(Ok(permit)) = tokio::time::timeout(within, self.free.acquire()).await else {
            return Err(unavailable(&format!("{OWN_MAX} calls wait for a replica already")));
        };
        let idle = self.lock().pop();
        Ok(OwnLink {
            of: self,
            link: idle.unwrap_or_default(),
            _permit: permit,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnLink<'_> {
    /// All that was asked on it is answered: another call may have it.
    pub(in crate::ledger::redis) fn give_back(self) {
        let OwnLink { of, link, .. } = self;
        let mut idle = of.lock();
        if idle.len() < IDLE_MAX {
            idle.push(link);
        }
    }
}

impl Deref for OwnLink<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

/// Calls of one runtime that wait for a replica of one shard at once; more wait for one of these to end.
const OWN_MAX: usize = 32;
/// Links that are kept for the next calls.
const IDLE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join_all;

    use super::*;
    use crate::ledger::redis::shards::{Shard, Shards};
    use crate::ledger::redis::url::Address;
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::block_on;

    const WITHIN: Duration = Duration::from_secs(10);

    fn one(url: &str) -> Shards {
        let address = Address::parse(url, None, WITHIN).unwrap();
        Shards::one(address, 10, crate::clock::monotonic())
    }

    async fn connect(link: &Link, shard: &Shard) {
        link.line(shard).connection(&shard.address).await.unwrap();
    }

    fn is_connected(link: &Link, shard: &Shard) -> bool {
        link.line(shard).found().is_some()
    }

    #[test]
    fn a_link_is_one_calls_until_it_is_given_back() {
        let server = RedisServer::start();
        let shards = one(&server.url());
        let shard = shards.of_slot(0);
        let links = OwnLinks::default();
        block_on(async {
            let first = links.take(WITHIN).await.unwrap();
            connect(&first, &shard).await;
            let second = links.take(WITHIN).await.unwrap();
            assert!(!is_connected(&second, &shard), "it is another one");
            first.give_back();
            let again = links.take(WITHIN).await.unwrap();
            assert!(is_connected(&again, &shard));
            // Something may wait on it.
            drop(again);
            assert!(!is_connected(&links.take(WITHIN).await.unwrap(), &shard));
        });
    }

    #[test]
    fn as_many_calls_as_may_have_one_each_and_the_next_one_waits() {
        let links = OwnLinks::default();
        block_on(async {
            let all = (0..OWN_MAX).map(|_| links.take(WITHIN));
            let mut all: Vec<_> = join_all(all).await.into_iter().map(Result::unwrap).collect();
            let error = links.take(Duration::ZERO).await.unwrap_err();
            assert!(
                error.to_string().contains("calls wait for a replica already"),
                "{error}"
            );
            let next = links.take(WITHIN);
            let mut next = std::pin::pin!(next);
            assert!(next.as_mut().now_or_never().is_none());
            all.pop().unwrap().give_back();
            assert!(next.await.is_ok());
            all.into_iter().for_each(OwnLink::give_back);
            assert_eq!(links.lock().len(), IDLE_MAX);
        });
    }
}
