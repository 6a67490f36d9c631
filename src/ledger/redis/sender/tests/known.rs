//! What Redis may have taken already is looked up before it is sent.

use super::*;

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

fn balance(shared: &Shared, account: &Account) -> Credits {
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
