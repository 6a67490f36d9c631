//! Which debits are committed together.

use std::time::Instant;

use super::*;
use crate::ledger::embedded::shared::{COMMIT_WINDOW, GROUP_MAX};
use crate::ledger::tests::rig::request_id;

#[test]
fn a_full_group_does_not_wait_for_the_window() {
    let rig = rig();
    let cell = rig.store.find_key(&rig.key).unwrap().place;
    for n in 1..=u64::try_from(GROUP_MAX).unwrap() {
        rig.store
            .settle(&cell, request_id(n), None, debit("0.001"), Entry::none());
    }
    // The ledger's thread does one after the other, and this commits nothing by itself.
    let create = AdminOp::AccountCreate {
        account: "other".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    rig.store.run_blocking(create).unwrap();
    assert_eq!(rig.store.store_metrics().unsettled, 0);
}

/// No command and no reader asks for it, which would have it written.
#[test]
fn a_debit_is_committed_when_its_window_is_over() {
    let rig = rig();
    let cell = rig.store.find_key(&rig.key).unwrap().place;
    rig.store
        .settle(&cell, request_id(1), None, debit("0.001"), Entry::none());
    let until = Instant::now() + 60 * COMMIT_WINDOW;
    while rig.store.store_metrics().unsettled > 0 && Instant::now() < until {
        std::thread::park_timeout(COMMIT_WINDOW / 10);
    }
    assert_eq!(rig.store.store_metrics().unsettled, 0);
}

#[test]
fn a_ledger_whose_thread_has_ended_takes_no_call() {
    let rig = rig();
    let caller = super::spending::caller(&rig.store, rig.key);
    let reserve = |n| crate::ledger::tests::rig::block_on(caller.reserve(&request(n, "1")));
    reserve(1).unwrap().unwrap().release();
    rig.store.close();
    assert!(matches!(reserve(2), Err(StoreError::Unavailable(_))));
}
