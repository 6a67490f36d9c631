//! What waits for a slot that moves: when it is tried, what follows it, and when its holds are renewed.

use tokio::sync::oneshot;

use super::*;
use crate::ledger::cover::Cover;
use crate::ledger::journal::Entry;
use crate::ledger::redis::holds::OpenHold;
use crate::ledger::redis::queue::{Origin, ReleaseKind};
use crate::ledger::tests::rig::{credits, debit, request_id};
use crate::pure::account::Scope;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};

/// The life of a hold that is known, and of any other.
const TTL_MS: u64 = 900;
const OTHER_TTL_MS: u64 = 90_000;

fn moving() -> Moving {
    Moving::new(Duration::from_millis(OTHER_TTL_MS))
}

fn account(name: &str) -> Arc<Account> {
    Arc::new(Account::new(name.parse().unwrap()))
}

/// A settlement of the hold with its number, which was renewed then, where it is known.
fn settlement(account: &Arc<Account>, number: u64, renewed_ms: Option<u64>) -> Work {
    let known = renewed_ms.map(|renewed_ms| OpenHold {
        account: Arc::clone(account),
        scope: Scope::Account,
        amount: credits("1"),
        quota: Credits::MAX,
        ttl_ms: TTL_MS,
        renewed_ms,
        raised_ms: None,
        cover: Arc::new(Cover::of(None)),
        spend: None,
        ends_when_stopped: false,
    });
    Work::Settle(QueuedDebit {
        account: Arc::clone(account),
        hold: request_id(number),
        known,
        debit: debit("1"),
        number: CallNumber::new(ProducerId(5), number),
        origin: Origin::Own,
        is_doubted: false,
        is_written_out: false,
        sent: 1,
        queued_ms: 1_000 + number,
        entry: Entry::none(),
    })
}

fn release(account: &Arc<Account>, number: u64) -> Work {
    Work::Release {
        account: Arc::clone(account),
        hold: request_id(number),
        number: None,
        kind: ReleaseKind::Sure,
        entry: Entry::none(),
    }
}

fn barrier(account: &Arc<Account>) -> (Work, oneshot::Receiver<()>) {
    let (reached, wait) = oneshot::channel();
    let account = account.id().clone();
    (Work::Barrier { account, reached }, wait)
}

fn holds(works: &[Work]) -> Vec<RequestId> {
    works.iter().filter_map(hold_of).collect()
}

/// The lives that holds get at this time, and whose these are.
fn due(moving: &Moving, now_ms: u64) -> Vec<(u64, Vec<RequestId>)> {
    let due = moving.to_renew(now_ms).into_iter();
    due.map(|(_, ttl_ms, holds)| (ttl_ms, holds)).collect()
}

#[test]
fn one_of_each_account_is_tried_and_the_others_follow_it() {
    let (acme, other) = (account("acme"), account("other"));
    let (mut moving, again_ms) = (moving(), millis(AGAIN));
    assert_eq!((moving.due_in(0), moving.oldest_ms()), (None, None));
    for number in 1..=3 {
        moving.put(settlement(&acme, number, None), 5_000);
    }
    moving.put(release(&other, 9), 5_050);
    assert_eq!(moving.oldest_ms(), Some(1_001));
    assert_eq!(moving.due_in(5_050), Some(Duration::from_millis(again_ms - 50)));
    assert!(moving.take_due(5_000 + again_ms - 1).is_empty());
    let tried = moving.take_due(5_000 + again_ms);
    assert_eq!(holds(&tried), [1, 9].map(request_id));
    assert!(moving.take_due(9_000).is_empty(), "there is no answer yet");

    // They come back, and are the first again.
    for work in tried {
        moving.put(work, 9_000);
    }
    let tried = moving.take_due(9_000 + again_ms);
    assert_eq!(holds(&tried), [1, 9].map(request_id));

    assert!(moving.take_rest(&acme, request_id(2), 9_200).is_empty(), "another one");
    let rest = moving.take_rest(&acme, request_id(1), 9_200);
    assert_eq!(holds(&rest), [2, 3].map(request_id));
    let is_new = |work: &Work| matches!(work, Work::Settle(debit) if debit.queued_ms == 9_200);
    assert!(rest.iter().all(is_new), "{rest:?}");
    assert_eq!(acme.waits_since_ms(), None);
    assert!(!moving.has(acme.id()) && moving.has(other.id()));
    assert!(moving.take_rest(&other, request_id(9), 9_200).is_empty());
    assert!(moving.is_empty());
}

#[test]
fn who_waits_for_an_account_waits_behind_all_that_waits_of_it() {
    let acme = account("acme");
    for is_gone in [false, true] {
        let mut moving = moving();
        let (waits, receiver) = barrier(&acme);
        moving.put(settlement(&acme, 1, None), 0);
        moving.put(waits, 0);
        moving.put(settlement(&acme, 2, None), 0);
        let receiver = (!is_gone).then_some(receiver);
        assert_eq!(holds(&moving.take_due(millis(AGAIN))), [request_id(1)]);
        let rest = moving.take_rest(&acme, request_id(1), 0);
        assert_eq!(holds(&rest), [request_id(2)]);
        let first_is_barrier = matches!(rest.first(), Some(Work::Barrier { .. }));
        assert_eq!(
            (rest.len(), first_is_barrier),
            if is_gone { (1, false) } else { (2, true) }
        );
        drop(receiver);
    }
}

#[test]
fn holds_are_renewed_when_a_third_of_their_life_is_over() {
    let (acme, other) = (account("acme"), account("other"));
    let mut moving = moving();
    moving.put(settlement(&acme, 1, Some(5_000)), 5_100);
    moving.put(settlement(&acme, 2, Some(4_900)), 5_100);
    moving.put(release(&other, 9), 5_100);
    let both = || vec![(TTL_MS, [1, 2].map(request_id).to_vec())];
    assert_eq!((due(&moving, 5_199), due(&moving, 5_200)), (Vec::new(), both()));
    // That of the one that is tried too.
    let tried = moving.take_due(5_200);
    assert_eq!(tried.len(), 2);
    assert_eq!(due(&moving, 5_200), both());
    moving.renewed(&[request_id(1)], 5_200);
    assert_eq!(due(&moving, 5_200), both(), "one was not renewed");
    moving.renewed(&[1, 2].map(request_id), 5_200);
    assert_eq!((due(&moving, 5_499), due(&moving, 5_500)), (Vec::new(), both()));
    for work in tried {
        moving.put(work, 5_210);
    }
    assert!(due(&moving, 5_499).is_empty(), "it came back");
    // Of this one nobody knows how long it lives: it is renewed at once.
    moving.put(settlement(&acme, 3, None), 5_300);
    let all = [both(), vec![(OTHER_TTL_MS, vec![request_id(3)])]].concat();
    assert_eq!(due(&moving, 5_300), all);
}

#[test]
fn what_is_anothers_by_now_is_taken_and_the_rest_stays() {
    let (acme, other) = (account("acme"), account("other"));
    let mut moving = moving();
    moving.put(settlement(&acme, 1, None), 0);
    moving.put(settlement(&other, 2, None), 0);
    let taken = moving.take_those(|account| account.id() == acme.id(), 7);
    assert_eq!(holds(&taken), [request_id(1)]);
    assert_eq!((acme.waits_since_ms(), other.waits_since_ms()), (None, Some(1_002)));
    assert!(!moving.has(acme.id()) && moving.has(other.id()));
}
