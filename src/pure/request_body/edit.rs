//! The surgical edit: what the upstream must see otherwise is replaced in place, and every other byte stays as the client wrote it.

use std::num::NonZeroU64;

use bytes::Bytes;
use serde::Deserialize;

use super::members::WITHHELD_MAX;
use super::scan::{Span, wide};
use super::{Endpoint, FieldRules, Maximum, Member, RequestBody, ResponseMode, UsageOption};
use super::{fields, text};

/// What the gateway wants changed on the way to an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The upstream's name of the model.
    pub model: &'a str,
    /// The field that the upstream reads the maximum of completion tokens from.
    pub maximum: MaximumField,
    /// The most completion tokens that the upstream may generate for one choice, when the gateway sets a limit.
    pub cap: Option<NonZeroU64>,
    /// Which fields the upstream gets that others do not.
    pub rules: FieldRules,
    /// How the upstream comes to report the usage of a stream.
    pub stream_usage: StreamUsage,
}

/// How an upstream comes to report the usage of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamUsage {
    /// It is asked, with `stream_options.include_usage`.
    #[default]
    Ask,
    /// It reports it unasked, and may refuse to be asked: it gets no `stream_options`, the client's own neither.
    Unasked,
}

/// The two names that the limit of completion tokens has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaximumField {
    /// `max_tokens`: the older name, which nearly every upstream reads.
    MaxTokens,
    /// `max_completion_tokens`: the only name that some reasoning models take.
    MaxCompletionTokens,
}

impl MaximumField {
    fn name(self) -> &'static str {
        match self {
            MaximumField::MaxTokens => "max_tokens",
            MaximumField::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl RequestBody {
    /// The body for the upstream.
    ///
    /// - `model` is the edit's.
    /// - A streamed answer: `stream` is true and `stream_options.include_usage` is true, whatever the client sent; or there are no
    ///   `stream_options`, as the edit says.
    /// - In a chat, when the client or the edit sets a maximum: the smaller of them stands in the edit's field, and there alone. The
    ///   other spelling is taken out, for an upstream that reads one name may ignore the other, or heed the other first.
    /// - `metadata`, a `store` that is null or false (false reaches who keeps answers by default), in a chat `session_id` and `usage`, and refused fields that ask for nothing are taken
    ///   out, each unless the edit's rules allow it: they are for this gateway or ask for nothing, and some upstreams refuse them.
    ///
    /// All other bytes are the client's: unknown fields, number spellings, the order of keys, white space. When nothing differs the
    /// client's bytes are returned without a copy.
    pub fn edit(&self, edit: &Edit<'_>) -> Bytes {
        let model = text::escape(edit.model);
        let maximum = match (edit.cap, self.max_tokens()) {
            (Some(cap), Some(asked)) => Some(cap.min(asked)),
            (cap, asked) => cap.or(asked),
        };
        let digits = maximum.map(|tokens| Digits::new(tokens.get()));
        let mut patch = Patch::new(&self.bytes);
        patch.replace(self.model, &model);
        if self.mode == ResponseMode::Stream {
            self.edit_stream(&mut patch, edit.stream_usage);
        }
        let mut dropped = [None; DROPPED_MAX];
        if edit.stream_usage == StreamUsage::Unasked {
            dropped[DROPPED_MAX - 1] = self.stream_options.member;
        }
        if let Some(digits) = &digits
            && self.endpoint != Endpoint::Embeddings
        {
            let other = self.edit_maximum(&mut patch, edit.maximum, digits.text());
            dropped[0] = other.map(|other| Member {
                key: other.key,
                value: other.value,
            });
        }
        for (place, member) in dropped.iter_mut().skip(1).zip(self.withheld(edit.rules)) {
            *place = member;
        }
        let names = self.names.as_deref();
        let unasked = names.map(|names| names.unasked.as_slice()).unwrap_or_default();
        if unasked.is_empty() {
            self.drop_members(&mut patch, &mut dropped);
        } else {
            let unasked = unasked.iter().filter(|unasked| !edit.rules.allows(unasked.field.name));
            let unasked = unasked.map(|unasked| Some(unasked.member));
            let mut dropped: Vec<Option<Member>> = dropped.into_iter().chain(unasked).collect();
            self.drop_members(&mut patch, &mut dropped);
        }
        match patch.apply() {
            Some(bytes) => bytes,
            None => self.bytes.clone(),
        }
    }

    /// The members that an upstream with these rules does not get.
    pub(super) fn withheld(&self, rules: FieldRules) -> [Option<Member>; WITHHELD_MAX] {
        match self.names.as_deref() {
            Some(names) => names.withheld().map(|(name, member)| {
                member.filter(|member| !rules.allows(name) && !self.asks_not_to_keep(name, member, rules))
            }),
            None => [None; WITHHELD_MAX],
        }
    }

    /// Whether it is a chat's `store: false`, for a provider to which that is more than nothing.
    fn asks_not_to_keep(&self, name: &str, member: &Member, rules: FieldRules) -> bool {
        rules.keeps_by_default()
            && name == fields::STORE
            && self.endpoint != Endpoint::Embeddings
            && member.value.of(&self.bytes) == b"false"
    }

    fn edit_stream<'p>(&'p self, patch: &mut Patch<'p>, usage: StreamUsage) {
        match self.stream {
            Some(value) => patch.replace(value, "true"),
            None => patch.insert(self.first_member, &["\"stream\":true,"]),
        }
        if usage == StreamUsage::Unasked {
            return;
        }
        match self.stream_options.usage {
            UsageOption::Absent => {
                patch.insert(self.first_member, &["\"stream_options\":{\"include_usage\":true},"]);
            }
            UsageOption::Null(value) => patch.replace(value, "{\"include_usage\":true}"),
            UsageOption::Empty { first_member } => patch.insert(first_member, &["\"include_usage\":true"]),
            UsageOption::Others { first_member } => patch.insert(first_member, &["\"include_usage\":true,"]),
            UsageOption::IncludeUsage { value, .. } => patch.replace(value, "true"),
        }
    }

    /// Writes the maximum into its field, and gives the other spelling that is to be taken out.
    fn edit_maximum<'p>(&'p self, patch: &mut Patch<'p>, field: MaximumField, digits: &'p str) -> Option<Maximum> {
        let (named, other) = match field {
            MaximumField::MaxTokens => (self.max_tokens, self.max_completion_tokens),
            MaximumField::MaxCompletionTokens => (self.max_completion_tokens, self.max_tokens),
        };
        match (named, other) {
            (Some(named), other) => {
                patch.replace(named.value, digits);
                return other;
            }
            (None, Some(other)) => {
                patch.replace(other.key, field.name());
                patch.replace(other.value, digits);
            }
            (None, None) => patch.insert(self.first_member, &["\"", field.name(), "\":", digits, ","]),
        }
        None
    }

    /// Takes members out, each with the comma that parts it from another.
    fn drop_members(&self, patch: &mut Patch<'_>, members: &mut [Option<Member>]) {
        members.sort_by_key(|member| member.map(|member| member.key.start));
        let mut last_end = 0;
        for member in members.iter().flatten() {
            let span = self.with_comma(*member, last_end);
            patch.replace(span, "");
            last_end = span.end;
        }
    }

    /// A member with the comma before it; with the one after it when it is the first, or all before it are taken out up to `taken`.
    fn with_comma(&self, member: Member, taken: u32) -> Span {
        let (start, end) = (member.key.start.saturating_sub(1), member.value.end);
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        let before = self.bytes.get(wide(taken)..wide(start)).unwrap_or_default();
        let spaces = before.iter().rev().take_while(|byte| is_space(byte)).count();
        let comma = before.len().saturating_sub(spaces).saturating_sub(1);
        if before.get(comma) == Some(&b',') {
            let comma = u32::try_from(comma).unwrap_or(start).saturating_add(taken);
            return Span::new(comma.min(start), end);
        }
        let after = self.bytes.get(wide(end)..).unwrap_or_default();
        let spaces = after.iter().take_while(|byte| is_space(byte)).count();
        let past = wide(end).saturating_add(spaces).saturating_add(1);
        Span::new(start, u32::try_from(past).unwrap_or(end))
    }
}

/// Replacements to be made in one copy.
struct Patch<'a> {
    bytes: &'a [u8],
    pieces: [(Span, &'a str); PIECES_USUAL],
    used: usize,
    /// Those beyond, so that none is ever left out: an edit of money may be among them.
    more: Vec<(Span, &'a str)>,
}

impl<'a> Patch<'a> {
    fn new(bytes: &'a [u8]) -> Patch<'a> {
        Patch {
            bytes,
            pieces: [(Span::new(0, 0), ""); PIECES_USUAL],
            used: 0,
            more: Vec::new(),
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
        match self.pieces.get_mut(self.used) {
            Some(piece) => {
                *piece = (span, text);
                self.used = self.used.saturating_add(1);
            }
            None => self.more.push((span, text)),
        }
    }

    /// The edited bytes, in a buffer of just their length; none when nothing is to be changed.
    fn apply(mut self) -> Option<Bytes> {
        let mut pieces = self.pieces.get_mut(..self.used).filter(|pieces| !pieces.is_empty())?;
        if !self.more.is_empty() {
            self.more.extend_from_slice(pieces);
            // Those that came first stay first at one place.
            self.more.rotate_right(pieces.len());
            pieces = &mut self.more;
        }
        // Stable: insertions at one place stay in their order, and before what is taken out there.
        pieces.sort_by_key(|(span, _)| (span.start, span.end));
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

/// Model, stream, stream_options, the five pieces of an inserted maximum, and what is withheld.
const PIECES_USUAL: usize = 8 + WITHHELD_MAX;
/// The other spelling of the maximum, what is withheld, and `stream_options`.
const DROPPED_MAX: usize = 2 + WITHHELD_MAX;
/// Digits of the largest u64.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_beyond_the_usual_are_made_too_and_in_their_order() {
        let mut patch = Patch::new(b"0123456789");
        for at in (0..10).rev() {
            patch.insert(at, &["a", "b"]);
        }
        assert_eq!(patch.apply().as_deref(), Some(&b"ab0ab1ab2ab3ab4ab5ab6ab7ab8ab9"[..]));
    }
}
