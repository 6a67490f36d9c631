//! The short way through a usual event: the events of a stream differ in little but the text that they deliver.
//!
//! A stencil is cut from an event that was read in full and that did nothing but deliver one text. Another event with
//! the same bytes around a plain string in the text's place is the same JSON with another text, so it need not be read
//! again. An escape in the string, or any other difference, sends it the long way.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match<'a> {
    /// What it delivers.
    pub(super) text: &'a [u8],
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
            Layout::Nothing | Layout::Text => (first, rest),
            Layout::TextThenPadding | Layout::PaddingThenText => {
                split_string(rest.strip_prefix(self.between.as_slice())?)?
            }
        };
        let rest = rest.strip_prefix(self.after.as_slice())?;
        let text = if self.layout == Layout::PaddingThenText {
            second
        } else {
            first
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

/// The plain string that `bytes` begin with, and its closing quote with all that follows; `None` if it has an escape or
/// a control character, or does not end.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))?;
    let (string, rest) = bytes.split_at_checked(end)?;
    (rest.first() == Some(&b'"')).then_some((string, rest))
}
