//! A whole answer, as its meter has it. The transport gathers it: the client can do nothing with its first bytes anyway until the last has
//! come, and until then it may turn out to be an error object, a page of HTML that came with a 200, or less than a whole.

use super::metered::{Metered, read};
use super::passed::Passed;
use crate::pure::request_body::Endpoint;
use crate::pure::tap::{WholeCost, WholeTap};

/// The tap of a whole answer, and whether it is passed on.
pub(super) struct Whole {
    pub(super) tap: WholeTap,
    pub(super) cost: WholeCost,
    /// It is one of vectors, not of choices.
    is_vectors: bool,
    /// It was not gathered to its end, or has ended as an answer: what came of it is passed on.
    pub(super) passes: bool,
}

impl Whole {
    /// Nothing yet, of an answer by `endpoint`.
    pub(super) fn new(tap: WholeTap, endpoint: Endpoint) -> Whole {
        Whole {
            tap,
            cost: WholeCost::default(),
            is_vectors: endpoint == Endpoint::Embeddings,
            passes: false,
        }
    }

    /// The answer's end: it is passed on, if it is an answer.
    pub(super) fn end(&mut self) -> Passed {
        if self.tap.is_cut() {
            return Passed::Cut;
        }
        let has_content = match self.is_vectors {
            true => self.tap.has_vectors(),
            false => self.tap.has_choices(),
        };
        let is_answer = self.tap.complete() && self.tap.is_object() && !self.tap.is_error() && has_content;
        if !self.passes && !is_answer {
            let code = self.tap.error_code();
            return Passed::NoAnswer { code };
        }
        self.passes = true;
        Passed::On
    }

    /// What was used. `began`: something of it came.
    pub(super) fn finish(&mut self, began: bool) -> Metered {
        if !self.passes {
            // Nothing was passed on: at most its prompt is owed.
            return Metered {
                is_error: self.tap.is_error(),
                is_over: self.tap.complete(),
                ..read(self.tap.reports(), None)
            };
        }
        let tap = &mut self.tap;
        tap.end();
        Metered {
            counted_prompt: self.cost.counted_prompt(),
            tier: tap.served_tier().map(Box::from),
            delivered: tap.delivered(),
            is_error: tap.is_error(),
            is_complete: tap.complete(),
            is_over: tap.complete(),
            is_part_passed: tap.stopped_within(),
            is_implausible: tap.is_implausible(),
            began,
            told: self.cost.told_bill(),
            ..read(tap.reports(), tap.reported())
        }
    }
}
