//! What the micro bench takes for a count.

use crate::counted::{each, has_budgets};

/// What callgrind writes at its end.
fn said(collected: &str) -> String {
    format!(
        "==7== Callgrind, a call-graph generating cache profiler\n==7== \n==7== Events    : Ir\n\
         ==7== Collected : {collected}\n==7== \n==7== I   refs:      {collected}\n"
    )
}

/// Budgets of a build without features failed in one with all: nothing said that they are not its own.
#[test]
fn budgets_are_refused_in_a_build_that_they_are_not_of() {
    assert_eq!(has_budgets(false), Ok(()));
    let told = has_budgets(true).unwrap_err();
    assert!(
        told.ends_with("cargo bench --no-default-features --bench micro -- --budgets"),
        "{told}"
    );
    // Each line has its number, and is of a part that such a build has.
    for line in include_str!("../../micro/budgets").lines() {
        let (name, budget) = line.split_once(' ').unwrap();
        assert!(budget.parse::<u64>().is_ok(), "{line}");
        assert!(!name.starts_with("ledger_") && !name.starts_with("journal_"), "{line}");
    }
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
