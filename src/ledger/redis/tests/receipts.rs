//! Receipts in Redis that were changed by another hand.

use super::{node, patient, request};
use crate::ledger::Ledger;
use crate::ledger::admin::ReceiptQuery;
use crate::ledger::redis::Options;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{audit, block_on, caller_of, debit};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Period;

fn keeping() -> Options {
    Options {
        receipts_per_account_max: std::num::NonZeroU32::new(1_000),
        ..patient()
    }
}

fn three_calls(ledger: &Ledger) {
    let caller = caller_of(ledger, "acme", "100", LimitOverrides::default());
    for n in 1..=3 {
        block_on(caller.reserve(&request(n, "1")))
            .unwrap()
            .unwrap()
            .settle(debit("1"));
    }
    block_on(ledger.usage(&"acme".parse().unwrap(), None, Period::All)).unwrap();
}

#[test]
fn an_entry_that_cannot_be_read_hides_no_other_and_is_found() {
    let server = RedisServer::start();
    let ledger = node(&server, keeping());
    three_calls(&ledger);
    assert!(audit(&ledger).findings.is_empty());
    server.ask("XADD tg1:{acme}:receipts * t 1795132800000 r garbage");
    let account = "acme".parse().unwrap();
    let page = block_on(ledger.receipts(ReceiptQuery::newest(&account, 9))).unwrap();
    assert_eq!((page.receipts.len(), page.unreadable), (3, 1));
    let one = page.receipts.first().unwrap().billed.id;
    assert!(block_on(ledger.receipt(&account, one)).unwrap().is_some());
    let [finding] = &audit(&ledger).findings[..] else {
        panic!("{:?}", audit(&ledger).findings);
    };
    assert!(finding.rule.ends_with("can be read"), "{}", finding.rule);
    assert_eq!(finding.found, Credits::ZERO);
}
