//! The short way through a usual event: the events of a stream differ in little but the text that they deliver.
//!
//! A stencil is cut from an event that was read in full and that did nothing but deliver one text. Another event with
//! the same bytes around a plain string in the text's place is the same JSON with another text, so it need not be read
//! again. Any other difference sends it the long way.

use std::borrow::Cow;

use super::reading::{Choices, Reading, Seen};

/// The bytes around the text of a stream's usual event. A new one matches nothing.
#[derive(Debug, Default)]
pub(super) struct Stencil {
    layout: Layout,
    before: Vec<u8>,
    between: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Layout {
    #[default]
    Nothing,
    Text,
    TextThenPadding,
    PaddingThenText,
}

/// An event that a stencil matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match<'a> {
    /// What it delivers.
    pub(super) text: Cow<'a, [u8]>,
    /// What follows the event.
    pub(super) rest: &'a [u8],
}

impl Stencil {
    /// Whether `bytes` begin with such an event, whole.
    pub(super) fn find<'a>(&self, bytes: &'a [u8]) -> Option<Match<'a>> {
        if self.layout == Layout::Nothing {
            return None;
        }
        let (first, rest) = split_string(bytes.strip_prefix(self.before.as_slice())?)?;
        let (second, rest) = match self.layout {
            Layout::Nothing | Layout::Text => (Quoted::NONE, rest),
            Layout::TextThenPadding | Layout::PaddingThenText => {
                split_string(rest.strip_prefix(self.between.as_slice())?)?
            }
        };
        let rest = rest.strip_prefix(self.after.as_slice())?;
        let is_padding_first = self.layout == Layout::PaddingThenText;
        let (text, padding) = if is_padding_first {
            (second, first)
        } else {
            (first, second)
        };
        // Padding has no escapes. If it ever has, the event goes the long way.
        if padding.is_escaped {
            return None;
        }
        let text = if text.is_escaped {
            Cow::Owned(text.unescape()?)
        } else {
            Cow::Borrowed(text.bytes)
        };
        Some(Match { text, rest })
    }

    /// Cuts the stencil from `event`, whose data begins at `data_at` and reads as `reading`; leaves it as it was if the
    /// event is not of the usual kind.
    pub(super) fn cut(&mut self, event: &[u8], data_at: usize, reading: &Reading) {
        let usual = Seen {
            choices: Choices::Some,
            ..Seen::default()
        };
        let spans = &reading.spans;
        let ended = event.ends_with(b"\n\n") || event.ends_with(b"\n\r\n");
        if reading.seen != usual || spans.texts != 1 || spans.escaped || !ended {
            return;
        }
        let shift = |span: &std::ops::Range<usize>| data_at + span.start..data_at + span.end;
        let (text, padding) = (shift(&spans.text), shift(&spans.padding));
        let (layout, first, second) = if spans.padding.is_empty() {
            (Layout::Text, text.clone(), text)
        } else if text.start < padding.start {
            (Layout::TextThenPadding, text, padding)
        } else {
            (Layout::PaddingThenText, padding, text)
        };
        let parts = (
            event.get(..first.start),
            event.get(first.end..second.start),
            event.get(second.end..),
        );
        // With one hole the part between is empty, for its range runs backwards.
        let (Some(before), between, Some(after)) = parts else {
            return;
        };
        self.layout = layout;
        for (part, bytes) in [
            (&mut self.before, before),
            (&mut self.between, between.unwrap_or_default()),
            (&mut self.after, after),
        ] {
            part.clear();
            part.extend_from_slice(bytes);
        }
    }
}

/// A JSON string without its quotes.
#[derive(Clone, Copy, Debug)]
struct Quoted<'a> {
    bytes: &'a [u8],
    is_escaped: bool,
}

impl Quoted<'_> {
    const NONE: Quoted<'static> = Quoted {
        bytes: b"",
        is_escaped: false,
    };

    /// The text; `None` if an escape or a character is wrong.
    fn unescape(self) -> Option<Vec<u8>> {
        let text: String = serde_json::from_slice(&[b"\"", self.bytes, b"\""].concat()).ok()?;
        Some(text.into_bytes())
    }
}

/// The string that `bytes` begin with, and its closing quote with all that follows; `None` if it has a control
/// character, or does not end.
#[inline]
fn split_string(bytes: &[u8]) -> Option<(Quoted<'_>, &[u8])> {
    let end = bytes.iter().position(|byte| is_special(*byte))?;
    let (string, rest) = bytes.split_at_checked(end)?;
    match rest.first() {
        Some(b'"') => Some((
            Quoted {
                bytes: string,
                is_escaped: false,
            },
            rest,
        )),
        Some(b'\\') => split_escaped(bytes, end),
        _ => None,
    }
}

/// The same of a string whose first backslash is at `end`.
#[cold]
fn split_escaped(bytes: &[u8], mut end: usize) -> Option<(Quoted<'_>, &[u8])> {
    loop {
        match bytes.get(end..)? {
            [b'"', ..] => break,
            [b'\\', 0x20..=0xFF, ..] => end += 2,
            _ => return None,
        }
        end += bytes.get(end..)?.iter().position(|byte| is_special(*byte))?;
    }
    let (string, rest) = bytes.split_at_checked(end)?;
    Some((
        Quoted {
            bytes: string,
            is_escaped: true,
        },
        rest,
    ))
}

/// A byte that ends a string, or that does not stand for itself in one.
#[inline]
fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1F)
}
