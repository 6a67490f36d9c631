//! A server that answers and takes no writes: what becomes of what it acknowledged, of calls, and of the log. And what waits for an account.

use super::known::{adopted, send_all};
use super::working::journaled;
use super::*;
use crate::ledger::journal::{Journal, recover};
use crate::ledger::redis::tests::parted;
use crate::ledger::tests::logged::logged;

const REFUSE: &str = "CONFIG SET min-replicas-to-write 1";
const TAKE: &str = "CONFIG SET min-replicas-to-write 0";

fn ask_again(settler: &mut Settler) {
    settler.asked.1 = 0;
    assert!(block_on(settler.connection()).is_some());
}

#[test]
fn nothing_grows_old_at_a_server_that_answers_and_takes_no_writes() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let mut settler = settler(&shared);
    assert!(settler.ring.stands_still(), "it was not asked yet");
    ask_again(&mut settler);
    for (refuse, take, stays) in [
        (REFUSE, TAKE, true),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", true),
        // What is sent next is to go to whoever is the master now.
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", false),
    ] {
        assert!(!settler.ring.stands_still(), "{refuse}");
        server.ask(refuse);
        settler.asked.1 = 0;
        assert_eq!(block_on(settler.connection()).is_some(), stays, "{refuse}");
        assert!(settler.ring.stands_still(), "{refuse}");
        server.ask(take);
        ask_again(&mut settler);
    }
    assert!(!settler.ring.stands_still());
    assert_eq!(server.ask("DBSIZE"), [":0"], "nothing is left of the trials");
}

/// Each is tried by a key in a slot of its own.
#[test]
fn of_two_masters_the_one_that_takes_no_writes_is_known() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "acme");
    let mut settlers: Vec<Settler> = shared
        .shards
        .all()
        .into_iter()
        .map(|shard| Settler::new(Arc::clone(&shared), shard))
        .collect();
    let of_acme = shared.shards.of(&account(&shared, "acme")).number;
    second.ask(REFUSE);
    for settler in &mut settlers {
        assert!(block_on(settler.connection()).is_some());
        assert_eq!(settler.ring.stands_still(), settler.shard.number == of_acme);
    }
}

/// Another server may take its place, which has not got it.
#[test]
fn what_was_acknowledged_long_ago_stays_in_the_journal_while_redis_takes_no_writes() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let shard = shared.shards.all().remove(0);
    shard.queue.settle(settlement(&acme, 1));
    send_all(&mut settler(&shared), &server);
    for (set, is_kept) in [(REFUSE, true), (TAKE, false)] {
        server.ask(set);
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        let mut settler = settler(&shared);
        shard.queue.settle(adopted(&journal, &acme, 1, 60_001));
        send_all(&mut settler, &server);
        assert_eq!(shared.shards.unsettled(), 0);
        journal.close();
        drop((settler, journal));
        let since = is_kept.then_some((1, NOW.plus_millis(-60_001)));
        assert_eq!(recover::kept(folder.path()), since, "{set}");
    }
}

/// Whoever starts next counts the minute from then on, and does not know since when no writes were taken.
#[test]
fn what_is_left_at_the_end_is_dated_anew_by_the_rings_clock() {
    let server = RedisServer::start();
    // Without a look the ring's clock goes on for five seconds.
    for (stands_still, since) in [(true, NOW), (false, NOW.plus_millis(-5_000))] {
        let mut shared = opened(&server);
        let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
        of_test.options.close_within = Duration::ZERO;
        let acme = account(&shared, "acme");
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        let mut settler = settler(&shared);
        let mut entry = journaled(&journal, &acme);
        entry.keep(NOW.plus_millis(-50_000));
        let acknowledged = QueuedDebit {
            entry,
            ..settlement(&acme, 1)
        };
        settler.ring.tend(0);
        settler.ring.push(acknowledged, 0);
        if stands_still {
            settler.ring.stand_still(0);
        }
        settler.shard.queue.close();
        block_on(settler.work());
        journal.close();
        drop(journal);
        assert_eq!(recover::kept(folder.path()), Some((1, since)), "{stands_still}");
    }
}

/// It said so each second, and each time some calls were sent on to it.
#[test]
fn a_server_that_takes_no_writes_does_not_answer_again() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let mut settler = settler(&shared);
    ask_again(&mut settler);
    server.ask(REFUSE);
    (0..FAILURES_MAX).for_each(|_| settler.shard.guard.failed("test"));
    let mut told = || {
        let lines = logged(|| ask_again(&mut settler));
        lines
            .into_iter()
            .filter(|line| line.contains("again"))
            .collect::<Vec<_>>()
    };
    assert_eq!((told(), told()), (Vec::new(), Vec::new()));
    assert!(shared.shards.of_slot(0).guard.is_open());
    server.ask(TAKE);
    assert_eq!(told(), ["WARN Redis takes writes again"]);
    assert!(!shared.shards.of_slot(0).guard.is_open());
}

/// Failures that were not in a row had calls refused for another second, although each had an answer behind it.
#[test]
fn that_writes_are_taken_again_is_known_before_the_next_second() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    for is_idle in [false, true] {
        server.ask(REFUSE);
        ask_again(&mut settler);
        assert!(shard.guard.is_refusing_writes());
        server.ask(TAKE);
        // As if no time had passed.
        settler.asked.1 = u64::MAX;
        match is_idle {
            // What is sent finds it out.
            false => assert!(block_on(settler.connection()).is_some()),
            true => {
                // Something is queued: it waits for nothing.
                drop(shard.queue.take());
                shard.queue.put(release(&acme, ReleaseKind::Again), 1);
                block_on(settler.idle());
            }
        }
        assert!(!shard.guard.is_refusing_writes(), "{is_idle}");
        for _ in 0..FAILURES_MAX {
            shard.guard.failed("test");
            shard.guard.answered();
        }
        assert!(!shard.guard.is_open(), "{is_idle}");
    }
}

/// A line for each, at each try: hundreds a second.
#[test]
fn what_a_server_refuses_is_one_line_a_batch() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    (1..=5).for_each(|number| shard.queue.settle(settlement(&acme, number)));
    settler.take();
    server.ask(REFUSE);
    let lines = logged(|| {
        // The server may not know the script yet.
        for _ in 0..4 {
            block_on(settler.send_batch());
        }
    });
    let refused: Vec<&String> = lines.iter().filter(|line| line.contains("does not take")).collect();
    let told = "WARN Redis does not take 5 settlements or releases: ";
    assert!(
        matches!(refused.as_slice(), [line] if line.starts_with(told)),
        "{refused:?}"
    );
    assert_eq!(settler.backlog.len(), 5);
}

/// Nobody was told but by one line of the log.
#[test]
fn what_waits_for_an_account_that_is_not_there_is_seen_to_wait_and_holds_up_nobody() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let nobody = account(&shared, "nobody");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    let ages = || (shard.queue.oldest_age_ms(10), shard.queue.oldest_age_of_all_ms(10));
    shard.queue.settle(settlement(&nobody, 1));
    send_all(&mut settler, &server);
    settler.later[0].0 = u64::MAX;
    settler.take();
    assert_eq!((settler.later.len(), settler.backlog.len()), (1, 0));
    assert_eq!(ages(), (0, 3));
    // When it is tried again, too.
    settler.later[0].0 = 0;
    settler.take();
    assert_eq!((settler.later.len(), settler.backlog.len()), (0, 1));
    assert_eq!(ages(), (0, 3));
    while !settler.backlog.is_empty() {
        block_on(settler.send_batch());
    }
    // It is there again. How long it was not is nothing to others.
    nobody.is_there();
    settler.later[0].0 = 0;
    settler.take();
    let queued_ms = settler.backlog.iter().find_map(|work| match work {
        Work::Settle(debit) => Some(debit.queued_ms),
        Work::Release { .. } | Work::Barrier { .. } => None,
    });
    assert!(queued_ms.is_some_and(|at| at >= 10_000), "{queued_ms:?}");
}
