//! The short way through a usual event: the events of a stream differ in little but the text that they deliver.
//!
//! A fast path is cut from an event that was read in full and that did nothing but deliver one text. Another event with
//! the same bytes around a plain string in the text's place is the same JSON with another text, so it need not be read
//! again. Any other difference sends it the long way.

use super::accumulator::{Choices, Reading, Seen};
use crate::pure::json_text::{plain_length, skip_plain};
use crate::pure::sse::MARK;

/// The bytes around the text of a stream's usual event. A new one matches nothing.
#[derive(Debug, Default)]
pub(super) struct FastPath {
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

impl FastPath {
    /// The text of the event that `bytes` begin with, and what follows the event; `None` if it is no such event, or its
    /// text has escapes.
    #[inline]
    pub(super) fn find<'a>(&self, bytes: &'a [u8]) -> Option<Split<'a>> {
        self.holes(bytes, split_plain)
    }

    /// The same of an event whose text may have escapes, unescaped.
    #[cold]
    pub(super) fn find_escaped<'a>(&self, bytes: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
        let (text, rest) = self.holes(bytes, split_escaped)?;
        let text: String = serde_json::from_slice(&[b"\"", text, b"\""].concat()).ok()?;
        Some((text.into_bytes(), rest))
    }

    /// What stands in the text's place in an event that `bytes` begin with, and what follows the event. Padding has no
    /// escapes: if it ever has, the event goes the long way.
    #[inline]
    fn holes<'a>(&self, bytes: &'a [u8], split_text: fn(&'a [u8]) -> Option<Split<'a>>) -> Option<Split<'a>> {
        let rest = bytes.strip_prefix(self.before.as_slice())?;
        let (text, rest) = match self.layout {
            Layout::Nothing => return None,
            Layout::Text => split_text(rest)?,
            Layout::TextThenPadding => {
                let (text, rest) = split_text(rest)?;
                let (_, rest) = split_plain(rest.strip_prefix(self.between.as_slice())?)?;
                (text, rest)
            }
            Layout::PaddingThenText => {
                let (_, rest) = split_plain(rest)?;
                split_text(rest.strip_prefix(self.between.as_slice())?)?
            }
        };
        Some((text, rest.strip_prefix(self.after.as_slice())?))
    }

    /// Cuts the fast path from `event`, whose data begins at `data_at` and reads as `reading`; leaves it as it was if the
    /// event is not of the usual kind.
    pub(super) fn cut(&mut self, event: &[u8], data_at: usize, reading: &Reading) {
        let usual = Seen {
            choices: Choices::Some,
            ..Seen::default()
        };
        let spans = &reading.spans;
        let ended = event.ends_with(b"\n\n") || event.ends_with(b"\n\r\n");
        // A byte order mark is one at the start of the stream only: before a later event it is part of a field's name.
        let marked = event.starts_with(&MARK);
        if reading.seen != usual || spans.texts != 1 || spans.escaped || !ended || marked {
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

/// A text, and what follows it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The part of a JSON string that `bytes` begin with up to its first escape or control character, or up to its closing
/// quote, with which all that may follow it here begins.
#[inline]
fn split_plain(bytes: &[u8]) -> Option<Split<'_>> {
    bytes.split_at_checked(plain_length(bytes))
}

/// The whole of a string that may have escapes; `None` if it has a control character, or does not end.
fn split_escaped(bytes: &[u8]) -> Option<Split<'_>> {
    let mut rest = skip_plain(bytes);
    loop {
        match rest {
            [b'"', ..] => return bytes.split_at_checked(bytes.len() - rest.len()),
            [b'\\', 0x20..=0xFF, after @ ..] => rest = skip_plain(after),
            _ => return None,
        }
    }
}
