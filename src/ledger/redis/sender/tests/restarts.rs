//! A Redis that comes back with all that it had or without its last moments, and a slot that gets another master: what is told of calls of this
//! process, and what Redis hears again.

use super::known::{balance, send_all};
use super::lost::errors;
use super::*;
use crate::ledger::redis::replay::Released;
use crate::ledger::redis::tests::parted;
use crate::ledger::tests::redis_server::until;

/// The producer of [`settlement`].
const PRODUCER: ProducerId = ProducerId(5);

/// Calls of this process end under these numbers, in this order, and owe 1 each.
fn settle(
    settler: &mut Settler,
    server: &RedisServer,
    account: &Arc<Account>,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<String> {
    errors(|| {
        for number in numbers {
            settler.shard.queue.settle(settlement(account, number));
        }
        send_all(settler, server);
    })
}

/// A call of this process ends whose stream had begun, and owes nothing.
fn give_back(settler: &mut Settler, server: &RedisServer, account: &Arc<Account>, number: u64) {
    let (hold, number) = (request_id(number), CallNumber::new(PRODUCER, number));
    let queue = &settler.shard.queue;
    queue.release(account, hold, Some(number), ReleaseKind::Sure, Entry::none());
    send_all(settler, server);
}

/// Kills the server and starts it again, and has the settler go on. What it tells as errors.
fn restarted(settler: &mut Settler, server: &mut RedisServer) -> Vec<String> {
    server.restart();
    errors(|| {
        settler.asked.1 = 0;
        until("it is back", || block_on(settler.connection()).is_some());
        send_all(settler, server);
    })
}

/// The highest number that acme has met, and those that are open.
fn known(server: &RedisServer) -> Vec<String> {
    let record = server.ask("HGET tg1:{acme} p0000000000000005").pop().unwrap();
    let mut words: Vec<String> = record.split_ascii_whitespace().map(str::to_owned).collect();
    words.remove(1); // The day.
    words
}

fn save(server: &RedisServer) {
    assert_eq!(server.ask("SAVE"), ["+OK"]);
}

/// After each restart, every debit of the minute before it was told as settled by another gateway.
#[test]
fn what_redis_had_acknowledged_here_is_not_told_as_anothers() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, 1..=2), [""; 0]);
    for _ in 0..2 {
        assert_eq!(restarted(&mut settler, &mut server), [""; 0]);
        assert_eq!(balance(&shared, &acme), credits("98"));
    }
}

/// More than a batch, the last numbers first: those of the next batch were told as lost for good.
#[test]
fn what_redis_lost_is_taken_again_and_not_told_as_lost_for_good() {
    let mut server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "1000");
    save(&server);
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, (1..=300).rev()), [""; 0]);
    assert_eq!(restarted(&mut settler, &mut server), [""; 0]);
    assert_eq!(balance(&shared, &acme), credits("700"));
    assert_eq!(known(&server), ["300"]);
}

/// No settlement is missing with it. Its number stayed open, and the next settlement told it as one that is lost for good.
#[test]
fn that_a_call_owed_nothing_is_told_again_to_a_redis_that_lost_it() {
    let mut server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    let held = block_on(shared.try_reserve(&Link::default(), &acme, (&request(2, "5"), true), &mut None));
    held.unwrap().unwrap();
    assert_eq!(settle(&mut settler, &server, &acme, [1]), [""; 0]);
    save(&server);
    give_back(&mut settler, &server, &acme, 2);
    for number in [3, 4] {
        assert_eq!(restarted(&mut settler, &mut server), [""; 0]);
        let view = block_on(shared.view(&Link::default(), acme.id())).unwrap();
        assert_eq!((view.open_holds, view.figures.held), (0, Credits::ZERO));
        assert_eq!(settle(&mut settler, &server, &acme, [number]), [""; 0]);
        assert_eq!(known(&server), [number.to_string()]);
    }
    assert_eq!(balance(&shared, &acme), credits("97"));
    assert!(!acme.is_under_way());
}

/// By its number, on a server that stayed the same; also where it is too long ago to be told again.
#[test]
fn that_a_call_owed_nothing_is_lost_without_a_settlement() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, [1]), [""; 0]);
    server.ask("COPY tg1:{acme} kept");
    for (is_old, expected) in [(false, vec!["3"]), (true, vec!["3", "2"])] {
        give_back(&mut settler, &server, &acme, 2);
        if is_old {
            drop(settler.ring.take_released(|_| true));
        }
        server.ask("COPY kept tg1:{acme} REPLACE");
        assert_eq!(settle(&mut settler, &server, &acme, [3]), [""; 0]);
        assert_eq!(known(&server), expected);
    }
}

/// The release opened its number, and nobody was told: the next settlement opened none.
#[test]
fn a_lost_settlement_is_told_also_where_a_release_comes_before_the_next_one() {
    const TOLD: &str = "ERROR MONEY: Redis has lost 1 settlements of acme for good";
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, [1]), [""; 0]);
    server.ask("COPY tg1:{acme} kept");
    assert_eq!(settle(&mut settler, &server, &acme, [2]), [""; 0]);
    give_back(&mut settler, &server, &acme, 3);
    drop(settler.ring.take_those(|debit| debit.number.number == 2));
    server.ask("COPY kept tg1:{acme} REPLACE");
    let told = errors(|| {
        let released = settler.ring.take_released(|_| true);
        settler.release_again(released);
        send_all(&mut settler, &server);
    });
    assert_eq!(told, [TOLD], "a release that is sent again");
    assert_eq!(settle(&mut settler, &server, &acme, [4]), [""; 0], "once");
    assert_eq!(known(&server), ["4", "2"]);

    server.ask("COPY tg1:{acme} kept REPLACE");
    assert_eq!(settle(&mut settler, &server, &acme, [5]), [""; 0]);
    drop(settler.ring.take_those(|debit| debit.number.number == 5));
    server.ask("COPY kept tg1:{acme} REPLACE");
    let told = errors(|| give_back(&mut settler, &server, &acme, 6));
    assert_eq!(told, [TOLD], "the first release of a call that ends");
    assert_eq!(settle(&mut settler, &server, &acme, [7]), [""; 0], "once");
    assert_eq!(known(&server), ["7", "2", "5"]);
    assert!(!acme.is_under_way());
}

/// One that is in the ring still, or is on its way again behind the release.
#[test]
fn a_settlement_that_a_release_finds_missing_is_taken_again() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, [1]), [""; 0]);
    // The server knows the script of a release from then on.
    give_back(&mut settler, &server, &acme, 2);
    server.ask("COPY tg1:{acme} kept");
    assert_eq!(settle(&mut settler, &server, &acme, [3, 4]), [""; 0]);
    server.ask("COPY kept tg1:{acme} REPLACE");
    let told = errors(|| {
        let again = settler.ring.take_those(|debit| debit.number.number == 4);
        settler.send_again(again);
        let released = Released {
            account: Arc::clone(&acme),
            hold: request_id(5),
            number: CallNumber::new(PRODUCER, 5),
        };
        settler.release_again(vec![released]);
        send_all(&mut settler, &server);
    });
    assert_eq!(told, [""; 0]);
    assert_eq!(known(&server), ["5"]);
    assert_eq!(balance(&shared, &acme), credits("97"));
    assert!(!acme.is_under_way());
}

/// The new master has the debit, and was made one without the release.
#[test]
fn what_is_handed_over_is_no_debit_of_another_gateway_and_no_loss() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "beta");
    let acme = make(&shared, "100");
    let of_acme = || {
        let number = shared.shards.of(&acme).number;
        Settler::new(Arc::clone(&shared), shared.shards.all().remove(number))
    };
    let mut before = of_acme();
    assert_eq!(settle(&mut before, &first, &acme, [1]), [""; 0]);
    let port = second.port();
    assert_eq!(
        first.ask(&format!("MIGRATE 127.0.0.1 {port} tg1:{{acme}} 0 5000 COPY")),
        ["+OK"]
    );
    give_back(&mut before, &first, &acme, 2);
    let layout = Layout {
        ranges: [(acme.slot(), acme.slot(), format!("127.0.0.1:{port}"))].into(),
        nodes: Default::default(),
    };
    shared.shards.laid_out(&layout);
    before.take();
    let mut after = of_acme();
    assert_ne!(after.shard.number, before.shard.number);
    assert_eq!(settle(&mut after, &second, &acme, []), [""; 0]);
    assert_eq!(known(&second), ["2"]);
    assert_eq!(settle(&mut after, &second, &acme, [3]), [""; 0]);
    assert_eq!(known(&second), ["3"]);
    assert!(!acme.is_under_way());
}

fn layout(ranges: &[(u16, u16, &str)]) -> Layout {
    Layout {
        ranges: ranges.iter().map(|(a, b, node)| (*a, *b, (*node).to_owned())).collect(),
        nodes: Default::default(),
    }
}

/// A ledger over a cluster of one master, which is a map alone.
fn of_one_master(server: &RedisServer) -> Arc<Shared> {
    let mut shared = opened(server);
    let address = Address::parse("redis+cluster://a:1", None, Duration::from_secs(1)).unwrap();
    let map = Shards::cluster(address, &layout(&[(0, 16_383, "a:1")]), 10, crate::clock::monotonic()).unwrap();
    Arc::get_mut(&mut shared).expect("nobody else has it").shards = map;
    shared
}

/// A settler whose ring has so many settlements of this account, from number 1 on.
fn with_ring(shared: &Arc<Shared>, account: &Arc<Account>, count: usize) -> Settler {
    let mut settler = settler(shared);
    settler.ring.tend(0);
    for number in 1..=u64::try_from(count).unwrap() {
        settler.ring.push(settlement(account, number), 0);
    }
    settler
}

/// Its part was that of the cluster as it was when this process met the shard.
#[test]
fn a_ring_keeps_a_smaller_part_once_there_are_more_masters() {
    let server = RedisServer::start();
    let shared = of_one_master(&server);
    let acme = account(&shared, "acme");
    assert!(acme.slot() > 99);
    let mut settler = with_ring(&shared, &acme, RING_MAX / 2 + 10);
    shared.shards.laid_out(&layout(&[(0, 99, "b:1"), (100, 16_383, "a:1")]));
    settler.take();
    let kept = settler.ring.take_all();
    let ends = [kept.first(), kept.last()].map(|debit| debit.map(|debit| debit.number.number));
    let last = u64::try_from(RING_MAX / 2 + 10).unwrap();
    assert_eq!(ends, [Some(11), Some(last)]);
}

/// In a fail-over the new master counted beside the old one until the map was read: what was let go of then was sent to nobody.
#[test]
fn a_ring_keeps_its_part_while_one_slot_alone_has_another_master() {
    let server = RedisServer::start();
    let shared = of_one_master(&server);
    let [moves, stays] = ["acme", "beta"].map(|name| account(&shared, name));
    assert_ne!(moves.slot(), stays.slot());
    let count = RING_MAX / 2 + 10;
    let mut settler = with_ring(&shared, &stays, count);
    settler.ring.push(settlement(&moves, 1), 0);
    drop(shared.shards.moved(moves.slot(), "b:1"));
    settler.take();
    let next = shared.shards.all().remove(1);
    assert_eq!(next.queue.take().len(), 1);
    shared.shards.laid_out(&layout(&[(0, 16_383, "b:1")]));
    settler.take();
    assert_eq!(next.queue.take().len(), count);
    assert!(settler.ring.take_all().is_empty());
}
