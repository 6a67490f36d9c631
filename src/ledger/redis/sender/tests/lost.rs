//! Settlements that Redis has lost and nobody here has: when they are told, and whom the question holds up.

use super::known::send_all;
use super::*;
use crate::ledger::redis::replay::Released;
use crate::ledger::redis::sender::lost::Missing;
use crate::ledger::redis::tests::parted;
use crate::ledger::tests::logged::logged;

const TOLD: &str = "ERROR MONEY: Redis has lost 1 settlements of beta for good";

/// A settler of the shard that has acme, which misses one settlement of beta. Beta is the other shard's.
fn that_misses_one(shared: &Arc<Shared>, due_ms: u64) -> Settler {
    let (acme, beta) = (account(shared, "acme"), account(shared, "beta"));
    let number = shared.shards.of(&acme).number;
    assert_ne!(shared.shards.of(&beta).number, number);
    let settler = Settler::new(Arc::clone(shared), shared.shards.all().remove(number));
    let missing = Missing {
        due_ms,
        account: beta,
        producer: ProducerId(5),
        numbers: vec![1],
    };
    assert!(settler.missing.put(missing));
    settler
}

pub(super) fn errors(work: impl FnOnce()) -> Vec<String> {
    let errors = logged(work).into_iter().filter(|line| line.starts_with("ERROR"));
    errors.collect()
}

/// It held up the batches and the renewals of the shard that asked, until it was given up.
#[test]
fn a_master_that_is_silent_holds_up_no_batch_of_who_asks_it_what_it_has() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "beta");
    let acme = make(&shared, "100");
    let settler = that_misses_one(&shared, 0);
    let (shard, missing) = (Arc::clone(&settler.shard), Arc::clone(&settler.missing));
    second.freeze();
    shard.queue.settle(settlement(&acme, 1));
    let is_settled = async {
        while shard.queue.unsettled() > 0 {
            tokio::task::yield_now().await;
        }
    };
    block_on(async {
        tokio::select! {
            () = settler.work() => panic!("nobody has closed its queue"),
            () = is_settled => {}
        }
    });
    // It is asked for still: once it is given up, it is due later.
    assert!(missing.due(0).is_some());
}

/// In the middle of a question, too.
#[test]
fn what_is_missing_at_the_end_is_told_once() {
    let (first, mut second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "beta");
    let told = |due_ms: u64| {
        let settler = that_misses_one(&shared, due_ms);
        settler.shard.queue.close();
        errors(|| block_on(settler.work()))
    };
    for due_ms in [0, u64::MAX] {
        assert_eq!(told(due_ms), [TOLD], "{due_ms}");
    }
    second.kill();
    for due_ms in [0, u64::MAX] {
        let lines = told(due_ms);
        assert!(
            matches!(lines.as_slice(), [line] if line.starts_with(&format!("{TOLD}, unless "))),
            "{lines:?}"
        );
    }
}

/// Whoever goes while the answer is under way leaves it to the next one who asks.
#[test]
fn what_is_asked_for_and_not_answered_stays() {
    use futures::FutureExt;
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "beta");
    let settler = that_misses_one(&shared, 0);
    let told = errors(|| {
        let gone = block_on(async { settler.missing.tell_due(&shared, &settler.link, 0).now_or_never() });
        assert_eq!(gone, None, "no answer can have come");
    });
    assert_eq!(told, [""; 0]);
    assert!(settler.missing.due(0).is_some());
    let told = errors(|| block_on(settler.missing.tell_due(&shared, &settler.link, 0)));
    assert_eq!(told, [TOLD]);
    assert!(settler.missing.due(u64::MAX).is_none());
}

/// It is neither in a batch nor in the ring, and was told as lost.
#[test]
fn what_waits_for_a_slot_that_moves_is_not_lost() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let [acme, other] = ["acme", "other"].map(|name| account(&shared, name));
    let mut settler = settler(&shared);
    for (account, number) in [(&acme, 1), (&acme, 2), (&other, 3)] {
        let work = Work::Settle(settlement(account, number));
        settler.moving.put(work, shared.now_ms());
    }
    let mut lost = |numbers: &[u64]| errors(|| settler.send_lost(&acme, ProducerId(5), numbers));
    assert_eq!(lost(&[1, 2]), [""; 0]);
    let told = "ERROR MONEY: Redis has lost 1 settlements of acme for good";
    assert_eq!(lost(&[1, 2, 3]), [told], "the last one that waits is another account's");
}

/// Of the same number may be another account's, and another process'.
#[test]
fn of_what_was_given_back_only_what_is_lost_is_told_again() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let [acme, other] = ["acme", "other"].map(|name| account(&shared, name));
    let mut settler = settler(&shared);
    let all = [(&acme, 5, 1), (&acme, 5, 2), (&other, 5, 1), (&acme, 6, 1)];
    for (account, producer, number) in all {
        let released = Released {
            account: Arc::clone(account),
            hold: request_id(number),
            number: CallNumber::new(ProducerId(producer), number),
        };
        settler.ring.push_released(released, shared.now_ms());
    }
    settler.send_lost(&acme, ProducerId(5), &[1]);
    let kept = settler.ring.take_released(|_| true);
    let kept = kept
        .iter()
        .map(|released| (&released.account, released.number.producer.0, released.number.number));
    let ids = |calls: Vec<(&Arc<Account>, u64, u64)>| -> Vec<(String, u64, u64)> {
        let id = |(account, producer, number): (&Arc<Account>, u64, u64)| (account.id().to_string(), producer, number);
        calls.into_iter().map(id).collect()
    };
    assert_eq!(ids(kept.collect()), ids(all.into_iter().skip(1).collect()));
}

/// In a cluster that fails over, what a slot's new master lacks is on its way from the settler of the one before: it was told as lost.
#[test]
fn what_may_be_handed_over_is_lost_only_if_it_is_still_not_there_a_while_later() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "acme");
    let acme = make(&shared, "100");
    let number = shared.shards.of(&acme).number;
    let shard = shared.shards.all().remove(number);
    let mut settler = Settler::new(Arc::clone(&shared), shard);
    let lost = |settler: &mut Settler, numbers: &[u64], at_ms: u64| {
        errors(|| {
            settler.send_lost(&acme, ProducerId(5), numbers);
            block_on(settler.missing.tell_due(&shared, &settler.link, at_ms));
        })
    };
    assert_eq!(lost(&mut settler, &[1, 2], 0), [""; 0], "it is early");
    // One of them comes, and with it is known that the first is open.
    settler.shard.queue.settle(settlement(&acme, 2));
    send_all(&mut settler, &second);
    let told = "ERROR MONEY: Redis has lost 1 settlements of acme for good";
    assert_eq!(lost(&mut settler, &[], u64::MAX), [told]);
    assert_eq!(lost(&mut settler, &[], u64::MAX), [""; 0], "once");
    assert_eq!(lost(&mut settler, &[1], 0), [""; 0], "it is early");
    settler.shard.queue.settle(settlement(&acme, 1));
    send_all(&mut settler, &second);
    assert_eq!(lost(&mut settler, &[], u64::MAX), [""; 0], "it has come");
    // At the end, when Redis cannot say.
    settler.send_lost(&acme, ProducerId(5), &[9]);
    let lines = logged(|| settler.missing.tell_unasked());
    assert!(
        matches!(lines.as_slice(), [line] if line.starts_with(&format!("{told}, unless "))),
        "{lines:?}"
    );
}
