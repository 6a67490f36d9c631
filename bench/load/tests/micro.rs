//! What the micro bench takes for a count.

use crate::counted::each;

/// What callgrind writes at its end.
fn said(collected: &str) -> String {
    format!(
        "==7== Callgrind, a call-graph generating cache profiler\n==7== \n==7== Events    : Ir\n\
         ==7== Collected : {collected}\n==7== \n==7== I   refs:      {collected}\n"
    )
}

#[test]
fn instructions_are_those_of_each_operation() {
    assert_eq!(each(true, &said("12345"), 100), Ok(123));
    assert_eq!(each(true, &said("12345"), 1), Ok(12345));
}

#[test]
fn a_part_that_fails_or_collects_nothing_is_not_counted() {
    for (has_succeeded, said, told) in [
        (false, said("12345"), "it failed: "),
        (true, said("0"), "no instruction was collected: "),
        (true, said("12x"), "callgrind told no number: "),
        (
            true,
            "valgrind: no such tool\n".to_owned(),
            "callgrind told no number: ",
        ),
    ] {
        let wrong = each(has_succeeded, &said, 100).unwrap_err();
        // What the child said tells why.
        assert_eq!(wrong.strip_prefix(told), Some(said.as_str()));
    }
}
