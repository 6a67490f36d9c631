//! A call that used more than the catalogue said there can be is debited once its hold was raised, whatever becomes of its request.

use serde_json::Value;
use tokio::runtime::Runtime;

use super::raise_and_debit;
use crate::gateway::admission::Admission;
use crate::gateway::billing::closed_call::{ClosedCall, Ending};
use crate::gateway::billing::keep_within::owed_now;
use crate::gateway::billing::tests::rig::{
    Asked, Books, STREAM, UNBOUNDED, call_of, closed, event, pass, reported, thousandths,
};
use crate::pure::bill::COUNTED_INLINE_BYTES_MAX;
use crate::pure::receipt::Billed;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// Its client does not ask what it costs, so that nothing was told. What is held pays for its prompt and ten tokens, and not for twenty.
const SILENT: Asked<'_> = Asked {
    more: r#""stream":true"#,
    held: "0.03",
    ..UNBOUNDED
};

/// A stream of so many tokens, of more bytes than tokens have, that is over; its request is gone.
fn over(books: &Books, asked: &Asked<'_>, tokens: usize) -> ClosedCall {
    let mut ctx = books.call(1, asked);
    pass(&mut ctx, &event(&" international".repeat(tokens)), false);
    pass(&mut ctx, &reported(9, tokens as u64, Value::Null), true);
    closed(&mut ctx, Ending::Complete)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Closes the call as a request on this runtime does.
fn close_on(runtime: &Runtime, books: &Books, closed: ClosedCall) {
    let _inside = runtime.enter();
    books.settler.close(closed);
}

fn billed(books: &Books) -> Billed {
    books.receipts().remove(0).billed
}

#[test]
fn what_was_used_beyond_the_catalogues_maximum_is_debited_once_the_hold_is_raised() {
    let (books, runtime) = (Books::with("10"), runtime());
    close_on(&runtime, &books, over(&books, &SILENT, 20));
    assert_eq!(books.figures().0, "10", "the store is asked first");
    assert_eq!(books.lifecycle.in_flight(), 1, "a stop waits for the debit");
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(books.lifecycle.in_flight(), 0);
    let billed = billed(&books);
    assert_eq!(billed.completion_tokens, 20);
    let left = thousandths(10_000 - billed.prompt_tokens - 40);
    assert_eq!(books.figures(), (left, "0".to_owned()));
    assert_eq!(books.counted().lost_completion_tokens, 0);
}

/// A prompt that is counted beyond its bound is billed at the bound, so no more credit than that costs is asked for.
#[test]
fn a_hold_is_raised_by_no_more_than_the_bound_of_the_prompt() {
    let (books, runtime) = (Books::with("0.14"), runtime());
    let message = "one two three ".repeat(50);
    let asked = Asked {
        message: &message,
        ..SILENT
    };
    close_on(&runtime, &books, over(&books, &asked, 20));
    runtime.block_on(tokio::task::yield_now());
    let billed = billed(&books);
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (100, 20));
    assert_eq!(books.figures(), ("0".to_owned(), "0".to_owned()));
}

/// What is held may pay for more than the catalogue says that there can be: by the prompt itself, and the prices of its own tokens.
#[test]
fn what_the_hold_pays_for_is_debited_at_once_and_whole() {
    for (model, held, balance, left) in [
        ("openai/m", "0.049", "0.049", "0"),
        ("openai/kinds", "0.05", "0.05", "0.001"),
    ] {
        let books = Books::with(balance);
        let asked = Asked { model, held, ..SILENT };
        let mut ctx = books.call(1, &asked);
        pass(&mut ctx, &event(&" international".repeat(20)), false);
        let last = reported(9, 20, Value::Null).replace("data: [DONE]\n\n", "");
        pass(&mut ctx, &last, false);
        books.settler.close(closed(&mut ctx, Ending::ClientGone));
        let billed = billed(&books);
        assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 20), "{model}");
        assert_eq!(books.figures(), (left.to_owned(), "0".to_owned()), "{model}");
        let counted = books.counted();
        assert_eq!((counted.lost_completion_tokens, counted.cuts), (0, 0));
        assert_eq!(counted.raised, [1, 0, 0], "the catalogue is to be corrected");
    }
}

/// Its provider was told how many tokens there may be, and has not certainly sent more: its text came in pieces smaller than tokens.
#[test]
fn an_error_of_our_count_bills_no_more_than_the_provider_was_allowed() {
    let pieces: String = (0..20).map(|_| event("a")).collect();
    for (cap, billed_tokens) in [(Some(10), 10), (None, 20)] {
        for (ending, last) in [(Ending::ClientGone, ""), (Ending::Complete, "data: [DONE]\n\n")] {
            let books = Books::with("10");
            let mut ctx = books.call(1, &Asked { held: "1", ..SILENT });
            call_of(&mut ctx).admission.as_mut().unwrap().cap = cap.and_then(std::num::NonZeroU64::new);
            pass(&mut ctx, &pieces, false);
            pass(&mut ctx, last, ending == Ending::Complete);
            books.settler.close(closed(&mut ctx, ending));
            assert_eq!(billed(&books).completion_tokens, billed_tokens, "{cap:?} {ending:?}");
            assert_eq!(books.counted().lost_completion_tokens, 0);
        }
    }
    // One that was told, and certainly sent more.
    let books = Books::with("10");
    let mut ctx = books.call(1, &Asked { held: "1", ..SILENT });
    call_of(&mut ctx).admission.as_mut().unwrap().cap = std::num::NonZeroU64::new(10);
    pass(&mut ctx, &event(&" international".repeat(20)), false);
    books.settler.close(closed(&mut ctx, Ending::ClientGone));
    assert_eq!(billed(&books).completion_tokens, 20);
}

/// What was admitted of a prompt is its bytes, several times its tokens.
#[test]
fn a_hold_is_raised_by_what_the_prompt_came_to() {
    let (books, runtime) = (Books::with("0.18"), runtime());
    let asked = Asked { held: "0.12", ..SILENT };
    let mut ctx = books.call(1, &asked);
    pass(&mut ctx, &event(&" international".repeat(80)), false);
    pass(&mut ctx, &reported(9, 80, Value::Null), true);
    close_on(&runtime, &books, closed(&mut ctx, Ending::Complete));
    runtime.block_on(tokio::task::yield_now());
    let billed = billed(&books);
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 80));
    assert_eq!(books.figures(), ("0.011".to_owned(), "0".to_owned()));
}

/// The thread that counts is on no runtime; the request was.
#[test]
fn the_hold_of_a_call_with_a_long_prompt_is_raised_like_any_other() {
    let message = "one two three ".repeat(5_000);
    let mut ceiling = UNBOUNDED.ceiling;
    ceiling.prompt.0 = 50_000;
    let asked = Asked {
        message: &message,
        ceiling,
        held: "15.04",
        ..SILENT
    };
    let (books, runtime) = (Books::with("100"), runtime());
    let mut ctx = books.call(1, &asked);
    pass(&mut ctx, &event(&" international".repeat(20)), true);
    close_on(&runtime, &books, closed(&mut ctx, Ending::Complete));
    drop(ctx);
    assert!(books.lifecycle.in_flight() > 0, "a stop waits while it is counted");
    books.settler.finish();
    assert_eq!(books.figures().0, "100", "the store is asked first");
    assert_eq!(books.lifecycle.in_flight(), 1, "and then");
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(books.lifecycle.in_flight(), 0);
    let billed = billed(&books);
    assert_eq!(billed.completion_tokens, 20);
    assert_eq!(
        books.figures(),
        (thousandths(100_000 - billed.prompt_tokens - 40), "0".to_owned())
    );
}

/// Nothing is left to count then.
#[test]
fn a_long_prompt_that_was_reported_is_debited_at_once() {
    let message = "one two three ".repeat(5_000);
    let asked = Asked {
        message: &message,
        held: "60",
        ..STREAM
    };
    let books = Books::with("100");
    let mut ctx = books.call(1, &asked);
    pass(&mut ctx, &event(" one"), false);
    let report = "{\"prompt_tokens\":90}";
    pass(
        &mut ctx,
        &format!("data: {{\"choices\":[],\"usage\":{report}}}\n\n"),
        false,
    );
    books.settler.close(closed(&mut ctx, Ending::ClientGone));
    books.settler.finish();
    let billed = billed(&books);
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (90, 1));
}

#[test]
fn a_maximum_that_was_reached_and_not_passed_is_debited_at_once() {
    let (books, runtime) = (Books::with("10"), runtime());
    close_on(&runtime, &books, over(&books, &SILENT, 10));
    assert_eq!(books.figures(), ("9.971".to_owned(), "0".to_owned()));
}

/// Its client never agreed to more.
#[test]
fn a_clients_own_maximum_is_no_reason_for_more() {
    let (books, runtime) = (Books::with("10"), runtime());
    let asked = Asked {
        ceiling: STREAM.ceiling,
        ..SILENT
    };
    close_on(&runtime, &books, over(&books, &asked, 20));
    assert_eq!(books.lifecycle.in_flight(), 0, "nobody is asked");
    assert_eq!(billed(&books).completion_tokens, 10);
}

/// A gateway that ends while the store is asked: what was admitted is debited, not nothing.
#[test]
fn a_runtime_that_ends_before_the_store_has_answered_debits_what_was_admitted() {
    let (books, runtime) = (Books::with("10"), runtime());
    close_on(&runtime, &books, over(&books, &SILENT, 20));
    assert_eq!(books.figures().0, "10");
    drop(runtime);
    let billed = billed(&books);
    assert_eq!(billed.completion_tokens, 10);
    assert_eq!(books.figures().0, thousandths(10_000 - billed.prompt_tokens - 20));
    assert_eq!(books.lifecycle.in_flight(), 0);
}

/// Twice as much was held as is needed for ten tokens.
#[test]
fn where_nobody_can_be_asked_what_the_hold_pays_for_is_debited() {
    for (held, billed_tokens) in [("0.03", 10), ("0.049", 20), ("0.059", 25), ("1", 80)] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &Asked { held, ..SILENT });
        pass(&mut ctx, &event(&" international".repeat(80)), false);
        let last = reported(9, 80, Value::Null).replace("data: [DONE]\n\n", "");
        pass(&mut ctx, &last, false);
        books.settler.close(closed(&mut ctx, Ending::ClientGone));
        assert_eq!(billed(&books).completion_tokens, billed_tokens, "{held}");
    }
}

#[test]
fn where_nobody_can_be_asked_what_was_admitted_is_debited() {
    let books = Books::with("10");
    let closed_call = over(&books, &SILENT, 20);
    books.settler.close(closed_call);
    assert_eq!(billed(&books).completion_tokens, 10, "outside of a runtime");

    // No account could hold that.
    let (books, runtime) = (Books::with("10"), runtime());
    let mut ctx = books.call(1, &SILENT);
    let mut admission = call_of(&mut ctx).admission.take().unwrap();
    admission.ceiling.prompt.0 = u64::MAX;
    let usage = Usage {
        prompt: PromptTokens(u64::MAX),
        completion: CompletionTokens(20),
    };
    let as_admitted = |admission: Box<Admission>, _| {
        assert_eq!(admission.ceiling.completion.0, 10);
        admission.hold.release();
    };
    raise_and_debit(admission, usage, as_admitted, &books.lifecycle, || {
        Some(runtime.handle().clone())
    });
    assert_eq!(books.lifecycle.in_flight(), 1, "that of the request alone");
    assert_eq!(books.figures().1, "0");
}

/// Counting a long prompt would hold up the stream: it is taken for as long as was admitted, which was a hundred tokens.
#[test]
fn what_is_owed_beside_a_long_prompt_is_what_the_hold_pays_for_beside_the_admitted_one() {
    let books = Books::with("10");
    let words = "one two three ".repeat(6_000);
    let of = |message: &str, n| {
        let asked = Asked {
            message,
            held: "0.2",
            ..UNBOUNDED
        };
        let mut ctx = books.call(n, &asked);
        pass(&mut ctx, &event(&" international".repeat(80)), false);
        let call = call_of(&mut ctx);
        (call.body.visited_bytes(), owed_now(call).unwrap().0.0)
    };
    let one = of("o", 1).0;
    let longest = usize::try_from(COUNTED_INLINE_BYTES_MAX - one + 1).unwrap();
    // Counted, it costs far more than is held: what was admitted is owed.
    assert_eq!(of(&words[..longest], 2), (COUNTED_INLINE_BYTES_MAX, 10));
    assert_eq!(of(&words[..=longest], 3), (COUNTED_INLINE_BYTES_MAX + 1, 50));
    assert_eq!(of(&words, 4).1, 50);
}
