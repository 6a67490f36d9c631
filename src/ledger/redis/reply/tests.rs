//! What the scripts answer, as they write it.

use super::*;
use crate::ledger::tests::rig::request;

#[test]
fn a_reserve_of_an_account_that_is_not_there_says_so() {
    let asked = request(1, "1");
    let read = reserved(&Value::BulkString(b"none".to_vec()), &asked);
    assert_eq!(
        read.err().map(|error| error.to_string()),
        Some(no_account().to_string())
    );
}

#[test]
fn what_an_account_knows_of_a_producer_is_read_as_the_scripts_write_it() {
    let read = |text: &str| numbers(&Value::BulkString(text.as_bytes().to_vec()));
    for (text, closed, open) in [
        ("7 20000", vec![1, 7], vec![8]),
        ("9 20000 3 5-7 ", vec![1, 2, 4, 8, 9], vec![3, 5, 6, 7, 10]),
        ("9 20000 3 4 6-7 8 ", vec![1, 2, 5, 9], vec![3, 4, 6, 7, 8, 10]),
    ] {
        let known = read(text).unwrap();
        assert!(closed.iter().all(|number| known.is_closed(*number)), "{text}");
        assert!(!open.iter().any(|number| known.is_closed(*number)), "{text}");
    }
    for other in [
        "",
        "7",
        "x 20000",
        "7 20000 x ",
        "7 20000 5-8 ",
        "7 20000 5 4 ",
        "7 20000 4 5-4 ",
    ] {
        assert_eq!(read(other), None, "{other:?}");
    }
    assert_eq!(numbers(&Value::Nil), None);
    assert_eq!(numbers(&Value::Int(7)), None);
}

#[test]
fn what_a_release_opened_stands_behind_what_it_gave_back() {
    let run = |text: &str| released_run(&Value::BulkString(text.as_bytes().to_vec()));
    for (text, expected) in [
        ("", None),
        ("2000", None),
        (" 5-5", Some((5, 5))),
        ("2000 5-7", Some((5, 7))),
        ("2000 5", Some((5, 5))),
        ("2000 ", None),
        ("2000 x-7", None),
        ("2000 5-", None),
        (APART, None),
    ] {
        assert_eq!(run(text), expected, "{text:?}");
    }
    assert_eq!(released_run(&Value::Nil), None);
}
