//! Holds that are raised while their call runs.

use std::sync::Mutex;

use crate::ledger::tests::rig::{Rig, audit_is_clean, block_on, credits, debit, on_workers, request};
use crate::ledger::{Hold, StoreError};
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::money::Credits;

fn range(wanted: &str, at_least: &str) -> HoldRange {
    HoldRange {
        wanted: credits(wanted),
        at_least: credits(at_least),
    }
}

fn extend(hold: &mut Hold, wanted: &str, at_least: &str, quota: Credits) -> Result<Extended, StoreError> {
    let extended = block_on(hold.extension(range(wanted, at_least), quota));
    if let Ok(Extended::To(amount)) = extended {
        hold.extended(amount);
    }
    extended
}

pub(super) fn a_hold_is_raised_once_and_given_back_whole(rig: &Rig) {
    let caller = rig.caller("10");
    let mut hold = rig.reserve(&caller, &request(1, "2")).unwrap();
    let other = rig.reserve(&caller, &request(2, "3")).unwrap();
    for _ in 0..2 {
        let extended = extend(&mut hold, "4", "4", Credits::MAX);
        assert_eq!(extended.unwrap(), Extended::To(credits("4")));
        assert_eq!((hold.amount(), rig.figures(&caller).held), (credits("4"), credits("7")));
    }
    let extended = extend(&mut hold, "8", "7.000000000001", Credits::MAX);
    assert_eq!(extended.unwrap(), Extended::Refused);
    let extended = extend(&mut hold, "8", "7", Credits::MAX);
    assert_eq!(extended.unwrap(), Extended::To(credits("7")));
    assert_eq!(rig.figures(&caller).held, credits("10"));
    assert!(rig.reserve(&caller, &request(3, "0.000000000001")).is_err());
    hold.settle(debit("6.5"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("3.5"), credits("3")));
    other.release();
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_hold_is_raised_within_the_quota(rig: &Rig) {
    let caller = rig.caller("10");
    rig.reserve(&caller, &request(1, "1")).unwrap().settle(debit("1"));
    let mut hold = rig.reserve(&caller, &request(2, "1")).unwrap();
    let quota = credits("3");
    let extended = extend(&mut hold, "9", "2.5", quota);
    assert_eq!(extended.unwrap(), Extended::Refused);
    let extended = extend(&mut hold, "9", "1.5", quota);
    assert_eq!(extended.unwrap(), Extended::To(credits("2")));
    // In the month after, the quota is there anew. What was settled before has arrived by then.
    assert_eq!(rig.figures(&caller).monthly_used, credits("1"));
    rig.clock.advance(20 * 86_400_000);
    hold.release();
    assert_eq!(
        rig.figures(&caller).held,
        Credits::ZERO,
        "what is given back has arrived"
    );
    let later = rig.clock.now().plus_millis(60_000);
    let again = crate::pure::account::ReserveRequest {
        expires: later,
        ..request(3, "1")
    };
    let mut hold = rig.reserve(&caller, &again).unwrap();
    let extended = extend(&mut hold, "9", "1", quota);
    assert_eq!(extended.unwrap(), Extended::To(credits("3")));
    hold.release();
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_hold_that_is_gone_is_not_raised(rig: &Rig) {
    let caller = rig.caller("10");
    let mut hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    rig.clock.advance(60_001);
    let extended = extend(&mut hold, "2", "2", Credits::MAX);
    assert_eq!(extended.unwrap(), Extended::Gone);
    assert_eq!(
        (hold.amount(), rig.figures(&caller).held),
        (credits("1"), Credits::ZERO)
    );
    hold.settle(debit("0.5"));
    assert_eq!(rig.figures(&caller).balance, credits("9.5"));
    audit_is_clean(&rig.ledger);
}

pub(super) fn many_that_raise_at_once_hold_no_more_than_there_is(rig: &Rig) {
    let caller = rig.caller("10");
    let holds: Vec<Mutex<Option<Hold>>> = (1..=8)
        .map(|n| Mutex::new(Some(rig.reserve(&caller, &request(n, "1")).unwrap())))
        .collect();
    let raised = on_workers(8, |worker| {
        let mut hold = holds[worker].lock().unwrap().take().unwrap();
        let extended = extend(&mut hold, "2", "2", Credits::MAX).unwrap();
        (hold, extended)
    });
    let won = raised
        .iter()
        .filter(|(_, extended)| matches!(extended, Extended::To(_)));
    let held = rig.figures(&caller).held;
    assert!(held <= credits("10"), "{held}");
    assert_eq!(won.count(), 2, "8 of 10 are held by what was admitted");
    for (hold, _) in raised {
        let cost = hold.amount().to_string();
        hold.settle(debit(&cost));
    }
    assert_eq!(rig.figures(&caller).balance, Credits::ZERO);
    audit_is_clean(&rig.ledger);
}
