//! What a stream's tap tells of the answer: how it ended, what it reported, how much of it was delivered.

use super::{ErrorEvent, StreamTap};
use crate::pure::charge::Delivered;
use crate::pure::tap::response_metadata::Said;
use crate::pure::usage::{CompletionTokens, Reports, Usage};

impl StreamTap {
    /// [`StreamTap::end_or_fail`] found that the upstream had died.
    pub fn died(&self) -> bool {
        self.died
    }

    /// The upstream's terminal event, `[DONE]`, was seen.
    pub fn done(&self) -> bool {
        self.done
    }

    /// The client has its last event: the upstream's `[DONE]`, or ours behind an error event in place of the upstream's.
    pub fn has_last_event(&self) -> bool {
        self.done || self.closed
    }

    /// A finish reason of each choice or `[DONE]` was seen: the answer is complete, whatever becomes of the connection.
    pub fn finished(&self) -> bool {
        self.finished || self.done
    }

    /// The answer is complete, and no text has followed its end: what may still come is a report.
    pub fn is_at_finish(&self) -> bool {
        self.finished_at == Some(self.reading.counter.committed())
    }

    /// Tokens that were delivered of an answer that is complete, and that no text has followed since its last finish reason or `[DONE]`.
    /// Unlike [`StreamTap::is_at_finish`] it has them of an answer that went on behind a finish reason and has come to another.
    pub fn complete_at(&self) -> Option<CompletionTokens> {
        let committed = self.reading.counter.committed();
        let is_complete = self.done || self.last_finish == Some(committed);
        is_complete.then_some(CompletionTokens(committed))
    }

    /// The answer is complete, no text has followed its end, and what is reported of it is believed. A report before that may be one of
    /// progress, also where it came in an event of its own: work that nobody sees may go on behind it. So it may behind a finish reason that
    /// came too early.
    pub fn has_last_report(&self) -> bool {
        self.complete_at().is_some() && self.reported().is_some()
    }

    /// What is believed of the provider's reports, for both sides: the highest of them, as far as the text that followed the last one
    /// allows. None where they say that there was nothing, and text was delivered.
    pub fn reported(&self) -> Option<Usage> {
        let is_untrue = self.delivered().0 > 0 && self.reading.reports.is_nothing();
        self.reported_behind().filter(|_| !is_untrue)
    }

    /// The same whatever they say.
    fn reported_behind(&self) -> Option<Usage> {
        let delivered = self.delivered();
        let after = delivered.0.saturating_sub(self.reported_at.last);
        let mut usage = self.reading.reports.usage_behind(delivered, after)?;
        if self.options.choices > 1 && self.reported_at.of_all != Some(delivered.0) {
            // Reports that stand in choices may be of these alone, and one of all has nothing of the text behind it.
            usage.completion = usage.completion.max(delivered);
        }
        Some(usage)
    }

    /// The same of an answer that ends here. A report in one without its end, such as one with each event, may be behind what was delivered.
    pub fn reported_at_end(&self) -> Option<Usage> {
        let mut usage = self.reported()?;
        if !self.finished() {
            usage.completion = usage.completion.max(self.delivered());
        }
        Some(usage)
    }

    /// Whether a report gave a completion that this answer cannot have, or none of them fits its text though all have come.
    pub fn is_implausible(&self) -> bool {
        let reports = &self.reading.reports;
        // Before `[DONE]` another report may be on its way.
        reports.is_implausible() || (self.done && reports.usage().is_some() && self.reported_behind().is_none())
    }

    /// The answer may have so many completion tokens now.
    pub fn extend(&mut self, completion_max: u64) {
        self.reading.reports.extend(completion_max);
    }

    /// All that the provider reported, also of one side only, or what was not believed.
    pub fn reports(&self) -> &Reports {
        &self.reading.reports
    }

    /// Tokens of all text that was delivered so far: of an event that passes as it comes all but its last 64 KiB.
    pub fn delivered(&self) -> CompletionTokens {
        let counter = &self.reading.counter;
        let open = if self.released { counter.open() } else { 0 };
        CompletionTokens(counter.committed().saturating_add(open))
    }

    /// The same with all of that event but its last 1,024 bytes. Where words stand in it twice, they may count twice.
    pub fn delivered_to_date(&self) -> CompletionTokens {
        let open = if self.released {
            self.reading.counter.open_waiting()
        } else {
            0
        };
        CompletionTokens(self.delivered().0.saturating_add(open))
    }

    /// How much text was delivered so far: what a running answer is held to ([`crate::pure::charge::Ceiling::passing`]).
    pub fn delivered_text(&self) -> Delivered {
        let counter = &self.reading.counter;
        let open = if self.released { counter.open_bytes() } else { 0 };
        Delivered {
            tokens: self.delivered(),
            bytes: counter.committed_bytes().saturating_add(open),
        }
    }

    /// The tier by which the provider served the call, as it says.
    pub fn served_tier(&self) -> Option<&str> {
        self.reading.served_tier.as_deref()
    }

    /// What the answer said of itself, once it is over.
    pub fn take_said(&mut self) -> Said {
        self.reading.take_said()
    }

    /// Whether an event of an answer has come that passes, or enough of one: not only comments, events without data, a usage chunk that is left
    /// out, and an error.
    pub fn has_event(&self) -> bool {
        self.has_event
    }

    /// The upstream sent an error event, which the client got ours for.
    pub fn error_event(&self) -> bool {
        self.failure().is_some()
    }

    /// The numeric code in that event, or what its words stand for.
    pub fn error_code(&self) -> Option<u16> {
        self.failure().and_then(|error| error.code)
    }

    /// By which words that event speaks of the operator's key or account with the provider.
    pub fn about_operator(&self) -> Option<&'static str> {
        self.failure().and_then(|error| error.about_operator)
    }

    /// Whether that event refuses what the request says.
    pub fn flags_content(&self) -> bool {
        self.failure().is_some_and(|error| error.flags_content)
    }

    /// An error event came behind `[DONE]`. Neither it nor anything after it passes, and the answer has not failed.
    pub fn has_error_behind_end(&self) -> bool {
        self.error.is_some_and(|error| error.is_behind_end)
    }

    fn failure(&self) -> Option<ErrorEvent> {
        self.error.filter(|error| !error.is_behind_end)
    }
}
