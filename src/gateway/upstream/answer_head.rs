//! The fields in the head of an upstream's answer, and what they say of its body.

use http::Version;
use http::header::{self, HeaderMap, HeaderValue};

use crate::pure::request_body::ResponseMode;
use crate::pure::tap::Framing;

/// What is looked at in the head of an upstream's answer, found in one pass: of each field the first.
#[derive(Default)]
pub(super) struct Fields<'a> {
    content_type: Option<&'a HeaderValue>,
    content_encoding: Option<&'a HeaderValue>,
    content_length: Option<&'a HeaderValue>,
    transfer_encoding: Option<&'a HeaderValue>,
    /// Lines of `transfer-encoding`.
    transfer_encodings: usize,
    pub(super) cache_control: Option<&'a HeaderValue>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Fields<'a> {
        let mut fields = Fields::default();
        for (name, value) in headers {
            let field = match *name {
                header::CONTENT_TYPE => &mut fields.content_type,
                header::CONTENT_ENCODING => &mut fields.content_encoding,
                header::CONTENT_LENGTH => &mut fields.content_length,
                header::TRANSFER_ENCODING => {
                    fields.transfer_encodings = fields.transfer_encodings.saturating_add(1);
                    &mut fields.transfer_encoding
                }
                header::CACHE_CONTROL => &mut fields.cache_control,
                _ => continue,
            };
            field.get_or_insert(value);
        }
        fields
    }

    /// Why a 200 cannot be used: it is not what was asked for, or cannot be read.
    pub(super) fn unusable(&self, mode: ResponseMode) -> Option<&'static str> {
        let text = |value: &'a HeaderValue| value.to_str().unwrap_or("");
        let is_other = |value: Option<&'a HeaderValue>, wanted: &str| {
            value.is_some_and(|value| !text(value).eq_ignore_ascii_case(wanted))
        };
        if is_other(self.content_encoding, "identity") {
            return Some("a content-encoding that was not asked for");
        }
        if is_other(self.transfer_encoding, "chunked") || self.transfer_encodings > 1 {
            return Some(CODED);
        }
        let kind = text(self.content_type?);
        let wanted = match mode {
            ResponseMode::Stream => "text/event-stream",
            ResponseMode::Whole => "application/json",
        };
        let is_wanted = kind.eq_ignore_ascii_case(wanted)
            || kind
                .split_once(';')
                .map_or(kind, |(kind, _)| kind)
                .trim()
                .eq_ignore_ascii_case(wanted);
        (!is_wanted).then_some("a content-type that was not asked for")
    }

    /// Whether its body can be words that are read.
    pub(super) fn is_json(&self) -> bool {
        let kind = self.content_type.and_then(|kind| kind.to_str().ok());
        kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("json"))
    }

    /// How the answer's end will be known.
    pub(super) fn framing(&self, version: Version) -> Framing {
        let is_framed = version == Version::HTTP_2 || self.content_length.is_some() || self.transfer_encodings > 0;
        if is_framed {
            Framing::Framed
        } else {
            Framing::UntilClosed
        }
    }
}

/// Why an answer cannot be used whose body is coded otherwise than in chunks.
pub(super) const CODED: &str = "a transfer-coding that nobody asked for";
