//! What waits for a slot that a cluster moves, in the settler: whom it holds up, what becomes of it, and that its hold lives on.

use tokio::sync::oneshot;

use super::known::{balance, send_all};
use super::*;
use crate::ledger::redis::tests::lost_answers::ground::Way;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::redis_server::until;

fn answer(text: &str) -> Option<redis::Value> {
    Some(redis::parse_redis_value(text.as_bytes()).unwrap())
}

fn barrier(account: &Account) -> (Work, oneshot::Receiver<()>) {
    let (reached, wait) = oneshot::channel();
    let account = account.id().clone();
    (Work::Barrier { account, reached }, wait)
}

/// The next batch, once there is one.
fn next_batch(settler: &mut Settler) -> Vec<Work> {
    until("something is sent", || {
        settler.take();
        !settler.backlog.is_empty()
    });
    settler.backlog.drain(..).collect()
}

/// Money, and everybody else's calls: what one account's slot holds up was once in front of all else, and calls of all were refused.
#[test]
fn what_waits_for_a_slot_holds_up_its_own_account_alone() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let [acme, other] = ["acme", "other"].map(|name| account(&shared, name));
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    for account in [&acme, &other] {
        shard.queue.settle(settlement(account, 1));
    }
    let mut batch = next_batch(&mut settler);
    assert_eq!(shard.queue.oldest_age_ms(10), 3);
    let (of_acme, mut acme_waits) = barrier(&acme);
    let (of_other, mut other_waits) = barrier(&other);
    batch.extend([of_acme, of_other]);
    let answers = vec![answer("-TRYAGAIN some\r\n"), answer("$8\r\nsettled \r\n")];
    assert_eq!(settler.read_answers(batch, answers, 0), Outcome::Progress);
    assert!(settler.backlog.is_empty());
    assert!(other_waits.try_recv().is_ok() && acme_waits.try_recv().is_err());
    assert_eq!((acme.is_under_way(), other.is_under_way()), (true, false));
    assert_eq!((shard.queue.unsettled(), acme.waited_ms(10)), (1, 3));

    // It is tried again, and is not what calls are refused for.
    let batch = next_batch(&mut settler);
    assert_eq!(batch.len(), 1);
    let ages = (shard.queue.oldest_age_ms(10), shard.queue.oldest_age_of_all_ms(10));
    assert_eq!(ages, (0, 3));
    assert_eq!(
        settler.read_answers(batch, vec![answer("-ASK 5 b:1\r\n")], 0),
        Outcome::Progress
    );
    assert!(settler.backlog.is_empty() && acme_waits.try_recv().is_err());

    let batch = next_batch(&mut settler);
    settler.read_answers(batch, vec![answer("$8\r\nsettled \r\n")], 0);
    let batch: Vec<Work> = settler.backlog.drain(..).collect();
    assert_eq!(batch.len(), 1, "who waited for it");
    settler.read_answers(batch, Vec::new(), 0);
    assert!(acme_waits.try_recv().is_ok());
    assert_eq!((shard.queue.unsettled(), acme.waited_ms(10)), (0, 0));
    assert!(settler.moving.is_empty() && !acme.is_under_way());
}

/// The others of an account go as soon as the one that is tried has gone, whatever they are.
#[test]
fn what_waits_follows_the_first_that_goes() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    for number in 1..=3 {
        shard.queue.settle(settlement(&acme, number));
    }
    shard
        .queue
        .release(&acme, request_id(4), None, ReleaseKind::Sure, Entry::none());
    let batch = next_batch(&mut settler);
    let moves = || answer("-TRYAGAIN some\r\n");
    let apart = answer("$5\r\napart\r\n");
    settler.read_answers(batch, vec![moves(), moves(), apart.clone(), apart], 0);
    assert_eq!(settler.backlog.len(), 0);
    let batch = next_batch(&mut settler);
    assert_eq!(batch.len(), 1);
    settler.backlog.extend(batch);
    while !settler.backlog.is_empty() {
        block_on(settler.send_batch());
    }
    assert!(settler.moving.is_empty() && !acme.is_under_way());
    let view = block_on(shared.view(&Link::default(), acme.id())).unwrap();
    assert_eq!(view.figures.balance, credits("7"));
}

/// The slot is closed while one of them is on its way. How long that took is nothing to the accounts of its new master.
#[test]
fn what_waits_for_a_slot_goes_to_its_new_master() {
    let server = RedisServer::start();
    let mut shared = opened(&server);
    let layout = |node: &str| Layout {
        ranges: [(0, 16_383, node.to_owned())].into(),
        nodes: Default::default(),
    };
    let address = Address::parse("redis+cluster://a:1", None, Duration::from_secs(1)).unwrap();
    let map = Shards::cluster(address, &layout("a:1"), 10, crate::clock::monotonic()).unwrap();
    Arc::get_mut(&mut shared).expect("nobody else has it").shards = map;
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    for number in 1..=2 {
        settler.shard.queue.settle(settlement(&acme, number));
    }
    let mut batch = next_batch(&mut settler);
    let (waits, _receiver) = barrier(&acme);
    batch.push(waits);
    let moves = || answer("-TRYAGAIN some\r\n");
    settler.read_answers(batch, vec![moves(), moves()], 0);
    let tried = next_batch(&mut settler);
    assert_eq!(tried.len(), 1);
    settler.backlog.extend(tried);
    shared.shards.laid_out(&layout("b:1"));
    settler.take();
    let owner = shared.shards.all().remove(1);
    let work = owner.queue.take();
    assert_eq!((work.len(), owner.queue.unsettled()), (3, 2));
    assert_eq!((settler.backlog.len(), settler.shard.queue.unsettled()), (0, 0));
    assert!(settler.moving.is_empty());
    assert!(matches!(work.last(), Some(Work::Barrier { .. })));
    let queued = work.iter().filter_map(|work| match work {
        Work::Settle(debit) => Some(debit.queued_ms),
        Work::Release { .. } | Work::Barrier { .. } => None,
    });
    assert!(queued.min() > Some(7), "{work:?}");
    assert_eq!((acme.queued_at(), acme.waits_since_ms()), (1, None));
}

#[test]
fn what_waits_for_a_slot_is_tried_until_the_end() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let held = block_on(shared.try_reserve(&Link::default(), &acme, (&request(1, "2"), true), &mut None));
    held.unwrap().unwrap();
    let mut settler = settler(&shared);
    acme.begin();
    settler.moving.put(release(&acme, ReleaseKind::Sure), shared.now_ms());
    settler.shard.queue.close();
    block_on(settler.work());
    assert!(!acme.is_under_way());
    let view = block_on(shared.view(&Link::default(), acme.id())).unwrap();
    assert_eq!((view.open_holds, view.figures.held), (0, Credits::ZERO));
}

/// Its credit would be another call's before it is debited.
#[test]
fn the_hold_of_a_debit_that_waits_for_a_slot_is_renewed() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let held = block_on(shared.try_reserve(&Link::default(), &acme, (&request(1, "2"), true), &mut None));
    held.unwrap().unwrap();
    let expires = || server.ask("ZRANGE tg1:{acme}:expiry 0 0 WITHSCORES").pop();
    assert_eq!(expires(), Some(NOW.plus_millis(60_000).0.to_string()));
    let mut settler = settler(&shared);
    let now = shared.now_ms();
    settler.moving.put(Work::Settle(settlement(&acme, 1)), now);
    for _ in 0..2 {
        block_on(settler.renew(now));
        assert_eq!(expires(), Some(NOW.plus_millis(90_000).0.to_string()));
    }
    assert!(settler.moving.to_renew(now + 29_999).is_empty());
    assert_eq!(settler.moving.to_renew(now + 30_000).len(), 1);
}

/// Whoever finds a debit in a dead process' journal does not know that its key came in place of another.
#[test]
fn redis_says_what_a_key_counts_as_once() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    server.ask("HSET tg1:{acme} ulkey_x key_root ulkey_root 1");
    let mut settler = settler(&shared);
    let shard = shared.shards.all().remove(0);
    let mut settle = |number| {
        shard.queue.settle(settlement(&acme, number));
        send_all(&mut settler, &server)
    };
    // The server does not know the script yet: the first of these is in vain.
    assert_eq!((settle(1), settle(2)), (3, 1));
    let field = |name: &str| server.ask(&format!("HGET {name}")).pop();
    let two = Some(credits("2").pico().to_string());
    for name in [
        "tg1:{acme}:usage:key_root cshared",
        "tg1:{acme} \"uskey_root t\"",
        "tg1:{acme} \"uskey_x t\"",
    ] {
        assert_eq!(field(name), two, "{name}");
    }
    // What was believed of it before is not true any more.
    server.ask("HSET tg1:{acme} ulkey_x key_other");
    assert_eq!((settle(3), settle(4)), (2, 1));
    assert_eq!(field("tg1:{acme}:usage:key_root cshared"), two);
    assert_eq!(field("tg1:{acme}:usage:key_other cshared"), two);
}

/// Of a debit that comes too late it decides whether it gets another number.
#[test]
fn what_no_server_has_run_was_not_sent() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let shard = shared.shards.all().remove(0);
    let sent_after = |text: &str| {
        let mut settler = settler(&shared);
        shard.queue.settle(settlement(&account(&shared, "acme"), 1));
        let mut batch = next_batch(&mut settler);
        for work in &mut batch {
            if let Work::Settle(debit) = work {
                debit.sent = 2;
            }
        }
        settler.read_answers(batch, vec![answer(text)], 0);
        let sent = |work: &Work| match work {
            Work::Settle(debit) => Some(debit.sent),
            Work::Release { .. } | Work::Barrier { .. } => None,
        };
        next_batch(&mut settler).iter().find_map(sent)
    };
    for text in ["NOSCRIPT no", "LOADING it", "READONLY it", "TRYAGAIN some"] {
        assert_eq!(sent_after(&format!("-{text}\r\n")), Some(1), "{text}");
    }
    for text in ["ASK 5 b:1", "ERR no", "UNKILLABLE it"] {
        assert_eq!(sent_after(&format!("-{text}\r\n")), Some(2), "{text}");
    }
}

/// It is told where this gateway itself has not sent it before: then its journal was given to another.
#[test]
fn a_call_that_another_has_settled_is_told() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let shard = shared.shards.all().remove(0);
    let told_after = |sent: u32, origin: Origin, text: &str| {
        let mut settler = settler(&shared);
        let mut settlement = settlement(&account(&shared, "acme"), 1);
        (settlement.sent, settlement.origin) = (sent, origin);
        shard.queue.settle(settlement);
        let batch = next_batch(&mut settler);
        let lines = logged(|| {
            settler.read_answers(batch, vec![answer(text)], 0);
        });
        lines
            .iter()
            .filter(|line| line.contains("was settled by another"))
            .count()
    };
    let (now, already) = ("$8\r\nsettled \r\n", "$8\r\nalready \r\n");
    assert_eq!(told_after(1, Origin::Own, already), 1);
    for (sent, origin, text) in [
        (1, Origin::Own, now),
        (2, Origin::Own, already),
        (1, Origin::Adopted, already),
    ] {
        assert_eq!(told_after(sent, origin, text), 0, "{sent} {origin:?} {text}");
    }
}

/// The connection breaks behind a debit that is asked for where its slot goes. It was asked for there once more in the same try, and what that
/// found was told as another gateway's.
#[test]
fn a_debit_that_was_taken_where_its_slot_goes_is_not_told_as_anothers() {
    let server = RedisServer::start();
    let (way, direct) = (Way::to(&server), opened(&server));
    make(&direct, "10");
    let (shared, runtime) = RedisLedger::reach(&way.url(), rig::patient(Clock::manual(NOW))).unwrap();
    runtime.shutdown_background();
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    let debit = QueuedDebit {
        sent: 1,
        ..settlement(&acme, 1)
    };
    let hold = debit.hold.as_bytes().to_vec();
    settler.shard.queue.settle(debit);
    let batch = next_batch(&mut settler);
    let mut answers = vec![answer("-ASK 5 b:1\r\n")];
    // Of a map that has one server, that one is asked.
    way.losing_answer_to(hold, || {
        block_on(redirect(&shared, &settler.shard, &settler.link, &batch, &mut answers));
    });
    let lines = logged(|| {
        settler.read_answers(batch, answers, 0);
        assert_eq!(settler.shard.queue.unsettled(), 1, "nothing was heard");
        let again = next_batch(&mut settler);
        settler.backlog.extend(again);
        while !settler.backlog.is_empty() {
            block_on(settler.send_batch());
        }
    });
    let anothers = lines.iter().find(|line| line.contains("was settled by another"));
    assert_eq!(anothers, None);
    assert_eq!(
        (settler.shard.queue.unsettled(), balance(&direct, &acme)),
        (0, credits("9"))
    );
}
