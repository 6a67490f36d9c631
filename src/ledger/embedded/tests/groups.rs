//! Which debits are committed together.

use super::*;
use crate::ledger::embedded::shared::GROUP_MAX;
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
    };
    rig.store.run_blocking(create).unwrap();
    assert_eq!(rig.store.store_metrics().unsettled, 0);
}
