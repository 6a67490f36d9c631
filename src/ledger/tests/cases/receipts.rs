//! Receipts: one a debit, and they add up to the usage.

use crate::ledger::Debit;
use crate::ledger::admin::{AdminError, AdminOp, ReceiptQuery};
use crate::ledger::tests::rig::{
    NOW, Rig, audit_is_clean, block_on, credits, debit, receipts_are_usage, receipts_of, request, request_id,
};
use crate::pure::account::{Settled, Settlement};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Pricing;
use crate::pure::numbers::{Birth, CallNumber, ProducerId};
use crate::pure::receipt::{CallDetails, CallEnding, EndpointName};
use crate::pure::request_body::Endpoint;
use crate::pure::time::Timestamp;

pub(super) fn a_debit_has_one_receipt_and_a_release_has_none(rig: &Rig) {
    let caller = rig.caller("10");
    let account = &caller.account.id;
    rig.reserve(&caller, &request(1, "4")).unwrap().settle(debit("1.5"));
    rig.reserve(&caller, &request(2, "1")).unwrap().release();
    let mut free = debit("0");
    free.model = "a/free".into();
    rig.reserve(&caller, &request(3, "0")).unwrap().settle(free);
    // An overrun is taken whole, and its receipt says so.
    rig.reserve(&caller, &request(4, "0.25")).unwrap().settle(debit("0.5"));
    let receipt = |n| block_on(rig.ledger.receipt(account, request_id(n))).unwrap();
    let one = receipt(1).unwrap();
    assert_eq!((one.billed.cost, one.billed.held), (credits("1.5"), Some(credits("4"))));
    assert_eq!((one.billed.prompt_tokens, one.billed.completion_tokens), (3, 4));
    assert_eq!((one.billed.model.as_ref(), one.billed.key.as_str()), ("a/m", "key_x"));
    assert_eq!((&one.billed.account, one.resolved), (account, NOW));
    assert_eq!(receipt(2), None);
    assert_eq!(receipt(3).unwrap().billed.cost, credits("0"));
    let four = receipt(4).unwrap();
    assert_eq!(
        (four.billed.cost, four.billed.held),
        (credits("0.5"), Some(credits("0.25")))
    );
    assert_eq!(receipts_of(&rig.ledger, account).len(), 3);
    receipts_are_usage(&rig.ledger, account);
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_receipt_says_what_is_known_and_no_more(rig: &Rig) {
    let caller = rig.caller("10");
    let details = CallDetails {
        provider: Some("openai".into()),
        upstream_id: Some("chatcmpl-\u{e9}\n\"1".to_owned()),
        endpoint: Some(Endpoint::ChatStream),
        ended: Some(Timestamp(7)),
        streamed: Some(true),
        ending: Some(CallEnding::ClientGone),
        pricing: Pricing::from_units_each([2_000_000_000_000_000_000, 1]),
        ..CallDetails::default()
    };
    let told = Debit {
        details: Some(Box::new(details)),
        ..debit("1")
    };
    rig.reserve(&caller, &request(1, "1")).unwrap().settle(told);
    rig.reserve(&caller, &request(2, "1")).unwrap().settle(debit("1"));
    let receipt = |n| {
        block_on(rig.ledger.receipt(&caller.account.id, request_id(n)))
            .unwrap()
            .unwrap()
    };
    let call = receipt(1).billed.call;
    assert_eq!(call.provider.as_deref(), Some("openai"));
    assert_eq!(call.upstream_id.as_deref(), Some("chatcmpl-\u{e9}\n\"1"));
    assert_eq!(
        (call.endpoint, call.streamed),
        (Some(EndpointName::ChatStream), Some(true))
    );
    assert_eq!((call.ended, call.first_byte), (Some(Timestamp(7)), None));
    assert_eq!(call.ending, Some(CallEnding::ClientGone));
    assert_eq!(
        call.prompt_price.map(|price| price.to_string()).as_deref(),
        Some("0.000002")
    );
    assert_eq!(receipt(2).billed.call, Default::default());
}

pub(super) fn receipts_are_listed_newest_first_page_by_page(rig: &Rig) {
    let caller = rig.caller("10");
    for n in 1..=7 {
        let mut debit = debit("0.1");
        debit.model = if n % 2 == 0 { "a/even" } else { "a/odd" }.into();
        rig.reserve(&caller, &request(n, "0.1")).unwrap().settle(debit);
    }
    let pages = |model: Option<&str>| {
        let mut query = ReceiptQuery {
            model: model.map(str::to_owned),
            ..ReceiptQuery::newest(&caller.account.id, 2)
        };
        let mut ids = Vec::new();
        loop {
            let page = block_on(rig.ledger.receipts(query.clone())).unwrap();
            assert!(page.receipts.len() <= 2);
            ids.extend(page.receipts.iter().map(|receipt| receipt.billed.id));
            match page.next {
                Some(next) => query.before = Some(next),
                None => return ids,
            }
        }
    };
    assert_eq!(pages(None), [7, 6, 5, 4, 3, 2, 1].map(request_id));
    assert_eq!(pages(Some("a/even")), [6, 4, 2].map(request_id));
    assert_eq!(pages(Some("a/none")), []);
}

pub(super) fn a_receipt_is_its_accounts_alone(rig: &Rig) {
    let one = rig.caller("10");
    let other = rig.caller_of("other", "10", LimitOverrides::default());
    rig.reserve(&one, &request(1, "1")).unwrap().settle(debit("1"));
    assert_eq!(
        block_on(rig.ledger.receipt(&other.account.id, request_id(1))).unwrap(),
        None
    );
    assert_eq!(receipts_of(&rig.ledger, &other.account.id), []);
    let nobody = AdminOp::Receipts(ReceiptQuery::newest(&"nobody".parse().unwrap(), 9));
    assert!(matches!(rig.run(nobody), Err(AdminError::NoAccount(_))));
}

pub(super) fn a_debit_that_comes_again_has_no_other_receipt(rig: &Rig) {
    let caller = rig.caller("10");
    let book = rig.book(&caller);
    let settlement = |n| Settlement {
        hold: request_id(1),
        cost: credits("1"),
        tokens: 7,
        number: CallNumber::new(ProducerId::new(Birth::at(NOW), 5), n),
    };
    // Out of order, and each of them again.
    for n in [3, 1, 3, 2, 1, 2, 3] {
        book.settle(&settlement(n), &debit("1"), None);
    }
    assert_eq!(book.settle(&settlement(2), &debit("1"), None), Settled::Already);
    let mut numbers: Vec<u64> = receipts_of(&rig.ledger, &caller.account.id)
        .iter()
        .map(|receipt| receipt.billed.number)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    receipts_are_usage(&rig.ledger, &caller.account.id);
    audit_is_clean(&rig.ledger);
}
