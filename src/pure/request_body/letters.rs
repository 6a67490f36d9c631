//! Which letters a reader that compares names without case takes for others. All known names are ASCII in lower case.

/// Whether a name has a letter that simple case folding changes (Unicode's `CaseFolding.txt`, C and S) or could fold to one in ASCII.
#[inline]
pub(super) fn may_fold(name: &[u8]) -> bool {
    name.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii())
}

/// Whether a reader that compares keys without case takes `name` for `known`, which is in lower case.
pub(super) fn is_folded(name: &str, known: &str) -> bool {
    name.chars().map(folded).eq(known.chars())
}

/// Simple case folding, as far as it ends in ASCII: beside its own letters only two others fold into it.
pub(super) fn folded(character: char) -> char {
    match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => character.to_ascii_lowercase(),
    }
}
