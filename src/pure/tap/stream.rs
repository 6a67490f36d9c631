//! The tap of a stream of server-sent events.

use bytes::{BufMut, Bytes, BytesMut};

use super::Forward;
use super::event::{DataAt, Terminal};
use super::fault::{self, DONE_EVENT};
use super::output::Output;
use super::reading::{Choices, Identity, Reading};
use super::scan::Scanner;
use super::stencil::Stencil;
use super::text::cut_character;
use crate::pure::sse::{Framer, Piece, Position};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionTokens, Reports, Usage};

/// How a stream is tapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// The gateway asked for the usage chunk and the client did not: it is left out.
    pub drop_usage_chunk: bool,
    /// So much of an event that has not ended is held back at most. See [`StreamTap`].
    pub hold_bytes_max: usize,
    /// The vocabulary that delivered text is counted with.
    pub encoding: Encoding,
}

/// The default of [`TapOptions::hold_bytes_max`].
pub const HOLD_BYTES_MAX: usize = 64 * 1024;

/// Reads a stream as it passes, and decides what passes.
///
/// Every byte passes unchanged and in order, but for:
/// 1. the usage chunk (an event whose `choices` is empty, with a usage object), when [`TapOptions::drop_usage_chunk`];
/// 2. an error event of the upstream: ours takes its place, `[DONE]` follows, and nothing after it passes;
/// 3. the end: an open event is closed, and `[DONE]` added when the upstream sent none.
///
/// So that 1 and 2 hold however a stream is cut, and so that a stream which dies in the middle of an event leaves no
/// half of it behind, the bytes of an event that is not yet complete wait here. That delays no client, since none can
/// read an incomplete event: bytes wait only while the event's JSON is incomplete (not for its blank line) and only up
/// to [`TapOptions::hold_bytes_max`]. Beyond that an event passes as it comes (but for half a character at its end) and
/// cannot be left out any more; it is counted like any other. If the stream dies within it, its JSON is closed, so that
/// the client reads the error event that follows and not a broken one.
#[derive(Debug)]
pub struct StreamTap {
    options: TapOptions,
    framer: Framer,
    scanner: Scanner,
    reading: Reading,
    stencil: Stencil,
    /// Bytes of the event at hand that have come and not passed.
    held: Vec<u8>,
    /// Bytes of the event at hand have passed, so all of it must.
    released: bool,
    /// The last event was left out.
    left_out: bool,
    terminal: Terminal,
    done: bool,
    finished: bool,
    /// The upstream's error event, with its code.
    error: Option<Option<u16>>,
    /// Nothing passes any more.
    closed: bool,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    LeaveOut,
    Mask,
}

impl Default for TapOptions {
    fn default() -> Self {
        TapOptions {
            drop_usage_chunk: false,
            hold_bytes_max: HOLD_BYTES_MAX,
            encoding: Encoding::default(),
        }
    }
}

impl StreamTap {
    /// A tap at the start of a stream.
    pub fn new(options: TapOptions) -> Self {
        StreamTap {
            options,
            framer: Framer::new(),
            scanner: Scanner::new(),
            reading: Reading::new(options.encoding),
            stencil: Stencil::default(),
            held: Vec::new(),
            released: false,
            left_out: false,
            terminal: Terminal::Maybe(0),
            done: false,
            finished: false,
            error: None,
            closed: false,
        }
    }

    /// One chunk of the upstream's body: what to send downstream in its place.
    pub fn chunk(&mut self, chunk: &Bytes) -> Forward {
        if self.closed {
            return Forward::Replace(Bytes::new());
        }
        let mut rest: &[u8] = chunk;
        if self.framer.is_at_event() {
            rest = self.usual_events(rest);
            if rest.is_empty() {
                return Forward::Unchanged;
            }
        }
        self.events(chunk, rest)
    }

    /// The long way of [`StreamTap::chunk`], for the `rest` of the chunk that follows its first usual events.
    fn events(&mut self, chunk: &Bytes, mut rest: &[u8]) -> Forward {
        let mut output = Output::new(chunk);
        // Where in this chunk the bytes begin whose fate is open.
        let mut start = chunk.len() - rest.len();
        output.pass(0..start);
        if self.framer.take_line_feed(&mut rest) && self.framer.position() == Position::BetweenEvents {
            let end = chunk.len() - rest.len();
            if !self.left_out {
                output.pass(start..end);
            }
            start = end;
        }
        let mut data_at = DataAt::Unknown;
        loop {
            if self.framer.position() == Position::BetweenEvents {
                rest = self.usual_events(rest);
                let end = chunk.len() - rest.len();
                output.pass(start..end);
                (start, data_at) = (end, DataAt::None);
            }
            let Some(piece) = self.framer.take(&mut rest) else {
                break;
            };
            let end = chunk.len() - rest.len();
            let verdict = match piece {
                Piece::Data(data) => {
                    data_at = data_at.after(end.saturating_sub(data.len()));
                    self.data(data);
                    continue;
                }
                Piece::DataLineEnd => {
                    data_at = data_at.after_line();
                    self.done |= self.terminal == Terminal::Yes;
                    continue;
                }
                Piece::Comment => Verdict::Pass,
                Piece::EventEnd => {
                    if let (DataAt::One(at), Some(event)) = (data_at, chunk.get(start..end)) {
                        self.stencil.cut(event, at - start, &self.reading);
                    }
                    self.end_event()
                }
            };
            if verdict == Verdict::Mask {
                output.insert(&self.mask());
                return output.finish();
            }
            self.left_out = verdict == Verdict::LeaveOut;
            if !self.left_out {
                output.insert(&self.held);
                output.pass(start..end);
            }
            self.held.clear();
            self.released = false;
            start = end;
        }
        self.leave_open(chunk, start, &mut output);
        output.finish()
    }

    /// The upstream ended its stream cleanly: what is to be sent before the end. That is what was held, the end of an
    /// event that was left open, and `[DONE]` if the upstream sent none. Nothing passes afterwards.
    pub fn end(&mut self) -> Bytes {
        if std::mem::replace(&mut self.closed, true) {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        let closing = self.framer.closing();
        if !closing.is_empty() {
            self.done |= self.terminal == Terminal::Yes;
            match self.end_event() {
                Verdict::Pass => {
                    out.put_slice(&self.held);
                    out.put_slice(closing);
                }
                Verdict::LeaveOut => {}
                Verdict::Mask => return self.mask(),
            }
        }
        if !self.done {
            out.put_slice(DONE_EVENT);
        }
        out.freeze()
    }

    /// The upstream died mid-stream: what is to be sent before the end. That is the end of an event that has partly
    /// passed, one error event, and `[DONE]`. Nothing, if the stream was complete or [`StreamTap::end`] was called.
    pub fn fail(&mut self, message: &str, error_type: &str, code: u16) -> Bytes {
        if std::mem::replace(&mut self.closed, true) || self.done {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        self.close_released(&mut out);
        fault::write(&mut out, &self.reading.identity, message, error_type, code);
        out.freeze()
    }

    /// The upstream's terminal event, `[DONE]`, was seen.
    pub fn done(&self) -> bool {
        self.done
    }

    /// A finish reason or `[DONE]` was seen: the answer is complete, whatever becomes of the connection.
    pub fn finished(&self) -> bool {
        self.finished || self.done
    }

    /// What the provider reported, for both sides: the highest of its cumulative reports.
    pub fn reported(&self) -> Option<Usage> {
        self.reading.reports.usage()
    }

    /// All that the provider reported, also of one side only, or what was not believed.
    pub fn reports(&self) -> &Reports {
        &self.reading.reports
    }

    /// Tokens of all text that was delivered so far.
    pub fn delivered(&self) -> CompletionTokens {
        CompletionTokens(self.reading.tally.committed())
    }

    /// The upstream sent an error event, which the client got ours for.
    pub fn error_event(&self) -> bool {
        self.error.is_some()
    }

    /// The numeric code in that event.
    pub fn error_code(&self) -> Option<u16> {
        self.error.flatten()
    }

    /// Takes the usual events that `bytes` begin with; what follows them.
    fn usual_events<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let Some(usual) = self.stencil.find(rest) {
            self.reading.tally.commit_text(&usual.text);
            rest = usual.rest;
        }
        rest
    }

    fn data(&mut self, data: &[u8]) {
        self.terminal = self.terminal.after(data);
        self.scanner.feed(data, &mut self.reading);
    }

    /// The event at hand is complete: what becomes of it. What it says takes effect here.
    fn end_event(&mut self) -> Verdict {
        let verdict = if self.is_error() {
            Verdict::Mask
        } else if self.is_usage_chunk() && !self.released {
            Verdict::LeaveOut
        } else {
            Verdict::Pass
        };
        if verdict == Verdict::Pass {
            self.deliver();
        }
        self.scanner.reset();
        self.terminal = Terminal::Maybe(0);
        if verdict != Verdict::Mask {
            self.reading.start_document();
        }
        verdict
    }

    /// The event at hand reaches the client.
    fn deliver(&mut self) {
        self.reading.tally.commit();
        self.finished |= self.reading.seen.finish;
    }

    fn is_error(&self) -> bool {
        self.reading.seen.error || self.framer.name_is_error()
    }

    fn is_usage_chunk(&self) -> bool {
        let seen = self.reading.seen;
        self.options.drop_usage_chunk && seen.usage && seen.choices == Choices::Empty && self.scanner.is_complete()
    }

    /// The chunk ends within an event: its bytes since `start` pass or are held.
    fn leave_open(&mut self, chunk: &Bytes, start: usize, output: &mut Output<'_>) {
        let tail = chunk.get(start..).unwrap_or_default();
        if tail.is_empty() && self.held.is_empty() {
            return;
        }
        if !self.released && !self.is_harmless() {
            if self.held.len() + tail.len() <= self.options.hold_bytes_max {
                return self.held.extend_from_slice(tail);
            }
            if self.is_error() {
                return output.insert(&self.mask());
            }
        }
        self.released = true;
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

    /// The lines of the event at hand so far are an event that passes, which only its blank line is missing of; then
    /// a client that reads by lines may have it.
    fn is_harmless(&mut self) -> bool {
        let complete = self.scanner.is_complete() || self.terminal == Terminal::Yes;
        let harmless = complete
            && self.framer.position() == Position::LineStart
            && self.framer.data_lines() == 1
            && !self.is_error()
            && !self.is_usage_chunk();
        if harmless {
            self.deliver();
        }
        harmless
    }

    /// Ends the stream with our error event in place of the upstream's, which is the event at hand.
    fn mask(&mut self) -> Bytes {
        self.error = Some(self.reading.seen.error_code);
        self.closed = true;
        let mut out = BytesMut::new();
        self.close_released(&mut out);
        if !self.done {
            write_masked(&mut out, &self.reading.identity);
        }
        out.freeze()
    }

    /// Ends the event at hand if some of it has passed; forgets it if not.
    fn close_released(&mut self, out: &mut BytesMut) {
        self.held.clear();
        if self.released {
            self.deliver();
            // When the framer has seen the event's end, that end has not passed.
            let (closing, ended) = (self.framer.closing(), self.framer.closing().is_empty());
            if let Some(json) = self.scanner.closing().filter(|json| !json.is_empty() && !ended) {
                out.put_slice(self.framer.before_data());
                out.put_slice(&json);
                out.put_slice(b"\n\n");
            } else {
                out.put_slice(if ended { b"\n\n" } else { closing });
            }
        } else {
            self.reading.tally.discard();
        }
    }
}

/// Writes the event that takes the place of an upstream's error event, and `[DONE]`.
pub(super) fn write_masked(out: &mut BytesMut, identity: &Identity) {
    fault::write(out, identity, MASKED_MESSAGE, MASKED_TYPE, MASKED_CODE);
}

/// The words that take the place of an upstream's own.
const MASKED_MESSAGE: &str = "The upstream provider failed while answering.";
const MASKED_TYPE: &str = "upstream_error";
const MASKED_CODE: u16 = 502;
