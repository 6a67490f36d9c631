//! The counter of delivered text, at its bounds.

use crate::pure::tap::text::{Kind, MARKS_MAX, TokenCounter, WAITING_BYTES_MAX};
use crate::pure::tokens::{self, Encoding};

/// Words of so many bytes, the last of them cut.
fn words(bytes: usize) -> String {
    let mut words = "a word ".repeat(bytes / 7 + 1);
    words.truncate(bytes);
    words
}

#[test]
fn text_waits_up_to_its_bound_and_is_counted_when_more_comes() {
    let mut counter = TokenCounter::new(Encoding::O200k);
    for half in words(WAITING_BYTES_MAX).as_bytes().chunks(WAITING_BYTES_MAX / 2) {
        counter.part(Kind::Content, half);
    }
    assert_eq!(counter.waiting(), WAITING_BYTES_MAX);
    counter.part(Kind::Content, b"s");
    assert_eq!(counter.waiting(), 1);
}

#[test]
fn a_character_across_the_bound_is_counted_whole() {
    let text = words(WAITING_BYTES_MAX - 1);
    let mut counter = TokenCounter::new(Encoding::O200k);
    counter.part(Kind::Content, format!("{text}é").as_bytes());
    assert_eq!(counter.waiting(), "é".len());
    counter.end(Kind::Content);
    counter.commit();
    let expected = tokens::count(&text, Encoding::O200k) + tokens::count("é", Encoding::O200k);
    assert_eq!(counter.committed(), expected);
}

#[test]
fn texts_that_no_longer_wait_are_committed_with_the_others() {
    for (choices, texts) in [(MARKS_MAX / 2, 1), (1, MARKS_MAX)] {
        let mut counter = TokenCounter::new(Encoding::O200k);
        for _ in 0..choices {
            for _ in 0..texts {
                counter.part(Kind::Content, b"a");
                counter.end(Kind::Content);
            }
            counter.end_choice();
        }
        assert_eq!(counter.waiting(), 0, "so many are counted at once");
        counter.commit();
        assert_eq!(counter.committed(), u64::try_from(choices * texts).unwrap());
    }
}

/// As of an answer that is cut off there: its choice has no end.
#[test]
fn texts_that_no_longer_wait_are_committed_when_their_choice_has_no_end() {
    for texts in [MARKS_MAX - 1, MARKS_MAX, MARKS_MAX + 1] {
        let mut counter = TokenCounter::new(Encoding::O200k);
        for _ in 0..texts {
            counter.part(Kind::Content, b"a");
            counter.end(Kind::Content);
        }
        counter.end_cut();
        counter.commit();
        assert_eq!(counter.committed(), u64::try_from(texts).unwrap());
    }
}
