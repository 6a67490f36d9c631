//! What was thrown away is nobody's bill, and is counted as what its provider is likely to charge.

use serde_json::{Value, json};

use super::*;
use crate::gateway::billing::tests::rig::{Asked, Books, STREAM, WHOLE, call_of, event, pass, reported, whole};
use crate::ledger::tests::logged::logged;
use crate::pure::charge::Ceiling;
use crate::pure::usage::PromptTokens;

/// A thousandth of a credit.
const MILLI: i128 = 1_000_000_000;

/// What was counted of a call whose answer was thrown away after this piece: of how many answers, and for how much.
fn discarded(asked: &Asked<'_>, piece: &str) -> (u64, i128) {
    let books = Books::with("10");
    let mut ctx = books.call(1, asked);
    pass(&mut ctx, piece, false);
    let call = call_of(&mut ctx);
    answer(call);
    assert!(matches!(call.answer, Answer::None));
    drop(ctx);
    assert_eq!(
        books.figures(),
        ("10".to_owned(), "0".to_owned()),
        "the account pays nothing"
    );
    let counted = books.counted();
    (counted.discarded, counted.discarded_pico / MILLI)
}

fn prompt_of(asked: &Asked<'_>) -> (u64, u64) {
    let books = Books::with("10");
    let mut ctx = books.call(1, asked);
    let call = call_of(&mut ctx);
    let model = call.admission.as_ref().unwrap().permit.model();
    let counted = counted_prompt(&call.body, &model.id, &prompt_limits(model));
    (counted.0, estimated_prompt(call.body.prompt_bytes()).0)
}

#[test]
fn what_a_provider_reported_is_what_it_is_likely_to_charge() {
    assert_eq!(discarded(&STREAM, &reported(9, 2, Value::Null)), (1, 13));
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 2 });
    assert_eq!(discarded(&WHOLE, &whole("one", &usage)), (1, 13));
    // At most what was admitted of the prompt.
    assert_eq!(discarded(&STREAM, &reported(500, 2, Value::Null)), (1, 104));
}

/// By both a line of a provider's export, of which there is no receipt, is found in the log.
#[test]
fn the_log_names_the_provider_and_the_answers_own_id() {
    let named = |asked: &Asked<'_>, piece: &str| {
        let books = Books::with("10");
        let mut ctx = books.call(1, asked);
        pass(&mut ctx, piece, false);
        let mut lines = logged(|| answer(call_of(&mut ctx)));
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = lines.swap_remove(0);
        let begins = format!("WARN request {}: an answer of openai/m by main, ", ctx.id);
        let rest = line.strip_prefix(&begins).unwrap_or_else(|| panic!("{line}"));
        let (own_id, rest) = rest.split_once(", broke off").unwrap_or_else(|| panic!("{line}"));
        assert!(rest.ends_with(" at its list prices)"), "{line}");
        own_id.to_owned()
    };
    let stream = |id: Value| event(" a b c").replace("\"theirs-1\"", &id.to_string());
    assert_eq!(named(&STREAM, &event(" a b c")), "with the id theirs-1");
    let cut = r#"{"id":"gen-1","choices":[{"message":{"content":"one two"#;
    assert_eq!(named(&WHOLE, cut), "with the id gen-1");
    // What is answered in one piece though a stream was asked for.
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 2 });
    assert_eq!(named(&STREAM, &whole("one", &usage)), "with the id theirs-1");
    for none in [Value::Null, json!(""), json!("x".repeat(257))] {
        assert_eq!(named(&STREAM, &stream(none)), "without an id");
    }
    for text in ["two words", "a\nb", "a\u{1b}[1m", "\"", "é"] {
        assert_eq!(named(&STREAM, &stream(json!(text))), "with an id that is no name");
    }
}

#[test]
fn an_error_costs_nothing() {
    assert_eq!(
        discarded(&STREAM, "data: {\"error\":{\"code\":502,\"message\":\"no\"}}\n\n").0,
        0
    );
}

#[test]
fn a_prompt_that_was_not_reported_is_counted_where_that_is_quick_and_else_estimated() {
    let ceiling = Ceiling {
        prompt: PromptTokens(100_000),
        ..STREAM.ceiling
    };
    let piece = event(" a b c");
    let short = Asked { ceiling, ..STREAM };
    let message = "a  b\n".repeat(20_000);
    let long = Asked {
        message: &message,
        ..short
    };
    let ((short_counted, short_estimated), (long_counted, long_estimated)) = (prompt_of(&short), prompt_of(&long));
    assert!(short_counted != short_estimated && long_counted != long_estimated);
    assert_eq!(discarded(&short, &piece), (1, i128::from(short_counted + 6)));
    assert_eq!(discarded(&long, &piece), (1, i128::from(long_estimated + 6)));
}
