//! An event whose end has not come: what of it passes, and what waits.

use bytes::Bytes;

use super::{StreamTap, Terminal};
use crate::pure::bill::Tariff;
use crate::pure::sse::Position;
use crate::pure::tap::output::Output;
use crate::pure::tap::text::cut_character;

impl StreamTap {
    /// The chunk ends within an event: its bytes since `start` pass or are held.
    pub(super) fn leave_open(
        &mut self,
        chunk: &Bytes,
        start: usize,
        output: &mut Output<'_>,
        tariff: Option<&Tariff<'_>>,
    ) {
        let tail = chunk.get(start..).unwrap_or_default();
        if tail.is_empty() && self.held.is_empty() {
            return;
        }
        let begins = !self.released;
        if !self.released && !self.may_pass() {
            if self.held.len() + tail.len() <= self.options.hold_bytes_max {
                return self.held.extend_from_slice(tail);
            }
            if self.is_error() {
                return output.insert(&self.mask(&[], tariff));
            }
        }
        self.released = true;
        self.reading.counter.count_passed();
        self.has_event |= self.has_data();
        if begins && self.terminal == Terminal::Yes {
            output.insert(&self.last_usage(tariff));
        }
        if cut_character(tail) == 0 && (tail.len() >= 3 || self.held.is_empty()) {
            output.insert(&self.held);
            output.pass(start..chunk.len());
            return self.held.clear();
        }
        // Half a character could not be closed if the stream died here, so it waits for its other half.
        self.held.extend_from_slice(tail);
        let whole = self.held.len() - cut_character(&self.held);
        output.insert(self.held.get(..whole).unwrap_or_default());
        self.held.drain(..whole);
    }

    /// The first line of data of the event at hand, which has just ended, is all of an event that passes.
    pub(super) fn is_harmless(&self) -> bool {
        let complete = self.scanner.is_complete() || self.terminal == Terminal::Yes;
        complete && self.framer.data_lines() == 1 && !self.is_error() && !self.is_usage_chunk()
    }

    /// Only its blank line is missing of the event at hand; then a client that reads by lines may have it.
    fn may_pass(&mut self) -> bool {
        let may = self.settled && self.framer.position() == Position::LineStart && self.framer.data_lines() == 1;
        if may {
            self.deliver();
        }
        may
    }
}
