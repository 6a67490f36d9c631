//! The events of a stream as they arrive, whatever the pieces: how many, and when the upstream wrote each of them.

use std::ops::Range;

use memchr::{memchr, memmem};

use crate::tag::{TAG_DIGITS, Tag, tag_place};

/// Reads events (the HTML standard, "Server-sent events", as far as providers use it).
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Events with data so far, `[DONE]` included.
    pub(crate) count: u64,
    /// Whether `[DONE]` was among them.
    pub(crate) done: bool,
    /// Whether one of them told of an error.
    pub(crate) failed: bool,
    /// Whether one of them is of another stream: it has not the tag that it should have.
    pub(crate) foreign: bool,
    /// What each of them must have, if that is known.
    tag: Option<Tag>,
    /// Where the last one had it.
    tag_at: usize,
    /// The beginning of a line that is not complete yet.
    line: Vec<u8>,
    has_data: bool,
    stamp: Option<u64>,
}

impl Events {
    /// Of a stream whose events must have this tag.
    pub(crate) fn tagged(tag: Option<Tag>) -> Self {
        Self { tag, ..Self::default() }
    }

    /// Takes the next bytes of the stream. `stamped` is told, of each event that ends in them, the time that the upstream wrote into it.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut stamped: impl FnMut(u64)) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.take(line, &mut stamped);
            } else {
                self.keep(line);
                let line = std::mem::take(&mut self.line);
                self.take(&line, &mut stamped);
                self.line = line;
                self.line.clear();
            }
        }
        self.keep(bytes);
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LINE_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn take(&mut self, line: &[u8], stamped: &mut impl FnMut(u64)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let stamp = self.stamp.take();
            if std::mem::take(&mut self.has_data) {
                self.count += 1;
                stamp.into_iter().for_each(stamped);
            }
        } else if line.starts_with(b"data:") {
            self.has_data = true;
            self.stamp = stamp(line).or(self.stamp);
            if self.stamp.is_none() {
                self.done |= matches!(line, b"data: [DONE]" | b"data:[DONE]");
                self.failed |= memmem::find(line, b"\"error\":{").is_some();
            }
            let foreign = self.is_foreign(line);
            self.foreign |= foreign;
        }
    }

    fn is_foreign(&mut self, line: &[u8]) -> bool {
        let Some(tag) = self.tag else { return false };
        // It stands at the same place in all events of a stream, so it is hardly ever looked for.
        if line.get(self.tag_at..self.tag_at + TAG_DIGITS) == Some(tag.bytes()) {
            return false;
        }
        match tag_place(line) {
            Some(place) => {
                self.tag_at = place.start;
                line[place] != *tag.bytes()
            }
            // Content has it; what ends a stream may be the gateway's own.
            None => self.stamp.is_some(),
        }
    }
}

/// Where the time that the simulated upstream wrote into an event stands in `bytes`, if it does.
pub(crate) fn stamp_place(bytes: &[u8]) -> Option<Range<usize>> {
    let start = memmem::rfind(bytes, STAMP_BEFORE)? + STAMP_BEFORE.len();
    (start + STAMP_DIGITS <= bytes.len()).then_some(start..start + STAMP_DIGITS)
}

/// The time in nanoseconds that the simulated upstream wrote into the event of this line. None without one: what ends a stream has none.
fn stamp(line: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(line.get(stamp_place(line)?)?).ok()?;
    digits.parse().ok().filter(|stamp| *stamp > 0)
}

/// What stands before the time in a simulated event: a field that differs from event to event in real streams too.
pub(crate) const STAMP_BEFORE: &[u8] = b"\"obfuscation\":\"";
/// Digits of the time.
pub(crate) const STAMP_DIGITS: usize = 20;
/// Bytes kept of an incomplete line: more than the longest event has.
const LINE_MAX: usize = 64 * 1024;
