//! Batches of writes: what leaves together, and what is written before more is read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;

static ALL: AtomicUsize = AtomicUsize::new(0);

fn head() -> Box<ResponseHeader> {
    Box::new(ResponseHeader::build(200, None).unwrap())
}

/// A batch of an answer that leaves as it comes.
fn burst() -> WriteBatch<'static> {
    WriteBatch::new(head(), Version::HTTP_11, None, &ALL)
}

/// One of an answer that is gathered.
fn whole(bytes_max: usize, all: &AtomicUsize) -> WriteBatch<'_> {
    gathered(Until::End, bytes_max, all)
}

/// One that waits for an event.
fn before_event(bytes_max: usize, all: &AtomicUsize) -> WriteBatch<'_> {
    gathered(Until::Event, bytes_max, all)
}

fn gathered(until: Until, bytes_max: usize, all: &AtomicUsize) -> WriteBatch<'_> {
    let limits = GatherLimits {
        until,
        within: Duration::from_secs(1),
        bytes_max,
        total_bytes_max: 1 << 20,
    };
    WriteBatch::new(head(), Version::HTTP_11, Some(limits), all)
}

fn piece(text: impl Into<Bytes>, ends: bool) -> Piece {
    Piece {
        bytes: Some(text.into()),
        ends,
    }
}

fn body(part: Option<Part>) -> (String, bool) {
    let part = part.expect("nothing");
    assert!(part.head.is_none(), "the head again");
    (String::from_utf8(part.bytes.to_vec()).unwrap(), part.ends)
}

/// What a batch gives at once: the head's length, its framing, the bodies in their order, and whether the last one ends it.
fn begun(batch: &mut WriteBatch<'_>) -> (Option<String>, Vec<Bytes>, bool) {
    let first = batch.take().unwrap().expect("nothing");
    let head = first.head.expect("no head");
    let told = head.headers.get(header::CONTENT_LENGTH);
    let length = told.map(|told| told.to_str().unwrap().to_owned());
    assert_eq!(length.is_none(), head.headers.contains_key(header::TRANSFER_ENCODING));
    let (mut bodies, mut ended) = (vec![first.bytes], first.ends);
    while let Some(part) = batch.rest() {
        assert!(part.head.is_none(), "the head again");
        assert!(!ended, "a piece after the last");
        (bodies, ended) = ([bodies, vec![part.bytes]].concat(), part.ends);
    }
    (length, bodies, ended)
}

#[test]
fn a_streams_head_leaves_at_once_and_by_itself_when_nothing_has_come() {
    let mut burst = burst();
    assert!(!burst.is_empty() && !burst.begins_unfinished());
    assert_eq!(begun(&mut burst), (None, vec![Bytes::new()], false));
    assert!(burst.is_empty() && burst.take().unwrap().is_none());
}

#[test]
fn a_gathered_answer_leaves_at_its_end_with_its_length() {
    let all = AtomicUsize::new(0);
    let mut waits = whole(100, &all);
    for text in ["a", "", "b"] {
        waits.push(piece(text, false));
        assert!(waits.is_empty() && !waits.is_full() && !waits.begins_unfinished());
        assert!(waits.take().unwrap().is_none());
    }
    assert_eq!(all.load(Ordering::Relaxed), 2);
    waits.push(piece("c", true));
    assert!(waits.is_full() && waits.has_ended());
    assert_eq!(begun(&mut waits), (Some("3".to_owned()), vec!["abc".into()], true));
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn an_answer_that_ends_with_its_head_is_told_to_be_empty() {
    let all = AtomicUsize::new(0);
    let mut ends = whole(100, &all);
    ends.push(piece("", true));
    assert_eq!(begun(&mut ends), (Some("0".to_owned()), vec![Bytes::new()], true));
}

#[test]
fn what_is_large_is_not_copied_and_every_byte_leaves_once_in_order() {
    let all = AtomicUsize::new(0);
    let sizes = [1, 2, 5000, 3, 70_000, 4096, 4095, 1, 20_000, 90_000, 7];
    let pieces: Vec<Bytes> = sizes
        .iter()
        .enumerate()
        .map(|(index, size)| (0..*size).map(|at| (at * 31 + index) as u8).collect::<Vec<u8>>().into())
        .collect();
    let mut waits = whole(1 << 20, &all);
    for (index, bytes) in pieces.iter().enumerate() {
        waits.push(piece(bytes.clone(), index + 1 == sizes.len()));
    }
    let (length, bodies, ended) = begun(&mut waits);
    assert_eq!(length, Some(sizes.iter().sum::<usize>().to_string()));
    assert!(ended && bodies.concat() == pieces.concat());
    let is_kept = |bytes: &Bytes| bodies.iter().any(|body| body.as_ptr() == bytes.as_ptr());
    assert_eq!(
        bodies[0].len(),
        5006,
        "what is short leaves with the head, in one write"
    );
    let mut later = pieces.iter().skip(4).filter(|bytes| bytes.len() >= BYTES_MAX);
    assert!(later.all(is_kept));
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn beyond_its_limits_a_gathered_answer_leaves_as_it_comes() {
    let all = AtomicUsize::new(0);
    let mut waits = whole(5, &all);
    waits.push(piece("abc", false));
    assert!(waits.is_empty());
    waits.push(piece("def", false));
    assert!(!waits.is_empty() && waits.begins_unfinished());
    assert_eq!(begun(&mut waits), (None, vec!["abcdef".into()], false));
    assert_eq!(all.load(Ordering::Relaxed), 0);
    assert!(waits.is_empty() && !waits.begins_unfinished());
    waits.push(piece("g", true));
    assert_eq!(body(waits.take().unwrap()), ("g".to_owned(), true));
}

#[test]
fn when_its_time_is_over_a_gathered_answer_leaves_with_its_next_bytes() {
    let all = AtomicUsize::new(0);
    let mut waits = whole(5, &all);
    waits.stop_gathering();
    assert!(waits.is_empty(), "a head alone waits");
    assert!(waits.begins_unfinished(), "what leaves with it is known before");
    waits.push(piece("a", false));
    assert!(waits.begins_unfinished());
    assert_eq!(begun(&mut waits), (None, vec!["a".into()], false));
}

#[test]
fn what_waits_for_an_event_leaves_with_it_as_it_comes_and_in_chunks() {
    let all = AtomicUsize::new(0);
    for ends in [false, true] {
        let mut waits = before_event(100, &all);
        waits.push(piece("a", false));
        waits.push(piece("b", false));
        assert!(waits.waits_for_event() && waits.is_empty() && !waits.is_full() && waits.is_urgent());
        assert!(waits.take().unwrap().is_none());
        waits.push(piece("c", ends));
        waits.has_event();
        assert!(!waits.waits_for_event() && !waits.begins_unfinished());
        assert_eq!(begun(&mut waits), (None, vec!["abc".into()], ends));
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
    // What leaves as it comes has nothing to wait for.
    assert!(!burst().waits_for_event() && !whole(100, &all).waits_for_event());
}

#[test]
fn beyond_its_limits_what_waits_for_an_event_leaves_at_once_and_unfinished() {
    let all = AtomicUsize::new(0);
    let mut late = before_event(5, &all);
    late.stop_gathering();
    assert!(!late.is_empty() && late.begins_unfinished(), "a head alone leaves");
    assert_eq!(begun(&mut late), (None, vec![Bytes::new()], false));
    assert!(!late.begins_unfinished());
    let mut long = before_event(5, &all);
    long.push(piece("abc", false));
    assert!(long.is_empty());
    long.push(piece("def", false));
    assert!(!long.waits_for_event() && long.begins_unfinished());
    assert_eq!(begun(&mut long), (None, vec!["abcdef".into()], false));
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_dropped_is_given_back() {
    let all = AtomicUsize::new(0);
    let mut waits = whole(100, &all);
    waits.push(piece("abc", false));
    assert_eq!(all.load(Ordering::Relaxed), 3);
    drop(waits);
    assert_eq!(all.load(Ordering::Relaxed), 0);
}

#[test]
fn pieces_leave_together_in_their_order_and_the_end_with_them() {
    let mut burst = burst();
    burst.take().unwrap();
    burst.push(piece("a", false));
    assert_eq!(body(burst.take().unwrap()), ("a".to_owned(), false));
    for text in ["b", "", "c"] {
        burst.push(piece(text, false));
    }
    burst.push(piece("d", true));
    assert!(burst.is_full() && burst.has_ended());
    assert_eq!(body(burst.take().unwrap()), ("bcd".to_owned(), true));
    assert!(burst.rest().is_none());
}

#[test]
fn the_first_bytes_of_what_leaves_as_it_comes_wait_for_none_behind_them() {
    let mut burst = burst();
    assert!(burst.is_urgent());
    burst.take().unwrap();
    assert!(burst.is_urgent(), "its head has left, and no event");
    burst.push(piece("", false));
    assert!(burst.take().unwrap().is_none() && burst.is_urgent());
    burst.push(piece("a", false));
    burst.take().unwrap();
    assert!(!burst.is_urgent());
    let all = AtomicUsize::new(0);
    let mut gathered = whole(1 << 10, &all);
    assert!(!gathered.is_urgent(), "it waits for its end anyway");
    gathered.stop_gathering();
    assert!(gathered.is_urgent());
}

#[test]
fn a_full_one_takes_no_more() {
    let mut burst = burst();
    burst.take().unwrap();
    let text = "0123456789abcdef";
    for _ in 0..BYTES_MAX / text.len() {
        assert!(!burst.is_full());
        burst.push(piece(text, false));
    }
    assert!(burst.is_full());
    assert_eq!(body(burst.take().unwrap()).0.len(), BYTES_MAX);
    assert!(!burst.is_full());
}
