//! The text of JSON strings: unescaping what a client wrote, escaping what the gateway writes.
//!
//! The scanner has checked what is unescaped here; were a sequence invalid after all, it would be kept as written.

use std::borrow::Cow;

use super::scalar::hex4;
use super::scan::{Spelling, Text};

/// The text of a scanned string.
pub(super) fn unescape<'a>(text: Text, bytes: &'a [u8]) -> Cow<'a, str> {
    let raw = String::from_utf8_lossy(text.span.of(bytes));
    match text.spelling {
        Spelling::Plain => raw,
        Spelling::Escaped => Cow::Owned(unescape_all(&raw)),
    }
}

/// The bytes of a scanned string's text.
#[inline]
pub(super) fn unescaped_bytes<'a>(text: Text, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match text.spelling {
        Spelling::Plain => Cow::Borrowed(text.span.of(bytes)),
        Spelling::Escaped => Cow::Owned(unescape(text, bytes).into_owned().into_bytes()),
    }
}

/// Whether the string is `name` once unescaped.
#[inline]
pub(super) fn is(text: Text, bytes: &[u8], name: &str) -> bool {
    match text.spelling {
        Spelling::Plain => text.span.of(bytes) == name.as_bytes(),
        Spelling::Escaped => unescape(text, bytes) == name,
    }
}

/// Whether the string begins with `prefix`. An escape other than `\/` is taken for a difference.
pub(super) fn starts_with(text: Text, bytes: &[u8], prefix: &str) -> bool {
    let mut raw = text.span.of(bytes);
    for &expected in prefix.as_bytes() {
        raw = match raw {
            [b'\\', b'/', tail @ ..] if expected == b'/' => tail,
            [byte, tail @ ..] if *byte == expected => tail,
            _ => return false,
        };
    }
    true
}

/// `text` as it stands between the quotes of a JSON string.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'"' || byte == b'\\' || byte < b' ') {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().saturating_add(16));
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\0'..='\x1f' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

fn unescape_all(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        rest = push_unescaped(escape, &mut text);
    }
    text.push_str(rest);
    text
}

/// Pushes the character of the escape whose backslash stood before `escape`, and says what follows it.
fn push_unescaped<'a>(escape: &'a str, text: &mut String) -> &'a str {
    let mut characters = escape.chars();
    let character = match characters.next() {
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let (character, tail) = code_point(characters.as_str());
            text.push(character);
            return tail;
        }
        Some(itself) => itself,
        None => return "",
    };
    text.push(character);
    characters.as_str()
}

/// The character of the digits after `\u`, with its second half when it is a surrogate pair, and what follows.
fn code_point(digits: &str) -> (char, &str) {
    let Some((unit, tail)) = code_unit(digits) else {
        return (char::REPLACEMENT_CHARACTER, digits);
    };
    let pair = (0xd800..0xdc00)
        .contains(&unit)
        .then(|| tail.strip_prefix("\\u").and_then(code_unit))
        .flatten();
    let (value, tail) = match pair {
        Some((low @ 0xdc00..=0xdfff, tail)) => (0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00), tail),
        _ => (unit, tail),
    };
    (char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER), tail)
}

fn code_unit(digits: &str) -> Option<(u32, &str)> {
    let (digits, tail) = digits.split_at_checked(4)?;
    Some((hex4(digits.as_bytes())?, tail))
}
