//! What a call used, or its provider reported, beyond what it is charged: the operator's loss, and what is counted of it.

use std::num::NonZeroU64;

use serde_json::{Value, json};

use super::debits::{COUNTED, MILLI, settle, settled, usage};
use super::*;
use crate::gateway::billing::tests::rig::{Asked, Books, STREAM, UNBOUNDED, WHOLE, call_of, event, reported, whole};
use crate::pure::usage::PromptTokens;

#[test]
fn what_was_used_beyond_what_was_admitted_is_the_operators_loss_and_counted() {
    let books = Books::with("10");
    settled(&books, &WHOLE, &[whole("a", &usage(150, 2))], Ending::Complete);
    assert_eq!(books.figures().0, "9.896", "a hundred prompt tokens were admitted");
    let counted = books.counted();
    assert_eq!((counted.lost_prompt_tokens, counted.lost_completion_tokens), (50, 0));
    assert_eq!(counted.lost_pico, 50 * MILLI);
    assert_eq!(books.receipts().remove(0).billed.prompt_tokens, 100);

    // Nothing is lost of what costs nothing.
    let books = Books::with("10");
    let free = Asked {
        model: "openai/free",
        ..WHOLE
    };
    settled(&books, &free, &[whole("a", &usage(150, 2))], Ending::Complete);
    assert_eq!(books.counted().lost_prompt_tokens, 0);

    // Nor of what is within.
    let books = Books::with("10");
    settled(&books, &WHOLE, &[whole("a", &usage(9, 2))], Ending::Complete);
    assert_eq!(books.counted().lost_pico, 0);
}

/// However many tokens it is of.
#[test]
fn of_what_a_provider_says_that_a_call_cost_only_what_is_above_the_hold_is_lost() {
    for (cost, lost) in [(0.5, 0), (1.5, 500 * MILLI)] {
        let books = Books::with("10");
        let asked = Asked {
            model: "openai/sum",
            ..STREAM
        };
        let last = reported(150, 2, json!({ "cost": cost }));
        settled(&books, &asked, &[event(COUNTED), last], Ending::Complete);
        let counted = books.counted();
        assert_eq!((counted.lost_prompt_tokens, counted.lost_pico), (0, lost), "{cost}");
    }
}

/// The second took the first one's place.
#[test]
fn two_losses_of_a_call_are_both_counted() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let recorder = &mut call_of(&mut ctx).admission.as_mut().unwrap().recorder;
    let tokens = Usage {
        prompt: PromptTokens(50),
        completion: CompletionTokens(0),
    };
    recorder.lost(tokens, "0.05".parse().unwrap());
    recorder.lost(Usage::default(), "0.001".parse().unwrap());
    drop(ctx);
    let counted = books.counted();
    assert_eq!((counted.lost_prompt_tokens, counted.lost_pico), (50, 51 * MILLI));
}

/// A count is not the provider's: what an error of counting explains is no loss.
#[test]
fn a_completion_is_lost_only_where_no_error_of_counting_explains_it() {
    for (tokens, lost) in [(10, 0), (20, 10)] {
        let books = Books::with("10");
        settled(
            &books,
            &Asked {
                held: "0.03",
                ..UNBOUNDED
            },
            &[event(&" international".repeat(tokens))],
            Ending::ClientGone,
        );
        assert_eq!(books.counted().lost_completion_tokens, lost);
        assert_eq!(books.receipts().remove(0).billed.completion_tokens, 10);
    }
    // A hundredth more than was admitted.
    let mut ceiling = STREAM.ceiling;
    ceiling.completion = CompletionTokens(1_000);
    let books = Books::with("10");
    let mut ctx = books.call(1, &Asked { ceiling, ..STREAM });
    let admission = call_of(&mut ctx).admission.as_mut().unwrap();
    let lost = Usage {
        prompt: PromptTokens(0),
        completion: CompletionTokens(10),
    };
    note_loss(admission, lost);
    drop(ctx);
    assert_eq!(books.counted().lost_pico, 0);
}

/// The same of a whole answer, where the gateway had sent the maximum.
#[test]
fn of_a_whole_answer_too_a_completion_is_lost_only_where_no_error_of_counting_explains_it() {
    for (tokens, lost) in [(10, 0), (20, 10)] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &WHOLE);
        call_of(&mut ctx).admission.as_mut().unwrap().cap = NonZeroU64::new(10);
        let answer = whole(&" international".repeat(tokens), &Value::Null);
        settle(&books, &mut ctx, &[answer], Ending::Complete);
        assert_eq!(books.counted().lost_completion_tokens, lost);
        assert_eq!(books.receipts().remove(0).billed.completion_tokens, 10);
    }
}

#[test]
fn no_call_costs_more_than_its_hold_and_the_rest_is_counted() {
    let books = Books::with("10");
    settled(
        &books,
        &Asked { held: "0.01", ..STREAM },
        &[reported(9, 2, Value::Null)],
        Ending::Complete,
    );
    assert_eq!(books.figures().0, "9.99");
    let counted = books.counted();
    assert_eq!((counted.cuts, counted.debits), (1, 1));
    assert_eq!(counted.lost_pico, 3 * MILLI);
    let books = Books::with("10");
    settled(&books, &STREAM, &[reported(9, 2, Value::Null)], Ending::Complete);
    assert_eq!(books.counted().cuts, 0);
}

/// It may be thinking that stands in no side. What its provider says that it cost has it, and what is free loses nothing.
#[test]
fn a_total_beyond_both_sides_is_counted_where_somebody_could_be_charged_for_it() {
    let cost = json!({ "cost": 0.5 });
    for (model, total, more, beyond) in [
        ("openai/m", 20, Value::Null, 9),
        ("openai/m", 11, Value::Null, 0),
        ("openai/m", 20, cost.clone(), 9),
        ("openai/sum", 20, Value::Null, 9),
        ("openai/sum", 20, cost, 0),
        ("openai/free", 20, Value::Null, 0),
    ] {
        let mut usage = usage(9, 2);
        usage["total_tokens"] = json!(total);
        usage
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap_or_default());
        let books = Books::with("10");
        settled(
            &books,
            &Asked { model, ..WHOLE },
            &[whole("a b", &usage)],
            Ending::Complete,
        );
        assert_eq!(books.counted().beyond_sides, beyond, "{model} {usage}");
    }
}
