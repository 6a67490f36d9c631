//! What a receipt says of figures that are not the ones that were billed.

use serde_json::json;

use super::debits::{COUNTED, settle, settled, usage};
use super::*;
use crate::gateway::billing::tests::rig::{Books, STREAM, WHOLE, call_of, event, pass};
use crate::gateway::context::Answer;
use crate::pure::receipt::BilledBy;

#[test]
fn a_report_that_is_behind_stands_in_the_receipt_as_it_came() {
    let books = Books::with("10");
    let behind = format!("data: {}\n\n", json!({ "choices": [], "usage": usage(9, 1) }));
    settled(&books, &STREAM, &[event(COUNTED), behind], Ending::UpstreamFailed);
    let billed = books.receipts().remove(0).billed;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 3));
    let call = &billed.call;
    assert_eq!(
        (call.reported_prompt_tokens, call.reported_completion_tokens),
        (Some(9), Some(1))
    );
    assert_eq!(call.counted_completion_tokens, Some(3));
    assert_eq!(billed.billed_by(), BilledBy::Count);
}

/// The larger of both is billed: the receipt has both.
#[test]
fn a_whole_answer_that_broke_off_has_its_count_beside_its_report() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    let text = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"{COUNTED}"}}}}],"usage":{}"#,
        usage(9, 1)
    );
    let (first, rest) = text.split_at(1);
    pass(&mut ctx, first, false);
    let Answer::Metered(meter) = &mut call_of(&mut ctx).answer else {
        panic!("nothing is metered");
    };
    meter.stop_gathering();
    settle(&books, &mut ctx, &[rest.to_owned()], Ending::UpstreamFailed);
    let billed = books.receipts().remove(0).billed;
    let call = &billed.call;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 3));
    assert_eq!(
        (call.reported_completion_tokens, call.counted_completion_tokens),
        (Some(1), Some(3))
    );
    assert_eq!(billed.billed_by(), BilledBy::Count);
}

/// The report has come: the time that its last byte took is no work.
#[test]
fn no_time_is_billed_behind_a_report_that_follows_all_of_the_text() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    let text = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"{COUNTED}"}}}}],"usage":{}"#,
        usage(9, 4)
    );
    pass(&mut ctx, "{", false);
    let Answer::Metered(meter) = &mut call_of(&mut ctx).answer else {
        panic!("nothing is metered");
    };
    meter.stop_gathering();
    let elapsed_ms = 700;
    settle(
        &books,
        &mut ctx,
        &[text.split_at(1).1.to_owned()],
        Ending::DrainEnded { elapsed_ms },
    );
    let billed = books.receipts().remove(0).billed;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 4));
    assert_eq!(billed.billed_by(), BilledBy::Report);
}

#[test]
fn an_estimate_by_time_is_no_count() {
    let books = Books::with("10");
    let elapsed_ms = 700;
    settled(&books, &STREAM, &[event(COUNTED)], Ending::DrainEnded { elapsed_ms });
    let billed = books.receipts().remove(0).billed;
    assert_eq!(billed.completion_tokens, 7);
    assert_eq!(billed.call.counted_completion_tokens, Some(3));
}
