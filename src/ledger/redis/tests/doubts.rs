//! Reserves of which nobody knows whether they held anything.

use futures::FutureExt;

use super::{node, patient, request};
use crate::ledger::redis::RedisLedger;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::queue::{ReleaseKind, Work};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, caller_of};
use crate::pure::limits::LimitOverrides;

#[test]
fn a_reserve_that_is_given_up_is_given_back_and_one_that_was_answered_is_not() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    // Nobody empties its queue.
    let (shared, runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    runtime.shutdown_background();
    let (link, account) = (Link::default(), shared.cache.account(&caller.account.id));
    let [given_up, answered] = [1, 2].map(|n| request(n, "1"));
    let ended = block_on(async {
        shared
            .try_reserve(&link, &account, (&given_up, true), &mut None)
            .now_or_never()
    });
    assert!(ended.is_none());
    let queued = shared.shards.of_slot(0).queue.take();
    let [Work::Release { hold, kind, .. }] = &queued[..] else {
        panic!("{queued:?}");
    };
    assert_eq!((*hold, *kind), (given_up.id, ReleaseKind::Doubtful));
    let granted = block_on(shared.try_reserve(&link, &account, (&answered, true), &mut None));
    assert!(granted.unwrap().is_ok());
    assert!(shared.shards.of_slot(0).queue.is_empty());
}
