//! What Redis may have taken already is looked up before it is sent.

use super::working::journaled;
use super::*;
use crate::ledger::journal::{Journal, recover};
use crate::ledger::tests::logged::logged;

fn doubted(account: &Arc<Account>, number: u64) -> QueuedDebit {
    QueuedDebit {
        is_doubted: true,
        ..settlement(account, number)
    }
}

/// Sends all that is queued, and says how many settlements Redis was sent.
pub(super) fn send_all(settler: &mut Settler, server: &RedisServer) -> u64 {
    let before = scripts_run(server);
    settler.take();
    block_on(settler.look_up_doubted());
    while !settler.backlog.is_empty() {
        block_on(settler.send_batch());
    }
    scripts_run(server) - before
}

fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.ask("INFO commandstats");
    let calls = |line: &String| {
        let calls = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
        calls.split(',').next()?.parse::<u64>().ok()
    };
    stats.iter().filter_map(calls).sum()
}

pub(super) fn balance(shared: &Shared, account: &Account) -> Credits {
    let view = block_on(shared.view(&Link::default(), account.id())).unwrap();
    view.figures.balance
}

/// After a gateway's death and after a restart of Redis nearly all that is sent again is known: told one by one it kept Redis busy for
/// seconds, and calls were refused meanwhile.
#[test]
fn what_redis_has_taken_is_not_sent_again_and_all_else_is() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let shard = shared.shards.all().remove(0);
    let queue = &shard.queue;
    let mut first = settler(&shared);
    // The third and the fourth are open still.
    for number in [1, 2, 5, 6] {
        queue.settle(settlement(&acme, number));
    }
    send_all(&mut first, &server);
    assert_eq!(balance(&shared, &acme), credits("96"));

    let mut second = settler(&shared);
    let other_producer = QueuedDebit {
        number: CallNumber::new(ProducerId(6), 1),
        ..doubted(&acme, 1)
    };
    for debit in [1, 2, 3, 5, 6, 7].map(|number| doubted(&acme, number)) {
        queue.settle(debit);
    }
    queue.settle(other_producer);
    assert_eq!(
        send_all(&mut second, &server),
        3,
        "the third, the seventh and the other's"
    );
    assert_eq!(balance(&shared, &acme), credits("93"));
    assert_eq!((shared.shards.unsettled(), acme.is_under_way()), (0, false));
    // All of them are kept for a Redis that loses its last moments.
    let numbers = [1, 2, 3, 5, 6, 7];
    assert_eq!(second.ring.take(&acme, ProducerId(5), &numbers).len(), 6);
}

/// Whoever waits for an account waits for what is looked up as for what is sent.
#[test]
fn what_was_sent_before_keeps_its_order_and_is_looked_up_once() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    let queue = &shard.queue;
    queue.settle(doubted(&acme, 1));
    let (reached, mut wait) = tokio::sync::oneshot::channel();
    queue.put(
        Work::Barrier {
            account: acme.id().clone(),
            reached,
        },
        1,
    );
    queue.settle(settlement(&acme, 2));
    settler.take();
    assert!(settler.has_doubted);
    block_on(settler.look_up_doubted());
    assert!(!settler.has_doubted && !settler.backlog.iter().any(Work::is_doubted));
    assert_eq!(settler.backlog.len(), 3, "Redis knows none of them");
    assert!(wait.try_recv().is_err());
    while !settler.backlog.is_empty() {
        block_on(settler.send_batch());
    }
    assert!(wait.try_recv().is_ok());
    assert_eq!(balance(&shared, &acme), credits("98"));
}

/// A lookup that fails leaves everything as it was.
#[test]
fn what_cannot_be_looked_up_stays() {
    let mut server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    shared.shards.all().remove(0).queue.settle(doubted(&acme, 1));
    settler.take();
    server.kill();
    block_on(settler.look_up_doubted());
    assert!(settler.has_doubted);
    assert_eq!((settler.backlog.len(), shared.shards.unsettled()), (1, 1));
}

/// More than are asked for together.
#[test]
fn each_of_many_accounts_is_looked_up() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let last = make(&shared, "100");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    shard.queue.settle(settlement(&last, 1));
    send_all(&mut settler, &server);
    for n in 0..600 {
        shard.queue.settle(doubted(&account(&shared, &format!("aaa-{n}")), 1));
    }
    shard.queue.settle(doubted(&last, 1));
    settler.take();
    block_on(settler.look_up_doubted());
    assert_eq!((settler.backlog.len(), shared.shards.unsettled()), (600, 600));
    assert!(!last.is_under_way(), "the last in the order of names is known");
}

/// Of a process that has ended, which had heard so long ago that Redis has it.
pub(super) fn adopted(journal: &Journal, account: &Arc<Account>, number: u64, ago_ms: i64) -> QueuedDebit {
    let mut entry = journaled(journal, account);
    entry.keep(NOW.plus_millis(-ago_ms));
    QueuedDebit {
        origin: Origin::Adopted,
        entry,
        ..doubted(account, number)
    }
}

/// By the time at which it was acknowledged, however late this process finds it.
#[test]
fn what_was_acknowledged_long_ago_leaves_the_journal_once_it_is_known_and_all_else_stays() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let shard = shared.shards.all().remove(0);
    shard.queue.settle(settlement(&acme, 1));
    send_all(&mut settler(&shared), &server);
    for (number, ago_ms, kept_since) in [
        (1, 60_000, Some(NOW.plus_millis(-60_000))),
        (1, 60_001, None),
        (2, 60_001, Some(NOW)),
        (1, -1, Some(NOW)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        let mut settler = settler(&shared);
        shard.queue.settle(adopted(&journal, &acme, number, ago_ms));
        send_all(&mut settler, &server);
        assert_eq!(shared.shards.unsettled(), 0);
        journal.close();
        drop((settler, journal));
        let kept = recover::kept(folder.path());
        assert_eq!(kept, kept_since.map(|since| (1, since)), "{number} {ago_ms}");
    }
    assert_eq!(balance(&shared, &acme), credits("98"));
}

/// Another Redis, or one that was emptied: its account will not come back for this, and calls must not be refused for it.
#[test]
fn what_redis_had_of_an_account_that_is_not_there_waits_only_as_long_as_redis_may_lose_it() {
    let server = RedisServer::start();
    for (ago_ms, waiting) in [(60_000, 1), (60_001, 0)] {
        let shared = opened(&server);
        let nobody = account(&shared, "nobody");
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        let mut settler = settler(&shared);
        shared
            .shards
            .all()
            .remove(0)
            .queue
            .settle(adopted(&journal, &nobody, 1, ago_ms));
        let lines = logged(|| {
            send_all(&mut settler, &server);
        });
        let told = |line: &&String| line.starts_with("ERROR MONEY: the account nobody is not in Redis");
        assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
        assert_eq!((settler.later.len(), shared.shards.unsettled()), (waiting, waiting));
        assert_eq!(nobody.is_under_way(), waiting > 0);
    }
}

#[test]
fn that_an_account_is_not_there_is_logged_once_for_all_that_waits_for_it() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let nobody = account(&shared, "nobody");
    let shard = shared.shards.all().remove(0);
    let mut settler = settler(&shared);
    let lines = logged(|| {
        for number in [1, 2, 3] {
            shard.queue.settle(settlement(&nobody, number));
            send_all(&mut settler, &server);
        }
    });
    let told = |line: &&String| line.starts_with("ERROR MONEY: the account nobody is not in Redis");
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
    assert_eq!(settler.later.len(), 3);
}
