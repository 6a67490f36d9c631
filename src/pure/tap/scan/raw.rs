//! Containers of JSON that are text as they stand: a tool's arguments that a provider sends as an object, and not as a string with one in it.

use super::Scanner;
use crate::pure::tap::accumulator::Reading;
use crate::pure::tap::text::Kind;

impl Scanner {
    /// Such a container begins, with the bracket that is scanned.
    #[cold]
    pub(super) fn begin_raw(&mut self, reading: &mut Reading) {
        self.raw_depth = self.depth;
        reading.spans.texts += 1;
        // Another event with the same bytes around another string is another text: none is read by the short way.
        reading.spans.escaped = true;
    }

    /// Takes what of `from` stands before `rest`, which was scanned of the container. Of one that is broken that is text up to the byte that
    /// broke it, wherever it is cut.
    #[cold]
    pub(super) fn raw(&mut self, from: &[u8], rest: &[u8], reading: &mut Reading) {
        let scanned = from.get(..from.len().saturating_sub(rest.len())).unwrap_or(from);
        reading.counter.part(Kind::Content, scanned);
        if self.depth < self.raw_depth {
            self.raw_depth = 0;
            reading.counter.end(Kind::Content);
        }
    }
}
