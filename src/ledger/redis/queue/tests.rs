//! What waits for Redis, how it is counted, and when no more may wait.

use super::*;

#[test]
fn what_is_queued_is_taken_and_stands_in_its_accounts_slot() {
    let (queue, account) = (Queue::new(), Arc::new(Account::new("acme".parse().unwrap())));
    assert!(queue.is_empty());
    let hold = RequestId::from_bytes([1; 16]);
    queue.release(&account, hold, None, ReleaseKind::Sure, Entry::none());
    queue.put(
        Work::Barrier {
            account: account.id().clone(),
            reached: oneshot::channel().0,
        },
        0,
    );
    assert!(!queue.is_empty());
    let slots: Vec<u16> = queue.take().iter().map(Work::slot).collect();
    // As Redis says it: CLUSTER KEYSLOT acme.
    assert_eq!(slots, [11_304; 2]);
    assert!(queue.is_empty());
}

/// Money: what waits is what a dead Redis and a dead process together may lose sight of.
#[test]
fn calls_are_refused_once_too_many_settlements_wait_or_one_for_too_long() {
    let age_max = Duration::from_millis(500);
    let check = |is_closed, count, oldest_ms| {
        let queue = Queue::new();
        queue.closed.store(is_closed, Ordering::Relaxed);
        queue.unsettled.store(count, Ordering::Relaxed);
        queue.oldest_ms.store(oldest_ms, Ordering::Relaxed);
        queue.check(1_000, 10, age_max)
    };
    assert_eq!(check(false, 0, 0), Ok(()));
    assert_eq!(check(false, 9, 500), Ok(()));
    for (is_closed, count, oldest_ms) in [(true, 0, 0), (false, 10, 500), (false, 9, 499)] {
        let refused = check(is_closed, count, oldest_ms);
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{is_closed} {count} {oldest_ms}: {refused:?}"
        );
    }
}

fn debit(account: &Arc<Account>, queued_ms: u64) -> QueuedDebit {
    QueuedDebit {
        account: Arc::clone(account),
        hold: RequestId::from_bytes([1; 16]),
        known: None,
        debit: crate::ledger::tests::rig::debit("1"),
        number: CallNumber::new(crate::pure::numbers::ProducerId(5), queued_ms),
        origin: Origin::Own,
        is_doubted: false,
        is_written_out: false,
        sent: 0,
        queued_ms,
        entry: Entry::none(),
    }
}

#[test]
fn settlements_that_wait_are_counted_and_the_oldest_says_for_how_long() {
    let account = Arc::new(Account::new("acme".parse().unwrap()));
    let put = |queue: &Queue, queued_ms| queue.put(Work::Settle(debit(&account, queued_ms)), queued_ms);
    let settle = |queue: &Queue, queued_ms| queue.settle(debit(&account, queued_ms));
    for add in [&put as &dyn Fn(&Queue, u64), &settle] {
        let queue = Queue::new();
        add(&queue, 5);
        add(&queue, 8);
        assert_eq!((queue.unsettled(), queue.oldest_age_ms(10)), (2, 5));
        queue.settled();
        assert_eq!(queue.unsettled(), 1);
    }
}

#[test]
fn work_is_of_its_own_account_and_a_barrier_of_none() {
    let [acme, other] = ["acme", "other"].map(|name| Arc::new(Account::new(name.parse().unwrap())));
    let settle = Work::Settle(debit(&acme, 1));
    let release = Work::Release {
        account: Arc::clone(&acme),
        hold: RequestId::from_bytes([1; 16]),
        number: None,
        kind: ReleaseKind::Sure,
        entry: Entry::none(),
    };
    let barrier = Work::Barrier {
        account: acme.id().clone(),
        reached: oneshot::channel().0,
    };
    for (work, is_of) in [(settle, true), (release, true), (barrier, false)] {
        assert_eq!(
            (work.is_of(acme.id()), work.is_of(other.id())),
            (is_of, false),
            "{work:?}"
        );
    }
}

#[test]
fn the_sender_hurries_once_there_is_enough_for_a_batch() {
    use futures::FutureExt;
    let (queue, account) = (Queue::new(), Arc::new(Account::new("acme".parse().unwrap())));
    for n in 1..=ENOUGH {
        assert!(queue.hurried().now_or_never().is_none(), "before {n}");
        queue.settle(debit(&account, 1));
    }
    assert!(queue.hurried().now_or_never().is_some());
    assert!(queue.filled().now_or_never().is_some());
}
