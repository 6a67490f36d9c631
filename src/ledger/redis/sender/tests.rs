//! Steps of the ledger's thread, one at a time: nothing else runs beside them.

use super::*;
use crate::clock::Clock;
use crate::ledger::admin::AdminOp;
use crate::ledger::cover::{Cover, Uncovered};
use crate::ledger::journal::Entry;
use crate::ledger::redis::RedisLedger;
use crate::ledger::redis::account::Account;
use crate::ledger::redis::admission_breaker::FAILURES_MAX;
use crate::ledger::redis::holds::OpenHold;
use crate::ledger::redis::queue::{Origin, ReleaseKind};
use crate::ledger::redis::shards::Shards;
use crate::ledger::redis::slots::Layout;
use crate::ledger::redis::url::Address;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{self, NOW, block_on, credits, debit, request, request_id};
use crate::pure::account::Scope;
use crate::pure::ids::Tier;
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, CallNumber, ProducerId};

mod ends;
mod known;
mod lost;
mod moving;
mod raised;
mod restarts;
mod working;
mod writes;

/// A ledger that was opened ten seconds ago and has no thread.
fn opened(server: &RedisServer) -> Arc<Shared> {
    let (mut shared, runtime) = RedisLedger::reach(&server.url(), rig::patient(Clock::manual(NOW))).unwrap();
    runtime.shutdown_background();
    let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
    let now = crate::clock::monotonic();
    of_test.started = now.checked_sub(Duration::from_secs(10)).unwrap_or(now);
    shared
}

fn settler(shared: &Arc<Shared>) -> Settler {
    let first = shared.shards.all().remove(0);
    Settler::new(Arc::clone(shared), first)
}

fn account(shared: &Shared, name: &str) -> Arc<Account> {
    shared.cache.account(&name.parse().unwrap())
}

fn release(account: &Arc<Account>, kind: ReleaseKind) -> Work {
    Work::Release {
        account: Arc::clone(account),
        hold: request_id(1),
        number: None,
        kind,
        entry: Entry::none(),
    }
}

fn settlement(account: &Arc<Account>, number: u64) -> QueuedDebit {
    QueuedDebit {
        account: Arc::clone(account),
        hold: request_id(number),
        known: None,
        debit: debit("1"),
        number: CallNumber::new(ProducerId(5), number),
        origin: Origin::Own,
        is_doubted: false,
        is_written_out: false,
        sent: 0,
        queued_ms: 7,
        entry: Entry::none(),
    }
}

fn make(shared: &Shared, balance: &str) -> Arc<Account> {
    let create = AdminOp::AccountCreate {
        account: "acme".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    let add = AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits(balance),
        reference: "first".to_owned(),
    };
    for op in [create, add] {
        block_on(shared.execute(&Link::default(), op)).unwrap();
    }
    account(shared, "acme")
}

/// When a server was asked a moment ago, however long the test takes.
const NOW_AND_LATER: u64 = u64::MAX;

fn has_asked(server: &RedisServer) -> bool {
    server
        .ask("INFO commandstats")
        .iter()
        .any(|line| line.starts_with("cmdstat_info:"))
}

/// A hold as this process knows it, that was made when the ledger was opened.
fn open_hold(account: &Arc<Account>, amount: &str, ttl_ms: u64) -> OpenHold {
    OpenHold {
        account: Arc::clone(account),
        scope: Scope::Account,
        amount: credits(amount),
        quota: Credits::MAX,
        ttl_ms,
        renewed_ms: 0,
        raised_ms: None,
        cover: Arc::new(Cover::of(None)),
        spend: None,
        ends_when_stopped: false,
    }
}

#[test]
fn holds_are_renewed_made_anew_or_their_calls_end() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let mut settler = settler(&shared);
    let (ttl_ms, due_ms) = (60_000, 20_000);
    let open = |n, amount: &str| {
        let hold = open_hold(&acme, amount, ttl_ms);
        let cover = Arc::clone(&hold.cover);
        shared.holds.insert(request_id(n), hold);
        cover
    };
    let link = Link::default();
    let held = block_on(shared.try_reserve(&link, &acme, (&request(1, "2"), true), &mut None));
    held.unwrap().unwrap();
    // The first is there, the second is gone, and for the third there is no credit.
    let covers = [open(1, "2"), open(2, "3"), open(3, "9")];
    block_on(settler.renew(due_ms - 1));
    assert!(settler.line.found().is_none(), "none is due");
    block_on(settler.renew(due_ms));
    assert!(settler.line.found().is_some(), "it is kept");
    let renewed = |n| shared.holds.known(request_id(n)).map(|hold| hold.renewed_ms);
    assert_eq!([1, 2, 3].map(renewed), [Some(due_ms), Some(due_ms), None]);
    assert_eq!(
        covers.map(|cover| cover.ended()),
        [None, None, Some(Uncovered::NoCredit)]
    );
    let view = block_on(shared.view(&link, acme.id())).unwrap();
    assert_eq!((view.open_holds, view.figures.held), (2, credits("5")));
}

#[test]
fn what_is_due_again_is_taken_and_at_the_end_all_releases() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    let settle = |number| Work::Settle(settlement(&acme, number));
    settler.later = vec![
        (0, release(&acme, ReleaseKind::Again)),
        (u64::MAX, release(&acme, ReleaseKind::Again)),
        (u64::MAX, settle(1)),
    ];
    settler.take();
    assert_eq!((settler.backlog.len(), settler.later.len()), (1, 2));
    settler.shard.queue.close();
    settler.take();
    assert_eq!((settler.backlog.len(), settler.later.len()), (2, 1));
    settler.shard.queue.settle(settlement(&acme, 2));
    settler.take();
    assert_eq!((settler.backlog.len(), settler.later.len()), (3, 1));
    assert_eq!(settler.shard.queue.oldest_age_ms(10), 3);
}

#[test]
fn a_doubtful_hold_is_given_back_again_later() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    for (kind, later) in [(ReleaseKind::Sure, 0), (ReleaseKind::Doubtful, 1)] {
        let mut settler = settler(&shared);
        acme.begin();
        settler.backlog.push_back(release(&acme, kind));
        // The server may not know the script yet.
        for _ in 0..2 {
            if !settler.backlog.is_empty() {
                assert_eq!(block_on(settler.send_batch()), Outcome::Progress);
            }
        }
        assert!(!acme.is_under_way(), "{kind:?}");
        assert_eq!((settler.backlog.len(), settler.later.len()), (0, later), "{kind:?}");
    }
}

/// A dead process' producer may be the younger one: what it gave back is not among the numbers of this process.
#[test]
fn what_a_dead_process_gave_back_leaves_the_own_numbers_acknowledged() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let [own, dead] = [0, 1_000].map(|later| ProducerId::new(Birth::at(NOW.plus_millis(later)), 7));
    for (producer, number, kind) in [(own, 1, ReleaseKind::Sure), (dead, 2, ReleaseKind::Doubtful)] {
        let mut settler = settler(&shared);
        acme.begin();
        settler.backlog.push_back(Work::Release {
            account: Arc::clone(&acme),
            hold: request_id(number),
            number: Some(CallNumber::new(producer, number)),
            kind,
            entry: Entry::none(),
        });
        // The server may not know the script yet.
        for _ in 0..2 {
            if !settler.backlog.is_empty() {
                assert_eq!(block_on(settler.send_batch()), Outcome::Progress);
            }
        }
        assert!(!acme.is_under_way(), "{kind:?}");
        assert_eq!(acme.acknowledged(own, (1, 9)), [1], "{kind:?}");
    }
}

#[test]
fn what_was_acknowledged_is_sent_again_to_another_server() {
    use futures::FutureExt;
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    settler.ring.push(settlement(&acme, 1), shared.now_ms());
    let is_doubted = || shared.cache.subscription_doubted().now_or_never().is_some();
    for _ in 0..2 {
        settler.asked_server("one".to_owned());
        assert_eq!((settler.backlog.len(), shared.shards.unsettled()), (0, 0));
        assert!(!is_doubted());
    }
    settler.asked_server("two".to_owned());
    assert_eq!((settler.backlog.len(), shared.shards.unsettled()), (1, 1));
    assert!(acme.is_under_way());
    assert!(is_doubted(), "changes are published at the other server");
}

#[test]
fn a_server_is_asked_who_it_is_now_and_then() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let mut settler = settler(&shared);
    assert!(settler.is_time_to_ask());
    assert_eq!(block_on(settler.connection()).map(|(_, number)| number), Some(1));
    assert_eq!((settler.asked.0, settler.servers.len()), (1, 1));
    let mut asks = |change: &dyn Fn(&mut Settler)| {
        settler.asked = (1, NOW_AND_LATER);
        change(&mut settler);
        server.ask("CONFIG RESETSTAT");
        block_on(settler.connection()).unwrap();
        has_asked(&server)
    };
    assert!(!asks(&|settler| assert!(!settler.is_time_to_ask())));
    assert!(asks(&|settler| settler.asked.1 = 0), "a while ago");
    assert!(asks(&|settler| settler.asked.0 = 0), "it is another connection");
    let fails = |settler: &mut Settler| (0..FAILURES_MAX).for_each(|_| settler.shard.guard.failed("test"));
    assert!(asks(&fails), "calls fail");
    assert!(!shared.shards.of_slot(0).guard.is_open());
}

#[test]
fn an_idle_thread_asks_a_server_that_fails_or_was_not_asked_for_long() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    for (is_open, is_old, is_asked) in [(false, false, false), (true, false, true), (false, true, true)] {
        let mut settler = settler(&shared);
        settler.asked.1 = if is_old { 0 } else { NOW_AND_LATER };
        if is_open {
            (0..FAILURES_MAX).for_each(|_| settler.shard.guard.failed("test"));
        }
        // Something is queued: it waits for nothing.
        drop(settler.shard.queue.take());
        settler.shard.queue.put(release(&acme, ReleaseKind::Again), 1);
        block_on(settler.idle());
        assert_eq!(settler.line.found().is_some(), is_asked, "{is_open} {is_old}");
        settler.shard.guard.answered();
    }
}

/// The cluster of this test is a map alone.
#[test]
fn what_is_anothers_by_now_is_handed_over_to_it() {
    let server = RedisServer::start();
    let mut shared = opened(&server);
    let layout = |ranges: &[(u16, u16, &str)]| Layout {
        ranges: ranges.iter().map(|(a, b, node)| (*a, *b, (*node).to_owned())).collect(),
        nodes: Default::default(),
    };
    let address = Address::parse("redis+cluster://a:1", None, Duration::from_secs(1)).unwrap();
    let map = Shards::cluster(address, &layout(&[(0, 16_383, "a:1")]), 10, crate::clock::monotonic()).unwrap();
    Arc::get_mut(&mut shared).expect("nobody else has it").shards = map;
    let [moves, stays] = ["acme", "beta"].map(|name| account(&shared, name));
    let mut settler = settler(&shared);
    for account in [&moves, &stays] {
        settler.ring.push(settlement(account, 1), shared.now_ms());
        settler.shard.queue.settle(settlement(account, 2));
        settler
            .shard
            .queue
            .release(account, request_id(3), None, ReleaseKind::Sure, Entry::none());
    }
    settler.take();
    assert_eq!((settler.backlog.len(), settler.shard.queue.unsettled()), (4, 2));
    let slot = moves.slot();
    assert_ne!(slot, stays.slot());
    shared.shards.laid_out(&layout(&[(slot, slot, "b:1")]));
    settler.take();
    let others = shared.shards.all().remove(1);
    assert!(settler.backlog.iter().all(|work| work.is_of(stays.id())));
    assert_eq!((settler.backlog.len(), settler.shard.queue.unsettled()), (2, 1));
    let work = others.queue.take();
    assert!(work.iter().all(|work| work.is_of(moves.id())));
    assert_eq!((work.len(), others.queue.unsettled()), (3, 2));
    assert_eq!((moves.queued_at(), stays.queued_at()), (1, 0));
    let kept = settler.ring.take_all();
    assert!(kept.len() == 1 && kept.iter().all(|debit| debit.account.id() == stays.id()));
}

#[test]
fn what_a_server_sends_elsewhere_is_kept_or_asked_there_or_waits() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let (acme, settler) = (make(&shared, "10"), settler(&shared));
    let answer = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
    let redirected = |text: &str| {
        let barrier = Work::Barrier {
            account: acme.id().clone(),
            reached: tokio::sync::oneshot::channel().0,
        };
        let batch = [barrier, release(&acme, ReleaseKind::Sure)];
        let mut answers = [Some(answer(text))];
        block_on(redirect(&shared, &settler.shard, &settler.link, &batch, &mut answers));
        let [answer] = answers;
        answer
    };
    assert_eq!(redirected("-MOVED 5 b:1\r\n"), None);
    for answered in ["+1\r\n", "-ERR some\r\n", "-TRYAGAIN some\r\n"] {
        assert_eq!(redirected(answered), Some(answer(answered)), "{answered}");
    }
    // Of a map that has one server, that one is asked.
    let asked = redirected("-ASK 5 b:1\r\n");
    assert!(
        asked
            .as_ref()
            .is_some_and(|asked| !matches!(asked, redis::Value::ServerError(_) | redis::Value::Nil)),
        "{asked:?}"
    );
}

#[test]
fn a_master_of_a_cluster_that_is_away_fails_calls_and_its_map_is_doubted() {
    use futures::FutureExt;
    let server = RedisServer::start();
    let mut shared = opened(&server);
    let layout = Layout {
        ranges: [(0, 16_383, "127.0.0.1:1".to_owned())].into(),
        nodes: Default::default(),
    };
    let address = Address::parse("redis+cluster://127.0.0.1:1", None, Duration::from_secs(1)).unwrap();
    let map = Shards::cluster(address, &layout, 10, crate::clock::monotonic()).unwrap();
    Arc::get_mut(&mut shared).expect("nobody else has it").shards = map;
    let mut settler = settler(&shared);
    for _ in 0..FAILURES_MAX {
        assert!(!settler.shard.guard.is_open());
        assert!(block_on(settler.connection()).is_none());
    }
    assert!(settler.shard.guard.is_open());
    assert!(shared.shards.doubted().now_or_never().is_some());
}

/// Without a receipt its place is empty where an end user stands behind it, and is not there else.
#[test]
fn a_settlement_without_a_receipt_names_its_end_user_in_the_right_place() {
    use crate::pure::spend::{EndUser, EndUserId, Reset};
    let server = RedisServer::start();
    let options = crate::ledger::redis::Options {
        receipts_per_account_max: None,
        ..rig::patient(Clock::manual(NOW))
    };
    let (shared, runtime) = RedisLedger::reach(&server.url(), options).unwrap();
    runtime.shutdown_background();
    let mut debit = settlement(&account(&shared, "acme"), 1);
    let arguments = |debit: &QueuedDebit| settle_command(&shared, debit, EvalMode::Hash).args_iter().count();
    let without = arguments(&debit);
    debit.debit.end_user = Some(EndUser {
        id: EndUserId::of("anna"),
        reset: Reset::Daily,
    });
    // Its key, the receipt and how many are kept, who, and for how long.
    assert_eq!(arguments(&debit), without + 5);
}
