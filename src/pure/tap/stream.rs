//! The tap of a stream of server-sent events.

use bytes::Bytes;

use super::Forward;
use super::accumulator::{Choices, Reading, ReportedAt};
use super::choice_set::ChoiceSet;
use super::event::{DataAt, Terminal};
use super::fast_path::FastPath;
use super::output::Output;
use super::scan::Scanner;
use crate::pure::bill::Tariff;
use crate::pure::sse::{Framer, Piece, Position};
use crate::pure::usage::PromptTokens;

mod costs;
mod ending;
mod findings;
mod open_event;
mod options;

use costs::EventUsage;
pub use costs::ToldUse;
use ending::ErrorEvent;
pub use ending::Framing;
#[cfg(test)]
pub(super) use ending::write_masked;
pub use options::{HOLD_BYTES_MAX, TapOptions};

/// Reads a stream as it passes, and decides what passes.
///
/// Every byte passes unchanged and in order, but for:
/// 1. the usage chunk (an event without choices and text, with a usage object), when [`TapOptions::drop_usage_chunk`];
/// 2. an error event of the upstream: ours takes its place, `[DONE]` follows, and nothing after it passes;
/// 3. the end: an open event is closed, and `[DONE]` added when the upstream sent none;
/// 4. with a tariff: the usages in an event, of which the last tells the cost, and none tells the provider's own.
///
/// What follows `[DONE]` passes too, but for an error. No client reads it: its text is not counted, its reports are read.
///
/// So that 1 and 2 hold however a stream is cut, and so that a stream which dies in the middle of an event leaves no half of it behind, the
/// bytes of an event that is not yet complete wait here. That delays no client, since none can read an incomplete event: bytes wait only
/// while the event's JSON is incomplete (not for its blank line) and only up to [`TapOptions::hold_bytes_max`]. Beyond that an event passes
/// as it comes (but for half a character at its end) and cannot be left out any more; it is counted like any other. If the stream dies
/// within it, its JSON is closed, so that the client reads the error event that follows and not a broken one.
#[derive(Debug)]
pub struct StreamTap {
    options: TapOptions,
    framer: Framer,
    scanner: Scanner,
    reading: Reading,
    fast_path: FastPath,
    /// Bytes of the event at hand that have come and not passed.
    held: Vec<u8>,
    /// Bytes of the event at hand have passed, so all of it must.
    released: bool,
    /// The event at hand passes, whatever lines follow: its first line of data is whole and harmless, so a chunk that
    /// ended there would have let it pass.
    settled: bool,
    /// The last event was left out.
    left_out: bool,
    terminal: Terminal,
    done: bool,
    /// A choice has ended.
    has_finish: bool,
    /// All choices have that were asked for.
    finished: bool,
    /// Tokens that had been delivered when they first had.
    finished_at: Option<u64>,
    /// The same when one of them ended last, all having ended.
    last_finish: Option<u64>,
    /// Which have.
    ended: ChoiceSet,
    /// The upstream's error event.
    error: Option<ErrorEvent>,
    /// An event of an answer has passed, or has begun to: it has data, and is no error.
    has_event: bool,
    /// Nothing passes any more.
    closed: bool,
    /// The stream ended as if cleanly, yet not as a whole.
    died: bool,
    /// When reports of the completion came.
    reported_at: ReportedAt,
    /// What the client was told last with its cost.
    told: Option<ToldUse>,
    /// A usage came that more may follow.
    reports_often: bool,
    /// The client read a usage without a cost after what it was told.
    has_untold_usage: bool,
    /// What it costs was told for good: `[DONE]` passes, or has passed.
    has_end: bool,
    /// The prompt, where it was counted for the client to be told.
    counted_prompt: Option<PromptTokens>,
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// It passes, and nothing after it: what has to be told is told before it.
    PassLast,
    /// It passes with its usage told otherwise.
    Retell(EventUsage),
    LeaveOut,
    Mask,
}

impl StreamTap {
    /// A tap at the start of a stream.
    pub fn new(options: TapOptions) -> Self {
        StreamTap {
            options,
            framer: Framer::new(),
            scanner: Scanner::new(),
            reading: Reading::new(options.encoding, options.completion_max, options.naming),
            fast_path: FastPath::default(),
            held: Vec::new(),
            released: false,
            settled: false,
            left_out: false,
            terminal: Terminal::Maybe(0),
            done: false,
            has_finish: false,
            finished: false,
            finished_at: None,
            last_finish: None,
            ended: ChoiceSet::default(),
            error: None,
            has_event: false,
            closed: false,
            died: false,
            reported_at: ReportedAt::default(),
            told: None,
            reports_often: false,
            has_untold_usage: false,
            has_end: false,
            counted_prompt: None,
        }
    }

    /// One chunk of the upstream's body: what to send downstream in its place.
    pub fn chunk(&mut self, chunk: &Bytes) -> Forward {
        self.billed_chunk(chunk, || None)
    }

    /// The same of an answer whose client is told what it costs. The tariff is asked for only where a piece is more than usual events.
    pub fn billed_chunk<'t>(&mut self, chunk: &Bytes, tariff: impl FnOnce() -> Option<Tariff<'t>>) -> Forward {
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
        self.events(chunk, rest, tariff().as_ref())
    }

    /// The long way of [`StreamTap::chunk`], for the `rest` of the chunk that follows its first usual events.
    #[inline(never)]
    fn events(&mut self, chunk: &Bytes, mut rest: &[u8], tariff: Option<&Tariff<'_>>) -> Forward {
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
                    self.settled |= self.is_harmless() && !self.may_be_retold(tariff);
                    continue;
                }
                Piece::Comment => Verdict::Pass,
                Piece::EventEnd => {
                    if let (DataAt::One(at), Some(event)) = (data_at, chunk.get(start..end)) {
                        self.fast_path.cut(event, at - start, &self.reading);
                    }
                    self.end_event(tariff)
                }
            };
            if verdict == Verdict::Mask {
                let event = [self.held.as_slice(), chunk.get(start..end).unwrap_or_default()].concat();
                output.insert(&self.mask(&event, tariff));
                return output.finish();
            }
            self.left_out = verdict == Verdict::LeaveOut;
            self.pass_event(verdict, start..end, &mut output, chunk, tariff);
            self.held.clear();
            self.released = false;
            start = end;
        }
        self.leave_open(chunk, start, &mut output, tariff);
        output.finish()
    }

    /// Whether what has passed stands between two events of a stream that goes on: a comment may follow.
    pub fn is_between_events(&self) -> bool {
        let open = !self.closed && !self.done;
        open && self.held.is_empty() && self.framer.position() == Position::BetweenEvents
    }

    /// The client was sent a comment between two events: what follows is not the start of its stream.
    pub fn commented(&mut self) {
        self.framer.begin();
    }

    /// Takes the usual events that `bytes` begin with; what follows them.
    fn usual_events<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.done {
            // The text of these would count.
            return bytes;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some((text, after)) = self.fast_path.find(rest) {
                self.reading.counter.commit_text(text);
                rest = after;
            } else if let Some((text, after)) = self.fast_path.find_escaped(rest) {
                self.reading.counter.commit_text(&text);
                rest = after;
            } else {
                break;
            }
        }
        rest
    }

    /// Whether the event at hand has data.
    fn has_data(&self) -> bool {
        self.terminal != Terminal::Maybe(0)
    }

    fn data(&mut self, data: &[u8]) {
        self.terminal = self.terminal.after(data);
        self.scanner.feed(data, &mut self.reading);
        if self.done {
            // Behind `[DONE]` no client reads it.
            self.reading.counter.discard();
        }
    }

    /// The event at hand is complete: what becomes of it. What it says takes effect here.
    fn end_event(&mut self, tariff: Option<&Tariff<'_>>) -> Verdict {
        let mut verdict = if self.is_error() {
            Verdict::Mask
        } else if self.is_usage_chunk() && !self.released {
            Verdict::LeaveOut
        } else if self.terminal == Terminal::Yes && !self.released {
            Verdict::PassLast
        } else {
            Verdict::Pass
        };
        match verdict {
            Verdict::Pass | Verdict::PassLast | Verdict::Retell(_) => self.deliver(),
            Verdict::LeaveOut => {
                // Were its text kept, it would be counted with that of a later event.
                self.reading.counter.discard();
                self.note_report();
            }
            Verdict::Mask => {}
        }
        if verdict == Verdict::Pass
            && let Some(usage) = self.event_usage(tariff)
        {
            verdict = Verdict::Retell(usage);
        } else if verdict != Verdict::LeaveOut {
            self.has_untold_usage |= self.reading.spans.usage.end > 0;
        }
        self.has_event |= !matches!(verdict, Verdict::Mask | Verdict::LeaveOut) && self.has_data();
        self.scanner.reset();
        self.terminal = Terminal::Maybe(0);
        self.settled = false;
        if verdict != Verdict::Mask {
            self.reading.start_document();
        }
        verdict
    }

    /// The event that ends at `range` of the chunk passes as it was decided.
    fn pass_event(
        &mut self,
        verdict: Verdict,
        range: std::ops::Range<usize>,
        output: &mut Output<'_>,
        chunk: &[u8],
        tariff: Option<&Tariff<'_>>,
    ) {
        let came = chunk.get(range.clone()).unwrap_or_default();
        match verdict {
            Verdict::LeaveOut | Verdict::Mask => return,
            Verdict::Retell(usage) => {
                if let Some(retold) = self.retell(&[&self.held, came].concat(), &usage, tariff) {
                    return output.insert(&retold);
                }
            }
            Verdict::PassLast => output.insert(&self.last_usage(tariff)),
            Verdict::Pass => {}
        }
        output.insert(&self.held);
        output.pass(range);
    }

    /// The event at hand reaches the client.
    fn deliver(&mut self) {
        self.reading.counter.commit();
        if self.reading.seen.finish {
            self.note_finish();
        }
        self.note_report();
    }

    /// The event at hand ends one choice or more. That of one choice is no end of an answer that was asked for several.
    fn note_finish(&mut self) {
        self.has_finish = true;
        self.ended.add(self.reading.ended);
        self.finished |= self.options.choices <= 1 || self.ended.has(self.options.choices);
        if self.finished {
            self.last_finish = Some(self.reading.counter.committed());
            self.finished_at = self.finished_at.or(self.last_finish);
        }
    }

    /// The text of the event at hand, which is counted, is among what its report says.
    fn note_report(&mut self) {
        let delivered = self.reading.counter.committed();
        self.reported_at.note(&self.reading.seen, delivered);
    }

    /// `[DONE]` is no error, whatever else its event says: were it masked, the stream would have no end.
    fn is_error(&self) -> bool {
        let said = self.reading.seen.error || self.framer.name_is_error();
        said && !self.settled && self.terminal != Terminal::Yes
    }

    fn is_usage_chunk(&self) -> bool {
        let seen = self.reading.seen;
        let has_text = seen.choices == Choices::Some || seen.response;
        let is_one = seen.usage && !has_text && self.scanner.is_complete();
        self.options.drop_usage_chunk && is_one && !self.settled
    }
}
