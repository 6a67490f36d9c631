//! A file's text with its edits.

use std::fmt::Write;
use std::ops::Range;

use crate::edits::{Edit, Kind, marked};

/// The whole file.
pub(crate) fn whole(text: &str, edits: &[Edit]) -> String {
    part(text, 0..text.len(), edits)
}

/// A part of it, with all edits that lie in it.
fn part(text: &str, range: Range<usize>, edits: &[Edit]) -> String {
    let (mut written, mut at, mut left) = (String::new(), range.start, edits);
    while let Some((edit, rest)) = left.split_first() {
        left = rest;
        if edit.range.start < at {
            continue; // It lay in one that was written.
        }
        written.push_str(&text[at..edit.range.start]);
        at = edit.range.start;
        if let Kind::Before(more) | Kind::After(more) = &edit.kind {
            written.push_str(more);
            continue;
        }
        let within: Vec<Edit> = rest
            .iter()
            .filter(|inner| is_within(inner, &edit.range))
            .cloned()
            .collect();
        let inner = |range: &Range<usize>| {
            let inside: Vec<Edit> = within.iter().filter(|inner| is_inside(inner, range)).cloned().collect();
            part(text, range.clone(), &inside)
        };
        let (mutants, usual) = sides(text, edit, &inner);
        let numbers: Vec<String> = mutants.iter().map(|(number, _)| number.to_string()).collect();
        let switch = format!("(match crate::mutant_switch::among(&[{}]) {{ ", numbers.join(", "));
        written.push_str(&switch);
        for (number, mutant) in mutants {
            let written_in = write!(written, "{number} => {{ {} }} ", marked(number, &mutant));
            written_in.expect("a string takes all");
        }
        written.push_str("_ => { ");
        written.push_str(&usual);
        written.push_str(" } })");
        at = edit.range.end;
        let is_written = |inner: &&Edit| is_within(inner, &edit.range);
        left = &rest[rest.iter().take_while(is_written).count()..];
    }
    written.push_str(&text[at..range.end]);
    written
}

/// What stands for an expression in each of its mutants, and without one.
fn sides(text: &str, edit: &Edit, inner: &impl Fn(&Range<usize>) -> String) -> (Vec<(usize, String)>, String) {
    match &edit.kind {
        Kind::Guard(values) => (values.clone(), inner(&edit.range)),
        Kind::Binary {
            left,
            operator,
            right,
            others,
        } => {
            let (left, right) = (inner(left), inner(right));
            let with = |operator: &str| format!("({left}) {operator} ({right})");
            let mutants = others.iter().map(|(number, other)| (*number, with(other)));
            (mutants.collect(), with(&text[operator.clone()]))
        }
        Kind::Unary { operand, without } => {
            let operator = &text[edit.range.start..operand.start];
            let operand = inner(operand);
            let mutants = without.iter().map(|number| (*number, operand.clone()));
            (mutants.collect(), format!("{operator}{operand}"))
        }
        Kind::Before(_) | Kind::After(_) => (Vec::new(), String::new()),
    }
}

/// Whether an edit belongs to the inside of a range. Text at its ends stands outside.
fn is_within(edit: &Edit, range: &Range<usize>) -> bool {
    let is_at_an_end = edit.range.is_empty() && (edit.range.start == range.start || edit.range.end == range.end);
    edit.range.start >= range.start && edit.range.end <= range.end && !is_at_an_end
}

/// The same of a range in an edit, at whose ends others of its edits may stand.
fn is_inside(edit: &Edit, range: &Range<usize>) -> bool {
    edit.range.start >= range.start && edit.range.end <= range.end
}
