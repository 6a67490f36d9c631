//! Events for webhooks outlive the process, and so does what was told.

use super::{credits, open, rig};
use crate::ledger::Ledger;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::events::{Event, EventKind, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::embedded::Embedded;
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::rig::{block_on, debit, request};

fn claim(store: &Embedded) -> Vec<Event> {
    let op = EventOp::Claim {
        limit: 100,
        lease_ms: 60_000,
    };
    match store.run_blocking(AdminOp::Event(op)).unwrap() {
        AdminReply::Events { events } => events,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_told_is_known_after_a_restart_and_what_was_claimed_is_due() {
    let rig = rig();
    let (folder, key) = (rig.folder, rig.key);
    let low = TermsChange {
        low_balance_pico: Some(Some(credits("9").pico())),
        ..TermsChange::default()
    };
    let account = "acme".parse().unwrap();
    rig.store
        .run_blocking(AdminOp::Account(AccountOp::Terms { account, change: low }))
        .unwrap();
    let mut store = rig.store;
    let mut kinds = Vec::new();
    for round in 0..3 {
        let ledger = Ledger::Embedded(std::sync::Arc::clone(&store));
        let found = block_on(ledger.authenticate(&key)).unwrap().unwrap();
        let caller = found.checked(super::NOW).unwrap();
        let hold = block_on(caller.reserve(&request(round, "2"))).unwrap().unwrap();
        hold.settle(debit("2"));
        block_on(caller.reserve(&request(100 + round, "100")))
            .unwrap()
            .unwrap_err();
        drop((caller, ledger));
        store.close();
        drop(store);
        store = open(&folder);
        kinds.push(claim(&store).iter().map(|event| event.kind).collect::<Vec<_>>());
        assert_eq!(claim(&store), [], "they are claimed");
    }
    let mut first = kinds[0].clone();
    first.sort_unstable();
    assert_eq!(
        first,
        [EventKind::LowBalance, EventKind::Exhausted, EventKind::CreditsAdded]
    );
    assert!(kinds.iter().all(|kinds| kinds.len() == 3), "{kinds:?}");
}
