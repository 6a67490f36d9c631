//! The pieces that a prompt is made of.

use super::scan::{Kind, Span, Spelling, Text, Value};

/// A part of the prompt, as the walk over messages finds it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// A message begins.
    Message,
    /// A string that the model sees.
    Text(Text),
    /// JSON that the model sees in some rendering.
    Json(Span),
    /// A part that is not text: how many tokens it is cannot be told from its bytes.
    Part(PartKind),
    /// The bytes of such a part within the request (base64), which are no text.
    PartBytes(Span),
    /// A `cache_control` that is not null, which the model does not see.
    CacheControl(Span),
}

/// A kind of part that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Image,
    Audio,
    File,
    /// A film, or a kind that is not known: only the context window bounds it.
    Unknown,
}

/// A `cache_control`; null asks for nothing.
pub(super) fn found_control(value: Value, found: &mut impl FnMut(Piece)) {
    if value.kind != Kind::Null {
        found(Piece::CacheControl(value.span));
    }
}

#[inline]
pub(super) fn found_value(value: Value, found: &mut impl FnMut(Piece)) {
    match value.kind {
        Kind::Text(Spelling::Plain | Spelling::Escaped) => {
            if let Some(text) = value.text() {
                found(Piece::Text(text));
            }
        }
        Kind::Object | Kind::Array => found(Piece::Json(value.span)),
        Kind::Number | Kind::True | Kind::False | Kind::Null => {}
    }
}
