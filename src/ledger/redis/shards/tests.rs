//! Whose slots are, and what changes it.

use super::*;

fn layout(ranges: &[(u16, u16, &str)]) -> Layout {
    Layout {
        ranges: ranges.iter().map(|(a, b, node)| (*a, *b, (*node).to_owned())).collect(),
        nodes: ranges.iter().map(|(_, _, node)| (*node).to_owned()).collect(),
    }
}

fn shards(ranges: &[(u16, u16, &str)]) -> Shards {
    let address = Address::parse("redis+cluster://a:1,b:1", None, Duration::from_secs(1)).unwrap();
    Shards::cluster(address, &layout(ranges), 10, crate::clock::monotonic()).unwrap()
}

fn names(shards: &Shards, slots: &[u16]) -> Vec<String> {
    let name = |slot: &u16| format!("{:?}", shards.of_slot(*slot).address);
    slots.iter().map(name).collect()
}

#[test]
fn a_slot_is_its_masters() {
    let shards = shards(&[(0, 99, "a:1"), (100, 16_383, "b:1")]);
    assert_eq!(names(&shards, &[0, 99, 100, 16_383]), ["a:1", "a:1", "b:1", "b:1"]);
    let before = shards.generation();
    assert!(shards.moved(99, "b:1").address.is_node("b:1"));
    assert_eq!(names(&shards, &[98, 99]), ["a:1", "b:1"]);
    assert!(shards.generation() > before);
    // A new master takes over what another had, which stays known.
    shards.laid_out(&layout(&[(0, 98, "c:1"), (99, 16_383, "b:1")]));
    assert_eq!(names(&shards, &[0, 99]), ["c:1", "b:1"]);
    assert_eq!(shards.all().len(), 3);
    let numbers: Vec<usize> = shards.all().iter().map(|shard| shard.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(!shards.has_slots(0) && shards.has_slots(2));
    assert_eq!(shards.nodes(), ["a:1", "b:1", "c:1"]);
}

#[test]
fn a_map_that_says_the_same_changes_nothing() {
    let ranges = [(0, 99, "a:1"), (100, 16_383, "b:1")];
    let shards = shards(&ranges);
    let before = shards.generation();
    shards.laid_out(&layout(&ranges));
    drop(shards.moved(5, "a:1"));
    assert_eq!(shards.generation(), before);
}

#[test]
fn a_bound_is_parted_among_the_masters() {
    let shards = shards(&[(0, 99, "a:1"), (100, 200, "b:1"), (201, 16_383, "c:1")]);
    assert_eq!(shards.share(100_000), 33_334);
    // In a fail-over one server says so of one slot after another, until the map is read.
    drop(shards.moved(5, "d:1"));
    assert_eq!(shards.share(100_000), 33_334);
    shards.laid_out(&layout(&[(0, 99, "d:1"), (100, 200, "b:1"), (201, 16_383, "c:1")]));
    assert_eq!(shards.share(100_000), 33_334);
    shards.laid_out(&layout(&[
        (0, 99, "d:1"),
        (100, 200, "b:1"),
        (201, 300, "c:1"),
        (301, 16_383, "e:1"),
    ]));
    assert_eq!(shards.share(100_000), 25_000);
}

/// What an account has under way is in one queue, so that whoever waits for it knows where.
#[test]
fn an_account_stays_in_its_queue_while_something_of_it_is_there() {
    let shards = shards(&[(0, 16_383, "a:1")]);
    let account = Account::new("acme".parse().unwrap());
    assert_eq!(shards.queue_of(&account).number, 0);
    account.begin();
    shards.laid_out(&layout(&[(0, 16_383, "b:1")]));
    assert_eq!((shards.of(&account).number, shards.queue_of(&account).number), (1, 0));
    account.end();
    assert_eq!(shards.queue_of(&account).number, 1);
}

/// Its settler would wait for work for ever, and the ledger for its settler.
#[test]
fn a_shard_that_comes_to_be_after_the_close_is_closed() {
    let shards = shards(&[(0, 16_383, "a:1")]);
    shards.close();
    drop(shards.moved(5, "b:1"));
    drop(shards.named("c:1"));
    shards.laid_out(&layout(&[(0, 16_383, "d:1")]));
    let closed: Vec<bool> = shards.all().iter().map(|shard| shard.queue.is_closed()).collect();
    assert_eq!(closed, [true; 4]);
}

#[test]
fn a_closed_ledger_gives_up_at_one_time_for_all_shards() {
    let shards = shards(&[(0, 16_383, "a:1")]);
    let within = Duration::from_secs(5);
    assert_eq!([10, 4_000].map(|now_ms| shards.end_ms(now_ms, within)), [5_010; 2]);
}

#[test]
fn any_server_is_one_that_answers_and_has_slots() {
    let shards = shards(&[(0, 99, "a:1"), (100, 16_383, "b:1")]);
    assert_eq!(shards.any().number, 0);
    for _ in 0..crate::ledger::redis::admission_breaker::FAILURES_MAX {
        shards.of_slot(0).guard.failed("test");
    }
    assert_eq!(shards.any().number, 1, "the first does not answer");
    shards.of_slot(0).guard.answered();
    shards.laid_out(&layout(&[(0, 16_383, "b:1")]));
    assert_eq!(shards.any().number, 1, "the first has no slots");
}

/// Where changes are heard: a server that has left the cluster may keep slots that nobody else has.
#[test]
fn masters_are_those_of_the_map_as_it_was_read_last_and_first_those_that_answer() {
    let shards = shards(&[(0, 99, "a:1"), (100, 200, "b:1"), (201, 16_383, "c:1")]);
    let masters = || -> Vec<usize> { shards.masters().iter().map(|shard| shard.number).collect() };
    assert_eq!(masters(), [0, 1, 2]);
    for _ in 0..crate::ledger::redis::admission_breaker::FAILURES_MAX {
        shards.of_slot(0).guard.failed("test");
    }
    assert_eq!(masters(), [1, 2, 0], "the first does not answer");
    shards.laid_out(&layout(&[(0, 99, "a:1"), (201, 16_383, "c:1")]));
    assert!(shards.has_slots(1), "nobody else has them");
    assert_eq!(masters(), [2, 0]);
    assert!(!shards.is_master(1) && shards.is_master(2));
    // What one server says by itself is believed for its slot alone.
    assert_eq!(shards.moved(5, "d:1").number, 3);
    assert!(!shards.is_master(3));
}

#[test]
fn a_doubt_wakes_who_reads_the_map() {
    use futures::FutureExt;
    let shards = shards(&[(0, 16_383, "a:1")]);
    assert!(shards.doubted().now_or_never().is_none());
    shards.doubt();
    assert!(shards.doubted().now_or_never().is_some());
    assert!(shards.doubted().now_or_never().is_none());
}

#[test]
fn what_waits_is_the_sum_of_all_shards_and_the_oldest_of_any() {
    let address = |text| Address::parse(text, None, Duration::from_secs(1)).unwrap();
    let one = Shards::one(address("redis://a:1"), 10, crate::clock::monotonic());
    let many = shards(&[(0, 99, "a:1"), (100, 16_383, "b:1")]);
    assert!(many.is_cluster() && !one.is_cluster());
    for shards in [one, many] {
        let all = shards.all();
        for (shard, oldest) in all.iter().zip([7, 3]) {
            shard.queue.unsettled_again();
            shard.queue.set_oldest(oldest, 0);
        }
        assert_eq!(shards.unsettled(), all.len());
        assert_eq!(shards.oldest_age_ms(10), if all.len() == 1 { 3 } else { 7 });
        // What waits for a slot that moves counts here too, and no call is refused for it.
        all[0].queue.set_oldest(0, 1);
        assert_eq!((shards.oldest_age_ms(10), all[0].queue.oldest_age_ms(10)), (9, 0));
    }
}

#[test]
fn a_server_that_is_named_without_a_host_is_at_the_one_that_names_it() {
    let shards = shards(&[(0, 16_383, "a:1")]);
    let answer = redis::parse_redis_value(b"-MOVED 5 :2\r\n").unwrap();
    let moved = shards.of_slot(5).elsewhere(&answer.extract_error().unwrap_err());
    assert_eq!(moved, Some(Elsewhere::Moved(5, "a:2".to_owned())));
}
