//! What is logged of debits.

use super::*;
use crate::ledger::tests::logged::logged;

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_call_that_cost_more_than_it_held_is_told() {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    for (n, cost, is_told) in [(1, "0", false), (2, "1", false), (3, "1.000000000001", true)] {
        let hold = block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap();
        let id = request(n, "1").id;
        let lines = logged(|| hold.settle(debit(cost)));
        let told = format!("DEBUG request {id} cost more than it held: {cost}");
        let expected = if is_told { vec![told] } else { nothing() };
        assert_eq!(lines, expected, "{cost}");
    }
}

#[test]
fn a_debit_of_the_process_before_that_cannot_be_taken_is_told_and_another_is_not() {
    let rig = rig();
    let account = caller_of(&rig.store, &rig.key).account.id.clone();
    let took = |number, cost: &str| {
        let number = CallNumber::new(rig.store.producer(), number);
        let debit = Debit {
            cost: cost.parse().unwrap(),
            ..debit("1")
        };
        logged(|| {
            rig.store.take_from_predecessor(
                &account,
                crate::ledger::tests::rig::request_id(number.number),
                debit,
                number,
            )
        })
    };
    assert_eq!(took(1, "1"), nothing());
    assert_eq!(took(1, "1"), nothing(), "it was taken before");
    let largest = Credits::MAX.to_string();
    let lines: Vec<String> = (2..5).flat_map(|number| took(number, &largest)).collect();
    assert!(
        !lines.is_empty()
            && lines
                .iter()
                .all(|line| line.starts_with("ERROR MONEY: the debit of request ")),
        "{lines:?}"
    );
}
