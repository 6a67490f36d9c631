//! What is kept of an answer that leaves, when it counts as ended, and what all answers together may take.

use super::*;
use crate::gateway::billing::early_end::EarlyEnd;
use crate::gateway::billing::tests::rig::{Books, STREAM, call_of};

/// Of an answer alone, with how much is allocated.
fn capture(bytes_max: u64) -> (Capture, &'static AtomicUsize) {
    let all = Box::leak(Box::default());
    let limits = Idempotency {
        answer_bytes_max: bytes_max,
        ..Idempotency::default()
    };
    (Capture::among(all, &limits), all)
}

fn ended(mut capture: Capture) -> Option<Bytes> {
    capture.has_ended = true;
    capture.whole(true).map(|answer| answer.body)
}

/// A call with an `Idempotency-Key` whose answer passes.
fn keyed(books: &Books) -> Ctx {
    let mut ctx = books.call(1, &STREAM);
    call_of(&mut ctx).capture = Some(Box::new(capture(100).0));
    ctx
}

/// What is kept of it at its end.
fn kept(ctx: &mut Ctx) -> Option<Bytes> {
    call_of(ctx)
        .capture
        .take()
        .unwrap()
        .whole(true)
        .map(|answer| answer.body)
}

#[test]
fn an_answer_is_kept_whole_or_not_at_all() {
    let (mut kept, _) = capture(10);
    kept.take(b"12345");
    kept.take(b"67890");
    assert!(kept.is_kept());
    assert_eq!(&*ended(kept).unwrap(), b"1234567890");

    let (mut too_long, _) = capture(10);
    too_long.take(b"12345");
    too_long.take(b"678901");
    assert!(!too_long.is_kept());
    too_long.take(b"1");
    assert_eq!(ended(too_long), None);

    let (mut cut, _) = capture(10);
    cut.take(b"12345");
    assert_eq!(cut.whole(false), None);
}

#[test]
fn what_an_earlier_target_began_is_forgotten() {
    let (mut kept, _) = capture(10);
    kept.take(b"123456789");
    kept.begins();
    kept.take(b"abcdef");
    assert_eq!(&*ended(kept).unwrap(), b"abcdef");
}

#[test]
fn what_leaves_is_kept_once_it_has_ended() {
    let books = Books::with("10");
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    let mut ctx = keyed(&books);
    leaves(&mut ctx, Some(&one), false);
    leaves(&mut ctx, Some(&two), true);
    leaves(&mut ctx, None, true);
    assert_eq!(&*kept(&mut ctx).unwrap(), b"onetwo");

    let mut ctx = keyed(&books);
    leaves(&mut ctx, Some(&one), false);
    assert_eq!(kept(&mut ctx), None, "it has not ended");

    let mut ctx = keyed(&books);
    call_of(&mut ctx).early_end = Some(EarlyEnd::Maximum);
    leaves(&mut ctx, Some(&one), false);
    assert_eq!(&*kept(&mut ctx).unwrap(), b"one", "the gateway has ended it");

    let mut ctx = keyed(&books);
    call_of(&mut ctx).answer = Passing::None;
    leaves(&mut ctx, Some(&one), true);
    assert_eq!(kept(&mut ctx), None, "that is no answer of a provider");
}

#[test]
fn an_answer_that_broke_off_is_kept_with_the_end_that_its_client_got() {
    let books = Books::with("10");
    let (piece, tail) = (Bytes::from_static(b"piece"), Bytes::from_static(b"tail"));
    let mut ctx = keyed(&books);
    leaves(&mut ctx, Some(&piece), false);
    ends_with(&mut ctx, Some(&tail));
    assert_eq!(&*kept(&mut ctx).unwrap(), b"piecetail");

    let mut ctx = keyed(&books);
    leaves(&mut ctx, Some(&piece), false);
    ends_with(&mut ctx, None);
    assert_eq!(kept(&mut ctx), None);
}

#[test]
fn what_is_allocated_is_counted_until_the_answer_is_gone() {
    let (mut first, all) = capture(u64::MAX);
    first.take(b"1");
    assert_eq!(all.load(Ordering::Relaxed), ALLOCATED_AT_FIRST);
    first.take(&[0; ALLOCATED_AT_FIRST]);
    assert_eq!(all.load(Ordering::Relaxed), 2 * (ALLOCATED_AT_FIRST + 1));
    assert!(first.kept.as_ref().unwrap().bytes.capacity() <= 2 * (ALLOCATED_AT_FIRST + 1));
    let answer = ended(first).unwrap();
    assert_eq!(answer.len(), ALLOCATED_AT_FIRST + 1);
    assert!(all.load(Ordering::Relaxed) > 0, "it waits for the store");
    drop(answer);
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn all_answers_together_have_a_bound() {
    for (others, is_kept) in [
        (CAPTURED_MAX - ALLOCATED_AT_FIRST, true),
        (CAPTURED_MAX - ALLOCATED_AT_FIRST + 1, false),
        (CAPTURED_MAX, false),
    ] {
        let (mut kept, all) = capture(10);
        all.store(others, Ordering::Relaxed);
        kept.take(b"1");
        assert_eq!(kept.is_kept(), is_kept, "{others}");
        drop(kept);
        assert_eq!(all.load(Ordering::Relaxed), others);
    }
}

/// What is allocated is used to its last byte before there is more.
#[test]
fn an_answer_that_fits_takes_no_more() {
    let (mut kept, all) = capture(u64::MAX);
    let half = vec![b'x'; ALLOCATED_AT_FIRST / 2];
    kept.take(&half);
    kept.take(&half);
    assert_eq!(all.load(Ordering::Relaxed), ALLOCATED_AT_FIRST);
    kept.take(b"x");
    assert_eq!(all.load(Ordering::Relaxed), 2 * (ALLOCATED_AT_FIRST + 1));
    assert_eq!(ended(kept).unwrap().len(), ALLOCATED_AT_FIRST + 1);
}
