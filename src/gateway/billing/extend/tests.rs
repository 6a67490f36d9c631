//! A call that used more than the catalogue said there can be is debited once its hold was raised, whatever becomes of its request.

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::gateway::billing::closed_call::{ClosedCall, Ending};
use crate::gateway::billing::tests::rig::{
    Asked, Books, STREAM, UNBOUNDED, call_of, closed, event, pass, reported, thousandths,
};
use crate::pure::receipt::Billed;

/// Its client does not ask what it costs, so that nothing was told.
const SILENT: Asked<'_> = Asked {
    more: r#""stream":true"#,
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

#[test]
fn where_nobody_can_be_asked_what_was_admitted_is_debited() {
    let books = Books::with("10");
    let closed_call = over(&books, &SILENT, 20);
    books.settler.close(closed_call);
    assert_eq!(billed(&books).completion_tokens, 10, "outside of a runtime");

    // No account could hold that.
    let (books, runtime) = (Books::with("10"), runtime());
    let mut ctx = books.call(1, &SILENT);
    call_of(&mut ctx).admission.as_mut().unwrap().ceiling.prompt.0 = u64::MAX;
    pass(&mut ctx, &event(&" international".repeat(20)), true);
    close_on(&runtime, &books, closed(&mut ctx, Ending::Complete));
    assert_eq!(billed(&books).completion_tokens, 10);
}
