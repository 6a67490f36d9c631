//! How a stream begins: with events, or with something else that came under their content type.

use crate::pure::tap::WholeTap;
use crate::pure::tokens::Encoding;
use crate::pure::usage::CompletionFrom;

/// What a stream's first bytes have shown.
pub(super) enum StreamStart {
    /// Nothing but white space has come.
    Unknown,
    Events,
    /// JSON or HTML: the name of no field of an event begins so. A client could read nothing of it, and it may be a provider's own words, so
    /// none of it is passed on.
    Other(Box<WholeTap>),
}

impl StreamStart {
    /// It is known that no events come, and nothing has come yet.
    pub(super) fn no_events() -> StreamStart {
        let tap = WholeTap::within(Encoding::O200k, None, CompletionFrom::default());
        StreamStart::Other(Box::new(tap))
    }

    /// Whether this chunk is of something else than events.
    #[inline]
    pub(super) fn is_other(&mut self, chunk: &[u8]) -> bool {
        match self {
            StreamStart::Events => false,
            StreamStart::Unknown | StreamStart::Other(_) => self.take(chunk),
        }
    }

    #[cold]
    fn take(&mut self, chunk: &[u8]) -> bool {
        let mut text = chunk;
        if let StreamStart::Unknown = self {
            text = chunk.strip_prefix(BYTE_ORDER_MARK).unwrap_or(chunk);
            *self = match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return false,
                Some(b'{' | b'[' | b'<') => StreamStart::no_events(),
                Some(_) => StreamStart::Events,
            };
        }
        match self {
            StreamStart::Other(tap) => {
                tap.chunk(text);
                true
            }
            StreamStart::Unknown | StreamStart::Events => false,
        }
    }

    /// What came in the place of events.
    pub(super) fn other(&mut self) -> Option<&mut WholeTap> {
        match self {
            StreamStart::Other(tap) => Some(tap),
            StreamStart::Unknown | StreamStart::Events => None,
        }
    }

    /// By which words that speaks of the operator's key or account with the provider.
    pub(super) fn about_operator(&self) -> Option<&'static str> {
        match self {
            StreamStart::Other(tap) => tap.about_operator(),
            StreamStart::Unknown | StreamStart::Events => None,
        }
    }

    /// Whether all that can be learned of it is known: its JSON is complete, or is none.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, StreamStart::Other(tap) if !tap.is_cut())
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
