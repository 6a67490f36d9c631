//! Containers of JSON that are text as they stand: a tool's arguments that a provider sends as an object, and not as a string with one in it.

use super::Scanner;
use crate::pure::tap::accumulator::Reading;
use crate::pure::tap::text::Kind;

impl Scanner {
    /// Such a container has begun, with its bracket.
    #[cold]
    pub(super) fn begin_raw(&mut self, object: bool, reading: &mut Reading) {
        self.raw_depth = self.depth;
        reading.spans.texts += 1;
        // Another event with the same bytes around another string is another text: none is read by the short way.
        reading.spans.escaped = true;
        reading.counter.part(Kind::Content, if object { b"{" } else { b"[" });
    }

    /// Takes what `bytes`, which are not empty, have of the container; what follows it.
    #[cold]
    pub(super) fn raw<'a>(&mut self, bytes: &'a [u8], reading: &mut Reading) -> &'a [u8] {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first()
            && self.raw_depth > 0
        {
            if self.is_broken() {
                // Of a string, too, what follows is no text. The byte that broke it is, wherever it is cut.
                reading.counter.part(Kind::Content, before(bytes, rest));
                return b"";
            }
            rest = self.step(byte, after, rest, reading);
        }
        reading.counter.part(Kind::Content, before(bytes, rest));
        if self.raw_depth == 0 {
            reading.counter.end(Kind::Content);
        }
        rest
    }
}

/// What of `bytes` stands before `rest`, which they end with.
fn before<'a>(bytes: &'a [u8], rest: &[u8]) -> &'a [u8] {
    bytes.get(..bytes.len().saturating_sub(rest.len())).unwrap_or(bytes)
}
