//! What is known of a call that has no receipt.

use super::spending::caller;
use super::*;
use crate::ledger::embedded::receipts::standing;
use crate::ledger::query::{RunningCall, Standing};

#[test]
fn a_call_runs_or_may_be_ending_or_is_gone() {
    let rig = rig();
    let caller = caller(&rig.store, rig.key);
    let account = caller.account.id.clone();
    let cell = rig.store.reported(&account).unwrap();
    let standing_of = |id: Option<RequestId>, named: Option<&str>| {
        let query = ReceiptQuery {
            id,
            named: named.map(str::to_owned),
            ..ReceiptQuery::newest(&account, 1)
        };
        standing(&cell, &query)
    };
    let asked = request(1, "2");
    let (answers_own, other) = (Some("chatcmpl-1"), Some(request(2, "1").id));
    assert_eq!(standing_of(Some(asked.id), None), Standing::Gone);
    assert_eq!(standing_of(None, answers_own), Standing::Gone, "nothing runs");
    let hold = block_on(caller.reserve(&asked)).unwrap().unwrap();
    let running = RunningCall {
        id: asked.id,
        held: credits("2"),
        key: None,
    };
    assert_eq!(standing_of(Some(asked.id), None), Standing::Held(running));
    assert_eq!(standing_of(None, answers_own), Standing::Perhaps);
    assert_eq!(standing_of(other, None), Standing::Gone, "it would hold under its id");
    assert_eq!(standing_of(None, None), Standing::Gone, "no call is asked for");
    hold.settle(debit("1"));
    assert_eq!(standing_of(None, answers_own), Standing::Gone);
}
