//! Writes all mutants that cargo-mutants lists into one source tree, each behind its number: `TOLLGATE_MUTANT` says which one is on, and
//! without it none is. A build of that tree is a build of each of them, which takes a second each in place of half a minute. The same
//! program tells which mutants a test comes by.
//!
//! `at-once TREE LISTING WITHOUT`: changes the files below TREE that LISTING (`cargo mutants --list --json`) has mutants of. WITHOUT is a
//! file with the numbers of those that are left out, since they do not compile; a mutant's number is its place in the listing, from 1.
//! Prints the numbers of those that are in, on a line. What it cannot write this way (a field that is left out, a condition with `let`, a
//! value of an `impl Trait`) is not among them: cargo-mutants tries these one by one.

mod edits;
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use serde::Deserialize;

/// A mutant of the listing, as far as it is needed.
#[derive(Deserialize)]
struct Listed {
    file: String,
    genre: String,
    replacement: String,
    span: Lines,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    return_type: String,
}

#[derive(Deserialize)]
struct Lines {
    start: Place,
}

/// From 1, in characters.
#[derive(Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

/// The same with the byte of its file at which what it changes begins.
struct Mutant {
    number: usize,
    genre: String,
    replacement: String,
    begins: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tree, listing, without] = &arguments[..] else {
        return Err("usage: at-once TREE LISTING WITHOUT".into());
    };
    let listed: Vec<Listed> = serde_json::from_str(&std::fs::read_to_string(listing)?)?;
    let without = std::fs::read_to_string(without)?;
    let without: BTreeSet<usize> = without.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let mut files: BTreeMap<String, Vec<(usize, Listed)>> = BTreeMap::new();
    for (number, mutant) in (1..).zip(listed) {
        // A function that returns `impl Trait` has one type, and its mutants have others.
        let types = mutant.function.as_ref().map(|function| &function.return_type);
        let is_other = mutant.genre == "FnValue" && types.is_some_and(|types| types.contains("impl "));
        if !is_other && !without.contains(&number) {
            files.entry(mutant.file.clone()).or_default().push((number, mutant));
        }
    }
    let mut numbers = BTreeSet::new();
    for (file, listed) in files {
        let path = Path::new(tree).join(&file);
        let text = std::fs::read_to_string(&path)?;
        let mutants: Vec<Mutant> = listed
            .into_iter()
            .map(|(number, mutant)| in_bytes(&text, number, mutant))
            .collect();
        let parsed = syn::parse_file(&text).map_err(|error| format!("{file}: {error}"))?;
        let (edits, written) = edits::of(&text, &parsed, &mutants);
        std::fs::write(&path, render::whole(&text, &edits))?;
        numbers.extend(written);
    }
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    println!("{}", numbers.join(" "));
    Ok(())
}

fn in_bytes(text: &str, number: usize, mutant: Listed) -> Mutant {
    let offset = |place: &Place| {
        let before: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
        let line = &text[before..];
        let column = line.char_indices().nth(place.column - 1);
        before + column.map_or(line.len(), |(at, _)| at)
    };
    Mutant {
        number,
        begins: offset(&mutant.span.start),
        genre: mutant.genre,
        replacement: mutant.replacement,
    }
}
