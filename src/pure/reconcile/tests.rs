//! An export against receipts: what is missing, doubled or different.

use std::sync::Arc;

use super::*;
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::numbers::{Birth, CallNumber, ProducerId};
use crate::pure::receipt::{Billed, CallFacts};

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

fn tokens(prompt: u64, completion: u64) -> Tokens {
    usage(prompt, completion).into()
}

/// The receipt of a request, resolved at `at`, of 10 and 5 tokens.
fn receipt(number: u8, answer: &str, at: i64) -> Receipt {
    let id = RequestId::from_bytes([number; 16]);
    let mut billed = Billed::new(
        id,
        CallNumber::new(ProducerId::new(Birth(1), 1), number.into()),
        (&"acme".parse().unwrap(), &KeyId::from("key_x".to_owned())),
        &Arc::from("a/m"),
        (usage(10, 5), Credits::PICO, None),
        None,
    );
    billed.call = CallFacts {
        provider: Some("openai".into()),
        upstream_id: Some(answer.to_owned()),
        created: Some(Timestamp(at - 10)),
        ended: Some(Timestamp(at)),
        ..CallFacts::default()
    };
    Receipt {
        resolved: Timestamp(at),
        billed,
    }
}

fn name(number: u8) -> ReceiptName {
    ReceiptName::of(&receipt(number, "", 0))
}

/// Rows of these ids and tokens, one a line from line 2 on, against receipts.
fn reconcile_in(scope: Scope, rows: &[(&str, u64, u64)], receipts: &[Receipt]) -> Reconciled {
    let mut all = Reconciliation::new(scope);
    for ((id, prompt, completion), line) in rows.iter().zip(2..) {
        let (id, usage) = ((*id).to_owned(), usage(*prompt, *completion));
        all.row(ExportRow { id, usage, line }).unwrap();
    }
    receipts.iter().for_each(|receipt| all.receipt(receipt));
    all.finish()
}

fn reconcile(rows: &[(&str, u64, u64)], receipts: &[Receipt]) -> Reconciled {
    reconcile_in(Scope::default(), rows, receipts)
}

/// Of openai, from 1000 to 2000.
fn scope() -> Scope {
    Scope {
        provider: Some("openai".to_owned()),
        window: Some(Window {
            from: Timestamp(1_000),
            to: Timestamp(2_000),
        }),
    }
}

const REQUEST_1: &str = "01010101-0101-0101-0101-010101010101";

#[test]
fn rows_that_agree_are_matched_by_either_id() {
    let result = reconcile(
        &[(REQUEST_1, 10, 5), ("b", 10, 5)],
        &[receipt(3, "c", 30), receipt(2, "b", 20), receipt(1, "a", 10)],
    );
    assert_eq!(result.findings, []);
    assert_eq!((result.rows, result.matched, result.receipts), (2, 2, 3));
    assert_eq!((result.oldest, result.unlisted), (Some(Timestamp(10)), None));
}

#[test]
fn a_row_without_a_receipt_is_missing() {
    let result = reconcile(&[("a", 10, 5), ("b", 7, 8)], &[receipt(1, "a", 10)]);
    let (id, line, export) = ("b".to_owned(), 3, tokens(7, 8));
    assert_eq!(result.findings, [Finding::Missing { id, line, export }]);
    assert_eq!((result.matched, result.missing), (1, 1));
}

#[test]
fn an_id_that_stands_twice_in_the_export_is_doubled() {
    let result = reconcile(
        &[("a", 10, 5), ("b", 10, 5), ("a", 10, 5), ("a", 1, 1)],
        &[receipt(1, "a", 10), receipt(2, "b", 10)],
    );
    let expected = Finding::Doubled {
        ids: vec!["a".to_owned()],
        lines: vec![2, 4, 5],
        receipts: 1,
        named: vec![name(1)],
    };
    assert_eq!(result.findings, [expected]);
    assert_eq!((result.rows, result.matched, result.doubled), (4, 1, 1));
}

#[test]
fn a_row_that_stands_twice_and_has_no_receipt_is_both() {
    let result = reconcile(&[("a", 10, 5), ("a", 10, 5)], &[]);
    assert!(matches!(
        result.findings[..],
        [Finding::Missing { line: 2, .. }, Finding::Doubled { receipts: 0, .. }]
    ));
    assert_eq!((result.matched, result.missing, result.doubled), (0, 1, 1));
}

#[test]
fn two_receipts_of_one_answer_are_doubled() {
    let mut receipts: Vec<Receipt> = (1..=20).map(|number| receipt(number, "a", 10)).collect();
    let result = reconcile(&[("a", 10, 5)], &receipts);
    let [
        Finding::Doubled {
            lines,
            receipts: 20,
            named,
            ..
        },
    ] = &result.findings[..]
    else {
        panic!("{:?}", result.findings);
    };
    assert_eq!((&lines[..], named.len()), (&[2][..], 10));
    assert_eq!(named[..2], [name(1), name(2)]);
    assert_eq!((result.matched, result.doubled), (0, 1));
    receipts.truncate(1);
    assert_eq!(reconcile(&[("a", 10, 5)], &receipts).findings, []);
}

#[test]
fn a_call_that_is_listed_by_both_its_ids_is_doubled() {
    let result = reconcile(&[("a", 10, 5), (REQUEST_1, 10, 5)], &[receipt(1, "a", 10)]);
    let expected = Finding::Doubled {
        ids: vec!["a".to_owned(), REQUEST_1.to_owned()],
        lines: vec![2, 3],
        receipts: 1,
        named: vec![name(1)],
    };
    assert_eq!(result.findings, [expected]);
    assert_eq!((result.matched, result.doubled), (0, 1));
    // An answer that was given the request's own id has one name.
    assert_eq!(
        reconcile(&[(REQUEST_1, 10, 5)], &[receipt(1, REQUEST_1, 10)]).matched,
        1
    );
}

#[test]
fn what_the_provider_reported_is_compared_and_else_what_was_billed() {
    let different = |export: (u64, u64), reported: [Option<u64>; 2]| {
        let mut receipt = receipt(1, "a", 10);
        [
            receipt.billed.call.reported_prompt_tokens,
            receipt.billed.call.reported_completion_tokens,
        ] = reported;
        let result = reconcile(&[("a", export.0, export.1)], &[receipt]);
        assert_eq!(result.matched + result.different, 1);
        match result.findings.into_iter().next() {
            Some(Finding::Different { export, receipt, .. }) => Some((export, receipt)),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(different((10, 5), [None, None]), None);
    assert_eq!(different((10, 6), [None, None]), Some((tokens(10, 6), tokens(10, 5))));
    // What was billed was bounded by the hold; the provider's report says more.
    assert_eq!(different((10, 900), [None, Some(900)]), None);
    assert_eq!(
        different((10, 5), [Some(11), Some(5)]),
        Some((tokens(10, 5), tokens(11, 5)))
    );
    assert_eq!(different((11, 0), [Some(11), Some(0)]), None);
}

#[test]
fn receipts_of_the_exports_time_that_it_lacks_are_unlisted() {
    let mut unknown = receipt(6, "u", 1_500);
    unknown.billed.call.provider = None;
    let mut other = receipt(7, "o", 1_500);
    other.billed.call.provider = Some("mistral".into());
    let mut late = receipt(8, "l", 5_000); // The debit came with a start after a crash.
    late.billed.call.created = Some(Timestamp(1_400));
    late.billed.call.ended = Some(Timestamp(1_450));
    let receipts = [
        late,
        receipt(1, "after", 2_000),
        receipt(2, "in", 1_999),
        receipt(3, "listed", 1_500),
        receipt(4, "first", 1_010),
        receipt(5, "across", 1_009),
        unknown,
        other,
    ];
    let result = reconcile_in(scope(), &[("listed", 10, 5)], &receipts);
    let ids: Vec<Option<&str>> = result
        .findings
        .iter()
        .map(|finding| match finding {
            Finding::Unlisted { id, .. } => id.as_deref(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [Some("l"), Some("in"), Some("first")]);
    assert_eq!((result.unlisted, result.receipts, result.matched), (Some(3), 7, 1));
    // Without a provider or without its time nobody knows what the export should have.
    for scope in [
        Scope {
            provider: None,
            ..scope()
        },
        Scope {
            window: None,
            ..scope()
        },
    ] {
        let result = reconcile_in(scope, &[("listed", 10, 5)], &receipts);
        assert_eq!((result.findings.len(), result.unlisted), (0, None));
    }
}

#[test]
fn another_providers_receipt_is_no_proof() {
    let mut other = receipt(1, "a", 1_500);
    other.billed.call.provider = Some("mistral".into());
    assert_eq!(
        reconcile_in(scope(), &[(REQUEST_1, 10, 5)], &[other.clone()]).missing,
        1
    );
    other.billed.call.provider = None;
    assert_eq!(reconcile_in(scope(), &[(REQUEST_1, 10, 5)], &[other]).matched, 1);
}

#[test]
fn findings_stand_in_the_order_of_the_lines() {
    let result = reconcile_in(
        scope(),
        &[("c", 1, 1), ("x", 1, 1), ("b", 10, 5), ("y", 1, 1), ("b", 10, 5)],
        &[receipt(1, "a", 1_500), receipt(2, "b", 1_500), receipt(3, "c", 1_500)],
    );
    let kinds: Vec<String> = result
        .findings
        .iter()
        .map(|finding| {
            serde_json::to_value(finding).unwrap()["finding"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, ["different", "missing", "doubled", "missing", "unlisted"]);
    assert_eq!(
        serde_json::to_string(&result.findings[0]).unwrap(),
        r#"{"finding":"different","id":"c","line":2,"export":{"prompt":1,"completion":1},"receipt":{"prompt":10,"completion":5},"account":"acme","request":"03030303-0303-0303-0303-030303030303"}"#
    );
}

#[test]
fn what_is_kept_is_bounded() {
    let mut all = Reconciliation::new(scope());
    all.rows = ROWS_MAX - 1;
    let row = ExportRow {
        id: "a".to_owned(),
        usage: usage(1, 1),
        line: 2,
    };
    assert_eq!(all.row(row.clone()), Ok(()));
    assert_eq!(all.row(row), Err(TooManyRows));
    all.unlisted = UNLISTED_MAX - 1;
    for number in 1..4 {
        all.receipt(&receipt(number, "b", 1_500));
    }
    let result = all.finish();
    assert_eq!(result.unlisted, Some(UNLISTED_MAX + 2));
    assert_eq!(result.findings.len(), 2);
}

#[test]
fn the_rows_of_an_export_are_counted() {
    let mut all = Reconciliation::new(Scope::default());
    assert_eq!(all.rows(), 0);
    for (line, count) in [(2, 1), (3, 2), (4, 3)] {
        let (id, usage) = (format!("id-{line}"), usage(1, 1));
        all.row(ExportRow { id, usage, line }).unwrap();
        assert_eq!(all.rows(), count);
    }
}
