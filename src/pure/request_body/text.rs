//! The text of JSON strings: unescaping what a client wrote, escaping what the gateway writes.
//!
//! The scanner has checked what is unescaped here; were a sequence invalid after all, it would be kept as written.

use std::borrow::Cow;
use std::ops::Deref;

use super::scalar::hex4;
use super::scan::{Spelling, Text};

/// The text of a key, or of another string that may be one of a few names. It is never allocated: a body may have millions of keys. A text
/// that is written with escapes and longer than [`NAME_BYTES_MAX`] is left empty, which is no name of anything.
pub(super) enum Name<'a> {
    /// As it stands in the body.
    Plain(&'a [u8]),
    /// The first so many bytes.
    Unescaped([u8; NAME_BYTES_MAX], usize),
}

impl Deref for Name<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Name::Plain(bytes) => bytes,
            Name::Unescaped(bytes, length) => bytes.get(..*length).unwrap_or_default(),
        }
    }
}

impl Name<'_> {
    /// Whether it is one of these.
    #[inline]
    pub(super) fn is_one_of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| **self == *name.as_bytes())
    }
}

/// The scanned string as a name.
#[inline]
pub(super) fn name(text: Text, bytes: &[u8]) -> Name<'_> {
    let raw = text.span.of(bytes);
    match text.spelling {
        Spelling::Plain => Name::Plain(raw),
        Spelling::Escaped => unescaped_name(raw).unwrap_or(Name::Plain(&[])),
    }
}

/// The text of a scanned string.
pub(super) fn unescape<'a>(text: Text, bytes: &'a [u8]) -> Cow<'a, str> {
    let raw = String::from_utf8_lossy(text.span.of(bytes));
    match text.spelling {
        Spelling::Plain => raw,
        Spelling::Escaped => Cow::Owned(unescape_all(&raw)),
    }
}

/// Whether the string is `known` once unescaped, which is a name of at most [`NAME_BYTES_MAX`] bytes.
#[inline]
pub(super) fn is(text: Text, bytes: &[u8], known: &str) -> bool {
    *name(text, bytes) == *known.as_bytes()
}

/// How a text begins, unescaped, as readers of addresses take it: in small letters, without blanks before it, and without tabs and line breaks.
/// Other letters than ASCII's are 0xff.
pub(super) struct Beginning([u8; BEGINNING_BYTES], usize);

impl Deref for Beginning {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get(..self.1).unwrap_or_default()
    }
}

impl Beginning {
    /// Whether the text begins with this, which is in small letters and no longer than what is known of a text.
    pub(super) fn is(&self, prefix: &str) -> bool {
        self.starts_with(prefix.as_bytes())
    }
}

/// The first bytes of a string, [`BEGINNING_BYTES`] at most.
pub(super) fn beginning(text: Text, bytes: &[u8]) -> Beginning {
    let (mut raw, mut found) = (text.span.of(bytes), Beginning([0; BEGINNING_BYTES], 0));
    while let Some((byte, tail)) = first_byte(raw) {
        raw = tail;
        let is_blank = byte <= b' ' && (found.1 == 0 || byte != b' ');
        if is_blank {
            continue;
        }
        let Some(place) = found.0.get_mut(found.1) else { break };
        *place = byte.to_ascii_lowercase();
        found.1 = found.1.saturating_add(1);
    }
    found
}

/// The first byte of what stands between the quotes of a JSON string, unescaped, and what follows it.
fn first_byte(raw: &[u8]) -> Option<(u8, &[u8])> {
    Some(match raw {
        [] => return None,
        [b'\\', b'u', digits @ ..] => {
            let (digits, tail) = digits.split_at_checked(4).unwrap_or((digits, &[]));
            let unit = hex4(digits)
                .and_then(|unit| u8::try_from(unit).ok())
                .filter(u8::is_ascii);
            (unit.unwrap_or(0xff), tail)
        }
        [b'\\', b'b' | b'f' | b'n' | b'r' | b't', tail @ ..] => (b'\n', tail),
        [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (if byte.is_ascii() { *byte } else { 0xff }, tail),
    })
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
    unescape_into(raw, &mut |piece| {
        text.push_str(piece);
        Some(())
    });
    text
}

#[cold]
fn unescaped_name(raw: &[u8]) -> Option<Name<'static>> {
    if raw.len() > NAME_BYTES_MAX.saturating_mul(ESCAPE_BYTES_MAX) {
        return None;
    }
    let (mut bytes, mut length) = ([0; NAME_BYTES_MAX], 0_usize);
    unescape_into(std::str::from_utf8(raw).ok()?, &mut |piece| {
        let end = length.saturating_add(piece.len());
        bytes.get_mut(length..end)?.copy_from_slice(piece.as_bytes());
        length = end;
        Some(())
    })?;
    Some(Name::Unescaped(bytes, length))
}

/// Calls `found` with the pieces of the text, in order, until it says none.
fn unescape_into(raw: &str, found: &mut impl FnMut(&str) -> Option<()>) -> Option<()> {
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        found(plain)?;
        let Some((character, tail)) = unescaped(escape) else {
            return Some(());
        };
        found(character.encode_utf8(&mut [0; 4]))?;
        rest = tail;
    }
    found(rest)
}

/// The character of the escape whose backslash stood before `escape`, and what follows it. None where nothing follows the backslash.
fn unescaped(escape: &str) -> Option<(char, &str)> {
    let mut characters = escape.chars();
    let character = match characters.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return Some(code_point(characters.as_str())),
        itself => itself,
    };
    Some((character, characters.as_str()))
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

/// Bytes of the longest text that may be a known name, or fold to one: a letter of those may be a sign of three bytes.
pub(super) const NAME_BYTES_MAX: usize = 90;
/// So much is known of how a text begins.
const BEGINNING_BYTES: usize = 32;
/// Bytes of the longest escape (`\u0061`) that stands for a text of one byte.
pub(super) const ESCAPE_BYTES_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::super::scan::Span;
    use super::*;

    fn text(raw: &str, spelling: Spelling) -> Text {
        let span = Span::new(0, u32::try_from(raw.len()).unwrap());
        Text { span, spelling }
    }

    #[test]
    fn a_name_is_the_text_of_its_string_as_long_as_it_may_be_known() {
        let letters = |count: usize| "\\u0061".repeat(count);
        for raw in [
            r"\u0061",
            r"max_to\u212aens",
            "max_to\u{212a}ens\\u0073",
            r#"a\b\f\n\r\t\"\\\/z"#,
            r"\ud83d\ude00 \ud83d",
            "",
            &letters(NAME_BYTES_MAX),
            &r"\u212a".repeat(NAME_BYTES_MAX / 3),
        ] {
            let escaped = text(raw, Spelling::Escaped);
            let expected = unescape(escaped, raw.as_bytes());
            assert_eq!(*name(escaped, raw.as_bytes()), *expected.as_bytes(), "{raw}");
            assert!(is(escaped, raw.as_bytes(), &expected), "{raw}");
        }
        let plain = "a".repeat(1_000);
        assert_eq!(
            *name(text(&plain, Spelling::Plain), plain.as_bytes()),
            *plain.as_bytes()
        );
        let one_more = r"\u212a".repeat(NAME_BYTES_MAX / 3);
        for long in [letters(NAME_BYTES_MAX + 1), letters(100_000), format!("{one_more}a")] {
            assert!(
                name(text(&long, Spelling::Escaped), long.as_bytes()).is_empty(),
                "{long}"
            );
        }
    }
}
