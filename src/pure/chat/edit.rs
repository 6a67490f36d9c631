//! The surgical edit: what the upstream must see otherwise is replaced in place, and every other byte stays as the client wrote it.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::scan::{Span, wide};
use super::text;
use super::{Endpoint, Maximum, RequestBody, ResponseMode, StreamOptions};

/// What the gateway wants changed on the way to an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The upstream's name of the model.
    pub model: &'a str,
    /// The most completion tokens that the upstream may generate for one choice, when the gateway sets a limit.
    pub cap: Option<Cap>,
}

/// A limit of completion tokens that the gateway writes into the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// The limit of one choice.
    pub tokens: NonZeroU64,
    /// The field that the upstream reads.
    pub field: CapField,
}

/// The two names that the limit of completion tokens has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapField {
    /// `max_tokens`: the older name, which nearly every upstream reads.
    MaxTokens,
    /// `max_completion_tokens`: the only name that some reasoning models take.
    MaxCompletionTokens,
}

impl CapField {
    fn name(self) -> &'static str {
        match self {
            CapField::MaxTokens => "max_tokens",
            CapField::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl RequestBody {
    /// The body for the upstream.
    ///
    /// - `model` is the edit's.
    /// - A streamed answer: `stream` is true and `stream_options.include_usage` is true, whatever the client sent.
    /// - With a cap, in a chat: the cap's field stands there, and neither it nor the field of the other name is above the cap. A maximum that
    ///   stands under the other name alone moves to this one, for an upstream that reads one name may ignore the other.
    ///
    /// All other bytes are the client's: unknown fields, number spellings, the order of keys, white space. When nothing differs the
    /// client's bytes are returned without a copy.
    pub fn edit(&self, edit: &Edit<'_>) -> Bytes {
        let model = text::escape(edit.model);
        let digits = edit.cap.map(|cap| Digits::new(cap.tokens.get()));
        let mut patch = Patch::new(&self.bytes);
        patch.replace(self.model, &model);
        if self.mode == ResponseMode::Stream {
            self.edit_stream(&mut patch);
        }
        if let (Some(cap), Some(digits)) = (edit.cap, &digits)
            && self.endpoint != Endpoint::Embeddings
        {
            self.edit_maximum(&mut patch, cap, digits.text());
        }
        match patch.apply() {
            Some(bytes) => bytes,
            None => self.bytes.clone(),
        }
    }

    fn edit_stream<'p>(&'p self, patch: &mut Patch<'p>) {
        match self.stream {
            Some(value) => patch.replace(value, "true"),
            None => patch.insert(self.first_member, &["\"stream\":true,"]),
        }
        match self.stream_options {
            StreamOptions::Absent => {
                patch.insert(self.first_member, &["\"stream_options\":{\"include_usage\":true},"]);
            }
            StreamOptions::Null(value) => patch.replace(value, "{\"include_usage\":true}"),
            StreamOptions::Empty { first_member } => patch.insert(first_member, &["\"include_usage\":true"]),
            StreamOptions::Others { first_member } => patch.insert(first_member, &["\"include_usage\":true,"]),
            StreamOptions::IncludeUsage { value, .. } => patch.replace(value, "true"),
        }
    }

    fn edit_maximum<'p>(&'p self, patch: &mut Patch<'p>, cap: Cap, digits: &'p str) {
        let (named, other) = match cap.field {
            CapField::MaxTokens => (self.max_tokens, self.max_completion_tokens),
            CapField::MaxCompletionTokens => (self.max_completion_tokens, self.max_tokens),
        };
        let exceeds = |maximum: Maximum| maximum.tokens.is_none_or(|tokens| tokens > cap.tokens);
        match (named, other) {
            (None, Some(other @ Maximum { tokens: Some(_), .. })) => {
                patch.replace(other.key, cap.field.name());
                if exceeds(other) {
                    patch.replace(other.value, digits);
                }
            }
            (None, _) => patch.insert(self.first_member, &["\"", cap.field.name(), "\":", digits, ","]),
            // The client's own maximum moves to the name that is heard.
            (
                Some(Maximum {
                    tokens: None, value, ..
                }),
                Some(other @ Maximum { tokens: Some(_), .. }),
            ) => {
                patch.replace(
                    value,
                    if exceeds(other) {
                        digits
                    } else {
                        self.number(other.value)
                    },
                );
                patch.replace(other.value, "null");
            }
            (Some(named), other) => {
                if exceeds(named) {
                    patch.replace(named.value, digits);
                }
                if let Some(other) = other
                    && other.tokens.is_some()
                    && exceeds(other)
                {
                    patch.replace(other.value, digits);
                }
            }
        }
    }
}

impl RequestBody {
    /// The digits of a number as the client wrote them.
    fn number(&self, span: Span) -> &str {
        std::str::from_utf8(span.of(&self.bytes)).unwrap_or("1")
    }
}

/// Replacements to be made in one copy.
struct Patch<'a> {
    bytes: &'a [u8],
    pieces: [(Span, &'a str); PIECES_MAX],
    used: usize,
}

impl<'a> Patch<'a> {
    fn new(bytes: &'a [u8]) -> Patch<'a> {
        Patch {
            bytes,
            pieces: [(Span::new(0, 0), ""); PIECES_MAX],
            used: 0,
        }
    }

    fn replace(&mut self, span: Span, text: &'a str) {
        if span.of(self.bytes) != text.as_bytes() {
            self.push(span, text);
        }
    }

    fn insert(&mut self, at: u32, texts: &[&'a str]) {
        for text in texts {
            self.push(Span::new(at, at), text);
        }
    }

    fn push(&mut self, span: Span, text: &'a str) {
        debug_assert!(self.used < PIECES_MAX, "an edit has at most {PIECES_MAX} pieces");
        if let Some(piece) = self.pieces.get_mut(self.used) {
            *piece = (span, text);
            self.used = self.used.saturating_add(1);
        }
    }

    /// The edited bytes, in a buffer of just their length; none when nothing is to be changed.
    fn apply(mut self) -> Option<Bytes> {
        let pieces = self.pieces.get_mut(..self.used).filter(|pieces| !pieces.is_empty())?;
        // Stable: insertions at one place stay in their order.
        pieces.sort_by_key(|(span, _)| span.start);
        let (added, removed) = pieces
            .iter()
            .fold((0_usize, 0_usize), |(added, removed), (span, text)| {
                (added.saturating_add(text.len()), removed.saturating_add(span.len()))
            });
        let length = self.bytes.len().saturating_add(added).saturating_sub(removed);
        let mut edited = Vec::with_capacity(length);
        let mut copied = 0;
        for (span, text) in pieces {
            edited.extend_from_slice(Span::new(copied, span.start).of(self.bytes));
            edited.extend_from_slice(text.as_bytes());
            copied = span.end;
        }
        edited.extend_from_slice(self.bytes.get(wide(copied)..).unwrap_or_default());
        debug_assert_eq!(edited.len(), length, "pieces do not overlap");
        Some(Bytes::from(edited))
    }
}

/// An integer in decimal digits, without an allocation.
struct Digits {
    buffer: [u8; DIGITS_MAX],
    start: usize,
}

impl Digits {
    fn new(mut number: u64) -> Digits {
        let mut buffer = [b'0'; DIGITS_MAX];
        let mut start = DIGITS_MAX;
        for digit in buffer.iter_mut().rev() {
            *digit = b'0'.saturating_add(u8::try_from(number % 10).unwrap_or_default());
            number /= 10;
            start = start.saturating_sub(1);
            if number == 0 {
                break;
            }
        }
        Digits { buffer, start }
    }

    fn text(&self) -> &str {
        self.buffer
            .get(self.start..)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .unwrap_or("1")
    }
}

/// Model, stream, stream_options, and the five pieces of an inserted maximum.
const PIECES_MAX: usize = 8;
/// Digits of the largest u64.
const DIGITS_MAX: usize = 20;
