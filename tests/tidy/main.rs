//! Rules over the source text that no compiler holds: where imports may point, how long a file may be, which words are used.
//!
//! Each rule is a function from a tree of files to findings, so that small trees prove that it finds what breaks it (`broken.rs`). What the
//! repository may break, and why, stands in `exceptions.rs`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it measured"
)]

mod broken;
mod exceptions;
mod imports;
mod nightly;
mod rules;
mod skips;
mod tree;

use self::tree::{Finding, Tree};

fn check(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn imports_point_down() {
    check(&rules::direction::check(&Tree::of_repository(), exceptions::UPWARD));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    check(&rules::circles::check(&Tree::of_repository(), exceptions::CIRCLES));
    let bench = Tree::of_repository().crate_of("bench/load/");
    assert!(bench.files.len() > 20, "only {} files were found", bench.files.len());
    check(&rules::circles::check(&bench, &[]));
}

#[test]
fn no_file_is_too_long() {
    check(&rules::text::lengths(&Tree::of_repository()));
}

#[test]
fn every_file_says_what_it_is_for() {
    check(&rules::text::heads(&Tree::of_repository()));
}

#[test]
fn what_a_request_passes_touches_no_files() {
    check(&rules::text::file_system(&Tree::of_repository()));
}

#[test]
fn documents_that_are_named_are_here() {
    check(&rules::text::documents(&Tree::of_repository()));
}

#[test]
fn no_retired_word_is_used() {
    check(&rules::text::words(&Tree::of_repository(), exceptions::WORDS));
}

#[test]
fn nothing_names_a_machine_or_is_left_to_do() {
    check(&rules::text::left_overs(&Tree::of_repository()));
}

#[test]
fn no_test_sleeps_without_a_reason() {
    check(&rules::text::sleeps(&Tree::of_repository()));
}

#[test]
fn tests_that_the_guide_names_are_there() {
    check(&rules::text::named_tests(&Tree::of_repository()));
}

#[test]
fn functions_are_short() {
    check(&rules::functions::median(&Tree::of_repository()));
}
