//! How a stream begins: with events, or with something else that came under their content type.

use crate::pure::sse::MARK;
use crate::pure::tap::WholeTap;
use crate::pure::tokens::Encoding;
use crate::pure::usage::Naming;

/// What a stream's first bytes have shown.
pub(super) enum StreamStart {
    /// Nothing but white space has come, behind a byte order mark, or so much of one.
    Unknown {
        /// How many bytes of it.
        mark: usize,
    },
    Events,
    /// JSON or HTML: the name of no field of an event begins so. A client could read nothing of it, and it may be a provider's own words, so
    /// none of it is passed on.
    Other(Box<WholeTap>),
}

impl StreamStart {
    /// Whether this chunk is of something else than events.
    #[inline]
    pub(super) fn is_other(&mut self, chunk: &[u8]) -> bool {
        match self {
            StreamStart::Events => false,
            StreamStart::Unknown { .. } | StreamStart::Other(_) => self.take(chunk),
        }
    }

    #[cold]
    fn take(&mut self, chunk: &[u8]) -> bool {
        let mut text = chunk;
        if let StreamStart::Unknown { mark } = self {
            while let Some((byte, rest)) = text.split_first()
                && MARK.get(*mark) == Some(byte)
            {
                *mark = mark.saturating_add(1);
                text = rest;
            }
            *self = match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return false,
                Some(b'{' | b'[' | b'<') => {
                    let tap = WholeTap::within(Encoding::O200k, None, Naming::default());
                    StreamStart::Other(Box::new(tap))
                }
                Some(_) => StreamStart::Events,
            };
        }
        match self {
            StreamStart::Other(tap) => {
                tap.chunk(text);
                true
            }
            StreamStart::Unknown { .. } | StreamStart::Events => false,
        }
    }

    /// What came in the place of events.
    pub(super) fn other(&mut self) -> Option<&mut WholeTap> {
        match self {
            StreamStart::Other(tap) => Some(tap),
            StreamStart::Unknown { .. } | StreamStart::Events => None,
        }
    }

    /// By which words that speaks of the operator's key or account with the provider.
    pub(super) fn about_operator(&self) -> Option<&'static str> {
        match self {
            StreamStart::Other(tap) => tap.about_operator(),
            StreamStart::Unknown { .. } | StreamStart::Events => None,
        }
    }

    /// Whether that refuses what the request says.
    pub(super) fn flags_content(&self) -> bool {
        matches!(self, StreamStart::Other(tap) if tap.flags_content())
    }

    /// Whether all that can be learned of it is known: its JSON is complete, or is none.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, StreamStart::Other(tap) if !tap.is_cut())
    }
}

impl Default for StreamStart {
    fn default() -> StreamStart {
        StreamStart::Unknown { mark: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_none_of_a_streams_text_however_it_is_cut() {
        for (text, is_other) in [
            ("\u{feff}{\"error\":1}", true),
            ("\u{feff}\n<html>", true),
            ("\u{feff}data: {}\n\n", false),
            ("\u{feff}\u{feff}{}", false),
            ("\u{feff}", false),
        ] {
            for cut in 0..=text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                let mut start = StreamStart::default();
                let is_known = start.is_other(head);
                assert_eq!(start.is_other(tail), is_other, "{text:?}, cut at {cut}");
                assert!(is_other || !is_known, "{text:?}, cut at {cut}");
            }
        }
    }
}
