//! A field is found by the length of its name; here it is looked for the long way as well.

use super::*;
use crate::pure::request_body::letters::is_folded;

/// The long way: each known name is compared.
fn folded_long(name: &str) -> Option<&'static str> {
    FIELDS
        .iter()
        .map(|&(known, _)| known)
        .find(|known| is_folded(name, known))
}

/// The same of the maxima alone.
fn maximum_long(name: &str) -> Option<&'static str> {
    ["max_tokens", "max_completion_tokens"]
        .into_iter()
        .chain(other_maxima())
        .find(|known| is_folded(name, known))
}

/// Names that are `known`, fold to it, or nearly do.
fn variants(known: &str) -> Vec<String> {
    let upper = known.to_uppercase();
    let signs = |name: &str| name.replace('k', "\u{212a}").replace('s', "\u{17f}");
    let mut names = vec![
        known.to_owned(),
        upper.clone(),
        signs(known),
        signs(&upper.replace('K', "k").replace('S', "s")),
        format!("{known}x"),
        format!("x{known}"),
        format!("{known}\0"),
        format!("{known} "),
        format!("{upper}{upper}"),
        known.replace('_', ""),
        known.replace('_', "-"),
        // They look alike, and fold to no letter of ASCII.
        known.replace('i', "\u{131}"),
        upper.replace('I', "\u{130}"),
        known.replace('a', "\u{ff41}"),
        known.replace('e', "\u{e9}"),
        known.replace('s', "\u{1e9e}"),
        "\u{212a}".repeat(known.len()),
    ];
    for (at, letter) in known.char_indices() {
        let (before, after) = (&known[..at], &known[at + letter.len_utf8()..]);
        names.push(format!("{before}{}{after}", letter.to_ascii_uppercase()));
        names.push(format!("{before}{after}"));
        names.push(format!("{before}{letter}{letter}{after}"));
        names.push(format!("{before}\u{e4}{after}"));
        names.push(format!("{before}~{after}"));
    }
    names
}

#[track_caller]
fn check(name: &str) {
    assert_eq!(find_maximum(name.as_bytes()), maximum_long(name), "{name:?}");
    let found = find_folded(name.as_bytes()).map(|field| field.name);
    assert_eq!(found, folded_long(name), "{name:?}");
    if !may_fold(name.as_bytes()) {
        let exact = find(name.as_bytes()).map(|field| field.name);
        assert_eq!(exact, folded_long(name), "{name:?}");
    }
}

#[test]
fn a_name_is_found_by_its_length_as_it_is_by_comparing_it_with_all() {
    let (mut names, mut maxima) = (0_usize, 0_usize);
    for (known, _) in FIELDS {
        for name in variants(known) {
            check(&name);
            names += 1;
            maxima += usize::from(find_maximum(name.as_bytes()).is_some());
        }
    }
    assert!(names > 5_000, "{names}");
    assert!(maxima > 200, "{maxima} of {names} are maxima");
    for other in ["", "a", "K", "\u{212a}", "\u{17f}", "\0"] {
        check(other);
    }
    for letter in ["a", "A", "\u{212a}", "\u{10ffff}"] {
        for length in 0..=text::NAME_BYTES_MAX + 4 {
            check(&letter.repeat(length));
        }
    }
}

#[test]
fn letters_that_fold_are_those_of_the_long_way() {
    for spelling in ["max_to\u{212a}en\u{17f}", "MAX_TO\u{212a}EN\u{17f}", "Max_Tokens"] {
        assert_eq!(find_maximum(spelling.as_bytes()), Some("max_tokens"), "{spelling}");
    }
    assert_eq!(find_maximum(b"num_predict"), Some("num_predict"));
    assert_eq!(find_maximum(b"maxOutputTokens"), Some("maxoutputtokens"));
    for other in ["model", "MODEL", "max_tokens2", "max\u{e4}tokens", "n"] {
        assert_eq!(find_maximum(other.as_bytes()), None, "{other}");
    }
    assert_eq!(find_maximum(b"max_tokens\xff"), None, "no text");
}
