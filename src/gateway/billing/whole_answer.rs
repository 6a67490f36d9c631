//! A whole answer, as its meter has it. The transport gathers it: the client can do nothing with its first bytes anyway until the last has
//! come, and until then it may turn out to be an error object, a page of HTML that came with a 200, or less than a whole.

use bytes::Bytes;

use super::metered::{Metered, read};
use super::passed::Passed;
use crate::pure::bill::Tariff;
use crate::pure::request_body::Endpoint;
use crate::pure::tap::{Forward, WholeCost, WholeTap};
use crate::pure::usage::{CompletionTokens, Usage};

/// The tap of a whole answer, and whether it is passed on.
pub(super) struct Whole {
    pub(super) tap: WholeTap,
    pub(super) cost: WholeCost,
    /// It is one of vectors, not of choices.
    is_vectors: bool,
    leaves: Leaves,
    /// Its client has left, and its use is waited for.
    is_read_on: bool,
    /// Whether it would have begun to pass when the time to gather was over, had its client not left. None: that is not over.
    would_pass: Option<bool>,
}

/// What leaves of the answer.
enum Leaves {
    /// Nothing yet: the transport gathers it.
    Nothing,
    /// White space, as a slow provider sends it: the time to gather is over. What follows waits here for the answer's end, for it may turn
    /// out to be none.
    Blanks(Vec<u8>),
    /// What came, and what comes.
    All,
}

impl Whole {
    /// Nothing yet, of an answer by `endpoint`.
    pub(super) fn new(tap: WholeTap, endpoint: Endpoint) -> Whole {
        Whole {
            tap,
            cost: WholeCost::default(),
            is_vectors: endpoint == Endpoint::Embeddings,
            leaves: Leaves::Nothing,
            is_read_on: false,
            would_pass: None,
        }
    }

    /// Whether something of the answer was passed on, or all of it is about to be.
    pub(super) fn passes(&self) -> bool {
        matches!(self.leaves, Leaves::All)
    }

    /// The answer is gathered no longer. What came of it leaves; of one of which there is nothing but white space, that.
    pub(super) fn stop_gathering(&mut self) {
        if matches!(self.leaves, Leaves::Nothing) {
            self.leaves = match self.tap.is_blank() {
                true => Leaves::Blanks(Vec::new()),
                false => {
                    self.tap.count_passed();
                    Leaves::All
                }
            };
        }
    }

    /// The client has left, and the answer's use is waited for: what is known of it is owed, though nothing of it leaves.
    pub(super) fn read_on(&mut self) {
        self.is_read_on = true;
    }

    /// The answer is gathered no longer, and its client has left: nothing leaves.
    pub(super) fn stop_gathering_unread(&mut self) {
        if matches!(self.leaves, Leaves::Nothing) && self.would_pass.is_none() {
            self.would_pass = Some(!self.tap.is_blank());
            self.pass_unread();
        }
    }

    /// All of an answer that would have begun to pass would have left, whether its upstream ends it or not: a client that has left owes what
    /// one that stays does.
    fn pass_unread(&mut self) {
        if self.would_pass == Some(true) && !self.passes() && self.is_answer() {
            self.leaves = Leaves::All;
        }
    }

    /// One chunk of the answer comes: what is passed on in its place.
    pub(super) fn chunk(&mut self, chunk: &Bytes, tariff: &Tariff<'_>) -> Forward {
        let forward = self.cost.chunk(chunk, &mut self.tap, tariff);
        self.pass_unread();
        let kept = match &mut self.leaves {
            Leaves::Blanks(kept) => kept,
            Leaves::All => {
                self.tap.count_passed();
                return forward;
            }
            Leaves::Nothing => return forward,
        };
        if self.tap.is_blank() {
            return forward;
        }
        match &forward {
            Forward::Unchanged => kept.extend_from_slice(chunk),
            Forward::Replace(bytes) => kept.extend_from_slice(bytes),
        }
        if kept.len() <= KEPT_BYTES_MAX {
            return Forward::Replace(Bytes::new());
        }
        let kept = std::mem::take(kept);
        if self.tap.is_error() || self.tap.is_broken() {
            // It stays no answer, whatever follows.
            return Forward::Replace(Bytes::new());
        }
        self.tap.count_passed();
        self.leaves = Leaves::All;
        Forward::Replace(Bytes::from(kept))
    }

    /// Whether nothing that may follow makes an answer of it, and nothing of it was passed on.
    pub(super) fn is_lost(&self) -> bool {
        !self.passes() && self.tap.is_broken()
    }

    /// Whether all that came is an answer.
    pub(super) fn is_answer(&self) -> bool {
        let has_content = match self.is_vectors {
            true => self.tap.has_vectors(),
            false => self.tap.has_choices(),
        };
        self.tap.complete() && self.tap.is_object() && !self.tap.is_error() && has_content
    }

    /// The answer's end: it is passed on, if it is an answer. What of it was kept leaves in `body`.
    pub(super) fn end(&mut self, body: &mut Option<Bytes>) -> Passed {
        if self.tap.is_cut() {
            return Passed::Cut;
        }
        // What is told of it from now on is exact.
        self.tap.end();
        let is_answer = self.is_answer();
        match std::mem::replace(&mut self.leaves, Leaves::All) {
            Leaves::All => {}
            kept if !is_answer => {
                self.leaves = kept;
                let code = self.tap.error_code();
                return Passed::NoAnswer { code };
            }
            Leaves::Nothing => {}
            Leaves::Blanks(kept) => *body = Some(Bytes::from(kept)),
        }
        Passed::On
    }

    /// Tokens of the text that has left.
    pub(super) fn delivered(&self) -> CompletionTokens {
        match self.passes() {
            true => self.tap.delivered_before(self.cost.waits_since()),
            false => self.tap.delivered(),
        }
    }

    /// What its provider reported. Of a chat that passes, and is not whole, that is of more than has left, unless it follows all of the text;
    /// vectors have a prompt alone.
    pub(super) fn reported(&self) -> Option<Usage> {
        let is_of_more = self.passes() && self.is_part() && !self.is_vectors && !self.tap.reports_all_text();
        self.tap.reported().filter(|_| !is_of_more)
    }

    /// Whether more is to come of it, or waits to leave. Of one with anything behind its end all has come.
    fn is_part(&self) -> bool {
        !self.tap.complete() && (!self.tap.is_object() || self.cost.waits_since().is_some())
    }

    /// Whether nothing that may follow says more of what was used: all of an answer has come, or its report behind all of its text.
    fn has_told_use(&self) -> bool {
        let tap = &self.tap;
        let has_report = || tap.reports_all_text() && tap.reported().is_some();
        self.is_answer() || tap.is_cut() && !tap.is_error() && has_report()
    }

    /// What was used. `began`: something of it came.
    pub(super) fn finish(&mut self, began: bool) -> Metered {
        if self.is_read_on && self.has_told_use() {
            self.leaves = Leaves::All;
        }
        if !self.passes() {
            // Nothing was passed on, nor is known to have been used: at most its prompt is owed.
            return Metered {
                is_error: self.tap.is_error(),
                is_over: self.tap.complete(),
                ..read(self.tap.reports(), None)
            };
        }
        self.tap.end();
        let (delivered, reported, tap) = (self.delivered(), self.reported(), &self.tap);
        Metered {
            counted_prompt: self.cost.counted_prompt(),
            tier: tap.served_tier().map(Box::from),
            delivered,
            is_error: tap.is_error(),
            is_complete: tap.complete(),
            // One that stands behind all of the text is the last.
            is_over: tap.complete() || reported.is_some() && tap.reports_all_text(),
            is_part_passed: tap.stopped_within(),
            is_implausible: tap.is_implausible(),
            began,
            told: self.cost.told_bill(),
            ..read(tap.reports(), reported)
        }
    }
}

/// The most bytes of an answer that wait behind white space for its end: beyond that it leaves as it comes.
const KEPT_BYTES_MAX: usize = 64 << 10;
