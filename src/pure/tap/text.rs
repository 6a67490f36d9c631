//! The counter of delivered text: what the model wrote, kept until it is counted, then only its number of tokens.
//!
//! Counting waits for [`TokenCounter::commit`], so that text which never reaches the client costs nothing, and text whose
//! tokens the provider reports need not be counted at all. What waits is bounded: beyond [`WAITING_BYTES_MAX`] it is
//! counted in parts. It never writes the text anywhere.

use crate::pure::tokens::{self, Encoding};

/// A kind of text. The kinds of reasoning are several spellings of the same words, and some providers send more than
/// one of them: only the longest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Content, refusal, tool calls: everything that is written once.
    Content,
    /// `text` of a choice. Some providers send the same words in its `delta` too: the longer of the two counts.
    ChoiceText,
    Reasoning,
    ReasoningContent,
    ReasoningDetails,
}

/// Where in a choice a text stands. Some providers send the same words in both places: the one that has more counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In its `delta`, or in the choice itself.
    #[default]
    Delta,
    /// In its `message`.
    Message,
}

/// The counter of one answer.
#[derive(Debug)]
pub(super) struct TokenCounter {
    encoding: Encoding,
    /// Text that waits, unescaped, as bytes: its characters may be cut.
    waiting: Vec<u8>,
    marks: Vec<Mark>,
    /// Where in `waiting` the text begins that has no mark yet.
    open: usize,
    /// The kind of that text.
    open_kind: Kind,
    /// Where the text that comes next stands.
    place: Place,
    /// What is counted of the choice at hand, but not committed.
    choice: Choice,
    committed: u64,
    /// Bytes of all committed text.
    bytes: u64,
    /// Bytes of text that is not committed.
    bytes_open: u64,
    /// Of the text that waits, how many bytes [`TokenCounter::count_passed`] has looked at, and their tokens.
    passed: (usize, u64),
}

/// One end in the waiting text.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// A text of a kind ends at this offset.
    Text(Kind, usize),
    /// What follows in the choice stands there.
    Place(Place),
    /// A choice ends.
    Choice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Choice {
    delta: Written,
    message: Written,
    /// Of [`Kind::ChoiceText`].
    text: u64,
    /// Where the texts that follow stand.
    place: Place,
    /// Choices that ended before this one.
    ended: u64,
}

/// Tokens in one place of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    content: u64,
    reasoning: u64,
    reasoning_content: u64,
    reasoning_details: u64,
}

/// Text beyond this is counted at once instead of waiting.
pub(super) const WAITING_BYTES_MAX: usize = 64 * 1024;
/// Text that has passed is counted in parts of at least so much, so that their borders add few tokens.
const PASSED_BYTES_MIN: usize = 1024;
/// So many texts wait at most: the bound for very many empty ones.
pub(super) const MARKS_MAX: usize = 4096;

impl TokenCounter {
    pub(super) fn new(encoding: Encoding) -> Self {
        TokenCounter {
            encoding,
            waiting: Vec::new(),
            marks: Vec::new(),
            open: 0,
            open_kind: Kind::Content,
            place: Place::default(),
            choice: Choice::default(),
            committed: 0,
            bytes: 0,
            bytes_open: 0,
            passed: (0, 0),
        }
    }

    /// The texts that follow stand in this place of the choice at hand.
    pub(super) fn enter(&mut self, place: Place) {
        if self.place != place {
            self.place = place;
            self.mark(Mark::Place(place));
        }
    }

    /// More of a text, which [`TokenCounter::end`] will end.
    pub(super) fn part(&mut self, kind: Kind, mut part: &[u8]) {
        self.open_kind = kind;
        self.bytes_open = self.bytes_open.saturating_add(length(part));
        while self.waiting.len() + part.len() > WAITING_BYTES_MAX {
            let room = WAITING_BYTES_MAX.saturating_sub(self.waiting.len());
            let (now, later) = part.split_at_checked(room).unwrap_or((part, b""));
            self.waiting.extend_from_slice(now);
            self.count_open(kind);
            part = later;
        }
        self.waiting.extend_from_slice(part);
    }

    /// The text ended.
    pub(super) fn end(&mut self, kind: Kind) {
        if self.waiting.len() > self.open {
            self.open = self.waiting.len();
            self.mark(Mark::Text(kind, self.open));
        }
    }

    /// The answer was cut within a text: what there is of it is a text too.
    pub(super) fn end_cut(&mut self) {
        self.end(self.open_kind);
    }

    /// The choice ended.
    pub(super) fn end_choice(&mut self) {
        // Without a text since the last choice there is nothing to set apart.
        if !matches!(self.marks.last(), Some(Mark::Choice)) {
            self.mark(Mark::Choice);
        }
        self.place = Place::default();
    }

    /// What waits was delivered: it is counted.
    pub(super) fn commit(&mut self) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut self.bytes_open));
        if self.marks.is_empty() && self.choice == Choice::default() && self.waiting.is_empty() {
            return;
        }
        self.count_marked();
        self.choice.end();
        self.committed = self.committed.saturating_add(std::mem::take(&mut self.choice).ended);
        self.clear();
    }

    /// One text that was delivered, apart from those that wait.
    pub(super) fn commit_text(&mut self, text: &[u8]) {
        self.committed = self.committed.saturating_add(tokens::count_bytes(text, self.encoding));
        self.bytes = self.bytes.saturating_add(length(text));
    }

    /// What waits was not delivered: it is forgotten.
    pub(super) fn discard(&mut self) {
        self.choice = Choice::default();
        self.bytes_open = 0;
        self.clear();
    }

    /// What waits has passed although it is not committed: tells [`TokenCounter::open_waiting`] of it. What is committed later is counted as it
    /// would have been.
    pub(super) fn count_passed(&mut self) {
        let (at, tokens) = self.passed;
        let fresh = self.waiting.get(at..).unwrap_or_default();
        if fresh.len() < PASSED_BYTES_MIN {
            return;
        }
        let whole = fresh.len() - cut_character(fresh);
        let counted = tokens::count_bytes(fresh.get(..whole).unwrap_or(fresh), self.encoding);
        self.passed = (at + whole, tokens.saturating_add(counted));
    }

    /// Tokens of text that is counted and not committed. What waits is not among them.
    pub(super) fn open(&self) -> u64 {
        let mut choice = self.choice;
        choice.end();
        choice.ended
    }

    /// Tokens of the text that waits, as far as [`TokenCounter::count_passed`] has looked at it; the same words in two places count twice.
    pub(super) fn open_waiting(&self) -> u64 {
        self.passed.1
    }

    /// Bytes of all text.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.saturating_add(self.bytes_open)
    }

    /// Bytes of text that is not committed.
    pub(super) fn open_bytes(&self) -> u64 {
        self.bytes_open
    }

    /// Bytes of all committed text, unescaped; each spelling of the same reasoning counts.
    pub(super) fn committed_bytes(&self) -> u64 {
        self.bytes
    }

    /// Tokens of all committed text.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
        if self.marks.len() >= MARKS_MAX {
            self.count_marked();
            self.waiting.drain(..self.open);
            self.open = 0;
            self.passed = (0, 0);
        }
    }

    /// Counts the texts that ended and as much of the open one as has whole characters; keeps the rest waiting.
    fn count_open(&mut self, kind: Kind) {
        self.count_marked();
        let open = self.waiting.get(self.open..).unwrap_or_default();
        let cut = open.len() - cut_character(open);
        self.choice.add(
            kind,
            tokens::count_bytes(open.get(..cut).unwrap_or(open), self.encoding),
        );
        self.waiting.drain(..self.open + cut);
        self.open = 0;
        self.passed = (0, 0);
    }

    fn count_marked(&mut self) {
        let mut start = 0;
        for mark in self.marks.drain(..) {
            match mark {
                Mark::Choice => self.choice.end(),
                Mark::Place(place) => self.choice.place = place,
                Mark::Text(kind, end) => {
                    let text = self.waiting.get(start..end).unwrap_or_default();
                    self.choice.add(kind, tokens::count_bytes(text, self.encoding));
                    start = end;
                }
            }
        }
    }

    fn clear(&mut self) {
        self.marks.clear();
        self.waiting.clear();
        self.open = 0;
        self.passed = (0, 0);
        self.place = Place::default();
    }
}

impl Choice {
    fn add(&mut self, kind: Kind, tokens: u64) {
        let written = match self.place {
            Place::Delta => &mut self.delta,
            Place::Message => &mut self.message,
        };
        let sum = match kind {
            Kind::Content => &mut written.content,
            Kind::ChoiceText => &mut self.text,
            Kind::Reasoning => &mut written.reasoning,
            Kind::ReasoningContent => &mut written.reasoning_content,
            Kind::ReasoningDetails => &mut written.reasoning_details,
        };
        *sum = sum.saturating_add(tokens);
    }

    fn end(&mut self) {
        let delta = Written {
            content: self.delta.content.max(self.text),
            ..self.delta
        };
        let tokens = delta.tokens().max(self.message.tokens());
        *self = Choice {
            ended: self.ended.saturating_add(tokens),
            ..Choice::default()
        };
    }
}

impl Written {
    fn tokens(&self) -> u64 {
        let reasoning = self.reasoning.max(self.reasoning_content).max(self.reasoning_details);
        self.content.saturating_add(reasoning)
    }
}

fn length(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// How many bytes at the end of `text` are of a character whose rest is still to come.
pub(super) fn cut_character(text: &[u8]) -> usize {
    let lead = text.iter().rev().take(3).position(|byte| byte & 0xC0 != 0x80);
    let Some(after) = lead else { return 0 };
    let length = match text.iter().rev().nth(after).copied().unwrap_or_default() {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    };
    if after + 1 < length { after + 1 } else { 0 }
}
